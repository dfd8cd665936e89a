//! The measured side of a calibration: guests of all workloads, one after the other in random order within each round.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use guest::abi::{EventSpec, LOOP_INSTRUCTIONS};
use hdrhistogram::Histogram;
use host_pmu::stats::{OpKind, OpStats};
use vmm::machine::Cpu;
use vmm::outcome::RunOutcome;

use crate::arms::arm::runner::ArmRunner;
use crate::arms::rounds::guest_arm::{GuestArm, Guests};
use crate::arms::rounds::plan::Plan;
use crate::engine::{self, Rounds, State};
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::terminal::progress::Progress;
use results::document::{self, ArmKind, Summary};
use results::error::{Error, Exit};
use results::metric::Metric;
use results::stats::median;

/// One workload of a calibration.
pub struct Job {
    /// Name of the workload on the command line.
    pub workload: &'static str,
    /// Specification of its guests.
    pub spec: NmiLatencySpec,
    /// Plan of the guests.
    pub plan: Plan,
    /// Runner of the guests.
    pub runner: Box<dyn ArmRunner>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("workload", &self.workload).finish_non_exhaustive()
    }
}

/// Figures of one guest beside the document's metrics.
#[derive(Clone, Debug, Default)]
struct Guest {
    /// An instruction of the timed loop, ps; `None` if no loop ran undisturbed.
    instruction_ps: Option<f64>,
    /// Unit of work without counters, ns.
    unit_ns: Option<f64>,
    ops: OpStats,
    /// For each event that was on a counter: umask << 8 | event code, counts, µs.
    counts: Vec<(u16, u64, f64)>,
    tsc_khz: u64,
}

/// The guests of one arm, a round each.
#[derive(Debug)]
pub struct ArmGuests {
    /// The arm as in a document.
    pub result: document::Arm,
    guests: Vec<Guest>,
}

/// Measurement of one workload.
#[derive(Debug)]
pub struct Measured {
    /// Name of the workload on the command line.
    pub workload: &'static str,
    /// Specification of its guests.
    pub spec: NmiLatencySpec,
    /// Processor of its guests.
    pub cpu: Cpu,
    /// Arms in the order of the plan.
    pub arms: Vec<ArmGuests>,
    /// TSC frequency of the guests, kHz.
    pub tsc_khz: u64,
}

impl Measured {
    /// Returns the arm of `strategy`, if it ran.
    pub fn arm(&self, strategy: &str) -> Option<&ArmGuests> {
        self.arms.iter().find(|arm| arm.result.name == strategy && !arm.result.rounds.is_empty())
    }
}

impl ArmGuests {
    /// Returns a metric in each guest; `None` for a guest without values, or that lost something.
    fn summaries(&self, metric: &Metric) -> impl Iterator<Item = Option<Summary>> {
        let rounds = &self.result.rounds;
        (0..rounds.len()).map(|at| rounds.metric(metric, at).filter(|_| rounds.complete[at]))
    }

    /// Returns a metric's median in each guest, ns.
    pub fn medians(&self, metric: &Metric) -> Vec<Option<f64>> {
        self.summaries(metric).map(|found| Some(found?.p50 as f64)).collect()
    }

    /// Returns a metric's mean in each guest, ns.
    pub fn means(&self, metric: &Metric) -> Vec<Option<f64>> {
        self.summaries(metric).map(|found| found?.mean).collect()
    }

    /// Returns the median cost of a host operation in each guest, ns: of an even number the mean of both in the middle.
    pub fn op_medians(&self, kind: OpKind) -> Vec<Option<f64>> {
        let median = |ops: &OpStats| {
            let (n, costs) = (ops.count(kind), ops.histogram(kind));
            let ranked = |rank: u64| costs.value_at_quantile((rank as f64 - 0.5) / n as f64) as f64;
            (n > 0).then(|| f64::midpoint(ranked(n.div_ceil(2)), ranked(n / 2 + 1)))
        };
        self.guests.iter().map(|guest| median(&guest.ops)).collect()
    }

    /// Returns the mean cost of a host operation in each guest, ns.
    pub fn op_means(&self, kind: OpKind) -> Vec<Option<f64>> {
        let mean = |ops: &OpStats| (ops.count(kind) > 0).then(|| ops.histogram(kind).mean());
        self.guests.iter().map(|guest| mean(&guest.ops)).collect()
    }

    /// Returns the time of an instruction of the timed loop in each guest, ps.
    pub fn instructions_ps(&self) -> Vec<Option<f64>> {
        self.guests.iter().map(|guest| guest.instruction_ps).collect()
    }

    /// Returns the time of a unit of work without counters in each guest, ns.
    pub fn units_ns(&self) -> Vec<Option<f64>> {
        self.guests.iter().map(|guest| guest.unit_ns).collect()
    }

    /// Returns the counts a microsecond on a counter of each event, in each guest.
    pub fn rates(&self) -> BTreeMap<u16, Vec<Option<f64>>> {
        let mut rates: BTreeMap<u16, Vec<Option<f64>>> = BTreeMap::new();
        for &(code, counts, us) in self.guests.iter().flat_map(|guest| &guest.counts) {
            rates.entry(code).or_default().push(Some(counts as f64 / us));
        }
        rates
    }

