//! Settings of the host that spoil a measurement and that one write mends: which they are, how a reader sets them, and
//! setting them in a way that can be undone.
//!
//! The old values are stored in `/run/vpmu/settings.json` before the first write. What stands there is written back only to
//! files of the table below, and only during the same boot. A lock beside it lets one process set at a time; a run that switches
//! the watchdog has it until its end.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstat, openat, statvfs};
use serde::{Deserialize, Serialize};

use super::fs::HostFs;
use crate::error::Error;
use crate::{open, write};

/// Leaving an idle state that takes longer than this shows among handler latencies of tens of µs.
pub(super) const DEEP_IDLE_US: u64 = 10;
/// Check of the host's own NMI watchdog.
pub(super) const WATCHDOG: &str = "NMI watchdog";
const WATCHDOG_FILE: &str = "proc/sys/kernel/nmi_watchdog";
/// The action that failed where another process has the lock.
pub const HELD: &str = "another vpmu holds the host's settings";
/// The kernel lowers this one by itself where interrupts take long.
const RATE_FILE: &str = "proc/sys/kernel/perf_event_max_sample_rate";
const FOLDER: &str = "run/vpmu";
const STATE: &str = "run/vpmu/settings.json";
const BOOT: &str = "proc/sys/kernel/random/boot_id";
/// Largest stored state: some settings of each of thousands of CPUs fit.
const MAX_STATE: u64 = 16 << 20;
/// Longest value that is stored; a governor's name has at most 15 characters.
const MAX_VALUE: usize = 32;
/// ENOTSUPP, which the kernel returns although it is none of the numbers of errno(3).
const ENOTSUPP: i32 = 524;

/// One write that mends what a check finds.
struct Setting {
    /// Check that finds it.
    check: &'static str,
    /// File below the root; `*` is the number of a CPU or of an idle state.
    file: &'static str,
    /// Value that a measurement wants.
    value: &'static str,
}

const fn setting(check: &'static str, file: &'static str, value: &'static str) -> Setting {
    Setting { check, file, value }
}

