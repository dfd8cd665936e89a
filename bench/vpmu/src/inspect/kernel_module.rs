//! The kernel module below KVM's vPMU: built for a kernel, loaded, described, unloaded.

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use host_pmu::kernel::{self, PLACE, SOURCES};
use linux_guest::modules::{ModuleError, needed};
use results::error::{Error, one_line};
use results::host::HostFs;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::system::{delete_module, finit_module};

use super::relink::{SIGNED, TRACED, checksums, relink};

/// The file that is loaded.
const FILE: &str = "vpmu_kvm.ko";
/// The first release whose KVM makes all these calls, and the first whose perf can be traced.
const FIRST: (u32, u32) = (5, 5);
const FIRST_TRACED: (u32, u32) = (5, 11);
/// KVM's modules that reach perf: one for each vendor, and what both need.
const VENDORS: [&str; 2] = ["kvm_intel", "kvm_amd"];
const KVM: &str = "kvm";
/// Places of the list of functions that can be traced.
const TRACEABLE: [&str; 2] =
    ["sys/kernel/tracing/available_filter_functions", "sys/kernel/debug/tracing/available_filter_functions"];
/// Lines of the compiler's that an error shows.
const SHOWN: usize = 3;

fn refused(why: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::host("the kernel module vpmu_kvm cannot be had here", why, remedy)
}

/// Headers of a kernel, and the compiler that built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    folder: PathBuf,
    release: String,
    compiler: String,
    /// KVM is to be linked to the module, as perf cannot be traced.
    relinked: bool,
}

fn built_in_kvm(release: &str) -> Error {
    refused(format!("Linux {release} has KVM built in or none (CONFIG_KVM)"), "take a kernel that has it as a module")
}

/// Returns the release of the running kernel.
fn running(fs: &HostFs) -> Result<String, Error> {
    fs.text("proc/sys/kernel/osrelease").ok_or_else(|| refused("the release of the running kernel is unknown", ""))
}

/// Checks that a release's KVM can be stood below.
fn check_release(release: &str) -> Result<(), Error> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.+~".contains(c);
    match kernel::version(release) {
        Some(version) if version >= FIRST && release.chars().all(is_name) => Ok(()),
        Some(version) if version < FIRST => {
            Err(refused(format!("KVM of Linux {release} does not keep its events"), "run Linux 5.5 or later"))
        }
        _ => Err(Error::usage(format!("'{release}' is no kernel's release"), "", "give one as `uname -r` says it")),
    }
}

