//! A guest's folder on the host. Every name comes from the guest: none leads out of the target, by `..`, by a link, or by a
//! link that the guest sent before.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, open, openat, symlinkat};
use rustix::io::Errno;

use super::client::text;
use super::error::AgentError;
use super::wire::Fields;
use crate::protocol::{FILE, FOLDER, LINK, MAX_PATH, OTHER};

/// Most files, folders and links of one request.
const MOST_ENTRIES: u64 = 1 << 20;

/// Most folders above a file.
const DEEPEST: usize = 64;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Folders, the outermost included.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// Sockets, devices and the like, which are left out.
    pub left_out: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

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
        let is_plain = |name: &&[u8]| !matches!(*name, b"" | b"." | b"..") && name.len() <= 255;
        if path.len() >= MAX_PATH || names.len() > DEEPEST || !names.iter().all(is_plain) {
            return Err(AgentError::Path(text(path)));
        }
        // The agent follows a link that is asked for. Whoever goes on with the copy would follow this one on the host.
        if kind == LINK && names.is_empty() {
            return Err(AgentError::Protocol("a link in place of what was asked for"));
        }
        Ok(Self { kind, mode: mode & 0o777, names, target })
    }

    /// The path of a file, below the one that was asked for; `None` for anything else.
    pub(super) fn file(&self) -> Option<String> {
        let names: Vec<_> = self.names.iter().map(|name| text(name)).collect();
        (self.kind == FILE).then(|| names.join("/"))
    }
}

/// A copy under construction.
#[derive(Debug)]
pub(super) struct Extraction {
    to: PathBuf,
    top: Option<OwnedFd>,
    file: Option<(PathBuf, File)>,
    /// Folders made, with the modes they get at the end: some are not writable.
    modes: Vec<(Vec<Vec<u8>>, u32)>,
    copied: Copied,
}

impl Extraction {
    pub(super) fn new(to: &Path) -> Self {
        Self { to: to.to_owned(), top: None, file: None, modes: Vec::new(), copied: Copied::default() }
    }

    /// Begins an entry; bytes that follow are the file's.
    pub(super) fn enter(&mut self, entry: &Entry<'_>) -> Result<(), AgentError> {
        self.file = None;
        let copied = &mut self.copied;
        let count = match entry.kind {
            FILE => &mut copied.files,
            FOLDER => &mut copied.folders,
            LINK => &mut copied.links,
            OTHER => &mut copied.left_out,
            _ => return Err(AgentError::Protocol("an entry of an unknown type")),
        };
        *count += 1;
        if copied.files + copied.folders + copied.links + copied.left_out > MOST_ENTRIES {
            return Err(AgentError::Protocol("more files than one request may have"));
        }
        let path = entry.names.iter().fold(self.to.clone(), |path, name| path.join(OsStr::from_bytes(name)));
        self.make(entry, &path).map_err(|error| AgentError::Host { path, error: error.into() })
    }

