//! The handlers in a guest's vector table, and the descriptors of the segments that its frames name (SDM vol. 3, 6.14,
//! 3.4.5).

use kvm_bindings::{kvm_segment, kvm_sregs};

use crate::linear::Space;

/// Vectors of a table at most, and bytes of a gate.
const VECTORS: usize = 256;
const GATE: usize = 16;

/// A handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handler {
    pub(super) vector: u8,
    /// Address of its first instruction.
    pub(super) rip: u64,
}

/// Reads the vector table.
pub(super) fn table(sregs: &kvm_sregs, view: &Space<'_>, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize((usize::from(sregs.idt.limit) + 1).min(VECTORS * GATE), 0);
    let got = view.read(sregs.idt.base, bytes);
    bytes.truncate(got);
}

/// Reads the handlers of a table.
pub(super) fn handlers(bytes: &[u8]) -> Vec<Handler> {
    let (gates, _) = bytes.as_chunks::<GATE>();
    gates.iter().take(VECTORS).enumerate().filter_map(|(vector, gate)| handler(vector as u8, *gate)).collect()
}

/// Takes a gate apart: present, a system descriptor, an interrupt or trap gate.
fn handler(vector: u8, gate: [u8; GATE]) -> Option<Handler> {
    let raw = u128::from_le_bytes(gate);
    let rip = raw & 0xffff | raw >> 32 & 0xffff_ffff_ffff_0000;
    matches!(gate[5] & 0x9f, 0x8e | 0x8f).then_some(Handler { vector, rip: rip as u64 })
}

/// Reads the segment that `selector` names in the GDT, as a loaded segment register.
pub(super) fn descriptor(sregs: &kvm_sregs, selector: u16, view: &Space<'_>) -> Option<kvm_segment> {
    let offset = selector & !7;
    if selector & 4 != 0 || offset == 0 || offset + 7 > sregs.gdt.limit {
        return None;
    }
    let raw = view.word(sregs.gdt.base.wrapping_add(offset.into()), 8)?;
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
    use crate::boot::payload;

    #[test]
    fn gates_that_are_present_have_handlers_and_descriptors_are_taken_apart() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let mut sregs = kvm_sregs::default();
        let space = Space::new(&memory, &sregs);
        for (word, at) in payload::gate(2, 0x11_2233_4455).into_iter().zip([32, 40]) {
            memory.write_slice(&word.to_le_bytes(), GuestAddress(0x1000 + at)).unwrap();
        }
        let mut found = |base, limit| {
            let mut bytes = Vec::new();
            (sregs.idt.base, sregs.idt.limit) = (base, limit);
            table(&sregs, &space, &mut bytes);
            handlers(&bytes)
        };
        assert_eq!(found(0x1000, 0xfff), [Handler { vector: 2, rip: 0x11_2233_4455 }], "the others are not present");
        assert_eq!((found(0x1000, 46), found(u64::MAX - 5, 0xfff)), (vec![], vec![]), "beyond the limit, outside");
        memory.write_slice(&0x00af_fb00_0000_ffff_u64.to_le_bytes(), GuestAddress(0x18)).unwrap();
        sregs.gdt.limit = 0x1f;
        let user = descriptor(&sregs, 0x1b, &space).unwrap();
        assert_eq!((user.dpl, user.l, user.db, user.type_, user.s, user.g), (3, 1, 0, 11, 1, 1));
        assert_eq!((user.base, user.limit, user.selector, user.present), (0, u32::MAX, 0x1b, 1));
        assert_eq!((descriptor(&sregs, 0x20, &space), descriptor(&sregs, 3, &space)), (None, None));
    }
}
