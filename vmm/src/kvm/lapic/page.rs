//! The page of a LAPIC, as KVM_GET_LAPIC gives it: its registers by their offsets (SDM vol. 3, table 12-1).

use arch_pmu::pmi::Lvtpc;
use kvm_bindings::kvm_lapic_state;

/// Processor priority.
pub(in crate::kvm) const PPR: usize = 0xa0;
/// The interrupts in service and the requested ones, 256 bits each.
pub(super) const ISR: usize = 0x100;
pub(in crate::kvm) const IRR: usize = 0x200;
/// The timer's entry, and that of the performance counters.
pub(super) const LVTT: usize = 0x320;
pub(super) const LVTPC: usize = 0x340;
/// The timer's initial count, current count and divider.
pub(super) const TMICT: usize = 0x380;
pub(super) const TMCCT: usize = 0x390;
pub(super) const TDCR: usize = 0x3e0;

/// Returns the register at an offset.
pub(in crate::kvm) fn register(page: &kvm_lapic_state, at: usize) -> u32 {
    let byte = |i: usize| page.regs[at + i].cast_unsigned();
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// Sets the register at an offset.
pub(super) fn set_register(page: &mut kvm_lapic_state, at: usize, value: u32) {
    for (i, byte) in value.to_le_bytes().into_iter().enumerate() {
        page.regs[at + i] = byte.cast_signed();
    }
}

/// Returns the entry of the performance counters.
pub(in crate::kvm) fn lvtpc(page: &kvm_lapic_state) -> Lvtpc {
    Lvtpc::from_bits(register(page, LVTPC))
}

/// Sets the entry of the performance counters.
pub(super) fn set_lvtpc(page: &mut kvm_lapic_state, entry: Lvtpc) {
    set_register(page, LVTPC, entry.into_bits());
}

/// Returns the register of `row` that has a vector's bit, and the bit.
fn place(row: usize, vector: u8) -> (usize, u32) {
    (row + usize::from(vector / 32) * 16, 1 << (vector % 32))
}

/// Requests an interrupt.
pub(super) fn request(page: &mut kvm_lapic_state, vector: u8) {
    let (at, bit) = place(IRR, vector);
    set_register(page, at, register(page, at) | bit);
}

/// Returns whether an interrupt is requested or in service.
pub(super) fn is_active(page: &kvm_lapic_state, vector: u8) -> bool {
    [IRR, ISR].map(|row| place(row, vector)).into_iter().any(|(at, bit)| register(page, at) & bit != 0)
}

/// Returns the highest vector that is requested.
pub(in crate::kvm) fn requested(page: &kvm_lapic_state) -> Option<u32> {
    let word = |n: u32| register(page, IRR + 16 * n as usize);
    (0..8).rev().find(|&n| word(n) != 0).map(|n| 32 * n + word(n).ilog2())
}
