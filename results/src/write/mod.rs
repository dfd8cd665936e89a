//! The one way to write files, so that a reader never meets half of one: a file is written beside its place, under a passing name, and
//! renamed once it is whole. A run that is killed meanwhile leaves that name, `.vpmu-*`, which no reader takes for a result. Its folder
//! is opened once: what takes the folder's name meanwhile gets nothing.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, OFlags, statat, unlinkat};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::Error;
use crate::open::{Folder, parent, refused};

/// A file to be written.
///
/// A link that has the name is replaced and never followed; devices, FIFOs, sockets and folders are refused.
#[derive(Clone, Debug)]
pub struct Target {
    folder: Folder,
    /// As it was given, for messages.
    path: PathBuf,
    mode: u32,
}

impl Target {
    /// Names a file in a folder that is there.
    ///
    /// # Errors
    /// The folder's, or the path names no file.
    pub fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::Error::other("it is a folder"));
        }
        Self::at(&Folder::open(parent(path))?, path)
    }

    /// Names a file of a folder that is open, by the last part of `path`.
    ///
    /// # Errors
    /// The path names no file.
    pub fn at(folder: &Folder, path: &Path) -> io::Result<Self> {
        path.file_name().ok_or_else(|| io::Error::other("it is a folder"))?;
        Ok(Self { folder: folder.clone(), path: path.to_owned(), mode: 0o644 })
    }

    /// Its path from the folder that is open.
    fn place(&self) -> PathBuf {
        self.folder.by_descriptor().join(self.path.file_name().unwrap_or_default())
    }

    /// Makes a file beside it, which goes again unless it is put in its place.
    fn passing(&self) -> io::Result<NamedTempFile> {
        let mode = Permissions::from_mode(self.mode);
        let fresh =
            tempfile::Builder::new().prefix(".vpmu-").permissions(mode).tempfile_in(self.folder.by_descriptor());
        // The library's error names the passing file, and has the number of the system's in its text alone.
        let os = |error: &io::Error| error.to_string().split_once("(os error ")?.1.split_once(')')?.0.parse().ok();
        fresh.map_err(|error| os(&error).map_or(error, io::Error::from_raw_os_error))
    }

    /// Waits until the names of its folder are on the disk. Some file systems of other hosts have no way to do that.
    fn sync(&self) {
        let _ = self.folder.handle().and_then(|folder| folder.sync_all());
    }

    /// Gives the file another mode than 0644.
    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that it can be written.
    ///
    /// # Errors
    /// Says why it cannot.
    pub fn check(&self) -> io::Result<()> {
        // A name instead of a folder's is a mistake, which would cost the user a link.
        if self.place().is_dir() {
            return Err(io::Error::other("it is a folder"));
        }
        self.begin().map(drop)
    }

    /// Begins the file; until it is finished, what has the name stays.
    ///
    /// # Errors
    /// Returns the errors of the file system, and that of what is no file.
    pub fn begin(&self) -> io::Result<Pending> {
        let kind = match statat(&self.folder, self.path.file_name().unwrap_or_default(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => FileType::RegularFile,
            found => FileType::from_raw_mode(found?.st_mode),
        };
        match kind {
            FileType::Symlink if ["/dev", "/proc"].iter().any(|folder| self.path.starts_with(folder)) => {
                Err(io::Error::other("it is a link of the system's"))
            }
            FileType::RegularFile | FileType::Symlink => Ok(Pending(self.passing()?, self.clone())),
            _ => Err(refused(kind, "")),
        }
    }

    /// Replaces it by `bytes`: it has either all of them or what it had.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mut pending = self.begin()?;
        pending.write_all(bytes)?;
        pending.finish()
    }

    /// Writes it unless something is there; false if so.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn place_new(&self, bytes: &[u8]) -> io::Result<bool> {
        let mut file = self.passing()?;
        file.as_file_mut().write_all(bytes)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(self.place()) {
            Err(taken) if taken.error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            done => done?,
        };
        self.sync();
        Ok(true)
    }

    /// Replaces it by an empty file, to be filled from here on.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn create(&self) -> io::Result<File> {
        let Pending(file, target) = self.begin()?;
        Ok(file.persist(target.place())?)
    }
}

/// A file that is not in its place yet.
#[derive(Debug)]
pub struct Pending(NamedTempFile, Target);

