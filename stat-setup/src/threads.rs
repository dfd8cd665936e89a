//! One pinned worker thread per CPU, kept for all phases.
//!
//! Each worker has its own descriptor table (`unshare(CLONE_FILES)`). A table that is shared by threads waits for an RCU
//! grace period when it grows (`expand_fdtable`), serialises opens on its lock, and applies RLIMIT_NOFILE to all CPUs
//! together. A private table avoids all three and is freed with its thread.

use std::sync::mpsc::{Receiver, Sender, channel};

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
    workers: Vec<Sender<Request>>,
    replies: Receiver<Reply>,
}

/// Starts one worker per CPU, calls `work` with them, and joins them.
pub(crate) fn with_crew<R>(job: &Job<'_>, shared: &Shared<'_>, work: impl FnOnce(&mut dyn Crew, Watch) -> R) -> R {
    let watch = Watch::start();
    std::thread::scope(|scope| {
        let (reply, replies) = channel();
        let mut workers = Vec::with_capacity(job.cpus.len());
        for &cpu in job.cpus {
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
        work(&mut Pool { job, workers, replies }, watch)
    })
}

/// Thread name of the workers; the process id distinguishes runs in traces.
pub(crate) fn worker_name() -> String {
    format!("su{}", std::process::id())
}

fn worker(cpu: u32, shared: &Shared<'_>, requests: &Receiver<Request>, reply: &Sender<Reply>) {
    // A refusal of either only costs time: IPIs, or a shared table.
    let _ = sys::set_affinity(&Mask::one(cpu));
    let _ = sys::own_descriptor_table();
    let mut unit = Unit::new(cpu, shared);
    while let Ok(request) = requests.recv() {
        let mut rec = Recorder::new(match request {
            Request::Phase(Phase::Open | Phase::Close) => shared.list.events.len(),
            _ => unit.leaders(),
        });
        let done = match request {
            Request::Phase(phase) => {
                unit.phase(shared, phase, &mut rec);
                Reply::Done(rec)
            }
            Request::CloseBroken => {
                unit.close_broken(shared, &mut rec);
                Reply::Done(rec)
            }
            Request::ReopenBroken => {
                unit.reopen_broken(shared, &mut rec);
                Reply::Done(rec)
            }
            Request::Report => Reply::Report(Box::new(Report::of(&unit))),
        };
        if reply.send(done).is_err() {
            break;
        }
    }
}

impl Pool<'_> {
    /// Sends a request to every worker and waits for all replies.
    fn all(&mut self, request: Request) -> Vec<Reply> {
        let sent = self.workers.iter().filter(|worker| worker.send(request).is_ok()).count();
        (0..sent).map_while(|_| self.replies.recv().ok()).collect()
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
            // sched_setaffinity, unshare, close_range.
            rec.other(3 * self.workers.len() as u64);
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
