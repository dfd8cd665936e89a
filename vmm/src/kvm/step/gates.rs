//! The handlers in a guest's vector table, and the descriptors they refer to (SDM vol. 3, 6.10 to 6.14, 21.1.4).

use kvm_bindings::{kvm_segment, kvm_sregs};

use super::mode::{Mode, VectorTable};
use super::view::View;

/// Vectors of a table at most.
pub(super) const VECTORS: usize = 256;

/// A handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handler {
    pub(super) vector: u8,
    /// Linear address of its first instruction.
    pub(super) linear: u64,
    /// Its offset in its code segment: RIP there.
    pub(super) rip: u64,
    /// Bytes of a word of the frame that a delivery pushes: 2, 4 or 8.
    pub(super) word: u8,
}

/// Reads the vector table, and behind it the descriptor tables where gates refer to segments with a base. Returns the
/// length of the vector table.
pub(super) fn table(sregs: &kvm_sregs, mode: Mode, view: &View<'_>, bytes: &mut Vec<u8>) -> usize {
    let entry = entry_size(mode.vectors);
    let length = (usize::from(sregs.idt.limit) + 1).min(VECTORS * entry);
    bytes.clear();
    bytes.resize(length, 0);
    let vectors = view.read(sregs.idt.base, bytes);
    bytes.truncate(vectors);
    if mode.vectors == VectorTable::Protected {
        let ldt = (sregs.ldt.selector & !3 != 0).then_some((sregs.ldt.base, sregs.ldt.limit));
        for (base, limit) in [Some((sregs.gdt.base, u32::from(sregs.gdt.limit))), ldt].into_iter().flatten() {
            let from = bytes.len();
            bytes.resize(from + (limit as usize).min(0xffff) + 1, 0);
            let got = view.read(base, &mut bytes[from..]);
            bytes.truncate(from + got);
        }
    }
    vectors
}

const fn entry_size(vectors: VectorTable) -> usize {
    match vectors {
        VectorTable::RealMode => 4,
        VectorTable::Protected => 8,
        VectorTable::Long => 16,
    }
}

/// Reads the handlers of a table.
///
/// # Errors
/// The vector of a task gate: its handler has no address, and its delivery saves no frame.
pub(super) fn handlers(bytes: &[u8], sregs: &kvm_sregs, mode: Mode, view: &View<'_>) -> Result<Vec<Handler>, u8> {
    let entries = || bytes.chunks_exact(entry_size(mode.vectors)).take(VECTORS).enumerate();
    // Present, a system descriptor, type 5.
    let task = entries().find(|(_, entry)| mode.vectors == VectorTable::Protected && entry[5] & 0x9f == 0x85);
    match task {
        Some((vector, _)) => Err(vector as u8),
        None => Ok(entries().filter_map(|(vector, entry)| handler(vector as u8, entry, sregs, mode, view)).collect()),
    }
}

fn handler(vector: u8, entry: &[u8], sregs: &kvm_sregs, mode: Mode, view: &View<'_>) -> Option<Handler> {
    let half = |at: usize| u64::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
    if mode.vectors == VectorTable::RealMode {
        let (rip, segment) = (half(0), half(2));
        return Some(Handler { vector, linear: (segment << 4) + rip, rip, word: 2 });
    }
    let kind = entry[5];
    let (present, system) = (kind & 0x80 != 0, kind & 0x10 == 0);
    // Interrupt and trap gates: of 32 or 64 bits (0xE, 0xF), of 16 bits (6, 7).
    let wide = match kind & 0xf {
        0xe | 0xf => true,
        6 | 7 if mode.vectors == VectorTable::Protected => false,
        _ => return None,
    };
    if !present || !system {
        return None;
    }
    let low = half(0) | if wide { half(6) << 16 } else { 0 };
    if mode.vectors == VectorTable::Long {
        let rip = low | (half(8) | half(10) << 16) << 32;
        return Some(Handler { vector, linear: rip, rip, word: 8 });
    }
    let base = descriptor(sregs, half(2) as u16, view).map_or(0, |segment| segment.base);
    Some(Handler { vector, linear: base.wrapping_add(low) & 0xffff_ffff, rip: low, word: if wide { 4 } else { 2 } })
}