impl Pending {
    /// Puts the file in its place, once it is on the disk.
    ///
    /// # Errors
    /// Returns the errors of the file system. What had the name has it still.
    pub fn finish(self) -> io::Result<()> {
        let Self(file, target) = self;
        file.as_file().sync_all()?;
        file.persist(target.place())?;
        target.sync();
        Ok(())
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The library's own errors name the passing file.
        self.0.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces `path` by `text`, as [`Target::replace`] does.
///
/// # Errors
/// Returns the errors of the file system.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    Target::of(path)?.replace(text)
}

/// Opens a regular file, or makes it, to read it and add to its end.
///
/// # Errors
/// Returns the errors of the file system; a link is one.
pub fn append(path: &Path) -> io::Result<File> {
    // A pipe is not waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(Target::of(path)?.place())?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

/// Checks that `path` can be written, before anything is measured.
///
/// # Errors
/// As of [`Error::output`].
pub fn check_file(path: &Path) -> Result<Target, Error> {
    if path == Path::new("-") {
        return Err(Error::usage(
            "-o - is no file",
            "this command keeps stdout for its tables",
            "give a file; ./- for one of that name",
        ));
    }
    let checked = Target::of(path).and_then(|target| target.check().map(|()| target));
    checked.map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Error::output(what, &error, "give -o a file in a folder that you may write to")
    })
}

/// Checks that writing `output` does not destroy one of the files that it is made of.
///
/// # Errors
/// Exit 2: it is one of them, by whatever name.
pub fn check_no_input<P: AsRef<Path>>(output: &Path, inputs: impl IntoIterator<Item = P>) -> Result<(), Error> {
    // A link is replaced and not followed.
    let Ok(found) = output.symlink_metadata() else { return Ok(()) };
    let is_output = |input: P| {
        let ways = [input.as_ref().symlink_metadata(), input.as_ref().metadata()];
        ways.into_iter().flatten().any(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
    };
    if inputs.into_iter().any(is_output) {
        return Err(Error::usage(format!("{} is also an input", output.display()), "", "give it another name"));
    }
    Ok(())
}

/// The folder of results, for the document of one experiment.
#[derive(Debug)]
pub struct OutputFolder {
    dir: PathBuf,
    folder: Folder,
    /// The folders that this run made, innermost first. Those that are empty at its end go again: `remove_dir` refuses others.
    made: Vec<PathBuf>,
    document: Option<PathBuf>,
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        for made in &self.made {
            let _ = std::fs::remove_dir(made);
        }
    }
}

impl OutputFolder {
    /// Makes the folder if need be and tries to write in it.
    ///
    /// # Errors
    /// Exit 2 if it cannot be made or written to.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = dir.ancestors().take_while(missing).map(Path::to_owned).collect();
        let folder = Folder::make(dir).map_err(|error| cannot(dir, &error))?;
        let open = Self { dir: dir.to_owned(), folder, made, document: None };
        let tried = Target::at(&open.folder, Path::new("document")).and_then(|target| target.passing());
        tried.map(|_| open).map_err(|error| cannot(dir, &error))
    }

    /// Returns the path of the document, once it was written.
    pub fn path(&self) -> Option<&Path> {
        self.document.as_deref()
    }

    /// Writes `text` as this experiment's document. The first time picks its name: `stem`, or `stem-2`, `stem-3` … if an
    /// earlier experiment has it.
    ///
    /// # Errors
    /// As of [`Error::output`]; of what was there before only this experiment's own document goes.
    pub fn write(&mut self, stem: &str, text: &[u8]) -> Result<&Path, Error> {
        let document = match &self.document {
            Some(document) => self.replace(document, text).inspect_err(|_| {
                // A run that ended is not to be one that goes on.
                let _ = unlinkat(&self.folder, document.file_name().unwrap_or_default(), AtFlags::empty());
            }),
            None => self.first(stem, text).map_err(|error| cannot(&self.dir, &error)),
        };
        Ok(self.document.insert(document?))
    }

    /// Replaces the file of that name in the folder.
    ///
    /// # Errors
    /// As of [`Error::output`]; what has the name has it still.
    pub fn replace(&self, file: &Path, text: &[u8]) -> Result<PathBuf, Error> {
        let written = Target::at(&self.folder, file).and_then(|target| target.replace(text));
        written.map(|()| file.to_owned()).map_err(|error| cannot(&self.dir, &error))
    }

    fn first(&mut self, stem: &str, text: &[u8]) -> io::Result<PathBuf> {
        for n in 1..=1000_u32 {
            let name = if n == 1 { format!("{stem}.json") } else { format!("{stem}-{n}.json") };
            let path = self.dir.join(name);
            if Target::at(&self.folder, &path)?.place_new(text)? {
                return Ok(path);
            }
        }
        Err(io::Error::other("1000 results of the same second are there already"))
    }
}

