//! The vCPU of a multiboot image: 32-bit protected mode, as a loader leaves it (Multiboot Specification 0.6.96, section 3.2):
//! flat segments, paging and interrupts off.

use kvm_bindings::{kvm_regs, kvm_sregs};

use super::flat::{CODE, DATA, segment};

/// CR0: protection on, and the bit that reads as one.
const CR0: u64 = 0x11;
/// RFLAGS: the bit that reads as one.
const RFLAGS: u64 = 2;

/// Sets flat 32-bit segments; no descriptor table is valid.
pub fn enter_protected_mode(sregs: &mut kvm_sregs) {
    let data = segment(0x10, DATA, false);
    sregs.cs = segment(0x08, CODE, false);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, 0, 0, 0);
}

/// Returns the registers at the first instruction.
#[must_use]
pub fn registers(eip: u32, eax: u32, ebx: u32) -> kvm_regs {
    kvm_regs { rip: eip.into(), rax: eax.into(), rbx: ebx.into(), rflags: RFLAGS, ..kvm_regs::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_multiboots() {
        let mut sregs = kvm_sregs { cr4: 0x20, efer: 0x500, ..kvm_sregs::default() };
        enter_protected_mode(&mut sregs);
        assert_eq!((sregs.cr0 & 0x8000_0001, sregs.cr4, sregs.efer), (1, 0, 0), "protected, no paging");
        assert_eq!((sregs.cs.db, sregs.cs.l, sregs.cs.base, sregs.cs.limit), (1, 0, 0, u32::MAX));
        assert!([sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss].iter().all(|s| s.type_ == 3 && s.limit == u32::MAX));
        let regs = registers(0x10_0000, 0x2bad_b002, 0x9000);
        assert_eq!((regs.rip, regs.rax, regs.rbx, regs.rflags & 0x202), (0x10_0000, 0x2bad_b002, 0x9000, 2));
    }
}
