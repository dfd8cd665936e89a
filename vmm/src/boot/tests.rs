//! The loaders of images, on files made by hand.

use proptest::prelude::*;

use super::image::{Image, LoadPlan, Protocol};
use super::information::{Information, Module};
use super::segment::{LoadError, Segment};

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
    pub(crate) machine: u16,
    pub(crate) kind: u16,
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
        self.part(address, address, bytes, bytes.len() as u64, true)
    }

    pub(crate) fn part(
        mut self,
        virtual_address: u64,
        physical_address: u64,
        bytes: &[u8],
        memory_size: u64,
        executable: bool,
    ) -> Self {
        let bytes = bytes.to_vec();
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

    /// Returns the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let symbols_at = self.offset(self.parts.len());
        let (header, segment, section, symbol): (u16, _, _, u32) =
            if self.is_64 { (64, 56, 64, 24) } else { (52, 32, 40, 16) };
        let symbols_size = symbol as usize * self.symbols.len();
        let class = [1 + u8::from(self.is_64), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut out = Out { is_64: self.is_64, file: [&b"\x7fELF"[..], &class].concat() };
        out.half(self.kind).half(self.machine).word(1).long(self.entry).long(header.into());
        out.long(if self.sections { symbols_at + symbols_size } else { 0 } as u64).word(0);
        out.half(header).half(segment).half(self.parts.len() as u16);
        let sections = self.parts.len() as u16 + 2;
        out.half(if self.sections { section } else { 0 }).half(if self.sections { sections } else { 0 }).half(0);
        for (i, part) in self.parts.iter().enumerate() {
            let flags = 4 | u32::from(part.executable);
            out.word(if part.is_notes { 4 } else { 1 });
            if self.is_64 {
                out.word(flags);
            }
            out.long(self.offset(i) as u64).long(part.virtual_address).long(part.physical_address);
            out.long(part.bytes.len() as u64).long(part.memory_size);
            if !self.is_64 {
                out.word(flags);
            }
            out.long(1);
        }
        out.file.extend(self.parts.iter().flat_map(|part| &part.bytes));
        for &symbol in &self.symbols {
            // Name, type FUNC, section 1.
            if self.is_64 {
                out.word(0).half(2).half(1).long(symbol).long(0);
            } else {
                out.word(0).long(symbol).long(0).half(2).half(1);
            }
        }
        if self.sections {
            out.section([0; 6]);
            for (i, part) in self.parts.iter().enumerate() {
                let flags = if part.executable { 6 } else { 2 };
                out.section([1, flags, part.virtual_address, self.offset(i) as u64, part.bytes.len() as u64, 0]);
            }
            out.section([2, 0, 0, symbols_at as u64, symbols_size as u64, symbol.into()]);
        }
        out.file
    }
}

struct Out {
    is_64: bool,
    file: Vec<u8>,
}