    /// Returns the costs of a host operation in each guest, ns.
    pub fn costs(&self, kind: OpKind) -> Vec<Histogram<u64>> {
        self.guests.iter().map(|guest| guest.ops.histogram(kind)).collect()
    }
}

/// Runs every arm of every job once per round, all of them in one random order, so that a mode of the host meets all alike.
/// It ends after the round in which `bound` passes, after two at the least.
///
/// # Errors
/// Errors of the runs, and exit 3 if one was interrupted or did not end as it should.
pub fn run(
    jobs: &mut [Job],
    (rounds, bound): (u64, Option<Duration>),
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Measured>, Error> {
    let figures: RefCell<BTreeMap<(usize, String), Vec<Guest>>> = RefCell::default();
    let began = Instant::now();
    let (mut measured, mut guests) = (Vec::new(), Vec::new());
    for Job { workload, spec, plan, runner } in jobs {
        let (spec, cpu) = (spec.clone(), plan.guest.machine.cpu);
        measured.push(Measured { workload, spec, cpu, arms: Vec::new(), tsc_khz: 0 });
        guests.push(Guests::new(plan, runner.as_mut(), stop, began));
    }
    let mut arms = Vec::new();
    for (job, guests) in guests.iter().enumerate() {
        let boot = &guests.plan.guest.boot;
        let events = &boot.events[..boot.event_count as usize];
        for mut arm in guests.arms()? {
            let result = arm.fold.result();
            if result.kind == ArmKind::Kvm {
                continue;
            }
            if let Some(why) = result.not_available {
                return Err(incomplete(measured[job].workload, &why));
            }
            let (figures, key) = (&figures, (job, result.name));
            arm.kept = Box::new(move |outcome| {
                figures.borrow_mut().entry(key.clone()).or_default().push(self::figures(outcome, events));
            });
            arms.push((job, arm));
        }
    }
    let (jobs_of_arms, mut arms): (Vec<usize>, Vec<GuestArm<'_>>) = arms.into_iter().unzip();
    progress.begin(arms.len() as u64 * (rounds + 1));
    let mut done = 0;
    let mut after = |_: &mut [GuestArm<'_>], _: &State| {
        done += 1;
        Ok(done >= 2 && bound.is_some_and(|bound| began.elapsed() >= bound))
    };
    let bounds = Rounds { warmup: 1, ..Rounds::of(rounds, 1) };
    let (state, ended) = engine::run(&mut arms, &bounds, stop, progress, &mut after);
    progress.end();
    ended?;
    for (job, arm) in jobs_of_arms.into_iter().zip(&arms) {
        let (result, measured) = (arm.fold.result(), &mut measured[job]);
        let why = match (result.incomplete.first(), state.interrupted) {
            (_, true) => Some("it was interrupted"),
            (why, false) => why.map(String::as_str).filter(|_| !arm.fold.is_complete() || result.rounds.is_empty()),
        };
        if let Some(why) = why {
            return Err(incomplete(measured.workload, &format!("{}: {why}", result.name)));
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
                guest.counts.push(((event.selector & 0xffff) as u16, counts, ns(running) / 1000.0));
            }
        }
    }
    guest
}

fn incomplete(workload: &str, why: &str) -> Error {
    Error::new(
        Exit::Inconclusive,
        format!("workload {workload} did not end as it should"),
        why,
        "no model was written; run it again",
    )
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Lower and upper bound.
    pub interval: [f64; 2],
}

impl Estimate {
    /// Estimates the median of `values`, one per guest, with the interval of the sign test: from the order statistics
    /// that the median lies between with 95 %, whatever the distribution. `None` without values; below six values the
    /// interval is all of them.
    #[expect(clippy::cast_sign_loss, reason = "made positive first")]
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().flatten().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        // The number of values below the median is binomial (n, 1/2); its normal approximation, rounded outwards.
        let outside = (n / 2.0 - 0.98 * n.sqrt() - 0.5).max(0.0) as usize;
        Some(Self { value: median(&sorted)?, interval: [sorted[outside], sorted[sorted.len() - 1 - outside]] })
    }

    /// Returns it with the uncertainties `by` of other figures that it was made with, half widths in its own unit: all of them
    /// are taken for independent.
    pub fn widened(self, by: &[f64]) -> Self {
        let by: f64 = by.iter().map(|half| half * half).sum();
        let [low, high] = self.interval.map(|bound| ((bound - self.value).powi(2) + by).sqrt());
        Self { value: self.value, interval: [self.value - low, self.value + high] }
    }

    /// Returns it with an interval that covers `other`'s, too.
    pub fn covering(self, other: Self) -> Self {
        let ([low, high], [other_low, other_high]) = (self.interval, other.interval);
        Self { value: self.value, interval: [low.min(other_low), high.max(other_high)] }
    }

    /// Returns half the width of the interval.
    pub fn half(&self) -> f64 {
        (self.interval[1] - self.interval[0]) / 2.0
    }

    /// Returns the figure in another unit: `of` must be increasing.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { value: of(self.value), interval: self.interval.map(of) }
    }
}
