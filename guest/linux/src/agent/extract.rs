//! A guest's folder on the host. Every name comes from the guest: none leads out of the target, by `..`, by a link, or by a
//! link that the guest sent before.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::client::text;
use super::error::AgentError;
use super::wire::Fields;
use crate::protocol::{FILE, FOLDER, LINK, MAX_PATH, OTHER};

/// One entry of the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    kind: u8,
    mode: u32,
    /// Names from the top; none for the top itself.
    names: Vec<&'a [u8]>,
    target: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, AgentError> {
        let mut fields = Fields(payload);
        let (kind, mode, path) = (fields.u8()?, fields.u32()?, fields.string()?);
        let target = fields.string()?;
        let names: Vec<&[u8]> = if path.is_empty() { Vec::new() } else { path.split(|&byte| byte == b'/').collect() };
        if path.len() >= MAX_PATH || names.iter().any(|name| matches!(*name, b"" | b"." | b"..")) {
            return Err(AgentError::Protocol("it sent a path that is not below the folder asked for"));
        }
        // The agent follows a link that is asked for. Whoever goes on with the copy would follow this one on the host.
        if kind == LINK && names.is_empty() {
            return Err(AgentError::Protocol("a link in place of what was asked for"));
        }
        Ok(Self { kind, mode: mode & 0o777, names, target })
    }

    /// Returns the path of a file, below the one that was asked for; `None` for anything else.
    pub(super) fn file(&self) -> Option<String> {
        let names: Vec<_> = self.names.iter().map(|name| text(name)).collect();
        (self.kind == FILE).then(|| names.join("/"))
    }
}

/// A copy under construction.
#[derive(Debug)]
pub(super) struct Extraction<'a> {
    /// The folder that the top is made in.
    folder: BorrowedFd<'a>,
    /// The top: its last name is the one in the folder, the rest is for messages.
    to: &'a Path,
    /// The top was entered.
    is_begun: bool,
    /// The top, if it is a folder.
    top: Option<OwnedFd>,
    file: Option<(PathBuf, File)>,
}

impl<'a> Extraction<'a> {
    pub(super) fn new(folder: BorrowedFd<'a>, to: &'a Path) -> Self {
        Self { folder, to, is_begun: false, top: None, file: None }
    }

    /// Begins an entry; bytes that follow are the file's.
    pub(super) fn enter(&mut self, entry: &Entry<'_>) -> Result<(), AgentError> {
        self.file = None;
        if !matches!(entry.kind, FILE | FOLDER | LINK | OTHER) {
            return Err(AgentError::Protocol("an entry of an unknown type"));
        }
        let path = entry.names.iter().fold(self.to.to_owned(), |path, name| path.join(OsStr::from_bytes(name)));
        self.make(entry, &path).map_err(|error| failed(&path, error.into()))
    }

    fn make(&mut self, entry: &Entry<'_>, path: &Path) -> Result<(), Errno> {
        let below;
        let (above, name) = match entry.names.split_last() {
            Some((last, above)) => {
                below = self.below_top(above)?;
                (below.as_fd(), OsStr::from_bytes(last))
            }
            None if self.is_begun => return Err(Errno::EXIST),
            None => (self.folder, self.to.file_name().ok_or(Errno::INVAL)?),
        };
        // The user can always look into, change and remove what was copied; the rest of the mode is the guest's, less the umask.
        let mode = Mode::from_raw_mode(entry.mode | 0o600);
        match entry.kind {
            FILE => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(above, name, flags, mode)?;
                self.file = Some((path.to_owned(), file.into()));
            }
            FOLDER => {
                mkdirat(above, name, mode | Mode::XUSR)?;
                if entry.names.is_empty() {
                    self.top = Some(folder_in(above, name)?);
                }
            }
            LINK => symlinkat(OsStr::from_bytes(entry.target), above, name)?,
            _ => {}
        }
        self.is_begun = true;
        Ok(())
    }

    /// Opens a folder below the top, by real folders only.
    fn below_top(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let top = self.top.as_ref().ok_or(Errno::NOTDIR)?;
        names.iter().try_fold(folder_in(top.as_fd(), OsStr::new("."))?, |folder, name| {
            folder_in(folder.as_fd(), OsStr::from_bytes(name))
        })
    }

    /// Bytes of the file entered last.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let Some((path, file)) = &mut self.file else {
            return Err(AgentError::Protocol("bytes without a file"));
        };
        file.write_all(bytes).map_err(|error| failed(path, error))
    }
}