/// Finds the headers for this kernel, in this folder or where distributions have them. `major` returns the major version of a
/// compiler by its name, if it is installed.
///
/// # Errors
/// Exit 4 with the package that is missing or the choice of the kernel's that forbids it, exit 2 for headers of another release.
pub fn headers(
    fs: &HostFs,
    wanted: Option<&str>,
    folder: Option<&Path>,
    major: &dyn Fn(&str) -> Option<String>,
) -> Result<Headers, Error> {
    let running = || running(fs);
    let release = wanted.map_or_else(running, |release| Ok(release.to_owned()))?;
    check_release(&release)?;
    // The kernel's own list needs no headers.
    let built_in = fs.text(&format!("lib/modules/{release}/modules.builtin"));
    if built_in.is_some_and(|list| list.lines().any(|line| line.ends_with("/kvm.ko"))) {
        return Err(built_in_kvm(&release));
    }
    let default = fs.path(&format!("lib/modules/{release}/build"));
    let packages =
        "apt-get install linux-headers-RELEASE (Debian, Ubuntu), or dnf install kernel-devel-RELEASE (Fedora)";
    let remedy = match folder {
        Some(_) => "--headers takes the folder that /lib/modules/RELEASE/build would name".to_owned(),
        None => packages.replace("RELEASE", &release),
    };
    let folder = folder.map_or(default, Path::to_owned);
    if !folder.join("Makefile").is_file() {
        return Err(refused(format!("no headers of Linux {release}: {} has no Makefile", folder.display()), remedy));
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let of = read("include/generated/utsrelease.h");
    let of = of.split('"').nth(1).unwrap_or_default();
    if of != release {
        return Err(Error::usage(
            format!("{} is of another kernel", folder.display()),
            format!("its release is '{of}', and the module would be for {release}"),
            "give both --kernel and --headers of one kernel",
        ));
    }
    let config = read(".config");
    let config = if config.is_empty() { read("include/config/auto.conf") } else { config };
    let value =
        |key: &str| config.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    let relinked = is_relinked(fs, &release);
    for (key, missing, wanted) in [
        ("CONFIG_MODULES", "modules", true),
        ("CONFIG_DYNAMIC_FTRACE_WITH_REGS", "ftrace that can redirect a call", !relinked),
    ] {
        if wanted && value(key) != "y" {
            return Err(refused(format!("Linux {release} has no {missing} ({key})"), "take a distribution's kernel"));
        }
    }
    if value("CONFIG_KVM") != "m" {
        return Err(built_in_kvm(&release));
    }
    let version = value("CONFIG_GCC_VERSION").parse::<u32>().unwrap_or(0) / 10_000;
    if version == 0 {
        return Err(refused(format!("Linux {release} was not built by gcc"), "take a kernel that was"));
    }
    let version = version.to_string();
    let names = [format!("gcc-{version}"), "gcc".to_owned()];
    let Some(compiler) = names.into_iter().find(|name| major(name).as_ref() == Some(&version)) else {
        let there = major("gcc").map_or_else(|| "there is none".to_owned(), |other| format!("gcc is {other}"));
        let why = format!("Linux {release} was built by gcc {version}, and {there}");
        return Err(refused(why, format!("install gcc-{version}")));
    };
    Ok(Headers { folder, release, compiler, relinked })
}

/// Returns the major version of an installed compiler.
#[must_use]
pub fn major(compiler: &str) -> Option<String> {
    let output = Command::new(compiler).arg("-dumpversion").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().split('.').next()?.to_owned())
}

/// Returns the folder that the module of a kernel is built in, another where KVM is linked to it: this user's alone, as root loads what is
/// there.
fn cache(release: &str, relinked: bool) -> Result<PathBuf, Error> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if geteuid().is_root() {
        Some(PathBuf::from("/var/cache"))
    } else {
        of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))
    };
    let base = base.ok_or_else(|| refused("neither XDG_CACHE_HOME nor HOME names a folder", "set HOME"))?;
    let folder = base.join("vpmu/kernel-module").join(format!("{release}{}", if relinked { "-linked" } else { "" }));
    own(&folder)?;
    Ok(folder)
}

/// Makes a folder that nobody else can write to.
fn own(folder: &Path) -> Result<(), Error> {
    let cannot = |why: String| {
        Error::host(format!("cannot build in {}", folder.display()), why, "remove it, or mend its owner and mode")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| cannot(error.to_string()))?;
    let found = fs::symlink_metadata(folder).map_err(|error| cannot(error.to_string()))?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(cannot("others than this user can write there".to_owned()))
}

/// Builds the module in its cache, with copies of KVM's modules where these are to be linked to it. Returns the file.
///
/// # Errors
/// Exit 4: no make, what the compiler said, or no such modules.
pub fn build(fs: &HostFs, headers: &Headers) -> Result<PathBuf, Error> {
    let folder = cache(&headers.release, headers.relinked)?;
    let module = build_in(&folder, headers)?;
    if headers.relinked {
        copies(fs, &folder, &headers.release)?;
    }
    Ok(module)
}

