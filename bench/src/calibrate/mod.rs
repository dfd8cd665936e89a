//! A model of this host, from what guests and host operations take here.
//!
//! Costs of host operations are the distributions that arms `recreate` and `reuse` met. What only the guest sees is solved
//! for with the simulator itself: an access's exit and ring 0's instructions so that the simulated *floor*, where no host
//! event has a part, takes as long as the measured one with one event and with ten; the tick's accesses so that its rotations
//! do. No latency of a strategy is fitted: each is what the model says, and [`check`] shows how far off.

pub mod check;
mod draft;
mod fit;

use std::time::{Duration, Instant};

use host_pmu::backend::UnknownBackend;

use crate::arm::runner::{Arm, ArmRunner, Turn};
use crate::error::{Error, Exit};
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::fold::ArmFold;
use crate::host::{HostFacts, HostFs};
use crate::progress::Progress;
use crate::result::Status;
use crate::result::arm::ArmKind;
use crate::rounds::plan::Plan;
use crate::rounds::run::{self as rounds, Context, Finished};
use crate::rounds::spec::CommonSpec;
use crate::strategy::StrategyChoice;
use crate::sys;

pub use draft::Draft;
pub use fit::fit;

/// What a calibration runs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The backend's key, never `auto`.
    pub backend: String,
    /// Whether a create costs milliseconds and events count exits.
    pub tracepoint: bool,
    /// Beside `recreate` and `reuse`.
    pub others: Vec<String>,
    /// Rounds of each workload.
    pub rounds: u64,
    /// Samples of each run.
    pub samples: u64,
}

/// One workload, measured.
#[derive(Debug)]
pub struct Measured {
    /// As the command line names it.
    pub workload: &'static str,
    /// Its specification.
    pub spec: NmiLatencySpec,
    /// Its arms.
    pub finished: Finished,
    /// The guest's TSC.
    pub tsc_khz: u64,
}

impl Measured {
    /// The arm of `strategy`, if it ran.
    #[must_use]
    pub fn arm(&self, strategy: &str) -> Option<&ArmFold> {
        let at = self.finished.document.arms.iter().position(|arm| arm.strategy == strategy)?;
        self.finished.arms.get(at).filter(|arm| !arm.intervals().is_empty())
    }
}

/// The workloads and their strategies: one event, and as many as there are counters; of four events only the check is made.
#[must_use]
pub fn workloads(wanted: &Wanted) -> Vec<(&'static str, Vec<String>)> {
    let needed = ["recreate", "reuse"].map(str::to_owned);
    let all: Vec<String> = needed.iter().chain(&wanted.others).cloned().collect();
    if wanted.tracepoint {
        // With more events a rotation under recreate takes longer than a tick.
        return vec![("single/io", all), ("sampling10/io", vec!["reuse".to_owned()])];
    }
    let mut workloads = vec![("single", all.clone()), ("sampling10", all.clone())];
    if !wanted.others.is_empty() {
        workloads.push(("sampling4", all));
    }
    workloads
}

/// The specification of one workload.
///
/// # Errors
/// Exit 2 for an unknown workload or backend.
pub fn spec(wanted: &Wanted, workload: &str, strategies: &[String]) -> Result<NmiLatencySpec, Error> {
    let wrong = |why: String| Error::usage("cannot calibrate", why, "");
    Ok(NmiLatencySpec {
        common: CommonSpec {
            strategies: strategies.iter().cloned().map(StrategyChoice::Preset).collect(),
            backend: wanted.backend.parse().map_err(|error: UnknownBackend| wrong(error.to_string()))?,
            rounds: wanted.rounds,
            samples: wanted.samples,
            time_limit: Duration::from_secs(20),
            ..CommonSpec::default()
        },
        workload: workload.parse().map_err(wrong)?,
        ..NmiLatencySpec::default()
    })
}

/// Runs guests, and notes their TSC.
struct Noting<'a> {
    inner: &'a mut dyn ArmRunner,
    tsc_khz: u64,
}

impl ArmRunner for Noting<'_> {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        match arm.kind {
            ArmKind::Kvm => Err("not part of a model".to_owned()),
            ArmKind::Strategy | ArmKind::Floor => self.inner.available(arm),
        }
    }

    fn run(&mut self, arm: &Arm, turn: Turn) -> Result<vmm::outcome::RunOutcome, Error> {
        let outcome = self.inner.run(arm, turn)?;
        if let Some(vcpu) = outcome.vcpus.first() {
            self.tsc_khz = vcpu.tsc.khz;
        }
        Ok(outcome)
    }
}

/// Runs `plan`; nothing is saved.
///
/// # Errors
/// The experiment's, and exit 3 if it was interrupted or incomplete.
pub fn run(
    workload: &'static str,
    spec: NmiLatencySpec,
    plan: &Plan,
    runner: &mut dyn ArmRunner,
    host: (HostFacts, &HostFs),
    progress: &mut dyn Progress,
) -> Result<Measured, Error> {
    let mut noting = Noting { inner: runner, tsc_khz: 0 };
    let context = Context {
        process_began: Instant::now(),
        stop: sys::interrupted(),
        fs: host.1,
        host: host.0,
        command_line: Vec::new(),
        progress,
        save: &mut |_| Ok(()),
    };
    let finished = rounds::run(plan, &mut noting, context)?;
    match (&finished.error, finished.document.status) {
        (None, Status::Complete) => Ok(Measured { workload, spec, finished, tsc_khz: noting.tsc_khz }),
        (error, status) => Err(Error::new(
            Exit::Inconclusive,
            format!("workload {workload} did not end as it should"),
            error.as_ref().map_or_else(|| format!("{status:?}").to_lowercase(), ToString::to_string),
            "no model was written; run it again",
        )),
    }
}
