//! The project's own payloads as guests.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, ConformanceReport};
use kvm_bindings::kvm_sregs;
use vm_memory::GuestMemoryMmap;

use super::error::MachineError;
use super::guest::{Guest, InKernel, RunFacts, Start};
use super::plan::Plan;
use super::run::{self, Run};
use super::turns::{Next, Turns};
use crate::boot::layout::{Layout, MAX_VCPUS};
use crate::boot::payload::{self, Payload};
use crate::boot::payload_log::PayloadLog;
use crate::devices::doorbell::Doorbell;
use crate::kvm::{Host, tsc};
use crate::outcome::{End, PayloadLeft, RunOutcome, VcpuOutcome};
use crate::sample::Sampling;

/// Deliveries whose time is kept, per log entry.
const DELIVERIES_PER_LOG_ENTRY: usize = 2;

/// One run of a payload.
#[derive(Clone, Debug)]
pub struct PayloadPlan {
    /// The machine.
    pub machine: Plan,
    /// Log entries per vCPU.
    pub log_entries: u64,
    /// The payload's parameters; the machine fills in addresses, frequencies and counts.
    pub boot: BootPage,
}

/// Runs `image`, one of the project's payloads, until it is done, fails, `interrupted` is set, or the time limit passes.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub fn run(
    host: &Host,
    image: &[u8],
    plan: &PayloadPlan,
    interrupted: &AtomicBool,
) -> Result<RunOutcome, MachineError> {
    run_in_turns(host, image, plan, None, interrupted)
}

/// Runs it as `run` does; with `turns`, the guest takes its samples in turns, and the outcome is that of the last one.
pub(super) fn run_in_turns(
    host: &Host,
    image: &[u8],
    plan: &PayloadPlan,
    turns: Option<&Turns<VcpuOutcome>>,
    interrupted: &AtomicBool,
) -> Result<RunOutcome, MachineError> {
    let mut guest = PayloadGuest::new(image, plan, turns);
    let run = run::run(host, &mut guest, &plan.machine, interrupted)?;
    let start = run.vcpus.iter().filter_map(|vcpu| vcpu.left.booted).min().map_or(Duration::ZERO, |at| at - run.began);
    let Run { end, vcpus, wall, .. } = run;
    Ok(RunOutcome { end, vcpus, wall, start })
}

/// One run of the conformance payload.
#[derive(Clone, Debug)]
pub struct ConformanceOutcome {
    /// Why it ended.
    pub end: End,
    /// The guest's report; `None` if it never began. Untrusted, like everything a guest writes.
    pub report: Option<Box<ConformanceReport>>,
}

/// Runs the conformance payload on one vCPU.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub fn run_conformance(
    host: &Host,
    plan: &PayloadPlan,
    interrupted: &AtomicBool,
) -> Result<ConformanceOutcome, MachineError> {
    let mut plan = PayloadPlan { log_entries: 1, ..plan.clone() };
    plan.machine.vcpus = 1;
    let mut guest = PayloadGuest::new(guest::CONFORMANCE_PAYLOAD, &plan, None);
    let run = run::run(host, &mut guest, &plan.machine, interrupted)?;
    let report = payload::harvest_conformance(&run.memory, 0)?;
    let end = match (run.end, &report) {
        (End::GuestFault { .. }, Some(report)) => End::GuestFault {
            vector: report.fault_vector.saturating_sub(1),
            error: report.fault_error,
            rip: report.fault_rip,
            cr2: report.fault_cr2,
        },
        (end, _) => end,
    };
    Ok(ConformanceOutcome { end, report })
}

/// A payload in a machine.
#[derive(Debug)]
struct PayloadGuest<'a> {
    image: &'a [u8],
    layout: Layout,
    boot: BootPage,
    pmu: PmuCaps,
    loaded: Option<Payload>,
    turns: Option<&'a Turns<VcpuOutcome>>,
    sampling: Option<&'a Sampling>,
}

impl<'a> PayloadGuest<'a> {
    fn new(image: &'a [u8], plan: &'a PayloadPlan, turns: Option<&'a Turns<VcpuOutcome>>) -> Self {
        let layout = Layout::new(plan.machine.vcpus, plan.log_entries);
        let (pmu, sampling) = (plan.machine.pmu.bounded(), plan.machine.sampling.as_deref());
        Self { image, layout, boot: plan.boot, pmu, loaded: None, turns, sampling }
    }
}

