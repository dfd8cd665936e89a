//! A payload's guest that lives on between its turns, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::MachineError;
use super::payload::{self, PayloadPlan};
use super::turns::{Next, Turns};
use crate::kvm::Host;
use crate::outcome::{End, RunOutcome, VcpuOutcome};

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

/// Place of a guest after a wait.
enum At {
    /// All vCPUs rest; this they left.
    Rest(Vec<VcpuOutcome>),
    /// The run is over.
    Over,
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
                payload::run_in_turns(&host, image, &plan, Some(&turns), &stop)
            })
        };
        let thread = thread.map_err(|error| MachineError::Host(format!("a guest's thread: {error}")))?;
        let mut guest = Self { turns, stop, thread: Some(thread), time_limit, late: false };
        let At::Rest(vcpus) = guest.wait(interrupted) else { return Ok((guest, None)) };
        let booted = vcpus.iter().filter_map(|vcpu| vcpu.left.booted).min();
        let start = booted.map_or(Duration::ZERO, |at| at.saturating_duration_since(began));
        Ok((guest, Some(rested(vcpus, began.elapsed(), start))))
    }

    /// Lets it take `samples` per vCPU, and waits until all vCPUs rest again. If it ended instead, this is what it left; it takes no
    /// further turn.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn turn(&mut self, samples: u64, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
        if self.turns.is_over() {
            return self.join();
        }
        let began = Instant::now();
        self.turns.go(Next::Turn { samples });
        let At::Rest(vcpus) = self.wait(interrupted) else { return self.join() };
        Ok(rested(vcpus, began.elapsed(), Duration::ZERO))
    }

    /// Lets it end by itself, and returns what it left after its last turn. One that is interrupted is ended at once.
    ///
    /// # Errors
    /// [`MachineError`] if it could not begin.
    pub fn finish(mut self, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
        if !self.turns.is_over() {
            self.turns.go(Next::Finish);
            self.wait(interrupted);
        }
        self.join()
    }

    /// Waits until all vCPUs rest or the run is over; ends it at the time limit and on an interruption.
    fn wait(&mut self, interrupted: &AtomicBool) -> At {
        let began = Instant::now();
        loop {
            if let Some(vcpus) = self.turns.all_rest(POLL) {
                return At::Rest(vcpus);
            }
            if self.turns.is_over() {
                return At::Over;
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
