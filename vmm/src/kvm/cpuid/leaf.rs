//! One leaf, and bits that both vendors' guests have or lack.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use thiserror::Error;

/// 1:EDX: a debug store.
pub(super) const DEBUG_STORE: u32 = 1 << 21;
/// 1:ECX: IA32_PERF_CAPABILITIES.
pub(super) const PDCM: u32 = 1 << 15;
/// 7:EBX: RTM and HLE.
pub(super) const RTM_HLE: u32 = 1 << 4 | 1 << 11;

/// 7:ECX: IA32_DEBUGCTL has a bit for bus locks.
pub(super) const BUS_LOCK_DETECT: u32 = 1 << 24;

/// No place for a leaf in the table that KVM takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this host's KVM supports {KVM_MAX_CPUID_ENTRIES} CPUID entries and lacks one of the PMU's, for which that leaves no place: the \
     guest would see no PMU"
)]
pub struct CpuidFull;

/// Returns the leaf `function`, made if KVM has none.
pub(super) fn leaf(cpuid: &mut CpuId, function: u32) -> Result<&mut kvm_cpuid_entry2, CpuidFull> {
    let at = match cpuid.as_slice().iter().position(|entry| entry.function == function) {
        Some(at) => at,
        None => {
            let entry = kvm_cpuid_entry2 { function, ..kvm_cpuid_entry2::default() };
            cpuid.push(entry).map_err(|_| CpuidFull)?;
            cpuid.as_slice().len() - 1
        }
    };
    Ok(&mut cpuid.as_mut_slice()[at])
}
