//! The kernel module in the running kernel: loaded, described, unloaded.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use host_pmu::kernel::{self, PLACE, SOURCES};
use results::error::{Error, one_line};
use results::host::HostFs;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::system::{delete_module, finit_module};

use super::build::{
    FILE, KVM, VENDORS, build_in, cache, check_release, copies, headers, is_relinked, kvm_is_built_in, major, refused,
    running,
};
use super::relink::SIGNED;

/// Checks whether the running kernel lets the module in at all.
fn check_running(fs: &HostFs) -> Result<(), Error> {
    check_release(&running(fs)?)?;
    if kvm_is_built_in(fs) {
        return Err(refused("KVM is built into this kernel", "take a kernel that has it as a module"));
    }
    if !fs.exists("sys/module/kvm") {
        return Err(refused("KVM is not loaded", "modprobe kvm_intel, or kvm_amd"));
    }
    if fs.number("proc/sys/kernel/modules_disabled") == Some(1) {
        return Err(refused(
            "this kernel loads no more modules (kernel.modules_disabled)",
            "boot anew without that setting",
        ));
    }
    Ok(())
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
    // What root is refused, too, comes first.
    check_running(fs)?;
    if !geteuid().is_root() {
        return Err(refused("only root loads modules", "run it as root"));
    }
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
    let mut lost = String::new();
    if relinked {
        // A copy has no signature of the vendor's any more.
        check_signature(fs, &[])?;
        copies(fs, &cached, &release)?;
        lost = replace_kvm(fs, &cached)?;
    } else {
        insert(&module, c"")?;
    }
    Ok(status(fs) + &lost)
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
fn options_of(name: &str, shown: &str) -> String {
    let options = shown.lines().find_map(|line| {
        let (path, options) = line.strip_prefix("insmod ")?.split_once(' ')?;
        let file = Path::new(path).file_name()?.to_str()?.split('.').next()?;
        (file.replace('-', "_") == name).then(|| options.trim())
    });
    options.unwrap_or_default().to_owned()
}

/// Values of KVM's parameters, by module and name.
type Values = BTreeMap<(&'static str, String), String>;

/// Reads the values that the parameters of KVM's modules have.
fn values(fs: &HostFs, vendor: &'static str) -> Values {
    let of = |module: &'static str| {
        let folder = format!("sys/module/{module}/parameters");
        let names = fs.names(&folder);
        names.into_iter().filter_map(move |name| {
            let value = fs.text(&format!("{folder}/{name}"))?;
            Some(((module, name), value))
        })
    };
    [KVM, vendor].into_iter().flat_map(of).collect()
}

/// Returns values as options of a module, as its loader takes them.
fn as_options(values: &Values, module: &str) -> Vec<String> {
    values.iter().filter(|((of, _), _)| *of == module).map(|((_, name), value)| format!("{name}={value}")).collect()
}

/// Starts KVM by `start` with the parameters' values of `before`, which somebody may have given by hand: those that the host's own
/// options do not make are given in a second try. Returns a line about each that KVM does not take back.
fn start_as_before(
    (before, now): (&Values, &dyn Fn() -> Values),
    start: &dyn Fn(&Values) -> Result<(), Error>,
    stop: &dyn Fn(),
) -> Result<String, Error> {
    let lost = || {
        let now = now();
        let differs = |(key, value): &(&_, &_)| now.get(*key) != Some(*value);
        before.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect::<Values>()
    };
    start(&Values::new())?;
    let first = lost();
    if !first.is_empty() {
        stop();
        if start(&first).is_err() {
            stop();
            start(&Values::new())?;
        }
    }
    let line = |((module, name), value): (&(&str, String), &String)| {
        format!(
            "{module}.{name} was {value}, which cannot be given back: put 'options {module} {name}=VALUE' into /etc/modprobe.d\n"
        )
    };
    Ok(lost().iter().map(line).collect())
}

/// Starts KVM itself, with further options.
fn start_kvm(vendor: &'static str, further: &Values) -> Result<(), Error> {
    [KVM, vendor].into_iter().try_for_each(|module| {
        let options = as_options(further, module);
        modprobe(&[module].into_iter().chain(options.iter().map(String::as_str)).collect::<Vec<_>>()).map(drop)
    })
}

fn stop(fs: &HostFs, modules: &[&str]) {
    for name in modules {
        let _ = remove(fs, name);
    }
}

/// Loads the module and KVM's copies in place of KVM, or leaves KVM as it is. Returns lines about parameters that KVM lost.
fn replace_kvm(fs: &HostFs, folder: &Path) -> Result<String, Error> {
    let vendor = vendor(fs)?;
    let copy = folder.join(format!("{vendor}.ko"));
    if !copy.is_file() {
        return Err(refused(format!("there is no {}", copy.display()), "build it anew: vpmu kernel-module build"));
    }
    let shown = modprobe(&["--show-depends", vendor])?;
    let before = values(fs, vendor);
    let file = |name: &str| folder.join(format!("{name}.ko"));
    let start = |further: &Values| {
        [KVM, vendor].into_iter().try_for_each(|name| {
            let options = [vec![options_of(name, &shown)], as_options(further, name)].concat().join(" ");
            insert(&file(name), &CString::new(options).unwrap_or_default())
        })
    };
    let now = || values(fs, vendor);
    remove(fs, vendor)?;
    let done = remove(fs, KVM)
        .and_then(|()| insert(&file("vpmu_kvm"), c""))
        .and_then(|()| start_as_before((&before, &now), &start, &|| stop(fs, &[vendor, KVM])));
    done.map_err(|error| {
        stop(fs, &[vendor, KVM, "vpmu_kvm"]);
        let back =
            start_as_before((&before, &now), &|further| start_kvm(vendor, further), &|| stop(fs, &[vendor, KVM]));
        // What is not as before is said beside the reason.
        let said = back.unwrap_or_else(|second| format!("nor could KVM be loaded again: {second}"));
        let why = [error.why, said].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        Error { why, ..error }
    })
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
        "linked copies of KVM"
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
        let before = values(fs, vendor);
        let done = [vendor, KVM, "vpmu_kvm"].into_iter().try_for_each(|name| remove(fs, name));
        let lost = start_as_before((&before, &|| values(fs, vendor)), &|further| start_kvm(vendor, further), &|| {
            stop(fs, &[vendor, KVM]);
        });
        done?;
        return Ok(status(fs) + &lost?);
    }
    remove(fs, "vpmu_kvm")?;
    Ok(status(fs))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::build::tests::{RELEASE, Root};
    use super::*;

    #[test]
    fn a_kernel_that_lets_no_module_in_says_why() {
        let root = Root::new(&[
            ("proc/sys/kernel/osrelease", RELEASE),
            ("proc/sys/kernel/modules_disabled", "0\n"),
            ("sys/module/kvm/initstate", "live\n"),
        ]);
        check_running(&root.fs()).unwrap();
        let refused = |needle: &str| {
            let error = check_running(&root.fs()).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        };
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
    fn copies_of_kvm_take_its_options_and_are_described() {
        let shown = "insmod /lib/modules/6/kernel/kvm/kvm.ko.xz ignore_msrs=1 \ninsmod /m/kvm-amd.ko nested=0 avic=1\n";
        let of = |name| options_of(name, shown);
        assert_eq!([of("kvm"), of("kvm_amd"), of("kvm_intel")], ["ignore_msrs=1", "nested=0 avic=1", ""]);
        let root = Root::new(&[]);
        root.put(&format!("{PLACE}/holders/kvm/x"), "");
        root.put(&format!("{PLACE}/refcnt"), "3\n");
        let shown = status(&root.fs());
        assert!(shown.contains("front end: linked copies of KVM") && shown.contains("held by: 2 files"), "{shown}");
    }

    #[test]
    fn kvm_takes_back_values_that_were_given_by_hand_or_says_which_it_does_not() {
        let root = Root::new(&[]);
        let put = |module: &str, name: &str, value: &str| {
            root.put(&format!("sys/module/{module}/parameters/{name}"), &format!("{value}\n"));
        };
        let now = || values(&root.fs(), "kvm_amd");
        // KVM of the host's own options, with further ones; `refuses` is of no value that an option can have.
        let given = RefCell::new(Vec::new());
        let start = |further: &Values| {
            given
                .borrow_mut()
                .push(as_options(further, "kvm").into_iter().chain(as_options(further, "kvm_amd")).collect::<Vec<_>>());
            for (module, name, value) in
                [("kvm", "halt_poll_ns", "200000"), ("kvm_amd", "nested", "1"), ("kvm_amd", "avic", "N")]
            {
                let value = further.get(&(module, name.to_owned())).map_or(value, String::as_str);
                if value == "not required" {
                    return Err(refused("the kernel refused it", ""));
                }
                put(module, name, value);
            }
            Ok(())
        };
        let again = |before: &Values| start_as_before((before, &now), &start, &|| ()).unwrap();
        start(&Values::new()).unwrap();
        assert_eq!(
            (again(&now()), given.take().len()),
            (String::new(), 2),
            "one start where nothing was given by hand"
        );
        put("kvm", "halt_poll_ns", "0");
        put("kvm_amd", "nested", "0");
        let before = now();
        assert_eq!((again(&before), now()), (String::new(), before));
        assert_eq!(given.take(), [vec![], vec!["halt_poll_ns=0".to_owned(), "nested=0".to_owned()]]);
        put("kvm_amd", "avic", "not required");
        let said = again(&now());
        assert!(
            said.contains("kvm_amd.avic was not required, which cannot be given back")
                && said.contains("kvm_amd.nested was 0"),
            "{said}"
        );
        assert_eq!((given.take().len(), now()[&("kvm_amd", "nested".to_owned())].as_str()), (3, "1"));
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
    fn the_module_is_described() {
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
    }
}
