//! A path that something is written to, as the descriptors that it was when it was named.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, fstat};

use super::folder::{Folder, Unplaced};

/// A file to be written, by its name in a folder that is held open.
///
/// A link that has the name is replaced and never followed. A pipe or a character device that has it is written to;
/// block devices, sockets and folders are refused. `/dev/stdout`, `/dev/stderr`, `/dev/fd/N` and `/proc/self/fd/N` are
/// the descriptors of this process.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    at: At,
    mode: Mode,
    /// A pipe or a device of that name is written to.
    through: bool,
}

#[derive(Clone, Debug)]
enum At {
    Descriptor(Arc<File>),
    Name(Arc<Folder>, OsString),
}

impl Target {
    /// Opens the path's folder now; it is the one written to.
    ///
    /// # Errors
    /// The folder's, or the path names no file.
    pub fn of(path: &Path) -> io::Result<Self> {
        let at = match descriptor(path) {
            Some(number) => At::Descriptor(Arc::new(own(number)?)),
            None => {
                let folder = match path.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
                let name = path.file_name().filter(|_| !is_folder).ok_or_else(|| refusal(FileType::Directory))?;
                At::Name(Arc::new(Folder::open(folder)?), name.to_owned())
            }
        };
        Ok(Self { path: path.to_owned(), at, mode: Mode::from_raw_mode(0o644), through: true })
    }

    /// Makes the target a file for its owner only, as perf's recordings are.
    pub fn private(self) -> Self {
        Self { mode: Mode::from_raw_mode(0o600), ..self }
    }

    /// Makes the target a program.
    pub fn executable(self) -> Self {
        Self { mode: Mode::from_raw_mode(0o755), ..self }
    }

    /// Makes the target a file, whatever has the name: a pipe is replaced, too.
    pub fn always_file(self) -> Self {
        Self { through: false, ..self }
    }

    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its folder and its name there; `None` for a descriptor.
    pub fn named(&self) -> Option<(&Folder, &OsStr)> {
        match &self.at {
            At::Descriptor(_) => None,
            At::Name(folder, name) => Some((folder, name)),
        }
    }

    /// Checks that it can be written.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> io::Result<()> {
        let At::Name(folder, name) = &self.at else { return Ok(()) };
        if self.is_through(folder, name)? {
            // A pipe that is opened and closed would be at its end for its reader.
            return Ok(rustix::fs::accessat(
                folder.as_fd(),
                name,
                rustix::fs::Access::WRITE_OK,
                rustix::fs::AtFlags::EACCESS,
            )?);
        }
        // A name instead of a folder's is a mistake, which would cost the user a link.
        if self.path.is_dir() {
            return Err(refusal(FileType::Directory));
        }
        Unplaced::begin(folder, self.mode).map(drop)
    }

    /// Returns whether the file of that name is written to, instead of being replaced.
    fn is_through(&self, folder: &Folder, name: &OsStr) -> io::Result<bool> {
        match folder.kind(name)? {
            // The links there are the system's.
            Some(kind @ FileType::Symlink) if self.path.starts_with("/dev") => Err(refusal(kind)),
            None | Some(FileType::RegularFile | FileType::Symlink) => Ok(false),
            Some(FileType::Fifo | FileType::CharacterDevice) => Ok(self.through),
            Some(_) if !self.through => Ok(false),
            Some(kind) => Err(refusal(kind)),
        }
    }

    /// Begins the file; until it is finished, what has the name stays.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn begin(&self) -> io::Result<Pending> {
        let (folder, name) = match &self.at {
            At::Descriptor(file) => return Ok(Pending(Writing::Through(file.try_clone()?))),
            At::Name(folder, name) => (folder, name),
        };
        if self.is_through(folder, name)? {
            let file = folder.open_file(name, OFlags::WRONLY, Mode::empty())?;
            // It may be another file by now.
            return match FileType::from_raw_mode(fstat(&file)?.st_mode) {
                FileType::Fifo | FileType::CharacterDevice => Ok(Pending(Writing::Through(file))),
                kind => Err(refusal(kind)),
            };
        }
        Ok(Pending(Writing::File(Unplaced::begin(folder, self.mode)?, Arc::clone(folder), name.clone())))
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

    /// Replaces it by an empty file, to be filled from here on.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn create(&self) -> io::Result<File> {
        match self.begin()?.0 {
            Writing::Through(file) => Ok(file),
            Writing::File(unplaced, _, name) => {
                let file = unplaced.file.try_clone()?;
                unplaced.replace(&name)?;
                Ok(file)
            }
        }
    }

    /// Writes it unless something has the name; false if so.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn place(&self, bytes: &[u8]) -> io::Result<bool> {
        let At::Name(folder, name) = &self.at else { return Ok(false) };
        let mut unplaced = Unplaced::begin(folder, self.mode)?;
        unplaced.file.write_all(bytes)?;
        unplaced.file.sync_all()?;
        let is_new = unplaced.place(name)?;
        folder.sync()?;
        Ok(is_new)
    }

    /// Opens it, or a new one, to read it and add to its end.
    ///
    /// # Errors
    /// Returns the errors of the file system, and anything but a regular file.
    pub fn append(&self) -> io::Result<File> {
        let Some((folder, name)) = self.named() else { return Err(io::Error::other("it is no file")) };
        // A pipe is not waited for.
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let file = folder.open_file(name, flags, self.mode)?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file),
            kind => Err(refusal(kind)),
        }
    }
}

/// A file that is not there yet, or a pipe or device that is being written to.
#[derive(Debug)]
pub struct Pending(Writing);

#[derive(Debug)]
enum Writing {
    Through(File),
    File(Unplaced, Arc<Folder>, OsString),
}

impl Pending {
    /// Puts the file in its place, once it is on the disk.
    ///
    /// # Errors
    /// Returns the errors of the file system. What had the name has it still.
    pub fn finish(self) -> io::Result<()> {
        let Writing::File(unplaced, folder, name) = self.0 else { return Ok(()) };
        unplaced.file.sync_all()?;
        unplaced.replace(&name)?;
        folder.sync()
    }

    /// Finishes without waiting for the disk.
    ///
    /// # Errors
    /// Returns the errors of the file system. What had the name has it still.
    pub fn finish_at_once(self) -> io::Result<()> {
        match self.0 {
            Writing::Through(_) => Ok(()),
            Writing::File(unplaced, _, name) => unplaced.replace(&name),
        }
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Writing::Through(file) => file.write(bytes),
            Writing::File(unplaced, ..) => unplaced.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of this process's descriptor that a path names.
fn descriptor(path: &Path) -> Option<u32> {
    let path = path.to_str()?;
    let number = match path {
        "/dev/stdin" => return Some(0),
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => ["/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"]
            .iter()
            .find_map(|folder| path.strip_prefix(folder))?,
    };
    number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Opens a descriptor of this process, to write to.
fn own(number: u32) -> io::Result<File> {
    let file = match number {
        1 => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        2 => File::from(io::stderr().as_fd().try_clone_to_owned()?),
        // The kernel's link leads to the open file, by no path.
        _ => File::options().append(true).open(format!("/proc/self/fd/{number}"))?,
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        kind @ FileType::BlockDevice => Err(refusal(kind)),
        _ => Ok(file),
    }
}

fn refusal(kind: FileType) -> io::Error {
    io::Error::other(match kind {
        FileType::Directory => "it is a folder",
        FileType::BlockDevice => "it is a block device",
        FileType::Socket => "it is a socket",
        FileType::Symlink => "it is a link of the system's",
        _ => "it is no regular file",
    })
}
