//! Runs of one host differ by more than their rounds show: layouts of processes, the load beside them.

use super::ratio::{Ratio, ratio};
use super::rounds::Statistic;
use crate::document::{Arm, ArmKind, Document, Experiment};
use crate::stats::jackknife::Estimate;

/// How logarithms of ratios differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The standard deviation.
    pub deviation: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

/// Returns the ratio of two arms of a run, with an interval that other runs of this host are to meet: every table, page and picture
/// shows this one. No host disturbs a simulation.
pub fn over_runs<E: Experiment>(
    document: &Document<E>,
    arm: &Arm<E>,
    base: &Arm<E>,
    metric: &str,
    statistic: Statistic,
) -> Option<Ratio> {
    let found = ratio(arm, base, metric, statistic)?;
    let to_floor = [arm, base].iter().any(|arm| arm.kind == ArmKind::Floor);
    Some(if document.is_simulated() { found } else { found.widened(Spread::between_runs(to_floor)) })
}

impl Spread {
    /// Degrees of freedom of the default: it is of one host, and others may be several times quieter or wilder.
    pub const FREEDOM: f64 = 3.0;

    /// The spread of a ratio, to the floor or of two strategies: 26 default runs of the development host on two days, at loads of 0 to 19
    /// (docs/comparing.md).
    pub const fn between_runs(to_floor: bool) -> Self {
        Self { deviation: if to_floor { 0.003 } else { 0.0025 }, freedom: Self::FREEDOM }
    }

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
        // What rests on the runs alone has their freedom.
        let wilder = new > 0.0 && squares / new > pooled;
        let (variance, freedom) = if wilder { (squares / new, new) } else { (pooled, freedom) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Record;
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
    fn intervals_hold_from_run_to_run_and_a_simulation_has_no_such_part() {
        // Arms of a process that differ by 0.2 % move a ratio by 0.28 %.
        for processes in [0.0, 0.002] {
            let (mut agree, mut by_rounds) = (0, 0);
            for seed in 0..4 {
                let all = runs(processes, 12, seed);
                let metric = "nmi_handler_ns";
                let of = |run: &Record| ratio(&run.arms[1], &run.arms[3], metric, Statistic::P50);
                by_rounds += agreeing(&all, of);
                let of = |run: &Record| over_runs(run, &run.arms[1], &run.arms[3], metric, Statistic::P50);
                agree += agreeing(&all, of);
            }
            let pairs = 4 * 66;
            assert!(agree * 10 >= pairs * 9 && agree > by_rounds, "{processes}: {agree}, {by_rounds} of {pairs} agree");
        }
        let mut one = runs(0.0, 1, 1).remove(0);
        let width = |run: &Record| {
            over_runs(run, &run.arms[1], &run.arms[3], "nmi_handler_ns", Statistic::P50).unwrap().half_width()
        };
        let real = width(&one);
        one.host.class = "simulated x".to_owned();
        assert!(width(&one) < real, "no host disturbs a simulation");
    }
}
