//! A kind of guest.

use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VmFd;
use vm_memory::GuestMemoryMmap;

use super::error::MachineError;
use crate::devices::bus::Bus;
use crate::kvm::msr_filter::Also;
use crate::kvm::other_msrs::OtherMsrs;
use crate::outcome::{End, VcpuOutcome};

/// The facts of the run that a guest is loaded for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFacts {
    /// The PMU is emulated in userspace, so that its MSRs exit and RDPMC must be rewritten.
    pub(crate) userspace_pmu: bool,
    /// The host's processor is QEMU's software emulation.
    pub(crate) emulated_host: bool,
}

/// Devices that KVM sets up for a guest beside memory and vCPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InKernel {
    /// KVM's programmable interval timer (8254) with port 0x61.
    pub(crate) pit: bool,
    /// MSRs that exit beside those of the PMU.
    pub(crate) also: Also,
    /// The guest's processor lacks what an emulated host gets wrong.
    pub(crate) without_misemulated: bool,
}

/// A kind of guest: everything about a run that depends on what is run.
///
/// The machine calls the methods in this order: [`load`](Self::load), [`attach`](Self::attach), [`start`](Self::start) for
/// each vCPU; then on each vCPU's thread [`bus`](Self::bus), [`other_msrs`](Self::other_msrs), and at the end
/// [`harvest`](Self::harvest).
pub(crate) trait Guest: Sync {
    /// The devices of one vCPU.
    type Bus<'a>: Bus
    where
        Self: 'a;
    /// Results of one vCPU of this guest beside the common ones.
    type Left: Send;

    /// The most vCPUs that this guest can have.
    const MAX_VCPUS: usize;
    /// Anything but the vCPU's own thread writes to its LAPIC while it runs: other vCPUs by IPIs, an I/O APIC, KVM's timer. Then
    /// a PMI's delivery fetches the LAPIC's page again before it writes it back.
    const SHARES_LAPIC: bool;

    /// Allocates guest memory and puts the guest into it.
    ///
    /// # Errors
    /// The guest cannot be loaded, or the host has no memory.
    fn load(&mut self, facts: RunFacts) -> Result<(GuestMemoryMmap, InKernel), MachineError>;

    /// Connects devices to the VM: their interrupts, their notifications, their threads.
    ///
    /// # Errors
    /// A device cannot be connected.
    fn attach(&mut self, _vm: &VmFd, _memory: &GuestMemoryMmap) -> Result<(), MachineError> {
        Ok(())
    }

    /// Prepares the start of vCPU `cpu`, whose TSC runs at `tsc_khz`; `sregs` hold the reset state and are adapted. Returns the
    /// registers with which it is runnable at once; `None`: it waits for a start-up IPI (INIT, SIPI).
    ///
    /// # Errors
    /// The vCPU's memory cannot be prepared.
    fn start(
        &self,
        cpu: usize,
        tsc_khz: u64,
        sregs: &mut kvm_sregs,
        memory: &GuestMemoryMmap,
    ) -> Result<Option<kvm_regs>, MachineError>;

    /// Returns the devices of a vCPU.
    fn bus(&self) -> Self::Bus<'_>;

    /// Returns whether the guest says that its counters counted; one that says nothing is judged by those who talk to it.
    fn counted(_left: &Self::Left) -> bool {
        false
    }

    /// Returns the MSR exits of a vCPU beyond the PMU's registers; `None` if there are none.
    fn other_msrs(&self) -> Option<OtherMsrs> {
        None
    }

    /// Returns the number of PMI deliveries whose time is kept.
    fn deliveries(&self) -> usize {
        0
    }

    /// Collects what vCPU `cpu` left in a turn, or in a run without turns. `end` may be refined by it.
    ///
    /// # Errors
    /// Guest memory cannot be read.
    fn harvest(
        &self,
        cpu: usize,
        tsc_khz: u64,
        end: &mut End,
        bus: &mut Self::Bus<'_>,
        memory: &GuestMemoryMmap,
    ) -> Result<Self::Left, MachineError>;

    /// Rests vCPU `cpu`, which ended a turn and left this: waits for the next one, and prepares `memory` for it.
    /// `false`: none follows, and the vCPU stops.
    ///
    /// # Errors
    /// Guest memory cannot be written.
    fn rest(
        &self,
        _cpu: usize,
        _turn: VcpuOutcome<Self::Left>,
        _memory: &GuestMemoryMmap,
    ) -> Result<bool, MachineError> {
        Ok(false)
    }

    /// Ends the [`rest`](Self::rest) of all vCPUs for good.
    fn stop_resting(&self) {}
}
