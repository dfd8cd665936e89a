//! What a model simulates beside what it was made from.

use serde::Serialize;
use sim::model::Model;

use super::measure::{self, ArmGuests, Measured};
use super::spec::CalibrateSpec;
use crate::arms::arm::sim::{self as simulated, SimRunner};
use crate::sys;
use crate::terminal::progress::Silent;
use results::document::ArmKind;
use results::error::Error;
use results::metric::NMI_HANDLER;
use results::table::layout::{signed, time};
use results::table::{Report, Table};

/// Simulates the named arms of `measured`.
///
/// # Errors
/// Errors of the simulator.
pub(super) fn simulate(
    model: Model,
    spec: &CalibrateSpec,
    measured: &Measured,
    arms: &[&str],
    rounds: u64,
) -> Result<Measured, Error> {
    let mut plan = spec.plan(measured.workload, &simulated::chosen(&model, "calibration"), None)?;
    plan.simulate(&model.name);
    plan.arms.retain(|arm| arms.contains(&arm.strategy.as_str()));
    let runner = Box::new(SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?);
    let job = (measured.workload, plan, runner as _);
    Ok(measure::run(&mut [job], (rounds, None), sys::interrupted(), &mut Silent)?.remove(0))
}

/// One strategy under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Workload, as EVENTS/WORK.
    pub workload: &'static str,
    /// Name of the arm.
    pub strategy: String,
    /// True if the model was fitted to this figure.
    pub fitted: bool,
    /// Handler latency: median over guests of each guest's median, ns.
    pub measured_ns: f64,
    /// Figure of simulated guests, ns.
    pub simulated_ns: f64,
}

/// Compares every arm of `measured` with its simulation by `model`.
///
/// # Errors
/// Errors of the simulator.
pub fn compare(model: &Model, spec: &CalibrateSpec, measured: &[Measured]) -> Result<Vec<Comparison>, Error> {
    let mut lines = Vec::new();
    for measured in measured {
        let names: Vec<&str> = measured.arms.iter().map(|arm| arm.result.name.as_str()).collect();
        let rounds = measured.arms.first().map_or(1, |arm| arm.result.rounds.len() as u64);
        let simulated = simulate(model.clone(), spec, measured, &names, rounds)?;
        let line = |real: &ArmGuests| {
            Some(Comparison {
                workload: measured.workload.0,
                strategy: real.result.name.clone(),
                fitted: real.result.kind == ArmKind::Floor && measured.workload.0.starts_with("single"),
                measured_ns: real.p50(&NMI_HANDLER)?,
                simulated_ns: simulated.arm(&real.result.name).ok()?.p50(&NMI_HANDLER)?,
            })
        };
        lines.extend(measured.arms.iter().filter_map(line));
    }
    Ok(lines)
}

/// Returns the least and the greatest percent of what was measured that the model takes.
pub fn percent(comparisons: &[Comparison]) -> [u64; 2] {
    let predicted = comparisons.iter().filter(|one| !one.fitted);
    let shares: Vec<f64> = predicted.map(|one| 100.0 * one.simulated_ns / one.measured_ns.max(1.0)).collect();
    let range = [shares.iter().copied().fold(100.0, f64::min).floor(), shares.into_iter().fold(100.0, f64::max).ceil()];
    #[expect(clippy::cast_sign_loss, reason = "latencies are not negative")]
    range.map(|percent| percent.clamp(1.0, 1e6) as u64)
}

/// Returns the comparisons as they are shown.
pub fn report(comparisons: &[Comparison]) -> Report {
    let mut table = Table::new(["workload", "strategy", "measured p50", "simulated", "off"]).keys(2);
    for Comparison { workload, strategy, fitted, measured_ns, simulated_ns } in comparisons {
        let off = signed(100.0 * (simulated_ns / measured_ns.max(1.0) - 1.0), 1);
        let fitted = if *fitted { " (fitted)" } else { "" };
        let times = [time(*measured_ns), time(*simulated_ns), format!("{off} %{fitted}")];
        table.add_row([(*workload).to_owned(), strategy.clone()].into_iter().chain(times));
    }
    let [low, high] = percent(comparisons);
    let mut report = Report::new("measured beside simulated");
    report.table(table);
    report.note(format!(
        "p50: of the NMI handler. The model takes {low} to {high} % of what was measured, but for what was fitted."
    ));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_says_how_far_it_is_from_the_runs_that_it_was_made_from() {
        let of = |simulated_ns, fitted| Comparison {
            workload: "single",
            strategy: "reuse".to_owned(),
            fitted,
            measured_ns: 1000.0,
            simulated_ns,
        };
        assert_eq!(percent(&[of(873.0, false), of(1006.0, false), of(3000.0, true)]), [87, 101]);
        assert_eq!(percent(&[of(1100.0, false)]), [100, 110]);
        assert_eq!(percent(&[]), [100, 100]);
    }
}
