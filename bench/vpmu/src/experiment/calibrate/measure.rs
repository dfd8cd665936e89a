//! The measured side of a calibration: guests of all workloads, one after the other in random order within each round.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use guest::abi::{EventSpec, LOOP_INSTRUCTIONS};
use host_pmu::stats::{OpKind, OpStats};
use vmm::outcome::RunOutcome;

use crate::arms::arm::runner::ArmRunner;
use crate::arms::rounds::guest_arm::{GuestArm, Guests};
use crate::arms::rounds::plan::Plan;
use crate::engine::{self, Rounds, State};
use crate::terminal::progress::Progress;
use results::document::{self, ArmKind, Summary};
use results::error::{Error, Exit};
use results::metric::Metric;
use results::stats;

/// One workload of a calibration: its name on the command line, with its strategies, the plan of its guests and their runner.
pub type Job = ((&'static str, &'static [&'static str]), Plan, Box<dyn ArmRunner>);

/// Figures of one guest beside the document's metrics.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// An instruction of the timed loop, ps; `None` if no loop ran undisturbed.
    pub instruction_ps: Option<f64>,
    /// Unit of work without counters, ns.
    pub unit_ns: Option<f64>,
    /// Its host operations.
    pub ops: OpStats,
    /// For each event that was on a counter: umask << 8 | event code, counts a microsecond.
    rates: Vec<(u16, f64)>,
    tsc_khz: u64,
}

/// The guests of one arm, a round each.
#[derive(Debug)]
pub struct ArmGuests {
    /// The arm as in a document.
    pub result: document::Arm,
    /// Guests that are not whole have no figures.
    pub guests: Vec<Guest>,
}

/// Measurement of one workload.
#[derive(Debug)]
pub struct Measured {
    /// The workload, with its strategies.
    pub workload: (&'static str, &'static [&'static str]),
    /// Arms in the order of the plan.
    pub arms: Vec<ArmGuests>,
    /// TSC frequency of the guests, kHz.
    pub tsc_khz: u64,
}

/// Returns the median of those that there are.
pub fn median(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    stats::median(&values.into_iter().flatten().filter(|value| value.is_finite()).collect::<Vec<_>>())
}

impl Measured {
    /// Returns the arm of `strategy`.
    ///
    /// # Errors
    /// Exit 3 if it did not run.
    pub fn arm(&self, strategy: &str) -> Result<&ArmGuests, Error> {
        let is = |arm: &&ArmGuests| arm.result.name == strategy && !arm.result.rounds.is_empty();
        self.arms.iter().find(is).ok_or_else(|| missing(strategy))
    }
}

impl ArmGuests {
    /// Returns the median over whole guests of what this says of a metric.
    pub fn of(&self, metric: &Metric, figure: fn(Summary) -> Option<f64>) -> Option<f64> {
        let rounds = &self.result.rounds;
        let whole = (0..rounds.len()).filter(|&at| rounds.complete[at]);
        median(whole.map(|at| figure(rounds.metric(metric, at)?)))
    }

    /// Returns the median over guests of a metric's medians, ns.
    pub fn p50(&self, metric: &Metric) -> Option<f64> {
        self.of(metric, |found| Some(found.p50 as f64))
    }

    /// Returns the median over guests of the median cost of a host operation, ns.
    pub fn op_p50(&self, kind: OpKind) -> Option<f64> {
        // Of an even number the mean of both in the middle.
        let of_guest = |Guest { ops, .. }: &Guest| {
            let (n, costs) = (ops.count(kind), ops.histogram(kind));
            let ranked = |rank: u64| costs.value_at_quantile((rank as f64 - 0.5) / n as f64) as f64;
            (n > 0).then(|| f64::midpoint(ranked(n.div_ceil(2)), ranked(n / 2 + 1)))
        };
        median(self.guests.iter().map(of_guest))
    }

    /// Returns the counts a microsecond on a counter of each event.
    pub fn rates(&self) -> BTreeMap<u16, f64> {
        let mut rates: BTreeMap<u16, Vec<Option<f64>>> = BTreeMap::new();
        for &(code, rate) in self.guests.iter().flat_map(|guest| &guest.rates) {
            rates.entry(code).or_default().push(Some(rate));
        }
        rates.into_iter().filter_map(|(code, all)| Some((code, median(all).filter(|rate| *rate > 0.0)?))).collect()
    }
}

/// Runs every arm of every job once per round, all of them in one random order, so that a mode of the host meets all alike.
///
/// # Errors
/// Errors of the runs, and exit 3 if one was interrupted or did not end as it should.
pub fn run(
    jobs: &mut [Job],
    rounds: u64,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Measured>, Error> {
    let figures: RefCell<BTreeMap<(usize, String), Vec<Guest>>> = RefCell::default();
    let began = Instant::now();
    let (mut measured, mut guests) = (Vec::new(), Vec::new());
    for (workload, plan, runner) in jobs {
        measured.push(Measured { workload: *workload, arms: Vec::new(), tsc_khz: 0 });
        guests.push(Guests::new(plan, runner.as_mut(), stop, began));
    }
    let (mut jobs_of_arms, mut arms) = (Vec::new(), Vec::<GuestArm<'_>>::new());
    for (job, guests) in guests.iter().enumerate() {
        let boot = &guests.plan.guest.boot;
        let events = &boot.events[..boot.event_count as usize];
        for mut arm in guests.arms()? {
            let result = arm.fold.result();
            if result.kind == ArmKind::Kvm {
                continue;
            }
            if let Some(why) = result.not_available {
                return Err(incomplete(&measured[job], &why));
            }
            let (figures, key) = (&figures, (job, result.name));
            arm.kept = Box::new(move |outcome| {
                figures.borrow_mut().entry(key.clone()).or_default().push(self::figures(outcome, events));
            });
            jobs_of_arms.push(job);
            arms.push(arm);
        }
    }
    let mut after = |_: &mut [GuestArm<'_>], _: &State| Ok(false);
    let bounds = Rounds { warmup: 1, ..Rounds::of(rounds, 1) };
    let (state, ended) = engine::run(&mut arms, &bounds, stop, progress, &mut after);
    ended?;
    for (job, arm) in jobs_of_arms.into_iter().zip(&arms) {
        let (result, measured) = (arm.fold.result(), &mut measured[job]);
        let why = match (result.incomplete.first(), state.interrupted) {
            (_, true) => Some("it was interrupted"),
            (why, false) => why.map(String::as_str).filter(|_| !arm.fold.is_complete() || result.rounds.is_empty()),
        };
        if let Some(why) = why {
            return Err(incomplete(measured, &format!("{}: {why}", result.name)));
        }
        let mut guests = figures.borrow_mut().remove(&(job, result.name.clone())).unwrap_or_default();
        for (guest, _) in guests.iter_mut().zip(&result.rounds.complete).filter(|(_, complete)| !**complete) {
            *guest = Guest::default();
        }
        measured.tsc_khz = guests.iter().map(|guest| guest.tsc_khz).find(|khz| *khz > 0).unwrap_or(measured.tsc_khz);
        measured.arms.push(ArmGuests { result, guests });
    }
    Ok(measured)
}

fn figures(outcome: &RunOutcome, events: &[EventSpec]) -> Guest {
    let mut guest = Guest::default();
    for vcpu in &outcome.vcpus {
        guest.ops.merge(&vcpu.account.host.ops);
        let Some(report) = vcpu.left.report.as_deref().filter(|_| vcpu.left.tsc.khz > 0) else { continue };
        guest.tsc_khz = vcpu.left.tsc.khz;
        let ns = |ticks: u64| ticks as f64 * 1e6 / vcpu.left.tsc.khz as f64;
        if report.loops > 0 {
            let instructions = report.loops as f64 * LOOP_INSTRUCTIONS as f64;
            guest.instruction_ps = Some(1000.0 * ns(report.loop_ticks) / instructions);
        }
        let span = report.baseline_end.saturating_sub(report.baseline_begin);
        if report.baseline_units > 0 && span > 0 {
            guest.unit_ns = Some(ns(span) / report.baseline_units as f64);
        }
        for ((event, &counts), &running) in events.iter().zip(&report.counts).zip(&report.running) {
            if running > 0 {
                guest.rates.push(((event.selector & 0xffff) as u16, counts as f64 * 1000.0 / ns(running)));
            }
        }
    }
    guest
}

/// Returns that a figure is missing.
pub fn missing(what: &str) -> Error {
    let why = format!("{what} is missing in the measurement");
    Error::new(Exit::Inconclusive, "cannot make a model", why, "run it again")
}

fn incomplete(measured: &Measured, why: &str) -> Error {
    let what = format!("workload {} did not end as it should", measured.workload.0);
    Error::new(Exit::Inconclusive, what, why, "no model was written; run it again")
}
