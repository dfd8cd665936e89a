//! Two arms of one document whose metrics are those of arms of their own, `ARM/METRIC`: two builds that took turns, as `vpmu ab` runs
//! them. A round has a turn of each, and is a block, as a pair of neighbouring runs is.

use super::change::of_blocks;
use super::row::{ALL_ARMS, Over, Question, Row, SideLevel, judge};
use crate::document::Arm;
use crate::paired::{MIN_ROUNDS, Pair, Statistic, logarithms, pairs};
use crate::stats::{median, trimmed};
use crate::verdict::Limits;

/// Begin of the metrics of an arm that are its counts, for [`PMIS`] PMIs.
pub const COUNTS: &str = "counts/";
/// PMIs that counts of a turn are for.
pub const PMIS: f64 = 1000.0;

/// Judges the arms of these names by a metric, and by their counts.
pub fn turns([base, new]: [&Arm; 2], names: &[&str], metric: &str, limits: &Limits) -> Vec<Row> {
    let of = |name: &&str| pairs(new, base, &format!("{name}/{metric}"), Statistic::P50);
    let found: Vec<Vec<Pair>> = names.iter().map(of).collect();
    let measured: Vec<&Vec<Pair>> = found.iter().filter(|pairs| !pairs.is_empty()).collect();
    let mut rows = Vec::new();
    if measured.len() > 1 {
        rows.extend(row(ALL_ARMS, metric, &common(&measured), limits, None));
    }
    for (name, pairs) in names.iter().zip(&found) {
        let key = format!("{name}/{metric}");
        let level = |arm: &Arm| median(&arm.rounds.metrics.get(&key)?.medians().collect::<Vec<_>>());
        rows.extend(row(name, metric, pairs, limits, level(base)));
    }
    for name in names {
        let begin = format!("{name}/{COUNTS}");
        let keys = base.rounds.metrics.keys().filter(|key| key.starts_with(&begin));
        rows.extend(keys.filter_map(|key| count(name, key, [base, new], limits)));
    }
    judge(&mut rows, Over::Rounds);
    rows
}

/// Returns the mean of the arms' logarithms, over the pairs that all of them have.
fn common(arms: &[&Vec<Pair>]) -> Vec<Pair> {
    let Some((first, others)) = arms.split_first() else { return Vec::new() };
    let all = |pair: &Pair| {
        let of = |other: &&Vec<Pair>| {
            other.binary_search_by_key(&pair.round, |found| found.round).ok().map(|at| other[at].log)
        };
        let sum = others.iter().map(of).sum::<Option<f64>>()?;
        Some(Pair { log: (pair.log + sum) / arms.len() as f64, ..*pair })
    };
    first.iter().filter_map(all).collect()
}

/// Builds the row of an arm whose turns in BASE take `level` ns.
fn row(arm: &str, metric: &str, pairs: &[Pair], limits: &Limits, level: Option<f64>) -> Option<Row> {
    let (n, logs) = (pairs.len(), logarithms(pairs));
    let side = Some(SideLevel { value: level, n, runs: n });
    let row = Row::new(Question::Turns, (arm, metric), *limits, [side.clone(), side]);
    let base = level.map_or(0.0, f64::ln);
    let found = of_blocks(&logs, base).filter(|_| n >= MIN_ROUNDS);
    Some(row.shows(base, trimmed::centre(&logs)?).with(found))
}

/// Builds the row of a count: exact where each turn of a side has the same.
fn count(arm: &str, key: &str, [base, new]: [&Arm; 2], limits: &Limits) -> Option<Row> {
    let of = |side: &Arm| -> Option<Vec<f64>> { Some(side.rounds.metrics.get(key)?.medians().collect()) };
    let metric = key.split_once(COUNTS).map_or(key, |(_, count)| count);
    let Some(sides) = of(new).and_then(|new| Some([of(base)?, new])) else {
        let row = Row::new(Question::Counts, (arm, metric), *limits, [None, None]);
        return Some(row.doubted(Some("one-sided: NEW has no counts of it".to_owned())));
    };
    let levels = sides.each_ref().map(|all| {
        let value = all.iter().sum::<f64>() / all.len().max(1) as f64 / PMIS;
        SideLevel { value: Some(value), n: all.len(), runs: all.len() }
    });
    let repeats = |all: &Vec<f64>| all.len() > 1 && all.iter().all(|count| count.to_bits() == all[0].to_bits());
    let logs = logarithms(&pairs(new, base, key, Statistic::P50));
    let is_judged = metric == super::counts::OPERATIONS && logs.len() >= MIN_ROUNDS;
    let found = levels[0].value.filter(|mean| is_judged && *mean > 0.0).and_then(|mean| of_blocks(&logs, mean.ln()));
    Some(Row::of_counts((arm, metric), *limits, levels, sides.iter().all(repeats), found))
}