/// Makes copies of KVM's modules that are linked to the module, beside it.
fn copies(fs: &HostFs, folder: &Path, release: &str) -> Result<(), Error> {
    let cannot = |why: String| {
        Error::host(
            format!("cannot link KVM of Linux {release} to vpmu_kvm"),
            why,
            "are the kernel's own modules installed?",
        )
    };
    let sums = fs::read_to_string(folder.join("Module.symvers"))
        .map_err(|error| cannot(format!("Module.symvers: {error}")))?;
    let modules = fs.path(&format!("lib/modules/{release}"));
    let mut linked = false;
    for vendor in VENDORS {
        // A copy of an earlier build must not be taken for one of this.
        let _ = fs::remove_file(folder.join(format!("{vendor}.ko")));
        let found = match needed(&modules, release, &[vendor]) {
            // Of the other vendor there may be none.
            Err(ModuleError::Absent { needed_by: None, .. }) => continue,
            found => found.map_err(|error| cannot(error.to_string()))?,
        };
        for module in found.into_iter().filter(|module| [KVM, vendor].contains(&&*module.name)) {
            let copy =
                relink(&module.bytes, &checksums(&sums)).map_err(|why| cannot(format!("{}: {why}", module.name)))?;
            let to = folder.join(format!("{}.ko", module.name));
            fs::write(&to, copy).map_err(|error| cannot(format!("{}: {error}", to.display())))?;
            linked |= module.name == KVM;
        }
    }
    if !linked {
        return Err(cannot("kvm is not among its modules".to_owned()));
    }
    Ok(())
}

fn build_in(folder: &Path, headers: &Headers) -> Result<PathBuf, Error> {
    let cannot =
        |why: String, remedy: &str| Error::host(format!("cannot build {}", folder.join(FILE).display()), why, remedy);
    // A file of an earlier build must not be taken for one of a build that failed.
    let module = folder.join(FILE);
    if let Err(error) = fs::remove_file(&module)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(cannot(error.to_string(), ""));
    }
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).map_err(|error| cannot(format!("{name}: {error}"), ""))?;
    }
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let made = Command::new("make")
        .arg("-C")
        .arg(folder)
        .args([variable("KDIR", &headers.folder), format!("CC={}", headers.compiler)])
        .args(headers.relinked.then_some("RELINK=y"))
        .env_remove("MAKEFLAGS")
        .output()
        .map_err(|error| cannot(format!("make: {error}"), "install make, gcc and binutils"))?;
    if made.status.success() && module.is_file() {
        return Ok(module);
    }
    let said = String::from_utf8_lossy(&made.stderr);
    let errors: Vec<&str> =
        said.lines().filter(|line| line.contains("rror") || line.contains("***")).take(SHOWN).collect();
    Err(cannot(
        one_line(&format!("make ended with {}: {}", made.status, errors.join("; "))),
        "are these the kernel's own headers?",
    ))
}

/// Checks whether the running kernel lets the module in at all.
fn check_running(fs: &HostFs) -> Result<(), Error> {
    check_release(&running(fs)?)?;
    if !fs.exists("sys/module/kvm/initstate") {
        return Err(if fs.exists("sys/module/kvm") {
            refused("KVM is built into this kernel", "take a kernel that has it as a module")
        } else {
            refused("KVM is not loaded", "modprobe kvm_intel, or kvm_amd")
        });
    }
    if fs.number("proc/sys/kernel/modules_disabled") == Some(1) {
        return Err(refused(
            "this kernel loads no more modules (kernel.modules_disabled)",
            "boot anew without that setting",
        ));
    }
    Ok(())
}

/// Returns whether perf of this kernel cannot be traced, as far as is known, so that KVM is to be linked to the module.
fn is_relinked(fs: &HostFs, release: &str) -> bool {
    if kernel::version(release).is_some_and(|version| version < FIRST_TRACED) {
        return true;
    }
    // Where tracefs is not mounted the kernel says it when the module is loaded.
    let list = TRACEABLE.into_iter().find_map(|path| fs::read_to_string(fs.path(path)).ok());
    let list = list.filter(|_| running(fs).is_ok_and(|running| running == release));
    let lacks =
        |list: String| TRACED.iter().any(|name| !list.lines().any(|line| line.split(' ').next() == Some(*name)));
    list.is_some_and(lacks)
}

