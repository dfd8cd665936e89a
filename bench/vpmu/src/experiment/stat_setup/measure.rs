//! Runs of one strategy, and their summary.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host_pmu::stats::ns;
use results::document::{ArmKind, Metrics, Rounds, Summary};
use results::error::{Error, Exit};
use results::metric::{TO_COUNTS, TOTAL};
use results::stats::nearest_rank;
use stat_setup::bare;
use stat_setup::list::{Class, EventList};
use stat_setup::method::{Descriptors, Job, Method, Order, Phase, PhaseCost, Use};
use stat_setup::monitor::{Monitor, Traffic};
use stat_setup::run::{Finished, run};
use stat_setup::unit::Outcome;
use stat_setup::verify::{Check, check, plant};

use super::document::{self, HostSetUpArm, PhaseResult};
use crate::sys;
use crate::terminal::progress::Progress;

/// One timed run of a strategy.
#[derive(Debug)]
pub(crate) struct TimedRound {
    pub(crate) number: u64,
    /// Position within the round.
    pub(crate) position: u64,
    /// Start, ns after the start of the experiment.
    pub(crate) started_ns: u64,
    pub(crate) finished: Finished,
}

impl TimedRound {
    /// Returns the sum of the phases up to `last`, ns.
    fn upto(&self, last: Phase) -> u64 {
        ns(self.finished.phases.iter().take_while(|cost| cost.phase <= last).map(|cost| cost.wall).sum())
    }

    fn total(&self) -> u64 {
        ns(self.finished.phases.iter().map(|cost| cost.wall).sum())
    }

    fn add_to(&self, rounds: &mut Rounds) {
        let one = |ns: u64| Summary::of_values(&[ns]);
        let phases = self.finished.phases.iter();
        let mut metrics = metrics(one(self.total()), one(self.upto(Phase::Read)));
        metrics.extend(phases.map(|cost| (wall_key(cost.phase), one(ns(cost.wall)))));
        rounds.index.push(self.number);
        rounds.position.push(self.position);
        rounds.complete.push(true);
        rounds.started_us.push(self.started_ns / 1000);
        rounds.push_metrics(&metrics);
    }
}

/// The key of a phase's wall times.
fn wall_key(phase: Phase) -> String {
    format!("phases/{}/wall_ns", phase.name())
}

fn metrics(total: Summary, to_counts: Summary) -> Metrics {
    [(TOTAL, total), (TO_COUNTS, to_counts)]
        .into_iter()
        .filter(|(_, summary)| summary.count > 0)
        .map(|(metric, summary)| (metric.key.to_owned(), summary))
        .collect()
}

/// A strategy with its measurements.
#[derive(Debug)]
pub(crate) struct SetUpArm {
    pub(crate) strategy: String,
    pub(crate) method: Method,
    pub(crate) rounds: Vec<TimedRound>,
    pub(crate) traffic: Vec<(Phase, Traffic)>,
    pub(crate) check: Option<Check>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Parameters common to all arms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) list: &'a EventList,
    pub(crate) cpus: &'a [u32],
    pub(crate) purpose: Use,
    pub(crate) count: Duration,
    /// Descriptors that fit into one table.
    pub(crate) room: u64,
}

/// Data pages of perf's default buffer: kernel.perf_event_mlock_kb without the user page.
pub(crate) const RING_PAGES: usize = 128;

impl Setting<'_> {
    /// Returns the method of a strategy.
    pub(crate) fn method(&self, name: &str) -> Method {
        let one_table = Descriptors::of(self.list, self.cpus).fullest(Order::EventMajor) <= self.room;
        match name {
            "event-major" => Method::EVENT_MAJOR,
            "cpu-major" => Method::CPU_MAJOR,
            "threads" => Method::THREADS,
            "packed" => Method::packed(self.list, self.purpose),
            _ => Method::auto(self.list, self.cpus.len(), self.purpose, one_table),
        }
    }

    pub(crate) fn job(&self, method: Method) -> Job<'_> {
        Job { list: self.list, cpus: self.cpus, method, purpose: self.purpose, ring_pages: RING_PAGES, room: self.room }
    }

    /// Does one timed run.
    pub(crate) fn timed(&self, method: Method) -> Finished {
        run(&self.job(method), &mut |phase, _| {
            if phase == Phase::Enable && !self.count.is_zero() {
                std::thread::sleep(self.count);
            }
        })
    }

    /// Measures the bare calls of `method`'s groups: their time with nothing around them. `None` where one fails, and of
    /// tracepoints: their closes, in which `auto` differs, take seconds.
    pub(crate) fn bare(&self, method: Method) -> Option<Duration> {
        let no_tracepoint = self.list.events.iter().all(|event| event.class() != Some(Class::Tracepoint));
        (self.purpose == Use::Stat && no_tracepoint).then(|| bare::run(self.list, self.cpus, method))?
    }

    /// Does one run around a known amount of work.
    pub(crate) fn checked(&self, method: Method) -> (Check, Finished) {
        let mut problem = None;
        let finished = run(&self.job(method), &mut |phase, _| {
            if phase == Phase::Enable {
                problem = plant(self.cpus).err();
            }
        });
        let calls = finished.phases.iter().filter(|cost| matches!(cost.phase, Phase::Enable | Phase::Read));
        let longest = calls.flat_map(|cost| &cost.calls_ns).max().copied().unwrap_or(0).into();
        let mut found = check(self.list, &finished.outcomes, finished.opened, self.cpus.len(), longest);
        if let Some(error) = problem {
            found.problems.push(format!("the known work failed: {error}"));
        }
        (found, finished)
    }

    /// Does one run under the monitor; also returns the number of open descriptors.
    pub(crate) fn monitored(&self, method: Method, monitor: &Monitor) -> (Vec<(Phase, Traffic)>, u64) {
        let mut found = Vec::new();
        let mut began = monitor.begin();
        let finished = run(&self.job(method), &mut |phase, _| {
            found.push((phase, monitor.end(began)));
            began = monitor.begin();
        });
        (found, finished.opened as u64)
    }
}