fn cannot(dir: &Path, error: &io::Error) -> Error {
    Error::output(format!("cannot write results to {}", dir.display()), error, "choose another folder with -o DIR")
}

/// Now, in seconds since 1970; 0 before that.
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time in UTC: `2026-01-31T23:59:59Z`.
pub fn utc(unix: u64) -> String {
    // The last second of the year 9999; a clock that is further off gets it.
    const LAST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(LAST))).to_string()
}

/// A file name for the time, UTC: `20260131T235959Z`.
pub fn time_stamp(unix: u64) -> String {
    utc(unix).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_document_keeps_its_name_and_never_clobbers_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = OutputFolder::open(dir.path()).unwrap();
        let json = first.write("run", b"1").unwrap().to_owned();
        assert_eq!(first.write("run", b"2").unwrap(), json);
        let mut second = OutputFolder::open(dir.path()).unwrap();
        assert_eq!(second.write("run", b"3").unwrap().file_name().unwrap(), "run-2.json");
        assert_eq!(std::fs::read(json).unwrap(), b"2");
        // Nothing temporary is left.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_empty_folder_of_ours_goes_away_but_not_one_that_was_there() {
        let dir = tempfile::tempdir().unwrap();
        drop(OutputFolder::open(&dir.path().join("a/b")).unwrap());
        assert!(!dir.path().join("a").exists());
        drop(OutputFolder::open(dir.path()).unwrap());
        assert!(dir.path().exists());
    }

    #[test]
    fn what_is_no_place_for_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let error = OutputFolder::open(&at("file")).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("-o DIR"), "{error}");
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink(dir.path(), at("link")).unwrap();
        for (path, why) in [
            (dir.path().to_owned(), "a folder"),
            (at("results/"), "a folder"),
            (at("link"), "a folder"),
            (at("socket"), "a socket"),
            (at("none/x.json"), "No such file"),
            (at("file/x.json"), "Not a directory"),
        ] {
            let error = check_file(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{}: {error}", path.display());
        }
        assert!(check_file(&at("x.json")).is_ok() && check_file(&at("file")).is_ok());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_output_that_is_an_input_is_refused_by_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, link_to, hard] = ["a", "b", "c", "d"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&other, "").unwrap();
        symlink(&file, &link_to).unwrap();
        std::fs::hard_link(&file, &hard).unwrap();
        for (output, input) in [(&file, &file), (&file, &link_to), (&link_to, &link_to), (&hard, &file)] {
            let error = check_no_input(output, [&other, input]).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains("is also an input"), "{error}");
        }
        assert!(check_no_input(&link_to, [&file]).is_ok(), "the link is replaced");
        assert!(check_no_input(&dir.path().join("new"), [&file]).is_ok());
    }

    #[test]
    fn a_link_is_replaced_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("x"));
        std::fs::write(&victim, "kept").unwrap();
        for to in [victim.as_path(), Path::new("/dev/null"), Path::new("nowhere")] {
            symlink(to, &path).unwrap();
            replace(&path, b"new").unwrap();
            assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            std::fs::remove_file(&path).unwrap();
            symlink(to, &path).unwrap();
            assert!(!Target::of(&path).unwrap().place_new(b"new").unwrap());
            assert!(append(&path).is_err());
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn what_is_no_file_is_neither_written_to_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let target = Target::of(&path).unwrap();
        for refused in [target.check(), target.replace(b"x"), append(&path).map(drop)] {
            assert!(refused.is_err(), "no FIFO is waited for");
        }
        for name in ["/dev/null", "/dev/stdout", "/dev/fd/1", "/dev/fd"] {
            assert!(check_file(Path::new(name)).is_err() && replace(Path::new(name), b"x").is_err(), "{name}");
        }
        assert!(Path::new("/dev/fd").is_symlink());
    }

    #[test]
    fn modes_are_as_asked_and_what_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
        std::fs::write(&path, "old").unwrap();
        let target = Target::of(&path).unwrap();
        let mut pending = target.begin().unwrap();
        pending.write_all(b"half").unwrap();
        drop(pending);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        target.clone().mode(0o600).replace(b"").unwrap();
        assert_eq!((mode(), std::fs::metadata(&path).unwrap().len()), (0o600, 0));
        target.mode(0o755).replace(b"#!").unwrap();
        assert_eq!(mode() & 0o700, 0o700);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
