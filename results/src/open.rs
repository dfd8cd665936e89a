//! The one way to files that others may have made. Nothing is waited for, and nothing is read beyond a bound: a FIFO, a device or a file
//! of a kernel's stream would otherwise hold a command for ever, and a device may do something when it is opened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Take};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat, openat2};

/// A file that ends where its size, or the bound of its reader, said when it was opened: one of procfs or tracefs, whose size is 0, has
/// nothing in it.
pub type Bounded = Take<File>;

/// Flags of a file that is read; nothing is waited for.
const READ: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Names of descriptors of this process.
const STREAMS: [&str; 3] = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// Opens a file that the user names. Only a descriptor of this process (`/dev/stdin`, `<(command)`) may be a pipe.
///
/// # Errors
/// Returns the errors of the file system, and those of a file that is not regular, or larger than `most` bytes.
pub fn named(path: &Path, most: u64) -> io::Result<Bounded> {
    if !is_descriptor(path) {
        return regular(&at(path)?, most, "; <(cat FIFO) is read");
    }
    let file = openat(CWD, path, READ, Mode::empty())?;
    // Its data are waited for.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    let stat = fstat(&file)?;
    let is_file = kind(&stat) == FileType::RegularFile;
    let size = if is_file { check(&stat, most, "")? } else { most.saturating_add(1) };
    Ok(File::from(file).take(size))
}

/// Reads the text of a file that the user names.
///
/// # Errors
/// Returns the errors of [`named`] and [`text`].
pub fn named_text(path: &Path, most: u64) -> io::Result<String> {
    text(named(path, most)?)
}

/// Opens a file of a folder; a link is followed, as folders of results may be made of them.
///
/// # Errors
/// Returns the errors of the file system, and those of a file that is not regular, or larger than `most` bytes.
pub fn found(path: &Path, most: u64) -> io::Result<Bounded> {
    regular(&at(path)?, most, "")
}

/// Reads a file of a folder.
///
/// # Errors
/// Returns the errors of [`found`] and [`bytes`].
pub fn found_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes(found(path, most)?)
}

/// Reads a file that is open.
///
/// # Errors
/// Returns the errors of the file system, and that of a pipe that has more than its reader's bound.
pub fn bytes(mut file: Bounded) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // Of a file all is taken, whose size was checked, of a pipe one byte more than there may be.
    let is_more = file.limit() == 0 && kind(&fstat(file.get_ref())?) != FileType::RegularFile;
    if is_more { Err(too_large(bytes.len() as u64 - 1)) } else { Ok(bytes) }
}

