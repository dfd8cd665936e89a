//! The measured side of a calibration, its options included: guests of all workloads, one after the other in random order within each round.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use guest::abi::{EventSpec, FLAG_TIME_LOOP, LOOP_INSTRUCTIONS};
use host_pmu::backend::scheduling::Processor;
use host_pmu::stats::{OpKind, OpStats};
use vmm::machine::Cpu;
use vmm::outcome::RunOutcome;

use crate::arms::arm::runner::Runner;
use crate::arms::arm::sim as simulated;
use crate::arms::rounds::guest_arm::{self, GuestArm};
use crate::arms::rounds::options::HostOptions;
use crate::arms::rounds::plan::Plan;
use crate::engine::{self, Rounds, State};
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::setting::backend::{BackendChoice, Chosen};
use crate::setting::options::BehindOptions;
use crate::setting::parse::options;
use crate::sys;
use crate::terminal::progress::{Progress, Silent};
use results::document::{self, ArmKind, Summary};
use results::error::{Error, Exit};
use results::metric::Metric;
use results::stats::{self, trimmed};
use sim::model::Model;

/// Parameters of a calibration: what is asked for, and what [`run`](super::run::run) finds here.
#[derive(Clone, Debug, Default)]
pub struct CalibrateSpec {
    /// The model's name.
    pub name: String,
    /// Rounds of each workload; `None`: what suits the backend.
    pub rounds: Option<u64>,
    /// The guests' processor.
    pub cpu: Cpu,
    /// The backend is a tracepoint: a create then takes milliseconds, and events count exits.
    pub tracepoint: bool,
    /// The host's PMU, where events are hardware's.
    pub pmu: Option<Pmu>,
    /// Costs measured outside of guests.
    pub beside: Vec<Outside>,
}

/// A cost measured outside of guests: key, source, values in ns.
pub type Outside = (&'static str, &'static str, Vec<f64>);

/// The host's PMU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pmu {
    /// The processor, if perf's rules for it are known.
    pub processor: Option<Processor>,
    /// Its counters.
    pub counters: u32,
    /// Counters that others hold: the NMI watchdog's.
    pub taken: u32,
    /// Counts a microsecond outside of guests, by an event that is to count in guests alone; it is not 0 where the PMU
    /// knows no guest mode.
    pub outside: f64,
}

/// A workload on the command line, with its strategies.
pub type Workload = (&'static str, &'static str);
/// Strategies that a model is made from: the costs of each kind of host operation are in one of them.
const NEEDED: &str = "recreate,reuse,gate,virtual";

impl CalibrateSpec {
    /// Returns whether the host's first event takes milliseconds to create: a tracepoint's, or one of a PMU that nobody else uses.
    pub fn is_dear(&self) -> bool {
        self.tracepoint || self.pmu.is_some_and(|pmu| pmu.taken == 0)
    }

    /// Returns the workloads: one event, and more events than counters.
    pub fn workloads(&self) -> [Workload; 2] {
        // Where a create takes long, a rotation of more events under recreate takes longer than a tick.
        let many = if self.is_dear() { "reuse,gate" } else { NEEDED };
        let [one, ten] = if self.tracepoint { ["single/io", "sampling10/io"] } else { ["single", "sampling10"] };
        [(one, NEEDED), (ten, many)]
    }

    /// Returns the rounds of each workload.
    pub fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(if self.tracepoint { 6 } else { 40 })
    }

    /// Returns the plan of one workload. Its guests also time a loop in ring 0 that does not exit.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(
        &self,
        (workload, strategies): Workload,
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Plan, Error> {
        let samples = if self.tracepoint { "20" } else { "50" };
        let line = ["--workload", workload, "--strategy", strategies, "--samples", samples, "--time-limit", "20s"];
        let rounds = self.rounds().to_string();
        let spec: NmiLatencySpec = options(&[&line[..], &["--rounds", &rounds]].concat())
            .map_err(|error| Error::internal("options of a calibration", error))?;
        let behind = BehindOptions::of(BackendChoice::Key(chosen.backend.clone()));
        let mut plan = spec.plan(&PAYLOAD, &HostOptions { behind, cpu: self.cpu }, chosen, usable)?;
        plan.parameters.rounds_per_guest = None;
        plan.guest.boot.flags |= FLAG_TIME_LOOP;
        Ok(plan)
    }
}

/// One workload of a calibration, the runner of its guests and their plan.
pub type Job = (Workload, Runner, Plan);

