//! Files for a guest, from folders that may be a stranger's: a FIFO or a device in one would hold the reader for ever.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Most bytes of a file: those that a RAM disk has.
const MOST_BYTES: u64 = 1 << 30;

/// Opens a regular file without waiting; links are followed.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    // Opening a device may already do something, so its kind is looked at before, and again behind the descriptor.
    regular(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "folder",
        kind if FileType::is_fifo(&kind) => "FIFO",
        kind if kind.is_socket() => "socket",
        _ => "device",
    };
    Err(io::Error::other(format!("it is a {kind}, not a regular file")))
}
