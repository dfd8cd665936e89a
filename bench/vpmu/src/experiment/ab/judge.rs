//! Judges pairs of turns: a ratio with its interval for each arm, and one for all of them.

use std::collections::BTreeMap;

use results::metric::{EXIT_PATH, Metric, NMI_HANDLER, PMI_DELIVERY, ROTATION};
use results::paired::{MIN_ROUNDS, Pair, Ratio, of_turns};
use results::stats::holm;
use results::verdict::{Limits, Verdict};
use serde::Serialize;

/// Name of the row over all arms.
pub const ALL: &str = "all arms";

/// An arm, in the order of BASE.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbArm {
    /// Its name; BASE → NEW where the two differ.
    pub name: String,
    /// Its pairs of whole turns, in order of time.
    pub pairs: Vec<AbPair>,
    /// Turns without whole figures, whose pairs are left out.
    pub left_out: usize,
}

/// A pair of turns of an arm: the median over each turn's rounds of their p50s, by metric, ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbPair {
    /// Number of the pair.
    pub pair: u64,
    /// BASE's turn.
    pub base: BTreeMap<String, f64>,
    /// NEW's turn.
    pub new: BTreeMap<String, f64>,
}

/// NEW against BASE, for one arm and metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The arm, or [`ALL`].
    pub arm: String,
    /// The metric's key.
    pub metric: &'static str,
    /// True if it counts for the verdict of the whole.
    pub judged: bool,
    /// The ratio, NEW over BASE.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// p value of "no difference", adjusted over the judged rows; absent for the others, and with too few pairs.
    pub p: Option<f64>,
    /// Absent if not judged.
    pub verdict: Option<Verdict>,
    /// Further pairs that would decide; of fewer than have an interval those up to one.
    pub more_pairs: Option<u64>,
}

/// Returns a row for each arm and metric, and one for all arms together.
pub fn rows(arms: &[AbArm], rules: &Limits) -> Vec<Row> {
    let sampled = arms.iter().flat_map(|arm| &arm.pairs).any(|pair| pair.base.contains_key(NMI_HANDLER.key));
    let headline = if sampled { &NMI_HANDLER } else { &ROTATION };
    let found: Vec<Vec<Pair>> = arms.iter().map(|arm| pairs(arm, headline)).collect();
    let measured: Vec<&Vec<Pair>> = found.iter().filter(|pairs| !pairs.is_empty()).collect();
    let mut rows = Vec::new();
    if measured.len() > 1 {
        rows.extend(row(ALL, headline, true, &common(&measured)));
    }
    for (arm, pairs) in arms.iter().zip(&found) {
        rows.extend(row(&arm.name, headline, true, pairs));
    }
    for metric in [&PMI_DELIVERY, &EXIT_PATH] {
        for arm in arms {
            rows.extend(row(&arm.name, metric, false, &pairs(arm, metric)));
        }
    }
    judge(&mut rows, rules);
    rows
}