impl Out {
    fn half(&mut self, value: u16) -> &mut Self {
        self.file.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.file.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Writes a field as wide as the class.
    fn long(&mut self, value: u64) -> &mut Self {
        let width = if self.is_64 { 8 } else { 4 };
        self.file.extend_from_slice(&value.to_le_bytes()[..width]);
        self
    }

    fn section(&mut self, [kind, flags, address, offset, size, entry]: [u64; 6]) {
        self.word(0).word(kind as u32).long(flags).long(address).long(offset);
        self.long(size).word(0).word(0).long(1).long(entry);
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
    TestElf::new(is_64, BASE + 12).code(BASE, &code).part(0x20_0000, 0x20_0000, b"data", 0x2000, false)
}

fn pvh(is_64: bool, entry: &[u8]) -> TestElf {
    TestElf::new(is_64, 0x7777).code(BASE, &[0x90, 0xf4]).note(18, entry)
}

#[test]
fn each_protocol_is_recognized_by_its_mark() {
    let at = |offset: u64| BASE as u32 + offset as u32;
    let higher_half = |is_64, entry| {
        let code = header(0, &[]);
        TestElf::new(is_64, entry).part(0xc010_0000, BASE, &code, 16, true).bytes()
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
    let elf_error = |file: &[u8]| matches!(Image::of(file, RAM), Err(LoadError::Elf(_)));
    let multiboot_error = |file: &[u8]| matches!(Image::of(file, RAM), Err(LoadError::Multiboot(_)));
    let not_spoken = |file: &[u8]| matches!(Image::of(file, RAM), Err(LoadError::NotSpoken(_)));
    for (name, file, is_right) in [
        ("processor", changed(|file| file.machine = 183), &elf_error as &dyn Fn(&[u8]) -> bool),
        ("position-independent", changed(|file| file.kind = 3), &elf_error),
        ("object file", changed(|file| file.kind = 1), &elf_error),
        ("larger in the file", changed(|file| file.parts[1].memory_size = 3), &elf_error),
        ("nothing to load", TestElf::new(true, 0).note(18, &[0; 4]).bytes(), &elf_error),
        ("an entry of 5 bytes", pvh(true, &[0; 5]).bytes(), &elf_error),
        ("a required feature", flat(8, WHOLE, 100), &multiboot_error),
        ("neither addresses nor ELF", header(0, &[]), &multiboot_error),
        ("the last place of a header", late(8192 - 12), &multiboot_error),
        ("a header cut short", flat(0, WHOLE, 100)[..40].to_vec(), &multiboot_error),
        ("header_addr", flat(0, [0x10_0000, 0x10_0010, 0, 0, 0x10_0030], 100), &multiboot_error),
        ("before the file", flat(0, [0x10_0020, 0x10_0000, 0, 0, 0x10_0030], 100), &multiboot_error),
        ("load_end_addr", flat(0, [0x10_0010, 0x10_0000, 1, 0, 0x10_0030], 100), &multiboot_error),
        ("bss_end_addr", flat(0, [0x10_0010, 0x10_0000, 0, 0x10_0063, 0x10_0030], 100), &multiboot_error),
        ("ELF without a protocol", TestElf::new(true, BASE).code(BASE, &[0xf4]).bytes(), &not_spoken),
        ("another note", TestElf::new(true, BASE).code(BASE, &[0xf4]).note(17, &[0; 4]).bytes(), &not_spoken),
        ("gzip", vec![0x1f, 0x8b, 8, 0], &not_spoken),
        ("bzImage", bzimage, &not_spoken),
        ("multiboot 2", multiboot_2, &not_spoken),
    ] {
        assert!(is_right(&file), "{name}: {:?}", Image::of(&file, RAM));
    }
    let entry = |file: &[u8]| Image::of(file, RAM).unwrap_err();
    assert_eq!(entry(&changed(|file| file.entry = BASE + 14)), LoadError::Entry { entry: BASE + 14 });
    assert_eq!(entry(&flat(0, [0x10_0010, 0x10_0000, 0, 0, 0x10_0064], 100)), LoadError::Entry { entry: BASE + 0x64 });
    assert_eq!(entry(&pvh(true, &(1 << 32 | BASE).to_le_bytes()).bytes()), LoadError::Entry { entry: 1 << 32 | BASE });
    let cut = LoadError::CutShort { offset: 0, size: 0x65, length: 100 };
    assert_eq!(entry(&flat(0, [0x10_0010, 0x10_0000, 0x10_0065, 0, 0x10_0030], 100)), cut);
    assert_eq!(entry(&late(8192)), LoadError::LateHeader { at: 8192 });
    assert_eq!(entry(&late(8192 - 8)), LoadError::LateHeader { at: 8192 - 8 });
    // Not at a multiple of 4; with a wrong checksum.
    let mut wrong = [header(0, &[]), vec![0; 9000], header(0, &[])].concat();
    (wrong[8], wrong[9012 + 8]) = (1, 1);
    assert_eq!((entry(&late(2)), entry(&wrong)), (LoadError::NotAnImage, LoadError::NotAnImage));
    assert_eq!((entry(b"#!/bin/sh\n"), entry(b"")), (LoadError::NotAnImage, LoadError::NotAnImage));
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
            assert!(matches!(Image::of(&bytes, RAM), Err(LoadError::Elf(_))), "{field}: {size:#x}");
        }
    }
}

#[test]
fn segments_must_lie_in_memory_and_apart() {
    let plan = |ram, address, other| {
        let mut file = elf(true);
        (file.parts[0].physical_address, file.parts[1].physical_address) = (address, other);
        Image::of(&file.bytes(), ram)
    };
    let outside = |address, size, ram| Err::<Image, _>(LoadError::OutsideMemory { address, size, ram });
    assert_eq!(plan(0x20_1fff, BASE, 0x20_0000), outside(0x20_0000, 0x2000, 0x20_1fff));
    assert!(plan(0x20_2000, BASE, 0x20_0000).is_ok());
    assert_eq!(plan(u64::MAX, BASE, u64::MAX - 0xfff), outside(u64::MAX - 0xfff, 0x2000, u64::MAX));
    assert_eq!(plan(RAM, 0x20_1fff, 0x20_0000), Err(LoadError::Overlap { address: 0x20_1fff }));
    let top = flat(0, [u32::MAX, u32::MAX - 16, 0, 0, u32::MAX], 100);
    assert_eq!(Image::of(&top, RAM), outside(u64::from(u32::MAX) - 16, 100, RAM));
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
        (&[(0x10_0000, 0x1000)][..], 0x1000, Ok(0x9000)),
        (&[(0x8000, 0x1001)], 0x1000, Ok(0xa000)),
        (&[(0xa000, 0x10)], 0x2000, Ok(0xb000)),
        // Too large for low memory, then for the gap between two segments.
        (&two, 0xa_0000, Ok(0x10_2000)),
        (&two, 0x10_0000, Ok(0x20_1000)),
        (&two, RAM, Err(LoadError::NoRoom { size: RAM })),
        (&two, u64::MAX, Err(LoadError::NoRoom { size: u64::MAX })),
    ] {
        assert_eq!(plan(parts, RAM).free_range(size), place, "{parts:x?}");
    }
    assert!(plan(&[(0, 0x10_0000)], 0x10_0000).free_range(1).is_err());
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[test]
fn the_information_reads_back() {
    const AT: u32 = 0x9000;
    let modules = [Module { contents: b"NR_CPUS=2\n", name: "environ" }, Module { contents: &[], name: "" }];
    for protocol in [Protocol::Multiboot, Protocol::Pvh] {
        let information =
            Information { protocol, ram: 256 << 20, program: "pmu.flat", arguments: "a=1 b", modules: &modules };
        let bytes = information.build(AT).unwrap();
        assert_eq!(information.size(), Ok(bytes.len() as u64));
        // Places of fields, and the width of those that differ.
        let multiboot = protocol == Protocol::Multiboot;
        let [line_at, count_at, list_at, map_at] = if multiboot { [16, 20, 24, 48] } else { [24, 12, 16, 40] };
        let width = if multiboot { 4 } else { 8 };
        let place = |field: usize| (number(&bytes, field, width) - u64::from(AT)) as usize;
        let text = |at: usize| {
            let text = bytes[at..].split(|&byte| byte == 0).next().unwrap();
            std::str::from_utf8(text).unwrap()
        };
        if multiboot {
            assert_eq!([0, 4, 8].map(|field| number(&bytes, field, 4)), [0b10_0100_1101, 639, 255 << 10]);
            assert_eq!((text(place(line_at)), text(place(64))), ("pmu.flat a=1 b", "vpmu"));
        } else {
            assert_eq!((number(&bytes, 0, 4), number(&bytes, 4, 8)), (0x336e_c578, 1));
            assert_eq!((text(place(line_at)), number(&bytes, 32, 8), number(&bytes, 52, 4)), ("a=1 b", 0, 0));
        }
        assert_eq!(number(&bytes, count_at, 4), 2);
        let list = place(list_at);
        let (start, second) = (place(list), number(&bytes, list + width, width));
        let size = second - if multiboot { number(&bytes, list, width) } else { 0 };
        assert_eq!((start % 4096, &bytes[start..start + size as usize]), ((AT % 4096) as usize, &b"NR_CPUS=2\n"[..]));
        assert_eq!(text(place(list + 2 * width)), "environ");
        // The map covers all memory without a gap.
        let (mut at, mut next) = (place(map_at), 0);
        let areas = if multiboot { number(&bytes, 44, 4) / 24 } else { number(&bytes, 48, 4) };
        for _ in 0..areas {
            if multiboot {
                assert_eq!(number(&bytes, at, 4), 20);
            }
            let base = at + if multiboot { 4 } else { 0 };
            assert_eq!(number(&bytes, base, 8), next);
            assert_eq!(number(&bytes, base + 16, 4), if next == 0x9_fc00 { 2 } else { 1 });
            next += number(&bytes, base + 8, 8);
            at += 24;
        }
        assert_eq!((areas, next), (3, 256 << 20));
        let nul = Information { arguments: "a\0b", ..information };
        assert_eq!(nul.build(AT), Err(LoadError::Nul));
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

proptest! {
    /// A plan holds what it promises, whatever the file says.
    #[test]
    fn mutated_files_are_planned_soundly_or_refused(
        is_64: bool,
        is_pvh: bool,
        changes in prop::collection::vec((0_usize..512, any::<u8>()), 0..6),
        ram in 0_u64..(64 << 20),
    ) {
        let mut file = if is_pvh { pvh(is_64, &[0, 0, 0x10, 0]) } else { elf(is_64) }.bytes();
        for (at, value) in changes {
            let length = file.len();
            file[at % length] = value;
        }
        if let Ok(Image { plan, eip, .. }) = Image::of(&file, ram) {
            let mut end = 0;
            for segment in &plan.segments {
                prop_assert!(segment.address >= end && segment.end() <= ram);
                prop_assert!(segment.file.len() as u64 <= segment.memory_size);
                end = segment.end();
            }
            prop_assert!(plan.covers(eip.into()));
            plan.copy(&file, |_, _| Ok::<_, ()>(())).unwrap();
            if let Ok(at) = plan.free_range(0x3000) {
                let mut segments = plan.segments.iter();
                prop_assert!(at + 0x3000 <= ram);
                prop_assert!(segments.all(|s| s.end() <= at || at + 0x3000 <= s.address));
            }
        }
    }
}
