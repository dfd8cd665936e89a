//! Strategies below KVM's own vPMU: the presets of the kernel module `vpmu_kvm`, its device, and what it counted.
//!
//! The module stands between KVM and perf, so it cannot change what KVM asks for and when: KVM itself pauses, resumes and
//! releases, reprograms at each access before Linux 6.2 and once per entry since.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use counts::Counts;

use crate::stats::{HostSide, OpKind};
use crate::strategy::{Apply, OnOverflow, Pause, Release, Reuse, Strategy};

/// The module's device.
pub const DEVICE: &str = "/dev/vpmu_kvm";
/// The module's header, which has its version.
const HEADER: &str = include_str!("../kernel/vpmu_kvm.h");
/// The version of the module that is loaded.
pub const LOADED: &str = "/sys/module/vpmu_kvm/version";
/// More than the line of one thread takes.
const MAX_TEXT: usize = 4096;

/// Returns the version of this module: the line of its header that its build, DKMS and `make check` read, too.
fn module_version() -> &'static str {
    let quoted = |line: &'static str| line.strip_prefix("#define VPMU_KVM_VERSION \"")?.strip_suffix('"');
    HEADER.lines().find_map(quoted).unwrap_or_default()
}

/// Checks that the loaded module, whose version this is, is this one.
///
/// # Errors
/// Both versions, and the remedy.
pub fn check_version(loaded: &str) -> Result<(), String> {
    let (loaded, wanted) = (loaded.trim(), module_version());
    if loaded == wanted {
        return Ok(());
    }
    Err(format!(
        "the loaded module vpmu_kvm is of version {loaded}, and this vpmu's is {wanted}: `make unload`, then `make load` in its \
         host-pmu/kernel"
    ))
}

/// The presets of the module, with a line about each; as arms they are `kvm:NAME`.
pub const PRESETS: [(&str, &str); 5] = [
    ("stock", "all that KVM asks for, unchanged: the control"),
    ("recreate", "a paused event is released, a resumed one created; KVM before 5.5"),
    ("virtual", "a paused event goes on, and what it counts is left out"),
    ("direct", "an event is stopped and started on its CPU without perf's core"),
    ("gate", "as direct, and all events of the vCPU are stopped and started at the entry, in one pass"),
];

/// Returns the time at which KVM of this release reprograms counters (68fb4757e867).
pub fn applies(release: &str) -> Apply {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => Apply::AtOnce,
        _ => Apply::Deferred,
    }
}

/// Returns the preset `name` below a KVM that reprograms at that time; `None` if there is none.
pub fn preset(name: &str, apply: Apply) -> Option<Strategy> {
    let kvms = Strategy { name: name.to_owned(), apply, ..Strategy::preset("reuse-lazy").ok()? };
    let keeps = Strategy { overflow: OnOverflow::Keep, ..kvms.clone() };
    Some(match name {
        "stock" => kvms,
        "recreate" => Strategy { reuse: Reuse::None, release: Release::Eager, ..kvms },
        "virtual" => Strategy { pause: Pause::Virtual, ..keeps },
        "direct" => Strategy { pause: Pause::Direct, ..keeps },
        "gate" => Strategy { gate: true, ..keeps },
        _ => return None,
    })
}

/// Sums of the module for a thread, by its names. An operation has three: KVM's calls, those of perf's or its own, and their ns.
type Tally = BTreeMap<String, [u64; 3]>;

/// The sums beside those of operations, by their names.
const OTHERS: [&str; 3] = ["failed", "callbacks", "dropped"];

/// Reads the device's text: a line a thread, and none before KVM has created an event on it.
fn parse(text: &str) -> Result<Tally, String> {
    let mut all = Tally::new();
    for (key, value) in text.split_ascii_whitespace().filter_map(|field| field.split_once('=')) {
        let numbers = value.split('/').map(str::parse).collect::<Result<Vec<u64>, _>>();
        let numbers = numbers.map_err(|error| format!("{DEVICE} says '{value}' for {key}: {error}"))?;
        let sums = all.entry(key.to_owned()).or_default();
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.saturating_add(number));
    }
    let mut wanted = OpKind::ALL.map(OpKind::key).into_iter().chain(OTHERS);
    match wanted.find(|key| !text.is_empty() && !all.contains_key(*key)) {
        Some(key) => {
            Err(format!("{DEVICE} has no '{key}' in what it says of a thread; `make unload`, then `make load`"))
        }
        None => Ok(all),
    }
}

