//! The project's own payloads as guests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, ConformanceReport, FLAG_REPLAY, Step};
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::GuestMemoryMmap;

use super::error::MachineError;
use super::guest::{Guest, InKernel, RunFacts};
use super::plan::Plan;
use super::run::{self, Run};
use crate::boot::layout::{Layout, MAX_VCPUS};
use crate::boot::memory::allocate;
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
    /// The steps that it plays back with [`FLAG_REPLAY`], each with its time in ns, or that the conformance payload plays.
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

/// Runs it as `run` does; with `rests`, the guest takes its samples in turns, and the outcome is that of the last one.
fn run_in_turns(
    host: &Host,
    image: &[u8],
    plan: &PayloadPlan,
    rests: Option<Rests>,
    interrupted: &AtomicBool,
) -> Result<RunOutcome, MachineError> {
    let mut guest = PayloadGuest::new(image, plan, rests);
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
    rests: Option<Rests>,
}

impl<'a> PayloadGuest<'a> {
    fn new(image: &'a [u8], plan: &'a PayloadPlan, rests: Option<Rests>) -> Self {
        let layout = Layout::new(plan.machine.vcpus, plan.log_entries, plan.steps.len());
        let pmu = plan.machine.pmu.bounded();
        Self { image, layout, boot: plan.boot, steps: &plan.steps, pmu, loaded: None, rests }
    }
}

impl Guest for PayloadGuest<'_> {
    type Bus<'a>
        = Doorbell
    where
        Self: 'a;
    type Left = PayloadLeft;

    const MAX_VCPUS: usize = MAX_VCPUS;
    /// The payload sends no IPI, and has no interrupt but its LAPIC's own.
    const SHARES_LAPIC: bool = false;

    fn load(&mut self, _facts: RunFacts) -> Result<(GuestMemoryMmap, InKernel), MachineError> {
        let memory = allocate(self.layout.memory())?;
        self.loaded = Some(Payload::load(self.image, &self.layout, &memory)?);
        Ok((memory, InKernel::default()))
    }

    fn start(
        &self,
        cpu: usize,
        tsc_khz: u64,
        sregs: &mut kvm_sregs,
        memory: &GuestMemoryMmap,
    ) -> Result<Option<kvm_regs>, MachineError> {
        let (gp, fixed) = self.pmu.count();
        // Other steps than a trace's have no times.
        let khz = if self.boot.flags & FLAG_REPLAY == 0 { 1_000_000 } else { tsc_khz };
        let (steps, step_count) = payload::write_steps(memory, &self.layout, self.steps, khz)?;
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

    fn deliveries(&self) -> usize {
        (self.layout.log_entries as usize).saturating_mul(DELIVERIES_PER_LOG_ENTRY)
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
        let Some(rests) = &self.rests else { return Ok(false) };
        let logged = turn.left.log.len();
        let next = match rests.rest(cpu, turn) {
            Order::Turn(samples) => Some(samples),
            Order::End => None,
            Order::Stop => return Ok(false),
        };
        payload::begin_turn(memory, &self.layout, cpu, logged, next)?;
        Ok(true)
    }

    fn stop_resting(&self) {
        if let Some(rests) = &self.rests {
            order(&rests.orders, Order::Stop);
        }
    }
}

/// What follows the rest of a guest's vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// A turn of so many samples per vCPU.
    Turn(u64),
    /// The guest ends by itself.
    End,
    /// The vCPU stops.
    Stop,
}

/// Where the vCPUs of a guest meet their driver: what each left of its turn goes one way, orders come the other.
#[derive(Debug)]
struct Rests<T = VcpuOutcome> {
    left: mpsc::Sender<(usize, T)>,
    next: Vec<Mutex<mpsc::Receiver<Order>>>,
    orders: Vec<mpsc::Sender<Order>>,
}

impl<T> Rests<T> {
    /// Creates it for so many vCPUs, with the end of what they left.
    fn new(vcpus: usize) -> (Self, mpsc::Receiver<(usize, T)>) {
        let (left, of_vcpus) = mpsc::channel();
        let (orders, next): (Vec<_>, Vec<_>) = (0..vcpus).map(|_| mpsc::channel()).unzip();
        (Self { left, next: next.into_iter().map(Mutex::new).collect(), orders }, of_vcpus)
    }

