//! What a model simulates beside what it was made from.

use sim::model::Model;

use super::measure::{self, ArmGuests, Measured};
use super::spec::CalibrateSpec;
use crate::arms::arm::sim as simulated;
use crate::sys;
use crate::terminal::progress::Silent;
use results::document::ArmKind;
use results::error::Error;
use results::metric::NMI_HANDLER;

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
    let runner = plan.on_model(model)?;
    let job = (measured.workload, plan, runner);
    Ok(measure::run(&[job], rounds, sys::interrupted(), &mut Silent)?.remove(0))
}

/// Returns the least and the greatest percent of the measured handler latencies that the model takes, but for what it was fitted to.
///
/// # Errors
/// Errors of the simulator.
pub fn percent(model: &Model, spec: &CalibrateSpec, measured: &[Measured]) -> Result<[u64; 2], Error> {
    let mut shares = Vec::new();
    for measured in measured {
        let names: Vec<&str> = measured.arms.iter().map(|arm| arm.result.name.as_str()).collect();
        let rounds = measured.arms.first().map_or(1, |arm| arm.result.rounds.len() as u64);
        let simulated = simulate(model.clone(), spec, measured, &names, rounds)?;
        let is_fitted =
            |arm: &ArmGuests| arm.result.kind == ArmKind::Floor && measured.workload.0.starts_with("single");
        let share = |real: &ArmGuests| {
            let simulated = simulated.arm(&real.result.name).ok()?.p50(&NMI_HANDLER)?;
            Some(100.0 * simulated / real.p50(&NMI_HANDLER)?.max(1.0))
        };
        shares.extend(measured.arms.iter().filter(|arm| !is_fitted(arm)).filter_map(share));
    }
    Ok(range(&shares))
}

/// Returns the ends of these shares and of 100 %, in whole percent.
#[expect(clippy::cast_sign_loss, reason = "latencies are not negative")]
fn range(shares: &[f64]) -> [u64; 2] {
    let range =
        [shares.iter().copied().fold(100.0, f64::min).floor(), shares.iter().copied().fold(100.0, f64::max).ceil()];
    range.map(|percent| percent.clamp(1.0, 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_says_how_far_it_is_from_the_runs_that_it_was_made_from() {
        assert_eq!(range(&[87.3, 100.6]), [87, 101]);
        assert_eq!(range(&[110.0]), [100, 110]);
        assert_eq!(range(&[]), [100, 100]);
    }
}
