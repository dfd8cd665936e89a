//! The guest's code at an instruction, as the guest wrote it: without the traps.

use std::ops::Range;

use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::instruction::{Before, LONGEST_INSTRUCTION};
use super::mode::Mode;
use super::traps::Traps;
use super::view::{View, translation};

const PAGE: u64 = 0x1000;

/// Decodes the instruction at `rip`.
pub(super) fn decode(memory: &GuestMemoryMmap, traps: &Traps, fd: &VcpuFd, mode: Mode, rip: u64) -> Before {
    let translate = translation(fd, mode.paging);
    let view = View::new(memory, &translate);
    let mut bytes = [0; LONGEST_INSTRUCTION];
    let got = read(mode.code(rip), &mut bytes, traps, &view);
    Before::decode(mode.bits, &bytes[..got], rip, mode.ring3())
}

/// Reads code from `linear` on, without the traps. Returns how many bytes were read.
fn read(linear: u64, bytes: &mut [u8], traps: &Traps, view: &View<'_>) -> usize {
    let got = view.read(linear, bytes);
    for (part, physical) in pages(linear, got, view) {
        traps.hide(physical, &mut bytes[part]);
    }
    got
}

/// Removes the traps from an instruction.
pub(super) fn open(memory: &GuestMemoryMmap, traps: &mut Traps, fd: &VcpuFd, mode: Mode, before: &Before) {
    let translate = translation(fd, mode.paging);
    let view = View::new(memory, &translate);
    let ranges = pages(mode.code(before.rip), before.length(), &view);
    let ranges: Vec<_> = ranges.map(|(part, physical)| physical..physical + part.len() as u64).collect();
    traps.open(&ranges, memory);
}

/// Returns for each page of `length` bytes from `linear` on the bytes that lie in it, and the first one's physical address.
fn pages<'v>(linear: u64, length: usize, view: &'v View<'_>) -> impl Iterator<Item = (Range<usize>, u64)> + use<'v> {
    let second = ((PAGE - linear % PAGE) as usize).min(length);
    let parts = [0..second, second..length];
    let translate = view.translate();
    parts.into_iter().filter(|part| !part.is_empty()).filter_map(move |part| {
        let physical = translate(linear.wrapping_add(part.start as u64))?;
        Some((part, physical))
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress};

    use super::super::gates::Handler;
    use super::*;

    #[test]
    fn traps_are_hidden_in_their_own_page_only() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x5000)]).unwrap();
        // Linear 0x1000 is physical 0x1000, linear 0x2000 is physical 0x4000. The trap is at physical 0x2000.
        let code = |linear: u64| Some(if linear < 0x2000 { linear } else { linear + 0x2000 });
        let handlers = |linear: u64| Some(linear - 0x7000);
        memory.write_slice(&[1, 2], GuestAddress(0x1ffe)).unwrap();
        memory.write_slice(&[3, 4], GuestAddress(0x4000)).unwrap();
        memory.write_slice(&[0xaa, 0xbb], GuestAddress(0x2000)).unwrap();
        let mut traps = Traps::default();
        let handler = Handler { vector: 6, linear: 0x9000, rip: 0x9000, word: 8 };
        traps.replace(&[handler], &View::new(&memory, &handlers), &memory).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(read(0x1ffe, &mut bytes, &traps, &View::new(&memory, &code)), 4);
        assert_eq!(bytes, [1, 2, 3, 4]);
        let parts: Vec<_> = pages(0x1ffe, 4, &View::new(&memory, &code)).collect();
        assert_eq!(parts, [(0..2, 0x1ffe), (2..4, 0x4000)]);
        let one: Vec<_> = pages(0x1000, 3, &View::new(&memory, &code)).collect();
        assert_eq!(one, [(0..3, 0x1000)]);
    }
}
