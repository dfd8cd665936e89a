//! Files beside a recording under its name, and the earlier recording that its file displaces.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use guest::abi::LOG_NMI;
use perf_data::plain;
use perf_data::reader::Recording;
use results::write::{Pending, Target};
use serde::{Deserialize, Serialize};
use vmm::outcome::RunOutcome;
use vmm::sample::Moment;

/// A file that belongs to a recording: its name is the recording's, a dot and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The list of symbols of a Linux guest's kernel.
    Kallsyms,
    /// The list of its modules.
    Modules,
    /// NMI handlers of the payload.
    Nmis,
    /// The payload itself.
    Payload,
}

impl Companion {
    /// Those that move with their recording. A recording has the path of its payload in it, which must stay for it to have names.
    const MOVED: [Self; 3] = [Self::Kallsyms, Self::Modules, Self::Nmis];

    /// Returns the file beside this recording.
    pub fn of(self, recording: &Path) -> PathBuf {
        self.beside(recording.as_os_str()).into()
    }

    fn beside(self, recording: &OsStr) -> OsString {
        let word = match self {
            Self::Kallsyms => "kallsyms",
            Self::Modules => "modules",
            Self::Nmis => "nmis",
            Self::Payload => "payload",
        };
        with(recording, word)
    }
}

fn with(recording: &OsStr, word: &str) -> OsString {
    let mut name = recording.to_owned();
    name.push(".");
    name.push(word);
    name
}

/// Clocks of files are as coarse as a tick.
const COARSE: Duration = Duration::from_secs(1);

/// A file that lies beside a recording of this tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// It came with the recording.
    Its(PathBuf),
    /// It was there before the recording began, and is of an earlier one.
    Older(PathBuf),
}

/// Reads the file beside a recording; `None`: there is none, or the recording is another tool's.
pub fn companion(which: Companion, path: &Path, recording: &Recording<'_>) -> Option<Beside> {
    if !recording.is_ours() {
        return None;
    }
    let file = which.of(path);
    let written = fs::metadata(&file).and_then(|found| found.modified()).ok()?;
    let began = recording.clocks.map_or(UNIX_EPOCH, |(wall, _)| UNIX_EPOCH + Duration::from_nanos(wall));
    Some(if written + COARSE >= began { Beside::Its(file) } else { Beside::Older(file) })
}

/// Returns the name of an earlier recording.
pub fn old(recording: &OsStr) -> OsString {
    with(recording, "old")
}

/// The place of a recording, with nothing of an earlier one in it. Unless [`settle`](Self::settle) is called, what was
/// there is put back.
#[derive(Debug)]
pub struct Place {
    target: Target,
    /// The path at which the earlier recording waits.
    waiting: Option<PathBuf>,
    /// The payload of the new one, which is not beside it yet.
    payload: Option<(Target, Pending)>,
    settled: bool,
}

impl Place {
    /// Moves an earlier recording and its companions out of the way. Companions without a recording go: the next one is not theirs.
    ///
    /// # Errors
    /// The file's. What was there is there again.
    pub fn clear(path: &Path) -> io::Result<Self> {
        let target = Target::of(path)?.private();
        target.check()?;
        let mut place = Self { target: target.clone(), waiting: None, payload: None, settled: false };
        if target.is_stream() {
            return Err(io::Error::other("a recording is a file; - is stdout"));
        }
        if is_file(path) {
            // No other process has this name. A link is moved itself, as perf does: its file stays what it is.
            let waiting = PathBuf::from(with(path.as_os_str(), &format!("{}.before", std::process::id())));
            fs::rename(path, &waiting)?;
            place.waiting = Some(waiting.clone());
            move_companions(path, &waiting)?;
        } else {
            forget(path)?;
        }
        Ok(place)
    }

    /// Creates the new recording, empty.
    ///
    /// # Errors
    /// The file's.
    pub fn create(&self) -> io::Result<File> {
        self.target.create()
    }

    /// Notes that the new recording is of this payload.
    pub fn with_payload(&mut self, target: Target, payload: Pending) {
        self.payload = Some((target, payload));
    }

