//! cpio in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeMap;

use super::error::InitramfsError;

pub(super) const S_IFREG: u32 = 0o100_000;
pub(super) const S_IFDIR: u32 = 0o040_000;
pub(super) const S_IFLNK: u32 = 0o120_000;
pub(super) const S_IFCHR: u32 = 0o020_000;
/// Bits of a mode that say what it is.
const S_IFMT: u32 = 0o170_000;

/// Bytes of an entry's header: the magic number and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 6 + 13 * 8;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) contents: Vec<u8>,
    pub(super) device: (u32, u32),
}

/// Entries by their paths without the first slash. Folders above an entry are made with it.
#[derive(Debug, Default)]
pub(super) struct Archive(BTreeMap<String, Entry>);

impl Archive {
    /// Returns whether there is an entry at a path.
    pub(super) fn has(&self, path: &str) -> bool {
        relative(path).is_ok_and(|name| self.0.contains_key(name))
    }

    /// Adds an entry at an absolute path. The same one may be added twice, and a folder with other permissions.
    pub(super) fn add(&mut self, path: &str, entry: Entry) -> Result<(), InitramfsError> {
        let name = relative(path)?;
        let Entry { mode, contents, device } = &entry;
        if u32::try_from(contents.len()).is_err() {
            let why = format!("{path} has {} bytes; a file of an initramfs has at most {}", contents.len(), u32::MAX);
            return Err(InitramfsError(why));
        }
        for (at, _) in name.match_indices('/') {
            let above = name[..at].to_owned();
            let folder = || Entry { mode: S_IFDIR | 0o755, contents: Vec::new(), device: (0, 0) };
            // The kernel would follow a link here; whoever adds the entry knows of no link.
            if self.0.entry(above).or_insert_with(folder).mode & S_IFDIR == 0 {
                return Err(twice(&format!("/{}", &name[..at])));
            }
        }
        match self.0.get(name) {
            // A library that two programs need may have two permissions on the way here: the first are kept.
            Some(known)
                if (known.mode & S_IFMT, &known.contents, &known.device) == (mode & S_IFMT, contents, device) => {}
            Some(_) => return Err(twice(path)),
            None => drop(self.0.insert(name.to_owned(), entry)),
        }
        Ok(())
    }

    /// Returns the whole archive.
    pub(super) fn finish(self) -> Vec<u8> {
        let size = |name: &str, entry: &Entry| HEADER + name.len() + entry.contents.len() + 8;
        let mut bytes = Vec::with_capacity(self.0.iter().map(|(name, entry)| size(name, entry)).sum());
        // Sorted by name, so a folder comes before what is in it.
        for (number, (name, entry)) in (1..).zip(&self.0) {
            put(&mut bytes, number, name, entry);
        }
        put(&mut bytes, 0, "TRAILER!!!", &Entry { mode: 0, contents: Vec::new(), device: (0, 0) });
        bytes
    }
}

fn twice(path: &str) -> InitramfsError {
    InitramfsError(format!("two different files are to be at {path} in the guest"))
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
        _ => Err(InitramfsError(format!("{path:?} is not a plain absolute path in the guest"))),
    }
}
