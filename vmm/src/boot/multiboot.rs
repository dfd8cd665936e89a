//! Multiboot 1: the header in an image, and the information its kernel is given.
//!
//! Source: "The Multiboot Specification version 0.6.96", sections 3.1 to 3.3.

use super::elf::{Elf, elf_segments, physical_entry};
use super::segment::{Entry, LoadError, Segment};

/// EAX at entry.
pub const BOOT_MAGIC: u32 = 0x2BAD_B002;

const HEADER_MAGIC: u32 = 0x1BAD_B002;
/// The header lies wholly within this many bytes, at a multiple of 4.
const SEARCH: usize = 8192;
/// Header flag: the load addresses are in the header, not in an ELF header.
const ADDRESSES: u32 = 1 << 16;
/// Header flags of features an image cannot do without that are given here: aligned modules, memory sizes.
const GIVEN: u32 = 0b11;
/// Header flags of features an image cannot do without: bits 15:0.
const REQUIRED: u32 = 0xffff;

/// A multiboot header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its offset in the file.
    offset: usize,
    addresses: Option<Addresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses {
    header: u32,
    load: u32,
    load_end: u32,
    bss_end: u32,
    entry: u32,
}

impl Header {
    /// Looks for a header with a right checksum.
    ///
    /// # Errors
    /// [`LoadError::Multiboot`] if there is one that cannot be obeyed.
    pub fn find(image: &[u8]) -> Result<Option<Self>, LoadError> {
        let area = &image[..image.len().min(SEARCH)];
        let word = |at: usize| -> Option<u32> {
            let bytes = area.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        for offset in (0..area.len()).step_by(4) {
            let Some([magic, flags, checksum]) = words(&word, offset) else {
                break;
            };
            if magic != HEADER_MAGIC || magic.wrapping_add(flags).wrapping_add(checksum) != 0 {
                continue;
            }
            if flags & REQUIRED & !GIVEN != 0 {
                return Err(LoadError::Multiboot("it asks for a video mode or another feature that is not there"));
            }
            let addresses = if flags & ADDRESSES == 0 {
                None
            } else {
                let fields = words(&word, offset + 12);
                let [header, load, load_end, bss_end, entry] =
                    fields.ok_or(LoadError::Multiboot("its header is cut short"))?;
                Some(Addresses { header, load, load_end, bss_end, entry })
            };
            return Ok(Some(Self { offset, addresses }));
        }
        Ok(None)
    }

    /// Returns the segments to load, and the entry.
    pub(super) fn segments(&self, image: &[u8]) -> Result<(Vec<Segment>, Entry), LoadError> {
        if let Some(addresses) = self.addresses {
            return addresses.segments(self.offset, image.len());
        }
        if !Elf::is_elf(image) {
            return Err(LoadError::Multiboot(
                "its header has no load addresses (flag bit 16), and it is not ELF either",
            ));
        }
        let elf = Elf::parse(image)?;
        let entry = physical_entry(&elf)?;
        let eip = u32::try_from(entry).map_err(|_| LoadError::Entry { entry })?;
        Ok((elf_segments(&elf), Entry::Multiboot { eip }))
    }
}

impl Addresses {
    fn segments(&self, offset: usize, length: usize) -> Result<(Vec<Segment>, Entry), LoadError> {
        let bad = |what| Err(LoadError::Multiboot(what));
        let Some(before) = self.header.checked_sub(self.load) else {
            return bad("its header_addr is below its load_addr");
        };
        let Some(start) = offset.checked_sub(before as usize) else {
            return bad("its load_addr lies before the start of the file");
        };
        let size = match self.load_end {
            // Zero: all of the file.
            0 => length - start,
            end if end < self.load => return bad("its load_end_addr is below its load_addr"),
            end => (end - self.load) as usize,
        };
        if start + size > length {
            return Err(LoadError::CutShort { offset: start as u64, size: size as u64, length });
        }
        let memory_size = match self.bss_end {
            0 => size as u64,
            end if u64::from(end) < u64::from(self.load) + size as u64 => {
                return bad("its bss_end_addr is below the end of what is loaded");
            }
            end => u64::from(end - self.load),
        };
        let segment = Segment {
            address: self.load.into(),
            virtual_address: self.load.into(),
            file: start..start + size,
            memory_size,
        };
        Ok((vec![segment], Entry::Multiboot { eip: self.entry }))
    }
}

fn words<const N: usize>(word: &impl Fn(usize) -> Option<u32>, offset: usize) -> Option<[u32; N]> {
    let mut words = [0; N];
    for (i, slot) in words.iter_mut().enumerate() {
        *slot = word(offset + 4 * i)?;
    }
    Some(words)
}

/// A file given to the kernel beside its image.
#[derive(Clone, Copy, Debug)]
pub struct Module<'a> {
    /// Its bytes, for instance `NR_CPUS=2\n`.
    pub contents: &'a [u8],
    /// Its name or command line.
    pub name: &'a str,
}