/// Returns the pairs of an arm in which both sides have the metric. Each pair has two fresh processes.
fn pairs(arm: &AbArm, metric: &Metric) -> Vec<Pair> {
    let log = |pair: &AbPair| Some((pair.new.get(metric.key)? / pair.base.get(metric.key)?).ln());
    let pair = |pair: &AbPair| Some(Pair { round: pair.pair, guest: pair.pair, log: log(pair)? });
    arm.pairs.iter().filter_map(pair).collect()
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

fn row(arm: &str, metric: &Metric, judged: bool, pairs: &[Pair]) -> Option<Row> {
    let ratio = of_turns(pairs)?;
    let arm = arm.to_owned();
    Some(Row { arm, metric: metric.key, judged, ratio, p: None, verdict: None, more_pairs: None })
}

fn judge(rows: &mut [Row], rules: &Limits) {
    let judged: Vec<&mut Row> = rows.iter_mut().filter(|row| row.judged).collect();
    // Without an interval there is no p value; it cannot be smaller than 1.
    let p: Vec<f64> = judged.iter().map(|row| row.ratio.log.map_or(1.0, |log| log.p())).collect();
    let count = judged.len();
    for (row, p) in judged.into_iter().zip(holm(&p)) {
        let verdict = row.ratio.log.map_or(Verdict::Inconclusive, |log| rules.verdict(&log, p, 0.0));
        row.p = row.ratio.log.map(|_| p);
        row.verdict = Some(verdict);
        // Without an interval nothing is known but how many pairs have one.
        let interval = || Some(MIN_ROUNDS.saturating_sub(row.ratio.rounds) as u64);
        let more = || {
            let times = |log| rules.would_do(&log, &row.ratio.between, count);
            row.ratio.log.map_or_else(interval, |log| times(log).map(|times| row.ratio.further(times)))
        };
        row.more_pairs = (verdict == Verdict::Inconclusive).then(more).flatten();
    }
}

/// Returns the verdict of the whole: the worst one. Nothing judged is inconclusive, and so is a `doubt`, unless something
/// is slower all the same.
pub fn overall(rows: &[Row], doubt: bool) -> Verdict {
    let worst = rows.iter().filter_map(|row| row.verdict).max().unwrap_or(Verdict::Inconclusive);
    if doubt { worst.max(Verdict::Inconclusive) } else { worst }
}

/// Returns whether every judged ratio is known to `share`.
pub fn known_to(rows: &[Row], share: f64) -> bool {
    let mut judged = rows.iter().filter(|row| row.judged).peekable();
    judged.peek().is_some() && judged.all(|row| row.ratio.half_width().is_some_and(|width| width <= share))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns arms whose NEW takes these times as long, with some per cent of spread from pair to pair.
    fn arms(ratios: &[f64]) -> Vec<AbArm> {
        let noise = |pair: u64, arm: usize| 1.0 + 0.02 * ((((pair * 37 + arm as u64 * 11) % 41) as f64) / 20.0 - 1.0);
        let turn = |ns: f64| [(NMI_HANDLER.key.to_owned(), ns)].into();
        let arm = |(at, &ratio): (usize, &f64)| AbArm {
            name: format!("arm{at}"),
            left_out: 0,
            pairs: (0..60)
                .map(|pair| AbPair {
                    pair,
                    base: turn(100_000.0 * noise(pair, at)),
                    new: turn(100_000.0 * ratio * noise(pair + 5, at + 3)),
                })
                .collect(),
        };
        ratios.iter().enumerate().map(arm).collect()
    }

    fn judged(ratios: &[f64]) -> Vec<(String, Verdict)> {
        let rows = rows(&arms(ratios), &Limits::default());
        rows.into_iter().map(|row| (row.arm, row.verdict.unwrap())).collect()
    }

    #[test]
    fn one_slow_arm_and_all_slow_arms_have_different_verdicts() {
        let one = judged(&[1.0, 1.06, 1.0, 1.0]);
        assert_eq!(
            (one[0].clone(), one[2].clone()),
            ((ALL.into(), Verdict::NoChange), ("arm1".into(), Verdict::Slower))
        );
        let all = judged(&[1.06, 1.06, 1.06]);
        assert!(all.iter().all(|(_, verdict)| *verdict == Verdict::Slower));
        assert_eq!(judged(&[0.9, 1.0])[1].1, Verdict::Faster);
        assert_eq!(judged(&[1.0]), [("arm0".to_owned(), Verdict::NoChange)], "one arm needs no row for all");
    }

    #[test]
    fn few_pairs_are_inconclusive_and_say_how_many_more() {
        let mut few = arms(&[1.0]);
        few[0].pairs.truncate(3);
        let found = rows(&few, &Limits::default());
        assert_eq!((found[0].verdict, found[0].p, found[0].more_pairs), (Some(Verdict::Inconclusive), None, Some(2)));
        assert!(!known_to(&found, 0.5) && known_to(&rows(&arms(&[1.0]), &Limits::default()), 0.05));
        assert!(!known_to(&[], 1.0));
    }

    #[test]
    fn a_doubt_keeps_a_pass_from_being_said_and_hides_no_slow_down() {
        let of = |ratio, doubt| overall(&rows(&arms(&[ratio]), &Limits::default()), doubt);
        assert_eq!((of(1.0, false), of(1.0, true)), (Verdict::NoChange, Verdict::Inconclusive));
        assert_eq!((of(1.06, false), of(1.06, true)), (Verdict::Slower, Verdict::Slower));
        assert_eq!(overall(&[], false), Verdict::Inconclusive);
    }

    #[test]
    fn pairs_that_one_arm_lacks_are_not_common() {
        let mut two = arms(&[1.1, 1.1]);
        two[1].pairs.retain(|pair| pair.pair >= 20);
        let all = rows(&two, &Limits::default());
        assert_eq!((all[0].arm.as_str(), all[0].ratio.rounds, all[1].ratio.rounds), (ALL, 40, 60));
    }
}
