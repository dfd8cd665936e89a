//! The ratio of two arms from the rounds they share.

use std::collections::BTreeMap;

use serde::Serialize;

use super::groups::groups;
use super::rounds::{Pair, counting, pairs};
use crate::document::{Arm, Document, Experiment, Round};
use crate::metric::HOST_WORK;
use crate::stats::interval::Interval;
use crate::stats::jackknife::{self, Estimate};
use crate::stats::trimmed;

/// Fewest rounds that have an interval.
pub const MIN_ROUNDS: usize = 5;
/// How logarithms of ratios differ from run to run, standard deviation: 26 default runs of the development host on two days, at loads
/// of 0 to 19. It is of one host, and others may be several times quieter or wilder: hence few degrees of freedom.
pub const BETWEEN_RUNS: Estimate = Estimate { value: 0.0, error: 0.003, freedom: 3.0 };

/// A ratio of two arms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Ratio {
    /// Ratio of the arm to the other: 1.1 is 10 % slower.
    pub ratio: f64,
    /// Its 95 % interval; `None` with fewer than [`MIN_ROUNDS`] rounds.
    pub interval: Option<Interval>,
    /// Rounds that both arms have.
    pub rounds: usize,
    /// Guests of each arm in which they ran.
    pub guests: usize,
    /// Logarithm of the ratio with its uncertainty.
    #[serde(skip)]
    pub log: Option<Estimate>,
}

impl Ratio {
    /// Creates a ratio without an interval, of means over so many rounds.
    pub fn of_means(ratio: f64, rounds: usize) -> Self {
        Self { ratio, interval: None, rounds, guests: 0, log: None }
    }

    /// Gives it the interval of its logarithm.
    fn with(self, log: Option<Estimate>) -> Self {
        Self { interval: log.map(|log| log.interval().map(f64::exp)), log, ..self }
    }

    /// Returns whether the interval excludes 1.
    pub fn is_distinguishable(&self) -> bool {
        self.interval.is_some_and(|interval| interval.excludes(1.0))
    }

    /// Returns half of the interval's width, as a share: 0.02 is ± 2 %.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|Interval { low, high }| ((high / low).sqrt() - 1.0).max(0.0))
    }
}

/// Returns the ratio of `arm` to `base` by a metric; `None` if no round that counts has it in both.
pub fn ratio(arm: &Arm, base: &Arm, metric: &str) -> Option<Ratio> {
    if metric == HOST_WORK.key {
        return of_parts(&parts(arm, base));
    }
    of_turns(&pairs(arm, base, metric))
}

/// Returns the ratio of two arms of a run, with an interval that other runs of this host are to meet: every table, page and picture
/// of one result shows this one. No host disturbs a simulation.
pub fn over_runs<E: Experiment>(document: &Document<E>, arm: &Arm, base: &Arm, metric: &str) -> Option<Ratio> {
    let found = ratio(arm, base, metric)?;
    Some(if document.is_simulated() { found } else { found.with(found.log.map(|log| log.less(&BETWEEN_RUNS))) })
}

/// Returns half of the interval of a ratio that one run can have at best: other runs differ by that.
pub fn narrowest() -> f64 {
    BETWEEN_RUNS.interval().high.exp_m1()
}

/// Returns the logarithm of [`ratio`] alone: its interval takes longer.
pub fn log_ratio(arm: &Arm, base: &Arm, metric: &str) -> Option<f64> {
    if metric == HOST_WORK.key {
        return all_work(&parts(arm, base));
    }
    centre(&pairs(arm, base, metric))
}

/// A part of a trace that was replayed: the work of two arms, or of one and the number of its values.
type Part = [f64; 2];

/// Returns the work of an arm and the number of its values by part.
pub(super) fn work(arm: &Arm) -> BTreeMap<u64, Part> {
    let column = arm.rounds.metrics.get(HOST_WORK.key);
    let of = |round: Round| {
        let round = column?.get(round.at)?;
        Some([round.mean? * round.count as f64, round.count as f64])
    };
    counting(arm, HOST_WORK.key).filter_map(|(round, _)| Some((round.index, of(round)?))).collect()
}

/// Returns the work of both arms in the parts that both have, in order.
fn parts(arm: &Arm, base: &Arm) -> Vec<Part> {
    let others = work(base);
    work(arm).into_iter().filter_map(|(index, [own, _])| Some([own, others.get(&index)?[0]])).collect()
}

