//! The ratio of two arms from the rounds they share.

use std::collections::BTreeMap;

use serde::Serialize;

use super::between::Spread;
use super::groups::{groups, repeat};
use super::rounds::{Pair, Statistic, counting, pairs};
use crate::document::{Arm, Experiment};
use crate::metric::HOST_WORK;
use crate::stats::interval::{CONFIDENCE, Interval};
use crate::stats::jackknife::{self, Estimate, known};
use crate::stats::location::Centre;
use crate::stats::{leave_one_out, median, slope};

/// Logarithms that differ by less are the same but for how they were calculated.
const SAME: f64 = 1e-9;
/// Fewest rounds that have an interval.
pub const MIN_ROUNDS: usize = 5;
/// Allowance for the layout of a guest, standard deviation of a logarithm, where an arm has too few guests to show it.
/// 26 runs of the development host show it.
pub const LAYOUT: f64 = 0.003;
/// Fewest rounds from which the slope over the probes can be estimated.
const MIN_PROBED: usize = 20;
/// The probes are used where they take away at least this share of the ratios' spread.
const PROBE_GAIN: f64 = 0.15;

/// A ratio of two arms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Ratio of the arm to the other: 1.1 is 10 % slower.
    pub ratio: f64,
    /// Its 95 % interval; `None` with fewer than [`MIN_ROUNDS`] rounds.
    pub interval: Option<Interval>,
    /// Rounds that both arms have.
    pub rounds: usize,
    /// Guests of each arm in which they ran.
    pub guests: usize,
    /// True if differences of throughput, as the probes saw them, were taken out.
    pub probed: bool,
    /// Logarithm of the ratio with its uncertainty, the allowance for the layout of few guests included.
    #[serde(skip)]
    pub log: Option<Estimate>,
    /// The part of its error that more rounds do not make smaller.
    #[serde(skip)]
    pub between: Estimate,
    /// True if all rounds have this ratio, or all simulated guests, so that the interval would look like certainty.
    #[serde(skip)]
    pub constant: bool,
}

impl Ratio {
    /// Creates a ratio without an interval, of means over so many rounds.
    pub fn of_means(ratio: f64, rounds: usize) -> Self {
        Self {
            ratio,
            interval: None,
            rounds,
            guests: 0,
            probed: false,
            log: None,
            between: known(0.0),
            constant: false,
        }
    }

    /// Returns whether the interval excludes 1.
    pub fn is_distinguishable(&self) -> bool {
        self.interval.is_some_and(|interval| interval.excludes(1.0))
    }

    /// Returns the ratio with the error of a part between runs.
    pub(super) fn widened(self, by: Spread) -> Self {
        let by = by.error(1.0);
        let log = self.log.map(|log| log.less(&by));
        Self { log, interval: log.map(interval), between: by, ..self }
    }

    /// Returns half of the interval's width, as a share: 0.02 is ± 2 %.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|Interval { low, high }| ((high / low).sqrt() - 1.0).max(0.0))
    }

    /// Returns the number of further rounds, in further guests, that show a relative difference in nine runs of ten. 0:
    /// these do. `None` where the spread of the rounds is unknown, or that between runs is too wide.
    pub fn more_rounds(&self, difference: f64) -> Option<u64> {
        let log = self.log?;
        let wanted = difference.abs().ln_1p();
        if wanted <= 0.0 {
            return None;
        }
        log.times_as_many(&self.between, f64::midpoint(1.0, CONFIDENCE), wanted).map(|times| self.further(times))
    }

    /// Returns the further rounds by which there are so many times as many.
    #[expect(clippy::cast_sign_loss, reason = "no share of rounds is negative")]
    pub fn further(&self, times: f64) -> u64 {
        let more = self.rounds as f64 * (times - 1.0);
        // Two digits are more than is known.
        let unit =
            10.0_f64.powf((more.max(1.0).log10().floor() - 1.0).max(0.0)).max(if more >= 10.0 { 10.0 } else { 1.0 });
        ((more / unit).ceil() * unit) as u64
    }
}

