//! A Linux kernel, unpacked.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction};

use super::error::KernelError;
use super::zero_page::Setup;
use super::{payload, zero_page};
use crate::boot::elf::{Code, Elf};
use crate::boot::rdpmc::{self, PAIR, Site};
use crate::boot::segment::LoadError;

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
            bytes[fields[i].0 - zero_page::START + at] = fields[i].1[at];
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
    release: String,
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
        let (kernel, release) = if Elf::is_elf(file) {
            let kernel = Self {
                image: file.to_vec(),
                release: String::new(),
                header: PLAIN_HEADER.to_vec(),
                command_line: PLAIN_COMMAND_LINE,
                initrd_max: PLAIN_INITRD_MAX,
                end: 0,
            };
            (kernel, None)
        } else if Setup::is_present(file) {
            let setup = Setup::of(file)?;
            let kernel = Self {
                image: payload::unpack(setup.payload)?,
                release: String::new(),
                header: setup.bytes.to_vec(),
                command_line: setup.command_line,
                initrd_max: setup.initrd_max,
                end: setup.end,
            };
            (kernel, setup.release)
        } else {
            return Err(KernelError::NotAKernel);
        };
        kernel.checked(release)
    }

    /// Checks the image; `release` is the one of the header.
    fn checked(mut self, release: Option<String>) -> Result<Self, KernelError> {
        let elf = Elf::parse(&self.image)?;
        if !elf.is_64 {
            return Err(KernelError::Not64Bit);
        }
        self.release = release.or_else(|| banner(&self.image)).ok_or(KernelError::NotLinux)?;
        // The header of a vmlinux does not say it, and that of a bzImage may lie.
        let ends = elf.loads.iter().map(|load| load.physical_address.saturating_add(load.memory_size));
        self.end = ends.fold(self.end, u64::max);
        Ok(self)
    }

    /// Returns its release, such as `6.1.0-50-amd64`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns its ELF image.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns its setup header, which lies at 0x1f1 of the zero page.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the longest command line, without its terminating zero.
    pub const fn command_line_max(&self) -> usize {
        self.command_line as usize
    }

    /// Returns the highest address that the initrd's last byte may have.
    pub const fn initrd_max(&self) -> u32 {
        self.initrd_max
    }

    /// Returns the first address that the kernel does not use before it manages memory.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Rewrites its RDPMCs and returns their sites in ascending order of address.
    ///
    /// # Errors
    /// [`KernelError::Load`] if its sections make no sense.
    pub fn rewrite_rdpmcs(&mut self) -> Result<Vec<Site>, KernelError> {
        Ok(rewrite(&mut self.image)?)
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

// The RDPMCs of a kernel, found by decoding around each byte pair: decoding tens of megabytes takes seconds on an emulated host.
//
// Decoding x86 code from the middle of an instruction falls into step with the true instructions after a few of them.
// Code before a pair is therefore decoded from several neighbouring starts; if all agree on the pair, that is the
// answer, else the section is decoded as a whole.

/// Distance before a pair at which decoding begins.
const BEFORE: usize = 512;
/// Neighbouring starts: more than the longest instruction has bytes.
const STARTS: usize = 16;

/// Rewrites the RDPMCs of an ELF image in place and returns their sites in ascending order of address.
pub(super) fn rewrite(image: &mut [u8]) -> Result<Vec<Site>, LoadError> {
    rdpmc::rewrite_by(image, in_section)
}

fn in_section(code: &Code, bytes: &[u8], bits: u32, symbols: &[u64], sites: &mut Vec<Site>) {
    let first = sites.len();
    for pair in pairs(bytes) {
        match at(code, bytes, bits, pair) {
            Answer::Rdpmc(site) => sites.push(site),
            Answer::Other => {}
            Answer::Unclear => {
                sites.truncate(first);
                rdpmc::in_section(code, bytes, bits, symbols, sites);
                return;
            }
        }
    }
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(2).enumerate().filter(|(_, pair)| *pair == PAIR).map(|(at, _)| at)
}

/// Meaning of a byte pair.
enum Answer {
    Rdpmc(Site),
    /// Part of something else.
    Other,
    Unclear,
}

/// Classifies the byte pair at `pair`.
fn at(code: &Code, bytes: &[u8], bits: u32, pair: usize) -> Answer {
    // At the start of a section only its first byte is sure to begin an instruction.
    let starts = if pair < BEFORE { 0..1 } else { pair - BEFORE..pair - BEFORE + STARTS };
    let mut found = starts.map(|start| from(code, bytes, bits, start, pair));
    match found.next() {
        Some(first) if found.all(|site| site == first) => first.map_or(Answer::Other, Answer::Rdpmc),
        _ => Answer::Unclear,
    }
}

fn from(code: &Code, bytes: &[u8], bits: u32, start: usize, pair: usize) -> Option<Site> {
    let end = bytes.len().min(pair + 16);
    let address = code.address.wrapping_add(start as u64);
    let mut decoder = Decoder::with_ip(bits, &bytes[start..end], address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() && decoder.position() <= pair - start {
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            decoder.set_position(at + 1).ok()?;
            decoder.set_ip(address.wrapping_add(at as u64 + 1));
        } else if instruction.code() == Opcode::Rdpmc && start + decoder.position() == pair + 2 {
            let length = u8::try_from(instruction.len()).unwrap_or(u8::MAX);
            return Some(Site { address: instruction.ip(), length, offset: code.file.start + pair + 1 });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

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
        assert_eq!((packed.command_line_max(), packed.initrd_max()), (2047, 0x7fff_ffff));
        assert_eq!((packed.end(), packed.header().len()), (BASE + 0x30_0000, 0x26c - 0x1f1));
        assert!(plain.end() > BASE && plain.end() < BASE + 0x1000);
        for header in [packed.header(), plain.header()] {
            assert_eq!(&header[0x202 - zero_page::START..0x206 - zero_page::START], b"HdrS");
        }
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
        assert_eq!(changed(0x400, b"BZh9"), KernelError::Compression("bzip2"));
        assert!(matches!(changed(0x480, &[0x55; 16]), KernelError::Unpack { format: "gzip", .. }));
        let file = packed();
        let cut = KernelError::CutShort { wanted: file.len(), length: 1100 };
        assert_eq!(error(&file[..1100]), cut);
        let elf = TestElf::new(true, BASE).code(BASE, &[0xc3]).bytes();
        assert_eq!(error(&elf), KernelError::NotLinux);
        let elf = TestElf::new(false, BASE).code(BASE, b"Linux version 6.1 ").bytes();
        assert_eq!(error(&elf), KernelError::Not64Bit);
        assert_eq!(
            error(&image(b"\x7fELF....")),
            KernelError::Load(crate::boot::segment::LoadError::Elf("its class is neither ELF32 nor ELF64"))
        );
    }

    /// Instructions as a compiler makes them; the last four hold the byte pair, and the last two are RDPMC.
    const PIECES: [&[u8]; 12] = [
        &[0x48, 0x89, 0xd8],
        &[0x55],
        &[0x0f, 0xb7, 0x0c, 0x02],
        &[0xe8, 0x10, 0x20, 0x00, 0x00],
        &[0x48, 0x8d, 0x05, 0x10, 0x00, 0x33, 0x00],
        &[0x74, 0x0f],
        &[0x90],
        &[0xc3],
        &[0xb8, 0x0f, 0x33, 0x00, 0x00],
        &[0x48, 0x8b, 0x80, 0x0f, 0x33, 0x00, 0x00],
        &[0x0f, 0x33],
        &[0x48, 0x0f, 0x33],
    ];

    fn both(code: &[u8]) -> (Vec<Site>, Vec<Site>) {
        let file = TestElf::new(true, BASE).code(BASE, code).bytes();
        let (mut quick, mut exact) = (file.clone(), file);
        let sites = (rewrite(&mut quick).unwrap(), rdpmc::rewrite(&mut exact).unwrap());
        assert!(quick == exact);
        sites
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_decoding_all(pieces in prop::collection::vec(0_usize..12, 1..2000)) {
            let code: Vec<u8> = pieces.into_iter().flat_map(|piece| PIECES[piece]).copied().collect();
            let (quick, exact) = both(&code);
            prop_assert_eq!(quick, exact);
        }
    }
}
