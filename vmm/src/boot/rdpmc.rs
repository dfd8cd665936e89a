//! RDPMC of an image, rewritten so that it reaches a userspace vPMU.
//!
//! Without a vPMU of KVM's own RDPMC is #GP in a guest, without an exit to the VMM. RDMSR (`0F 32`) differs from RDPMC
//! (`0F 33`) in one byte, takes its index in ECX and gives its result in EDX:EAX alike, and does exit through the MSR
//! filter. Each RDPMC in an image therefore becomes an RDMSR; its site is remembered, and at an exit RIP distinguishes
//! a rewritten RDPMC from a true RDMSR of the same index.
//!
//! # What is an instruction
//! The byte pair `0F 33` is common within immediates, displacements and data, so the code is disassembled. Each
//! executable section (each executable segment, in a file without sections) is decoded linearly from its start, and
//! anew from each function symbol, which repairs what data between functions may have upset.
//!
//! # 32 or 64 bits
//! Code in ELF64 is 64-bit code. ELF32 may hold either: `objcopy -O elf32-i386` makes such containers for multiboot
//! loaders that refuse ELF64. The byte range 40–4F decides: a REX prefix in 64-bit code, and INC or DEC
//! of a register in 32-bit code. A section is decoded as 32-bit code first; if more than one instruction in sixteen is a
//! one-byte INC or DEC, it is 64-bit code. (Compiled kernels had 23 % and more in 64-bit code, 1 % and less in 32-bit
//! code.)
//! A 32-bit start-up stub within a 64-bit section is decoded as 64-bit code: none reads counters.
//!
//! An image without ELF (multiboot with addresses in the header) is left as it is: its code cannot be distinguished from data.

use std::ops::Range;

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction};

use super::elf::{Code, Elf, bad};
use super::error::BootError;

/// The bytes of RDPMC.
const PAIR: [u8; 2] = [0x0f, RDPMC];
/// Second byte of RDPMC and of RDMSR.
const RDPMC: u8 = 0x33;
const RDMSR: u8 = 0x32;

/// Enough instructions to tell 32 from 64 bits.
const SAMPLE: usize = 1 << 16;
/// Code shorter than this many instructions follows its container.
const SAMPLE_MIN: usize = 16;

/// One rewritten RDPMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Virtual address of the instruction, with its prefixes: RIP at the exit.
    pub address: u64,
    /// Length of the instruction with its prefixes.
    pub length: u8,
    /// Offset in the file of the changed byte.
    pub offset: usize,
}

/// Rewrites the RDPMCs of an ELF image in place and returns their sites in ascending order of address.
///
/// Other images are left as they are and have no sites. An image that was rewritten before has none either.
///
/// # Errors
/// [`BootError`] if the ELF file is malformed, or its executable sections overlap in the file.
pub fn rewrite(image: &mut [u8]) -> Result<Vec<Site>, BootError> {
    if !Elf::is_elf(image) {
        return Ok(Vec::new());
    }
    let elf = Elf::parse(image)?;
    // Each byte is decoded a bounded number of times only if no two sections share it.
    let mut ranges: Vec<_> = elf.code.iter().map(|code| code.file.clone()).collect();
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    if ranges.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Err(bad("two of its executable sections overlap in the file"));
    }
    let mut sites = Vec::new();
    for code in &elf.code {
        let bytes = &image[code.file.clone()];
        if bytes.windows(2).any(|pair| pair == PAIR) {
            let bits = if elf.is_64 || is_64_bit(bytes) { 64 } else { 32 };
            sites.extend(Section { code, bytes, bits }.rdpmcs(&elf.symbols));
        }
    }
    sites.sort_unstable();
    for site in &sites {
        image[site.offset] = RDMSR;
    }
    Ok(sites)
}

/// Returns whether code in a 32-bit container is 64-bit code.
fn is_64_bit(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(32, bytes, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut all, mut rex_like) = (0, 0);
    while decoder.can_decode() && all < SAMPLE {
        decoder.decode_out(&mut instruction);
        // Padding says nothing.
        if matches!(instruction.code(), Opcode::Nopd | Opcode::Int3 | Opcode::INVALID) {
            continue;
        }
        all += 1;
        rex_like += usize::from(matches!(instruction.code(), Opcode::Inc_r32 | Opcode::Dec_r32));
    }
    all >= SAMPLE_MIN && rex_like * 16 > all
}

/// A run of code, of 32 or 64 bits.
#[derive(Clone, Copy)]
struct Section<'a> {
    code: &'a Code,
    bytes: &'a [u8],
    bits: u32,
}

