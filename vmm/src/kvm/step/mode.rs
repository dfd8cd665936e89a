//! The mode of a vCPU: how its code, stack and vector table are read (SDM vol. 3, 2.2).

use kvm_bindings::{kvm_segment, kvm_sregs};

const CR0_PE: u64 = 1;
const CR0_PG: u64 = 1 << 31;
const EFER_LMA: u64 = 1 << 10;
const RFLAGS_VM: u64 = 1 << 17;

/// The format of the vector table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorTable {
    /// Real mode: 4 bytes, segment and offset.
    RealMode,
    /// Protected mode: 8-byte gates.
    Protected,
    /// IA-32e mode: 16-byte gates.
    Long,
}

/// The mode of a vCPU at one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// Size of code: 16, 32 or 64.
    pub(super) bits: u32,
    /// Format of the vector table.
    pub(super) vectors: VectorTable,
    /// True if linear addresses are translated.
    pub(super) paging: bool,
    /// Current privilege level.
    pub(super) ring: u8,
    /// CS, or the segment value of real mode.
    pub(super) cs: u16,
    cs_base: u64,
    ss_base: u64,
    sp_mask: u64,
}

impl Mode {
    pub(super) const fn of(sregs: &kvm_sregs, rflags: u64) -> Self {
        let long = sregs.efer & EFER_LMA != 0;
        let real = sregs.cr0 & CR0_PE == 0;
        let virtual8086 = !real && !long && rflags & RFLAGS_VM != 0;
        let bits = match (&sregs.cs, real || virtual8086) {
            (_, true) => 16,
            (kvm_segment { l: 1, .. }, _) if long => 64,
            (kvm_segment { db: 1, .. }, _) => 32,
            _ => 16,
        };
        Self {
            bits,
            vectors: if long {
                VectorTable::Long
            } else if real {
                VectorTable::RealMode
            } else {
                VectorTable::Protected
            },
            paging: sregs.cr0 & CR0_PG != 0,
            ring: if real {
                0
            } else if virtual8086 {
                3
            } else {
                (sregs.cs.selector & 3) as u8
            },
            cs: sregs.cs.selector,
            cs_base: if bits == 64 { 0 } else { sregs.cs.base },
            ss_base: if bits == 64 { 0 } else { sregs.ss.base },
            sp_mask: match (bits, sregs.ss.db) {
                (64, _) => u64::MAX,
                (_, 1) => 0xffff_ffff,
                _ => 0xffff,
            },
        }
    }

    /// Returns whether the vCPU is in ring 3.
    pub(super) const fn ring3(&self) -> bool {
        self.ring == 3
    }

    /// Returns the mode in the ring of the interrupted code.
    pub(super) const fn in_ring3(self, ring3: bool) -> Self {
        Self { ring: if ring3 { 3 } else { 0 }, ..self }
    }

    /// Returns the linear address of code at `rip`.
    pub(super) const fn code(&self, rip: u64) -> u64 {
        if self.bits == 64 { rip } else { self.cs_base.wrapping_add(rip) & 0xffff_ffff }
    }

    /// Returns whether two values of RSP are the same stack pointer.
    pub(super) const fn same_stack(&self, one: u64, other: u64) -> bool {
        (one ^ other) & self.sp_mask == 0
    }

    /// Returns the linear address of the stack at `rsp`.
    pub(super) const fn stack(&self, rsp: u64) -> u64 {
        let linear = self.ss_base.wrapping_add(rsp & self.sp_mask);
        if self.bits == 64 { linear } else { linear & 0xffff_ffff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::vcpu;

    #[test]
    fn code_size_and_tables_follow_cr0_efer_and_cs() {
        let mut sregs = kvm_sregs::default();
        (sregs.cs.base, sregs.cs.selector, sregs.ss.base) = (0xf_0000, 0xf003, 0x2_0000);
        let real = Mode::of(&sregs, 2);
        assert_eq!((real.bits, real.vectors, real.ring, real.paging), (16, VectorTable::RealMode, 0, false));
        assert_eq!((real.code(0xfff0), real.stack(0x1_0004)), (0xf_fff0, 0x2_0004));

        vcpu::enter_protected_mode(&mut sregs);
        let flat = Mode::of(&sregs, 2);
        assert_eq!((flat.bits, flat.vectors, flat.ring3()), (32, VectorTable::Protected, false));
        assert_eq!(flat.code(0x1_0010_0000), 0x10_0000);
        (sregs.cs.base, sregs.cs.db) = (0xffff_fff0, 0);
        assert_eq!((Mode::of(&sregs, 2).bits, Mode::of(&sregs, 2).code(0x20)), (16, 0x10));
        assert_eq!((Mode::of(&sregs, 2 | RFLAGS_VM).bits, Mode::of(&sregs, 2 | RFLAGS_VM).ring), (16, 3));

        vcpu::enter_64_bit_mode(&mut sregs, 0x9000);
        (sregs.cs.base, sregs.cs.selector) = (0x5000, 0x33);
        let long = Mode::of(&sregs, 2);
        assert_eq!((long.bits, long.vectors, long.ring3(), long.paging), (64, VectorTable::Long, true, true));
        assert_eq!(long.code(0xffff_8000_0000_0000), 0xffff_8000_0000_0000);
        // Compatibility mode.
        (sregs.cs.l, sregs.cs.db, sregs.cs.base) = (0, 1, 0);
        let compatibility = Mode::of(&sregs, 2);
        assert_eq!((compatibility.bits, compatibility.vectors), (32, VectorTable::Long));
    }
}
