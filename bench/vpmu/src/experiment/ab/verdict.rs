//! Judges the rounds of two builds: a ratio with its interval for each arm, and one for all of them.

use results::document::Metrics;
use results::metric::{EXIT_PATH, Metric, NMI_HANDLER, PMI_DELIVERY, ROTATION};
use results::paired::{MIN_ROUNDS, Pair, Ratio, Statistic, are_few, fewest, of_turns};
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
    /// Rounds that a guest of it failed in, or was not made for; they are in no figure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Its rounds, in order of time.
    pub rounds: Vec<AbRound>,
}

impl AbArm {
    /// Says of each round that is not whole why.
    pub fn bad(&self) -> impl Iterator<Item = &String> {
        self.rounds.iter().filter_map(|round| round.doubt.as_ref()).chain(&self.failed)
    }

    /// Returns whether the figures are whole: a few bad rounds are left out of them.
    pub fn is_whole(&self) -> bool {
        self.bad().next().is_none() || are_few(self.bad().count(), self.rounds.len())
    }

    /// Returns the rounds that count.
    fn counting(&self) -> impl Iterator<Item = &AbRound> {
        let all = !self.is_whole();
        self.rounds.iter().filter(move |round| all || round.doubt.is_none())
    }
}

/// A round of an arm: a turn of each side, one right after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbRound {
    /// Number of the round.
    pub round: u64,
    /// Number of the session.
    pub session: u64,
    /// Why it is not whole; absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// BASE's turn.
    pub base: AbTurn,
    /// NEW's turn.
    pub new: AbTurn,
}

/// A turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AbTurn {
    /// Time of the throughput probe just before it, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<f64>,
    /// Its metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
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
    /// The ratio, NEW over BASE, of the rounds that both have.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// p value of "no difference", adjusted over the judged rows; absent for the others, and with too few rounds.
    pub p: Option<f64>,
    /// Absent if not judged.
    pub verdict: Option<Verdict>,
    /// Further rounds that would decide; of fewer than have an interval those up to one.
    pub more_rounds: Option<u64>,
}

/// Returns a row for each arm and metric, and one for all arms together. `statistic` of each round.
pub fn rows(arms: &[AbArm], statistic: Statistic, rules: &Limits) -> Vec<Row> {
    let headline = headline(arms);
    let mut rows = Vec::new();
    let found: Vec<Vec<Pair>> = arms.iter().map(|arm| pairs(arm, headline, statistic)).collect();
    let measured = found.iter().filter(|pairs| !pairs.is_empty()).count();
    if measured > 1 {
        let all = common(&found.iter().filter(|pairs| !pairs.is_empty()).collect::<Vec<_>>());
        rows.extend(row(ALL, headline, true, &all));
    }
    for (arm, pairs) in arms.iter().zip(&found) {
        rows.extend(row(&arm.name, headline, true, pairs));
    }
    for metric in [&PMI_DELIVERY, &EXIT_PATH] {
        for arm in arms {
            rows.extend(row(&arm.name, metric, false, &pairs(arm, metric, statistic)));
        }
    }
    judge(&mut rows, rules);
    rows
}

fn headline(arms: &[AbArm]) -> &'static Metric {
    let sampled = arms.iter().flat_map(|arm| &arm.rounds).any(|round| round.base.metrics.contains_key(NMI_HANDLER.key));
    if sampled { &NMI_HANDLER } else { &ROTATION }
}

/// Returns the rounds of an arm in which both sides have the metric.
fn pairs(arm: &AbArm, metric: &Metric, statistic: Statistic) -> Vec<Pair> {
    let count = |turn: &AbTurn| turn.metrics.get(metric.key).map(|found| found.count);
    let least = |of: fn(&AbRound) -> &AbTurn| fewest(arm.counting().filter_map(|round| count(of(round))).collect());
    let (least_base, least_new) = (least(|round| &round.base), least(|round| &round.new));
    let pair = |round: &AbRound| {
        // A turn that was cut short has a median of few samples, as in one run.
        if count(&round.base)? < least_base || count(&round.new)? < least_new {
            return None;
        }
        let value =
            |turn: &AbTurn| turn.metrics.get(metric.key).and_then(|found| statistic.of(found)).filter(|ns| *ns > 0.0);
        let (new, base) = value(&round.new).zip(value(&round.base))?;
        let probe = round.new.probe_ns.zip(round.base.probe_ns).map(|(new, base)| (new / base).ln());
        Some(Pair { round: round.round, guest: round.session, log: (new / base).ln(), probe })
    };
    arm.counting().filter_map(pair).collect()
}

/// Returns the mean of the arms' logarithms, over the rounds that all of them have.
fn common(arms: &[&Vec<Pair>]) -> Vec<Pair> {
    let Some((first, others)) = arms.split_first() else { return Vec::new() };
    let all = |pair: &Pair| {
        let of =
            |other: &&Vec<Pair>| other.binary_search_by_key(&pair.round, |found| found.round).ok().map(|at| other[at]);
        let mut same: Vec<Pair> = others.iter().map(of).collect::<Option<_>>()?;
        same.push(*pair);
        let mean =
            |of: fn(&Pair) -> Option<f64>| same.iter().map(of).sum::<Option<f64>>().map(|sum| sum / same.len() as f64);
        Some(Pair { log: mean(|pair| Some(pair.log))?, probe: mean(|pair| pair.probe), ..*pair })
    };
    first.iter().filter_map(all).collect()
}

