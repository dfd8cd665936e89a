//! A pinned worker per CPU, kept for all phases.
//!
//! Each worker has a descriptor table of its own (`unshare(CLONE_FILES)`). In a table that threads share, growing it waits for
//! an RCU grace period (`expand_fdtable`), opens contend for its lock, and RLIMIT_NOFILE bounds all CPUs together; a
//! table of one thread has none of that, and goes away with its thread.

use std::sync::mpsc::{Receiver, Sender, channel};

use crate::outcome::{Outcome, outcomes};
use crate::phase::{Phase, Recorder, Watch};
use crate::run::{Crew, Finished, Job, Report, of_unit};
use crate::sys::{self, Mask};
use crate::unit::{Shared, Unit};

/// What a worker is asked to do.
#[derive(Clone, Copy, Debug)]
enum Order {
    Phase(Phase),
    CloseBroken,
    ReopenBroken,
    Report,
}

/// What it answers.
#[derive(Debug)]
enum Answer {
    Done(Recorder),
    Report(Box<Report>),
}

struct Pool<'a> {
    job: &'a Job<'a>,
    workers: Vec<Sender<Order>>,
    answers: Receiver<Answer>,
}

/// Starts a worker per CPU and lets `work` direct them; they are gone when it returns.
pub(crate) fn with_crew(
    job: &Job<'_>,
    shared: &Shared<'_>,
    work: impl FnOnce(&mut dyn Crew, Watch) -> Finished,
) -> Finished {
    let watch = Watch::start();
    std::thread::scope(|scope| {
        let (answer, answers) = channel();
        let mut workers = Vec::with_capacity(job.cpus.len());
        for &cpu in job.cpus {
            let (order, orders) = channel();
            let answer = answer.clone();
            let name = worker_name();
            let started = std::thread::Builder::new().name(name).stack_size(256 << 10).spawn_scoped(scope, move || {
                worker(cpu, shared, &orders, &answer);
            });
            // A CPU without worker has no events: its counts are missing, and said to be.
            if started.is_ok() {
                workers.push(order);
            }
        }
        drop(answer);
        work(&mut Pool { job, workers, answers }, watch)
    })
}

/// A worker's name: the process's id tells runs apart in traces.
pub(crate) fn worker_name() -> String {
    format!("su{}", std::process::id())
}

fn worker(cpu: u32, shared: &Shared<'_>, orders: &Receiver<Order>, answer: &Sender<Answer>) {
    // Where either is refused, calls cost IPIs or share a table: slower, not wrong.
    let _ = sys::set_affinity(&Mask::one(cpu));
    let _ = sys::own_descriptor_table();
    let mut unit = Unit::new(cpu, shared);
    while let Ok(order) = orders.recv() {
        let mut rec = Recorder::new(match order {
            Order::Phase(Phase::Open | Phase::Close) => shared.list.events.len(),
            _ => unit.leaders(),
        });
        let done = match order {
            Order::Phase(phase) => {
                of_unit(&mut unit, shared, phase, &mut rec);
                Answer::Done(rec)
            }
            Order::CloseBroken => {
                unit.close_broken(shared, &mut rec);
                Answer::Done(rec)
            }
            Order::ReopenBroken => {
                unit.reopen_broken(shared, &mut rec);
                Answer::Done(rec)
            }
            Order::Report => Answer::Report(Box::new(Report::of(&unit))),
        };
        if answer.send(done).is_err() {
            break;
        }
    }
}

impl Pool<'_> {
    /// Gives an order to every worker and waits for all answers.
    fn all(&mut self, order: Order) -> Vec<Answer> {
        let sent = self.workers.iter().filter(|worker| worker.send(order).is_ok()).count();
        (0..sent).map_while(|_| self.answers.recv().ok()).collect()
    }

    fn work(&mut self, order: Order) -> Recorder {
        let mut all = Recorder::new(0);
        for answer in self.all(order) {
            if let Answer::Done(rec) = answer {
                all.absorb(rec);
            }
        }
        all
    }
}

impl Crew for Pool<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let mut rec = self.work(Order::Phase(phase));
        if phase == Phase::Open {
            // sched_setaffinity, unshare, close_range.
            rec.other(3 * self.workers.len() as u64);
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = self.work(Order::CloseBroken);
        rec.absorb(self.work(Order::ReopenBroken));
        rec
    }

    fn outcomes(&mut self) -> (Vec<Outcome>, usize) {
        let answers = self.all(Order::Report);
        let reports: Vec<Report> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                Answer::Report(report) => Some(*report),
                Answer::Done(_) => None,
            })
            .collect();
        outcomes(self.job, &reports)
    }
}
