//! The project's own payloads as guests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, ConformanceReport, Step};
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::GuestMemoryMmap;

use super::error::MachineError;
use super::guest::{Guest, InKernel, RunFacts};
use super::plan::Plan;
use super::run::{self, Run};
use crate::boot::layout::{Layout, MAX_VCPUS};
use crate::boot::payload::{self, Payload};
use crate::devices::doorbell::Doorbell;
use crate::kvm::{Host, tsc};
use crate::outcome::{End, PayloadLeft, RunOutcome, VcpuOutcome};

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
    /// The steps that it plays back with [`guest::abi::FLAG_REPLAY`], each with its time in ns.
    pub steps: Arc<[Step]>,
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
    let mut end = run.end;
    if let Some(report) = &report {
        name_fault(&mut end, [report.fault_vector, report.fault_error, report.fault_rip, report.fault_cr2]);
    }
    Ok(ConformanceOutcome { end, report })
}

/// Completes the end of a guest that met a fault: vector + 1, error, RIP and CR2 of its report.
fn name_fault(end: &mut End, [vector, error, rip, cr2]: [u64; 4]) {
    if let End::GuestFault { .. } = end {
        *end = End::GuestFault { vector: vector.saturating_sub(1), error, rip, cr2 };
    }
}

/// A payload in a machine.
#[derive(Debug)]
struct PayloadGuest<'a> {
    image: &'a [u8],
    layout: Layout,
    boot: BootPage,
    steps: &'a [Step],
    pmu: PmuCaps,
    loaded: Option<Payload>,
    turns: Option<&'a Turns<VcpuOutcome>>,
}

impl<'a> PayloadGuest<'a> {
    fn new(image: &'a [u8], plan: &'a PayloadPlan, turns: Option<&'a Turns<VcpuOutcome>>) -> Self {
        let layout = Layout::new(plan.machine.vcpus, plan.log_entries, plan.steps.len());
        let pmu = plan.machine.pmu.bounded();
        Self { image, layout, boot: plan.boot, steps: &plan.steps, pmu, loaded: None, turns }
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
        Ok(InKernel::default())
    }

    fn start(
        &self,
        cpu: usize,
        tsc_khz: u64,
        sregs: &mut kvm_sregs,
        memory: &GuestMemoryMmap,
    ) -> Result<Option<kvm_regs>, MachineError> {
        let (gp, fixed) = self.pmu.count();
        let (steps, step_count) = payload::write_steps(memory, &self.layout, self.steps, tsc_khz)?;
        let boot = BootPage {
            steps,
            step_count,
            gp_counters: u64::from(gp),
            fixed_counters: u64::from(fixed),
            tsc_hz: tsc_khz * 1000,
            ..self.boot
        };
        // The machine loads before it starts vCPUs; the payload sends no start-up IPI.
        let Some(loaded) = self.loaded else { return Ok(None) };
        Ok(Some(loaded.start(cpu, &boot, &self.layout, sregs, memory)?))
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

    fn overall(&self, ends: &[&End]) -> End {
        overall(ends)
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
        if let Some(report) = &report {
            name_fault(end, [report.fault_vector, report.fault_error, report.fault_rip, report.fault_cr2]);
        }
        let tsc = tsc::map(tsc_khz, report.as_deref(), &bus.syncs);
        let held_at_tail_tick = std::mem::take(&mut bus.held_at_tail_tick);
        Ok(PayloadLeft { booted: bus.booted, report, log, tsc, held_at_tail_tick })
    }

    fn counted(left: &PayloadLeft) -> bool {
        left.report.as_ref().is_some_and(|report| report.nmis > 0 || report.counts.iter().any(|count| *count > 0))
    }

    fn rest(&self, cpu: usize, turn: VcpuOutcome, memory: &GuestMemoryMmap) -> Result<bool, MachineError> {
        let Some(turns) = self.turns else { return Ok(false) };
        let logged = turn.left.log.len();
        if !turns.rest(cpu, turn) {
            return Ok(false);
        }
        payload::begin_turn(memory, &self.layout, cpu, logged, turns.next())?;
        Ok(true)
    }

    fn stop_resting(&self) {
        if let Some(turns) = self.turns {
            turns.stop();
        }
    }
}

/// Returns the first reason that is neither "done" nor "stopped", else "stopped" if any.
fn overall(ends: &[&End]) -> End {
    let failure = ends.iter().find(|end| !matches!(end, End::Done | End::Stopped));
    let stop = || ends.iter().find(|end| **end != &End::Done);
    failure.or_else(stop).map_or(End::Done, |end| (**end).clone())
}

/// Rendezvous of a guest's vCPUs with their driver. `T`: the result of a vCPU's turn.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Rests that were ended.
    begun: u64,
    next: Option<u64>,
    /// Results of each resting vCPU.
    left: Vec<Option<T>>,
    stopped: bool,
    /// The guest's run is over: nobody comes to rest any more.
    over: bool,
}

