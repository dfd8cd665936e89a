//! Ratios of ways to set up, from the rounds that they share.

use results::paired::{Pair, of_turns};
use results::stats::interval::Interval;

use super::document::Comparison;
use super::measure::SetUpArm;

/// The times of one side by round, and of its start-up alone; no start-up where nothing starts.
pub(crate) type Side<'a> = (&'a [u64], Option<&'a [u64]>);

/// Compares the rounds of two sides, each round a group of its own: set-ups of one process share no guest and no layout.
/// The interval is never wider than the rounds' own range. Rounds in which a side takes no longer than its start-up have
/// no ratio; `None` if most of them have none.
pub(crate) fn compare(what: String, like_for_like: bool, one: Side<'_>, other: Side<'_>) -> Option<Comparison> {
    let net = |(walls, start): Side<'_>, round: usize| -> Option<f64> {
        let start = start.map_or(Some(0), |start| start.get(round).copied())?;
        Some(*walls.get(round)? as f64 - start as f64)
    };
    let all: Vec<[f64; 2]> = (0..).map_while(|round| Some([net(one, round)?, net(other, round)?])).collect();
    let rounds: Vec<Pair> = (0..)
        .zip(&all)
        .filter(|(_, net)| net.iter().all(|&ns| ns > 0.0))
        .map(|(round, [a, b])| Pair { round, guest: round, log: (a / b).ln() })
        .collect();
    let found = of_turns(&rounds).filter(|_| 2 * rounds.len() > all.len())?;
    let least = rounds.iter().map(|pair| pair.log).fold(f64::INFINITY, f64::min).exp();
    let most = rounds.iter().map(|pair| pair.log).fold(f64::NEG_INFINITY, f64::max).exp();
    let interval = found.interval.map(|Interval { low, high }| [low.max(least), high.min(most)]);
    Some(Comparison { what, like_for_like, ratio: found.ratio, interval, rounds: found.rounds as u64 })
}

/// Compares every arm with `auto`, both in this process and warm. Like with like is the way of perf since Linux 5.5:
/// the same list, each event on each CPU.
pub(crate) fn of_arms(arms: &[SetUpArm], bare: &[u64]) -> Vec<Comparison> {
    let totals: Vec<(&str, Vec<u64>)> = arms.iter().map(|arm| (arm.strategy.as_str(), arm.totals())).collect();
    let Some((_, auto)) = totals.iter().find(|(name, _)| *name == "auto") else { return Vec::new() };
    let others = totals.iter().filter(|(name, _)| *name != "auto").filter_map(|(name, walls)| {
        let like = *name == "cpu-major";
        let what = if like { "cpu-major (as perf since Linux 5.5)" } else { name };
        compare(format!("{what} ÷ auto, both warm"), like, (walls, None), (auto, None))
    });
    let limit = compare("auto ÷ the bare calls, the limit".to_owned(), false, (auto, None), (bare, None));
    others.chain(limit).collect()
}

/// Puts the comparison of like with like first. If several are, the first is: the answer.
pub(crate) fn answer_first(mut all: Vec<Comparison>) -> Vec<Comparison> {
    let answer = all.iter().position(|one| one.like_for_like);
    all.iter_mut().enumerate().for_each(|(at, one)| one.like_for_like = Some(at) == answer);
    all.sort_by_key(|one| !one.like_for_like);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_within_the_range_of_the_rounds() {
        // Set-ups of two modes: the centre of one side jumps where one of its rounds is left out.
        let one = [37, 60, 37, 68, 33, 33, 48, 48, 48, 68];
        let other = [60, 3, 50, 2, 4, 50, 2, 2, 60, 60];
        let found = compare("x".into(), true, (&one, None), (&other, None)).unwrap();
        let [low, high] = found.interval.unwrap();
        // The interval is from 37 of 60 to 68 of 2.
        assert!(0.6166 < low && low < found.ratio && found.ratio < high && high < 34.001, "{found:?}");
    }

    #[test]
    fn a_ratio_less_start_ups_has_the_interval_of_its_rounds() {
        // 40 above 20, against 10 above 5, each with noise whose mean is 0: the truth is 4.
        let noise = |round: u64, unit: u64| (round % 11) * unit;
        let side = |start: u64, net: u64| -> (Vec<u64>, Vec<u64>) {
            let unit = start / 100;
            let starts = (0..22).map(|round| start - 5 * unit + noise(round * 3, unit)).collect();
            (0..22)
                .map(|round| start + net - 15 * unit + noise(round * (unit / 50 + 3), 3 * unit))
                .zip::<Vec<u64>>(starts)
                .unzip()
        };
        let ((walls, starts), (own, own_starts)) = (side(20_000, 40_000), side(5_000, 10_000));
        let found = |n: usize| {
            let (one, other) = ((&walls[..n], Some(&starts[..])), (&own[..n], Some(&own_starts[..])));
            compare("x".into(), true, one, other).unwrap()
        };
        let all = found(22);
        let [low, high] = all.interval.unwrap();
        assert!(low < 4.0 && 4.0 < high && high / low < 1.3 && all.rounds == 22, "{all:?}");
        assert!(found(4).interval.is_none(), "too few rounds");
        assert_eq!(compare("x".into(), true, (&own, Some(&walls)), (&own, None)), None, "less than nothing");
        let ordered = answer_first(vec![Comparison { like_for_like: false, ..all.clone() }, all.clone(), all]);
        assert_eq!(ordered.iter().map(|one| one.like_for_like).collect::<Vec<_>>(), [true, false, false]);
    }
}