fn failed(path: &Path, error: std::io::Error) -> AgentError {
    AgentError::Host { what: path.display().to_string(), error }
}

/// Opens a folder of this name, never one that a link leads to.
fn folder_in(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, mode: u32, path: &str, target: &str) -> Vec<u8> {
        [&[kind][..], &mode.to_le_bytes(), path.as_bytes(), &[0], target.as_bytes(), &[0]].concat()
    }

    fn enter(extraction: &mut Extraction, kind: u8, path: &str, target: &str) -> Result<(), AgentError> {
        let payload = entry(kind, 0o755, path, target);
        Entry::parse(&payload).and_then(|entry| extraction.enter(&entry))
    }

    /// Makes a folder with an open descriptor.
    fn opened() -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let fd = File::open(folder.path()).unwrap();
        (folder, fd)
    }

    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn modes_of_a_guest_obey_the_umask() {
        let (folder, fd) = opened();
        // A folder of this process shows what its umask leaves.
        std::fs::create_dir(folder.path().join("mine")).unwrap();
        let left = mode(&folder.path().join("mine"));
        for (name, sent) in [("top", 0o7777), ("private", 0o700), ("closed", 0o500)] {
            let to = folder.path().join(name);
            let mut extraction = Extraction::new(fd.as_fd(), &to);
            for (kind, sent, path) in [(FOLDER, sent, ""), (FOLDER, 0o7777, "d"), (FILE, 0o6666, "d/f")] {
                extraction.enter(&Entry::parse(&entry(kind, sent, path, "")).unwrap()).unwrap();
            }
            let modes = ["", "d", "d/f"].map(|path| mode(&to.join(path).components().collect::<PathBuf>()));
            assert_eq!(modes, [left & (sent | 0o700), left, left & 0o666], "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_swapped_for_a_link_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (to, outside) = (folder.path().join("user/copy"), folder.path().join("root"));
        std::fs::create_dir(folder.path().join("user")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let user = File::open(folder.path().join("user")).unwrap();
        let swap = |path: &Path| {
            std::fs::rename(path, path.with_extension("real")).unwrap();
            std::os::unix::fs::symlink(&outside, path).unwrap();
        };
        swap(&folder.path().join("user"));
        let mut extraction = Extraction::new(user.as_fd(), &to);
        enter(&mut extraction, FOLDER, "", "").unwrap();
        enter(&mut extraction, FOLDER, "d", "").unwrap();
        swap(&folder.path().join("user.real/copy"));
        enter(&mut extraction, FILE, "f", "").unwrap();
        swap(&folder.path().join("user.real/copy.real/d"));
        assert!(enter(&mut extraction, FILE, "d/f", "").is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(folder.path().join("user.real/copy.real/f").exists());
    }

    #[test]
    fn the_target_is_new_and_one() {
        let (folder, fd) = opened();
        let to = |name: &str| folder.path().join(name);
        std::fs::create_dir(to("folder")).unwrap();
        std::os::unix::fs::symlink("nowhere", to("link")).unwrap();
        for (name, kind) in
            ["folder", "link"].into_iter().flat_map(|name| [FILE, FOLDER, LINK].map(|kind| (name, kind)))
        {
            assert!(enter(&mut Extraction::new(fd.as_fd(), &to(name)), kind, "", "t").is_err(), "{name}");
        }
        let new = to("new");
        let mut extraction = Extraction::new(fd.as_fd(), &new);
        enter(&mut extraction, FILE, "", "").unwrap();
        assert!(enter(&mut extraction, FILE, "x", "").is_err() && enter(&mut extraction, FOLDER, "", "").is_err());
    }
}
