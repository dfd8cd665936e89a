//! Two arms of one document whose metrics are those of arms of their own, `ARM/METRIC`: two builds that took turns, as `vpmu ab` runs
//! them. A round has a turn of each, and is a block, as a pair of neighbouring runs is.

use std::collections::BTreeMap;

use super::change::of_blocks;
use super::row::{ALL_ARMS, Over, Question, Row, SideLevel, judge};
use crate::document::Arm;
use crate::paired::{MIN_ROUNDS, Pair, logarithms, pairs};
use crate::stats::{median, trimmed};
use crate::verdict::Limits;

/// Begin of the metrics of an arm that are its counts, for [`PMIS`] PMIs.
pub const COUNTS: &str = "counts/";
/// PMIs that counts of a turn are for.
pub const PMIS: f64 = 1000.0;

/// Judges the arms of these names by a metric, and by their counts.
pub fn turns([base, new]: [&Arm; 2], names: &[&str], metric: &str, limits: &Limits) -> Vec<Row> {
    let of = |name: &&str| pairs(new, base, &format!("{name}/{metric}"));
    let found: Vec<Vec<Pair>> = names.iter().map(of).collect();
    let mut rows = Vec::new();
    let measured = found.iter().filter(|pairs| !pairs.is_empty()).count();
    if measured > 1 {
        // The mean of the arms' logarithms, over the pairs that all of them have.
        let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        found.iter().flatten().for_each(|pair| all.entry(pair.round).or_default().push(pair.log));
        all.retain(|_, logs| logs.len() == measured);
        let logs: Vec<f64> = all.values().map(|logs| logs.iter().sum::<f64>() / measured as f64).collect();
        rows.extend(row(ALL_ARMS, metric, &logs, limits, None));
    }
    for (name, pairs) in names.iter().zip(&found) {
        let key = format!("{name}/{metric}");
        let level = median(&base.rounds.metrics.get(&key).map_or(Vec::new(), |column| column.medians().collect()));
        rows.extend(row(name, metric, &logarithms(pairs), limits, level));
    }
    for name in names {
        let begin = format!("{name}/{COUNTS}");
        let keys = base.rounds.metrics.keys().filter(|key| key.starts_with(&begin));
        rows.extend(keys.map(|key| count(name, key, [base, new], limits)));
    }
    judge(&mut rows, Over::Rounds);
    rows
}

/// Builds the row of an arm whose turns in BASE take `level` ns.
fn row(arm: &str, metric: &str, logs: &[f64], limits: &Limits, level: Option<f64>) -> Option<Row> {
    let side = SideLevel { value: level, n: logs.len(), runs: logs.len() };
    let row = Row::new(Question::Turns, (arm, metric), *limits, [side, side]);
    let base = level.map_or(0.0, f64::ln);
    let found = of_blocks(logs, base).filter(|_| logs.len() >= MIN_ROUNDS);
    Some(row.shows(base, trimmed::centre(logs)?).with(found))
}

/// Builds the row of a count: exact where each turn of a side has the same.
fn count(arm: &str, key: &str, [base, new]: [&Arm; 2], limits: &Limits) -> Row {
    let of = |side: &Arm| -> Option<Vec<f64>> { Some(side.rounds.metrics.get(key)?.medians().collect()) };
    let metric = key.split_once(COUNTS).map_or(key, |(_, count)| count);
    let Some(sides) = of(new).and_then(|new| Some([of(base)?, new])) else {
        let row = Row::new(Question::Counts, (arm, metric), *limits, <_>::default());
        return row.doubted(Some("one-sided: NEW has no counts of it".to_owned()));
    };
    let levels = sides.each_ref().map(|all| {
        let value = all.iter().sum::<f64>() / all.len().max(1) as f64 / PMIS;
        SideLevel { value: Some(value), n: all.len(), runs: all.len() }
    });
    let repeats = |all: &Vec<f64>| all.len() > 1 && all.iter().all(|count| count.to_bits() == all[0].to_bits());
    let logs = logarithms(&pairs(new, base, key));
    let is_judged = metric == super::counts::OPERATIONS && logs.len() >= MIN_ROUNDS;
    let found = levels[0].value.filter(|mean| is_judged && *mean > 0.0).and_then(|mean| of_blocks(&logs, mean.ln()));
    Row::of_counts((arm, metric), *limits, levels, sides.iter().all(repeats), found)
}
