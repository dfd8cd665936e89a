//! Writing results so that a reader, or a killed run, never meets half a file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD};
use tempfile::NamedTempFile;

use crate::error::Error;

/// Where the results of one experiment go.
#[derive(Debug)]
pub struct OutputFolder {
    dir: PathBuf,
    /// The folders this run made, innermost first, so that it may take empty ones away again.
    made: Vec<PathBuf>,
    stem: Option<String>,
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::usage(
        format!("cannot write results to {}", path.display()),
        error.to_string(),
        "choose another folder with -o DIR, or --no-save",
    )
}

fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    // 0644 less the umask, as any other file; tempfile's own default is 0600.
    tempfile::Builder::new().prefix(".vpmu-").permissions(Permissions::from_mode(0o644)).tempfile_in(dir)
}

/// A file that is whole and has no name of its own yet.
enum Whole {
    /// It never had one: a process that is killed while it writes leaves nothing.
    Unnamed(File),
    /// The file system has no O_TMPFILE (NFS, some overlays).
    Named(NamedTempFile),
}

fn filled(dir: &Path, text: &[u8]) -> io::Result<Whole> {
    // A file without a name gets one by way of /proc.
    let unnamed = if Path::new("/proc/self/fd").is_dir() {
        OpenOptions::new().write(true).mode(0o644).custom_flags(libc::O_TMPFILE).open(dir)
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    };
    match unnamed {
        Ok(mut file) => {
            file.write_all(text)?;
            file.sync_all()?;
            Ok(Whole::Unnamed(file))
        }
        // Refused by kernels and file systems without it: EOPNOTSUPP, or EISDIR as for a plain open of a folder.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            let mut file = temporary(dir)?;
            file.write_all(text)?;
            file.as_file().sync_all()?;
            Ok(Whole::Named(file))
        }
        Err(error) => Err(error),
    }
}

impl Whole {
    /// Takes the place of whatever is at `path`.
    fn replace(self, path: &Path) -> io::Result<()> {
        let file = match self {
            Self::Named(file) => return file.persist(path).map(drop).map_err(|error| error.error),
            Self::Unnamed(file) => file,
        };
        // A name can only be given where none is, and only a rename replaces: what a kill between the two leaves is whole.
        let dir = folder_of(path);
        for n in 0..100_u32 {
            let passing = dir.join(format!(".vpmu-{}-{n}", std::process::id()));
            match give_name(&file, &passing) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    return std::fs::rename(&passing, path).inspect_err(|_| {
                        let _ = std::fs::remove_file(&passing);
                    });
                }
            }
        }
        Err(io::Error::other("a hundred files of killed runs, .vpmu-*, are in the folder"))
    }

    /// Becomes `path` unless something is there; gives itself back if so.
    fn place(self, path: &Path) -> io::Result<Option<Self>> {
        let taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        match self {
            Self::Named(file) => match file.persist_noclobber(path) {
                Ok(_) => Ok(None),
                Err(error) if taken(&error.error) => Ok(Some(Self::Named(error.file))),
                Err(error) => Err(error.error),
            },
            Self::Unnamed(file) => match give_name(&file, path) {
                Ok(()) => Ok(None),
                Err(error) if taken(&error) => Ok(Some(Self::Unnamed(file))),
                Err(error) => Err(error),
            },
        }
    }
}

/// Gives a file without a name one, at which nothing may be.
fn give_name(file: &File, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The folder a file is in; "." for a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Replaces `path` by `text`: a nameless file in the same folder, fsync, a name, rename. A path that names something
/// other than a regular file (a pipe, /dev/null) is written as it is.
///
/// # Errors
/// Those of the file system.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if is_special(path) {
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        return file.write_all(text);
    }
    let dir = folder_of(path);
    filled(dir, text)?.replace(path)?;
    sync_dir(dir)
}

/// Writes `path` as [`replace`] does, unless something is there; false if so.
///
/// # Errors
/// Those of the file system.
pub fn place(path: &Path, text: &[u8]) -> io::Result<bool> {
    let dir = folder_of(path);
    let is_new = filled(dir, text)?.place(path)?.is_none();
    sync_dir(dir)?;
    Ok(is_new)
}

fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Checks that [`replace`] will be able to write `path`, before anything is measured.
///
/// # Errors
/// Exit 2, with the reason.
pub fn check_file(path: &Path) -> Result<(), Error> {
    let refuse = |why: String| {
        Error::usage(
            format!("cannot write {}", path.display()),
            why,
            "give -o a file in a folder that you may write to",
        )
    };
    if path.is_dir() {
        return Err(refuse("it is a folder".to_owned()));
    }
    if is_special(path) {
        return match std::fs::OpenOptions::new().write(true).open(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(refuse(error.to_string())),
        };
    }
    filled(folder_of(path), b"").map(drop).map_err(|error| refuse(error.to_string()))
}