/// Checks that the kernel takes the file without a signature, or that it has one.
fn check_signature(fs: &HostFs, module: &[u8]) -> Result<(), Error> {
    let locked = fs.text("sys/kernel/security/lockdown").is_some_and(|text| !text.contains("[none]"));
    let enforced = fs.text("sys/module/module/parameters/sig_enforce").is_some_and(|text| text == "Y");
    if module.ends_with(SIGNED) || !(locked || enforced) {
        return Ok(());
    }
    let by = if locked { "locked down, as with Secure Boot" } else { "booted with module.sig_enforce" };
    Err(refused(
        format!("this kernel is {by}: it loads signed modules only"),
        "sign the file that `vpmu kernel-module build` names with a key of yours that the kernel knows (sign-file, mokutil)",
    ))
}

/// Loads the module, built before if it is not there yet. Returns a line about it.
///
/// # Errors
/// Exit 4 with the reason.
pub fn load(fs: &HostFs, folder: Option<&Path>) -> Result<String, Error> {
    if fs.exists(PLACE) {
        kernel::check_version(&version(fs)).map_err(|why| refused(why, ""))?;
        if running(fs).is_ok_and(|release| is_relinked(fs, &release)) && !has_copies(fs) {
            return Err(refused(
                "the module is loaded, and the KVM that is loaded is not linked to it",
                "vpmu kernel-module unload, then load",
            ));
        }
        return Ok(status(fs));
    }
    if !geteuid().is_root() {
        return Err(refused("only root loads modules", "run it as root"));
    }
    check_running(fs)?;
    let release = running(fs)?;
    let relinked = is_relinked(fs, &release);
    let cached = cache(&release, relinked)?;
    let same = |(name, text): &(&str, &str)| fs::read_to_string(cached.join(name)).is_ok_and(|found| found == *text);
    let module = if folder.is_none() && cached.join(FILE).is_file() && SOURCES.iter().all(same) {
        cached.join(FILE)
    } else {
        build_in(&cached, &headers(fs, None, folder, &major)?)?
    };
    let what = || format!("cannot load {}", module.display());
    let bytes = fs::read(&module).map_err(|error| Error::host(what(), error.to_string(), ""))?;
    check_signature(fs, &bytes)?;
    if relinked {
        // A copy has no signature of the vendor's any more.
        check_signature(fs, &[])?;
        copies(fs, &cached, &release)?;
        replace_kvm(fs, &cached)?;
    } else {
        insert(&module, c"")?;
    }
    Ok(status(fs))
}

fn insert(module: &Path, options: &CStr) -> Result<(), Error> {
    let what = || format!("cannot load {}", module.display());
    let file = File::open(module).map_err(|error| Error::host(what(), error.to_string(), ""))?;
    finit_module(file, options, 0).map_err(|error| {
        let (why, remedy) = not_loaded(error);
        Error::host(what(), format!("{error}: {why}"), remedy)
    })
}

/// Unloads a module of KVM's, or ours.
fn remove(fs: &HostFs, name: &str) -> Result<(), Error> {
    let what = format!("cannot unload {name}");
    let c_name = CString::new(name).unwrap_or_default();
    delete_module(&c_name, rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).map_err(|error| match error {
        Errno::AGAIN | Errno::BUSY => {
            let held = fs.text(&format!("sys/module/{name}/refcnt")).unwrap_or_else(|| "some".to_owned());
            Error::host(what, format!("guests hold {held} files and events of it"), "end them first")
        }
        Errno::PERM => Error::host(what, "only root unloads modules", "run it as root"),
        other => Error::host(what, other.to_string(), "see the last lines of dmesg"),
    })
}

/// Returns the vendor's module of KVM's that is loaded.
fn vendor(fs: &HostFs) -> Result<&'static str, Error> {
    let loaded = VENDORS.into_iter().find(|name| fs.exists(&format!("sys/module/{name}")));
    loaded.ok_or_else(|| refused("KVM is not loaded", "modprobe kvm_intel, or kvm_amd"))
}

