//! What lies beside a recording under its name, and the earlier recording that its file displaces.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

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

    /// The file beside this recording.
    #[must_use]
    pub fn of(self, recording: &Path) -> PathBuf {
        let word = match self {
            Self::Kallsyms => "kallsyms",
            Self::Modules => "modules",
            Self::Nmis => "nmis",
            Self::Payload => "payload",
        };
        with(recording, word)
    }
}

fn with(recording: &Path, word: &str) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

/// Where an earlier recording of that name is kept.
#[must_use]
pub fn old(recording: &Path) -> PathBuf {
    with(recording, "old")
}

/// The place of a recording, with nothing of an earlier one in it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    had_one: bool,
}

impl Place {
    /// Moves an earlier recording and its companions to `.old`, as perf does. Companions without a recording go: the next one is not theirs.
    ///
    /// # Errors
    /// The file's.
    pub fn clear(path: &Path) -> io::Result<Self> {
        let place = Self { path: path.to_owned(), had_one: is_plain(path) };
        if place.had_one {
            let kept = old(path);
            fs::rename(path, &kept)?;
            move_companions(path, &kept)?;
        } else {
            forget(path)?;
        }
        Ok(place)
    }

    /// Puts back what was there, in place of a recording that did not begin. A device stays.
    ///
    /// # Errors
    /// The file's.
    pub fn restore(&self) -> io::Result<()> {
        if self.had_one {
            let kept = old(&self.path);
            fs::rename(&kept, &self.path)?;
            return move_companions(&kept, &self.path);
        }
        if is_plain(&self.path) { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// Removes what lies beside a recording: the next one of its name has none of it.
///
/// # Errors
/// The file's.
pub fn forget(recording: &Path) -> io::Result<()> {
    let companions = Companion::MOVED.map(|companion| companion.of(recording));
    companions.iter().filter(|file| is_plain(file)).try_for_each(fs::remove_file)
}

fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
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
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn an_earlier_recording_and_its_companions_are_kept_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        let kept = old(&path);
        write(&path, "first");
        write(&Companion::Kallsyms.of(&path), "first");
        write(&Companion::Payload.of(&path), "payload");
        write(&Companion::Nmis.of(&kept), "of one before");
        let place = Place::clear(&path).unwrap();
        assert_eq!((text(&kept).as_deref(), text(&path)), (Some("first"), None));
        assert_eq!(text(&Companion::Kallsyms.of(&kept)).as_deref(), Some("first"));
        assert_eq!((text(&Companion::Nmis.of(&kept)), text(&Companion::Kallsyms.of(&path))), (None, None));
        assert_eq!(text(&Companion::Payload.of(&path)).as_deref(), Some("payload"), "the recording names this path");
        write(&path, "second, without a sample");
        place.restore().unwrap();
        assert_eq!((text(&path).as_deref(), text(&kept)), (Some("first"), None));
        assert_eq!(text(&Companion::Kallsyms.of(&path)).as_deref(), Some("first"));
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
        write(&path, "without a sample");
        place.restore().unwrap();
        assert_eq!((text(&path), text(&old(&path)).as_deref()), (None, Some("older")));
        place.restore().unwrap();
        // Neither a folder of that name nor a device is a recording.
        fs::create_dir(Companion::Modules.of(&path)).unwrap();
        Place::clear(&path).unwrap();
        assert!(Companion::Modules.of(&path).is_dir());
        Place::clear(Path::new("/dev/null")).unwrap().restore().unwrap();
    }
}
