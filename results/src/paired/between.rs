//! Runs of one host differ by more than their rounds show: layouts of processes, the load beside them. The part between
//! runs is learnt from earlier runs where there are any, pooled with a default by degrees of freedom.

use super::ratio::{Ratio, ratio};
use super::rounds::{Statistic, in_plan_order};
use crate::document::{Arm, ArmKind, Between, Document, Experiment, Spread};
use crate::stats::jackknife::Estimate;

/// Returns the ratio of two arms of a run, with an interval that other runs of this host are to meet: every table, page and picture
/// shows this one.
pub fn over_runs<E: Experiment>(
    document: &Document<E>,
    arm: &Arm<E>,
    base: &Arm<E>,
    metric: &str,
    statistic: Statistic,
) -> Option<Ratio> {
    let found = ratio(arm, base, metric, statistic)?;
    Some(match between(document) {
        Some(between) => found.widened(between.of([arm, base].iter().any(|arm| arm.kind == ArmKind::Floor))),
        None => found,
    })
}

/// Returns how runs of a document's host differ; `None` of a simulation, which no host disturbs.
pub fn between<E: Experiment>(document: &Document<E>) -> Option<Between> {
    (!document.is_simulated()).then(|| document.between.unwrap_or_default())
}

impl Spread {
    /// Returns the error that it gives to the mean of so many runs, or to the difference of two such means: `share` is the sum of 1 /
    /// runs.
    pub fn error(self, share: f64) -> Estimate {
        Estimate { value: 0.0, error: self.deviation * share.sqrt(), freedom: self.freedom }
    }

    /// Returns it pooled with what runs show, by `seen` variances, each with its degrees of freedom. Where they show more than that
    /// they are believed: other hosts are wilder.
    pub fn pooled(self, seen: &[(f64, f64)]) -> Self {
        let new = seen.iter().map(|(_, freedom)| freedom).sum::<f64>();
        let squares = seen.iter().map(|(variance, freedom)| variance * freedom).sum::<f64>();
        let freedom = self.freedom + new;
        let pooled = (self.freedom * self.deviation.powi(2) + squares) / freedom;
        let variance = if new > 0.0 { pooled.max(squares / new) } else { pooled };
        Self { deviation: variance.sqrt(), freedom }
    }

    /// Computes the variance between runs beyond their own errors, and its degrees of freedom: a run whose own error hides it
    /// brings few. `None` of too few such runs.
    pub fn seen(self, runs: &[Estimate]) -> Option<(f64, f64)> {
        let variance = self.deviation.powi(2);
        // A difference beyond this spread shows in spite of larger errors.
        let (wider, _) = moments(runs, variance)?;
        moments(runs, variance.max(wider)).filter(|(_, freedom)| *freedom > 0.0)
    }
}

/// Computes the variance between runs by moments with the weights of a supposed one, and its degrees of freedom.
fn moments(runs: &[Estimate], supposed: f64) -> Option<(f64, f64)> {
    let own = |run: &Estimate| run.error.powi(2);
    let weight = |run: &Estimate| 1.0 / (own(run) + supposed).max(f64::MIN_POSITIVE);
    let sum = |of: &dyn Fn(&Estimate) -> f64| runs.iter().map(of).sum::<f64>();
    let all = sum(&weight);
    let mean = sum(&|run| weight(run) * run.value) / all;
    let squares = sum(&|run| weight(run) * (run.value - mean).powi(2));
    let by_chance = sum(&|run| weight(run) * own(run) * (1.0 - weight(run) / all));
    let scale = all - sum(&|run| weight(run).powi(2)) / all;
    let freedom = sum(&|run| (weight(run) * supposed).powi(2)) - 1.0;
    (runs.len() > 1 && scale > 0.0).then(|| (((squares - by_chance) / scale).max(0.0), freedom))
}