impl<T> Turns<T> {
    /// Prepares turns of so many vCPUs.
    pub(crate) fn new(vcpus: usize) -> Self {
        let left = (0..vcpus).map(|_| None).collect();
        let state = State { begun: 0, next: None, left, stopped: false, over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Rests vCPU `cpu`, which left this of its turn. Returns when all go on; `false` if all were stopped.
    pub(crate) fn rest(&self, cpu: usize, left: T) -> bool {
        let mut state = self.lock();
        state.left[cpu] = Some(left);
        let begun = state.begun;
        self.changed.notify_all();
        while state.begun == begun && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.stopped
    }

    /// Returns what follows the rest that ended last: a turn of so many samples per vCPU, or the guest ends by itself.
    pub(crate) fn next(&self) -> Option<u64> {
        self.lock().next
    }

    /// Waits until all vCPUs rest, and returns their results. `None`: not within `time`, or never again as the run is over.
    pub(crate) fn all_rest(&self, time: Duration) -> Option<Vec<T>> {
        let waiting = |state: &mut State<T>| !state.over && state.left.iter().any(Option::is_none);
        let waited = self.changed.wait_timeout_while(self.lock(), time, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.left.iter().any(Option::is_none) {
            return None;
        }
        state.left.iter_mut().map(Option::take).collect()
    }

    /// Lets all go on to `next`. They must all rest.
    pub(crate) fn go(&self, next: Option<u64>) {
        let mut state = self.lock();
        state.next = next;
        state.begun += 1;
        self.changed.notify_all();
    }

    /// Ends every rest, now and later.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Ends the guest's run.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Returns whether the guest's run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No holder can panic between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Interval at which a wait looks at its time limit and at the user's interruption.
const POLL: Duration = Duration::from_millis(20);

/// A guest that takes its samples in turns. Between two of them its vCPUs wait outside of KVM_RUN, its counters and its timer off.
/// Dropped, it is stopped.
#[derive(Debug)]
pub struct LiveGuest {
    turns: Arc<Turns<VcpuOutcome>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<RunOutcome, MachineError>>>,
    /// Bound on a turn, and on the way to the first one.
    time_limit: Duration,
    /// The time limit ended it.
    late: bool,
}

impl LiveGuest {
    /// Starts `image`, one of the project's payloads, and waits until its first turn can begin; returns what it left by then, its
    /// baseline among it. `plan.boot` has [`guest::abi::FLAG_TURNS`], and `plan.machine.time_limit` bounds each turn. A guest that
    /// fails on its way leaves `None`, and says why at its first turn.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn start(
        host: &Arc<Host>,
        image: &'static [u8],
        plan: PayloadPlan,
        interrupted: &AtomicBool,
    ) -> Result<(Self, Option<RunOutcome>), MachineError> {
        let turns = Arc::new(Turns::new(plan.machine.vcpus));
        let stop = Arc::new(AtomicBool::new(false));
        let time_limit = plan.machine.time_limit;
        let began = Instant::now();
        let thread = {
            let (host, turns, stop) = (Arc::clone(host), Arc::clone(&turns), Arc::clone(&stop));
            let mut plan = plan;
            // Turns have the limit, not the guest's life.
            plan.machine.time_limit = Duration::MAX;
            std::thread::Builder::new().name("guest".to_owned()).spawn(move || {
                let _ending = Ending(&turns);
                run_in_turns(&host, image, &plan, Some(&turns), &stop)
            })
        };
        let thread = thread.map_err(|error| MachineError::Host(format!("a guest's thread: {error}")))?;
        let mut guest = Self { turns, stop, thread: Some(thread), time_limit, late: false };
        let Some(vcpus) = guest.wait(interrupted) else { return Ok((guest, None)) };
        let booted = vcpus.iter().filter_map(|vcpu| vcpu.left.booted).min();
        let start = booted.map_or(Duration::ZERO, |at| at.saturating_duration_since(began));
        Ok((guest, Some(rested(vcpus, began.elapsed(), start))))
    }

    /// Lets it take `samples` per vCPU, and waits until all vCPUs rest again. If it ended instead, this is what it
    /// left; it takes no further turn.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn turn(&mut self, samples: u64, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
        if self.turns.is_over() {
            return self.join();
        }
        let began = Instant::now();
        self.turns.go(Some(samples));
        let Some(vcpus) = self.wait(interrupted) else { return self.join() };
        Ok(rested(vcpus, began.elapsed(), Duration::ZERO))
    }

    /// Lets it end by itself, and returns what it left after its last turn. One that is interrupted is ended at once.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn finish(mut self, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
        if !self.turns.is_over() {
            self.turns.go(None);
            self.wait(interrupted);
        }
        self.join()
    }

    /// Waits until all vCPUs rest, and returns what they left, or until the run is over; ends it at the time limit and on an
    /// interruption.
    fn wait(&mut self, interrupted: &AtomicBool) -> Option<Vec<VcpuOutcome>> {
        let began = Instant::now();
        loop {
            let rested = self.turns.all_rest(POLL);
            if rested.is_some() || self.turns.is_over() {
                return rested;
            }
            let late = began.elapsed() > self.time_limit;
            if late || interrupted.load(Ordering::Relaxed) {
                self.late |= late && !self.stop.load(Ordering::Relaxed);
                self.stop();
            }
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.turns.stop();
    }

    /// Returns the outcome of the run, which is over. A second call, after that of a turn, finds a guest that left nothing.
    fn join(&mut self) -> Result<RunOutcome, MachineError> {
        let nothing =
            || RunOutcome { end: End::Stopped, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO };
        let Some(thread) = self.thread.take() else { return Ok(nothing()) };
        let mut outcome = thread.join().map_err(|_| MachineError::Panicked("a guest's thread"))??;
        if self.late {
            let ends = outcome.vcpus.iter_mut().map(|vcpu| &mut vcpu.end).chain([&mut outcome.end]);
            ends.filter(|end| **end == End::Stopped).for_each(|end| *end = End::TimedOut);
        }
        Ok(outcome)
    }
}

/// Returns the outcome of a guest with all vCPUs at rest.
fn rested(vcpus: Vec<VcpuOutcome>, wall: Duration, start: Duration) -> RunOutcome {
    RunOutcome { end: End::Done, vcpus, wall, start }
}

impl Drop for LiveGuest {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            // Results of a guest that is given up are dropped.
            let _ = thread.join();
        }
    }
}

/// Says that a run is over, also when it panics.
struct Ending<'a>(&'a Turns<VcpuOutcome>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_before_a_stop_and_a_stop_before_done() {
        let overall = |ends: &[End]| overall(&ends.iter().collect::<Vec<_>>());
        assert_eq!(overall(&[End::Done, End::Done]), End::Done);
        assert_eq!(overall(&[End::Done, End::Stopped, End::Done]), End::Stopped);
        assert_eq!(overall(&[End::Stopped, End::TripleFault, End::Reset]), End::TripleFault);
        assert_eq!(overall(&[End::TimedOut, End::Stopped]), End::TimedOut);
    }

    #[test]
    fn a_stop_ends_every_rest_and_an_end_every_wait() {
        let turns = Turns::new(2);
        assert_eq!(turns.all_rest(Duration::ZERO), None);
        turns.stop();
        assert_eq!((turns.rest(0, 1), turns.rest(0, 1)), (false, false));
        assert!(!turns.is_over());
        turns.end();
        assert_eq!(turns.all_rest(Duration::from_secs(60)), None, "vCPU 1 never came");
    }
}