/// Reads a file as text.
///
/// # Errors
/// Returns the errors of [`bytes`], and that of a file that is not UTF-8.
pub fn text(file: Bounded) -> io::Result<String> {
    String::from_utf8(bytes(file)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// A folder that stays the same one, whatever takes its name meanwhile.
#[derive(Clone, Debug)]
pub struct Folder(Arc<OwnedFd>);

impl Folder {
    /// Opens a folder to read from it.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(Arc::new(openat(CWD, path, flags, Mode::empty())?)))
    }

    /// Opens a folder, after those of its path that are missing were made. The kernel (`fs.protected_symlinks`) refuses other users'
    /// links in folders that all may write to.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn make(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Makes a folder that was not there.
    ///
    /// # Errors
    /// Returns the errors of the file system, among them that of a name that is taken.
    pub fn make_new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir(path)?;
        Self::open(path)
    }

    /// Opens a file in it or below. No link is followed on the way.
    ///
    /// # Errors
    /// Returns the errors of [`found`], and those of a link and of a path that leaves the folder.
    pub fn file(&self, file: &Path, most: u64) -> io::Result<Bounded> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        regular(&openat2(self, file, flags, Mode::empty(), resolve)?, most, "")
    }

    /// Returns the names in it, in no order.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(self.by_descriptor())?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Opens it as a file, to lock it or to wait for the disk.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn handle(&self) -> io::Result<File> {
        File::open(self.by_descriptor())
    }

    /// Returns a path of it that holds as long as it is open.
    pub fn by_descriptor(&self) -> PathBuf {
        by_descriptor(&self.0)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The folder of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether a path names a descriptor of this process.
fn is_descriptor(path: &Path) -> bool {
    let is_in = |folder| path.parent() == Some(Path::new(folder));
    is_in("/dev/fd") || is_in("/proc/self/fd") || STREAMS.iter().any(|stream| path == Path::new(stream))
}

/// Returns the place of a path, behind its links, which opens nothing there.
fn at(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn by_descriptor(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Opens what is at a place. Opening a device may already do something, so its kind is looked at before.
fn regular(place: &OwnedFd, most: u64, of_fifo: &str) -> io::Result<Bounded> {
    let size = check(&fstat(place)?, most, of_fifo)?;
    Ok(File::from(openat(CWD, by_descriptor(place), READ, Mode::empty())?).take(size))
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the size of a regular file.
fn check(stat: &Stat, most: u64, of_fifo: &str) -> io::Result<u64> {
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    match kind(stat) {
        FileType::RegularFile if size <= most => Ok(size),
        FileType::RegularFile => Err(too_large(most)),
        kind => Err(refused(kind, of_fifo)),
    }
}

/// Refuses what is there in place of a regular file; of a FIFO it says what else goes.
pub(crate) fn refused(kind: FileType, of_fifo: &str) -> io::Error {
    let what = match kind {
        FileType::Directory => "folder",
        FileType::Fifo => return io::Error::other(format!("it is a FIFO, not a regular file{of_fifo}")),
        FileType::Socket => "socket",
        FileType::Symlink => "link",
        _ => "device",
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is a {what}, not a regular file"))
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {}", size(most)))
}

/// Returns a bound in words.
pub(crate) fn size(most: u64) -> String {
    if most >> 20 > 0 { format!("{} MiB", most >> 20) } else { format!("{most} bytes") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mknodat;

    use super::*;

    /// Makes a folder with a FIFO that nobody writes to, a file, and links to them.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::fs::create_dir(at("a")).unwrap();
        std::fs::write(at("a/file"), "text").unwrap();
        symlink("a/file", at("link")).unwrap();
        symlink("fifo", at("to-fifo")).unwrap();
        symlink("a", at("b")).unwrap();
        dir
    }

    #[test]
    fn what_would_block_is_refused_at_once() {
        let dir = folder();
        for (name, kind) in [("fifo", "FIFO"), ("to-fifo", "FIFO"), ("a", "folder")] {
            for open in [found, named] {
                let error = open(&dir.path().join(name), 9).unwrap_err().to_string();
                assert!(error.starts_with(&format!("it is a {kind}, not a regular file")), "{error}");
            }
        }
        assert!(named(Path::new("/dev/zero"), 9).unwrap_err().to_string().contains("a device"));
        // A file of the kernel's has the size 0, and may never end.
        assert_eq!(text(named(Path::new("/proc/version"), 9).unwrap()).unwrap(), "");
    }

    #[test]
    fn a_pipe_of_this_process_is_read_up_to_the_bound() {
        use std::io::Write as _;
        for (folder, most, is_read) in [("/dev/fd", 4, true), ("/proc/self/fd", 4, true), ("/dev/fd", 3, false)] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"text").unwrap();
            drop(writer);
            let file = named(&PathBuf::from(format!("{folder}/{}", reader.as_raw_fd())), most).unwrap();
            assert!(!fcntl_getfl(file.get_ref()).unwrap().contains(OFlags::NONBLOCK), "data are waited for");
            assert_eq!(text(file).is_ok(), is_read);
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_links_only_where_folders_of_results_have_them() {
        let dir = folder();
        let link = dir.path().join("link");
        assert_eq!(text(found(&link, 4).unwrap()).unwrap(), "text");
        assert_eq!(found(&link, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let folder = Folder::open(dir.path()).unwrap();
        let below = |file: &str| folder.file(Path::new(file), 9).and_then(text);
        for file in ["a/file", "a/../a/file"] {
            assert_eq!(below(file).unwrap(), "text");
        }
        for file in ["link", "b/file", "../a/file", "a/../../a/file", "/etc/hostname", "fifo", "a", ""] {
            assert!(below(file).is_err(), "{file}");
        }
        // Whatever takes its name.
        std::fs::rename(dir.path().join("a"), dir.path().join("c")).unwrap();
        assert_eq!((below("c/file").unwrap(), folder.names().unwrap().len()), ("text".to_owned(), 5));
    }
}
