//! One set-up from the first open to the last close, by a method.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::affinity::Guard;
use crate::list::EventList;
use crate::method::{Method, Order, layout};
use crate::outcome::{Outcome, outcomes};
use crate::phase::{Phase, PhaseCost, Recorder, Use, Watch};
use crate::threads;
use crate::unit::{Shared, Unit};

/// What is set up, and how.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The events.
    pub list: &'a EventList,
    /// The CPUs, each once.
    pub cpus: &'a [u32],
    /// The way.
    pub method: Method,
    /// What for.
    pub purpose: Use,
    /// Data pages of a mapped buffer, a power of two.
    pub ring_pages: usize,
}

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What each phase cost, in order.
    pub phases: Vec<PhaseCost>,
    /// What became of each event of the list.
    pub outcomes: Vec<Outcome>,
    /// Descriptors that were open at once.
    pub opened: usize,
    /// Weak groups that were broken up.
    pub broken: usize,
    /// Whether threads had descriptor tables of their own.
    pub own_tables: bool,
}

/// Called after each phase, outside of its time, with what became of the events where the phase settled that.
pub type Hook<'a> = &'a mut dyn FnMut(Phase, Option<&[Outcome]>);

/// Where the units are: here, or with their threads.
pub(crate) trait Crew {
    /// Does a phase on every CPU.
    fn phase(&mut self, phase: Phase) -> Recorder;
    /// Passes A and B.
    fn break_up(&mut self) -> Recorder;
    /// The units' failures and counts, and which events are open where.
    fn outcomes(&mut self) -> (Vec<Outcome>, usize);
}

/// Sets up, enables, reads, disables and closes.
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
        // The first phase began when the crew was called together.
        let watch = first.take().unwrap_or_else(Watch::start);
        let mut rec = crew.phase(phase);
        if phase == Phase::Open && shared.any_broken() {
            rec.absorb(crew.break_up());
        }
        costs.push(watch.stop(phase, rec));
        // Counts are settled by the read; without one, by the open.
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

/// One thread for all CPUs.
struct Alone<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    units: Vec<Unit>,
}

impl<'a> Alone<'a> {
    fn new(job: &'a Job<'a>, shared: &'a Shared<'a>) -> Self {
        Self { job, shared, units: job.cpus.iter().map(|&cpu| Unit::new(cpu, shared)).collect() }
    }

    /// Event by event: the next only when every CPU has this one.
    fn event_major(&mut self, phase: Phase, rec: &mut Recorder) {
        let leaders = self.units.iter().map(Unit::leaders).max().unwrap_or(0);
        match phase {
            Phase::Open => {
                for (pack, group) in self.shared.packs.iter().enumerate() {
                    for position in 0..group.members.len() {
                        for unit in &mut self.units {
                            unit.open_one(self.shared, pack, position, rec);
                        }
                    }
                }
            }
            Phase::Enable | Phase::Read | Phase::Disable => {
                for led in 0..leaders {
                    for unit in &mut self.units {
                        match phase {
                            Phase::Enable => unit.enable(led, rec),
                            Phase::Read => unit.read(led, rec),
                            _ => unit.disable(led, rec),
                        }
                    }
                }
            }
            Phase::Close => {
                for event in (0..self.job.list.events.len()).rev() {
                    for unit in &mut self.units {
                        unit.close_event(event, rec);
                    }
                }
            }
            Phase::Map | Phase::Unmap | Phase::LastClose => {
                for unit in &mut self.units {
                    of_unit(unit, self.shared, phase, rec);
                }
            }
        }
    }
}

/// A phase for all events of one CPU.
pub(crate) fn of_unit(unit: &mut Unit, shared: &Shared<'_>, phase: Phase, rec: &mut Recorder) {
    match phase {
        Phase::Open => unit.open_all(shared, rec),
        Phase::Map => unit.map(shared, rec),
        Phase::Unmap => unit.unmap(rec),
        Phase::Close => unit.close_all(shared, rec),
        Phase::LastClose => unit.close_kept(rec),
        Phase::Enable => (0..unit.leaders()).for_each(|led| unit.enable(led, rec)),
        Phase::Read => (0..unit.leaders()).for_each(|led| unit.read(led, rec)),
        Phase::Disable => (0..unit.leaders()).for_each(|led| unit.disable(led, rec)),
    }
}

impl Crew for Alone<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let mut rec = Recorder::new(self.job.list.events.len() * self.units.len());
        let Order::CpuMajor(moving) = self.job.method.order else {
            self.event_major(phase, &mut rec);
            return rec;
        };
        let mut guard = moving.has(phase).then(Guard::new);
        for unit in &mut self.units {
            if let Some(guard) = &mut guard {
                guard.move_to(unit.cpu);
            }
            of_unit(unit, self.shared, phase, &mut rec);
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = Recorder::new(0);
        let moving = matches!(self.job.method.order, Order::CpuMajor(moving) if moving.has(Phase::Open));
        let mut guard = moving.then(Guard::new);
        for pass in [Unit::close_broken, Unit::reopen_broken] {
            for unit in &mut self.units {
                if let Some(guard) = &mut guard {
                    guard.move_to(unit.cpu);
                }
                pass(unit, self.shared, &mut rec);
            }
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn outcomes(&mut self) -> (Vec<Outcome>, usize) {
        let reports: Vec<_> = self.units.iter().map(Report::of).collect();
        outcomes(self.job, &reports)
    }
}

/// What a unit has to tell.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) cpu: u32,
    pub(crate) open: Vec<bool>,
    pub(crate) counts: Vec<Option<crate::unit::Count>>,
    pub(crate) failures: Vec<crate::unit::Failure>,
}

impl Report {
    pub(crate) fn of(unit: &Unit) -> Self {
        Self {
            cpu: unit.cpu,
            open: (0..unit.counts.len()).map(|event| unit.is_open(event)).collect(),
            counts: unit.counts.clone(),
            failures: unit.failures.clone(),
        }
    }
}
