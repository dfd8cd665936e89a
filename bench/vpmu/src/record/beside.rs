//! What lies beside a recording under its name, and the earlier recording that its file displaces.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use perf_data::reader::Recording;

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

/// The file beside a recording; `None`: there is none, or the recording is another tool's.
#[must_use]
pub fn companion(which: Companion, path: &Path, recording: &Recording<'_>) -> Option<Beside> {
    if !recording.is_ours() {
        return None;
    }
    let file = which.of(path);
    let written = fs::metadata(&file).and_then(|found| found.modified()).ok()?;
    let began = recording.clocks.map_or(UNIX_EPOCH, |(wall, _)| UNIX_EPOCH + Duration::from_nanos(wall));
    Some(if written + COARSE >= began { Beside::Its(file) } else { Beside::Older(file) })
}

/// Where an earlier recording of that name is kept.
#[must_use]
pub fn old(recording: &Path) -> PathBuf {
    with(recording, "old")
}

/// The payload beside its recording. Unless the recording begins, what was there is put back.
#[derive(Debug)]
pub struct PayloadFile {
    path: PathBuf,
    /// What was there, if it was another.
    before: Option<Vec<u8>>,
    kept: bool,
}

impl PayloadFile {
    /// Writes it, unless it is there already.
    ///
    /// # Errors
    /// The file's. What was there is there again.
    pub fn write(path: &Path, payload: &[u8]) -> io::Result<Self> {
        let before = match fs::read(path) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let kept = before.as_deref() == Some(payload);
        let file = Self { path: path.to_owned(), before, kept };
        if !kept {
            fs::write(path, payload)?;
        }
        Ok(file)
    }

    /// Where it is, with neither links nor dots in it.
    ///
    /// # Errors
    /// The file's.
    pub fn path(&self) -> io::Result<PathBuf> {
        fs::canonicalize(&self.path)
    }

    /// The recording has begun: it stays.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for PayloadFile {
    fn drop(&mut self) {
        if !self.kept {
            // Why the recording did not begin is the error to report.
            let _ = match &self.before {
                Some(before) => fs::write(&self.path, before),
                None => fs::remove_file(&self.path),
            };
        }
    }
}

/// The place of a recording, with nothing of an earlier one in it. Unless [`settle`](Self::settle) is called, what was there is put back.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Where the earlier recording waits.
    waiting: Option<PathBuf>,
    /// The payload of the new one.
    payload: Option<PayloadFile>,
    settled: bool,
}

impl Place {
    /// Moves an earlier recording and its companions out of the way. Companions without a recording go: the next one is not theirs.
    ///
    /// # Errors
    /// The file's. What was there is there again.
    pub fn clear(path: &Path) -> io::Result<Self> {
        let mut place = Self { path: path.to_owned(), waiting: None, payload: None, settled: false };
        if is_plain(path) {
            // No other process has this name. A link is moved itself, as perf does: its file stays what it is.
            let waiting = with(path, &format!("{}.before", std::process::id()));
            fs::rename(path, &waiting)?;
            place.waiting = Some(waiting.clone());
            move_companions(path, &waiting)?;
        } else {
            forget(path)?;
        }
        Ok(place)
    }

    /// The new recording is of this payload.
    pub fn with_payload(&mut self, payload: PayloadFile) {
        self.payload = Some(payload);
    }

    /// The new recording has begun: the earlier one is kept as perf keeps it, with `.old` behind its name.
    ///
    /// # Errors
    /// The file's, with the place where the earlier recording is now.
    pub fn settle(&mut self) -> Result<(), (PathBuf, io::Error)> {
        if std::mem::replace(&mut self.settled, true) {
            return Ok(());
        }
        if let Some(payload) = self.payload.take() {
            payload.keep();
        }
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let kept = old(&self.path);
        let moved = fs::rename(waiting, &kept).and_then(|()| move_companions(waiting, &kept));
        moved.map_err(|error| (if is_plain(waiting) { waiting.clone() } else { kept }, error))
    }

    /// Puts back what was there, in place of a recording that did not begin. A device stays.
    fn restore(&self) -> io::Result<()> {
        if let Some(waiting) = &self.waiting {
            fs::rename(waiting, &self.path)?;
            return move_companions(waiting, &self.path);
        }
        // What was made behind a link goes, not the link.
        if is_plain(&self.path) { fs::remove_file(fs::canonicalize(&self.path)?) } else { Ok(()) }
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
    companions.iter().filter(|file| is_plain(file)).try_for_each(fs::remove_file)
}

fn is_plain(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
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
    use std::fs::File;
    use std::time::SystemTime;

    use perf_data::feature::{Facts, HostFacts};
    use perf_data::writer::{Options, Output, Writer};

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
    fn a_payload_stays_only_beside_a_recording_that_began() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data.payload");
        drop(PayloadFile::write(&path, b"one").unwrap());
        assert_eq!(text(&path), None);
        PayloadFile::write(&path, b"one").unwrap().keep();
        drop(PayloadFile::write(&path, b"one").unwrap());
        drop(PayloadFile::write(&path, b"two").unwrap());
        assert_eq!(text(&path).as_deref(), Some("one"));
        assert!(PayloadFile::write(&folder.path().join("none/x"), b"one").is_err());
    }

    #[test]
    fn a_link_is_moved_and_its_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("x.data"), folder.path().join("elsewhere"));
        write(&elsewhere, "first");
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let begin = || {
            let place = Place::clear(&path).unwrap();
            write(&path, "second");
            place
        };
        drop(begin());
        assert_eq!(text(&path).as_deref(), Some("first"));
        begin().settle().unwrap();
        assert_eq!((text(&path).as_deref(), text(&old(&path)).as_deref()), (Some("second"), Some("first")));
        assert_eq!(text(&elsewhere).as_deref(), Some("first"));
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
        drop(place);
        assert_eq!((text(&path), text(&old(&path)).as_deref()), (None, Some("older")));
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
}
