//! The RDPMCs of a kernel, found by decoding around each byte pair: decoding tens of megabytes takes seconds on an emulated host.
//!
//! Decoding x86 code from the middle of an instruction falls into step with the true instructions after a few of them. So code
//! before a pair is decoded from several neighbouring starts; where all agree on the pair, that is the answer. Where they do not,
//! the section is decoded as a whole.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction};

use crate::boot::elf::Code;
use crate::boot::rdpmc::{self, PAIR, Site};
use crate::boot::segment::LoadError;

/// How far before a pair decoding begins.
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
            Some(Some(site)) => sites.push(site),
            Some(None) => {}
            None => {
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

/// The RDPMC whose opcode is at `pair`, `Some(None)` if there is none, `None` if it is not clear.
fn at(code: &Code, bytes: &[u8], bits: u32, pair: usize) -> Option<Option<Site>> {
    // At the start of a section only its first byte is sure to begin an instruction.
    let starts = if pair < BEFORE { 0..1 } else { pair - BEFORE..pair - BEFORE + STARTS };
    let mut answers = starts.map(|start| from(code, bytes, bits, start, pair));
    let first = answers.next()?;
    answers.all(|answer| answer == first).then_some(first)
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
