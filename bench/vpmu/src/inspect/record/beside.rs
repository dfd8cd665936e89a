//! Files beside a recording under its name, and the earlier recording that its file displaces.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use results::write::{Pending, Target};

/// A file that belongs to a recording: its name is the recording's, a dot and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The list of symbols of a Linux guest's kernel.
    Kallsyms,
    /// The list of its modules.
    Modules,
    /// The payload itself.
    Payload,
}

impl Companion {
    /// Those that move with their recording. A recording has the path of its payload in it, which must stay for it to have names.
    const MOVED: [Self; 2] = [Self::Kallsyms, Self::Modules];

    /// Returns the file beside this recording.
    pub fn of(self, recording: &Path) -> PathBuf {
        self.beside(recording.as_os_str()).into()
    }

    fn beside(self, recording: &OsStr) -> OsString {
        let word = match self {
            Self::Kallsyms => "kallsyms",
            Self::Modules => "modules",
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
        // First of all: a place that is given up removes what has its name.
        if target.is_stream() {
            return Err(io::Error::other("a recording is a file; - is stdout"));
        }
        target.check()?;
        let mut place = Self { target, waiting: None, payload: None, settled: false };
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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
        write(&Companion::Modules.of(&kept), "of one before");
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
        assert_eq!(text(&Companion::Modules.of(&kept)).as_deref(), Some("of one before"));
        let mut place = begin();
        place.settle().unwrap();
        place.settle().unwrap();
        drop(place);
        assert_eq!((text(&path).as_deref(), text(&kept).as_deref()), (Some("second"), Some("first")));
        assert_eq!(text(&Companion::Kallsyms.of(&kept)).as_deref(), Some("first"));
        assert_eq!(text(&Companion::Modules.of(&kept)), None, "of the one before");
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
            let there = Path::new(name).is_symlink();
            assert!(Place::clear(Path::new(name)).unwrap_err().to_string().contains("- is stdout"));
            assert_eq!(Path::new(name).is_symlink(), there, "{name} is the system's");
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
}
