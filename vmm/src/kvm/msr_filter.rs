//! Which MSRs exit to userspace: exactly the PMU's.

use kvm_ioctls::{MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};

use super::foreign::{ADDRESS_RANGES, RDPMC_RANGES};
use arch_pmu::regs::{
    IA32_A_PMC0, IA32_DEBUGCTL, IA32_DS_AREA, IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_PEBS_ENABLE,
    IA32_PERF_CAPABILITIES, IA32_PERFEVTSEL0, IA32_PMC0,
};

/// First MSR and count of each range; all below 64, so that one bitmap of zeros serves them all.
const RANGES: [(u32, u32); 9] = [
    (IA32_PMC0, 8),
    (IA32_PERFEVTSEL0, 8),
    (IA32_DEBUGCTL, 1),
    (IA32_FIXED_CTR0, 4),
    (IA32_PERF_CAPABILITIES, 1),
    // GLOBAL_STATUS, GLOBAL_CTRL, OVF_CTRL, STATUS_SET and INUSE follow FIXED_CTR_CTRL.
    (IA32_FIXED_CTR_CTRL, 6),
    (IA32_PEBS_ENABLE, 1),
    (IA32_A_PMC0, 8),
    (IA32_DS_AREA, 1),
];

/// A cleared bit makes the access exit. The kernel reads whole longs: padded to 8 bytes.
const EXIT_ALL: [u8; 8] = [0; 8];

/// Whether an access to `msr` exits.
#[must_use]
pub fn exits(msr: u32) -> bool {
    RANGES.iter().any(|&(base, count)| msr.wrapping_sub(base) < count)
}

/// What exits beside the PMU's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Also {
    /// Reads of the indices that rewritten RDPMCs use.
    pub(crate) rdpmc: bool,
    /// Writes of registers that hold an address.
    pub(crate) addresses: bool,
}

/// Installs the filter.
pub(crate) fn install(vm: &VmFd, also: Also) -> Result<(), kvm_ioctls::Error> {
    let (read, write) = (MsrFilterRangeFlags::READ, MsrFilterRangeFlags::WRITE);
    let rdpmc: &[_] = if also.rdpmc { &RDPMC_RANGES } else { &[] };
    let addresses: &[_] = if also.addresses { &ADDRESS_RANGES } else { &[] };
    let ranges: Vec<_> = [(&RANGES[..], read | write), (rdpmc, read), (addresses, write)]
        .into_iter()
        .flat_map(|(ranges, flags)| ranges.iter().map(move |&range| (range, flags)))
        .map(|((base, msr_count), flags)| MsrFilterRange { flags, base, msr_count, bitmap: &EXIT_ALL })
        .collect();
    vm.set_msr_filter(MsrFilterDefaultAction::ALLOW, &ranges)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use arch_pmu::PmuMsr;

    proptest! {
        /// Nothing exits that the vPMU does not know, nothing it knows stays in the kernel.
        #[test]
        fn the_filter_is_the_vpmus_decoder(msr in prop_oneof![0..0x1000u32, any::<u32>()]) {
            prop_assert_eq!(exits(msr), PmuMsr::decode(msr).is_some(), "{:#x}", msr);
        }
    }

    #[test]
    fn ranges_fit_one_bitmap_and_spare_the_x2apic() {
        assert!(RANGES.len() + RDPMC_RANGES.len() + ADDRESS_RANGES.len() <= 16, "KVM_MSR_FILTER_MAX_RANGES");
        for (base, count) in RANGES.into_iter().chain(RDPMC_RANGES).chain(ADDRESS_RANGES) {
            assert!(count <= 64);
            assert!(base + count <= 0x800 || base >= 0x900, "KVM refuses filters on x2APIC MSRs");
        }
    }
}
