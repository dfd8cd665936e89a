//! IA32_MISC_ENABLE: whether the processor has performance monitoring (SDM vol. 4, table 2-2; vol. 3, 21.2).

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};

/// Fast strings, on at RESET.
const FAST_STRINGS: u64 = 1;
/// Read-only bits with their values: performance monitoring is available, branch trace storage and PEBS are not. A
/// write leaves them as they are, without a fault.
const EMON: u64 = 1 << 7;
const BTS_UNAVAILABLE: u64 = 1 << 11;
const PEBS_UNAVAILABLE: u64 = 1 << 12;
const READ_ONLY: u64 = EMON | BTS_UNAVAILABLE | PEBS_UNAVAILABLE;
/// Thermal control, SpeedStep, MONITOR, CPUID's limit, xTPR, execute-disable, turbo: they keep the value written. None
/// concerns the PMU, and KVM gives none of them an effect beyond CPUID.
const KEPT: u64 = FAST_STRINGS | 1 << 3 | 1 << 16 | 1 << 18 | 1 << 22 | 1 << 23 | 1 << 34 | 1 << 38;

/// IA32_MISC_ENABLE, as KVM has it for a guest with a vPMU (`kvm_set_msr_common`, Linux 6.0).
#[derive(Debug)]
pub(super) struct MiscEnable;

impl Register<Intel> for MiscEnable {
    fn exists(_caps: IntelCaps, _n: usize) -> bool {
        true
    }

    fn reset<H: HostCounters>(state: &mut State<'_, H>) {
        state.registers.misc_enable = FAST_STRINGS;
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.registers.misc_enable | READ_ONLY
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, KEPT | READ_ONLY)?;
        state.registers.misc_enable = value & KEPT;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vpmu;
    use crate::tests::Fake;

    #[test]
    fn a_guest_sees_its_pmu_and_cannot_clear_it() {
        let mut pmu = Vpmu::new(IntelCaps::default(), Fake::default());
        assert_eq!(pmu.rdmsr(0x1a0), Ok(0x1881));
        for (written, reads) in [(0, 0x1880), (1 << 22 | 1, 0x40_1881), (0x1880, 0x1880)] {
            assert_eq!((pmu.wrmsr(0x1a0, written), pmu.rdmsr(0x1a0)), (Ok(()), Ok(reads)));
        }
        assert_eq!(pmu.wrmsr(0x1a0, 1 << 63), Err(GeneralProtection));
        pmu.reset();
        assert_eq!(pmu.rdmsr(0x1a0), Ok(0x1881));
    }
}
