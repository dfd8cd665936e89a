//! The vCPU loop: KVM_RUN, exits, PMIs.
//!
//! Order of one entry, as in KVM's `vcpu_enter_guest`: overflows the kick told of, the vPMU's deferred work, the PMI, then
//! the guest. Between the return of KVM_RUN and the next one nothing allocates, locks, logs or formats.

use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;
use host_pmu::counters::HostCounters;
use host_pmu::stats::ns_histogram;
use kvm_bindings::kvm_msi;
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};

use super::foreign::ForeignMsrs;
use super::lapic::{Delivery, LvtpcDoor};
use super::msr_stats::MsrStats;
use super::tsc::TickClock;
use crate::devices::bus::{Bus, Next};
use crate::outcome::{End, MsrExits, PmiStats};
use crate::sys::{self, KickGuard};
use crate::vpmu::Vpmu;

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
    lvtpc: LvtpcDoor,
    stats: LoopStats,
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
}

impl<'a, H: HostCounters, B: Bus> Vcpu<'a, H, B> {
    pub(crate) fn new(parts: Parts<'a, H, B>) -> Self {
        let stats = LoopStats {
            clock: TickClock::new(parts.tsc_khz),
            pmi: PmiStats::default(),
            msr: MsrStats::default(),
            deliveries: Vec::with_capacity(parts.log_entries.saturating_mul(DELIVERIES_PER_LOG_ENTRY)),
            exit_path_ns: ns_histogram(),
            empty_kicks: 0,
            seen_at: 0,
        };
        Self {
            vm: parts.vm,
            fd: parts.fd,
            apic_id: parts.apic_id,
            pmu: parts.pmu,
            stop: parts.stop,
            bus: parts.bus,
            lvtpc: LvtpcDoor::new(parts.foreign.is_some()),
            foreign: parts.foreign,
            stats,
        }
    }

    /// Runs the guest until it is done, fails, or is stopped.
    pub(crate) fn run(mut self) -> LoopOutcome<H, B> {
        let guard = KickGuard::new(&mut self.fd);
        let end = self.run_loop();
        let signals = sys::kicks();
        drop(guard);
        let pmu = self.pmu.stats();
        LoopOutcome {
            end,
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
            let exit = self.fd.run();
            let returned_at = sys::rdtsc();
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
                    let fault = pmu.wrmsr(exit.index, exit.data).is_err();
                    *exit.error = u8::from(fault);
                    stats.msr.count(exit.index, true, fault);
                    msr_exit_at = Some(returned_at);
                    Next::Continue
                }
                Ok(VcpuExit::X86Rdmsr(exit)) => {
                    let value = pmu.rdmsr(exit.index);
                    *exit.data = value.unwrap_or(0);
                    *exit.error = u8::from(value.is_err());
                    stats.msr.count(exit.index, false, value.is_err());
                    msr_exit_at = Some(returned_at);
                    Next::Continue
                }
                Ok(VcpuExit::IoOut(port, data)) => self.bus.write_port(port, data, returned_at),
                Ok(VcpuExit::IoIn(port, data)) => self.bus.read_port(port, data),
                Ok(VcpuExit::MmioWrite(address, data)) => self.bus.write_memory(address, data),
                Ok(VcpuExit::MmioRead(address, data)) => self.bus.read_memory(address, data),
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
                Next::End(end) => return end,
            }
            if self.pmu.pmi_requested() && self.stats.seen_at == 0 {
                self.stats.seen_at = returned_at;
            }
        }
    }

    /// Delivers a PMI through LVTPC, which a delivery masks.
    fn deliver_pmi(&mut self) -> Result<(), End> {
        let failed = |call: &str, error: kvm_ioctls::Error| End::Host(format!("{call}: {error}"));
        let seen_at = match std::mem::take(&mut self.stats.seen_at) {
            0 => sys::rdtsc(),
            at => at,
        };
        let lvtpc = self.lvtpc.read(&mut self.fd).map_err(|error| failed("reading LVTPC", error))?;
        let pmi = &mut self.stats.pmi;
        match lvtpc.delivery() {
            Delivery::Masked => {
                pmi.masked += 1;
                return Ok(());
            }
            Delivery::Unsupported(_) => {
                pmi.undeliverable += 1;
                return Ok(());
            }
            Delivery::Nmi => {
                self.fd.nmi().map_err(|error| failed("KVM_NMI", error))?;
                pmi.nmis += 1;
                if self.stats.deliveries.len() < self.stats.deliveries.capacity() {
                    self.stats.deliveries.push(seen_at);
                }
            }
            Delivery::Fixed(vector) => {
                let msi = kvm_msi {
                    address_lo: 0xfee0_0000 | (self.apic_id & 0xff) << 12,
                    data: u32::from(vector),
                    ..kvm_msi::default()
                };
                self.vm.signal_msi(msi).map_err(|error| failed("KVM_SIGNAL_MSI", error))?;
                pmi.fixed += 1;
                // The MSI is in the LAPIC by now, and not in what was read of it.
                self.lvtpc.forget();
            }
        }
        self.lvtpc.write(&self.fd, lvtpc.with_masked(true)).map_err(|error| failed("masking LVTPC", error))
    }

    fn foreign_rdmsr(&mut self, index: u32) {
        let Some(foreign) = &mut self.foreign else { return };
        let value = foreign.rdmsr(&self.fd, &mut self.pmu, index);
        self.stats.msr.count(index, false, value.is_err());
        sys::answer_msr(&mut self.fd, value.ok());
    }

    fn foreign_wrmsr(&mut self, index: u32, value: u64) {
        let Some(foreign) = &mut self.foreign else { return };
        let fault = foreign.wrmsr(&self.fd, &mut self.pmu, index, value).is_err();
        self.stats.msr.count(index, true, fault);
        sys::answer_msr(&mut self.fd, (!fault).then_some(value));
    }

    fn internal_error(&mut self) -> End {
        let (suberror, instruction) = sys::internal_error(&mut self.fd);
        End::InternalError { suberror, instruction }
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