static TABLE: [Setting; 10] = [
    setting("governor", "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "performance"),
    setting("turbo", "sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
    setting("turbo", "sys/devices/system/cpu/cpufreq/boost", "0"),
    setting("C-states", "sys/devices/system/cpu/cpu*/cpuidle/state*/disable", "1"),
    setting(WATCHDOG, WATCHDOG_FILE, "0"),
    setting("huge pages", "sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
    setting("KSM", "sys/kernel/mm/ksm/run", "0"),
    setting("NUMA balancing", "proc/sys/kernel/numa_balancing", "0"),
    setting("halt_poll_ns", "sys/module/kvm/parameters/halt_poll_ns", "0"),
    setting("perf sample rate", RATE_FILE, "100000"),
];

/// Returns the command that sets by hand what a check finds.
pub(super) fn remedy(check: &str) -> String {
    let commands = TABLE.iter().filter(|setting| setting.check == check).map(|setting| {
        match setting.file.strip_prefix("proc/sys/") {
            // A glob would disable the shallow states, too.
            _ if setting.file.ends_with("/disable") => format!("sudo cpupower idle-set -D {DEEP_IDLE_US}"),
            Some(name) => format!("sudo sysctl {}={}", name.replace('/', "."), setting.value),
            None => format!("echo {} | sudo tee /{}", setting.value, setting.file),
        }
    });
    commands.collect::<Vec<_>>().join(", or ")
}

/// Returns a file's name as the table has it: `*` for the number at the end of a folder's name.
fn pattern(file: &str) -> String {
    let parts = file.split('/').map(|part| match part.trim_end_matches(|c: char| c.is_ascii_digit()) {
        before if before == part => part.to_owned(),
        before => format!("{before}*"),
    });
    parts.collect::<Vec<_>>().join("/")
}

impl Setting {
    /// Lists the files that this host has of it.
    fn files(&self, fs: &HostFs) -> Vec<String> {
        let mut found = vec![String::new()];
        for part in self.file.split('/') {
            let below = |folder: &String| {
                let names = if part.ends_with('*') { fs.names(folder) } else { vec![part.to_owned()] };
                let fitting = names.into_iter().filter(|name| part == name || part == pattern(name));
                fitting.map(|name| format!("{folder}/{name}").trim_start_matches('/').to_owned()).collect::<Vec<_>>()
            };
            found = found.iter().flat_map(below).collect();
        }
        let is_deep = |us: i64| us > DEEP_IDLE_US.cast_signed();
        found.retain(|file| match file.strip_suffix("/disable") {
            Some(state) => fs.number(&format!("{state}/latency")).is_some_and(is_deep),
            None => true,
        });
        found
    }
}

/// Returns the check that has a file; `None` for one that is not in the table.
fn check_of(file: &str) -> Option<&'static str> {
    let pattern = pattern(file);
    TABLE.iter().find(|setting| setting.file == pattern).map(|setting| setting.check)
}

/// Reads the present value of a file: its text, or the word in brackets of a list of choices.
fn present(fs: &HostFs, file: &str) -> Option<String> {
    let text = fs.text(file)?;
    super::tuning::selected(&text).or(Some(text)).filter(|value| is_value(value))
}

fn is_value(value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !value.is_empty() && value.len() <= MAX_VALUE && value.bytes().all(plain)
}

/// Returns why no write can change a file here, and how else it gets a value.
fn refusal(fs: &HostFs, file: &str, Setting { check, value, .. }: &Setting) -> Option<String> {
    let path = fs.path(file);
    if statvfs(&path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Some(format!("mounted read-only here, as in a container; outside of it: {}", remedy(check)));
    }
    let fixed = path.metadata().is_ok_and(|found| found.mode() & 0o222 == 0);
    let parameter = file.strip_prefix("sys/module/").and_then(|file| file.split_once("/parameters/"));
    fixed.then(|| match parameter {
        Some((module, name)) => format!(
            "read-only here: {module}.{name}={value} on the kernel's command line, or options {module} {name}={value} in /etc/modprobe.d"
        ),
        None => "read-only here: only the kernel's command line, the firmware or a hypervisor below sets it".to_owned(),
    })
}

/// Writes a value and reads it back; returns why the kernel does not have it now.
fn put(fs: &HostFs, file: &str, value: &str) -> Result<(), String> {
    let written = OpenOptions::new().write(true).truncate(true).open(fs.path(file));
    written.and_then(|mut open| open.write_all(value.as_bytes())).map_err(|error| match error.raw_os_error() {
        Some(ENOTSUPP) => "the host does not support it".to_owned(),
        _ => error.to_string(),
    })?;
    match present(fs, file) {
        Some(now) if now == value => Ok(()),
        now => Err(format!("the kernel took it, and has {}", now.as_deref().unwrap_or("no value"))),
    }
}

/// One file, as it was set or put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Check that found it.
    pub check: &'static str,
    /// The file.
    pub file: String,
    /// Value before.
    pub from: String,
    /// Value that was to be set.
    pub to: String,
    /// Why it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Values of one file: before the first change, which is put back, and after the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    was: String,
    set: String,
}

type Entries = BTreeMap<String, Entry>;

/// Notes a value before it is set.
fn note(entries: &mut Entries, file: &str, from: &str, to: &str) {
    let new = || Entry { was: from.to_owned(), set: String::new() };
    to.clone_into(&mut entries.entry(file.to_owned()).or_insert_with(new).set);
}

/// Content of the stored file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    boot: String,
    /// Set by [`fix`], until [`undo`].
    fixed: Entries,
    /// Set by a run after that, until its end.
    run: Entries,
}

impl State {
    /// Reads what is stored; that of another boot is nothing.
    fn read(fs: &HostFs) -> Result<Self, Error> {
        let read = || {
            let file = open::found(&fs.path(STATE), MAX_STATE)?;
            trusted(&file)?;
            let state: Self = serde_json::from_str(&open::text(file, MAX_STATE)?)?;
            let is_ours = |(file, entry): (&String, &Entry)| {
                check_of(file).is_some() && is_value(&entry.was) && is_value(&entry.set)
            };
            let ours = state.fixed.iter().chain(&state.run).all(is_ours);
            if ours { Ok(state) } else { Err(io::Error::other("it is none that vpmu writes")) }
        };
        let boot = fs.text(BOOT).unwrap_or_default();
        match read() {
            Ok(state) if state.boot == boot => Ok(state),
            Err(error) if ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                Err(unusable(&error))
            }
            _ => Ok(Self { boot, ..Self::default() }),
        }
    }
}