/// Figures of one guest beside the document's metrics.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// An instruction of the timed loop, ps; `None` if no loop ran undisturbed.
    pub instruction_ps: Option<f64>,
    /// Its host operations.
    pub ops: OpStats,
    /// For each event that was on a counter: umask << 8 | event code, counts a microsecond.
    rates: Vec<(u16, f64)>,
    /// TSC frequency, kHz.
    pub tsc_khz: u64,
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
    /// The workload.
    pub workload: Workload,
    /// Arms in the order of the plan.
    pub arms: Vec<ArmGuests>,
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

    /// Simulates its named arms on a model.
    ///
    /// # Errors
    /// Errors of the simulator.
    pub(super) fn simulate(
        &self,
        model: Model,
        spec: &CalibrateSpec,
        arms: &[&str],
        rounds: u64,
    ) -> Result<Self, Error> {
        let mut plan = spec.plan(self.workload, &simulated::chosen(&model, "calibration"), None)?;
        plan.simulate(&model.name);
        plan.arms.retain(|arm| arms.contains(&arm.strategy.as_str()));
        let runner = plan.on_model(model)?;
        Ok(run(&[(self.workload, runner, plan)], rounds, sys::interrupted(), &mut Silent)?.remove(0))
    }
}

impl ArmGuests {
    /// Returns the mean over the middle half of whole guests of what this says of a metric: each guest rotates from another place, and
    /// between their figures a median jumps.
    pub fn of(&self, metric: &Metric, figure: fn(Summary) -> Option<f64>) -> Option<f64> {
        let rounds = &self.result.rounds;
        let whole = (0..rounds.len()).filter(|&at| rounds.complete[at]);
        trimmed::centre(&whole.filter_map(|at| figure(rounds.metric(metric, at)?)).collect::<Vec<_>>())
    }

    /// Returns the same of a metric's medians, ns.
    pub fn p50(&self, metric: &Metric) -> Option<f64> {
        self.of(metric, |found| Some(found.p50 as f64))
    }

    /// Returns the median cost of a host operation, ns.
    pub fn op_p50(&self, kind: OpKind) -> Option<f64> {
        self.result.own.host_ops.get(kind.key()).filter(|op| op.count > 0).map(|op| op.p50_ns as f64)
    }

    /// Returns the time of a unit of work without counters, ns.
    pub fn unit_ns(&self) -> Option<f64> {
        self.result.own.workload.map(|cost| cost.unit_ns_without)
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
pub fn run(jobs: &[Job], rounds: u64, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Vec<Measured>, Error> {
    let figures: RefCell<Vec<Vec<Guest>>> = RefCell::default();
    let (mut measured, mut jobs_of_arms, mut arms) = (Vec::new(), Vec::new(), Vec::<GuestArm<'_>>::new());
    for (job, (workload, runner, plan)) in jobs.iter().enumerate() {
        measured.push(Measured { workload: *workload, arms: Vec::new() });
        let boot = &plan.guest.boot;
        let events = &boot.events[..boot.event_count as usize];
        for mut arm in guest_arm::arms(plan, runner, stop)? {
            let result = arm.fold.result();
            if result.kind == ArmKind::Kvm {
                continue;
            }
            if let Some(why) = result.not_available {
                return Err(incomplete(&measured[job], &why));
            }
            let (figures, at) = (&figures, arms.len());
            figures.borrow_mut().push(Vec::new());
            arm.kept = Box::new(move |outcome| figures.borrow_mut()[at].push(self::figures(outcome, events)));
            jobs_of_arms.push(job);
            arms.push(arm);
        }
    }
    let mut after = |_: &mut [GuestArm<'_>], _: &State| Ok(false);
    let bounds = Rounds { warmup: 1, ..Rounds::of(rounds, 1) };
    let (state, ended) = engine::run(&mut arms, &bounds, stop, progress, &mut after);
    ended?;
    for ((job, arm), mut guests) in jobs_of_arms.into_iter().zip(&arms).zip(figures.take()) {
        let (result, measured) = (arm.fold.result(), &mut measured[job]);
        let interrupted = state.interrupted.then_some("it was interrupted");
        if let Some(why) = interrupted.or(result.incomplete.first().map(String::as_str)) {
            return Err(incomplete(measured, &format!("{}: {why}", result.name)));
        }
        for (guest, _) in guests.iter_mut().zip(&result.rounds.complete).filter(|(_, complete)| !**complete) {
            *guest = Guest::default();
        }
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