impl Guest for PayloadGuest<'_> {
    type Bus<'a>
        = Doorbell
    where
        Self: 'a;
    type Left = PayloadLeft;

    fn max_vcpus(&self) -> usize {
        MAX_VCPUS
    }

    fn memory(&self) -> Result<GuestMemoryMmap, MachineError> {
        Ok(payload::allocate(&self.layout)?)
    }

    fn load(&mut self, memory: &GuestMemoryMmap, _facts: RunFacts) -> Result<InKernel, MachineError> {
        self.loaded = Some(Payload::load(self.image, &self.layout, memory)?);
        if let Some(sampling) = self.sampling {
            // A recording is of one guest.
            let _ = sampling.log.set(PayloadLog::new(memory, self.layout));
        }
        Ok(InKernel::default())
    }

    fn start(
        &self,
        cpu: usize,
        tsc_khz: u64,
        sregs: &mut kvm_sregs,
        memory: &GuestMemoryMmap,
    ) -> Result<Start, MachineError> {
        let (gp, fixed) = self.pmu.count();
        let boot = BootPage {
            gp_counters: u64::from(gp),
            fixed_counters: u64::from(fixed),
            tsc_hz: tsc_khz * 1000,
            ..self.boot
        };
        // The machine loads before it starts vCPUs; the payload sends no start-up IPI.
        let Some(loaded) = self.loaded else { return Ok(Start::Waits) };
        Ok(Start::At(loaded.start(cpu, &boot, &self.layout, sregs, memory)?))
    }

    fn bus(&self) -> Doorbell {
        Doorbell::default()
    }

    /// Returns `false`: the payload sends no IPI, and has no interrupt but its LAPIC's own.
    fn others_write_the_lapic(&self) -> bool {
        false
    }

    fn deliveries(&self) -> usize {
        (self.layout.log_entries() as usize).saturating_mul(DELIVERIES_PER_LOG_ENTRY)
    }

    fn others_go_on(&self, end: &End) -> bool {
        end.is_complete()
    }

    /// Returns the first reason that is neither "done" nor "stopped", else "stopped" if any.
    fn overall(&self, ends: &[&End]) -> End {
        let (mut overall, mut failed) = (End::Done, false);
        for &end in ends {
            let fails = !matches!(end, End::Done | End::Stopped);
            if !failed && (fails || overall == End::Done) {
                overall.clone_from(end);
            }
            failed |= fails;
        }
        overall
    }

    fn harvest(
        &self,
        cpu: usize,
        tsc_khz: u64,
        end: &mut End,
        bus: &mut Doorbell,
        memory: &GuestMemoryMmap,
    ) -> Result<PayloadLeft, MachineError> {
        let (report, log) = payload::harvest(memory, &self.layout, cpu, end.is_complete())?;
        if let (End::GuestFault { .. }, Some(report)) = (&*end, &report) {
            *end = End::GuestFault {
                vector: report.fault_vector.saturating_sub(1),
                error: report.fault_error,
                rip: report.fault_rip,
                cr2: report.fault_cr2,
            };
        }
        let tsc = tsc::map(tsc_khz, report.as_deref(), &bus.syncs);
        let held_at_tail_tick = std::mem::take(&mut bus.held_at_tail_tick);
        Ok(PayloadLeft { booted: bus.booted, report, log, tsc, held_at_tail_tick })
    }

    fn rest(&self, cpu: usize, turn: VcpuOutcome, memory: &GuestMemoryMmap) -> Result<bool, MachineError> {
        let Some(turns) = self.turns else { return Ok(false) };
        let logged = turn.left.log.len();
        let Some(next) = turns.rest(cpu, turn) else {
            return Ok(false);
        };
        let samples = match next {
            Next::Turn { samples } => Some(samples),
            Next::Finish => None,
        };
        payload::begin_turn(memory, &self.layout, cpu, logged, samples)?;
        Ok(true)
    }

    fn stop_resting(&self) {
        if let Some(turns) = self.turns {
            turns.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_before_a_stop_and_a_stop_before_done() {
        let plan = Plan {
            behind: super::super::plan::CounterSource::Floor,
            cpu: super::super::plan::Cpu::default(),
            pmu: PmuCaps::default(),
            vcpus: 1,
            pin: Vec::new(),
            time_limit: Duration::ZERO,
            seccomp: false,
            register_cost_ns: None,
            sampling: None,
        };
        let plan = PayloadPlan { machine: plan, log_entries: 1, boot: BootPage::default() };
        let guest = PayloadGuest::new(&[], &plan, None);
        let overall = |ends: &[End]| guest.overall(&ends.iter().collect::<Vec<_>>());
        assert_eq!(overall(&[End::Done, End::Done]), End::Done);
        assert_eq!(overall(&[End::Done, End::Stopped, End::Done]), End::Stopped);
        assert_eq!(overall(&[End::Stopped, End::TripleFault, End::Reset]), End::TripleFault);
        assert_eq!(overall(&[End::TimedOut, End::Stopped]), End::TimedOut);
    }
}
