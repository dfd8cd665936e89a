//! A Linux kernel, unpacked.

use super::error::KernelError;
use super::header::{self, Setup};
use super::{payload, rdpmc};
use crate::boot::elf::Elf;
use crate::boot::rdpmc::Site;

/// The boot header of a kernel that came as a vmlinux: version 2.15, loaded high, alignment 16 MiB.
const PLAIN_HEADER: [u8; 0x49] = plain_header();
/// Longest command line and highest byte of an initrd of such a kernel (arch/x86/boot/header.S).
const PLAIN_COMMAND_LINE: u32 = 2047;
const PLAIN_INITRD_MAX: u32 = 0x7fff_ffff;

const fn plain_header() -> [u8; 0x49] {
    let mut bytes = [0; 0x49];
    let fields: [(usize, &[u8]); 5] =
        [(0x1fe, &[0x55, 0xaa]), (0x202, b"HdrS"), (0x206, &[0x0f, 0x02]), (0x211, &[1]), (0x230, &[0, 0, 0, 1])];
    let mut i = 0;
    while i < fields.len() {
        let mut at = 0;
        while at < fields[i].1.len() {
            bytes[fields[i].0 - header::START + at] = fields[i].1[at];
            at += 1;
        }
        i += 1;
    }
    bytes
}

/// A Linux kernel, unpacked, and what its header says.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: Vec<u8>,
    release: Option<String>,
    header: Vec<u8>,
    command_line: u32,
    initrd_max: u32,
    end: u64,
}

impl Kernel {
    /// Takes a bzImage or a vmlinux apart.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn parse(file: &[u8]) -> Result<Self, KernelError> {
        let kernel = if Elf::is_elf(file) {
            Self {
                image: file.to_vec(),
                release: None,
                header: PLAIN_HEADER.to_vec(),
                command_line: PLAIN_COMMAND_LINE,
                initrd_max: PLAIN_INITRD_MAX,
                end: 0,
            }
        } else if Setup::is_present(file) {
            let setup = Setup::of(file)?;
            Self {
                image: payload::unpack(setup.payload)?,
                release: setup.release,
                header: setup.bytes.to_vec(),
                command_line: setup.command_line,
                initrd_max: setup.initrd_max,
                end: setup.end,
            }
        } else {
            return Err(KernelError::NotAKernel);
        };
        kernel.checked()
    }

    fn checked(mut self) -> Result<Self, KernelError> {
        let elf = Elf::parse(&self.image)?;
        if !elf.is_64 {
            return Err(KernelError::Not64Bit);
        }
        if self.release.is_none() {
            self.release = Some(banner(&self.image).ok_or(KernelError::NotLinux)?);
        }
        // The header of a vmlinux does not say it, and that of a bzImage may lie.
        let ends = elf.loads.iter().map(|load| load.physical_address.saturating_add(load.memory_size));
        self.end = ends.fold(self.end, u64::max);
        Ok(self)
    }

    /// Its release, such as `6.1.0-50-amd64`.
    #[must_use]
    pub fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    /// Its ELF image.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Its setup header, which lies at 0x1f1 of the zero page.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Longest command line, without its terminating zero.
    #[must_use]
    pub const fn command_line_max(&self) -> usize {
        self.command_line as usize
    }

    /// Highest address that the initrd's last byte may have.
    #[must_use]
    pub const fn initrd_max(&self) -> u32 {
        self.initrd_max
    }

    /// First address that the kernel does not use before it manages memory.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Rewrites its RDPMCs and returns their sites in ascending order of address.
    ///
    /// # Errors
    /// [`KernelError::Load`] if its sections make no sense.
    pub fn rewrite_rdpmcs(&mut self) -> Result<Vec<Site>, KernelError> {
        Ok(rdpmc::rewrite(&mut self.image)?)
    }
}

/// The release in Linux's own version string: `Linux version RELEASE (`.
fn banner(image: &[u8]) -> Option<String> {
    const START: &[u8] = b"Linux version ";
    let mut from = 0;
    loop {
        let at = from + image.get(from..)?.iter().position(|&byte| byte == START[0])?;
        let Some(rest) = image.get(at..)?.strip_prefix(START) else {
            from = at + 1;
            continue;
        };
        from = at + 1;
        let word = rest.split(|byte| !byte.is_ascii_graphic()).next()?;
        // The format string of the same text has no digit there.
        if word.first().is_some_and(u8::is_ascii_digit) && word.len() <= 128 {
            return Some(String::from_utf8_lossy(word).into_owned());
        }
    }
}