/// Reads the segment that `selector` names in the GDT or the LDT, as a loaded segment register.
pub(super) fn descriptor(sregs: &kvm_sregs, selector: u16, view: &View<'_>) -> Option<kvm_segment> {
    let (base, limit) = if selector & 4 == 0 {
        (sregs.gdt.base, u32::from(sregs.gdt.limit))
    } else {
        (sregs.ldt.base, sregs.ldt.limit)
    };
    let offset = selector & !7;
    if offset == 0 || u32::from(offset) + 7 > limit {
        return None;
    }
    let raw = view.word(base.wrapping_add(offset.into()), 8)?;
    let bit = |n: u32| (raw >> n & 1) as u8;
    let limit = (raw & 0xffff | raw >> 32 & 0xf_0000) as u32;
    Some(kvm_segment {
        base: raw >> 16 & 0xff_ffff | raw >> 32 & 0xff00_0000,
        limit: if bit(55) == 1 { limit << 12 | 0xfff } else { limit },
        selector,
        type_: (raw >> 40 & 0xf) as u8,
        present: bit(47),
        dpl: (raw >> 45 & 3) as u8,
        db: bit(54),
        s: bit(44),
        l: bit(53),
        g: bit(55),
        avl: bit(52),
        ..kvm_segment::default()
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;
    use crate::boot::{payload, vcpu};

    fn found(sregs: &kvm_sregs, memory: &GuestMemoryMmap) -> Vec<Handler> {
        try_found(sregs, memory).unwrap()
    }

    fn try_found(sregs: &kvm_sregs, memory: &GuestMemoryMmap) -> Result<Vec<Handler>, u8> {
        let (identity, mode) = (|linear| Some(linear), Mode::of(sregs, 2));
        let view = View::new(memory, &identity);
        let mut bytes = Vec::new();
        let vectors = table(sregs, mode, &view, &mut bytes);
        handlers(&bytes[..vectors], sregs, mode, &view)
    }

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap()
    }

    #[test]
    fn gates_of_64_bits() {
        let memory = memory();
        for (word, at) in payload::gate(2, 0x11_2233_4455).into_iter().zip([32, 40]) {
            memory.write_slice(&word.to_le_bytes(), GuestAddress(0x1000 + at)).unwrap();
        }
        let mut sregs = kvm_sregs::default();
        vcpu::enter_64_bit_mode(&mut sregs, 0);
        (sregs.idt.base, sregs.idt.limit) = (0x1000, 0xfff);
        let handler = Handler { vector: 2, linear: 0x11_2233_4455, rip: 0x11_2233_4455, word: 8 };
        assert_eq!(found(&sregs, &memory), [handler], "the others are not present");
        sregs.idt.limit = 46;
        assert_eq!(found(&sregs, &memory), [], "beyond the limit");
        sregs.idt.base = u64::MAX - 5;
        assert_eq!(found(&sregs, &memory), []);
    }

    #[test]
    fn gates_of_32_and_16_bits_lie_in_their_segment() {
        let memory = memory();
        // Selector 8: flat; selector 16: base 0x0012_3000.
        let gdt = [0, 0x00cf_9b00_0000_ffff_u64, 0x004f_9b12_3000_ffff];
        for (i, entry) in gdt.iter().enumerate() {
            memory.write_slice(&entry.to_le_bytes(), GuestAddress(0x2000 + 8 * i as u64)).unwrap();
        }
        let gate =
            |offset: u64, selector: u64, kind: u64| offset & 0xffff | selector << 16 | kind << 40 | offset >> 16 << 48;
        for (vector, gate) in [
            (13, gate(0x12_3456, 8, 0x8e)),
            (14, gate(0x9999, 16, 0x86)),
            (15, gate(1, 8, 0x05)),
            (16, gate(1, 8, 0x0e)),
        ] {
            memory.write_slice(&gate.to_le_bytes(), GuestAddress(0x1000 + 8 * vector)).unwrap();
        }
        let mut sregs = kvm_sregs::default();
        vcpu::enter_protected_mode(&mut sregs);
        (sregs.idt.base, sregs.idt.limit) = (0x1000, 0x7ff);
        (sregs.gdt.base, sregs.gdt.limit) = (0x2000, 23);
        assert_eq!(
            found(&sregs, &memory),
            [
                Handler { vector: 13, linear: 0x12_3456, rip: 0x12_3456, word: 4 },
                Handler { vector: 14, linear: 0x12_c999, rip: 0x9999, word: 2 },
            ]
        );
        let (identity, mode) = (|linear| Some(linear), Mode::of(&sregs, 2));
        let view = View::new(&memory, &identity);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        assert_eq!(table(&sregs, mode, &view, &mut before), 0x800);
        memory.write_slice(&0x004f_9b12_4000_ffff_u64.to_le_bytes(), GuestAddress(0x2010)).unwrap();
        table(&sregs, mode, &view, &mut after);
        assert_ne!(before, after, "a segment of a handler has moved");
        memory.write_slice(&gate(1, 8, 0x85).to_le_bytes(), GuestAddress(0x1000 + 8 * 15)).unwrap();
        assert_eq!(try_found(&sregs, &memory), Err(15), "a task gate");
    }

    #[test]
    fn vectors_of_real_mode() {
        let memory = memory();
        memory.write_slice(&0x1234_0010_u32.to_le_bytes(), GuestAddress(8)).unwrap();
        let mut sregs = kvm_sregs::default();
        sregs.idt.limit = 0x3ff;
        let found = found(&sregs, &memory);
        assert_eq!((found.len(), found[2]), (256, Handler { vector: 2, linear: 0x1_2350, rip: 0x10, word: 2 }));
    }

    #[test]
    fn descriptors_are_taken_apart() {
        let memory = memory();
        memory.write_slice(&0x00af_fb00_0000_ffff_u64.to_le_bytes(), GuestAddress(0x18)).unwrap();
        let mut sregs = kvm_sregs::default();
        sregs.gdt.limit = 0x1f;
        let identity = |linear| Some(linear);
        let view = View::new(&memory, &identity);
        let user = descriptor(&sregs, 0x1b, &view).unwrap();
        assert_eq!((user.dpl, user.l, user.db, user.type_, user.s, user.g), (3, 1, 0, 11, 1, 1));
        assert_eq!((user.base, user.limit, user.selector, user.present), (0, u32::MAX, 0x1b, 1));
        assert_eq!((descriptor(&sregs, 0x20, &view), descriptor(&sregs, 3, &view)), (None, None));
    }
}