/// Learns how runs differ from some of the same host, build and setting; the default if they show nothing.
pub fn learn<E: Experiment>(runs: &[&Document<E>], metric: &str) -> Between {
    let start = Between::default();
    let Some(first) = runs.first() else { return start };
    let pairs = in_plan_order(&first.arms, metric);
    let of = |floor: bool, spread: Spread| -> Spread {
        let pairs = pairs.iter().filter(|(_, base)| (base.kind == ArmKind::Floor) == floor);
        let seen = pairs.filter_map(|(arm, base)| {
            let log =
                |run: &&Document<E>| ratio(run.arm(&arm.name)?, run.arm(&base.name)?, metric, Statistic::P50)?.log;
            spread.seen(&runs.iter().filter_map(log).collect::<Vec<_>>())
        });
        let seen: Vec<(f64, f64)> = seen.collect();
        // Pairs of a run share its arms: together they tell as much as one of them.
        let mean = |of: fn(&(f64, f64)) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
        if seen.is_empty() { spread } else { spread.pooled(&[(mean(|one| one.0), mean(|one| one.1))]) }
    };
    Between { runs: runs.len() as u64, strategies: of(false, start.strategies), floor: of(true, start.floor) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Any, Record};
    use crate::fixture;
    use crate::synthetic::{Host, Modes, Random};

    /// Returns runs of a host whose processes differ by this much in each arm.
    fn runs(processes: f64, count: u64, seed: u64) -> Vec<Record> {
        let host = Host { processes, guests: 0.002, modes: Modes::None, rounds: 80, ..Host::default() };
        let (template, mut random) = (fixture::record(1, 1, |_, _| 1000), Random::new(seed));
        (0..count)
            .map(|run| fixture::of_turns(&template, run + 1, &host.run(&[0.2, 0.1, 0.1, 0.0], &mut random)))
            .collect()
    }

    /// Returns how many pairs of runs agree on an arm's ratio to the floor within their intervals.
    fn agreeing(runs: &[Record], ratio: impl Fn(&Record) -> Option<Ratio>) -> usize {
        let half = |log: &Estimate| log.interval().high - log.value;
        let logs: Vec<Estimate> = runs.iter().filter_map(|run| ratio(run)?.log).collect();
        let agree = |a: &Estimate, b: &Estimate| (a.value - b.value).abs() <= half(a).hypot(half(b));
        logs.iter().enumerate().map(|(n, a)| logs[..n].iter().filter(|b| agree(a, b)).count()).sum()
    }

    #[test]
    fn intervals_hold_from_run_to_run() {
        for processes in [0.0, 0.01] {
            let (mut agree, mut by_rounds) = (0, 0);
            for seed in 0..4 {
                let all = runs(processes, 12, seed);
                let with_others = |out: usize| {
                    let others: Vec<&Record> = (0..all.len()).filter(|at| *at != out).map(|at| &all[at]).collect();
                    let between = learn(&others, "nmi_handler_ns");
                    // Arms of a process that differ by 1 % move a ratio by 1.4 %.
                    assert!(processes == 0.0 || between.floor.deviation > 0.006, "{between:?}");
                    Record { between: Some(between), ..all[out].clone() }
                };
                let learnt: Vec<Record> = (0..all.len()).map(with_others).collect();
                let metric = "nmi_handler_ns";
                let of = |run: &Record| ratio(&run.arms[1], &run.arms[3], metric, Statistic::P50);
                by_rounds += agreeing(&all, of);
                let of = |run: &Record| over_runs(run, &run.arms[1], &run.arms[3], metric, Statistic::P50);
                agree += agreeing(&learnt, of);
            }
            let pairs = 4 * 66;
            assert!(agree * 10 >= pairs * 9, "{processes}: {agree} of {pairs} agree");
            assert!(processes == 0.0 || by_rounds * 10 < pairs * 8, "by their rounds {by_rounds} of {pairs}");
        }
    }

    #[test]
    fn without_earlier_runs_it_is_the_default_and_a_simulation_has_none() {
        assert_eq!(learn::<Any>(&[], "nmi_handler_ns"), Between::default());
        let one = runs(0.01, 1, 1);
        assert_eq!(learn(&[&one[0]], "nmi_handler_ns").floor, Between::default().floor);
        let mut simulated = one[0].clone();
        assert!(between(&simulated).is_some());
        simulated.host.class = "simulated x".to_owned();
        assert!(between(&simulated).is_none());
    }
}
