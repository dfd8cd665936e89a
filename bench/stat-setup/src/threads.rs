//! One pinned thread per CPU, kept for all phases: the caller's own for the CPU that it is on, a worker for each other one.
//!
//! Each worker has its own descriptor table. A table that is shared by threads waits for an RCU grace period when it grows
//! (`expand_fdtable`), serialises opens on its lock, and applies RLIMIT_NOFILE to all CPUs together. A private table avoids all three
//! and is freed with its thread.
//!
//! Most phases take less time than a thread takes to wake up, so both sides look for the next message for a while before they sleep.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::affinity::Guard;
use crate::crew::Crew;
use crate::job::Job;
use crate::outcome::{Outcome, outcomes};
use crate::phase::{Phase, Recorder, Watch};
use crate::sys::{self, Mask};
use crate::unit::{Report, Shared, Unit};

/// Request to a worker.
#[derive(Clone, Copy, Debug)]
enum Request {
    Phase(Phase),
    CloseBroken,
    ReopenBroken,
    Report,
}

/// Reply of a worker.
#[derive(Debug)]
enum Reply {
    Done(Recorder),
    Report(Box<Report>),
}

struct Pool<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    /// The events of the caller's CPU.
    own: Option<Unit>,
    guard: Option<Guard>,
    workers: Vec<Sender<Request>>,
    replies: Receiver<Reply>,
}

/// Time that a thread polls for a message before it sleeps: a few times the cost of waking it up.
const LOOKING: Duration = Duration::from_micros(200);

/// Receives the next message; `None` if none will come. `alone`: the thread has a CPU of its own to look on; elsewhere it would take the
/// time of the thread that it waits for.
fn next<T>(from: &Receiver<T>, alone: bool) -> Option<T> {
    if !alone {
        return from.recv().ok();
    }
    let began = Instant::now();
    loop {
        match from.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if began.elapsed() > LOOKING => return from.recv().ok(),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}

/// Starts the workers, calls `work` with all threads, and joins them.
pub(crate) fn with_crew<R>(job: &Job<'_>, shared: &Shared<'_>, work: impl FnOnce(&mut dyn Crew, Watch) -> R) -> R {
    let watch = Watch::start();
    // The table grows before it is shared with threads, so that it need not wait for them.
    sys::make_room(job.list.events.len());
    let here = sys::current_cpu();
    let own = job.cpus.iter().copied().find(|cpu| *cpu == here).or(job.cpus.last().copied());
    std::thread::scope(|scope| {
        let (reply, replies) = channel();
        let mut workers = Vec::with_capacity(job.cpus.len());
        for &cpu in job.cpus.iter().filter(|cpu| Some(**cpu) != own) {
            let (request, requests) = channel();
            let reply = reply.clone();
            let name = worker_name();
            let started = std::thread::Builder::new().name(name).stack_size(256 << 10).spawn_scoped(scope, move || {
                worker(cpu, shared, &requests, &reply);
            });
            // The events of a CPU without a worker end as `NotCounted`.
            if started.is_ok() {
                workers.push(request);
            }
        }
        drop(reply);
        let guard = own.map(|cpu| {
            let mut guard = Guard::new();
            guard.move_to(cpu);
            guard
        });
        let own = own.map(|cpu| Unit::new(cpu, shared));
        work(&mut Pool { job, shared, own, guard, workers, replies }, watch)
    })
}

/// Returns the thread name of the workers; the process id distinguishes runs in traces.
pub(crate) fn worker_name() -> String {
    format!("su{}", std::process::id())
}

fn worker(cpu: u32, shared: &Shared<'_>, requests: &Receiver<Request>, reply: &Sender<Reply>) {
    // A refusal of either only costs time: IPIs, or a shared table.
    let alone = sys::set_affinity(&Mask::one(cpu)).is_ok();
    let _ = sys::own_descriptor_table();
    sys::make_room(shared.list.events.len());
    let mut unit = Unit::new(cpu, shared);
    while let Some(request) = next(requests, alone) {
        if reply.send(serve(&mut unit, shared, request)).is_err() {
            break;
        }
    }
}

fn serve(unit: &mut Unit, shared: &Shared<'_>, request: Request) -> Reply {
    let mut rec = Recorder::new(match request {
        Request::Phase(Phase::Open | Phase::Close) => shared.list.events.len(),
        _ => unit.leaders(),
    });
    match request {
        Request::Phase(phase) => unit.phase(shared, phase, &mut rec),
        Request::CloseBroken => unit.close_broken(shared, &mut rec),
        Request::ReopenBroken => unit.reopen_broken(shared, &mut rec),
        Request::Report => return Reply::Report(Box::new(Report::of(unit))),
    }
    Reply::Done(rec)
}

impl Pool<'_> {
    /// Sends a request to every worker, carries it out for the own CPU, and waits for all replies.
    fn all(&mut self, request: Request) -> Vec<Reply> {
        let sent = self.workers.iter().filter(|worker| worker.send(request).is_ok()).count();
        let own = self.own.as_mut().map(|unit| serve(unit, self.shared, request));
        let alone = self.guard.as_ref().is_some_and(Guard::is_bound);
        own.into_iter().chain((0..sent).map_while(|_| next(&self.replies, alone))).collect()
    }

    fn work(&mut self, request: Request) -> Recorder {
        let mut all = Recorder::new(0);
        for reply in self.all(request) {
            if let Reply::Done(rec) = reply {
                all.absorb(rec);
            }
        }
        all
    }
}

impl Crew for Pool<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let mut rec = self.work(Request::Phase(phase));
        if phase == Phase::Open {
            // sched_setaffinity, close_range, and the two of make_room; of the caller sched_getaffinity in place of close_range.
            rec.other(4 * (self.workers.len() + usize::from(self.guard.is_some())) as u64);
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = self.work(Request::CloseBroken);
        rec.absorb(self.work(Request::ReopenBroken));
        rec
    }

    fn outcomes(&mut self) -> (Vec<Outcome>, usize) {
        let replies = self.all(Request::Report);
        let reports: Vec<Report> = replies
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Report(report) => Some(*report),
                Reply::Done(_) => None,
            })
            .collect();
        outcomes(self.job, &reports)
    }
}