/// Runs modprobe, which knows the host's options of modules. Returns what it printed.
fn modprobe(arguments: &[&str]) -> Result<String, Error> {
    let cannot =
        |why: String| Error::host(format!("modprobe {}", arguments.join(" ")), why, "see the last lines of dmesg");
    let done = Command::new("modprobe").args(arguments).output().map_err(|error| cannot(error.to_string()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(cannot(one_line(&String::from_utf8_lossy(&done.stderr))))
}

/// Returns the options of a module in what `modprobe --show-depends` printed.
fn options_of(name: &str, shown: &str) -> CString {
    let options = shown.lines().find_map(|line| {
        let (path, options) = line.strip_prefix("insmod ")?.split_once(' ')?;
        let file = Path::new(path).file_name()?.to_str()?.split('.').next()?;
        (file.replace('-', "_") == name).then(|| options.trim())
    });
    CString::new(options.unwrap_or_default()).unwrap_or_default()
}

/// Loads the module and KVM's copies in place of KVM, or leaves KVM as it is.
fn replace_kvm(fs: &HostFs, folder: &Path) -> Result<(), Error> {
    let vendor = vendor(fs)?;
    let copy = folder.join(format!("{vendor}.ko"));
    if !copy.is_file() {
        return Err(refused(format!("there is no {}", copy.display()), "build it anew: vpmu kernel-module build"));
    }
    let shown = modprobe(&["--show-depends", vendor])?;
    remove(fs, vendor)?;
    let done = remove(fs, KVM).and_then(|()| {
        ["vpmu_kvm", KVM, vendor]
            .into_iter()
            .try_for_each(|name| insert(&folder.join(format!("{name}.ko")), &options_of(name, &shown)))
    });
    if done.is_err() {
        for name in [vendor, KVM, "vpmu_kvm"] {
            let _ = remove(fs, name);
        }
        modprobe(&[vendor])?;
    }
    done
}

/// Explains why the kernel did not load it.
fn not_loaded(error: Errno) -> (&'static str, &'static str) {
    match error {
        Errno::KEYREJECTED | Errno::NOKEY => {
            ("it has no signature of a key that the kernel knows", "sign it (sign-file, mokutil)")
        }
        Errno::PERM => ("the kernel is locked down, or this is root of a container", "run it as root of the host"),
        Errno::EXIST => ("a module of that name is loaded or being loaded", "see `vpmu kernel-module status`"),
        Errno::BUSY => (
            "someone else redirects one of perf's functions, as a live patch does, or kernel.ftrace_enabled is 0",
            "unload that first, or set it to 1",
        ),
        Errno::NOEXEC => ("it was built for another kernel", "build it anew: vpmu kernel-module build"),
        Errno::NOENT => ("the kernel lacks a function that it calls", "see the last lines of dmesg"),
        _ => ("the kernel refused it", "see the last lines of dmesg"),
    }
}

/// Returns the version of the loaded module.
fn version(fs: &HostFs) -> String {
    fs.text(&format!("{PLACE}/version")).unwrap_or_else(|| "unknown".to_owned())
}

/// Describes the module.
#[must_use]
pub fn status(fs: &HostFs) -> String {
    if !fs.exists(PLACE) {
        return "vpmu_kvm: not loaded\n".to_owned();
    }
    let held = held(fs).map_or("unknown".to_owned(), |held| held.to_string());
    let (loaded, own) = (version(fs), kernel::sources_version());
    let own = if loaded == own { String::new() } else { format!("; this vpmu's is {own}") };
    let mut shown = format!("vpmu_kvm: loaded, version {loaded}{own}\n");
    let kvm: Vec<&str> = VENDORS.into_iter().filter(|name| fs.exists(&format!("sys/module/{name}"))).collect();
    let front_end = if has_copies(fs) {
        "relinked KVM"
    } else if running(fs).is_ok_and(|release| is_relinked(fs, &release)) {
        "none, as KVM is not linked to it"
    } else {
        "ftrace"
    };
    let kvm = if kvm.is_empty() { "not loaded".to_owned() } else { kvm.join(", ") };
    let _ = writeln!(shown, "front end: {front_end}; KVM: {kvm}\nheld by: {held} files and events of guests");
    shown
}

/// Returns how many files and events of guests hold the module; KVM that is linked to it holds it, too.
fn held(fs: &HostFs) -> Option<i64> {
    let linked = i64::try_from(fs.names(&format!("{PLACE}/holders")).len()).unwrap_or(0);
    fs.number(&format!("{PLACE}/refcnt")).map(|held| held - linked)
}

/// Returns whether the KVM that is loaded is linked to the module.
fn has_copies(fs: &HostFs) -> bool {
    fs.exists(&format!("{PLACE}/holders/{KVM}"))
}

/// Unloads the module, and loads KVM itself again where it was linked to it. Returns a line about it.
///
/// # Errors
/// Exit 4 while guests hold it.
pub fn unload(fs: &HostFs) -> Result<String, Error> {
    if !fs.exists(PLACE) {
        return Ok(status(fs));
    }
    if has_copies(fs) {
        if let Some(held @ 1..) = held(fs) {
            let why = format!("{held} files and events of guests hold it");
            return Err(Error::host("cannot unload vpmu_kvm", why, "end these guests, and close /dev/vpmu_kvm"));
        }
        let vendor = vendor(fs)?;
        let done = [vendor, KVM, "vpmu_kvm"].into_iter().try_for_each(|name| remove(fs, name));
        modprobe(&[vendor])?;
        done?;
    } else {
        remove(fs, "vpmu_kvm")?;
    }
    Ok(status(fs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str = "6.1.0-56-amd64";

    /// A host's files below a root.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new(files: &[(&str, &str)]) -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                root.put(path, text);
            }
            root
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn fs(&self) -> HostFs {
            HostFs::at(self.0.path())
        }
    }

    const CONFIG: &str =
        "CONFIG_MODULES=y\nCONFIG_DYNAMIC_FTRACE_WITH_REGS=y\nCONFIG_KVM=m\nCONFIG_GCC_VERSION=120200\n";

    fn with_headers() -> Root {
        let build = |name: &str| format!("lib/modules/{RELEASE}/build/{name}");
        let root = Root::new(&[("proc/sys/kernel/osrelease", &format!("{RELEASE}\n"))]);
        root.put(&build("Makefile"), "");
        root.put(&build(".config"), CONFIG);
        root.put(&build("include/generated/utsrelease.h"), &format!("#define UTS_RELEASE \"{RELEASE}\"\n"));
        root
    }

    fn gcc(version: &'static str) -> impl Fn(&str) -> Option<String> {
        move |name| (name == "gcc").then(|| version.to_owned())
    }

    #[test]
    fn headers_are_those_of_the_kernel_with_its_compiler() {
        let root = with_headers();
        let found = headers(&root.fs(), None, None, &gcc("12")).unwrap();
        let folder = root.0.path().join(format!("lib/modules/{RELEASE}/build"));
        let wanted = Headers {
            folder: folder.clone(),
            release: RELEASE.to_owned(),
            compiler: "gcc".to_owned(),
            relinked: false,
        };
        assert_eq!(found, wanted);
        let versioned = |name: &str| (name == "gcc-12").then(|| "12".to_owned());
        assert_eq!(headers(&root.fs(), Some(RELEASE), Some(&folder), &versioned).unwrap().compiler, "gcc-12");
        let other = headers(&root.fs(), Some("6.1.0-50-amd64"), Some(&folder), &versioned).unwrap_err();
        assert!(other.exit.code() == 2 && other.to_string().contains(RELEASE), "{other}");
    }

    #[test]
    fn what_cannot_be_built_is_refused_before_anything_runs() {
        let refused = |root: &Root, kernel, version| headers(&root.fs(), kernel, None, &gcc(version)).unwrap_err();
        let root = with_headers();
        for (kernel, version, needle) in [
            (None, "14", "built by gcc 12, and gcc is 14; install gcc-12"),
            (Some("6.12.1"), "12", "apt-get install linux-headers-6.12.1"),
            (Some("5.4.0-9-amd64"), "12", "run Linux 5.5 or later"),
            (Some("6.1/../../x"), "12", "is no kernel's release"),
            (Some("new"), "12", "is no kernel's release"),
        ] {
            let error = refused(&root, kernel, version).to_string();
            assert!(error.contains(needle), "{error}");
        }
        let list = format!("lib/modules/{RELEASE}/modules.builtin");
        let bare = Root::new(&[("proc/sys/kernel/osrelease", RELEASE), (&list, "kernel/arch/x86/kvm/kvm.ko\n")]);
        let error = refused(&bare, None, "12").to_string();
        assert!(error.contains("KVM built in"), "before any headers are asked for: {error}");
        for (had, has, needle) in [
            ("CONFIG_KVM=m", "CONFIG_KVM=y", "KVM built in"),
            ("CONFIG_MODULES=y", "", "no modules"),
            ("CONFIG_DYNAMIC_FTRACE_WITH_REGS=y", "", "ftrace"),
            ("CONFIG_GCC_VERSION=120200", "CONFIG_GCC_VERSION=0", "not built by gcc"),
        ] {
            root.put(&format!("lib/modules/{RELEASE}/build/.config"), &CONFIG.replace(had, has));
            let error = refused(&root, None, "12");
            assert!(error.exit.code() == 4 && error.to_string().contains(needle), "{error}");
        }
    }

    #[test]
    fn a_kernel_that_lets_no_module_in_says_why() {
        let root = Root::new(&[
            ("proc/sys/kernel/osrelease", RELEASE),
            ("proc/sys/kernel/modules_disabled", "0\n"),
            ("sys/module/kvm/initstate", "live\n"),
            (TRACEABLE[1], &(TRACED.join("\n") + " [x]\n")),
        ]);
        check_running(&root.fs()).unwrap();
        let refused = |needle: &str| {
            let error = check_running(&root.fs()).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        };
        assert!(!is_relinked(&root.fs(), RELEASE) && is_relinked(&root.fs(), "5.10.0-46-amd64"));
        root.put(TRACEABLE[0], &TRACED[1..].join("\n"));
        assert!(
            is_relinked(&root.fs(), RELEASE) && !is_relinked(&root.fs(), "6.12.1"),
            "of another kernel nothing is known"
        );
        root.put("proc/sys/kernel/modules_disabled", "1\n");
        refused("modules_disabled");
        fs::remove_file(root.0.path().join("sys/module/kvm/initstate")).unwrap();
        refused("KVM is built into");
        fs::remove_dir(root.0.path().join("sys/module/kvm")).unwrap();
        refused("KVM is not loaded");
        root.put("proc/sys/kernel/osrelease", "5.4.0-9-amd64");
        refused("5.5 or later");
    }

    #[test]
    fn copies_of_kvm_take_its_options_and_are_made_of_its_files_alone() {
        let shown = "insmod /lib/modules/6/kernel/kvm/kvm.ko.xz ignore_msrs=1 \ninsmod /m/kvm-amd.ko nested=0 avic=1\n";
        let of = |name| options_of(name, shown).into_string().unwrap();
        assert_eq!([of("kvm"), of("kvm_amd"), of("kvm_intel")], ["ignore_msrs=1", "nested=0 avic=1", ""]);
        let root = Root::new(&[("cache/Module.symvers", "")]);
        let refused = |root: &Root| copies(&root.fs(), &root.0.path().join("cache"), RELEASE).unwrap_err().to_string();
        assert!(refused(&root).contains("own modules installed"), "{}", refused(&root));
        root.put(&format!("lib/modules/{RELEASE}/kernel/other.ko"), "");
        assert!(refused(&root).contains("kvm is not among"), "{}", refused(&root));
        root.put(&format!("lib/modules/{RELEASE}/kernel/kvm-amd.ko"), "no module");
        assert!(refused(&root).contains("kvm-amd.ko"), "{}", refused(&root));
        root.put(&format!("{PLACE}/holders/kvm/x"), "");
        root.put(&format!("{PLACE}/refcnt"), "3\n");
        let shown = status(&root.fs());
        assert!(shown.contains("front end: relinked KVM") && shown.contains("held by: 2 files"), "{shown}");
    }

    #[test]
    fn a_locked_kernel_wants_a_signature() {
        let root = Root::new(&[("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")]);
        let signed = [b"module", SIGNED].concat();
        assert!(check_signature(&root.fs(), b"module").is_ok());
        for (path, text, needle) in [
            ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", "Secure Boot"),
            ("sys/module/module/parameters/sig_enforce", "Y\n", "sig_enforce"),
        ] {
            let root = Root::new(&[(path, text)]);
            let error = check_signature(&root.fs(), b"module").unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains("sign-file"), "{error}");
            assert!(check_signature(&root.fs(), &signed).is_ok());
        }
        let whys = [Errno::KEYREJECTED, Errno::EXIST, Errno::BUSY, Errno::NOEXEC].map(|error| not_loaded(error).0);
        assert!(whys.iter().all(|why| *why != not_loaded(Errno::IO).0), "{whys:?}");
    }

    #[test]
    fn the_module_is_described_and_kept_from_others() {
        let root = Root::new(&[]);
        assert_eq!(status(&root.fs()), "vpmu_kvm: not loaded\n");
        assert_eq!(unload(&root.fs()).unwrap(), status(&root.fs()));
        let ours = kernel::sources_version();
        for (name, text) in [("version", &*format!("{ours}\n")), ("refcnt", "3\n")] {
            root.put(&format!("{PLACE}/{name}"), text);
        }
        root.put("sys/module/kvm_amd/refcnt", "0\n");
        let wanted = format!(
            "vpmu_kvm: loaded, version {ours}\nfront end: ftrace; KVM: kvm_amd\nheld by: 3 files and events of guests\n"
        );
        assert_eq!(status(&root.fs()), wanted);
        assert_eq!(load(&root.fs(), None).unwrap(), wanted, "a second time is none");
        root.put(&format!("{PLACE}/version"), "1\n");
        assert!(status(&root.fs()).starts_with(&format!("vpmu_kvm: loaded, version 1; this vpmu's is {ours}\n")));
        assert!(load(&root.fs(), None).unwrap_err().to_string().contains("unload`, then load"), "of other sources");
        let folder = root.0.path().join("a/b");
        own(&folder).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(own(&folder).unwrap_err().to_string().contains("others than this user"));
    }

    #[test]
    fn a_build_that_fails_leaves_no_module_and_says_what_the_compiler_said() {
        let root = Root::new(&[("cache/vpmu_kvm.ko", "of an earlier build"), ("headers/Makefile", "")]);
        let at = |name: &str| root.0.path().join(name);
        let mut found =
            Headers { folder: at("headers"), release: RELEASE.to_owned(), compiler: "gcc".to_owned(), relinked: false };
        let error = build_in(&at("cache"), &found).unwrap_err();
        assert!(error.exit.code() == 4 && !at("cache/vpmu_kvm.ko").exists(), "{error}");
        if error.to_string().contains("install make") {
            return;
        }
        assert!(error.to_string().contains("No rule to make target 'modules'"), "{error}");
        // Headers whose kernel links the objects that the module's Makefile names.
        root.put(
            "headers/Makefile",
            "modules:\n\tcat $(M)/module.c $(M)/vpmu_kvm.h >$(M)/vpmu_kvm.ko; echo $(CC) >$(M)/cc\n",
        );
        found.compiler = "gcc-12".to_owned();
        let module = build_in(&at("cache"), &found).unwrap();
        assert!(fs::read_to_string(module).unwrap().contains("MODULE_LICENSE"));
        assert_eq!(fs::read_to_string(at("cache/cc")).unwrap(), "gcc-12\n");
    }
}
