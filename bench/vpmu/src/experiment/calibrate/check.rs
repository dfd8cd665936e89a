//! Comparison of measured and simulated latencies by strategy.

use serde::Serialize;
use sim::model::Model;

use super::measure::Estimate;
use super::measure::{self, ArmGuests, Job, Measured};
use super::spec::plan;
use crate::arms::arm::sim::{self as simulated, SimRunner};
use crate::sys;
use crate::terminal::progress::Silent;
use results::document::ArmKind;
use results::error::Error;
use results::metric::NMI_HANDLER;
use results::paired::Level;
use results::stats::interval::Interval;
use results::table::layout;
use results::table::{Report, Table};

/// Host operations to compare.
const OPS: [&str; 3] = ["open", "pause", "resume"];
/// Relative error up to which a simulated latency passes.
const ALLOWED: f64 = 0.1;

/// Plans the guests of `spec` on a simulated host, of the named arms only.
///
/// # Errors Exit 2 for an option that a simulated host does not have.
pub(super) fn job(model: Model, measured: &Measured, arms: &[&str]) -> Result<Job, Error> {
    let mut plan = plan(&measured.spec, measured.cpu, &simulated::chosen(&model, "calibration"), None)?;
    plan.simulate(&model.name);
    plan.arms.retain(|arm| arms.contains(&arm.strategy.as_str()));
    let runner = Box::new(SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?);
    Ok(Job { workload: measured.workload, spec: measured.spec.clone(), plan, runner })
}

/// Simulates the named arms of `measured`.
///
/// # Errors
/// Errors of the simulator.
pub(super) fn simulate(model: Model, measured: &Measured, arms: &[&str], rounds: u64) -> Result<Measured, Error> {
    let mut found = measure::run(&mut [job(model, measured, arms)?], (rounds, None), sys::interrupted(), &mut Silent)?;
    Ok(found.remove(0))
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
    pub measured_ns: u64,
    /// 95 % interval of the measured latency, ns.
    pub interval_ns: [f64; 2],
    /// Figure of simulated guests, ns.
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
    /// Returns the relative error of the simulated latency.
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
        let names: Vec<&str> = measured.arms.iter().map(|arm| arm.result.name.as_str()).collect();
        let rounds = measured.arms.first().map_or(1, |arm| arm.result.rounds.len() as u64);
        let simulated = simulate(model.clone(), measured, &names, rounds)?;
        for real in &measured.arms {
            let found = simulated.arm(&real.result.name);
            lines.extend(found.and_then(|simulated| comparison(measured.workload, real, simulated)));
        }
    }
    Ok(lines)
}

fn comparison(workload: &'static str, real: &ArmGuests, simulated: &ArmGuests) -> Option<Comparison> {
    let handler = |arm: &ArmGuests| Estimate::of(arm.medians(&NMI_HANDLER));
    let per_pmi = |arm: &ArmGuests, op: &str| {
        let own = &arm.result.own;
        own.host_ops.get(op).map_or(0, |op| op.count) as f64 / own.counts.nmis.max(1) as f64
    };
    let ops = OPS.map(|op| OpPair { op, measured: per_pmi(real, op), simulated: per_pmi(simulated, op) });
    let measured = handler(real)?;
    #[expect(clippy::cast_sign_loss, reason = "latencies are not negative")]
    let ns = |estimate: Estimate| estimate.value as u64;
    Some(Comparison {
        workload,
        strategy: real.result.name.clone(),
        fitted: real.result.kind == ArmKind::Floor && workload.starts_with("single"),
        measured_ns: ns(measured),
        interval_ns: measured.interval,
        simulated_ns: ns(handler(simulated)?),
        ops: ops.into(),
    })
}

/// Returns the least and the greatest percent of what was measured that the model takes.
#[expect(clippy::cast_sign_loss, reason = "latencies are not negative")]
pub fn percent(comparisons: &[Comparison]) -> [u64; 2] {
    let offs = || comparisons.iter().filter(|comparison| !comparison.fitted).map(|comparison| 1.0 + comparison.off());
    let range = [(100.0 * offs().fold(1.0, f64::min)).floor(), (100.0 * offs().fold(1.0, f64::max)).ceil()];
    range.map(|percent| percent.clamp(1.0, 1e6) as u64)
}

/// Returns the comparisons as they are shown.
pub fn report(comparisons: &[Comparison]) -> Report {
    let header = ["workload", "strategy", "measured p50 [95 %]", "simulated", "off", "opens", "pauses", "resumes"];
    let mut table = Table::new(header).keys(2);
    for comparison in comparisons {
        let [low, high] = comparison.interval_ns;
        let interval = Some(Interval { low, high });
        let measured = Level { ns: comparison.measured_ns as f64, interval, rounds: 0, constant: false };
        let fitted = if comparison.fitted { " (fitted)" } else { "" };
        let mut row = vec![
            comparison.workload.to_owned(),
            comparison.strategy.clone(),
            layout::level(&measured),
            layout::time(comparison.simulated_ns as f64),
            format!("{} %{fitted}", layout::signed(100.0 * comparison.off(), 1)),
        ];
        row.extend(comparison.ops.iter().map(|pair| format!("{:.3} : {:.3}", pair.measured, pair.simulated)));
        table.add_row(row);
    }
    let predicted = || comparisons.iter().filter(|comparison| !comparison.fitted);
    let worst = predicted().map(|comparison| comparison.off().abs()).fold(0.0, f64::max);
    let beyond = predicted().filter(|comparison| comparison.off().abs() > ALLOWED).count();
    let mut report = Report::new("measured beside simulated");
    report.table(table);
    report.note(format!(
        "p50: of the NMI handler; opens, pauses, resumes: per PMI, measured : simulated. Predicted latencies: {} of {} within \
         {:.0} %, the worst {:.1} % off.",
        predicted().count() - beyond,
        predicted().count(),
        100.0 * ALLOWED,
        100.0 * worst
    ));
    report
}

#[cfg(test)]
mod tests {
    use results::document::warnings::model_off;

    use super::super::draft::Draft;
    use super::*;

    #[test]
    fn a_model_says_how_far_it_is_from_the_runs_that_it_was_made_from() {
        let of = |simulated_ns, fitted| Comparison {
            workload: "single",
            strategy: "reuse".to_owned(),
            fitted,
            measured_ns: 1000,
            interval_ns: [990.0, 1010.0],
            simulated_ns,
            ops: Vec::new(),
        };
        let near = percent(&[of(1050, false), of(2000, true)]);
        assert_eq!((near, model_off(near)), ([100, 105], None), "no prediction is fitted");
        let far = percent(&[of(640, false), of(1730, false)]);
        assert_eq!(far, [64, 173]);
        let why = model_off(far).unwrap();
        assert!(why.starts_with("the model takes 64 to 173 %"), "{why}");
        let mut draft = Draft::new("x", "y", 2_000_000);
        draft.checked(far, &why);
        let table: toml::Table = draft.toml().parse().unwrap();
        assert_eq!(table["checked"]["percent"].to_string(), "[64, 173]");
        let (text, _) = simulated::model_text("development-host").unwrap();
        let checked = format!("checked = {}\n{text}", table["checked"]);
        let facts = simulated::facts(&Model::from_toml("m", &checked).unwrap());
        assert_eq!(facts.model_percent, Some(far));
        assert!(
            Model::from_toml("m", &checked.replace("64, 173", "173, 64")).unwrap_err().why.contains("checked.percent")
        );
    }
}