impl Section<'_> {
    /// Finds the RDPMCs by decoding the section, anew from each symbol.
    fn rdpmcs(self, symbols: &[u64]) -> Vec<Site> {
        // Symbols are distinct, so no more of them lie in a section than it has bytes.
        let end = self.code.address.saturating_add(self.bytes.len() as u64);
        let first = symbols.partition_point(|&symbol| symbol <= self.code.address);
        let last = symbols.partition_point(|&symbol| symbol < end);
        let inside = symbols.get(first..last).unwrap_or_default().iter();
        let (mut start, mut sites) = (0, Vec::new());
        for end in inside.map(|symbol| (symbol - self.code.address) as usize).chain([self.bytes.len()]) {
            if let Some(last) = self.bytes[start..end].windows(2).rposition(|pair| pair == PAIR) {
                sites.extend(self.decode(start..end, last));
            }
            start = end;
        }
        sites
    }

    /// Decodes `run`, which starts with an instruction, up to the pair at its offset `last`; what reaches over its end is none.
    fn decode(self, run: Range<usize>, last: usize) -> Vec<Site> {
        let address = self.code.address.wrapping_add(run.start as u64);
        let mut decoder = Decoder::with_ip(self.bits, &self.bytes[run.clone()], address, DecoderOptions::NONE);
        let (mut instruction, mut sites) = (Instruction::default(), Vec::new());
        while decoder.can_decode() && decoder.position() <= last {
            let at = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // The decoder swallows as much as it looked at; the next instruction may start within.
                if decoder.set_position(at + 1).is_err() {
                    break;
                }
                decoder.set_ip(address.wrapping_add(at as u64 + 1));
            } else if instruction.code() == Opcode::Rdpmc {
                let length = instruction.len();
                sites.push(Site {
                    address: instruction.ip(),
                    length: u8::try_from(length).unwrap_or(u8::MAX),
                    offset: self.code.file.start + run.start + at + length - 1,
                });
            }
        }
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestElf;
    use super::*;

    const BASE: u64 = 0x10_0000;

    /// Returns the addresses of the sites, after checking that exactly their bytes have changed.
    fn sites(elf: &TestElf) -> Vec<u64> {
        let before = elf.bytes();
        let mut after = before.clone();
        let sites = rewrite(&mut after).unwrap();
        let mut expected = before;
        for site in &sites {
            assert_eq!(expected[site.offset - 1..=site.offset], [0x0f, RDPMC]);
            expected[site.offset] = RDMSR;
        }
        assert!(after == expected);
        assert_eq!(rewrite(&mut after).unwrap(), [], "a second time");
        sites.iter().map(|site| site.address).collect()
    }

    #[test]
    fn instructions_are_rewritten_and_byte_pairs_are_not() {
        let code = [
            0xb8, 0x0f, 0x33, 0x0f, 0x33, // mov eax, 0x330f330f
            0x0f, 0x33, // rdpmc
            0x66, 0x0f, 0x33, // rdpmc with a prefix
            0x8b, 0x80, 0x0f, 0x33, 0x00, 0x00, // mov eax, [rax + 0x330f]
            0x0f, 0x32, // rdmsr
            0xeb, 0x0f, 0x33, 0xc0, // jmp +15; xor eax, eax
            0x0f, 0x33, // rdpmc
        ];
        for is_64 in [false, true] {
            let elf = TestElf::new(is_64, BASE).code(BASE, &code);
            assert_eq!(sites(&elf), [BASE + 5, BASE + 7, BASE + 22], "64 bits: {is_64}");
        }
    }

    #[test]
    fn only_code_is_touched() {
        for sections in [true, false] {
            let mut elf = TestElf::new(true, BASE).code(BASE, &[0x0f, 0x33]);
            elf = elf.part([0x20_0000; 2], &[0x0f, 0x33, 0x0f, 0x33], 4, false);
            elf.sections = sections;
            assert_eq!(sites(&elf), [BASE], "sections: {sections}");
        }
    }

    #[test]
    fn symbols_repair_what_data_upsets() {
        // A byte of data that looks like the start of `mov eax, imm32` swallows the function's first bytes.
        let elf = TestElf::new(true, BASE).code(BASE, &[0xc3, 0xb8, 0x0f, 0x33, 0x90, 0xc3, 0xc3]);
        assert!(sites(&elf).is_empty());
        let mut elf = elf;
        elf.symbols = vec![BASE, BASE + 2, BASE + 100, 1];
        assert_eq!(sites(&elf), [BASE + 2]);
    }

    /// Creates a function as a compiler makes it: in 64-bit code its moves have REX prefixes.
    fn function(is_64: bool) -> Vec<u8> {
        let mut code = Vec::new();
        for _ in 0..8 {
            if is_64 {
                code.push(0x48);
            }
            code.extend([0x89, 0xd8, 0x01, 0xc8, 0x85, 0xc0, 0x74, 0x00]);
        }
        code
    }

    #[test]
    fn code_in_a_32_bit_container_is_recognised() {
        // As 64-bit code: mov rax, 0x0f33… (10 bytes). As 32-bit code: dec eax; mov eax, imm32; then a RDPMC.
        let tail = [0x48, 0xb8, 1, 2, 3, 4, 0x0f, 0x33, 5, 6, 0xc3];
        for is_64 in [false, true] {
            let code = [function(is_64), tail.to_vec()].concat();
            let at = BASE + code.len() as u64 - 5;
            let elf = TestElf::new(false, BASE).code(BASE, &code);
            assert_eq!(sites(&elf), if is_64 { vec![] } else { vec![at] }, "64 bits: {is_64}");
        }
    }

    #[test]
    fn overlapping_sections_are_refused() {
        let elf = TestElf::new(true, BASE).code(BASE, &[0x0f, 0x33]).code(BASE + 2, &[0x0f, 0x33]);
        let mut file = elf.bytes();
        // The second section's header: its file offset becomes the first's.
        let at = file.len() - 2 * 64 + 24;
        let offset = elf.offset(0) as u64;
        file[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        assert_eq!(rewrite(&mut file), Err(bad("two of its executable sections overlap in the file")));
    }
}