impl SetUpArm {
    pub(crate) fn new(strategy: &str, method: Method) -> Self {
        let strategy = strategy.to_owned();
        Self { strategy, method, rounds: Vec::new(), traffic: Vec::new(), check: None, outcomes: Vec::new() }
    }

    /// Returns the time of all phases of each round, ns.
    pub(crate) fn totals(&self) -> Vec<u64> {
        self.rounds.iter().map(TimedRound::total).collect()
    }

    /// Returns the summary over the rounds.
    pub(crate) fn result(&self) -> document::Arm {
        let phases: Vec<Phase> = self
            .rounds
            .first()
            .map_or_else(Vec::new, |round| round.finished.phases.iter().map(|cost| cost.phase).collect());
        let spread =
            |get: &dyn Fn(&TimedRound) -> u64| Summary::of_values(&self.rounds.iter().map(get).collect::<Vec<_>>());
        let mut metrics = metrics(spread(&TimedRound::total), spread(&|round| round.upto(Phase::Read)));
        metrics.extend(phases.iter().flat_map(|phase| self.times(*phase)).filter(|(_, summary)| summary.count > 0));
        let mut rounds = Rounds::default();
        self.rounds.iter().for_each(|round| round.add_to(&mut rounds));
        document::Arm {
            name: self.strategy.clone(),
            kind: ArmKind::Strategy,
            backend: "perf_event_open".to_owned(),
            stand_in: false,
            not_available: None,
            incomplete: Vec::new(),
            left_out: Vec::new(),
            notes: Vec::new(),
            metrics,
            own: HostSetUpArm {
                method: self.method,
                what: self.method.to_string(),
                phases: phases.into_iter().map(|phase| self.phase(phase)).collect(),
                broken_groups: self.rounds.first().map_or(0, |round| round.finished.broken as u64),
                check: self.check.clone(),
            },
            rounds,
        }
    }

    fn costs(&self, phase: Phase) -> impl Iterator<Item = &PhaseCost> {
        self.rounds.iter().flat_map(|round| &round.finished.phases).filter(move |cost| cost.phase == phase)
    }

    /// The wall times of a phase and the lengths of its calls, with their keys.
    fn times(&self, phase: Phase) -> [(String, Summary); 2] {
        let walls: Vec<u64> = self.costs(phase).map(|cost| ns(cost.wall)).collect();
        let mut calls: Vec<u64> =
            self.costs(phase).flat_map(|cost| cost.calls_ns.iter().map(|&ns| ns.into())).collect();
        calls.sort_unstable();
        let calls = Summary { p99: nearest_rank(&calls, 0.99), ..Summary::of_values(&calls) };
        [(wall_key(phase), Summary::of_values(&walls)), (format!("phases/{}/call_ns", phase.name()), calls)]
    }

    fn phase(&self, phase: Phase) -> PhaseResult {
        let costs = || self.costs(phase);
        let n = costs().count().max(1) as f64;
        let traffic = self.traffic.iter().find(|(found, _)| *found == phase).map(|(_, traffic)| *traffic);
        PhaseResult {
            phase: phase.name().to_owned(),
            user_ns: costs().map(|cost| cost.user.as_nanos() as f64).sum::<f64>() / n,
            sys_ns: costs().map(|cost| cost.sys.as_nanos() as f64).sum::<f64>() / n,
            syscalls: costs().next().map_or(0, |cost| cost.syscalls),
            traffic: traffic.unwrap_or_default(),
        }
    }
}

/// Returns the ns since `began`.
pub(crate) fn since(began: Instant) -> u64 {
    ns(began.elapsed())
}

/// Progress of the experiment; Ctrl-C ends it between two steps.
pub(super) struct Steps<'a> {
    pub(super) progress: &'a mut dyn Progress,
}

impl Steps<'_> {
    pub(super) fn step(&mut self, what: impl FnOnce() -> String) -> Result<(), Error> {
        if sys::interrupted().load(Ordering::Relaxed) {
            return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
        }
        self.progress.run(&what());
        self.progress.step();
        Ok(())
    }
}
