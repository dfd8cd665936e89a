//! Ratios of ways to set up, from the rounds that they share.

use results::paired::{MIN_ROUNDS, groups::groups};
use results::stats::jackknife;
use results::stats::location::centre;

use super::document::Comparison;
use super::measure::SetUpArm;

/// The times of one side by round, and of its start-up alone; no start-up where nothing starts.
pub(crate) type Side<'a> = (&'a [u64], Option<&'a [u64]>);

/// Compares the rounds of two sides. The interval leaves out stretches of rounds in turn, as others of this tool do;
/// `None` if a side takes no longer than its start-up.
pub(crate) fn compare(what: String, like_for_like: bool, one: Side<'_>, other: Side<'_>) -> Option<Comparison> {
    let at = |(walls, start): Side<'_>, round: usize| -> Option<[f64; 2]> {
        let start = start.map_or(Some(0), |start| start.get(round).copied())?;
        Some([*walls.get(round)? as f64, start as f64])
    };
    let rounds: Vec<[[f64; 2]; 2]> = (0..).map_while(|round| Some([at(one, round)?, at(other, round)?])).collect();
    let net = |rounds: &[[[f64; 2]; 2]], side: usize| {
        let column = |which: usize| centre(&rounds.iter().map(|round| round[side][which]).collect::<Vec<_>>());
        Some(column(0)? - column(1)?).filter(|&ns| ns > 0.0)
    };
    let figure = |rounds: &[[[f64; 2]; 2]]| Some((net(rounds, 0)? / net(rounds, 1)?).ln());
    let ratio = figure(&rounds)?.exp();
    let stretches = groups(&vec![0; rounds.len()]).group;
    let interval = (rounds.len() >= MIN_ROUNDS).then(|| jackknife::over_groups(&rounds, &stretches, figure)).flatten();
    let interval = interval.map(|log| log.interval()).map(|found| [found.low.exp(), found.high.exp()]);
    Some(Comparison { what, like_for_like, ratio, interval, rounds: rounds.len() as u64 })
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
    fn a_ratio_less_start_ups_has_the_interval_of_its_rounds() {
        // 40 above 20, against 10 above 5, each with noise whose mean is 0: the truth is 4.
        let noise = |round: u64, unit: u64| (round % 11) * unit;
        let side = |start: u64, net: u64| -> (Vec<u64>, Vec<u64>) {
            let unit = start / 100;
            let starts = (0..22).map(|round| start - 5 * unit + noise(round * 3, unit)).collect();
            (0..22)
                .map(|round| start + net - 15 * unit + noise(round * 7 + unit, 3 * unit))
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
