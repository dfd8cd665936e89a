//! The measured side of a calibration.

use std::time::Instant;

use crate::arm::runner::{Arm, ArmRunner, LiveGuest, Turn};
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::fold::arm::ArmFold;
use crate::progress::Progress;
use crate::rounds::plan::Plan;
use crate::rounds::run::{self as rounds, Context, Finished};
use crate::sys;
use results::document::ArmKind;
use results::document::Status;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};

/// Measurement of one workload.
#[derive(Debug)]
pub struct Measured {
    /// Name of the workload on the command line.
    pub workload: &'static str,
    /// Specification of the run.
    pub spec: NmiLatencySpec,
    /// Result of the run.
    pub finished: Finished,
    /// TSC frequency of the guest, kHz.
    pub tsc_khz: u64,
}

impl Measured {
    /// The arm of `strategy`, if it ran.
    #[must_use]
    pub fn arm(&self, strategy: &str) -> Option<&ArmFold> {
        let at = self.finished.document.arms.iter().position(|arm| arm.name == strategy)?;
        self.finished.arms.get(at).filter(|arm| !arm.intervals().is_empty())
    }
}

/// Runs guests and records their TSC frequency.
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

    fn open(&mut self, arm: &Arm, number: u64) -> Result<Box<dyn LiveGuest>, Error> {
        self.inner.open(arm, number)
    }
}

/// Runs `plan` without saving a result.
///
/// # Errors
/// Errors of the run, and exit 3 if it was interrupted or incomplete.
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