    /// Puts the payload beside the new recording once that has begun, and keeps the earlier one as perf does, with
    /// `.old` behind its name.
    ///
    /// # Errors
    /// A sentence about what could not be done.
    pub fn settle(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.settled, true) {
            return Ok(());
        }
        let payload = self.payload.take().map_or(Ok(()), |(target, payload)| {
            let failed = |error| format!("functions have no names: cannot write {}: {error}", target.path().display());
            payload.finish_at_once().map_err(failed)
        });
        let Some(waiting) = &self.waiting else { return payload };
        let kept = PathBuf::from(old(self.target.path().as_os_str()));
        let moved = fs::rename(waiting, &kept).and_then(|()| move_companions(waiting, &kept));
        payload.and(moved.map_err(|error| {
            let stays = if is_file(waiting) { waiting } else { &kept };
            format!("the earlier recording is {}, and not .old: {error}", stays.display())
        }))
    }

    /// Puts back what was there, in place of a recording that did not begin. A device stays.
    fn restore(&self) -> io::Result<()> {
        let path = self.target.path();
        if let Some(waiting) = &self.waiting {
            fs::rename(waiting, path)?;
            return move_companions(waiting, path);
        }
        if is_file(path) { fs::remove_file(path) } else { Ok(()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.settled {
            // Why the recording did not begin is the error to report.
            let _ = self.restore();
        }
    }
}

/// Removes what lies beside a recording: the next one of its name has none of it.
///
/// # Errors
/// The file's.
pub fn forget(recording: &Path) -> io::Result<()> {
    let companions = Companion::MOVED.map(|companion| companion.of(recording));
    companions.iter().try_for_each(|file| if is_file(file) { fs::remove_file(file) } else { Ok(()) })
}

/// Returns whether a file or a link has this name.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_symlink())
}

/// Gives the companions of one recording to another, whose own go.
fn move_companions(from: &Path, to: &Path) -> io::Result<()> {
    let unless_missing = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) };
    for companion in Companion::MOVED {
        let (from, to) = (companion.of(from), companion.of(to));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => fs::remove_file(&to).or_else(unless_missing)?,
            done => done?,
        }
    }
    Ok(())
}

// The NMIs of a recorded payload, by the clock of its samples: `FILE.nmis`, so that a slow one leads to what was running.

/// Largest file that is read.
const LARGEST: u64 = 64 << 20;
/// Most runs in a file: none takes more than 70 bytes.
const MOST: usize = 900_000;

/// An NMI handler's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmi {
    /// The vCPU.
    pub vcpu: usize,
    /// Its entry, CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// Time that it took, ns.
    pub took: u64,
}

/// All that the guest's log has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmis {
    /// Handlers in the order of vCPU and time.
    pub nmis: Vec<Nmi>,
}