/// The module, told how to keep the events that KVM creates on this thread. Closed, it keeps further ones as KVM does.
#[derive(Debug)]
pub struct Module {
    file: File,
    /// Its sums at the end of the last account.
    before: Tally,
    /// Calls of KVM's in the last account.
    asked: u64,
}

/// Why the figures of an arm are not those of its strategy: the guest counted by events that the module does not keep.
pub const PASSED_BY: &str = "the guest's counters counted, and none of KVM's events for it went through the module vpmu_kvm, which keeps pinned \
     hardware or raw events without precise_ip and without branch records; take arm `kvm`";

impl Module {
    /// Has the module keep the calling thread's events by the preset `name`.
    ///
    /// # Errors
    /// One line with the remedy: it is not loaded, or does not take that.
    pub fn open(name: &str) -> Result<Self, String> {
        // Without this file the module is not loaded.
        match std::fs::read_to_string(LOADED) {
            Ok(loaded) => check_version(&loaded)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(format!("{LOADED}: {error}: which module is loaded is not known; run it as root"));
            }
        }
        Self::open_at(Path::new(DEVICE), name)
    }

    fn open_at(device: &Path, name: &str) -> Result<Self, String> {
        let file = OpenOptions::new().read(true).write(true).open(device);
        let mut file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "the kernel module vpmu_kvm is not loaded (no {}): `make`, then `sudo make load` in host-pmu/kernel",
                device.display()
            ),
            io::ErrorKind::PermissionDenied => format!("{}: {error}: run it as root", device.display()),
            _ => format!("{}: {error}", device.display()),
        })?;
        let text = format!("thread {name}\n");
        let error = match file.write_all(text.as_bytes()) {
            Ok(()) => return Ok(Self { file, before: Tally::new(), asked: 0 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "load kvm_intel or kvm_amd first, which have its tracepoint kvm_entry".to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(format!("{} refused '{}': {error}", device.display(), text.trim()))
    }

    /// Adds what was done since the last account.
    ///
    /// # Errors
    /// The device says something else than its counts.
    pub fn account(&mut self, counts: &mut Counts, side: &mut HostSide) -> Result<(), String> {
        let now = self.read()?;
        let since = |key: &str, at: usize| {
            let [now, before] = [&now, &self.before].map(|tally| tally.get(key).map_or(0, |sums| sums[at]));
            now.saturating_sub(before)
        };
        self.asked = OpKind::ALL.map(|kind| since(kind.key(), 0)).iter().sum();
        for kind in OpKind::ALL {
            side.ops.add(kind, since(kind.key(), 1), since(kind.key(), 2));
        }
        let [failed, callbacks, dropped] = OTHERS.map(|key| since(key, 0));
        counts.merge(&Counts {
            opens: since("open", 1),
            failed_opens: failed,
            signals: callbacks,
            overflows: callbacks.saturating_sub(dropped),
            empty_kicks: dropped,
            ..Counts::default()
        });
        self.before = now;
        if failed > 0 {
            side.last_error = Some("perf refused to create it for KVM".to_owned());
        }
        Ok(())
    }

    /// Returns why the turn that was accounted for last bypassed the module, given whether the guest's counters counted in it.
    pub fn passed_by(&self, counted: bool) -> Option<&'static str> {
        (counted && self.asked == 0).then_some(PASSED_BY)
    }

    fn read(&self) -> Result<Tally, String> {
        // One read returns the whole text, because the module has it ready and nothing interrupts it.
        let mut text = [0; MAX_TEXT];
        let length = self.file.read_at(&mut text, 0).map_err(|error| format!("{DEVICE}: {error}"))?;
        let text = std::str::from_utf8(&text[..length]).ok().filter(|_| length < MAX_TEXT);
        parse(text.ok_or_else(|| format!("{DEVICE} says more than the counts of a thread"))?)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Hash of the sources of the version beside it.
    const SOURCES_OF: (&str, u64) = ("5", 17_846_401_916_507_332_999);

    #[test]
    fn sources_that_changed_have_another_version() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "c" || end == "h"));
        files.sort();
        let bytes = files.iter().flat_map(|file| std::fs::read(file).unwrap());
        // FNV-1a.
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!((module_version(), hash), SOURCES_OF, "raise VPMU_KVM_VERSION in vpmu_kvm.h, then put both here");
        assert_eq!(check_version(&format!("{}\n", module_version())), Ok(()));
        let other = check_version("3210\n").unwrap_err();
        assert!(other.contains("version 3210,") && other.contains("`make load`"), "{other}");
    }

    /// A line with its remedy for each reason, and none on a host that the module loads into.
    #[test]
    fn make_check_says_why_the_module_would_not_load() {
        const BUILD: &str = "lib/modules/6.1.0-56-amd64/build";
        let kernel = tempfile::tempdir().unwrap();
        for name in ["check", "vpmu_kvm.h"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel").join(name);
            std::fs::copy(from, kernel.path().join(name)).unwrap();
        }
        let good = [
            ("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n"),
            ("proc/sys/kernel/ftrace_enabled", "1\n"),
            ("sys/module/kvm/initstate", "live\n"),
            ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
            (&format!("{BUILD}/Makefile"), ""),
            (&format!("{BUILD}/.config"), "CONFIG_MODULES=y\nCONFIG_DYNAMIC_FTRACE_WITH_REGS=y\nCONFIG_KVM=m\n"),
        ];
        let said = |changed: &[(&str, &str)], module: &str| {
            let host = tempfile::tempdir().unwrap();
            for (path, text) in good.iter().chain(changed).filter(|(path, _)| !changed.contains(&(path, "absent"))) {
                let path = host.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            std::fs::write(kernel.path().join("vpmu_kvm.ko"), module).unwrap();
            let check = Command::new("sh").arg(kernel.path().join("check")).arg(host.path()).output().unwrap();
            let said = String::from_utf8(check.stderr).unwrap();
            assert_eq!(check.status.success(), said.is_empty(), "{said}");
            // A user is told so in one line more.
            let lines = said.lines().filter(|line| !line.contains("only root loads modules"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let module = "\0vermagic=6.1.0-56-amd64 SMP\0";
        assert_eq!(said(&[], module), [""; 0]);
        let makefile = format!("{BUILD}/Makefile");
        let config = format!("{BUILD}/.config");
        for (changed, why, remedy) in [
            (("proc/sys/kernel/osrelease", "5.10.0-46-amd64\n"), "cannot be traced", "5.11 or later"),
            (("sys/module/vpmu_kvm/version", module_version()), "is loaded already", "none"),
            (("sys/module/vpmu_kvm/version", "3210\n"), "version 3210 is loaded, and this is", "make unload"),
            (("sys/module/kvm/initstate", "absent"), "KVM is not loaded", "modprobe kvm_intel"),
            (
                (&config, "CONFIG_MODULES=y\nCONFIG_DYNAMIC_FTRACE_WITH_REGS=y\nCONFIG_KVM=y\n"),
                "KVM is built into",
                "as a module",
            ),
            ((&config, "CONFIG_MODULES=y\nCONFIG_KVM=m\n"), "no CONFIG_DYNAMIC_FTRACE", "distribution's kernel"),
            (("sys/module/kvm/parameters/enable_pmu", "N\n"), "its guests no PMU", "enable_pmu=1"),
            (("proc/sys/kernel/ftrace_enabled", "0\n"), "tracing of functions is off", "kernel.ftrace_enabled=1"),
            (("proc/sys/kernel/modules_disabled", "1\n"), "loads no more modules", "boot without"),
            (("sys/kernel/security/lockdown", "none [integrity]\n"), "Secure Boot", "mokutil"),
            (("sys/module/module/parameters/sig_enforce", "Y\n"), "module.sig_enforce", "sign-file"),
        ] {
            let said = said(&[changed], module);
            assert!(said.iter().any(|line| line.contains(why) && line.contains(remedy)), "{why}: {said:?}");
            assert!(said.len() == 1 || changed.0.ends_with("osrelease"), "{said:?}");
        }
        let locked = ("sys/kernel/security/lockdown", "none [integrity]\n");
        assert_eq!(said(&[locked], &format!("{module}~Module signature appended~\n")), [""; 0]);
        let other = "\0vermagic=6.1.0-50-amd64 SMP\0";
        assert!(said(&[], other)[0].contains("not built for Linux 6.1.0-56-amd64; remedy: make clean"));
        let without_headers = [(&*makefile, "absent")];
        assert_eq!(said(&without_headers, module), [""; 0], "it was built elsewhere");
        assert!(said(&without_headers, other)[0].contains("apt-get install linux-headers-6.1.0-56-amd64"));
    }

    #[test]
    fn a_kernels_release_says_when_kvm_reprograms() {
        for (release, apply) in [
            ("6.1.0-56-amd64", Apply::AtOnce),
            ("6.2-rc1", Apply::Deferred),
            ("6.12.117+deb13-cloud-amd64", Apply::Deferred),
            ("5.19", Apply::AtOnce),
            ("", Apply::Deferred),
        ] {
            assert_eq!(applies(release), apply, "{release}");
        }
    }

    const LINE: &str = "tid=104 open=1/2/30 resume=20/21/9 pause=21/23/10 period=40/39/8 read=40/41/9 release=1/1/6 \
                        failed=1 passes=4 callbacks=20 dropped=2\n";

    #[test]
    fn an_account_has_what_was_done_since_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("vpmu_kvm");
        let absent = Module::open_at(&device, "").unwrap_err();
        assert!(absent.contains("`sudo make load`"), "{absent}");
        std::fs::write(&device, "").unwrap();
        let mut module = Module::open_at(&device, "recreate").unwrap();
        assert_eq!(std::fs::read_to_string(&device).unwrap(), "thread recreate\n");
        let account = |module: &mut Module, text: &str| {
            std::fs::write(&device, text).unwrap();
            let (mut counts, mut side) = (Counts::default(), HostSide::default());
            module.account(&mut counts, &mut side).map(|()| {
                (counts, OpKind::ALL.map(|kind| (side.ops.count(kind), side.ops.total_ns(kind))), side.last_error)
            })
        };
        let (counts, ops, error) = account(&mut module, LINE).unwrap();
        assert_eq!(ops, [(2, 30), (1, 6), (23, 10), (21, 9), (39, 8), (41, 9)]);
        assert_eq!((counts.opens, counts.failed_opens), (2, 1));
        assert_eq!((counts.signals, counts.overflows, counts.empty_kicks), (20, 18, 2));
        assert!(error.is_some());
        assert_eq!(module.passed_by(true), None);
        let (counts, ops, error) = account(&mut module, &LINE.replace("open=1/2/30", "open=5/7/35")).unwrap();
        assert_eq!((counts, ops[0], ops[1], error), (Counts { opens: 5, ..Counts::default() }, (5, 5), (0, 0), None));
        for (text, why) in [
            (LINE.replace("dropped=2", "dropped=-2"), "for dropped"),
            (LINE.repeat(100), "says more"),
            (LINE.replace("open=1/2/30 ", ""), "no 'open'"),
            (LINE.replace("failed=1 ", ""), "no 'failed'"),
        ] {
            let refused = account(&mut module, &text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        account(&mut module, LINE).unwrap();
        assert_eq!(module.passed_by(false), None);
        assert_eq!(module.passed_by(true), Some(PASSED_BY), "events of an earlier turn do not serve this one");
        account(&mut module, &LINE.replace("resume=20/", "resume=21/")).unwrap();
        assert_eq!(module.passed_by(true), None, "an event that KVM keeps over turns");
    }
}
