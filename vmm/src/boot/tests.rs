//! The loaders of images, on files made by hand.

use super::image::{Image, LoadPlan, Protocol};
use super::information::{Information, Module};
use super::segment::Segment;

/// A segment to load, or of notes, and the section that covers its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) is_notes: bool,
    pub(crate) virtual_address: u64,
    pub(crate) physical_address: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory_size: u64,
    pub(crate) executable: bool,
}

/// A file to be.
#[derive(Clone, Debug)]
pub(crate) struct TestElf {
    pub(crate) is_64: bool,
    pub(crate) machine: u64,
    pub(crate) kind: u64,
    pub(crate) entry: u64,
    pub(crate) parts: Vec<Part>,
    /// True if there are section headers.
    pub(crate) sections: bool,
    /// Function symbols.
    pub(crate) symbols: Vec<u64>,
}

impl TestElf {
    pub(crate) fn new(is_64: bool, entry: u64) -> Self {
        let machine = if is_64 { 62 } else { 3 };
        Self { is_64, machine, kind: 2, entry, parts: Vec::new(), sections: true, symbols: Vec::new() }
    }

    /// Adds executable bytes at an address.
    pub(crate) fn code(self, address: u64, bytes: &[u8]) -> Self {
        self.part([address; 2], bytes, bytes.len() as u64, true)
    }

    /// Adds bytes at a virtual and a physical address.
    pub(crate) fn part(mut self, at: [u64; 2], bytes: &[u8], memory_size: u64, executable: bool) -> Self {
        let ([virtual_address, physical_address], bytes) = (at, bytes.to_vec());
        self.parts.push(Part { is_notes: false, virtual_address, physical_address, bytes, memory_size, executable });
        self
    }

    /// Adds a note of `Xen` after another one.
    fn note(mut self, kind: u32, entry: &[u8]) -> Self {
        let note = |name: &[u8], kind: u32, desc: &[u8]| {
            let words = [name.len() as u32, desc.len() as u32, kind].map(u32::to_le_bytes);
            [&words.concat(), name, desc].concat()
        };
        let bytes = [note(b"GNU\0", 18, b"1234"), note(b"Xen\0", kind, entry)].concat();
        self.parts.push(Part { is_notes: true, memory_size: bytes.len() as u64, bytes, ..Part::default() });
        self
    }

    /// Returns the file offset of the bytes of part `index`.
    pub(crate) fn offset(&self, index: usize) -> usize {
        let headers = if self.is_64 { 64 + 56 * self.parts.len() } else { 52 + 32 * self.parts.len() };
        headers + self.parts[..index].iter().map(|part| part.bytes.len()).sum::<usize>()
    }

    /// Appends numbers: `h` has two bytes, `w` four, `l` as many as a word of the file's class.
    fn put(&self, file: &mut Vec<u8>, widths: &str, numbers: &[u64]) {
        for (width, number) in widths.bytes().zip(numbers) {
            let width = if width == b'h' { 2 } else { 4 << u8::from(width == b'l' && self.is_64) };
            file.extend(&number.to_le_bytes()[..width]);
        }
    }

