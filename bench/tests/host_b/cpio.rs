//! The archive Linux unpacks as its first file system: cpio in the "newc" format
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;

const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;

/// An archive under construction. Times, owners and inode numbers are fixed, so equal contents give equal bytes.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    seen: BTreeSet<String>,
}

impl Archive {
    /// Adds a regular file, and the folders above it, at an absolute path. A path can be added once.
    pub(crate) fn file(&mut self, path: &str, permissions: u32, contents: &[u8]) -> Result<()> {
        let name = relative(path)?;
        for (at, _) in name.match_indices('/') {
            self.folder(&name[..at])?;
        }
        ensure!(self.seen.insert(name.to_owned()), "{path} is in the archive twice");
        self.entry(name, S_IFREG | (permissions & 0o7777), contents)
    }

    /// Adds an empty folder (and those above it) at an absolute path, unless it is there.
    pub(crate) fn empty_folder(&mut self, path: &str) -> Result<()> {
        let name = relative(path)?;
        for (at, _) in name.match_indices('/') {
            self.folder(&name[..at])?;
        }
        self.folder(name)
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.bytes)
    }

    fn folder(&mut self, name: &str) -> Result<()> {
        if self.seen.insert(name.to_owned()) {
            self.entry(name, S_IFDIR | 0o755, &[])?;
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
        let size = u32::try_from(contents.len())?;
        let inode = u32::try_from(self.seen.len())?;
        self.bytes.extend_from_slice(b"070701");
        // inode, mode, uid, gid, links, mtime, size, device and rdevice (major, minor), name size, checksum.
        let name_size = u32::try_from(name.len() + 1)?;
        for field in [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn relative(path: &str) -> Result<&str> {
    match path.strip_prefix('/') {
        Some(name) if !name.is_empty() && !name.split('/').any(|part| matches!(part, "" | "." | "..")) => Ok(name),
        _ => bail!("{path:?} is not a plain absolute path"),
    }
}

/// Checked against the format's description by hand: field widths, padding, one entry per folder.
pub(crate) fn check() -> Result<()> {
    let mut archive = Archive::default();
    archive.file("/a/b/c", 0o755, b"12345")?;
    archive.file("/a/d", 0o644, b"")?;
    ensure!(archive.file("/a/d", 0o644, b"").is_err(), "a path was taken twice");
    ensure!(archive.file("a/d", 0o644, b"").is_err(), "a relative path was taken");
    ensure!(archive.file("/a/../d", 0o644, b"").is_err(), "a path with .. was taken");
    let bytes = archive.finish()?;
    ensure!(bytes.len() % 4 == 0);
    ensure!(bytes.windows(6).filter(|w| w == b"070701").count() == 5, "a, a/b, a/b/c, a/d, trailer");
    // The first entry: folder "a". 110 bytes of header, "a\0", no data.
    ensure!(&bytes[6..14] == b"00000001" && &bytes[14..22] == b"000041ed");
    ensure!(&bytes[110..112] == b"a\0" && &bytes[112..118] == b"070701");
    let at = bytes.windows(6).position(|w| w == b"a/b/c\0").map_or(0, |at| at + 6);
    ensure!(&bytes[at.next_multiple_of(4)..][..8] == b"12345\0\0\0");
    Ok(())
}
