//! A folder that is held open, and files that get their names in it once they are whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, statat, unlinkat,
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

    /// Returns the path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Renames a file or link, in place of one that has the name.
    ///
    /// # Errors
    /// The folder's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// The folder's.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Opens a file of this name, never what a link leads to.
    pub(super) fn open_file(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, mode)?))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // Some file systems of other hosts have no way to do that for a folder.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A file on its way: without a name, so that a process that is killed while it writes leaves nothing; or, where the
/// file system has no O_TMPFILE (NFS, some overlays), with a passing name, which goes with it unless it gets its own.
#[derive(Debug)]
pub(super) struct Unplaced {
    folder: Arc<Folder>,
    pub(super) file: File,
    passing: Option<OsString>,
}

impl Unplaced {
    pub(super) fn begin(folder: &Arc<Folder>, mode: Mode) -> io::Result<Self> {
        // A file without a name gets one by way of /proc.
        let unnamed = if Path::new("/proc/self/fd").is_dir() {
            openat(&folder.fd, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode)
        } else {
            Err(Errno::OPNOTSUPP)
        };
        match unnamed {
            Ok(file) => Ok(Self { folder: Arc::clone(folder), file: file.into(), passing: None }),
            // Refused by kernels and file systems without it; EISDIR as for a plain open of a folder.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::begin_named(folder, mode),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn begin_named(folder: &Arc<Folder>, mode: Mode) -> io::Result<Self> {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let (name, file) = passing(|name| folder.open_file(name, new, mode))?;
        Ok(Self { folder: Arc::clone(folder), file, passing: Some(name) })
    }

    /// Takes the place of whatever has this name.
    pub(super) fn replace(mut self, name: &OsStr) -> io::Result<()> {
        // A name can only be given where none is, and only a rename replaces: what a kill between the two leaves is whole.
        let passing = match self.passing.take() {
            Some(passing) => passing,
            None => passing(|name| self.give_name(name))?.0,
        };
        let passing = self.passing.insert(passing);
        self.folder.rename(passing, name)?;
        self.passing = None;
        Ok(())
    }

    /// Gets this name unless something has it; false if so.
    pub(super) fn place(&mut self, name: &OsStr) -> io::Result<bool> {
        let fd = &self.folder.fd;
        let placed = match &self.passing {
            None => self.give_name(name),
            Some(passing) => match renameat_with(fd, passing, fd, name, RenameFlags::NOREPLACE) {
                // Another name of the same file; the passing one goes with `self`.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    let linked = linkat(fd, passing, fd, name, AtFlags::empty());
                    return taken(linked.map_err(io::Error::from));
                }
                renamed => renamed.map_err(io::Error::from),
            },
        };
        let placed = taken(placed)?;
        if placed {
            self.passing = None;
        }
        Ok(placed)
    }

    /// Gives a file without a name one that nothing has.
    fn give_name(&self, name: &OsStr) -> io::Result<()> {
        let from = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(linkat(CWD, from, &self.folder.fd, name, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl Drop for Unplaced {
    fn drop(&mut self) {
        if let Some(passing) = &self.passing {
            let _ = self.folder.remove(passing);
        }
    }
}

fn taken(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        done => done.map(|()| true),
    }
}

/// Does `make` with a name that nothing has.
fn passing<T>(mut make: impl FnMut(&OsStr) -> io::Result<T>) -> io::Result<(OsString, T)> {
    for n in 0..100_u32 {
        let name = OsString::from(format!(".vpmu-{}-{n}", std::process::id()));
        match make(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|made| (name, made)),
        }
    }
    Err(io::Error::other("a hundred files of killed runs, .vpmu-*, are in the folder"))
}