impl OutputFolder {
    /// Makes the folder if need be and tries to write in it.
    ///
    /// # Errors
    /// Exit 2 if it cannot be made or written to.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let folder = Self {
            dir: dir.to_owned(),
            made: dir
                .ancestors()
                .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
                .map(Path::to_owned)
                .collect(),
            stem: None,
        };
        std::fs::create_dir_all(dir).map_err(|error| cannot(dir, &error))?;
        filled(dir, b"").map_err(|error| cannot(dir, &error))?;
        Ok(folder)
    }

    /// Where the file with that extension is, once one was written.
    #[must_use]
    pub fn path(&self, extension: &str) -> Option<PathBuf> {
        let stem = self.stem.as_ref()?;
        Some(self.dir.join(format!("{stem}.{extension}")))
    }

    /// Writes `text` as this experiment's file with that extension. The first file picks the name: `stem`, or
    /// `stem-2`, `stem-3` … if an earlier experiment has it; the others follow.
    ///
    /// # Errors
    /// Exit 2 with the reason; what was there before is untouched.
    pub fn write(&mut self, stem: &str, extension: &str, text: &[u8]) -> Result<PathBuf, Error> {
        let failed = |error: io::Error| cannot(&self.dir, &error);
        if let Some(stem) = &self.stem {
            let path = self.dir.join(format!("{stem}.{extension}"));
            replace(&path, text).map_err(failed)?;
            return Ok(path);
        }
        let mut file = filled(&self.dir, text).map_err(failed)?;
        for n in 1..=1000_u32 {
            let stem = if n == 1 { stem.to_owned() } else { format!("{stem}-{n}") };
            let path = self.dir.join(format!("{stem}.{extension}"));
            match file.place(&path).map_err(failed)? {
                None => {
                    sync_dir(&self.dir).map_err(failed)?;
                    self.stem = Some(stem);
                    return Ok(path);
                }
                Some(unplaced) => file = unplaced,
            }
        }
        Err(failed(io::Error::other("1000 results of the same second are there already")))
    }
}

impl Drop for OutputFolder {
    /// A run that wrote nothing leaves no folder it made. `remove_dir` refuses one that is not empty.
    fn drop(&mut self) {
        if self.stem.is_none() {
            for made in &self.made {
                let _ = std::fs::remove_dir(made);
            }
        }
    }
}

/// Now, in seconds since 1970; 0 before that.
#[must_use]
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time in UTC: `2026-01-31T23:59:59Z`.
#[must_use]
pub fn utc(unix: u64) -> String {
    // The last second of the year 9999; a clock that is further off gets it.
    const LAST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(LAST))).to_string()
}

/// A file name for the time, UTC: `20260131T235959Z`.
#[must_use]
pub fn time_stamp(unix: u64) -> String {
    utc(unix).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_experiment_share_a_name_and_never_clobber_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = OutputFolder::open(dir.path()).unwrap();
        let json = first.write("run", "json", b"1").unwrap();
        assert_eq!(first.write("run", "json", b"2").unwrap(), json);
        let mut second = OutputFolder::open(dir.path()).unwrap();
        let other = second.write("run", "json", b"3").unwrap();
        assert_eq!(other.file_name().unwrap(), "run-2.json");
        assert_eq!(second.write("run", "hlog", b"4").unwrap().file_name().unwrap(), "run-2.hlog");
        assert_eq!(std::fs::read(json).unwrap(), b"2");
        // Nothing temporary is left.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_empty_folder_of_ours_goes_away_but_not_one_that_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("a/b");
        drop(OutputFolder::open(&ours).unwrap());
        assert!(!dir.path().join("a").exists());
        drop(OutputFolder::open(dir.path()).unwrap());
        assert!(dir.path().exists());
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = OutputFolder::open(&file).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("-o DIR"));
        assert!(check_file(dir.path()).is_err());
        assert!(check_file(&dir.path().join("none/x.json")).is_err());
        assert!(check_file(&dir.path().join("x.json")).is_ok());
        assert!(check_file(Path::new("/dev/null")).is_ok());
        assert!(replace(Path::new("/dev/null"), b"x").is_ok());
    }

    #[test]
    fn time_stamps_know_leap_years() {
        for (unix, stamp) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_164_800, "20240229T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            assert_eq!(time_stamp(unix), stamp);
        }
    }
}