/// Returns the ratio of `arm` to `base` by a metric; `None` if no round that counts has it in both.
pub fn ratio<E: Experiment>(arm: &Arm<E>, base: &Arm<E>, metric: &str, statistic: Statistic) -> Option<Ratio> {
    if metric == HOST_WORK.key {
        return of_parts(&parts(arm, base, metric));
    }
    let rounds = pairs(arm, base, metric, statistic);
    // A simulated guest has no layout.
    let layout = if [arm, base].iter().any(|arm| arm.backend.starts_with("sim:")) { 0.0 } else { LAYOUT };
    with_layout(&rounds, layout)
}

/// Returns the logarithm of [`ratio`] alone: its interval takes longer.
pub fn log_ratio<E: Experiment>(arm: &Arm<E>, base: &Arm<E>, metric: &str, statistic: Statistic) -> Option<f64> {
    if metric == HOST_WORK.key {
        return all_work(&parts(arm, base, metric));
    }
    let rounds = pairs(arm, base, metric, statistic);
    Method::of(&rounds).centre(&rounds)
}

/// A part of a trace that was replayed: the work of two arms.
type Part = [f64; 2];

/// Returns the work of both arms in the parts that both have, in order.
fn parts<E: Experiment>(arm: &Arm<E>, base: &Arm<E>, metric: &str) -> Vec<Part> {
    let work = |arm: &Arm<E>| {
        let count = arm.rounds.metrics.get(metric).map(|column| column.count.clone()).unwrap_or_default();
        let mean = counting(arm, metric, Statistic::Mean);
        mean.map(|(round, mean)| (round.index, mean * count.get(round.at).copied().unwrap_or(0) as f64)).collect()
    };
    let [own, others]: [BTreeMap<u64, f64>; 2] = [work(arm), work(base)];
    own.into_iter().filter_map(|(index, own)| Some([own, *others.get(&index)?])).collect()
}

/// Computes the ratio of all work, which parts of a trace add up to, as a logarithm: a part with little of it counts for little.
fn all_work(parts: &[Part]) -> Option<f64> {
    let [own, other] = parts.iter().fold([0.0; 2], |sum: Part, part| [sum[0] + part[0], sum[1] + part[1]]);
    (own > 0.0 && other > 0.0).then(|| (own / other).ln())
}

fn of_parts(parts: &[Part]) -> Option<Ratio> {
    let value = all_work(parts)?;
    let groups = groups(&vec![0; parts.len()]);
    let log = (parts.len() >= MIN_ROUNDS).then(|| jackknife::over_groups(parts, &groups.group, all_work)).flatten();
    Some(Ratio {
        interval: log.map(interval),
        log,
        guests: 1,
        constant: parts.iter().all(|[own, other]| ((own / other).ln() - value).abs() < SAME),
        ..Ratio::of_means(value.exp(), parts.len())
    })
}

/// Computes the ratio of rounds that are given in order of time.
pub fn of_turns(rounds: &[Pair]) -> Option<Ratio> {
    with_layout(rounds, LAYOUT)
}

fn with_layout(rounds: &[Pair], layout: f64) -> Option<Ratio> {
    let method = Method::of(rounds);
    let value = method.centre(rounds)?;
    let guests: Vec<u64> = rounds.iter().map(|pair| pair.guest).collect();
    let groups = groups(&guests);
    let log = (rounds.len() >= MIN_ROUNDS)
        .then(|| jackknife::over_groups(rounds, &groups.group, |rounds| method.centre(rounds)))
        .flatten()
        .map(|found| if groups.by_guest { found } else { found.widened(layout * (2.0 / groups.guests as f64).sqrt()) });
    Some(Ratio {
        ratio: value.exp(),
        interval: log.map(interval),
        rounds: rounds.len(),
        guests: groups.guests,
        probed: method.probed,
        log,
        between: known(0.0),
        constant: rounds.iter().all(|pair| (pair.log - value).abs() < SAME)
            || layout <= 0.0 && repeat(&guests, &rounds.iter().map(|pair| pair.log).collect::<Vec<_>>()),
    })
}

