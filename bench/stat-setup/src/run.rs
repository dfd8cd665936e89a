//! One set-up, from the first open to the last close.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::affinity::Guard;
use crate::list::sysfs::Sysfs;
use crate::method::{Job, Order, Phase, PhaseCost, Recorder, layout};
use crate::sys::{self, Mask};
use crate::unit::{Outcome, Shared, Step, Unit, outcomes};

/// Result of a set-up.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Cost of each phase, in order.
    pub phases: Vec<PhaseCost>,
    /// Outcome of each event, in the order of the list.
    pub outcomes: Vec<Outcome>,
    /// Descriptors open at the same time.
    pub opened: usize,
    /// Number of weak groups that were broken up.
    pub broken: usize,
}

/// Called after each phase, outside of the timed section; with the outcomes after the read.
pub type Hook<'a> = &'a mut dyn FnMut(Phase, Option<&[Outcome]>);

/// Carries out all phases.
///
/// # Errors
/// Why a thread did not start: nothing was opened.
pub fn run(job: &Job<'_>, hook: Hook<'_>) -> Result<Finished, String> {
    let packs = layout(job.list, job.method.pack);
    let shared = Shared::new(job, &packs);
    let began = Instant::now();
    let (reply, replies) = channel();
    let seat = |cpu, worker| Seat { unit: Some(Unit::new(cpu, &shared)), worker };
    if job.method.order != Order::Threads {
        let seats = job.cpus.iter().map(|&cpu| seat(cpu, None)).collect();
        return Ok(Crew { job, shared: &shared, seats, replies, alone: false }.phases(began, hook));
    }
    // The table grows before it is shared with threads, so that it need not wait for them.
    sys::make_room(job.list.events.len());
    let here = sys::current_cpu();
    let own = job.cpus.iter().copied().find(|cpu| *cpu == here).or(job.cpus.last().copied());
    let (mut done, ending) = std::thread::scope(|scope| {
        let mut seats = Vec::new();
        for &cpu in job.cpus {
            let worker = if Some(cpu) == own { None } else { Some(started(scope, cpu, &shared, reply.clone())?) };
            seats.push(seat(cpu, worker));
        }
        drop(reply);
        let mut guard = Guard::new();
        if let Some(cpu) = own {
            guard.move_to(cpu);
        }
        let crew = Crew { job, shared: &shared, seats, replies, alone: guard.has_moved() };
        Ok::<_, String>((crew.phases(began, hook), Instant::now()))
    })?;
    // As the first phase has their starts, the last has the ends of the threads.
    if let Some(close) = done.phases.last_mut() {
        close.wall += ending.elapsed();
    }
    Ok(done)
}

// Who makes the calls of each CPU: the calling thread, event by event or CPU by CPU; or a pinned thread per CPU that is kept for all
// phases, of which the caller's own serves the CPU that it is on.
//
// Each worker has its own descriptor table. A table that is shared by threads waits for an RCU grace period when it
// grows (`expand_fdtable`), serialises opens on its lock, and applies RLIMIT_NOFILE to all CPUs together. A private
// table avoids all three and is freed with its thread. The events of a CPU are lent to its worker for a step, and are closed there.
//
// Most phases take less time than a thread takes to wake up, so both sides look for the next message for a while before they sleep.

/// A step of a CPU's events, by their place among the seats.
type Task = (usize, Step, Unit);
/// The same events after the step, and its calls.
type Done = (usize, Unit, Recorder);

/// A CPU's events, and the thread that serves them if the caller does not.
struct Seat {
    /// It is `None` while the events are with their worker.
    unit: Option<Unit>,
    worker: Option<Sender<Task>>,
}

struct Crew<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    seats: Vec<Seat>,
    replies: Receiver<Done>,
    /// The caller has a CPU of its own to look for replies on.
    alone: bool,
}

/// Time that a thread polls for a message before it sleeps: a few times the cost of waking it up.
const LOOKING: Duration = Duration::from_micros(200);

