//! The vCPU loop: KVM_RUN, exits, PMIs.
//!
//! Order of one entry, as in KVM's `vcpu_enter_guest`: overflows the kick told of, the vPMU's deferred work, the PMI, then
//! the guest. Between the return of KVM_RUN and the next one nothing allocates, locks, logs or formats.

use std::sync::atomic::{AtomicBool, Ordering};

use guest::abi::PHASES;
use hdrhistogram::Histogram;
use host_pmu::side::HostPmu;
use host_pmu::stats::ns_histogram;
use kvm_bindings::Msrs;
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use vm_memory::GuestMemoryMmap;

use super::foreign::ForeignMsrs;
use super::lapic::{self, LocalApic};
use super::step::{Go, Stepper};
use super::tsc::TickClock;
use crate::devices::bus::{Bus, Next};
use crate::outcome::{End, MsrExits, PmiStats};
use crate::sys::{self, KickGuard};
use arch_pmu::Vpmu;
use arch_pmu::exits::MsrStats;
use arch_pmu::pmi::Delivery;
use host_pmu::stats::{PhaseTally, Phases};

/// Deliveries whose time is kept, at most.
const DELIVERIES_PER_LOG_ENTRY: usize = 2;

/// What a vCPU is made of.
#[derive(Debug)]
pub(crate) struct Parts<'a, H, B> {
    pub(crate) vm: &'a VmFd,
    pub(crate) fd: VcpuFd,
    pub(crate) apic_id: u32,
    pub(crate) pmu: Vpmu<H>,
    pub(crate) bus: B,
    /// What exits beside the PMU's registers, and whose LAPIC others write to: somebody else's image.
    pub(crate) foreign: Option<ForeignMsrs>,
    pub(crate) tsc_khz: u64,
    /// Room for the times of this many deliveries, times [`DELIVERIES_PER_LOG_ENTRY`].
    pub(crate) log_entries: usize,
    /// The vCPU stops when this is set and it is kicked.
    pub(crate) stop: &'a AtomicBool,
}

/// A vCPU and everything its thread touches.
#[derive(Debug)]
pub(crate) struct Vcpu<'a, H, B> {
    vm: &'a VmFd,
    fd: VcpuFd,
    apic_id: u32,
    pmu: Vpmu<H>,
    stop: &'a AtomicBool,
    bus: B,
    foreign: Option<ForeignMsrs>,
    lvtpc_msr: Option<Msrs>,
    stats: LoopStats,
    stepper: Option<Stepper<'a>>,
    #[cfg(feature = "planted-slowdown")]
    planted: super::planted::Planted,
}

/// What the loop notes.
#[derive(Debug)]
struct LoopStats {
    clock: TickClock,
    pmi: PmiStats,
    msr: MsrStats,
    phases: Phases<PHASES>,
    deliveries: Vec<u64>,
    exit_path_ns: Histogram<u64>,
    empty_kicks: u64,
}

impl LoopStats {
    fn count_msr(&mut self, msr: u32, write: bool, fault: bool) {
        self.msr.count(msr, write, fault);
        self.phases.exit(write);
    }
}

/// What a vCPU's loop leaves.
#[derive(Debug)]
pub(crate) struct LoopOutcome<H, B> {
    pub(crate) end: End,
    pub(crate) host: H,
    pub(crate) bus: B,
    /// RDPMCs of an image that were answered.
    pub(crate) rdpmcs: u64,
    pub(crate) pmi: PmiStats,
    pub(crate) msr_exits: Vec<MsrExits>,
    pub(crate) deliveries: Vec<u64>,
    pub(crate) exit_path_ns: Histogram<u64>,
    pub(crate) empty_kicks: u64,
    pub(crate) signals: u64,
    pub(crate) phases: [PhaseTally; PHASES],
}

impl<'a, H: HostPmu, B: Bus> Vcpu<'a, H, B> {
    pub(crate) fn new(parts: Parts<'a, H, B>) -> Self {
        let stats = LoopStats {
            clock: TickClock::new(parts.tsc_khz),
            pmi: PmiStats::default(),
            msr: MsrStats::default(),
            phases: Phases::default(),
            deliveries: Vec::with_capacity(parts.log_entries.saturating_mul(DELIVERIES_PER_LOG_ENTRY)),
            exit_path_ns: ns_histogram(),
            empty_kicks: 0,
        };
        Self {
            vm: parts.vm,
            fd: parts.fd,
            apic_id: parts.apic_id,
            pmu: parts.pmu,
            stop: parts.stop,
            bus: parts.bus,
            lvtpc_msr: lapic::x2apic_lvtpc(),
            foreign: parts.foreign,
            stats,
            stepper: None,
            #[cfg(feature = "planted-slowdown")]
            planted: super::planted::Planted::new(parts.tsc_khz),
        }
    }

