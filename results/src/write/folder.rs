//! A folder that is held open: what a guest sends goes into it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat, renameat_with, statat,
};
use rustix::io::Errno;

/// A folder that stays the same one, whatever becomes of its path meanwhile. Names in it are never followed if they are links.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder that the user named: links in that path are the user's own. One at its end that another user made
    /// is refused, as that may wait where a default or a part of a name leads.
    ///
    /// # Errors
    /// The folder's, and that of such a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        if is_link && ![0, rustix::process::geteuid().as_raw()].contains(&found.st_uid) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a link that another user made"));
        }
        let follow = if is_link { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags | follow, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a folder in it, never one that a link leads to.
    ///
    /// # Errors
    /// The folder's.
    pub fn below(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self { fd: openat(&self.fd, name, flags, Mode::empty())?, path: self.path.join(name) })
    }

    /// Returns the path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is `other`, or somewhere below it.
    ///
    /// # Errors
    /// A folder above cannot be looked at.
    pub fn is_within(&self, other: &Self) -> io::Result<bool> {
        let id = |fd: BorrowedFd<'_>| fstat(fd).map(|found| (found.st_dev, found.st_ino));
        let wanted = id(other.as_fd())?;
        let up =
            |fd: BorrowedFd<'_>| openat(fd, "..", OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let (mut here, mut above) = (id(self.as_fd())?, up(self.as_fd())?);
        while here != wanted {
            let next = id(above.as_fd())?;
            // The root is above itself.
            if next == here {
                return Ok(false);
            }
            (here, above) = (next, up(above.as_fd())?);
        }
        Ok(true)
    }

    /// Returns the type of what has this name, of a link itself; `None` if nothing has.
    ///
    /// # Errors
    /// The folder's.
    pub fn kind(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames into another folder; a folder may take the place of an empty one.
    ///
    /// # Errors
    /// The folders'.
    pub fn rename_into(&self, from: &OsStr, other: &Self, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &other.fd, to)?)
    }

    /// Renames into another folder, unless something has the name.
    ///
    /// # Errors
    /// The folders'; `AlreadyExists`.
    pub fn rename_new_into(&self, from: &OsStr, other: &Self, to: &OsStr) -> io::Result<()> {
        match renameat_with(&self.fd, from, &other.fd, to, RenameFlags::NOREPLACE) {
            // File systems without it.
            Err(Errno::INVAL | Errno::NOSYS) if other.kind(to)?.is_none() => self.rename_into(from, other, to),
            Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST.into()),
            renamed => Ok(renamed?),
        }
    }

    /// Lists the names in it, sorted.
    ///
    /// # Errors
    /// The folder's.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let names =
            Dir::read_from(&self.fd)?.map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