    fn make(&mut self, entry: &Entry<'_>, path: &Path) -> Result<(), Errno> {
        let Some((last, above)) = entry.names.split_last() else { return self.make_top(entry) };
        let folder = self.folder(above)?;
        let name = OsStr::from_bytes(last);
        match entry.kind {
            FILE => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                // Writable as long as it is written.
                let file = openat(&folder, name, flags, Mode::from_raw_mode(entry.mode | 0o200))?;
                self.file = Some((path.to_owned(), file.into()));
            }
            FOLDER => {
                mkdirat(&folder, name, Mode::from_raw_mode(0o700))?;
                self.modes.push((entry.names.iter().map(|name| name.to_vec()).collect(), entry.mode));
            }
            LINK => symlinkat(OsStr::from_bytes(entry.target), &folder, name)?,
            _ => {}
        }
        Ok(())
    }

    /// The path of the top is the host's own.
    fn make_top(&mut self, entry: &Entry<'_>) -> Result<(), Errno> {
        if self.top.is_some() || !self.modes.is_empty() {
            return Err(Errno::EXIST);
        }
        match entry.kind {
            FILE => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = open(&self.to, flags, Mode::from_raw_mode(entry.mode | 0o200))?;
                self.file = Some((self.to.clone(), file.into()));
            }
            FOLDER => {
                match mkdirat(CWD, &self.to, Mode::from_raw_mode(0o777)) {
                    Err(Errno::EXIST) if self.is_empty() => {}
                    other => other?,
                }
                let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
                self.top = Some(open(&self.to, flags, Mode::empty())?);
            }
            LINK => symlinkat(OsStr::from_bytes(entry.target), CWD, &self.to)?,
            _ => {}
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.to).is_ok_and(|mut entries| entries.next().is_none())
    }

    /// A folder below the top, by real folders only.
    fn folder(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let top = self.top.as_ref().ok_or(Errno::NOTDIR)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut folder = openat(top, ".", flags, Mode::empty())?;
        for name in names {
            folder = openat(&folder, OsStr::from_bytes(name), flags, Mode::empty())?;
        }
        Ok(folder)
    }

    /// Bytes of the file entered last.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let Some((path, file)) = &mut self.file else {
            return Err(AgentError::Protocol("bytes without a file"));
        };
        self.copied.bytes += bytes.len() as u64;
        file.write_all(bytes).map_err(|error| AgentError::Host { path: path.clone(), error })
    }

    /// Gives the folders their modes, the innermost first.
    pub(super) fn finish(mut self) -> Result<Copied, AgentError> {
        for (names, mode) in std::mem::take(&mut self.modes).iter().rev() {
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let Some((last, above)) = names.split_last() else { continue };
            let changed = self.folder(above).and_then(|folder| {
                // The user can always look into and remove what was copied.
                let mode = Mode::from_raw_mode(mode | 0o700);
                chmodat(&folder, OsStr::from_bytes(last), mode, AtFlags::empty())
            });
            changed.map_err(|error| AgentError::Host { path: self.to.clone(), error: error.into() })?;
        }
        Ok(self.copied)
    }
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

    #[test]
    fn a_folder_arrives_with_files_links_and_modes() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("copy");
        let mut extraction = Extraction::new(&to);
        enter(&mut extraction, FOLDER, "", "").unwrap();
        extraction.enter(&Entry::parse(&entry(FOLDER, 0o555, "a", "")).unwrap()).unwrap();
        extraction.enter(&Entry::parse(&entry(FILE, 0o4444, "a/b", "")).unwrap()).unwrap();
        extraction.data(b"one").unwrap();
        extraction.data(b"two").unwrap();
        enter(&mut extraction, LINK, "c", "../../etc").unwrap();
        enter(&mut extraction, OTHER, "d", "").unwrap();
        let copied = extraction.finish().unwrap();
        assert_eq!(copied, Copied { files: 1, folders: 2, links: 1, left_out: 1, bytes: 6 });
        assert_eq!(std::fs::read(to.join("a/b")).unwrap(), b"onetwo");
        let mode = |path: &str| std::fs::metadata(to.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a"), mode("a/b")), (0o755, 0o644), "no set-user-ID; the owner may write");
        assert_eq!(std::fs::read_link(to.join("c")).unwrap(), Path::new("../../etc"));
    }

    #[test]
    fn no_name_leads_out_of_the_target() {
        for path in ["..", "a/../..", "/etc/passwd", "a//b", ".", "a/", &"x".repeat(256), &"a/".repeat(65)] {
            let payload = entry(FILE, 0o644, path, "");
            assert!(matches!(Entry::parse(&payload), Err(AgentError::Path(_))), "{path}");
        }
    }

    #[test]
    fn a_link_of_the_guest_is_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (to, outside) = (folder.path().join("copy"), folder.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        let mut extraction = Extraction::new(&to);
        enter(&mut extraction, FOLDER, "", "").unwrap();
        enter(&mut extraction, LINK, "l", "../outside").unwrap();
        enter(&mut extraction, LINK, "f", "../outside/file").unwrap();
        for (kind, path) in [(FILE, "l/x"), (FOLDER, "l/x"), (LINK, "l/x"), (FILE, "l"), (FOLDER, "l"), (FILE, "f")] {
            assert!(matches!(enter(&mut extraction, kind, path, "t"), Err(AgentError::Host { .. })), "{path}");
        }
        assert!(matches!(extraction.data(b"x"), Err(AgentError::Protocol(_))));
        // A folder of the guest that becomes a link before it gets its mode.
        enter(&mut extraction, FOLDER, "d", "").unwrap();
        std::fs::remove_dir(to.join("d")).unwrap();
        enter(&mut extraction, FILE, "d", "").unwrap();
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn the_target_is_new_or_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        enter(&mut Extraction::new(folder.path()), FOLDER, "", "").unwrap();
        std::fs::write(folder.path().join("mine"), "").unwrap();
        assert!(enter(&mut Extraction::new(folder.path()), FOLDER, "", "").is_err());
        assert!(enter(&mut Extraction::new(&folder.path().join("mine")), FILE, "", "").is_err());
        // Nothing below a top that is no folder.
        let mut extraction = Extraction::new(&folder.path().join("new"));
        enter(&mut extraction, FILE, "", "").unwrap();
        assert!(enter(&mut extraction, FILE, "x", "").is_err());
    }
}
