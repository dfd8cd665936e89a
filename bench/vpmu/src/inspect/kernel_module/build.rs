//! Building the kernel module for a kernel: its headers, its compiler, the cache, copies of KVM that are linked to it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use host_pmu::kernel::{self, SOURCES};
use linux_guest::modules::{ModuleError, needed};
use results::error::{Error, one_line};
use results::host::HostFs;
use rustix::process::geteuid;

use super::relink::{TRACED, checksums, relink};

/// The file that is loaded.
pub(super) const FILE: &str = "vpmu_kvm.ko";
/// The first release whose KVM makes all these calls, and the first whose perf can be traced.
const FIRST: (u32, u32) = (5, 5);
const FIRST_TRACED: (u32, u32) = (5, 11);
/// KVM's modules that reach perf: one for each vendor, and what both need.
pub(super) const VENDORS: [&str; 2] = ["kvm_intel", "kvm_amd"];
pub(super) const KVM: &str = "kvm";
/// Places of the list of functions that can be traced.
const TRACEABLE: [&str; 2] =
    ["sys/kernel/tracing/available_filter_functions", "sys/kernel/debug/tracing/available_filter_functions"];
/// Lines of the compiler's that an error shows.
const SHOWN: usize = 3;

pub(super) fn refused(why: impl Into<String>, remedy: impl Into<String>) -> Error {
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

/// Returns whether the running kernel has KVM, and not as a module.
pub(super) fn kvm_is_built_in(fs: &HostFs) -> bool {
    fs.exists("sys/module/kvm") && !fs.exists("sys/module/kvm/initstate")
}

/// Returns the release of the running kernel.
pub(super) fn running(fs: &HostFs) -> Result<String, Error> {
    fs.text("proc/sys/kernel/osrelease").ok_or_else(|| refused("the release of the running kernel is unknown", ""))
}

/// Checks that a release's KVM can be stood below.
pub(super) fn check_release(release: &str) -> Result<(), Error> {
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
    let has_it_built_in = || running().is_ok_and(|running| running == release) && kvm_is_built_in(fs);
    if built_in.is_some_and(|list| list.lines().any(|line| line.ends_with("/kvm.ko"))) || has_it_built_in() {
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
            match of {
                "" => "it names no release (include/generated/utsrelease.h)".to_owned(),
                of => format!("its release is '{of}', and the module would be for {release}"),
            },
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
pub fn major(compiler: &str) -> Option<String> {
    let output = Command::new(compiler).arg("-dumpversion").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().split('.').next()?.to_owned())
}

/// Returns the folder that the module of a kernel is built in, another where KVM is linked to it: this user's alone, as root loads what is
/// there.
pub(super) fn cache(release: &str, relinked: bool) -> Result<PathBuf, Error> {
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
pub(super) fn copies(fs: &HostFs, folder: &Path, release: &str) -> Result<(), Error> {
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

pub(super) fn build_in(folder: &Path, headers: &Headers) -> Result<PathBuf, Error> {
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

/// Returns whether perf of this kernel cannot be traced, as far as is known, so that KVM is to be linked to the module.
pub(super) fn is_relinked(fs: &HostFs, release: &str) -> bool {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const RELEASE: &str = "6.1.0-56-amd64";

    /// A host's files below a root.
    pub(in super::super) struct Root(pub(in super::super) tempfile::TempDir);

    impl Root {
        pub(in super::super) fn new(files: &[(&str, &str)]) -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                root.put(path, text);
            }
            root
        }

        pub(in super::super) fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(in super::super) fn fs(&self) -> HostFs {
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
        root.put(&format!("lib/modules/{RELEASE}/build/include/generated/utsrelease.h"), "");
        let other = headers(&root.fs(), None, None, &versioned).unwrap_err().to_string();
        assert!(other.contains("it names no release"), "{other}");
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
        let bare =
            Root::new(&[("proc/sys/kernel/osrelease", RELEASE), ("sys/module/kvm/parameters/halt_poll_ns", "0")]);
        assert!(refused(&bare, None, "12").to_string().contains("KVM built in"), "without its list, too");
        assert!(refused(&bare, Some("6.12.1"), "12").to_string().contains("linux-headers-6.12.1"));
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
    fn kvm_is_linked_to_the_module_where_perf_cannot_be_traced() {
        let root =
            Root::new(&[("proc/sys/kernel/osrelease", RELEASE), (TRACEABLE[1], &(TRACED.join("\n") + " [x]\n"))]);
        assert!(!is_relinked(&root.fs(), RELEASE) && is_relinked(&root.fs(), "5.10.0-46-amd64"));
        root.put(TRACEABLE[0], &TRACED[1..].join("\n"));
        assert!(
            is_relinked(&root.fs(), RELEASE) && !is_relinked(&root.fs(), "6.12.1"),
            "of another kernel nothing is known"
        );
    }

    #[test]
    fn copies_of_kvm_are_made_of_its_files_alone() {
        let root = Root::new(&[("cache/Module.symvers", "")]);
        let refused = |root: &Root| copies(&root.fs(), &root.0.path().join("cache"), RELEASE).unwrap_err().to_string();
        assert!(refused(&root).contains("own modules installed"), "{}", refused(&root));
        root.put(&format!("lib/modules/{RELEASE}/kernel/other.ko"), "");
        assert!(refused(&root).contains("kvm is not among"), "{}", refused(&root));
        root.put(&format!("lib/modules/{RELEASE}/kernel/kvm-amd.ko"), "no module");
        assert!(refused(&root).contains("kvm-amd.ko"), "{}", refused(&root));
    }

    #[test]
    fn others_cannot_write_where_it_is_built() {
        let root = Root::new(&[]);
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
