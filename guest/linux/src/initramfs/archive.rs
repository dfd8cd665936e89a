//! cpio in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeMap;

use super::error::InitramfsError;

const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFCHR: u32 = 0o020_000;

/// Bytes of an entry's header: the magic number and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 6 + 13 * 8;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    contents: Vec<u8>,
    device: (u32, u32),
}

impl Entry {
    /// Returns whether both are equal but for their permissions.
    fn is_like(&self, other: &Self) -> bool {
        self.mode & !0o7777 == other.mode & !0o7777 && self.contents == other.contents && self.device == other.device
    }
}

/// An archive under construction. Folders above an entry are made with it.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Starts an archive with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular file at an absolute path. The same file may be added twice.
    pub fn file(&mut self, path: &str, permissions: u32, contents: &[u8]) -> Result<(), InitramfsError> {
        self.add(path, S_IFREG | permissions & 0o7777, contents.to_vec(), (0, 0))
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), InitramfsError> {
        self.add(path, S_IFLNK | 0o777, target.as_bytes().to_vec(), (0, 0))
    }

    /// Adds a character device.
    pub fn character_device(
        &mut self,
        path: &str,
        permissions: u32,
        major: u32,
        minor: u32,
    ) -> Result<(), InitramfsError> {
        self.add(path, S_IFCHR | permissions & 0o7777, Vec::new(), (major, minor))
    }

    /// Adds a folder, unless it is there.
    pub fn folder(&mut self, path: &str, permissions: u32) -> Result<(), InitramfsError> {
        let name = relative(path)?;
        if self.entries.get(name).is_some_and(|entry| entry.mode & S_IFDIR == S_IFDIR) {
            return Ok(());
        }
        self.add(path, S_IFDIR | permissions & 0o7777, Vec::new(), (0, 0))
    }

    /// Returns whether there is an entry at a path.
    pub fn has(&self, path: &str) -> bool {
        relative(path).is_ok_and(|name| self.entries.contains_key(name))
    }

    fn add(&mut self, path: &str, mode: u32, contents: Vec<u8>, device: (u32, u32)) -> Result<(), InitramfsError> {
        let name = relative(path)?;
        if u32::try_from(contents.len()).is_err() {
            let why = format!("{path} has {} bytes; a file of an initramfs has at most {}", contents.len(), u32::MAX);
            return Err(InitramfsError::File(why));
        }
        for (at, _) in name.match_indices('/') {
            let above = &name[..at];
            match self.entries.get(above) {
                None => {
                    let entry = Entry { mode: S_IFDIR | 0o755, contents: Vec::new(), device: (0, 0) };
                    self.entries.insert(above.to_owned(), entry);
                }
                // The kernel would follow a link here; whoever adds the entry knows of no link.
                Some(entry) if entry.mode & S_IFDIR == 0 => return Err(InitramfsError::Twice(format!("/{above}"))),
                Some(_) => {}
            }
        }
        let entry = Entry { mode, contents, device };
        match self.entries.get(name) {
            // A library that two programs need may have two permissions on the way here: the first are kept.
            Some(there) if there.is_like(&entry) => Ok(()),
            Some(_) => Err(InitramfsError::Twice(path.to_owned())),
            None => {
                self.entries.insert(name.to_owned(), entry);
                Ok(())
            }
        }
    }

    /// Returns the whole archive.
    pub fn finish(self) -> Vec<u8> {
        let size = |name: &str, entry: &Entry| HEADER + name.len() + entry.contents.len() + 8;
        let mut bytes = Vec::with_capacity(self.entries.iter().map(|(name, entry)| size(name, entry)).sum());
        // Sorted by name, so a folder comes before what is in it.
        for (number, (name, entry)) in (1..).zip(&self.entries) {
            put(&mut bytes, number, name, entry);
        }
        put(&mut bytes, 0, "TRAILER!!!", &Entry { mode: 0, contents: Vec::new(), device: (0, 0) });
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, number: u32, name: &str, entry: &Entry) {
    let (major, minor) = entry.device;
    let size = entry.contents.len() as u32;
    bytes.extend_from_slice(b"070701");
    // inode, mode, uid, gid, links, mtime, size, device and rdevice (major, minor), name size, checksum.
    for field in [number, entry.mode, 0, 0, 1, 0, size, 0, 0, major, minor, name.len() as u32 + 1, 0] {
        bytes.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend_from_slice(&entry.contents);
    pad(bytes);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn relative(path: &str) -> Result<&str, InitramfsError> {
    match path.strip_prefix('/') {
        Some(name) if !name.split('/').any(|part| matches!(part, "" | "." | "..")) && !name.contains('\0') => Ok(name),
        _ => Err(InitramfsError::Path(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_plain_and_has_one_thing() {
        let mut archive = Archive::new();
        archive.file("/a/d", 0o644, b"").unwrap();
        archive.file("/a/d", 0o755, b"").unwrap();
        archive.folder("/a", 0o700).unwrap();
        assert!(matches!(archive.file("/a/d", 0o644, b"x"), Err(InitramfsError::Twice(_))));
        assert!(matches!(archive.link("/a/d", "x"), Err(InitramfsError::Twice(_))));
        assert!(matches!(archive.file("/a/d/e", 0o644, b""), Err(InitramfsError::Twice(_))), "below a file");
        for path in ["a/d", "/a/../d", "/", "/a/", "//a", "/a/./b", ""] {
            assert!(matches!(archive.file(path, 0o644, b""), Err(InitramfsError::Path(_))), "{path}");
        }
    }
}