impl Nmis {
    /// Lists those of a run between two moments.
    pub fn of(outcome: &RunOutcome, first: Moment, last: Moment) -> Self {
        let mut nmis = Vec::new();
        for (vcpu, of) in outcome.vcpus.iter().enumerate() {
            let khz = of.left.tsc.khz.max(1);
            for entry in of.left.log.iter().filter(|entry| entry.kind == LOG_NMI) {
                // The log is the guest's: what makes no sense is left out.
                let host = entry.tsc_entry.wrapping_sub(of.left.tsc.offset.cast_unsigned());
                let (Some(ticks), Some(at)) = (entry.tsc_exit.checked_sub(entry.tsc_entry), first.ns_at(last, host))
                else {
                    continue;
                };
                let took = u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(khz)).unwrap_or(u64::MAX);
                if (first.ns..=last.ns).contains(&at) && took <= last.ns - at {
                    nmis.push(Nmi { vcpu, at, took });
                }
            }
        }
        Self { nmis }
    }

    /// Writes it; returns how many runs were left out, the shortest, as a file of all would be too large to be read.
    ///
    /// # Errors
    /// The file's.
    pub fn write(mut self, target: &Target) -> io::Result<usize> {
        let left_out = self.bound(MOST);
        target.replace(&serde_json::to_vec(&self)?)?;
        Ok(left_out)
    }

    fn bound(&mut self, most: usize) -> usize {
        let left_out = self.nmis.len().saturating_sub(most);
        if left_out > 0 {
            self.nmis.sort_unstable_by_key(|nmi| std::cmp::Reverse(nmi.took));
            self.nmis.truncate(most);
            self.nmis.sort_unstable_by_key(|nmi| (nmi.vcpu, nmi.at));
        }
        left_out
    }

    /// Reads it; `None` if there is none, or it is not one.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice::<Self>(&plain::read(path, LARGEST).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::SystemTime;

    use perf_data::feature::{Facts, HostFacts};
    use perf_data::writer::{Options, Output, Writer};

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    fn old_of(path: &Path) -> PathBuf {
        old(path.as_os_str()).into()
    }

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn an_earlier_recording_and_its_companions_are_kept_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        let kept = old_of(&path);
        write(&path, "first");
        write(&Companion::Kallsyms.of(&path), "first");
        write(&Companion::Payload.of(&path), "payload");
        write(&Companion::Nmis.of(&kept), "of one before");
        write(&kept, "one before");
        let begin = || {
            let place = Place::clear(&path).unwrap();
            assert_eq!((text(&path), text(&Companion::Kallsyms.of(&path))), (None, None));
            write(&path, "second");
            place
        };
        // It does not begin: everything is as it was, the recording before the earlier one, too.
        drop(begin());
        assert_eq!((text(&path).as_deref(), text(&kept).as_deref()), (Some("first"), Some("one before")));
        assert_eq!(text(&Companion::Kallsyms.of(&path)).as_deref(), Some("first"));
        assert_eq!(text(&Companion::Nmis.of(&kept)).as_deref(), Some("of one before"));
        let mut place = begin();
        place.settle().unwrap();
        place.settle().unwrap();
        drop(place);
        assert_eq!((text(&path).as_deref(), text(&kept).as_deref()), (Some("second"), Some("first")));
        assert_eq!(text(&Companion::Kallsyms.of(&kept)).as_deref(), Some("first"));
        assert_eq!(text(&Companion::Nmis.of(&kept)), None, "of the one before");
        assert_eq!(text(&Companion::Payload.of(&path)).as_deref(), Some("payload"), "the recording names this path");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing else is left");
    }

    #[test]
    fn a_payload_comes_only_beside_a_recording_that_began() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("x.data"), folder.path().join("elsewhere"));
        let payload = Companion::Payload.of(&path);
        write(&elsewhere, "kept");
        symlink(&elsewhere, &payload).unwrap();
        let begin = || {
            let mut place = Place::clear(&path).unwrap();
            let target = Target::of(&payload).unwrap().private().always_file();
            let mut pending = target.begin().unwrap();
            pending.write_all(b"new").unwrap();
            place.with_payload(target, pending);
            place.create().unwrap();
            place
        };
        drop(begin());
        assert!(payload.is_symlink() && !path.exists());
        begin().settle().unwrap();
        assert!(!payload.is_symlink());
        assert_eq!((text(&payload).as_deref(), text(&elsewhere).as_deref()), (Some("new"), Some("kept")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_link_that_is_planted_in_the_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("x.data"), folder.path().join("victim"));
        write(&victim, "kept");
        let mut place = Place::clear(&path).unwrap();
        symlink(&victim, &path).unwrap();
        place.create().unwrap().write_all(b"second").unwrap();
        place.settle().unwrap();
        assert_eq!((text(&victim).as_deref(), text(&path).as_deref()), (Some("kept"), Some("second")));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for name in ["/dev/stdout", "/dev/fd/1"] {
            assert!(Place::clear(Path::new(name)).unwrap_err().to_string().contains("- is stdout"));
        }
        assert!(Place::clear(folder.path()).is_err());
    }

    #[test]
    fn a_link_is_moved_and_its_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("x.data"), folder.path().join("elsewhere"));
        write(&elsewhere, "first");
        symlink(&elsewhere, &path).unwrap();
        let begin = || {
            let place = Place::clear(&path).unwrap();
            place.create().unwrap().write_all(b"second").unwrap();
            place
        };
        drop(begin());
        assert_eq!(text(&path).as_deref(), Some("first"));
        begin().settle().unwrap();
        assert_eq!((text(&path).as_deref(), text(&old_of(&path)).as_deref()), (Some("second"), Some("first")));
        assert_eq!(text(&elsewhere).as_deref(), Some("first"));
    }

    #[test]
    fn companions_without_a_recording_are_not_those_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        for companion in Companion::MOVED {
            write(&companion.of(&path), "stale");
        }
        write(&old_of(&path), "older");
        write(&Companion::Kallsyms.of(&old_of(&path)), "older");
        let place = Place::clear(&path).unwrap();
        assert!(Companion::MOVED.iter().all(|companion| text(&companion.of(&path)).is_none()));
        assert_eq!(text(&Companion::Kallsyms.of(&old_of(&path))).as_deref(), Some("older"), "its own stay");
        write(&path, "without a sample");
        drop(place);
        assert_eq!((text(&path), text(&old_of(&path)).as_deref()), (None, Some("older")));
        // Neither a folder of that name nor a device is a recording.
        fs::create_dir(Companion::Modules.of(&path)).unwrap();
        drop(Place::clear(&path).unwrap());
        assert!(Companion::Modules.of(&path).is_dir());
        drop(Place::clear(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }

    #[test]
    fn only_what_came_with_a_recording_is_its_companion() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        let list = Companion::Kallsyms.of(&path);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let of = |version: &str, wall: Duration| {
            let host = HostFacts { version: version.to_owned(), ..HostFacts::default() };
            let facts = Facts { host, clocks: (wall.as_nanos() as u64, 1), ..Facts::default() };
            let output: Output<Vec<u8>> = Output::File(File::create(&path).unwrap());
            let writer = Writer::begin(output, &[], false, Options::default(), &facts).unwrap();
            writer.finish(&facts).1.unwrap();
            let bytes = fs::read(&path).unwrap();
            companion(Companion::Kallsyms, &path, &Recording::open(&bytes).unwrap())
        };
        assert_eq!(of("vpmu 1", wall), None);
        fs::write(&list, "").unwrap();
        assert_eq!((of("vpmu 1", wall), of("6.1.170", wall)), (Some(Beside::Its(list.clone())), None));
        assert_eq!(of("vpmu 1", wall + Duration::from_secs(3600)), Some(Beside::Older(list)));
    }

    #[test]
    fn a_file_reads_back_and_another_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data.nmis");
        assert!(Nmis::read(&path).is_none());
        let nmis = Nmis { nmis: vec![Nmi { vcpu: 1, at: 5, took: 7 }] };
        assert_eq!(nmis.clone().write(&Target::of(&path).unwrap()).unwrap(), 0);
        assert_eq!(Nmis::read(&path), Some(nmis));
        for other in ["{}", "", "{\"nmis\":[1]}"] {
            fs::write(&path, other).unwrap();
            assert_eq!(Nmis::read(&path), None, "{other}");
        }
    }

    #[test]
    fn the_longest_runs_are_kept_and_a_file_of_them_can_be_read() {
        let nmi = |vcpu, at, took| Nmi { vcpu, at, took };
        let mut nmis = Nmis { nmis: vec![nmi(0, 1, 5), nmi(0, 2, 9), nmi(1, 1, 7)] };
        assert_eq!((nmis.bound(3), nmis.bound(2)), (0, 1));
        assert_eq!(nmis.nmis, [nmi(0, 2, 9), nmi(1, 1, 7)]);
        let longest = serde_json::to_string(&nmi(999, u64::MAX, u64::MAX)).unwrap().len() as u64 + 1;
        assert!(longest * MOST as u64 + 100 < LARGEST, "{longest} bytes");
    }
}