/// Computes the ratio of all work, which parts of a trace add up to, as a logarithm: a part with little of it counts for little.
fn all_work(parts: &[Part]) -> Option<f64> {
    let [own, other] = parts.iter().fold([0.0; 2], |sum: Part, part| [sum[0] + part[0], sum[1] + part[1]]);
    (own > 0.0 && other > 0.0).then(|| (own / other).ln())
}

pub(super) fn of_parts(parts: &[Part]) -> Option<Ratio> {
    let ratio = Ratio::of_means(all_work(parts)?.exp(), parts.len());
    let groups = groups(&vec![0; parts.len()]);
    let log = (parts.len() >= MIN_ROUNDS).then(|| jackknife::over_groups(parts, &groups.group, all_work)).flatten();
    Some(Ratio { guests: 1, ..ratio.with(log) })
}

/// Computes the ratio of rounds that are given in order of time.
pub fn of_turns(rounds: &[Pair]) -> Option<Ratio> {
    let ratio = Ratio::of_means(centre(rounds)?.exp(), rounds.len());
    Some(Ratio { guests: groups(&split(rounds).0).guests, ..ratio.with(log(rounds)) })
}

/// Estimates the logarithm of the ratio of rounds, over their guests; `None` with fewer than [`MIN_ROUNDS`] rounds.
pub(crate) fn log(rounds: &[Pair]) -> Option<Estimate> {
    let (guests, logs) = split(rounds);
    (logs.len() >= MIN_ROUNDS).then(|| trimmed::over_groups(&logs, &groups(&guests).group)).flatten()
}

/// Returns the centre of the logarithms of rounds; `None` without any.
pub fn centre(rounds: &[Pair]) -> Option<f64> {
    trimmed::centre(&split(rounds).1)
}

/// Returns the guests of rounds, and their logarithms.
fn split(rounds: &[Pair]) -> (Vec<u64>, Vec<f64>) {
    rounds.iter().map(|pair| (pair.guest, pair.log)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Record;
    use crate::fixture;
    use crate::synthetic::{Host, Random};

    #[test]
    fn parts_of_a_trace_add_up() {
        let mut parts = vec![[10.0, 10.0]; 9];
        parts.push([1000.0, 410.0]);
        let found = of_parts(&parts).unwrap();
        assert!((found.ratio - 1090.0 / 500.0).abs() < 1e-9, "{found:?}");
        // All of the difference is one part's: the others say that there is none.
        assert!(found.interval.is_some_and(|interval| interval.low < 1.0), "{found:?}");
        assert_eq!(of_parts(&parts[6..]).unwrap().interval, None);
        let same = of_parts(&[[20.0, 10.0]; 6]).unwrap().interval;
        assert!(same.is_some_and(|interval| interval.is_point()) && of_parts(&[]).is_none());
    }

    #[test]
    fn intervals_hold_from_run_to_run_and_a_simulation_has_no_such_part() {
        // Arms of a process that differ by 0.2 % move a ratio by 0.28 %.
        let host = Host { processes: 0.002, guests: 0.002, modes: false, rounds: 80, ..Host::default() };
        let template = fixture::record(80, 1, |_, _| 1000);
        let run = |seed| fixture::of_turns(&template, seed, &host.run(&[0.2, 0.1, 0.1, 0.0], &mut Random::new(seed)));
        let of = |run: &Record| over_runs(run, &run.arms[1], &run.arms[3], "nmi_handler_ns").unwrap();
        let found: Vec<Interval> = (1..=100).filter_map(|seed| of(&run(seed)).interval).collect();
        let holds = found.iter().filter(|one| one.low <= 0.1_f64.exp() && 0.1_f64.exp() <= one.high).count();
        assert!(holds >= 90, "{holds} of 100");
        let mut one = run(1);
        let real = of(&one).half_width();
        one.host.class = "simulated x".to_owned();
        assert!(of(&one).half_width() < real, "no host disturbs a simulation");
    }

    #[test]
    fn few_rounds_have_a_ratio_and_no_interval() {
        let pair = |round| Pair { round, guest: round, log: 0.1 };
        assert_eq!(of_turns(&[]), None);
        let few = of_turns(&[pair(0), pair(1)]).unwrap();
        assert!((few.ratio - 0.1_f64.exp()).abs() < 1e-12 && few.interval.is_none() && !few.is_distinguishable());
        // Rounds that are all the same have an interval without width.
        let same = of_turns(&(0..9).map(pair).collect::<Vec<_>>()).unwrap();
        assert!(same.is_distinguishable() && same.half_width() == Some(0.0));
    }
}
