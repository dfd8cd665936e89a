//! MSR exits of a third-party image beyond the PMU's own registers.
//!
//! # RDPMC
//! An image's RDPMCs may have been rewritten to RDMSR (see [`crate::boot::rdpmc`]). RIP at the exit distinguishes such a
//! site from a true RDMSR of the same index: the site gets RDPMC's answer, the other gets KVM's. The indices that a real
//! RDPMC uses (`RDPMC_RANGES`) exit; a site with another index is answered by KVM as the RDMSR it then is, which is #GP
//! as for RDPMC, unless an MSR of that number exists. At CPL 3 RDMSR is always #GP, whatever CR4.PCE says: a rewritten
//! RDPMC works in ring 0 only.
//!
//! # Addresses that are not canonical
//! WRMSR of such an address to a segment base or an entry point of SYSCALL or SYSENTER is #GP on a processor, and KVM relies
//! on the processor where it does not intercept the write. QEMU's software emulation does not check (host B); there these
//! registers exit and are checked here.
//!
//! # EFER
//! A guest with SVM turns it on there, and counters of its PMU may depend on that.

use arch_pmu::host::HostCounters;
use arch_pmu::{GeneralProtection, PmuMsr, Vpmu, canonical};
use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

use crate::boot::rdpmc::Site;

/// The vCPU behind an exit: its registers, and its access's data in `kvm_run`.
pub(crate) trait ExitedVcpu {
    /// Returns RIP, which is at the instruction that exited.
    fn rip(&self) -> Option<u64>;
    /// Calls KVM_GET_MSRS; `None` if KVM has no such register.
    fn msr(&mut self, index: u32) -> Option<u64>;
    /// Calls KVM_SET_MSRS; false if KVM refuses.
    fn set_msr(&mut self, index: u32, value: u64) -> bool;
    /// Returns the bytes of a port access.
    fn port_data(&mut self) -> &mut [u8];
    /// Returns the bytes of a memory access.
    fn memory_data(&mut self) -> &mut [u8];
    /// Returns the instruction that KVM could not emulate, after an internal error; empty if KVM gave none.
    fn instruction(&mut self) -> Vec<u8>;
}

/// Room for KVM_GET_MSRS and KVM_SET_MSRS of one register.
#[derive(Debug)]
pub(crate) struct OneMsr(Option<Msrs>);

impl OneMsr {
    /// Allocates one entry, which is far below the limit of the type; each access would be refused without it.
    pub(crate) fn new() -> Self {
        Self(Msrs::from_entries(&[kvm_msr_entry::default()]).ok())
    }

    fn set(&mut self, index: u32, data: u64) -> Option<&mut Msrs> {
        let one = self.0.as_mut()?;
        if let [entry] = one.as_mut_slice() {
            (entry.index, entry.data) = (index, data);
        }
        Some(one)
    }

    /// Calls KVM_GET_MSRS.
    pub(crate) fn read(&mut self, fd: &VcpuFd, index: u32) -> Option<u64> {
        let one = self.set(index, 0)?;
        match (fd.get_msrs(one), one.as_slice()) {
            (Ok(1), [entry]) => Some(entry.data),
            _ => None,
        }
    }

    /// Calls KVM_SET_MSRS; returns whether the MSR was written.
    pub(crate) fn write(&mut self, fd: &VcpuFd, index: u32, value: u64) -> bool {
        self.set(index, value).is_some_and(|one| matches!(fd.set_msrs(one), Ok(1)))
    }
}

/// First index and count of what RDPMC may ask for: general-purpose and fixed counters.
pub(crate) const RDPMC_RANGES: [(u32, u32); 2] = [(0, 8), (0x4000_0000, 8)];

/// First MSR and count of registers that hold an address: FS_BASE, GS_BASE, KERNEL_GS_BASE; LSTAR, CSTAR; SYSENTER_ESP,
/// SYSENTER_EIP.
pub(crate) const ADDRESS_RANGES: [(u32, u32); 3] = [(0xc000_0100, 3), (0xc000_0082, 2), (0x175, 2)];

/// The register with SVME, and of its bits LME, which long mode forbids to change, LMA and SVME.
pub(crate) const EFER: u32 = 0xc000_0080;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
pub(super) const EFER_SVME: u64 = 1 << 12;