    /// Rests vCPU `cpu`, which left this of its turn, until an order comes.
    fn rest(&self, cpu: usize, left: T) -> Order {
        // A driver that is gone has ordered the end.
        let _ = self.left.send((cpu, left));
        self.next[cpu].lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap_or(Order::Stop)
    }
}

/// Gives an order to all vCPUs; one that is gone needs none.
fn order(orders: &[mpsc::Sender<Order>], order: Order) {
    for vcpu in orders {
        let _ = vcpu.send(order);
    }
}

/// Interval at which a wait looks at its time limit and at the user's interruption.
const POLL: Duration = Duration::from_millis(20);

/// A guest that takes its samples in turns. Between two of them its vCPUs wait outside of KVM_RUN, its counters and its timer off.
/// Dropped, it is stopped.
#[derive(Debug)]
pub struct LiveGuest {
    left: mpsc::Receiver<(usize, VcpuOutcome)>,
    orders: Vec<mpsc::Sender<Order>>,
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
        let (rests, left) = Rests::new(plan.machine.vcpus);
        let orders = rests.orders.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let time_limit = plan.machine.time_limit;
        let began = Instant::now();
        let thread = {
            let (host, stop) = (Arc::clone(host), Arc::clone(&stop));
            let mut plan = plan;
            // Turns have the limit, not the guest's life.
            plan.machine.time_limit = Duration::MAX;
            let run = move || run_in_turns(&host, image, &plan, Some(rests), &stop);
            std::thread::Builder::new().name("guest".to_owned()).spawn(run)
        };
        let thread = thread.map_err(|error| MachineError::Host(format!("a guest's thread: {error}")))?;
        let mut guest = Self { left, orders, stop, thread: Some(thread), time_limit, late: false };
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
        let began = Instant::now();
        order(&self.orders, Order::Turn(samples));
        let Some(vcpus) = self.wait(interrupted) else { return self.join() };
        Ok(rested(vcpus, began.elapsed(), Duration::ZERO))
    }

    /// Lets it end by itself, and returns what it left after its last turn. One that is interrupted is ended at once.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn finish(mut self, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
        order(&self.orders, Order::End);
        self.wait(interrupted);
        self.join()
    }

    /// Waits until all vCPUs rest, and returns what they left, or until the run is over; ends it at the time limit and on an
    /// interruption.
    fn wait(&mut self, interrupted: &AtomicBool) -> Option<Vec<VcpuOutcome>> {
        let began = Instant::now();
        let mut turn: Vec<Option<VcpuOutcome>> = self.orders.iter().map(|_| None).collect();
        while turn.iter().any(Option::is_none) {
            match self.left.recv_timeout(POLL) {
                Ok((cpu, left)) => turn[cpu] = Some(left),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let late = began.elapsed() > self.time_limit;
                    if late || interrupted.load(Ordering::Relaxed) {
                        self.late |= late && !self.stop.load(Ordering::Relaxed);
                        self.stop();
                    }
                }
            }
        }
        turn.into_iter().collect()
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        order(&self.orders, Order::Stop);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_every_rest_and_an_end_every_wait() {
        let (rests, left) = Rests::new(2);
        order(&rests.orders, Order::Stop);
        assert_eq!([rests.rest(0, 'a'), rests.rest(1, 'b')], [Order::Stop; 2]);
        assert_eq!(left.try_iter().collect::<Vec<_>>(), [(0, 'a'), (1, 'b')]);
        let (rests, left) = Rests::new(2);
        let (orders, time_limit) = (rests.orders.clone(), Duration::from_secs(60));
        drop(rests);
        let mut guest = LiveGuest { left, orders, stop: Arc::default(), thread: None, time_limit, late: false };
        assert!(guest.wait(&AtomicBool::new(false)).is_none(), "no vCPU ever came");
    }
}
