//! Selects the MSRs that exit to userspace: exactly the PMU's.

use arch_pmu::msr;
use arch_pmu::spec::Vendor;
use kvm_ioctls::{MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};

use super::other_msrs::{ADDRESS_RANGES, EFER, RDPMC_RANGES};
/// A cleared bit makes the access exit. No range has more than 64 registers, so one bitmap serves them all. The kernel reads
/// whole longs: padded to 8 bytes.
const EXIT_ALL: [u8; 8] = [0; 8];

/// Returns whether an access to MSR `index` exits, for a guest with a PMU of `vendor`.
pub fn exits(vendor: Vendor, index: u32) -> bool {
    msr::ranges(vendor).iter().any(|&(base, count)| index.wrapping_sub(base) < count)
}

/// Exits beside the PMU's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Also {
    /// Reads of the indices that rewritten RDPMCs use.
    pub(crate) rdpmc: bool,
    /// Writes of registers that hold an address.
    pub(crate) addresses: bool,
    /// Writes of EFER, which has SVME.
    pub(crate) efer: bool,
}

/// Installs the filter.
pub(crate) fn install(vm: &VmFd, vendor: Vendor, also: Also) -> Result<(), kvm_ioctls::Error> {
    let (read, write) = (MsrFilterRangeFlags::READ, MsrFilterRangeFlags::WRITE);
    let rdpmc: &[_] = if also.rdpmc { &RDPMC_RANGES } else { &[] };
    let addresses: &[_] = if also.addresses { &ADDRESS_RANGES } else { &[] };
    let efer: &[_] = if also.efer { &[(EFER, 1)] } else { &[] };
    let ranges: Vec<_> = [(&msr::ranges(vendor)[..], read | write), (rdpmc, read), (addresses, write), (efer, write)]
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
        fn the_filter_is_the_vpmus_decoder(
            index in prop_oneof![0..0x1000u32, 0xc000_0200..0xc000_0400u32, 0xc001_0000..0xc001_0300u32, any::<u32>()]
        ) {
            let exits = [Vendor::Intel, Vendor::Amd].map(|vendor| exits(vendor, index));
            prop_assert_eq!(exits[0] != exits[1], PmuMsr::decode(index).is_some(), "{:#x}", index);
            prop_assert!(exits != [true, true]);
        }
    }

    #[test]
    fn ranges_fit_one_bitmap_and_spare_the_x2apic() {
        for vendor in [Vendor::Intel, Vendor::Amd] {
            let pmu = msr::ranges(vendor);
            assert!(pmu.len() + RDPMC_RANGES.len() + ADDRESS_RANGES.len() < 16, "KVM_MSR_FILTER_MAX_RANGES");
            for (base, count) in pmu.into_iter().chain(RDPMC_RANGES).chain(ADDRESS_RANGES) {
                assert!(count <= 64);
                assert!(base + count <= 0x800 || base >= 0x900, "KVM refuses filters on x2APIC MSRs");
            }
        }
    }
}
