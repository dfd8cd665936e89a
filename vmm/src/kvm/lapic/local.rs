//! The LAPIC of one vCPU, in KVM, through which PMIs are delivered.
//!
//! A PMI by NMI in x2APIC mode takes two calls: KVM_GET_MSRS reads LVTPC, and one KVM_SET_MSRS masks it and writes ICR,
//! which sends the NMI. The read cannot be left out, because the guest's unmask is no exit: KVM keeps no filter for the
//! MSRs of an x2APIC. The NMI cannot come with the entry (KVM_CAP_SYNC_REGS): KVM_SYNC_X86_EVENTS replaces the count of
//! NMIs that wait, those that other vCPUs sent meanwhile among them, and needs the vCPU's events of before, at each exit
//! or by a call of its own.
//!
//! The write to ICR has one side effect: a guest that reads its ICR back finds this NMI in place of the last interrupt
//! that it sent itself. Nothing that was sent is sent again or lost; in x2APIC mode a write is sent at once, and there
//! is no status to wait for.

use arch_pmu::pmi::{Delivery, Lvtpc};
use kvm_bindings::{Msrs, kvm_lapic_state, kvm_msi, kvm_msr_entry};
use kvm_ioctls::{VcpuFd, VmFd};

use super::page::is_active;
use super::{Mode, PmiPort};
use crate::kvm::host::ioctl_failed;
use crate::kvm::tsc::TickClock;
use crate::outcome::End;
use crate::sys;

/// LVTPC and ICR as MSRs, in x2APIC mode (SDM vol. 3, table 12-6).
const X2APIC_LVTPC: u32 = 0x834;
const X2APIC_ICR: u32 = 0x830;
/// ICR: an NMI (SDM vol. 3, 12.6.1), asserted, to one physical x2APIC ID, which is in the upper half.
const NMI_TO: u64 = 1 << 14 | 0b100 << 8;

/// Room for KVM_GET_MSRS and KVM_SET_MSRS of the LAPIC in x2APIC mode, made once per vCPU.
#[derive(Debug)]
pub(crate) struct X2ApicMsrs {
    lvtpc: Msrs,
    /// LVTPC, and an NMI to this vCPU by its ICR: one call for both.
    lvtpc_and_nmi: Msrs,
}

impl X2ApicMsrs {
    /// Prepares the calls for the vCPU with this APIC ID.
    pub(crate) fn new(apic_id: u32) -> Option<Self> {
        let entry = |index, data| kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
        let (lvtpc, icr) = (entry(X2APIC_LVTPC, 0), entry(X2APIC_ICR, u64::from(apic_id) << 32 | NMI_TO));
        let msrs = |entries: &[kvm_msr_entry]| Msrs::from_entries(entries).ok();
        Some(Self { lvtpc: msrs(&[lvtpc])?, lvtpc_and_nmi: msrs(&[lvtpc, icr])? })
    }
}

fn put(msrs: &mut Msrs, lvtpc: Lvtpc) {
    if let Some(entry) = msrs.as_mut_slice().first_mut() {
        entry.data = lvtpc.into_bits().into();
    }
}

fn refused() -> End {
    End::Host("KVM_SET_MSRS refused LVTPC".to_owned())
}

/// The LAPIC of one vCPU, in KVM.
pub(crate) struct LocalApic<'a> {
    pub(crate) fd: &'a mut VcpuFd,
    pub(crate) vm: &'a VmFd,
    pub(crate) apic_id: u32,
    pub(crate) msrs: Option<&'a mut X2ApicMsrs>,
    /// Host TSC at the last return of KVM_RUN, and at the last one before which it has looked at the LAPIC's timer.
    pub(crate) returned_at: [u64; 2],
    pub(crate) clock: TickClock,
}

impl PmiPort for LocalApic<'_> {
    type Error = End;

    fn mode(&mut self) -> Mode {
        Mode::of(self.fd.get_kvm_run().apic_base)
    }

    fn ns_outside(&self) -> (u64, u64) {
        let now = sys::rdtsc();
        let [least, most] = self.returned_at.map(|at| self.clock.ns(now.saturating_sub(at)));
        (least, most)
    }

    fn lvtpc_msr(&mut self) -> Result<Option<Lvtpc>, End> {
        let Some(msrs) = &mut self.msrs else { return Ok(None) };
        // A KVM that does not have the register among its MSRs still has the page.
        let got = self.fd.get_msrs(&mut msrs.lvtpc).map_err(ioctl_failed("KVM_GET_MSRS of LVTPC"))?;
        let first = msrs.lvtpc.as_slice().first();
        Ok(first.filter(|_| got == 1).map(|entry| Lvtpc::from_bits(entry.data as u32)))
    }

    fn set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), End> {
        let msrs = self.msrs.as_mut().ok_or_else(refused)?;
        put(&mut msrs.lvtpc, lvtpc);
        match self.fd.set_msrs(&msrs.lvtpc).map_err(ioctl_failed("KVM_SET_MSRS of LVTPC"))? {
            1 => Ok(()),
            _ => Err(refused()),
        }
    }

    fn nmi_and_set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), End> {
        let msrs = self.msrs.as_mut().ok_or_else(refused)?;
        put(&mut msrs.lvtpc_and_nmi, lvtpc);
        match self.fd.set_msrs(&msrs.lvtpc_and_nmi).map_err(ioctl_failed("KVM_SET_MSRS of LVTPC and ICR"))? {
            2 => Ok(()),
            // Registers are set in their order: LVTPC is set, and no NMI was sent.
            1 => self.nmi(),
            _ => Err(refused()),
        }
    }

    fn lapic(&mut self) -> Result<kvm_lapic_state, End> {
        Ok(self.fd.get_lapic().map_err(ioctl_failed("KVM_GET_LAPIC"))?)
    }

    fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), End> {
        Ok(self.fd.set_lapic(lapic).map_err(ioctl_failed("KVM_SET_LAPIC"))?)
    }

    fn nmi(&mut self) -> Result<(), End> {
        Ok(self.fd.nmi().map_err(ioctl_failed("KVM_NMI"))?)
    }

    fn interrupt(&mut self, vector: u8) -> Result<(), End> {
        let msi = kvm_msi {
            address_lo: 0xfee0_0000 | (self.apic_id & 0xff) << 12,
            data: u32::from(vector),
            ..kvm_msi::default()
        };
        Ok(self.vm.signal_msi(msi).map(|_| ()).map_err(ioctl_failed("KVM_SIGNAL_MSI"))?)
    }

    fn nmi_pending(&mut self) -> Result<bool, End> {
        let nmi = self.fd.get_vcpu_events().map_err(ioctl_failed("KVM_GET_VCPU_EVENTS"))?.nmi;
        Ok(nmi.injected | nmi.pending != 0)
    }

    fn in_handler(&mut self, delivery: Delivery) -> Result<bool, End> {
        match delivery {
            Delivery::Nmi => {
                let nmi = self.fd.get_vcpu_events().map_err(ioctl_failed("KVM_GET_VCPU_EVENTS"))?.nmi;
                Ok(nmi.injected | nmi.pending | nmi.masked != 0)
            }
            Delivery::Fixed(vector) => Ok(is_active(&self.lapic()?, vector)),
            Delivery::Masked | Delivery::Unsupported(_) => Ok(false),
        }
    }
}