/// Returns the interval of a ratio by that of its logarithm.
fn interval(log: Estimate) -> Interval {
    let Interval { low, high } = log.interval();
    Interval { low: low.exp(), high: high.exp() }
}

/// Method to find the centre of some rounds, decided once for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// True if differences of throughput, as the probes saw them, are taken out.
    pub probed: bool,
    /// Centre in use.
    pub centre: Centre,
}

impl Method {
    /// Chooses the method for these rounds.
    pub fn of(rounds: &[Pair]) -> Self {
        let probed = is_sharper(rounds);
        Self { probed, centre: Centre::of(&if probed { without_throughput(rounds) } else { logs(rounds) }) }
    }

    /// Returns the centre of the logarithms of rounds; `None` without any.
    pub fn centre(self, rounds: &[Pair]) -> Option<f64> {
        self.centre.at(&if self.probed { without_throughput(rounds) } else { logs(rounds) })
    }

    /// Returns the centres without each of `count` groups of rounds in turn; `group[i]` is the group of `rounds[i]`.
    /// `None` if nothing is left without one of them.
    pub fn leave_one_out(self, rounds: &[Pair], group: &[usize], count: usize) -> Option<Vec<f64>> {
        if !self.probed && self.centre == Centre::Biweight {
            return leave_one_out::centres(&logs(rounds), group, count);
        }
        // The slope on the probes differs without each group, so each is computed anew.
        jackknife::leave_one_out(rounds, group, count, |rounds| self.centre(rounds))
    }
}

fn logs(rounds: &[Pair]) -> Vec<f64> {
    rounds.iter().map(|pair| pair.log).collect()
}

/// Returns the logarithms that both turns would have had with the same throughput.
fn without_throughput(rounds: &[Pair]) -> Vec<f64> {
    let probes: Vec<f64> = rounds.iter().map(|pair| pair.probe.unwrap_or(0.0)).collect();
    let slope = slope(&probes, &logs(rounds));
    rounds.iter().map(|pair| pair.log - slope * pair.probe.unwrap_or(0.0)).collect()
}

