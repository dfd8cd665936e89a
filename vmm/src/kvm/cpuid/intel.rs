//! Leaves of an Intel processor.

use arch_pmu::intel::IntelCaps;
use kvm_bindings::CpuId;

use super::leaf::{BUS_LOCK_DETECT, CpuidFull, DEBUG_STORE, PDCM, RTM_HLE, leaf};

/// "GenuineIntel" in EBX, EDX, ECX.
pub(super) const NAME: [u32; 3] = [0x756e_6547, 0x4965_6e69, 0x6c65_746e];

/// Makes the processor an Intel's with `pmu`.
pub(super) fn adapt(cpuid: &mut CpuId, pmu: IntelCaps) -> Result<(), CpuidFull> {
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            // The Intel PMU driver looks for it, and this host may be AMD.
            0 => [entry.ebx, entry.edx, entry.ecx] = NAME,
            1 => {
                entry.ecx |= PDCM;
                if pmu.debug_store {
                    entry.edx |= DEBUG_STORE;
                }
            }
            7 if entry.index == 0 => {
                // Linux sets that bit where CPUID offers it (`bus_lock_init`), and this vPMU's IA32_DEBUGCTL has none.
                entry.ecx &= !BUS_LOCK_DETECT;
                if !pmu.transactions {
                    entry.ebx &= !RTM_HLE;
                }
            }
            _ => {}
        }
    }
    let entry = leaf(cpuid, 0xa)?;
    [entry.eax, entry.ebx, entry.ecx, entry.edx] = pmu.cpuid_0a();
    Ok(())
}
