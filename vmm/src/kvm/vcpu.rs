//! The vCPU loop: KVM_RUN, exits, PMIs.
//!
//! Order of one entry, as in KVM's `vcpu_enter_guest`: overflows the kick told of, the vPMU's deferred work, the PMI, then
//! the guest. Between the return of KVM_RUN and the next one nothing allocates, locks, logs or formats.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hdrhistogram::Histogram;
use host_pmu::counters::HostCounters;
use host_pmu::stats::ns_histogram;
use kvm_bindings::{kvm_lapic_state, kvm_msi};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use vm_memory::GuestMemoryMmap;

use super::lapic::{self, Delivery, PmiPort};
use super::msr_stats::MsrStats;
use super::step::{Go, Stepper};
use super::tsc::TickClock;
use crate::devices::doorbell::{Doorbell, Rung};
use crate::outcome::{End, MsrExits, PmiStats};
use crate::sys::{self, KickGuard};
use crate::vpmu::Vpmu;

/// Deliveries whose time is kept, at most.
const DELIVERIES_PER_LOG_ENTRY: usize = 2;

/// A vCPU and everything its thread touches.
#[derive(Debug)]
pub(crate) struct Vcpu<'a, H> {
    vm: &'a VmFd,
    fd: VcpuFd,
    apic_id: u32,
    pmu: Vpmu<H>,
    stop: &'a AtomicBool,
    doorbell: Doorbell,
    stats: LoopStats,
    stepper: Option<Stepper<'a>>,
}

/// What the loop notes.
#[derive(Debug)]
struct LoopStats {
    clock: TickClock,
    pmi: PmiStats,
    msr: MsrStats,
    deliveries: Vec<u64>,
    exit_path_ns: Histogram<u64>,
    empty_kicks: u64,
    /// Host TSC at which the oldest overflow that awaits its PMI was seen.
    seen_at: u64,
}

/// What a vCPU's loop leaves.
#[derive(Debug)]
pub(crate) struct LoopOutcome<H> {
    pub(crate) end: End,
    pub(crate) host: H,
    pub(crate) booted: Option<Instant>,
    pub(crate) syncs: Vec<u64>,
    pub(crate) held_at_tail_tick: Vec<u64>,
    pub(crate) pmi: PmiStats,
    pub(crate) msr_exits: Vec<MsrExits>,
    pub(crate) deliveries: Vec<u64>,
    pub(crate) exit_path_ns: Histogram<u64>,
    pub(crate) empty_kicks: u64,
    pub(crate) signals: u64,
}

impl<'a, H: HostCounters> Vcpu<'a, H> {
    /// A vCPU that stops when `stop` is set and it is kicked.
    pub(crate) fn new(
        vm: &'a VmFd,
        fd: VcpuFd,
        apic_id: u32,
        pmu: Vpmu<H>,
        tsc_khz: u64,
        log_entries: usize,
        stop: &'a AtomicBool,
    ) -> Self {
        let stats = LoopStats {
            clock: TickClock::new(tsc_khz),
            pmi: PmiStats::default(),
            msr: MsrStats::default(),
            deliveries: Vec::with_capacity(log_entries.saturating_mul(DELIVERIES_PER_LOG_ENTRY)),
            exit_path_ns: ns_histogram(),
            empty_kicks: 0,
            seen_at: 0,
        };
        Self { vm, fd, apic_id, pmu, stop, doorbell: Doorbell::default(), stats, stepper: None }
    }

    /// Lets a host side that wants it see each instruction; `memory` holds the guest's code.
    pub(crate) fn step_in(&mut self, memory: &'a GuestMemoryMmap) {
        self.stepper = self.pmu.host().stepper().is_some().then(|| Stepper::new(memory));
    }

    /// Runs the guest until it is done, fails, or is stopped.
    pub(crate) fn run(mut self) -> LoopOutcome<H> {
        let guard = KickGuard::new(&mut self.fd);
        let end = self.run_loop();
        let signals = sys::kicks();
        drop(guard);
        let pmu = self.pmu.stats();
        LoopOutcome {
            end,
            host: self.pmu.into_host(),
            booted: self.doorbell.booted,
            syncs: self.doorbell.syncs,
            held_at_tail_tick: self.doorbell.held_at_tail_tick,
            pmi: PmiStats { overflows: pmu.overflows, pmi_requests: pmu.pmi_requests, ..self.stats.pmi },
            msr_exits: self.stats.msr.exits(),
            deliveries: self.stats.deliveries,
            exit_path_ns: self.stats.exit_path_ns,
            empty_kicks: self.stats.empty_kicks,
            signals,
        }
    }