/// Returns whether every round was probed and the probes explain the ratios well enough to be worth a second estimate.
fn is_sharper(rounds: &[Pair]) -> bool {
    if rounds.len() < MIN_PROBED || rounds.iter().any(|pair| pair.probe.is_none()) {
        return false;
    }
    let spread = |values: &[f64]| {
        let middle = median(values).unwrap_or(0.0);
        values.iter().map(|value| (value - middle).abs()).sum::<f64>()
    };
    spread(&without_throughput(rounds)) < (1.0 - PROBE_GAIN) * spread(&logs(rounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Host, Random, pair};

    /// Returns rounds of two arms of which the first takes `truth` times as long.
    fn rounds(host: &Host, truth: f64, seed: u64) -> Vec<Pair> {
        let arms = host.run(&[truth.ln(), 0.0], &mut Random::new(seed));
        let both = arms[0].iter().zip(&arms[1]);
        (0..).zip(both).map(|(round, (a, b))| pair(round, a, b)).collect()
    }

    fn coverage(host: &Host, runs: u64) -> (f64, f64) {
        let found: Vec<Ratio> = (0..runs).filter_map(|seed| of_turns(&rounds(host, 0.97, seed))).collect();
        let covered = found.iter().filter(|one| one.interval.is_some_and(|i| i.low <= 0.97 && 0.97 <= i.high)).count();
        let mut widths: Vec<f64> = found.iter().filter_map(Ratio::half_width).collect();
        widths.sort_by(f64::total_cmp);
        (covered as f64 / runs as f64, widths[widths.len() / 2])
    }

    #[test]
    fn intervals_cover_the_truth_and_are_narrow() {
        // For 200 runs at 95 %, 181 or fewer have a chance below 1 %.
        for guests in [0.0, 0.01, 0.03] {
            let (covered, width) = coverage(&Host { guests, ..Host::default() }, 200);
            assert!(covered >= 0.905, "layout {guests}: {covered}");
            assert!(width < 0.013 + guests, "layout {guests}: {width}");
        }
        // One round a guest.
        let (covered, width) = coverage(&Host { rounds_per_guest: 1, ..Host::default() }, 200);
        assert!(covered >= 0.905 && width < 0.02, "{covered} {width}");
        let (covered, _) = coverage(&Host { rounds_per_guest: 1, rounds: 10, ..Host::default() }, 200);
        assert!(covered >= 0.905, "{covered}");
        // One guest has one layout, which no interval can see: the allowance is for such.
        let (covered, width) = coverage(&Host { rounds_per_guest: 160, guests: LAYOUT, ..Host::default() }, 200);
        assert!(covered >= 0.905 && width > 0.008, "{covered} {width}");
    }

    #[test]
    fn probes_sharpen_and_keep_the_coverage() {
        let turns = Host { modes: crate::synthetic::Modes::PerTurn, guests: 0.0, ..Host::default() };
        let (_, without) = coverage(&turns, 100);
        let (covered, with) = coverage(&Host { probe: Some(0.03), ..turns }, 200);
        assert!(covered >= 0.905 && with < 0.8 * without, "{covered}, {with} against {without}");
        let useless = rounds(&Host { modes: crate::synthetic::Modes::None, probe: Some(0.05), ..turns }, 1.0, 3);
        assert!(!of_turns(&useless).unwrap().probed);
    }

    #[test]
    fn rounds_that_are_missing_are_about_enough() {
        let host = Host { rounds_per_guest: 1, ..Host::default() };
        let few = of_turns(&rounds(&Host { rounds: 40, ..host }, 1.0, 9)).unwrap();
        let more = few.more_rounds(0.02).unwrap();
        assert!(more > 0 && more.is_multiple_of(10), "{more}");
        let enough = Host { rounds: few.rounds + more as usize, ..host };
        let found =
            (0..40).filter(|&seed| of_turns(&rounds(&enough, 1.02, seed)).is_some_and(|one| one.is_distinguishable()));
        assert!(found.count() >= 28, "of 40 runs with {more} rounds more");
        assert_eq!(of_turns(&rounds(&host, 1.0, 1)).unwrap().more_rounds(0.5), Some(0));
        assert_eq!(few.more_rounds(0.0), None);
    }

    #[test]
    fn parts_of_a_trace_add_up() {
        let mut parts = vec![[10.0, 10.0]; 9];
        parts.push([1000.0, 410.0]);
        let found = of_parts(&parts).unwrap();
        assert!((found.ratio - 1090.0 / 500.0).abs() < 1e-9 && !found.constant, "{found:?}");
        // All of the difference is one part's: the others say that there is none.
        assert!(found.interval.is_some_and(|interval| interval.low < 1.0), "{found:?}");
        assert_eq!(of_parts(&parts[6..]).unwrap().interval, None);
        assert!(of_parts(&[[20.0, 10.0]; 6]).unwrap().constant && of_parts(&[]).is_none());
    }

    #[test]
    fn few_rounds_have_a_ratio_and_no_interval() {
        let pair = |round| Pair { round, guest: round, log: 0.1, probe: None };
        assert_eq!(of_turns(&[]), None);
        let few = of_turns(&[pair(0), pair(1)]).unwrap();
        assert!((few.ratio - 0.1_f64.exp()).abs() < 1e-12 && few.interval.is_none() && !few.is_distinguishable());
        // Rounds that are all the same have an interval without width.
        let same = of_turns(&(0..9).map(pair).collect::<Vec<_>>()).unwrap();
        assert!(same.is_distinguishable() && same.half_width() == Some(0.0) && same.more_rounds(0.01) == Some(0));
    }
}