fn within(ranges: &[(u32, u32)], index: u32) -> bool {
    ranges.iter().any(|&(base, count)| index.wrapping_sub(base) < count)
}

/// The MSR exits of one vCPU of an image.
#[derive(Debug)]
pub(crate) struct OtherMsrs {
    /// Addresses of rewritten RDPMCs, ascending.
    sites: Vec<u64>,
    rdpmcs: u64,
    elsewhere: u64,
}

impl OtherMsrs {
    /// Creates the handling of other MSRs for an image with these rewritten sites.
    pub(crate) fn new(sites: &[Site]) -> Self {
        let mut sites: Vec<u64> = sites.iter().map(|site| site.address).collect();
        sites.sort_unstable();
        Self { sites, rdpmcs: 0, elsewhere: 0 }
    }

    /// Returns the number of rewritten RDPMCs that were answered.
    pub(crate) const fn rdpmcs(&self) -> u64 {
        self.rdpmcs
    }

    /// Returns the number of RDMSRs with an index of RDPMC that were #GP because they were at no rewritten site.
    pub(crate) const fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Answers an RDMSR of `index`.
    pub(crate) fn rdmsr<H: HostCounters, R: ExitedVcpu>(
        &mut self,
        registers: &mut R,
        pmu: &mut Vpmu<H>,
        index: u32,
    ) -> Result<u64, GeneralProtection> {
        // The PMU's own registers need no look at RIP, which is a system call.
        if within(&RDPMC_RANGES, index) {
            if registers.rip().is_some_and(|rip| self.is_site(rip)) {
                self.rdpmcs += 1;
                return pmu.rdpmc(index);
            }
            let value = registers.msr(index);
            self.elsewhere += u64::from(value.is_none());
            return value.ok_or(GeneralProtection);
        }
        if PmuMsr::decode(index).is_some() {
            return pmu.rdmsr(index);
        }
        registers.msr(index).ok_or(GeneralProtection)
    }

    /// Carries out a WRMSR of `value` to `index`.
    pub(crate) fn wrmsr<H: HostCounters, R: ExitedVcpu>(
        registers: &mut R,
        pmu: &mut Vpmu<H>,
        index: u32,
        value: u64,
    ) -> Result<(), GeneralProtection> {
        match index {
            EFER => {
                // KVM checks the reserved bits, and for a write of the VMM's no more.
                let old = registers.msr(EFER).ok_or(GeneralProtection)?;
                if old & EFER_LMA != 0 && (old ^ value) & EFER_LME != 0 {
                    return Err(GeneralProtection);
                }
            }
            _ if within(&ADDRESS_RANGES, index) => canonical(value)?,
            _ => return pmu.wrmsr(index, value),
        }
        if !registers.set_msr(index, value) {
            return Err(GeneralProtection);
        }
        if index == EFER {
            pmu.set_svme(value & EFER_SVME != 0);
        }
        Ok(())
    }

    fn is_site(&self, rip: u64) -> bool {
        self.sites.binary_search(&rip).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_found_by_address() {
        let site = |address| Site { address, length: 2, offset: 0 };
        let other_msrs = OtherMsrs::new(&[site(9), site(5), site(7)]);
        assert!([5, 7, 9].iter().all(|&rip| other_msrs.is_site(rip)));
        assert!(![0, 6, 10].iter().any(|&rip| other_msrs.is_site(rip)));
        assert!(!OtherMsrs::new(&[]).is_site(0));
    }

    #[test]
    fn ranges_hold_their_registers_and_none_of_the_pmu() {
        for index in [0x175, 0x176, 0xc000_0082, 0xc000_0083, 0xc000_0100, 0xc000_0102] {
            assert!(within(&ADDRESS_RANGES, index), "{index:#x}");
        }
        assert!(!within(&ADDRESS_RANGES, 0x174) && !within(&ADDRESS_RANGES, 0xc000_0103));
        for (base, count) in RDPMC_RANGES.into_iter().chain(ADDRESS_RANGES) {
            assert!((base..base + count).all(|index| PmuMsr::decode(index).is_none()));
        }
    }
}
