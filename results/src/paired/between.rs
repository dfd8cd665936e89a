//! Runs of one host differ by more than their rounds show: layouts of processes, the load beside them.

use super::ratio::{Ratio, ratio};
use super::rounds::Statistic;
use super::spread::Spread;
use crate::document::{Arm, ArmKind, Document, Experiment};

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

/// Returns half of the interval of a ratio to the floor that one run can have at best: other runs differ by that.
pub fn narrowest_to_floor() -> f64 {
    Spread::between_runs(true).error(1.0).interval().high.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Record;
    use crate::fixture;
    use crate::stats::jackknife::Estimate;
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