    /// Lets a host side that wants it see each instruction; `memory` holds the guest's code.
    pub(crate) fn step_in(&mut self, memory: &'a GuestMemoryMmap) {
        self.stepper = self.pmu.host().stepper().is_some().then(|| Stepper::new(memory));
    }

    /// Runs the guest until it is done, fails, or is stopped.
    pub(crate) fn run(mut self) -> LoopOutcome<H, B> {
        let guard = KickGuard::new(&mut self.fd);
        let end = self.run_loop();
        let signals = sys::kicks();
        drop(guard);
        let pmu = self.pmu.stats();
        let phases = self.stats.phases.finish(self.pmu.host().ops());
        LoopOutcome {
            end,
            phases,
            host: self.pmu.into_host(),
            bus: self.bus,
            rdpmcs: self.foreign.map_or(0, |foreign| foreign.rdpmcs()),
            pmi: PmiStats { overflows: pmu.overflows, pmi_requests: pmu.pmi_requests, ..self.stats.pmi },
            msr_exits: self.stats.msr.exits(),
            deliveries: self.stats.deliveries,
            exit_path_ns: self.stats.exit_path_ns,
            empty_kicks: self.stats.empty_kicks,
            signals,
        }
    }

    fn run_loop(&mut self) -> End {
        // Host TSC at which KVM_RUN returned: an overflow that is found before the next entry was seen then.
        let mut returned_at = sys::rdtsc();
        // The same, if it returned with an MSR exit.
        let mut msr_exit_at = None;
        loop {
            self.fd.set_kvm_immediate_exit(0);
            if sys::take_kick() {
                if self.stop.load(Ordering::Relaxed) {
                    return End::Stopped;
                }
                self.stats.empty_kicks += u64::from(self.pmu.kick() == 0);
            }
            self.pmu.enter();
            if self.pmu.take_pmi()
                && let Err(end) = self.deliver_pmi(returned_at)
            {
                return end;
            }
            if let Some(at) = msr_exit_at.take() {
                #[cfg(feature = "planted-slowdown")]
                self.planted.spin(at);
                self.stats.exit_path_ns.saturating_record(self.stats.clock.ns(sys::rdtsc() - at));
            }
            if let Some(stepper) = &mut self.stepper
                && let Some(counts) = self.pmu.host().stepper()
            {
                match stepper.before_entry(&mut self.fd, counts) {
                    Ok(Go::Enter) => {}
                    Ok(Go::Retired { due }) => {
                        if due {
                            self.pmu.kick();
                        }
                        continue;
                    }
                    Err(end) => return end,
                }
            }
            let exit = self.fd.run();
            returned_at = sys::rdtsc();
            let (pmu, stats) = (&mut self.pmu, &mut self.stats);
            let next = match exit {
                Ok(VcpuExit::X86Wrmsr(exit)) if self.foreign.is_some() => {
                    let (index, value) = (exit.index, exit.data);
                    self.foreign_wrmsr(index, value);
                    Next::Continue
                }
                Ok(VcpuExit::X86Rdmsr(exit)) if self.foreign.is_some() => {
                    let index = exit.index;
                    self.foreign_rdmsr(index);
                    Next::Continue
                }
                Ok(VcpuExit::X86Wrmsr(exit)) => {
                    left_within(&mut self.stepper, pmu);
                    let fault = pmu.wrmsr(exit.index, exit.data).is_err();
                    *exit.error = u8::from(fault);
                    stats.count_msr(exit.index, true, fault);
                    msr_exit_at = Some(returned_at);
                    Next::Continue
                }
                Ok(VcpuExit::X86Rdmsr(exit)) => {
                    left_within(&mut self.stepper, pmu);
                    let value = pmu.rdmsr(exit.index);
                    *exit.data = value.unwrap_or(0);
                    *exit.error = u8::from(value.is_err());
                    stats.count_msr(exit.index, false, value.is_err());
                    msr_exit_at = Some(returned_at);
                    Next::Continue
                }
                Ok(VcpuExit::IoOut(port, data)) => self.bus.write_port(port, data, returned_at),
                Ok(VcpuExit::IoIn(port, data)) => self.bus.read_port(port, data),
                Ok(VcpuExit::MmioWrite(address, data)) => self.bus.write_memory(address, data),
                Ok(VcpuExit::MmioRead(address, data)) => self.bus.read_memory(address, data),
                Ok(VcpuExit::Debug(debug)) => {
                    let pc = debug.pc;
                    if let (Some(stepper), Some(counts)) = (&mut self.stepper, pmu.host().stepper())
                        && stepper.stepped(pc, counts)
                    {
                        pmu.kick();
                    }
                    Next::Continue
                }
                // Signals are what ends a wait in KVM_RUN; EAGAIN is a vCPU that was not runnable.
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => Next::Continue,
                Err(error) => return End::Host(format!("KVM_RUN: {error}")),
                Ok(VcpuExit::Intr) => Next::Continue,
                Ok(other) => {
                    let end = end_of(&other);
                    return end.unwrap_or_else(|| self.internal_error());
                }
            };
            match next {
                Next::Continue => {}
                Next::NoteHeld => {
                    let held = self.pmu.host().held();
                    self.bus.note_held(held);
                }
                Next::Phase(phase) => self.stats.phases.begin(phase, self.pmu.host().ops()),
                Next::End(end) => return end,
            }
        }
    }

