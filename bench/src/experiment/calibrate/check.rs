//! Comparison of measured and simulated latencies by strategy.

use std::fmt::Write as _;
use std::time::Instant;

use serde::Serialize;
use sim::model::Model;

use super::measure::Measured;
use crate::arm::sim::{self as simulated, SimRunner};
use crate::progress::Silent;
use crate::rounds::run::{self as rounds, Context, Finished};
use crate::sys;
use results::document::{Arm, ArmKind};
use results::error::Error;
use results::host::HostFs;
use results::metric::NMI_HANDLER;

/// Host operations to compare.
const OPS: [&str; 3] = ["open", "pause", "resume"];

/// Simulates the run of `measured` with the floor and the given strategies.
///
/// # Errors
/// Errors of the simulator.
pub(super) fn simulate(model: Model, measured: &Measured, strategies: &[&str]) -> Result<Finished, Error> {
    let mut plan = measured.spec.plan(&simulated::chosen(&model, "calibration"), None)?;
    plan.simulate(&model.name);
    plan.arms.retain(|arm| arm.kind == ArmKind::Floor || strategies.contains(&arm.strategy.as_str()));
    let host = simulated::facts(&model);
    let mut runner = SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?;
    let context = Context {
        process_began: Instant::now(),
        stop: sys::interrupted(),
        fs: &HostFs::at("/nonexistent"),
        host,
        command_line: Vec::new(),
        progress: &mut Silent,
        save: &mut |_| Ok(()),
    };
    rounds::run(&plan, &mut runner, context)
}

/// One strategy under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Workload, as EVENTS/WORK.
    pub workload: &'static str,
    /// Name of the arm.
    pub strategy: String,
    /// Whether the model was fitted to this figure.
    pub fitted: bool,
    /// Median handler latency, ns.
    pub measured_ns: u64,
    /// Median handler latency of the simulated guest, ns.
    pub simulated_ns: u64,
    /// Opens, pauses and resumes per PMI, measured and simulated.
    pub ops: Vec<OpPair>,
}

/// One kind of host operation, per PMI.
#[derive(Clone, Debug, Serialize)]
pub struct OpPair {
    /// Key of the operation.
    pub op: &'static str,
    /// Measured, per PMI.
    pub measured: f64,
    /// Simulated, per PMI.
    pub simulated: f64,
}

impl Comparison {
    /// Relative error of the simulated latency.
    #[must_use]
    pub fn off(&self) -> f64 {
        self.simulated_ns as f64 / self.measured_ns.max(1) as f64 - 1.0
    }
}

/// Compares every arm of `measured` with its simulation by `model`.
///
/// # Errors
/// Errors of the simulator.
pub fn compare(model: &Model, measured: &[Measured]) -> Result<Vec<Comparison>, Error> {
    let mut lines = Vec::new();
    for measured in measured {
        let real = &measured.finished.document.arms;
        let names: Vec<&str> = real.iter().map(|arm| arm.name.as_str()).collect();
        let simulated = simulate(model.clone(), measured, &names)?;
        for real in real {
            let found = simulated.document.arms.iter().find(|arm| arm.name == real.name);
            lines.extend(found.and_then(|simulated| comparison(measured.workload, real, simulated)));
        }
    }
    Ok(lines)
}

fn comparison(workload: &'static str, real: &Arm, simulated: &Arm) -> Option<Comparison> {
    let p50 = |arm: &Arm| arm.metric(&NMI_HANDLER).map(|handler| handler.p50);
    let per_pmi = |arm: &Arm, op: &str| {
        let count = arm.own.host_ops.get(op).map_or(0, |op| op.count);
        count as f64 / arm.own.nmis.max(1) as f64
    };
    let ops = OPS.map(|op| OpPair { op, measured: per_pmi(real, op), simulated: per_pmi(simulated, op) });
    Some(Comparison {
        workload,
        strategy: real.name.clone(),
        fitted: real.kind == ArmKind::Floor && !workload.starts_with("sampling4"),
        measured_ns: p50(real)?,
        simulated_ns: p50(simulated)?,
        ops: ops.into(),
    })
}

/// Markdown table of the comparisons.
#[must_use]
pub fn text(comparisons: &[Comparison]) -> String {
    let mut out = String::from(
        "| workload | strategy | handler p50 measured | simulated | off | opens per PMI | pauses | resumes |\n|---|---|---|---|---|---|---|---|\n",
    );
    for comparison in comparisons {
        let us = |ns: u64| format!("{:.1} µs", ns as f64 / 1000.0);
        let fitted = if comparison.fitted { " (fitted)" } else { "" };
        let _ = write!(
            out,
            "| {} | {} | {} | {} | {:+.1} %{fitted}",
            comparison.workload,
            comparison.strategy,
            us(comparison.measured_ns),
            us(comparison.simulated_ns),
            100.0 * comparison.off(),
        );
        for pair in &comparison.ops {
            let _ = write!(out, " | {:.3} : {:.3}", pair.measured, pair.simulated);
        }
        out.push_str(" |\n");
    }
    let worst = comparisons
        .iter()
        .filter(|comparison| !comparison.fitted)
        .map(|comparison| comparison.off().abs())
        .fold(0.0, f64::max);
    let _ = writeln!(out, "\nmeasured : simulated. Worst predicted latency: {:.1} % off.", 100.0 * worst);
    out
}
