//! Files that a recording, or a process, names. A stranger may have chosen the name: what is opened is a regular file
//! of a bounded size, nothing is waited for, and neither a device nor a file of the kernel's own is read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Largest file of code whose symbols are read.
const LARGEST: u64 = 512 << 20;
/// Folders of the kernel's, whose files a mapping never is of.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// First bytes of an ELF file.
const ELF: &[u8; 4] = b"\x7fELF";

/// Opens a regular file of at most `largest` bytes; gives its size, and the device and inode that it is.
fn open(path: &Path, largest: u64, own: impl Fn(&Path) -> bool) -> io::Result<(File, u64, (u64, u64))> {
    let invalid = |why: &str| io::Error::new(ErrorKind::InvalidInput, why);
    // A descriptor that only names the file: no driver is asked, and nothing waits for a writer. What it names does not
    // change any more.
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
    let found = place.metadata()?;
    if !found.is_file() {
        return Err(invalid("it is no regular file"));
    }
    if found.len() > largest {
        return Err(invalid("it is too large"));
    }
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    if !own(&fs::read_link(&link)?) {
        return Err(invalid("it is a file of the kernel's"));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(link)?;
    Ok((file, found.len(), (found.dev(), found.ino())))
}

/// Reads a regular file, up to the size that it states: that of the kernel's own files is 0.
///
/// # Errors
/// It is no regular file, larger, or cannot be read.
pub fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let (file, size, _) = open(path, largest, |_| true)?;
    rest(Vec::new(), file, size)
}

fn rest(mut bytes: Vec<u8>, file: File, size: u64) -> io::Result<Vec<u8>> {
    file.take(size.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file of code that is mapped somewhere.
#[derive(Debug)]
pub struct Code {
    file: File,
    size: u64,
    /// Its device and inode.
    pub identity: (u64, u64),
}

impl Code {
    /// Opens it; `None` if it is no file of code.
    pub fn open(path: &Path) -> Option<Self> {
        let own = |path: &Path| !KERNELS.iter().any(|folder| path.starts_with(folder));
        // A name in brackets is no file, and the kernel writes the others from the root on.
        if !path.is_absolute() || !own(path) {
            return None;
        }
        let (file, size, identity) = open(path, LARGEST, own).ok()?;
        Some(Self { file, size, identity })
    }

    /// Its bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Reads it; `None` if it does not begin as ELF.
    pub fn read(mut self) -> Option<Vec<u8>> {
        let mut begin = [0; 4];
        self.file.read_exact(&mut begin).ok().filter(|()| begin == *ELF)?;
        rest(begin.to_vec(), self.file, self.size).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_of_a_size_are_read_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("elf"), b"\x7fELF and more").unwrap();
        fs::write(at("text"), "text").unwrap();
        symlink("elf", at("link")).unwrap();
        // Its reader would wait for ever: no message is left behind the last one.
        symlink("/proc/kmsg", at("kmsg")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let code = |path: &Path| Code::open(path).and_then(Code::read);
        for name in ["elf", "link"] {
            assert_eq!(code(&at(name)).as_deref(), Some(&b"\x7fELF and more"[..]), "{name}");
        }
        for name in ["text", "kmsg", "zero", "fifo", "", "none"] {
            assert_eq!(code(&at(name)), None, "{name}");
        }
        for name in ["/proc/kmsg", "/proc/self/exe", "/sys/kernel/tracing/trace_pipe", "/dev/zero", "elf", "[vdso]"] {
            assert!(Code::open(Path::new(name)).is_none(), "{name}");
        }
        assert_eq!(read(&at("text"), 4).unwrap(), b"text");
        assert_eq!(read(&at("kmsg"), 4).unwrap(), b"", "its size is 0");
        for name in ["elf", "fifo", "zero", "none", ""] {
            assert!(read(&at(name), 4).is_err(), "{name}");
        }
    }
}