    /// Delivers a PMI whose overflow was seen at host TSC `seen_at` through LVTPC, which a delivery masks.
    fn deliver_pmi(&mut self, seen_at: u64) -> Result<(), End> {
        // Only a foreign image's vCPUs and devices write to each other's LAPIC.
        let contended = self.foreign.is_some();
        let mut port =
            LocalApic { fd: &mut self.fd, vm: self.vm, apic_id: self.apic_id, lvtpc_msr: self.lvtpc_msr.as_mut() };
        let delivery = lapic::deliver(&mut port, contended)?;
        let pmi = &mut self.stats.pmi;
        match delivery {
            Delivery::Masked => {
                pmi.masked += 1;
                self.pmu.pmi_not_handled();
            }
            Delivery::Unsupported(_) => {
                pmi.undeliverable += 1;
                self.pmu.pmi_not_handled();
            }
            Delivery::Fixed(_) => {
                pmi.fixed += 1;
                self.pmu.pmi_not_handled();
            }
            Delivery::Nmi => {
                pmi.nmis += 1;
                if self.stats.deliveries.len() < self.stats.deliveries.capacity() {
                    self.stats.deliveries.push(seen_at);
                }
            }
        }
        Ok(())
    }

    fn foreign_rdmsr(&mut self, index: u32) {
        let Some(foreign) = &mut self.foreign else { return };
        let value = foreign.rdmsr(&self.fd, &mut self.pmu, index);
        self.stats.count_msr(index, false, value.is_err());
        sys::answer_msr(&mut self.fd, value.ok());
    }

    fn foreign_wrmsr(&mut self, index: u32, value: u64) {
        let Some(foreign) = &mut self.foreign else { return };
        let fault = foreign.wrmsr(&self.fd, &mut self.pmu, index, value).is_err();
        self.stats.count_msr(index, true, fault);
        sys::answer_msr(&mut self.fd, (!fault).then_some(value));
    }

    fn internal_error(&mut self) -> End {
        let (suberror, instruction) = sys::internal_error(&mut self.fd);
        End::InternalError { suberror, instruction }
    }
}

/// KVM_RUN returned in the middle of the instruction, for the host side that counts by steps.
fn left_within<H: HostPmu>(stepper: &mut Option<Stepper<'_>>, pmu: &mut Vpmu<H>) {
    if let (Some(stepper), Some(counts)) = (stepper, pmu.host().stepper()) {
        stepper.left_within(counts);
    }
}

/// Exits that end the run; `None` for an internal error, whose details lie in `kvm_run`.
fn end_of(exit: &VcpuExit<'_>) -> Option<End> {
    Some(match exit {
        VcpuExit::Shutdown => End::TripleFault,
        VcpuExit::FailEntry(reason, _) => End::EntryFailed { reason: *reason },
        VcpuExit::InternalError => return None,
        other => End::UnknownExit(format!("{other:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_that_end_a_run_say_what_happened() {
        assert_eq!(end_of(&VcpuExit::Shutdown), Some(End::TripleFault));
        assert_eq!(end_of(&VcpuExit::FailEntry(7, 0)), Some(End::EntryFailed { reason: 7 }));
        assert_eq!(end_of(&VcpuExit::InternalError), None);
        assert!(end_of(&VcpuExit::Hlt).unwrap().to_string().contains("Hlt"));
    }
}
