//! Files of a bounded size. One that was found in a folder is opened without waiting, and is regular: a FIFO, a device or a file
//! of a kernel's stream in the folder of a stranger would otherwise hold a command for ever. One that the user names may be a
//! pipe.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};

/// Reads the text of a file that the user names.
///
/// # Errors
/// Returns the errors of [`text`].
pub fn named(path: &Path, most: u64) -> io::Result<String> {
    text(File::open(path)?, most)
}

/// Opens a file of a folder; a link is followed, as folders of results may be made of them.
///
/// # Errors
/// Returns the errors of the file system, and those of a file that is not regular, or larger than `most` bytes.
pub fn found(path: &Path, most: u64) -> io::Result<File> {
    regular(CWD, path, OFlags::empty(), most)
}

/// Opens the file at `file` below the folder `dir`. No link is followed on the way from there.
///
/// # Errors
/// Returns the errors of [`found`], and those of a link and of a path that leaves the folder.
pub fn below(dir: &Path, file: &Path, most: u64) -> io::Result<File> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = openat(CWD, dir, path, Mode::empty())?;
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { break };
        if parts.peek().is_none() {
            return regular(&at, Path::new(name), OFlags::NOFOLLOW, most);
        }
        at = openat(&at, name, path | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "its path leaves the folder"))
}

/// Reads a file that is open, if it has no more than `most` bytes.
///
/// # Errors
/// Returns the errors of the file system, and that of a larger file.
pub fn bytes(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large(most)) } else { Ok(bytes) }
}

/// Reads a file as text.
///
/// # Errors
/// Returns the errors of [`bytes`], and that of a file that is not UTF-8.
pub fn text(file: File, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(file, most)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

fn regular(dir: impl AsFd, path: &Path, flags: OFlags, most: u64) -> io::Result<File> {
    let follow = if flags.contains(OFlags::NOFOLLOW) { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    // Opening a device may already do something, so its kind is looked at before, and again behind the descriptor.
    check(&statat(&dir, path, follow)?, most)?;
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&dir, path, flags, Mode::empty())?;
    check(&fstat(&file)?, most)?;
    Ok(File::from(file))
}

fn check(stat: &Stat, most: u64) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if u64::try_from(stat.st_size).is_ok_and(|size| size <= most) => return Ok(()),
        FileType::RegularFile => return Err(too_large(most)),
        FileType::Directory => "folder",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::Symlink => "link",
        _ => "device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is a {kind}, not a regular file")))
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
            let error = found(&dir.path().join(name), 9).unwrap_err().to_string();
            assert_eq!(error, format!("it is a {kind}, not a regular file"));
        }
        assert!(found(Path::new("/dev/zero"), 9).unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_links_only_where_folders_of_results_have_them() {
        let dir = folder();
        let link = dir.path().join("link");
        assert_eq!(text(found(&link, 4).unwrap(), 4).unwrap(), "text");
        assert_eq!(found(&link, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(bytes(found(&link, 4).unwrap(), 3).unwrap_err().to_string(), "it is larger than 3 bytes");
        let below = |file: &str| below(dir.path(), Path::new(file), 9).and_then(|file| text(file, 9));
        assert_eq!(below("a/file").unwrap(), "text");
        for file in ["link", "b/file", "../a/file", "a/../a/file", "/etc/hostname", "fifo", "a", ""] {
            assert!(below(file).is_err(), "{file}");
        }
    }
}
