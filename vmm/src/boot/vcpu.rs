//! The first vCPU's registers, without descriptor tables: 32-bit protected mode for an image, 64-bit mode for Linux.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

/// Returns 64-bit page tables (SDM vol. 3, 4.5), to be placed at `base`, that map the first 4 GiB at their own addresses.
pub fn identity_map(base: u64) -> Vec<u8> {
    /// Present and writable; and, of a directory's entry, 2 MiB.
    const TABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7 | TABLE;
    let table = |number: u64| (base + 0x1000 * number) | TABLE;
    let mut words = vec![0; 2 * 512];
    words[0] = table(1);
    for gib in 0..4 {
        words[512 + gib as usize] = table(2 + gib);
    }
    words.extend((0..4 * 512).map(|number| number << 21 | LARGE));
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Sets flat 64-bit segments and paging by `cr3`; interrupts are off.
pub fn enter_64_bit_mode(sregs: &mut kvm_sregs, cr3: u64) {
    flat(sregs, true);
    // PG ET PE; PAE; LMA LME.
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8000_0011, cr3, 1 << 5, 1 << 10 | 1 << 8);
}

/// Sets flat 32-bit segments; paging and interrupts are off.
pub fn enter_protected_mode(sregs: &mut kvm_sregs) {
    flat(sregs, false);
    // ET PE.
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x11, 0, 0, 0);
}

fn flat(sregs: &mut kvm_sregs, long: bool) {
    let data = segment(0x10, DATA, false);
    sregs.cs = segment(0x08, CODE, long);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
}

/// Returns the registers at the first instruction; there is no stack.
pub fn registers(rip: u64) -> kvm_regs {
    // Bit 1 of RFLAGS always reads as one.
    kvm_regs { rip, rflags: 2, ..kvm_regs::default() }
}

/// Type of a code segment: execute, read, accessed.
const CODE: u8 = 11;
/// Type of a data segment: read, write, accessed.
const DATA: u8 = 3;

/// Creates a segment of 64-bit code if `long`, else of 32 bits.
fn segment(selector: u16, type_: u8, long: bool) -> kvm_segment {
    kvm_segment {
        selector,
        type_,
        limit: u32::MAX,
        present: 1,
        s: 1,
        g: 1,
        l: long.into(),
        db: (!long).into(),
        ..kvm_segment::default()
    }
}
