//! One set-up, from the first open to the last close.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::alone::Alone;
use crate::crew::Crew;
use crate::job::Job;
use crate::method::{Order, layout};
use crate::outcome::Outcome;
use crate::phase::{Phase, PhaseCost, Use, Watch};
use crate::threads;
use crate::unit::Shared;

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
    /// True if each thread had a descriptor table of its own.
    pub own_tables: bool,
}

/// Called after each phase, outside of the timed section; with the outcomes after the phase that determines them.
pub type Hook<'a> = &'a mut dyn FnMut(Phase, Option<&[Outcome]>);

/// Carries out all phases of `job.purpose`.
pub fn run(job: &Job<'_>, hook: Hook<'_>) -> Finished {
    let packs = layout(job.list, job.method.pack);
    let flags = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
    let shared = Shared {
        list: job.list,
        unsupported: flags(job.list.events.len()),
        broken: flags(packs.len()),
        packs: &packs,
        ring_pages: job.ring_pages,
        close_ranges: job.method.close_ranges,
        keep_last: job.method.keep_last,
    };
    match job.method.order {
        Order::Threads => threads::with_crew(job, &shared, |crew, watch| phases(job, &shared, crew, Some(watch), hook)),
        Order::EventMajor | Order::CpuMajor(_) => {
            let watch = Watch::start();
            let mut crew = Alone::new(job, &shared);
            phases(job, &shared, &mut crew, Some(watch), hook)
        }
    }
}

fn phases(job: &Job<'_>, shared: &Shared<'_>, crew: &mut dyn Crew, first: Option<Watch>, hook: Hook<'_>) -> Finished {
    let mut costs = Vec::new();
    let mut first = first;
    let mut settled: Option<(Vec<Outcome>, usize)> = None;
    for &phase in job.purpose.phases() {
        if phase == Phase::LastClose && !job.method.keep_last {
            continue;
        }
        // The time of the first phase includes the start of the threads.
        let watch = first.take().unwrap_or_else(Watch::start);
        let mut rec = crew.phase(phase);
        if phase == Phase::Open && shared.any_broken() {
            rec.absorb(crew.break_up());
        }
        costs.push(watch.stop(phase, rec));
        // Outcomes are final after the read; without a read, after the open.
        let settles = matches!((phase, job.purpose), (Phase::Read, _) | (Phase::Open, Use::Mmap));
        if settles {
            settled = Some(crew.outcomes());
        }
        hook(phase, settled.as_ref().filter(|_| settles).map(|(outcomes, _)| outcomes.as_slice()));
    }
    let (outcomes, opened) = settled.unwrap_or_else(|| crew.outcomes());
    Finished {
        phases: costs,
        outcomes,
        opened,
        broken: shared.broken.iter().filter(|broken| broken.load(Ordering::Relaxed)).count(),
        own_tables: job.method.order == Order::Threads,
    }
}