/// Returns an error unless what is open is root's, or this user's, and nobody else can write it.
fn trusted(open: impl AsFd) -> io::Result<()> {
    let found = fstat(open)?;
    let owned = [0, rustix::process::geteuid().as_raw()].contains(&found.st_uid);
    if owned && found.st_mode & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("it is not root's, or others can write it"))
    }
}

/// Refuses a state that cannot be used: somebody must look at it, or a user who may must read it.
fn unusable(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return cannot("read settings in", error);
    }
    let remedy = format!("look at /{STATE} and remove it; the values to put back are lost with it");
    Error::usage(format!("cannot use /{STATE}"), error.to_string(), remedy)
}

fn cannot(what: &str, error: impl std::fmt::Display) -> Error {
    Error::host(
        format!("cannot {what} /{FOLDER}"),
        error.to_string(),
        "run it as root, where root alone can write that",
    )
}

/// The stored state, locked.
#[derive(Debug)]
struct Store {
    fs: HostFs,
    state: State,
    _lock: File,
}

impl Store {
    fn open(fs: &HostFs) -> Result<Self, Error> {
        let lock = || {
            DirBuilder::new().recursive(true).mode(0o755).create(fs.path(FOLDER))?;
            let folder = write::Folder::open(&fs.path(FOLDER))?;
            trusted(&folder)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // A user who can open it could keep everyone else from setting anything.
            Ok(File::from(openat(&folder, "lock", flags, Mode::from_raw_mode(0o600))?))
        };
        let lock = lock().map_err(|error: io::Error| cannot("keep settings in", error))?;
        match lock.try_lock() {
            Err(TryLockError::Error(error)) => return Err(cannot("lock", error)),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::host(HELD, "", "wait for the end of its run"));
            }
            Ok(()) => {}
        }
        let state = State::read(fs)?;
        if state.boot.is_empty() {
            return Err(Error::host(format!("cannot read /{BOOT}"), "", "mount /proc"));
        }
        Ok(Self { fs: fs.clone(), state, _lock: lock })
    }

    /// Stores the old values; without any there is no file.
    fn save(&self) -> Result<(), Error> {
        let (path, state) = (self.fs.path(STATE), &self.state);
        let saved = if state.fixed.is_empty() && state.run.is_empty() {
            if path.exists() { std::fs::remove_file(&path) } else { Ok(()) }
        } else {
            serde_json::to_vec(state).map_err(io::Error::from).and_then(|text| write::replace(&path, &text))
        };
        saved.map_err(|error| cannot("store settings in", error))
    }

    /// Puts back what a run set, or [`fix`]. A value that is neither the old one nor the one that was set is someone else's, and
    /// stays; `keep` then keeps the old one for another [`undo`].
    fn put_back(&mut self, which: fn(&mut State) -> &mut Entries, keep: bool) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        for (file, Entry { was, set }) in std::mem::take(which(&mut self.state)) {
            let now = present(&self.fs, &file).unwrap_or_default();
            let number = |value: &str| value.parse::<u64>().ok();
            let lowered = file == RATE_FILE && number(&now) < number(&set);
            let theirs = !lowered && !["", &was, &set].contains(&&*now);
            let problem = match theirs {
                true => Some(format!(
                    "someone else set {now} after {set}, which stays: write {was} there to force it, or remove /{STATE} to forget it"
                )),
                false if now == was => None,
                false => put(&self.fs, &file, &was).err(),
            };
            if problem.is_some() && (keep || !theirs) {
                let has = present(&self.fs, &file).filter(|_| !theirs);
                note(which(&mut self.state), &file, &was, &has.unwrap_or(set));
            }
            let check = check_of(&file).unwrap_or_default();
            changes.push(Change { check, file, from: now, to: was, problem });
        }
        self.save()?;
        Ok(changes)
    }
}

/// Lists what these checks want set, with the reason where no write can set it here.
pub fn wanted(fs: &HostFs, checks: &[&str]) -> Vec<Change> {
    let mut changes = Vec::new();
    for setting in TABLE.iter().filter(|setting| checks.contains(&setting.check)) {
        let Setting { check, value, .. } = *setting;
        for file in setting.files(fs) {
            if let Some(from) = present(fs, &file).filter(|from| from != value) {
                let problem = refusal(fs, &file, setting);
                changes.push(Change { check, file, from, to: value.to_owned(), problem });
            }
        }
    }
    changes
}

