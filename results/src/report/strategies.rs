//! Strategies against the floor: the ratio of each arm's round to the floor's round, median and interval over rounds.

use super::axis::Axis;
use super::group::{Inks, title};
use super::plot::{self, Estimate};
use super::svg::Svg;
use crate::document::{Any, Arm, ArmKind, Record, Summary};
use crate::metric;
use crate::stats::bootstrap;
use crate::table::layout::ratio;

/// Draws of the bootstrap.
const RESAMPLES: u32 = 9999;
/// Seed of the draws.
const SEED: u64 = 1;

/// Medians of an arm's rounds over those of the same rounds of the floor.
fn ratios(arm: &Arm<Any>, floor: &Arm<Any>, key: &str) -> Vec<f64> {
    let round = |arm: &Arm<Any>, index: u64| {
        let found = arm.rounds.iter().find(|round| round.index == index && round.complete)?;
        found.metrics.get(key).map(Summary::median).filter(|&ns| ns > 0.0)
    };
    arm.rounds.iter().filter_map(|own| Some(round(arm, own.index)? / round(floor, own.index)?)).collect()
}

/// The plot as a file of its own, readable on light and dark paper; `None` if the record has no floor, or nothing beside it.
#[must_use]
pub fn against_floor(record: &Record) -> Option<String> {
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor)?;
    let (key, _) = floor.headline()?;
    let inks = Inks::new(std::slice::from_ref(record));
    let estimates: Vec<Estimate> = record
        .arms
        .iter()
        .filter(|arm| arm.kind != ArmKind::Floor)
        .filter_map(|arm| {
            let ratios = ratios(arm, floor, key);
            let value = crate::stats::median(&ratios)?;
            let interval = bootstrap::medians(&ratios, &ratios, RESAMPLES, SEED)?.base;
            Some(Estimate {
                name: arm.name.clone(),
                ink: inks.of(arm),
                low: interval.low,
                value,
                high: interval.high,
                text: format!("{} × [{}, {}]", ratio(value), ratio(interval.low), ratio(interval.high)),
            })
        })
        .collect();
    if estimates.is_empty() {
        return None;
    }
    let values = estimates.iter().flat_map(|row| [row.low, row.high]).chain([1.0]);
    let x = Axis::log("× floor: median over rounds, 95 % interval", values, ratio);
    let label = format!("{} against the floor: {}, {}", metric::name(key), title(record), record.host.class);
    Some(Svg::standalone(&plot::estimates(&label, &x, &estimates, 1.0), include_str!("plot.css")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_arm_has_its_ratio_to_the_same_rounds_of_the_floor() {
        // The floor drifts by 10 % a round, and every arm with it.
        let record = fixture::record(4, 1000, |arm, round| match arm {
            "floor" => 1000 + 100 * round,
            _ => 2000 + 200 * round,
        });
        let svg = against_floor(&record).unwrap();
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
        assert_eq!(svg.matches("2.00 × [2.00, 2.00]").count(), 3, "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("<title>") && !svg.contains("url("));
    }

    #[test]
    fn without_a_floor_there_is_nothing_to_compare_with() {
        let mut record = fixture::record(4, 1000, |_, _| 1000);
        record.arms.retain(|arm| arm.kind != ArmKind::Floor);
        assert_eq!(against_floor(&record), None);
    }
}