    /// Returns the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (header, segment, section, symbol) = if self.is_64 { (64, 56, 64, 24) } else { (52, 32, 40, 16) };
        let symbols_at = self.offset(self.parts.len()) as u64;
        let (parts, symbols_size) = (self.parts.len() as u64, symbol * self.symbols.len() as u64);
        let class = [1 + u8::from(self.is_64), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut file = [&b"\x7fELF"[..], &class].concat();
        let [at, size, count] = if self.sections { [symbols_at + symbols_size, section, parts + 2] } else { [0; 3] };
        let numbers = [self.kind, self.machine, 1, self.entry, header, at, 0, header, segment, parts, size, count, 0];
        self.put(&mut file, "hhwlllwhhhhhh", &numbers);
        for (i, part) in self.parts.iter().enumerate() {
            let (kind, size) = (if part.is_notes { 4 } else { 1 }, part.bytes.len() as u64);
            let (offset, memory) = (self.offset(i) as u64, part.memory_size);
            let mut numbers = vec![kind, offset, part.virtual_address, part.physical_address, size, memory, 1];
            numbers.insert(if self.is_64 { 1 } else { 6 }, 4 | u64::from(part.executable));
            self.put(&mut file, "wwllllll", &numbers);
        }
        file.extend(self.parts.iter().flat_map(|part| &part.bytes));
        for &symbol in &self.symbols {
            // Name, type FUNC, section 1.
            let (widths, numbers) =
                if self.is_64 { ("whhll", [0, 2, 1, symbol, 0]) } else { ("wllhh", [0, symbol, 0, 2, 1]) };
            self.put(&mut file, widths, &numbers);
        }
        let mut put_section = |[kind, flags, address, offset, size, entry]: [u64; 6]| {
            self.put(&mut file, "wwllllwwll", &[0, kind, flags, address, offset, size, 0, 0, 1, entry]);
        };
        if self.sections {
            put_section([0; 6]);
            for (i, part) in self.parts.iter().enumerate() {
                let flags = if part.executable { 6 } else { 2 };
                put_section([1, flags, part.virtual_address, self.offset(i) as u64, part.bytes.len() as u64, 0]);
            }
            put_section([2, 0, 0, symbols_at, symbols_size, symbol]);
        }
        file
    }
}

const RAM: u64 = 16 << 20;
const BASE: u64 = 0x10_0000;
const ADDRESSES: u32 = 1 << 16;

fn header(flags: u32, fields: &[u32]) -> Vec<u8> {
    let magic = 0x1bad_b002_u32;
    let words = [magic, flags, 0_u32.wrapping_sub(magic).wrapping_sub(flags)];
    words.iter().chain(fields).flat_map(|word| word.to_le_bytes()).collect()
}

/// Creates a file whose header is 16 bytes into it.
fn flat(flags: u32, fields: [u32; 5], length: usize) -> Vec<u8> {
    let mut file = vec![0; 16];
    file.extend(header(flags | ADDRESSES, &fields));
    file.resize(length, 0xf4);
    file
}

/// An image of 100 bytes that is loaded to 1 MiB whole.
const WHOLE: [u32; 5] = [0x10_0010, 0x10_0000, 0, 0, 0x10_0030];

/// A multiboot image with code and data.
fn elf(is_64: bool) -> TestElf {
    let code = [header(0, &[]), vec![0x90, 0xf4]].concat();
    TestElf::new(is_64, BASE + 12).code(BASE, &code).part([0x20_0000; 2], b"data", 0x2000, false)
}

fn pvh(is_64: bool, entry: &[u8]) -> TestElf {
    TestElf::new(is_64, 0x7777).code(BASE, &[0x90, 0xf4]).note(18, entry)
}

#[test]
fn each_protocol_is_recognized_by_its_mark() {
    let at = |offset: u64| BASE as u32 + offset as u32;
    let higher_half = |is_64, entry| {
        let code = header(0, &[]);
        TestElf::new(is_64, entry).part([0xc010_0000, BASE], &code, 16, true).bytes()
    };
    let both = [header(0, &[]), vec![0xf4]].concat();
    let both = TestElf::new(false, BASE + 12).code(BASE, &both).note(18, &[0; 4]).bytes();
    for (file, protocol, eip, video) in [
        (elf(false).bytes(), Protocol::Multiboot, at(12), false),
        (elf(true).bytes(), Protocol::Multiboot, at(12), false),
        (higher_half(false, 0xc010_0004), Protocol::Multiboot, at(4), false),
        (higher_half(true, BASE + 4), Protocol::Multiboot, at(4), false),
        (flat(0, WHOLE, 100), Protocol::Multiboot, at(0x30), false),
        // Features above bit 15 are optional, and a video mode is one in effect.
        (flat(1 << 17 | 4 | 3, WHOLE, 100), Protocol::Multiboot, at(0x30), true),
        (pvh(true, &at(1).to_le_bytes()).bytes(), Protocol::Pvh, at(1), false),
        (pvh(false, &(BASE + 1).to_le_bytes()).bytes(), Protocol::Pvh, at(1), false),
        (both, Protocol::Multiboot, at(12), false),
    ] {
        let image = Image::of(&file, RAM).unwrap();
        assert_eq!((image.protocol, image.eip, image.asks_for_video), (protocol, eip, video));
    }
}