/// Sets what the checks of these names found, after what a killed run left is put back; the old values are stored first.
///
/// # Errors
/// Exit 4 if they cannot be stored, or another process holds the settings; exit 2 if what is stored cannot be believed.
/// Nothing is set then.
pub fn fix(fs: &HostFs, checks: &[&str]) -> Result<Vec<Change>, Error> {
    let can = |change: &Change| change.problem.is_none();
    if standing(fs)?.1.is_empty() && !wanted(fs, checks).iter().any(can) {
        return Ok(Vec::new());
    }
    let mut store = Store::open(fs)?;
    let mut done = store.put_back(|state| &mut state.run, false)?;
    let checks: Vec<_> = checks.iter().copied().chain(done.iter().map(|change| change.check)).collect();
    let mut changes = wanted(fs, &checks);
    changes.retain(|change| can(change) && !store.state.run.contains_key(&change.file));
    let mut set = store.state.fixed.clone();
    for change in &changes {
        note(&mut store.state.fixed, &change.file, &change.from, &change.to);
    }
    store.save()?;
    for change in &mut changes {
        change.problem = put(fs, &change.file, &change.to).err();
        // The kernel may have taken another value than was asked for.
        let now = present(fs, &change.file);
        if now.as_ref() != Some(&change.from) {
            note(&mut set, &change.file, &change.from, now.as_ref().unwrap_or(&change.to));
        }
    }
    store.state.fixed = set;
    store.save()?;
    done.append(&mut changes);
    Ok(done)
}

/// Puts back all that was set, also by runs that were killed.
///
/// # Errors
/// As [`fix`].
pub fn undo(fs: &HostFs) -> Result<Vec<Change>, Error> {
    // Only root can lock, and anyone may learn that there is nothing to do.
    let (fixed, run) = standing(fs)?;
    if fixed.is_empty() && run.is_empty() {
        return Ok(Vec::new());
    }
    let mut store = Store::open(fs)?;
    let mut changes = store.put_back(|state| &mut state.run, false)?;
    changes.extend(store.put_back(|state| &mut state.fixed, true)?);
    Ok(changes)
}

/// Lists what [`undo`] puts back: of [`fix`], and of a run that goes on or was killed.
///
/// # Errors
/// Exit 2 if what is stored cannot be believed.
pub fn standing(fs: &HostFs) -> Result<(Vec<Change>, Vec<Change>), Error> {
    let change = |(file, Entry { was, set }): (String, Entry)| {
        let check = check_of(&file).unwrap_or_default();
        Change { check, file, from: was, to: set, problem: None }
    };
    let list = |entries: Entries| entries.into_iter().map(change).collect();
    State::read(fs).map(|state| (list(state.fixed), list(state.run)))
}

/// The NMI watchdog in the hands of a run that switches it. What it was is stored before the first switch and put back at the
/// end, when dropped too; a run that was killed leaves it to [`undo`] and to the next run.
#[derive(Debug)]
pub struct Watchdog {
    store: Store,
    found: String,
    /// Settings of a killed run that were put back first.
    pub put_back: Vec<Change>,
}

impl Watchdog {
    /// Takes the watchdog, and puts back what a killed run left of the host's settings.
    ///
    /// # Errors
    /// Exit 4 if this host has none, the user is not root, or another process holds the settings.
    pub fn take(fs: &HostFs) -> Result<Self, Error> {
        let mut store = Store::open(fs)?;
        let put_back = store.put_back(|state| &mut state.run, false)?;
        match present(fs, WATCHDOG_FILE) {
            Some(found) => Ok(Self { store, found, put_back }),
            None => Err(Error::host(format!("cannot read /{WATCHDOG_FILE}"), "", "the kernel has no lockup detector")),
        }
    }

    /// Returns whether it was on when it was taken.
    pub fn was_on(&self) -> bool {
        self.found != "0"
    }

