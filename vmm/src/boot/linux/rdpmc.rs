//! The RDPMCs of a kernel, found by decoding around each byte pair: decoding tens of megabytes takes seconds on an emulated host.
//!
//! Decoding x86 code from the middle of an instruction falls into step with the true instructions after a few of them. Code before a pair
//! is therefore decoded from several neighbouring starts; if all agree on the pair, that is the answer, else the section is decoded as a
//! whole.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction};

use crate::boot::elf::Code;
use crate::boot::rdpmc::{self, PAIR, Site};
use crate::boot::segment::LoadError;

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
    use proptest::prelude::*;

    use super::*;
    use crate::boot::test_elf::TestElf;

    const BASE: u64 = 0x100_0000;

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

    #[test]
    fn one_is_found_among_much_other_code() {
        let other: Vec<u8> = (0..4000).flat_map(|n: usize| PIECES[n * n % 10]).copied().collect();
        let code = [&other[..], &[0x0f, 0x33], &other].concat();
        let (quick, exact) = both(&code);
        assert_eq!(quick, exact);
        assert_eq!(quick.iter().map(|site| site.address).collect::<Vec<_>>(), [BASE + other.len() as u64]);
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_decoding_all(pieces in prop::collection::vec(0_usize..12, 1..2000)) {
            let code: Vec<u8> = pieces.into_iter().flat_map(|piece| PIECES[piece]).copied().collect();
            let (quick, exact) = both(&code);
            prop_assert_eq!(quick, exact);
        }

        /// Starts that never fall into step make the whole section be decoded.
        #[test]
        fn unclear_code_is_decoded_whole(byte: u8, length in 600_usize..2000) {
            let code = [&vec![byte; length][..], &[0x0f, 0x33, 0xc3]].concat();
            let (quick, exact) = both(&code);
            prop_assert!(quick.len() <= 1 && exact.len() <= 1);
        }
    }
}