#[test]
fn segments_are_what_the_file_says() {
    let segment = |file: &[u8]| Image::of(file, RAM).unwrap().plan.segments.remove(0);
    let Segment { address, file, memory_size, .. } = segment(&flat(0, WHOLE, 100));
    assert_eq!((address, file, memory_size), (BASE, 0..100, 100));
    // Loading starts at the header, ends early, and more memory is cleared.
    let part = segment(&flat(0, [0x10_0010, 0x10_0010, 0x10_0040, 0x10_1000, 0x10_0030], 100));
    assert_eq!((part.address, part.file.clone(), part.end()), (0x10_0010, 16..64, 0x10_1000));

    let file = elf(true).bytes();
    let plan = Image::of(&file, RAM).unwrap().plan;
    let mut written = Vec::new();
    let copied = plan.copy(&file, |address, bytes| {
        written.push((address, bytes.len()));
        Ok::<_, ()>(())
    });
    assert_eq!((copied, written, plan.segments[1].end()), (Ok(()), vec![(BASE, 14), (0x20_0000, 4)], 0x20_2000));
    assert_eq!(plan.copy(&file, |_, _| Err(7)), Err(7));
}

#[test]
fn what_is_not_for_us_is_refused_by_its_name() {
    let changed = |change: fn(&mut TestElf)| {
        let mut file = elf(false);
        change(&mut file);
        file.bytes()
    };
    let late = |at: usize| [vec![0; at], header(0, &[])].concat();
    let mut bzimage = vec![0; 0x400];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    let multiboot_2 = [&[0; 64][..], &[0xd6, 0x50, 0x52, 0xe8, 0, 0, 0, 0]].concat();
    // The last address that a file may have as its entry, and the first that it may not.
    let pvh_entry = |entry: u64| pvh(true, &entry.to_le_bytes()).bytes();
    // Headers that are none: not at a multiple of 4, and with a wrong checksum.
    let mut wrong = [header(0, &[]), vec![0; 9000], header(0, &[])].concat();
    (wrong[8], wrong[9012 + 8]) = (1, 1);
    for (words, file) in [
        ("another processor", changed(|file| file.machine = 183)),
        ("position-independent", changed(|file| file.kind = 3)),
        ("not an executable", changed(|file| file.kind = 1)),
        ("larger in the file", changed(|file| file.parts[1].memory_size = 3)),
        ("nothing to load", TestElf::new(true, 0).note(18, &[0; 4]).bytes()),
        ("neither 4 nor 8 bytes", pvh(true, &[0; 5]).bytes()),
        ("requires a feature", flat(8, WHOLE, 100)),
        ("no load addresses", header(0, &[])),
        ("no load addresses", late(8192 - 12)),
        ("header is cut short", flat(0, WHOLE, 100)[..40].to_vec()),
        ("header_addr", flat(0, [0x10_0000, 0x10_0010, 0, 0, 0x10_0030], 100)),
        ("before the start", flat(0, [0x10_0020, 0x10_0000, 0, 0, 0x10_0030], 100)),
        ("load_end_addr", flat(0, [0x10_0010, 0x10_0000, 1, 0, 0x10_0030], 100)),
        ("bss_end_addr", flat(0, [0x10_0010, 0x10_0000, 0, 0x10_0063, 0x10_0030], 100)),
        ("of 0x65 bytes", flat(0, [0x10_0010, 0x10_0000, 0x10_0065, 0, 0x10_0030], 100)),
        ("without a boot protocol", TestElf::new(true, BASE).code(BASE, &[0xf4]).bytes()),
        ("without a boot protocol", TestElf::new(true, BASE).code(BASE, &[0xf4]).note(17, &[0; 4]).bytes()),
        ("gunzip", vec![0x1f, 0x8b, 8, 0]),
        ("bzImage", bzimage),
        ("multiboot 2", multiboot_2),
        ("header lies at 0x2000", late(8192)),
        ("header lies at 0x1ff8", late(8192 - 8)),
        ("entry point 0x10000e", changed(|file| file.entry = BASE + 14)),
        ("entry point 0x100064", flat(0, [0x10_0010, 0x10_0000, 0, 0, 0x10_0064], 100)),
        ("entry point 0x100100000", pvh_entry(1 << 32 | BASE)),
        ("no kernel that is known", late(2)),
        ("no kernel that is known", wrong),
        ("no kernel that is known", Vec::new()),
    ] {
        let found = Image::of(&file, RAM);
        assert!(found.as_ref().is_err_and(|error| error.0.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn notes_are_read_within_the_file() {
    let file = pvh(true, &[0, 0, 0x10, 0]);
    let at = file.offset(1);
    let bytes = file.bytes();
    assert!(Image::of(&bytes, RAM).is_ok());
    // The sizes of the first note's name and of its contents, and of the second one's.
    for field in [at, at + 4, at + 20, at + 24] {
        for size in [0x100_u32, u32::MAX, u32::MAX - 3] {
            let mut bytes = bytes.clone();
            bytes[field..field + 4].copy_from_slice(&size.to_le_bytes());
            assert!(Image::of(&bytes, RAM).is_err(), "{field}: {size:#x}");
        }
    }
}

#[test]
fn segments_must_lie_in_memory_and_apart() {
    let top = flat(0, [u32::MAX, u32::MAX - 16, 0, 0, u32::MAX], 100);
    assert!(Image::of(&top, RAM).is_err());
    // The size of memory, the addresses of two segments of 14 and 0x2000 bytes, and what is wrong with them.
    for (ram, address, other, words) in [
        (0x20_2000, BASE, 0x20_0000, ""),
        (0x20_1fff, BASE, 0x20_0000, "0x2000 bytes at 0x200000 does not fit into 0x201fff"),
        (u64::MAX, BASE, u64::MAX - 0xfff, "does not fit"),
        (RAM, 0x20_1fff, 0x20_0000, "overlap at 0x201fff"),
    ] {
        let mut file = elf(true);
        (file.parts[0].physical_address, file.parts[1].physical_address) = (address, other);
        let found = Image::of(&file.bytes(), ram).err().map_or_else(String::new, |error| error.0);
        assert!(found.contains(words) && found.is_empty() == words.is_empty(), "{words}: {found}");
    }
}

#[test]
fn the_loaders_own_data_goes_where_nothing_is() {
    let plan = |parts: &[(u64, u64)], ram| {
        let segments = parts.iter().map(|&(address, memory_size)| Segment {
            address,
            virtual_address: address,
            file: 0..0,
            memory_size,
            executable: false,
        });
        LoadPlan::new(segments.collect(), ram).unwrap()
    };
    let two = [(0x10_0000, 0x1234), (0x20_0000, 0x1000)];
    for (parts, size, place) in [
        (&[(0x10_0000, 0x1000)][..], 0x1000, Some(0x9000)),
        (&[(0x8000, 0x1001)], 0x1000, Some(0xa000)),
        (&[(0xa000, 0x10)], 0x2000, Some(0xb000)),
        // Too large for low memory, then for the gap between two segments.
        (&two, 0xa_0000, Some(0x10_2000)),
        (&two, 0x10_0000, Some(0x20_1000)),
        (&two, RAM, None),
        (&two, u64::MAX, None),
    ] {
        assert_eq!(plan(parts, RAM).free_range(size).ok(), place, "{parts:x?}");
    }
    assert!(plan(&[(0, 0x10_0000)], 0x10_0000).free_range(1).is_err());
}

#[test]
fn the_information_is_what_each_protocol_says() {
    const AT: u32 = 0x9000;
    let module = |name: &str, contents: &[u8]| Module { name: name.to_owned(), contents: contents.to_vec() };
    let modules = [module("environ", b"NR_CPUS=2\n"), module("", &[])];
    let information = |protocol, arguments| Information {
        protocol,
        ram: 256 << 20,
        program: "pmu.flat",
        arguments,
        modules: &modules,
    };
    // The map of memory without a gap follows the fixed part, then come the texts; modules have pages of their own.
    let map = [(0, 0x9_fc00, 1), (0x9_fc00, 0x6_0400, 2), (0x10_0000, 255 << 20, 1)];
    let (map_at, module_at) = (AT + 120, AT + 0x1000);
    let (line_at, names) = (map_at + 72, ["environ", ""]);
    // Offsets of words, and their values: multiboot 3.3, hvm_start_info.
    let multiboot: &[(usize, u32)] = &[
        (0, 0b10_0100_1101),
        (4, 639),
        (8, 255 << 10),
        (16, line_at),
        (20, 2),
        (24, module_at + 0x1000),
        (44, 72),
        (48, map_at),
        (64, line_at + 15),
    ];
    let pvh: &[(usize, u32)] =
        &[(0, 0x336e_c578), (4, 1), (12, 2), (16, module_at + 0x1000), (24, line_at), (32, 0), (40, map_at), (48, 3)];
    for (protocol, words, text) in [
        (Protocol::Multiboot, multiboot, &b"pmu.flat a=1 b\0vpmu\0environ\0"[..]),
        (Protocol::Pvh, pvh, b"a=1 b\0vpmu\0environ\0"),
    ] {
        let built = information(protocol, "a=1 b");
        let bytes = built.build(AT).unwrap();
        assert_eq!(built.size(), Ok(bytes.len() as u64));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        for &(at, value) in words {
            assert_eq!(word(at), value, "{protocol:?}, offset {at}");
        }
        assert!(bytes[192..].starts_with(text));
        for (n, (start, size, kind)) in map.into_iter().enumerate() {
            let at = 120 + 24 * n;
            let entry = if protocol == Protocol::Multiboot {
                assert_eq!(word(at), 20);
                [word(at + 4), word(at + 12), word(at + 20)]
            } else {
                [word(at), word(at + 8), word(at + 16)]
            };
            assert_eq!(entry, [start, size, kind], "{protocol:?}");
        }
        assert!(bytes[0x1000..].starts_with(b"NR_CPUS=2\n"));
        let list = 0x2000;
        let [end, name_at] = if protocol == Protocol::Multiboot { [4, 8] } else { [8, 16] };
        let size = word(list + end) - if protocol == Protocol::Multiboot { word(list) } else { 0 };
        assert_eq!((word(list), size), (module_at, 10));
        let name = &bytes[(word(list + name_at) - AT) as usize..];
        assert!(name.starts_with(names[0].as_bytes()));
        assert!(information(protocol, "a\0b").build(AT).is_err());
    }
}

#[test]
fn every_cut_is_an_error() {
    for file in [elf(false), elf(true), pvh(true, &[0, 0, 0x10, 0])].map(|elf| elf.bytes()) {
        assert!(Image::of(&file, RAM).is_ok());
        for length in 0..file.len() {
            assert!(Image::of(&file[..length], RAM).is_err(), "cut to {length}");
        }
    }
}