    /// Switches it, and checks that the kernel did.
    ///
    /// # Errors
    /// Exit 4 if the kernel refuses or ignores it: a host without a PMU does.
    pub fn switch(&mut self, on: bool) -> Result<(), Error> {
        let Self { store: Store { fs, state, .. }, found, .. } = self;
        let value = if on { "1" } else { "0" };
        if present(fs, WATCHDOG_FILE).as_deref() == Some(value) && state.run.is_empty() {
            return Ok(());
        }
        note(&mut state.run, WATCHDOG_FILE, found, value);
        self.store.save()?;
        put(&self.store.fs, WATCHDOG_FILE, value).map_err(|why| {
            let what = format!("cannot switch the NMI watchdog {} (/{WATCHDOG_FILE})", if on { "on" } else { "off" });
            Error::host(what, why, "it takes root, a hardware PMU, and a /proc/sys that can be written")
        })
    }

    /// Puts back what it was, and says why it cannot.
    ///
    /// # Errors
    /// Exit 4 if the kernel refuses, or someone else has set it meanwhile.
    pub fn restore(&mut self) -> Result<(), Error> {
        let what = format!("the NMI watchdog is not put back to {} (/{WATCHDOG_FILE})", self.found);
        let mut changes = self.store.put_back(|state| &mut state.run, false)?.into_iter();
        let problem = changes.find_map(|change| change.problem);
        problem.map_or(Ok(()), |why| Err(Error::host(what, why, "`vpmu doctor` says what is left to put back")))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The stored state keeps a value that cannot be put back now, and `doctor` says so.
        let _ = self.store.put_back(|state| &mut state.run, false);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::error::Exit;
    use crate::host::fixture::tree;

    const CPU: &str = "sys/devices/system/cpu";
    const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";

    fn host(more: &[(&str, &str)]) -> (tempfile::TempDir, HostFs) {
        tree(&[&[(BOOT, "b-1\n"), (WATCHDOG_FILE, "1\n"), (THP, "[always] madvise never\n")], more].concat())
    }

    fn stored(fs: &HostFs) -> (usize, usize) {
        let (fixed, run) = standing(fs).unwrap();
        (fixed.len(), run.len())
    }

    fn value(fs: &HostFs, file: &str) -> String {
        present(fs, file).unwrap()
    }

    #[test]
    fn all_that_was_set_is_put_back_and_the_oldest_value_of_each_file_is_kept() {
        let cpus = ["0", "1"].map(|cpu| format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"));
        let idle = |state: &str, file: &str| format!("{CPU}/cpu0/cpuidle/{state}/{file}");
        let (shallow, deep) = (idle("state1", "disable"), idle("state2", "disable"));
        let (_dir, fs) = host(&[
            (&cpus[0], "powersave\n"),
            (&cpus[1], "schedutil\n"),
            (&format!("{CPU}/cpufreq/boost"), "1\n"),
            (&shallow, "0\n"),
            (&idle("state1", "latency"), "2\n"),
            (&deep, "0\n"),
            (&idle("state2", "latency"), "133\n"),
        ]);
        let checks = ["governor", "turbo", "C-states", "huge pages"];
        let changes = fix(&fs, &checks).unwrap();
        assert!(changes.iter().all(|change| change.problem.is_none()), "{changes:?}");
        let set: Vec<_> = changes.iter().map(|change| (&*change.file, &*change.from, &*change.to)).collect();
        assert_eq!(
            set,
            [
                (&*cpus[0], "powersave", "performance"),
                (&*cpus[1], "schedutil", "performance"),
                ("sys/devices/system/cpu/cpufreq/boost", "1", "0"),
                (&*deep, "0", "1"),
                (THP, "always", "madvise"),
            ]
        );
        assert_eq!((value(&fs, &shallow), value(&fs, WATCHDOG_FILE)), ("0".to_owned(), "1".to_owned()));
        assert_eq!(fix(&fs, &checks).unwrap(), []);
        // Someone sets one anew, and it is set once more.
        std::fs::write(fs.path(&cpus[0]), "ondemand\n").unwrap();
        assert_eq!(fix(&fs, &checks).unwrap().len(), 1);
        assert_eq!(stored(&fs), (5, 0));
        // A third one stays as they want it.
        std::fs::write(fs.path(&cpus[1]), "userspace\n").unwrap();
        let back = undo(&fs).unwrap();
        let left: Vec<_> = back.into_iter().filter(|change| change.problem.is_some()).collect();
        assert!(left.len() == 1 && left[0].file == cpus[1], "{left:?}");
        for (file, was) in [(&*cpus[0], "powersave"), (&cpus[1], "userspace"), (&deep, "0"), (THP, "always")] {
            assert_eq!(value(&fs, file), was, "{file}");
        }
        // The old value is kept until they write it, or remove what is stored.
        assert_eq!((undo(&fs).unwrap(), stored(&fs)), (left, (1, 0)));
        std::fs::write(fs.path(&cpus[1]), "schedutil\n").unwrap();
        assert_eq!(undo(&fs).unwrap()[0].problem, None);
        assert!(undo(&fs).unwrap().is_empty() && !fs.exists(STATE));
    }

    #[test]
    fn the_remedy_is_what_is_set() {
        let ours = "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 | sudo tee ";
        assert_eq!(remedy("turbo"), format!("{ours}/sys/devices/system/cpu/cpufreq/boost"));
        assert_eq!(remedy(WATCHDOG), "sudo sysctl kernel.nmi_watchdog=0");
        let checks = super::super::noise::findings(&super::super::HostFacts::default(), &[]);
        for Setting { check, value, .. } in &TABLE {
            assert!(is_value(value) && checks.iter().any(|finding| finding.check == *check), "{check}");
        }
    }

    #[test]
    fn a_setting_that_the_kernel_refuses_or_ignores_is_said_and_not_stored() {
        let (_dir, fs) = host(&[]);
        let becomes = |file: &str, is: &str| {
            std::fs::remove_file(fs.path(file)).unwrap();
            std::os::unix::fs::symlink(is, fs.path(file)).unwrap();
        };
        // It has a word, and takes no number.
        becomes(WATCHDOG_FILE, "/proc/self/setgroups");
        let problem = fix(&fs, &[WATCHDOG]).unwrap().remove(0).problem.unwrap();
        assert!(problem.contains("os error") && !fs.exists(STATE), "{problem}");
        // Nobody may write this one.
        becomes(WATCHDOG_FILE, "/proc/sys/kernel/ngroups_max");
        assert!(wanted(&fs, &[WATCHDOG])[0].problem.as_ref().unwrap().starts_with("read-only here"));
        assert_eq!(fix(&fs, &[WATCHDOG]).unwrap(), []);
        let error = Watchdog::take(&fs).unwrap().switch(false).unwrap_err();
        assert!(error.exit == Exit::Host && error.to_string().contains("the NMI watchdog off"), "{error}");
        assert!(!fs.exists(STATE));
        becomes(WATCHDOG_FILE, "/dev/null");
        assert!(put(&fs, WATCHDOG_FILE, "0").unwrap_err().contains("has no value"));
    }

    #[test]
    fn the_watchdog_is_put_back_at_the_end_of_a_run_and_left_to_undo_by_a_killed_one() {
        let (_dir, fs) = host(&[]);
        let mut watchdog = Watchdog::take(&fs).unwrap();
        watchdog.switch(false).unwrap();
        assert!(watchdog.was_on() && stored(&fs) == (0, 1));
        for error in [Watchdog::take(&fs).unwrap_err(), fix(&fs, &["huge pages"]).unwrap_err()] {
            assert!(error.exit == Exit::Host && error.to_string().contains("another vpmu"), "{error}");
        }
        watchdog.switch(true).unwrap();
        drop(watchdog);
        assert!(value(&fs, WATCHDOG_FILE) == "1" && !fs.exists(STATE));
        // A run leaves a setting as fix had set it before.
        fix(&fs, &[WATCHDOG]).unwrap();
        Watchdog::take(&fs).unwrap().switch(true).unwrap();
        assert_eq!((&*value(&fs, WATCHDOG_FILE), stored(&fs)), ("0", (1, 0)));
        assert_eq!((undo(&fs).unwrap().len(), &*value(&fs, WATCHDOG_FILE)), (1, "1"));
        let as_killed = || {
            let mut killed = Watchdog::take(&fs).unwrap();
            killed.switch(false).unwrap();
            let stored = std::fs::read(fs.path(STATE)).unwrap();
            drop(killed);
            std::fs::write(fs.path(WATCHDOG_FILE), "0").unwrap();
            write::replace(&fs.path(STATE), &stored).unwrap();
        };
        as_killed();
        let next = Watchdog::take(&fs).unwrap();
        assert!(next.was_on() && next.put_back.len() == 1, "{next:?}");
        drop(next);
        as_killed();
        assert_eq!((&*undo(&fs).unwrap()[0].to, &*value(&fs, WATCHDOG_FILE)), ("1", "1"));
    }

    #[test]
    fn a_value_that_the_kernel_changed_is_put_back() {
        let (_dir, fs) = host(&[(RATE_FILE, "5000\n")]);
        assert_eq!(fix(&fs, &["perf sample rate"]).unwrap()[0].problem, None);
        std::fs::write(fs.path(RATE_FILE), "79000\n").unwrap();
        assert_eq!((undo(&fs).unwrap()[0].problem.as_deref(), &*value(&fs, RATE_FILE)), (None, "5000"));
        // A written 0 makes this one its default.
        std::fs::remove_file(fs.path(WATCHDOG_FILE)).unwrap();
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let slack = Path::new("/proc").join(thread.file_name().unwrap()).join("timerslack_ns");
        std::fs::write(&slack, "60000").unwrap();
        std::os::unix::fs::symlink(slack, fs.path(WATCHDOG_FILE)).unwrap();
        let problem = fix(&fs, &[WATCHDOG]).unwrap().remove(0).problem;
        assert!(problem.is_some_and(|why| why.contains("took it, and has")) && stored(&fs) == (1, 0));
        assert_eq!((undo(&fs).unwrap()[0].problem.as_deref(), &*value(&fs, WATCHDOG_FILE)), (None, "60000"));
        assert!(!fs.exists(STATE));
    }

    #[test]
    fn what_a_killed_run_left_is_put_back_before_anything_is_set() {
        for (original, left) in [("0", "1"), ("1", "0")] {
            let (_dir, fs) = host(&[(WATCHDOG_FILE, original)]);
            let killed = format!(
                r#"{{"boot":"b-1","fixed":{{}},"run":{{"{WATCHDOG_FILE}":{{"was":"{original}","set":"{left}"}}}}}}"#
            );
            std::fs::create_dir_all(fs.path(FOLDER)).unwrap();
            std::fs::write(fs.path(STATE), killed).unwrap();
            std::fs::write(fs.path(WATCHDOG_FILE), left).unwrap();
            fix(&fs, &[]).unwrap();
            assert_eq!(value(&fs, WATCHDOG_FILE), "0");
            undo(&fs).unwrap();
            assert!(value(&fs, WATCHDOG_FILE) == original && !fs.exists(STATE));
        }
    }

    #[test]
    fn what_is_stored_is_believed_only_of_this_boot_of_known_files_and_of_root() {
        let hidden = unusable(&io::ErrorKind::PermissionDenied.into());
        assert!(hidden.exit == Exit::Host && hidden.remedy.contains("run it as root"), "{hidden}");
        let (_dir, fs) = host(&[]);
        let store = |boot: &str, file: &str, was: &str, mode: u32| {
            std::fs::create_dir_all(fs.path(FOLDER)).unwrap();
            let text = format!(r#"{{"boot":"{boot}","run":{{}},"fixed":{{"{file}":{{"was":"{was}","set":"1"}}}}}}"#);
            std::fs::write(fs.path(STATE), text).unwrap();
            std::fs::set_permissions(fs.path(STATE), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        store("b-0", WATCHDOG_FILE, "0", 0o644);
        assert_eq!((undo(&fs).unwrap(), &*value(&fs, WATCHDOG_FILE)), (vec![], "1"));
        for (file, was, mode) in [
            ("proc/sys/kernel/core_pattern", "0", 0o644),
            ("sys/devices/system/cpu/cpu../cpufreq/scaling_governor", "0", 0o644),
            ("sys/devices/system/cpu/cpu0/../cpufreq/scaling_governor", "0", 0o644),
            (WATCHDOG_FILE, "|sh", 0o644),
            (WATCHDOG_FILE, "000000000000000000000000000000000", 0o644),
            (WATCHDOG_FILE, "0", 0o666),
        ] {
            store("b-1", file, was, mode);
            for error in [undo(&fs).unwrap_err(), fix(&fs, &["huge pages"]).unwrap_err(), standing(&fs).unwrap_err()] {
                assert!(error.exit == Exit::Usage && error.to_string().contains("settings.json"), "{error}");
            }
        }
        assert_eq!((&*value(&fs, WATCHDOG_FILE), &*value(&fs, THP)), ("1", "always"));
    }
}
