//! The answer of a result: each arm's ratio to the floor in paired rounds with its interval, and a sentence for each
//! pair worth comparing.

use serde::Serialize;

use super::group;
use crate::document::warnings::LIVELOCK;
use crate::document::{Any, Arm, ArmKind, Record, Warning};
use crate::metric;
use crate::paired::{self, Ratio, Statistic};
use crate::plot::{self, Axis, Estimate, Inks, plain};
use crate::table::layout::{plural, ratio_with};
use crate::table::ranking;

/// The answer of a result.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) note: String,
    pub(super) svg: String,
    pub(super) sentences: Vec<String>,
}

/// Arms against the base of a record, in its order.
struct Against<'a> {
    base: &'a Arm<Any>,
    metric: &'a str,
    arms: Vec<(&'a Arm<Any>, Ratio)>,
}

fn against(record: &Record) -> Option<Against<'_>> {
    let (base, metric) = (group::base(record)?, record.metric()?);
    let others = record.arms.iter().filter(|arm| arm.name != base.name);
    let arms: Vec<_> =
        others.filter_map(|arm| Some((arm, paired::over_runs(record, arm, base, metric, Statistic::P50)?))).collect();
    (!arms.is_empty()).then_some(Against { base, metric, arms })
}

/// Draws the plot of ratios, below its title if that is not empty.
fn plot(record: &Record, against: &Against<'_>, inks: &Inks, title: &str) -> String {
    let rows: Vec<Estimate> = against
        .arms
        .iter()
        .map(|(arm, ratio)| Estimate {
            name: arm.name.clone(),
            ink: inks.of(&arm.name),
            value: ratio.ratio,
            interval: ratio.interval,
            text: ratio_with(ratio),
        })
        .collect();
    let values = rows.iter().flat_map(|row| {
        let ends = row.interval.map_or([row.value; 2], |interval| [interval.low, interval.high]);
        ends.into_iter().chain([row.value])
    });
    let x = Axis::log(&format!("× {}, 95 % interval", against.base.name), values.chain([1.0]), plain).of_cost();
    let label = format!(
        "{} against {}: {}, {}",
        metric::name(against.metric),
        against.base.name,
        group::title(record),
        record.host.class
    );
    plot::estimates(&label, title, &x, rows, (1.0, &against.base.name))
}

/// Returns the answer of a result: `None` if nothing in it can be compared.
pub(super) fn answer(record: &Record, inks: &Inks) -> Option<Answer> {
    let against = against(record)?;
    let rounds = against.arms.iter().map(|(_, ratio)| ratio.rounds).max().unwrap_or(0);
    let floor = if against.base.kind == ArmKind::Floor {
        " The floor, the same guest without host events, is an estimated lower bound."
    } else {
        ""
    };
    let few = if against.arms.iter().any(|(_, ratio)| ratio.interval.is_none()) {
        " Too few rounds for an interval."
    } else {
        ""
    };
    let stuck = || record.warnings.iter().filter(|warning| warning.code == LIVELOCK);
    let silent: Vec<&str> = record
        .arms
        .iter()
        .filter(|arm| !stuck().any(|warning| warning.arm.as_ref() == Some(&arm.name)))
        .filter(|arm| arm.name != against.base.name && !against.arms.iter().any(|(one, _)| one.name == arm.name))
        .map(|arm| arm.name.as_str())
        .collect();
    let without =
        if silent.is_empty() { String::new() } else { format!(" No figure to compare: {}.", silent.join(", ")) };
    let mut sentences: Vec<String> = stuck().map(livelocks).collect();
    sentences.extend(metric::find(against.metric).map_or_else(Vec::new, |metric| {
        let pairs = crate::table::against(record, metric);
        // A terminal's lines are narrower than a page's.
        let pairs = pairs.iter().map(|pair| pair.sentence().split_whitespace().collect::<Vec<_>>().join(" ") + ".");
        let fastest = ranking::fastest_of(record, metric).map(|text| capital(&text) + ".");
        pairs.chain(fastest).collect::<Vec<_>>()
    }));
    Some(Answer {
        note: format!(
            "{}, in {}, 95 % intervals.{floor}{few}{without}",
            capital(&metric::name(against.metric)),
            plural(rounds, "paired round"),
        ),
        svg: plot(record, &against, inks, ""),
        sentences,
    })
}

/// Says of an arm that it livelocks, and why.
fn livelocks(warning: &Warning) -> String {
    let why = warning.message.trim_start_matches("livelock: ");
    format!("{} livelocks: {why}.", warning.arm.as_deref().unwrap_or_default())
}

/// Returns the text with a capital letter.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Draws the plot as a file of its own, readable on light and dark paper; `None` if the record has no floor, or nothing beside it.
pub fn against_floor(record: &Record) -> Option<String> {
    let against = against(record).filter(|against| against.base.kind == ArmKind::Floor)?;
    let inks = Inks::new(record.arms.iter().map(|arm| arm.name.as_str()));
    let title = format!("{} as a multiple of the floor's", capital(&metric::name(against.metric)));
    Some(plot::standalone(&plot(record, &against, &inks, &title)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_arm_has_its_ratio_to_the_same_rounds_of_the_floor() {
        // The floor drifts by 10 % a round, and every arm with it.
        let record = fixture::record(8, 1000, |arm, round| match arm {
            "floor" => 1000 + 100 * round,
            _ => 2000 + 200 * round,
        });
        let svg = against_floor(&record).unwrap();
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
        assert_eq!(svg.matches(">2.000 [no spread]</text>").count(), 3, "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("<title>") && !svg.contains("url("));
    }

    #[test]
    fn without_a_floor_there_is_nothing_to_compare_with() {
        let mut record = fixture::record(4, 1000, |_, _| 1000);
        record.arms.retain(|arm| arm.kind != ArmKind::Floor);
        assert_eq!(against_floor(&record), None);
    }
}