/// Receives the next message; `None` if none will come. `alone`: the thread has a CPU of its own to look on; elsewhere
/// it would take the time of the thread that it waits for.
fn next<T>(from: &Receiver<T>, alone: bool) -> Option<T> {
    let began = Instant::now();
    while alone && began.elapsed() <= LOOKING {
        match from.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().ok()
}

/// Starts the worker of a CPU.
fn started<'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: u32,
    shared: &'scope Shared<'_>,
    reply: Sender<Done>,
) -> Result<Sender<Task>, String> {
    let (request, requests) = channel::<Task>();
    let work = move || {
        // A refusal only costs time: IPIs, and a table that is shared.
        let alone = sys::set_affinity(&Mask::one(cpu)).is_ok();
        let _ = sys::own_descriptor_table();
        sys::make_room(shared.list.events.len());
        while let Some((at, step, mut unit)) = next(&requests, alone) {
            let mut rec = Recorder::new(unit.calls(shared, step));
            unit.step(shared, step, &mut rec);
            if reply.send((at, unit, rec)).is_err() {
                break;
            }
        }
    };
    let thread = std::thread::Builder::new().name("set-up".to_owned()).stack_size(256 << 10).spawn_scoped(scope, work);
    thread.map(|_| request).map_err(|error| format!("no thread started for CPU {cpu}: {error}"))
}

impl Crew<'_> {
    fn phases(mut self, first: Instant, hook: Hook<'_>) -> Finished {
        let mut costs = Vec::new();
        // The time of the first phase includes the start of the threads.
        let (mut first, mut enabled, mut settled) = (Some(first), None, (Vec::new(), 0));
        for phase in Phase::ALL {
            let began = first.take().unwrap_or_else(Instant::now);
            let counted = enabled.map(|since: Instant| since.elapsed()).unwrap_or_default();
            let mut rec = self.step(Step::Phase(phase));
            if phase == Phase::Open && self.shared.any_broken() {
                rec.absorb(self.step(Step::Regroup));
            }
            costs.push(PhaseCost { phase, wall: began.elapsed(), calls_ns: rec.calls_ns });
            if phase == Phase::Read {
                settled = self.outcomes(counted);
            }
            if phase == Phase::Enable {
                enabled = Some(Instant::now());
            }
            hook(phase, (phase == Phase::Read).then_some(settled.0.as_slice()));
        }
        let (outcomes, opened) = settled;
        let broken = self.shared.broken.iter().filter(|broken| broken.load(Ordering::Relaxed)).count();
        Finished { phases: costs, outcomes, opened, broken }
    }

    /// Returns the outcome of each event, of which each counted for `counted` at least, and the number of open descriptors.
    fn outcomes(&self, counted: Duration) -> (Vec<Outcome>, usize) {
        // A CPU that went away while it counted reads as if whole: its events ended with it.
        let online = Sysfs::host().online();
        let is_gone = |cpu: &&u32| !online.is_empty() && !online.contains(cpu);
        let gone: Vec<u32> = self.job.cpus.iter().filter(is_gone).copied().collect();
        let units: Vec<&Unit> = self.seats.iter().filter_map(|seat| seat.unit.as_ref()).collect();
        outcomes(self.job, &units, counted, &gone)
    }

    /// Makes the calls of a step on every CPU.
    fn step(&mut self, step: Step) -> Recorder {
        let shared = self.shared;
        let mut rec = Recorder::new(shared.list.events.len() * self.seats.len());
        let phase = if let Step::Phase(phase) = step { phase } else { Phase::Open };
        match self.job.method.order {
            Order::Threads => self.by_threads(step, &mut rec),
            Order::CpuMajor(moving) => {
                let mut guard = moving.has(phase).then(Guard::new);
                for unit in self.seats.iter_mut().filter_map(|seat| seat.unit.as_mut()) {
                    if let Some(guard) = &mut guard {
                        guard.move_to(unit.cpu);
                    }
                    unit.step(shared, step, &mut rec);
                }
            }
            Order::EventMajor => {
                let mut units: Vec<&mut Unit> = self.seats.iter_mut().filter_map(|seat| seat.unit.as_mut()).collect();
                rec.begin();
                for at in 0..units.iter().map(|unit| unit.calls(shared, step)).max().unwrap_or(0) {
                    for unit in &mut units {
                        unit.call(shared, step, at, &mut rec);
                    }
                }
            }
        }
        rec
    }

    /// Hands the step to every worker, makes the calls of the caller's CPU, and waits for all.
    fn by_threads(&mut self, step: Step, rec: &mut Recorder) {
        let mut sent = 0;
        for (at, seat) in self.seats.iter_mut().enumerate() {
            if let Some(worker) = &seat.worker
                && let Some(unit) = seat.unit.take()
            {
                sent += usize::from(worker.send((at, step, unit)).is_ok());
            }
        }
        for unit in self.seats.iter_mut().filter_map(|seat| seat.unit.as_mut()) {
            unit.step(self.shared, step, rec);
        }
        for (at, unit, theirs) in (0..sent).map_while(|_| next(&self.replies, self.alone)) {
            self.seats[at].unit = Some(unit);
            rec.absorb(theirs);
        }
    }
}