    fn run_loop(&mut self) -> End {
        // Host TSC at which KVM_RUN returned with an MSR exit.
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
                && let Err(end) = self.deliver_pmi()
            {
                return end;
            }
            if let Some(at) = msr_exit_at.take() {
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
            let returned_at = sys::rdtsc();
            let (pmu, stats) = (&mut self.pmu, &mut self.stats);
            match exit {
                Ok(VcpuExit::X86Wrmsr(exit)) => {
                    if let (Some(stepper), Some(counts)) = (&mut self.stepper, pmu.host().stepper()) {
                        stepper.left_within(counts);
                    }
                    let fault = pmu.wrmsr(exit.index, exit.data).is_err();
                    *exit.error = u8::from(fault);
                    stats.msr.count(exit.index, true, fault);
                    msr_exit_at = Some(returned_at);
                }
                Ok(VcpuExit::X86Rdmsr(exit)) => {
                    if let (Some(stepper), Some(counts)) = (&mut self.stepper, pmu.host().stepper()) {
                        stepper.left_within(counts);
                    }
                    let value = pmu.rdmsr(exit.index);
                    *exit.data = value.unwrap_or(0);
                    *exit.error = u8::from(value.is_err());
                    stats.msr.count(exit.index, false, value.is_err());
                    msr_exit_at = Some(returned_at);
                }
                Ok(VcpuExit::IoOut(port, data)) => match self.doorbell.write(port, data, returned_at) {
                    Rung::Nothing => {}
                    Rung::TailTick => {
                        let held = self.pmu.host().held();
                        self.doorbell.note_held(held);
                    }
                    Rung::Done => return End::Done,
                    // The machine replaces this by what the guest's report says.
                    Rung::Failed => return End::GuestFault { vector: 0, error: 0, rip: 0, cr2: 0 },
                    Rung::Unknown => return End::UnknownExit(format!("OUT to port {port:#x}")),
                },
                Ok(VcpuExit::Debug(debug)) => {
                    let pc = debug.pc;
                    if let (Some(stepper), Some(counts)) = (&mut self.stepper, pmu.host().stepper())
                        && stepper.stepped(pc, counts)
                    {
                        pmu.kick();
                    }
                }
                // Signals are what ends a wait in KVM_RUN; EAGAIN is a vCPU that was not runnable.
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
                Err(error) => return End::Host(format!("KVM_RUN: {error}")),
                Ok(VcpuExit::Intr) => {}
                Ok(other) => {
                    let end = end_of(&other);
                    return end.unwrap_or_else(|| self.internal_error());
                }
            }
            if self.pmu.pmi_requested() && self.stats.seen_at == 0 {
                self.stats.seen_at = returned_at;
            }
        }
    }

    /// Delivers a PMI through LVTPC, which a delivery masks.
    fn deliver_pmi(&mut self) -> Result<(), End> {
        let seen_at = match std::mem::take(&mut self.stats.seen_at) {
            0 => sys::rdtsc(),
            at => at,
        };
        let delivery = lapic::deliver(&mut LocalApic { fd: &self.fd, vm: self.vm, apic_id: self.apic_id })?;
        let pmi = &mut self.stats.pmi;
        match delivery {
            Delivery::Masked => pmi.masked += 1,
            Delivery::Unsupported(_) => pmi.undeliverable += 1,
            Delivery::Fixed(_) => pmi.fixed += 1,
            Delivery::Nmi => {
                pmi.nmis += 1;
                if self.stats.deliveries.len() < self.stats.deliveries.capacity() {
                    self.stats.deliveries.push(seen_at);
                }
            }
        }
        Ok(())
    }

    fn internal_error(&mut self) -> End {
        let (suberror, instruction) = sys::internal_error(&mut self.fd);
        End::InternalError { suberror, instruction }
    }
}

/// The LAPIC of one vCPU, in KVM.
struct LocalApic<'a> {
    fd: &'a VcpuFd,
    vm: &'a VmFd,
    apic_id: u32,
}

fn failed(call: &'static str) -> impl Fn(kvm_ioctls::Error) -> End {
    move |error| End::Host(format!("{call}: {error}"))
}

impl PmiPort for LocalApic<'_> {
    type Error = End;

    fn lapic(&mut self) -> Result<kvm_lapic_state, End> {
        self.fd.get_lapic().map_err(failed("KVM_GET_LAPIC"))
    }

    fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), End> {
        self.fd.set_lapic(lapic).map_err(failed("KVM_SET_LAPIC"))
    }

    fn nmi(&mut self) -> Result<(), End> {
        self.fd.nmi().map_err(failed("KVM_NMI"))
    }

    fn interrupt(&mut self, vector: u8) -> Result<(), End> {
        let msi = kvm_msi {
            address_lo: 0xfee0_0000 | (self.apic_id & 0xff) << 12,
            data: u32::from(vector),
            ..kvm_msi::default()
        };
        self.vm.signal_msi(msi).map(|_| ()).map_err(failed("KVM_SIGNAL_MSI"))
    }
}

/// Exits that end the run; `None` for an internal error, whose details lie in `kvm_run`.
fn end_of(exit: &VcpuExit<'_>) -> Option<End> {
    Some(match exit {
        VcpuExit::Shutdown => End::TripleFault,
        VcpuExit::MmioRead(address, _) => End::UnassignedAccess { address: *address, write: false },
        VcpuExit::MmioWrite(address, _) => End::UnassignedAccess { address: *address, write: true },
        VcpuExit::FailEntry(reason, _) => End::EntryFailed { reason: *reason },
        VcpuExit::InternalError => return None,
        VcpuExit::IoIn(port, _) => End::UnknownExit(format!("IN from port {port:#x}")),
        other => End::UnknownExit(format!("{other:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_that_end_a_run_say_what_happened() {
        assert_eq!(end_of(&VcpuExit::Shutdown), Some(End::TripleFault));
        let write = end_of(&VcpuExit::MmioWrite(0xdead_0000, &[1]));
        assert_eq!(write, Some(End::UnassignedAccess { address: 0xdead_0000, write: true }));
        assert_eq!(end_of(&VcpuExit::FailEntry(7, 0)), Some(End::EntryFailed { reason: 7 }));
        assert_eq!(end_of(&VcpuExit::InternalError), None);
        assert!(end_of(&VcpuExit::Hlt).unwrap().to_string().contains("Hlt"));
    }
}