/// The boot information of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Information<'a> {
    /// Size of the guest's memory, from address 0.
    pub ram: u64,
    /// The kernel's name, by custom the first word of its command line.
    pub program: &'a str,
    /// The rest of the command line.
    pub arguments: &'a str,
    /// Modules.
    pub modules: &'a [Module<'a>],
}

const PAGE: usize = 0x1000;
/// Size of the fixed part; the fields from offset 88 on (frame buffer) stay zero.
const FIXED: usize = 120;
/// End of low memory: where the EBDA would start.
const LOW_END: u64 = 0x9_fc00;
const MIB: u64 = 1 << 20;

/// `flags`: memory sizes, command line, modules, memory map, boot loader name.
const FLAGS: u32 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;

impl Information<'_> {
    /// Returns the number of bytes that [`Information::build`] makes, wherever they go.
    ///
    /// # Errors
    /// As [`Information::build`].
    pub fn size(&self) -> Result<u64, LoadError> {
        Ok(self.build(0)?.len() as u64)
    }

    /// Builds the information structure and all it points to, in one piece to be placed at the page-aligned address `at`.
    ///
    /// # Errors
    /// [`LoadError::Information`] if a text has a NUL byte, or the piece does not end below 4 GiB.
    pub fn build(&self, at: u32) -> Result<Vec<u8>, LoadError> {
        let mut piece = Piece { at, bytes: vec![0; FIXED] };
        let memory_map = piece.memory_map(self.ram)?;
        let map_end = piece.here()?;
        let command_line = piece.text(&[self.program, " ", self.arguments])?;
        let loader = piece.text(&["vpmu"])?;

        let mut names = Vec::new();
        for module in self.modules {
            names.push(piece.text(&[module.name])?);
        }
        piece.align(16);
        let list = piece.here()?;
        let list_offset = piece.bytes.len();
        let count = u32::try_from(names.len()).map_err(|_| too_large())?;
        piece.bytes.resize(list_offset + 16 * names.len(), 0);
        for (i, (module, name)) in self.modules.iter().zip(names).enumerate() {
            piece.align(PAGE);
            let start = piece.here()?;
            piece.bytes.extend_from_slice(module.contents);
            let end = piece.here()?;
            for (j, value) in [start, end, name, 0].into_iter().enumerate() {
                piece.put(list_offset + 16 * i + 4 * j, value);
            }
        }
        piece.here()?;

        let kib = |bytes: u64| u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        let fields = [
            (0, FLAGS),
            (4, kib(self.ram.min(LOW_END))),
            (8, kib(self.ram.saturating_sub(MIB))),
            (16, command_line),
            (20, count),
            (24, list),
            (44, map_end - memory_map),
            (48, memory_map),
            (64, loader),
        ];
        for (offset, value) in fields {
            piece.put(offset, value);
        }
        Ok(piece.bytes)
    }
}

fn too_large() -> LoadError {
    LoadError::Information("it does not end below 4 GiB; give smaller modules")
}

