//! Files beside a recording under its name, and the earlier recording that it displaces.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use results::write::Target;

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
        let word = match self {
            Self::Kallsyms => "kallsyms",
            Self::Modules => "modules",
            Self::Payload => "payload",
        };
        with(recording.as_os_str(), word).into()
    }
}

fn with(recording: &OsStr, word: &str) -> OsString {
    let mut name = recording.to_owned();
    name.push(".");
    name.push(word);
    name
}

/// Returns the name of an earlier recording.
fn old(recording: &Path) -> PathBuf {
    with(recording.as_os_str(), "old").into()
}

/// The place of a recording, with nothing of an earlier one in it. Unless that is [kept](Self::keep), what was there is put back.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The path at which the earlier recording waits.
    waiting: Option<PathBuf>,
    is_kept: bool,
}

impl Place {
    /// Creates a recording, empty, and has an earlier one wait, with its companions. Companions without a recording go: the next
    /// one is not theirs.
    ///
    /// # Errors
    /// The file's. What was there is there again.
    pub fn clear(path: &Path) -> io::Result<(Self, File)> {
        let target = Target::of(path)?.private();
        if target.is_stream() {
            return Err(io::Error::other("a recording is a file; - is stdout"));
        }
        target.check()?;
        let mut place = Self { path: path.to_owned(), waiting: None, is_kept: false };
        if is_file(path) {
            // No other process has this name. A link is moved itself, as perf does: its file stays what it is.
            let waiting = with(path.as_os_str(), &format!("{}.before", std::process::id()));
            fs::rename(path, &waiting)?;
            move_companions(path, place.waiting.insert(waiting.into()))?;
        } else {
            forget(path)?;
        }
        Ok((place, target.create()?))
    }

    /// Keeps the earlier recording as perf does, with `.old` behind its name.
    ///
    /// # Errors
    /// A sentence about what could not be done.
    pub fn keep(mut self) -> Result<(), String> {
        self.is_kept = true;
        let (Some(waiting), kept) = (&self.waiting, old(&self.path)) else { return Ok(()) };
        let moved = fs::rename(waiting, &kept).and_then(|()| move_companions(waiting, &kept));
        moved.map_err(|error| {
            let stays = if is_file(waiting) { waiting } else { &kept };
            format!("the earlier recording is {}, and not .old: {error}", stays.display())
        })
    }

    /// Puts back what was there, in place of a recording that did not begin. A device stays.
    fn restore(&self) -> io::Result<()> {
        if let Some(waiting) = &self.waiting {
            fs::rename(waiting, &self.path)?;
            return move_companions(waiting, &self.path);
        }
        if is_file(&self.path) { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
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

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn an_earlier_recording_and_its_companions_are_kept_or_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        let kept = old(&path);
        write(&path, "first");
        write(&Companion::Kallsyms.of(&path), "first");
        write(&Companion::Payload.of(&path), "payload");
        write(&Companion::Modules.of(&kept), "of one before");
        write(&kept, "one before");
        let begin = || {
            let (place, mut file) = Place::clear(&path).unwrap();
            assert_eq!(text(&Companion::Kallsyms.of(&path)), None);
            file.write_all(b"second").unwrap();
            place
        };
        // It does not begin: everything is as it was, the recording before the earlier one, too.
        drop(begin());
        assert_eq!((text(&path).as_deref(), text(&kept).as_deref()), (Some("first"), Some("one before")));
        assert_eq!(text(&Companion::Kallsyms.of(&path)).as_deref(), Some("first"));
        assert_eq!(text(&Companion::Modules.of(&kept)).as_deref(), Some("of one before"));
        begin().keep().unwrap();
        assert_eq!((text(&path).as_deref(), text(&kept).as_deref()), (Some("second"), Some("first")));
        assert_eq!(text(&Companion::Kallsyms.of(&kept)).as_deref(), Some("first"));
        assert_eq!(text(&Companion::Modules.of(&kept)), None, "of the one before");
        assert_eq!(text(&Companion::Payload.of(&path)).as_deref(), Some("payload"), "the recording names this path");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing else is left");
    }

    #[test]
    fn links_are_moved_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("x.data"), folder.path().join("elsewhere"));
        write(&elsewhere, "kept");
        symlink(&elsewhere, &path).unwrap();
        let begin = || {
            let (place, mut file) = Place::clear(&path).unwrap();
            file.write_all(b"second").unwrap();
            place
        };
        drop(begin());
        assert_eq!(text(&path).as_deref(), Some("kept"));
        begin().keep().unwrap();
        assert_eq!((text(&path).as_deref(), text(&old(&path)).as_deref()), (Some("second"), Some("kept")));
        assert!(old(&path).is_symlink() && text(&elsewhere).as_deref() == Some("kept"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for name in ["/dev/stdout", "/dev/fd/1"] {
            let there = Path::new(name).is_symlink();
            assert!(Place::clear(Path::new(name)).unwrap_err().to_string().contains("- is stdout"));
            assert_eq!(Path::new(name).is_symlink(), there, "{name} is the system's");
        }
        assert!(Place::clear(folder.path()).is_err());
    }

    #[test]
    fn companions_without_a_recording_are_not_those_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        for companion in Companion::MOVED {
            write(&companion.of(&path), "stale");
        }
        write(&old(&path), "older");
        write(&Companion::Kallsyms.of(&old(&path)), "older");
        let place = Place::clear(&path).unwrap();
        assert!(Companion::MOVED.iter().all(|companion| text(&companion.of(&path)).is_none()));
        assert_eq!(text(&Companion::Kallsyms.of(&old(&path))).as_deref(), Some("older"), "its own stay");
        drop(place);
        assert_eq!((text(&path), text(&old(&path)).as_deref()), (None, Some("older")));
        // Neither a folder of that name nor a device is a recording.
        fs::create_dir(Companion::Modules.of(&path)).unwrap();
        drop(Place::clear(&path).unwrap());
        assert!(Companion::Modules.of(&path).is_dir());
        drop(Place::clear(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }
}