fn row(arm: &str, metric: &Metric, judged: bool, pairs: &[Pair]) -> Option<Row> {
    let ratio = of_turns(pairs)?;
    let arm = arm.to_owned();
    Some(Row { arm, metric: metric.key, judged, ratio, p: None, verdict: None, more_rounds: None })
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
        // Without an interval nothing is known but how many rounds have one.
        let interval = || Some(MIN_ROUNDS.saturating_sub(row.ratio.rounds) as u64);
        let more = || {
            let times = |log| rules.would_do(&log, &row.ratio.between, count);
            row.ratio.log.map_or_else(interval, |log| times(log).map(|times| row.ratio.further(times)))
        };
        row.more_rounds = (verdict == Verdict::Inconclusive).then(more).flatten();
    }
}

/// Returns the verdict of the whole: the worst one. Nothing judged is inconclusive.
pub fn overall(rows: &[Row]) -> Verdict {
    rows.iter().filter_map(|row| row.verdict).max().unwrap_or(Verdict::Inconclusive)
}

/// Returns whether every judged ratio is known to `share`.
pub fn known_to(rows: &[Row], share: f64) -> bool {
    let mut judged = rows.iter().filter(|row| row.judged).peekable();
    judged.peek().is_some() && judged.all(|row| row.ratio.half_width().is_some_and(|width| width <= share))
}

#[cfg(test)]
mod tests {
    use results::document::Summary;

    use super::*;

    fn turn(ns: f64) -> AbTurn {
        let p50 = std::time::Duration::from_secs_f64(ns * 1e-9).as_nanos();
        let summary = Summary { count: 9, p50: u64::try_from(p50).unwrap(), ..Summary::default() };
        AbTurn { probe_ns: None, metrics: [(NMI_HANDLER.key.to_owned(), summary)].into() }
    }

    /// Returns arms whose NEW takes these times as long, with some per cent of spread from round to round; 12 sessions of 8 rounds.
    fn arms(ratios: &[f64]) -> Vec<AbArm> {
        let noise = |round: u64, arm: usize| 1.0 + 0.04 * ((((round * 37 + arm as u64 * 11) % 41) as f64) / 20.0 - 1.0);
        let arm = |(at, &ratio): (usize, &f64)| AbArm {
            name: format!("arm{at}"),
            failed: Vec::new(),
            rounds: (0..96)
                .map(|round| AbRound {
                    round,
                    session: round / 8,
                    doubt: None,
                    base: turn(100_000.0 * noise(round, at)),
                    new: turn(100_000.0 * ratio * noise(round + 5, at + 3)),
                })
                .collect(),
        };
        ratios.iter().enumerate().map(arm).collect()
    }

    fn judged(ratios: &[f64]) -> Vec<(String, Verdict)> {
        let rows = rows(&arms(ratios), Statistic::P50, &Limits::default());
        rows.into_iter().map(|row| (row.arm, row.verdict.unwrap())).collect()
    }

    #[test]
    fn the_same_build_has_no_change() {
        assert!(judged(&[1.0, 1.0, 1.0]).iter().all(|(_, verdict)| *verdict == Verdict::NoChange));
        assert_eq!(judged(&[1.0])[0].0, "arm0", "one arm needs no row for all");
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
    }

    #[test]
    fn few_rounds_are_inconclusive_and_say_how_many_more() {
        let mut few = arms(&[1.0]);
        few[0].rounds.truncate(3);
        let found = rows(&few, Statistic::P50, &Limits::default());
        assert_eq!((found[0].verdict, found[0].p, found[0].more_rounds), (Some(Verdict::Inconclusive), None, Some(2)));
        assert!(!known_to(&found, 0.5) && known_to(&rows(&arms(&[1.0]), Statistic::P50, &Limits::default()), 0.05));
        assert_eq!(overall(&[]), Verdict::Inconclusive);
        assert!(!known_to(&[], 1.0));
    }

    #[test]
    fn a_few_bad_rounds_do_not_count_and_more_are_a_doubt() {
        let mut one = arms(&[1.0]);
        let of = |arms: &[AbArm]| rows(arms, Statistic::P50, &Limits::default())[0].ratio.rounds;
        for round in 0..4 {
            one[0].rounds[round].doubt = Some("NEW: a: round 0: 3 overflows lost".to_owned());
        }
        assert_eq!((of(&one), one[0].is_whole()), (92, true));
        one[0].failed.push("BASE: a: its guest failed".to_owned());
        assert_eq!((of(&one), one[0].is_whole()), (96, false), "5 of 96 are 5 %");
    }

    #[test]
    fn turns_that_were_cut_short_do_not_count() {
        let mut one = arms(&[1.0]);
        one[0].rounds[3].new.metrics.get_mut(NMI_HANDLER.key).unwrap().count = 4;
        assert_eq!(rows(&one, Statistic::P50, &Limits::default())[0].ratio.rounds, 95);
    }

    #[test]
    fn rounds_that_one_arm_lacks_are_not_common() {
        let mut two = arms(&[1.1, 1.1]);
        two[1].rounds.retain(|round| round.round >= 40);
        let all = rows(&two, Statistic::P50, &Limits::default());
        assert_eq!((all[0].arm.as_str(), all[0].ratio.rounds, all[1].ratio.rounds), (ALL, 56, 96));
    }
}