struct Piece {
    at: u32,
    bytes: Vec<u8>,
}

impl Piece {
    /// Returns the guest-physical address of the next byte.
    fn here(&self) -> Result<u32, LoadError> {
        let length = u32::try_from(self.bytes.len()).map_err(|_| too_large())?;
        self.at.checked_add(length).ok_or_else(too_large)
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn put(&mut self, offset: usize, value: u32) {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Adds a NUL-terminated text and returns its address.
    fn text(&mut self, parts: &[&str]) -> Result<u32, LoadError> {
        let at = self.here()?;
        for part in parts {
            if part.contains('\0') {
                return Err(LoadError::Information("a command line or module name holds a NUL byte"));
            }
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.bytes.push(0);
        Ok(at)
    }

    /// Adds the memory map and returns its address. Entry: size of the rest, base, length, type (1 = memory).
    fn memory_map(&mut self, ram: u64) -> Result<u32, LoadError> {
        let at = self.here()?;
        let areas = [(0, LOW_END.min(ram), 1_u32), (LOW_END, MIB.min(ram), 2), (MIB, ram, 1)];
        for (start, end, kind) in areas {
            if start < end {
                self.bytes.extend_from_slice(&20_u32.to_le_bytes());
                self.bytes.extend_from_slice(&u64::to_le_bytes(start));
                self.bytes.extend_from_slice(&(end - start).to_le_bytes());
                self.bytes.extend_from_slice(&kind.to_le_bytes());
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::LoadPlan;
    use super::super::tests::TestElf;
    use super::*;

    const RAM: u64 = 16 << 20;

    fn header(flags: u32, fields: &[u32]) -> Vec<u8> {
        let checksum = 0_u32.wrapping_sub(HEADER_MAGIC).wrapping_sub(flags);
        let words = [HEADER_MAGIC, flags, checksum];
        words.iter().chain(fields).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Creates a file whose header is 16 bytes into it, which is loaded to 1 MiB whole.
    fn flat(fields: &[u32; 5], length: usize) -> Vec<u8> {
        let mut file = vec![0; 16];
        file.extend(header(ADDRESSES, fields));
        file.resize(length, 0xf4);
        file
    }

    #[test]
    fn an_elf_image_is_entered_as_multiboot() {
        for is_64 in [false, true] {
            let mut code = header(0, &[]);
            code.push(0xf4);
            let file = TestElf::new(is_64, 0x10_000c).code(0x10_0000, &code).bytes();
            // The header follows the ELF headers at a multiple of 4.
            let plan = LoadPlan::of(&file, RAM).unwrap();
            assert_eq!(plan.entry, Entry::Multiboot { eip: 0x10_000c });
            assert_eq!(plan.segments[0].address, 0x10_0000);
        }
    }

    #[test]
    fn addresses_in_the_header_are_obeyed() {
        let plan = |fields: [u32; 5], length| LoadPlan::of(&flat(&fields, length), RAM);
        let whole = plan([0x10_0010, 0x10_0000, 0, 0, 0x10_0030], 100).unwrap();
        assert_eq!(whole.entry, Entry::Multiboot { eip: 0x10_0030 });
        assert_eq!(whole.segments[0].file, 0..100);
        assert_eq!(whole.segments[0].memory_size, 100);
        // Loading starts at the header, ends early, and more memory is cleared.
        let part = plan([0x10_0010, 0x10_0010, 0x10_0040, 0x10_1000, 0x10_0030], 100).unwrap();
        assert_eq!((part.segments[0].address, part.segments[0].file.clone()), (0x10_0010, 16..64));
        assert_eq!(part.segments[0].end(), 0x10_1000);

        let refused = |fields, length| plan(fields, length).unwrap_err().to_string();
        assert!(refused([0x10_0000, 0x10_0010, 0, 0, 0x10_0030], 100).contains("header_addr"));
        assert!(refused([0x10_0020, 0x10_0000, 0, 0, 0x10_0030], 100).contains("before the start"));
        assert!(refused([0x10_0010, 0x10_0000, 0x10_0065, 0, 0x10_0030], 100).contains("cut short"));
        assert!(refused([0x10_0010, 0x10_0000, 1, 0, 0x10_0030], 100).contains("load_end_addr"));
        assert!(refused([0x10_0010, 0x10_0000, 0, 0x10_0063, 0x10_0030], 100).contains("bss_end_addr"));
        assert!(refused([0x10_0010, 0x10_0000, 0, 0, 0x10_0064], 100).contains("entry point"));
        assert!(refused([0x10_0010, 0x10_0000, 0, 0, 0x10_0030], 40).contains("cut short"));
        assert!(refused([u32::MAX, u32::MAX - 16, 0, 0, u32::MAX], 100).contains("does not fit"));
    }

    #[test]
    fn the_header_is_searched_as_specified() {
        let find = |file: &[u8]| Header::find(file);
        let mut file = vec![0; 2 * SEARCH];
        let bytes = header(3, &[]);
        file[SEARCH - 12..SEARCH].copy_from_slice(&bytes);
        assert_eq!(find(&file).unwrap().map(|header| header.offset), Some(SEARCH - 12));
        // Not at a multiple of 4, past the area, with a wrong checksum.
        for (at, change) in [(2, 0), (SEARCH - 8, 0), (64, 1)] {
            let mut file = vec![0; 2 * SEARCH];
            file[at..at + 12].copy_from_slice(&bytes);
            file[at + 8] ^= change;
            assert_eq!(find(&file), Ok(None), "at {at}");
        }
        // A video mode is required; optional features above bit 15 are not.
        assert!(find(&header(4, &[])).is_err());
        assert!(find(&header(1 << 17, &[])).unwrap().is_some());
        let error = LoadPlan::of(&header(0, &[]), RAM).unwrap_err();
        assert!(error.to_string().contains("bit 16"), "{error}");
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn text(bytes: &[u8], at: usize) -> &str {
        let length = bytes[at..].iter().position(|&b| b == 0).unwrap();
        std::str::from_utf8(&bytes[at..at + length]).unwrap()
    }

    #[test]
    fn the_information_reads_back() {
        const AT: u32 = 0x9000;
        let modules = [Module { contents: b"NR_CPUS=2\n", name: "environ" }, Module { contents: &[], name: "" }];
        let information = Information { ram: 256 << 20, program: "pmu.flat", arguments: "a=1 b", modules: &modules };
        let bytes = information.build(AT).unwrap();
        assert_eq!(information.size(), Ok(bytes.len() as u64));
        let offset = |field: usize| (word(&bytes, field) - AT) as usize;
        assert_eq!(word(&bytes, 0), 0b10_0100_1101);
        assert_eq!((word(&bytes, 4), word(&bytes, 8)), (639, 255 << 10));
        assert_eq!(text(&bytes, offset(16)), "pmu.flat a=1 b");
        assert_eq!(text(&bytes, offset(64)), "vpmu");
        assert_eq!(word(&bytes, 20), 2);
        let list = offset(24);
        let (start, end) = (word(&bytes, list), word(&bytes, list + 4));
        assert_eq!(start % 4096, 0);
        let contents = (start - AT) as usize..(end - AT) as usize;
        assert_eq!(&bytes[contents], b"NR_CPUS=2\n");
        assert_eq!(text(&bytes, offset(list + 8)), "environ");
        assert_eq!(word(&bytes, list + 16), word(&bytes, list + 20));
        // The map covers all memory without a gap.
        let (mut at, end) = (offset(48), offset(48) + word(&bytes, 44) as usize);
        let mut next = 0;
        while at < end {
            assert_eq!(word(&bytes, at), 20);
            assert_eq!(word(&bytes, at + 4), next);
            next += word(&bytes, at + 12);
            at += 24;
        }
        assert_eq!((at, next), (end, 256 << 20));
    }
}
