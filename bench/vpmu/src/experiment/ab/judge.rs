//! Judges pairs of turns: a ratio with its interval for each arm, and one for all of them.

use results::document::Record;
use results::metric::{NMI_HANDLER, ROTATION};
use results::paired::{MIN_ROUNDS, Pair, Ratio, Statistic, of_turns, pairs};
use results::stats::holm;
use results::verdict::{Limits, Verdict};
use serde::Serialize;

/// Names of the sides, which are the arms of the document.
pub const SIDES: [&str; 2] = ["BASE", "NEW"];
/// Name of the row over all arms.
pub const ALL: &str = "all arms";

/// NEW against BASE, for one arm and metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The arm, or [`ALL`].
    pub arm: String,
    /// The metric's key.
    pub metric: String,
    /// The ratio, NEW over BASE.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// p value of "no difference", adjusted over the rows; absent with too few pairs.
    pub p: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Further pairs that would decide; of fewer than have an interval those up to one.
    pub more_pairs: Option<u64>,
}

/// Returns a row for each arm of these names, and one for all together.
pub fn rows(document: &Record, names: &[&str], rules: &Limits) -> Vec<Row> {
    let [Some(base), Some(new)] = SIDES.map(|side| document.arm(side)) else { return Vec::new() };
    let key = |name: &str, metric: &str| format!("{name}/{metric}");
    let sampled = names.iter().any(|name| base.metrics.contains_key(&key(name, NMI_HANDLER.key)));
    let headline = if sampled { NMI_HANDLER.key } else { ROTATION.key };
    let of = |name: &&str| pairs(new, base, &key(name, headline), Statistic::P50);
    let found: Vec<Vec<Pair>> = names.iter().map(of).collect();
    let measured: Vec<&Vec<Pair>> = found.iter().filter(|pairs| !pairs.is_empty()).collect();
    let mut rows = Vec::new();
    if measured.len() > 1 {
        rows.extend(row(ALL, headline, &common(&measured)));
    }
    for (name, pairs) in names.iter().zip(&found) {
        rows.extend(row(name, headline, pairs));
    }
    judge(&mut rows, rules);
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

fn row(arm: &str, metric: &str, pairs: &[Pair]) -> Option<Row> {
    let (arm, metric) = (arm.to_owned(), metric.to_owned());
    Some(Row { arm, metric, ratio: of_turns(pairs)?, p: None, verdict: Verdict::Inconclusive, more_pairs: None })
}

fn judge(rows: &mut [Row], rules: &Limits) {
    // Without an interval there is no p value; it cannot be smaller than 1.
    let p: Vec<f64> = rows.iter().map(|row| row.ratio.log.map_or(1.0, |log| log.p())).collect();
    let count = rows.len();
    for (row, p) in rows.iter_mut().zip(holm(&p)) {
        row.verdict = row.ratio.log.map_or(Verdict::Inconclusive, |log| rules.verdict(&log, p, 0.0));
        row.p = row.ratio.log.map(|_| p);
        // Without an interval nothing is known but how many pairs have one.
        let interval = || Some(MIN_ROUNDS.saturating_sub(row.ratio.rounds) as u64);
        let more = || {
            let times = |log| rules.would_do(&log, &row.ratio.between, count);
            row.ratio.log.map_or_else(interval, |log| times(log).map(|times| row.ratio.further(times)))
        };
        row.more_pairs = (row.verdict == Verdict::Inconclusive).then(more).flatten();
    }
}

/// Returns the verdict of the whole: the worst one. Nothing judged is inconclusive, and so is a `doubt`, unless something
/// is slower all the same.
pub fn overall(rows: &[Row], doubt: bool) -> Verdict {
    let worst = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Inconclusive);
    if doubt { worst.max(Verdict::Inconclusive) } else { worst }
}

/// Returns whether every ratio is known to `share`.
pub fn known_to(rows: &[Row], share: f64) -> bool {
    !rows.is_empty() && rows.iter().all(|row| row.ratio.half_width().is_some_and(|width| width <= share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rounds;
    use crate::engine::plain::{Experiment, Plain, Sample};
    use crate::terminal::progress::Silent;
    use results::host::{HostFacts, HostFs};

    const NAMES: [&str; 4] = ["arm0", "arm1", "arm2", "arm3"];

    /// Returns a document of arms whose NEW takes these times as long, with some per cent of spread from pair to pair; of the second arm
    /// the first pairs are left out.
    fn document(ratios: &[f64], rounds: u64, lacks: u64) -> Record {
        let noise = |pair: u64, arm: usize| 1.0 + 0.02 * ((((pair * 37 + arm as u64 * 11) % 41) as f64) / 20.0 - 1.0);
        let take = |side: usize, pair: u64| {
            let mut sample = Sample::default();
            for (at, ratio) in ratios.iter().enumerate().filter(|(at, _)| *at != 1 || pair >= lacks) {
                let ns = if side == 0 { noise(pair, at) } else { ratio * noise(pair + 5, at + 3) };
                #[expect(clippy::cast_sign_loss, reason = "a time")]
                sample.add(&format!("{}/{}", NAMES[at], NMI_HANDLER.key), [(100_000.0 * ns) as u64]);
            }
            sample
        };
        let side = |side: usize| Plain::new(SIDES[side], "none", move |turn| Ok(Some(take(side, turn.index))));
        let (mut arms, fs) = ([side(0), side(1)], HostFs::at("/nonexistent"));
        let rounds = Rounds::of(rounds, 1);
        let experiment = Experiment { name: "ab", parameters: serde_json::Map::new(), rounds, expected: None };
        let facts = (HostFacts::default(), &fs);
        experiment.measure(&mut arms, facts, &[], &mut Silent, (&mut |_| false, &mut |_| Ok(()))).unwrap().0
    }

    fn of(ratios: &[f64], rounds: u64) -> Vec<Row> {
        rows(&document(ratios, rounds, 0), &NAMES[..ratios.len()], &Limits::default())
    }

    fn judged(ratios: &[f64]) -> Vec<(String, Verdict)> {
        of(ratios, 60).into_iter().map(|row| (row.arm, row.verdict)).collect()
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
        let found = of(&[1.0], 3);
        assert_eq!((found[0].verdict, found[0].p, found[0].more_pairs), (Verdict::Inconclusive, None, Some(2)));
        assert!(!known_to(&found, 0.5) && known_to(&of(&[1.0], 60), 0.05));
        assert!(!known_to(&[], 1.0));
    }

    #[test]
    fn a_doubt_keeps_a_pass_from_being_said_and_hides_no_slow_down() {
        let of = |ratio, doubt| overall(&of(&[ratio], 60), doubt);
        assert_eq!((of(1.0, false), of(1.0, true)), (Verdict::NoChange, Verdict::Inconclusive));
        assert_eq!((of(1.06, false), of(1.06, true)), (Verdict::Slower, Verdict::Slower));
        assert_eq!(overall(&[], false), Verdict::Inconclusive);
    }

    #[test]
    fn pairs_that_one_arm_lacks_are_not_common() {
        let all = rows(&document(&[1.1, 1.1], 60, 20), &NAMES[..2], &Limits::default());
        assert_eq!((all[0].arm.as_str(), all[0].ratio.rounds, all[1].ratio.rounds), (ALL, 40, 60));
    }
}
