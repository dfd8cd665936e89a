//! A Linux kernel, unpacked.

use super::payload;
use super::zero_page::{NOT_64_BIT, Setup};
use crate::boot::elf::Elf;
use crate::boot::error::{BootError, refused};
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
    /// [`BootError`].
    pub fn parse(file: &[u8]) -> Result<Self, BootError> {
        let (mut setup, release, image) = if Elf::is_elf(file) {
            (Setup::of_vmlinux(), None, file.to_vec())
        } else if Setup::is_present(file) {
            let (setup, release, packed) = Setup::of(file)?;
            (setup, release, payload::unpack(packed)?)
        } else {
            return refused("it is not a Linux kernel: neither a bzImage (boot/vmlinuz-*) nor a vmlinux");
        };
        let elf = Elf::parse(&image)?;
        if !elf.is_64 {
            return refused(NOT_64_BIT);
        }
        let Some(release) = release.or_else(|| banner(&image)) else {
            return refused("it is an ELF file, but not a Linux kernel: it has no \"Linux version\"");
        };
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
    /// [`BootError`] if its sections make no sense.
    pub fn rewrite_rdpmcs(&mut self) -> Result<Vec<Site>, BootError> {
        rdpmc::rewrite(&mut self.image)
    }
}

/// Finds the release in Linux's own version string: `Linux version RELEASE (`.
fn banner(image: &[u8]) -> Option<String> {
    let texts = image.split(|&byte| byte == b'L').filter_map(|rest| rest.strip_prefix(b"inux version "));
    let words = texts.filter_map(|text| text.split(|byte| !byte.is_ascii_graphic()).next());
    // The format string of the same text has no digit there.
    let mut releases = words.filter(|word| word.first().is_some_and(u8::is_ascii_digit) && word.len() <= 128);
    releases.next().map(|word| String::from_utf8_lossy(word).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::gzip;
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
        image(&gzip(&vmlinux()))
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

    #[test]
    fn other_files_are_refused_by_what_they_are() {
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = packed();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            file
        };
        for (words, file) in [
            ("not a Linux kernel", Vec::new()),
            ("not a Linux kernel", vec![0x7f; 4096]),
            ("32-bit", changed(0x236, &[0])),
            ("boot protocol 2.07", changed(0x206, &[7, 2])),
            ("compression is not known", changed(0x400, b"BZh9")),
            ("gzip payload", changed(0x480, &[0x55; 16])),
            ("it has 1100 bytes", packed()[..1100].to_vec()),
            ("no \"Linux version\"", TestElf::new(true, BASE).code(BASE, &[0xc3]).bytes()),
            ("32-bit", TestElf::new(false, BASE).code(BASE, b"Linux version 6.1 ").bytes()),
            ("ELF image cannot be loaded", image(b"\x7fELF....")),
        ] {
            let error = Kernel::parse(&file).unwrap_err();
            assert!(error.0.contains(words), "{words}: {error}");
        }
    }
}
