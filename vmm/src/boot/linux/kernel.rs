//! A Linux kernel, unpacked.

use super::error::KernelError;
use super::payload;
use super::zero_page::Setup;
use crate::boot::elf::Elf;
use crate::boot::rdpmc::{self, Site};

/// A Linux kernel, unpacked, and what its header says.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: Vec<u8>,
    release: String,
    pub(crate) setup: Setup,
}

impl Kernel {
    /// Takes a bzImage or a vmlinux apart.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn parse(file: &[u8]) -> Result<Self, KernelError> {
        let (mut setup, release, image) = if Elf::is_elf(file) {
            (Setup::of_vmlinux(), None, file.to_vec())
        } else if Setup::is_present(file) {
            let (setup, release, packed) = Setup::of(file)?;
            (setup, release, payload::unpack(packed)?)
        } else {
            return Err(KernelError::NotAKernel);
        };
        let elf = Elf::parse(&image)?;
        if !elf.is_64 {
            return Err(KernelError::Not64Bit);
        }
        let release = release.or_else(|| banner(&image)).ok_or(KernelError::NotLinux)?;
        // The header of a vmlinux does not say it, and that of a bzImage may lie.
        let ends = elf.segments.iter().map(|segment| segment.address.saturating_add(segment.memory_size));
        setup.end = ends.fold(setup.end, u64::max);
        Ok(Self { image, release, setup })
    }

    /// Returns its release, such as `6.1.0-50-amd64`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns its ELF image.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Rewrites its RDPMCs and returns their sites in ascending order of address.
    ///
    /// # Errors
    /// [`KernelError::Load`] if its sections make no sense.
    pub fn rewrite_rdpmcs(&mut self) -> Result<Vec<Site>, KernelError> {
        Ok(rdpmc::rewrite(&mut self.image)?)
    }
}

/// Finds the release in Linux's own version string: `Linux version RELEASE (`.
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::boot::tests::TestElf;

    const BASE: u64 = 0x100_0000;

    fn vmlinux() -> Vec<u8> {
        let code = [&[0x0f, 0x33, 0xc3][..], b"\0Linux version %s (\0Linux version 6.1.0-test (gcc)\0"].concat();
        TestElf::new(true, BASE).code(BASE, &code).bytes()
    }

    /// Creates a bzImage with one sector of setup code.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 1024];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x1f1, &[1]);
        put(0x200, &[0xeb, 0x6a]);
        put(0x202, b"HdrS");
        put(0x206, &0x20f_u16.to_le_bytes());
        put(0x20e, &0x100_u16.to_le_bytes());
        put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
        put(0x236, &[1]);
        put(0x238, &2047_u32.to_le_bytes());
        put(0x24c, &(payload.len() as u32).to_le_bytes());
        put(0x258, &BASE.to_le_bytes());
        put(0x260, &0x30_0000_u32.to_le_bytes());
        put(0x300, b"6.1.0-packed (someone)\0");
        file.extend(payload);
        file
    }

    fn packed() -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&vmlinux()).unwrap();
        image(&encoder.finish().unwrap())
    }

    #[test]
    fn a_bzimage_and_a_vmlinux_are_the_same_kernel() {
        let mut packed = Kernel::parse(&packed()).unwrap();
        let plain = Kernel::parse(&vmlinux()).unwrap();
        assert_eq!(packed.image(), plain.image());
        assert_eq!((packed.release(), plain.release()), ("6.1.0-packed", "6.1.0-test"));
        for (kernel, end) in [(&packed, BASE + 0x30_0000), (&plain, plain.setup.end)] {
            let Setup { bytes, command_line, initrd_max, .. } = &kernel.setup;
            assert_eq!((*command_line, *initrd_max, kernel.setup.end), (2047, 0x7fff_ffff, end));
            assert_eq!(&bytes[0x202 - 0x1f1..0x206 - 0x1f1], b"HdrS");
        }
        assert_eq!(packed.setup.bytes.len(), 0x26c - 0x1f1);
        assert!(plain.setup.end > BASE && plain.setup.end < BASE + 0x1000);
        let sites = packed.rewrite_rdpmcs().unwrap();
        assert_eq!(sites.iter().map(|site| site.address).collect::<Vec<_>>(), [BASE]);
        assert_ne!(packed.image(), plain.image());
    }

    fn error(file: &[u8]) -> KernelError {
        Kernel::parse(file).unwrap_err()
    }

    #[test]
    fn other_files_are_refused_by_what_they_are() {
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = packed();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            error(&file)
        };
        assert_eq!(error(b""), KernelError::NotAKernel);
        assert_eq!(error(&[0x7f; 4096]), KernelError::NotAKernel);
        assert_eq!(changed(0x236, &[0]), KernelError::Not64Bit);
        assert_eq!(changed(0x206, &[7, 2]), KernelError::OldProtocol { version: 0x207 });
        assert!(matches!(changed(0x400, b"BZh9"), KernelError::Compression { .. }));
        assert!(matches!(changed(0x480, &[0x55; 16]), KernelError::Unpack { format: "gzip", .. }));
        let file = packed();
        let cut = KernelError::CutShort { wanted: file.len(), length: 1100 };
        assert_eq!(error(&file[..1100]), cut);
        let elf = TestElf::new(true, BASE).code(BASE, &[0xc3]).bytes();
        assert_eq!(error(&elf), KernelError::NotLinux);
        let elf = TestElf::new(false, BASE).code(BASE, b"Linux version 6.1 ").bytes();
        assert_eq!(error(&elf), KernelError::Not64Bit);
        assert!(matches!(error(&image(b"\x7fELF....")), KernelError::Load(_)));
    }
}
