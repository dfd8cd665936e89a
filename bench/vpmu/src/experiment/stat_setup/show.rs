//! The result as it is shown: phases, ratios, notes.

use results::document::{Arm, Record, Status};
use results::metric::{ELAPSED, TO_COUNTS, TOTAL};
use results::paired::{MIN_ROUNDS, Pair, Ratio, of_turns};
use results::stats::interval::Interval;
use results::table::layout::{self, dash, plural, time};
use results::table::{Report, Table, state};
use stat_setup::method::Phase;

use super::peer::{OWN, OWN_START, START};

/// A ratio of two ways to set up, from the rounds that they share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    what: String,
    /// True of the answer: both sides do the same work under the same conditions.
    pub(crate) like_for_like: bool,
    pub(crate) ratio: Ratio,
}

/// The times of one side by round, and of its start-up alone; no start-up where nothing starts.
type Side<'a> = (&'a [u64], Option<&'a [u64]>);

/// Compares the rounds of two sides, each round a group of its own: set-ups of one process share no guest and no layout.
/// The interval is never wider than the rounds' own range. Rounds in which a side takes no longer than its start-up have
/// no ratio; `None` if most of them have none.
fn compare(what: String, like_for_like: bool, one: Side<'_>, other: Side<'_>) -> Option<Comparison> {
    let net = |(walls, start): Side<'_>, round: usize| -> Option<f64> {
        let start = start.map_or(Some(0), |start| start.get(round).copied())?;
        Some(*walls.get(round)? as f64 - start as f64)
    };
    let all: Vec<[f64; 2]> = (0..).map_while(|round| Some([net(one, round)?, net(other, round)?])).collect();
    let pairs = (0..).zip(&all).filter(|(_, net)| net.iter().all(|&ns| ns > 0.0));
    let pairs: Vec<Pair> = pairs.map(|(round, [a, b])| Pair { round, guest: round, log: (a / b).ln() }).collect();
    let mut ratio = of_turns(&pairs).filter(|_| 2 * pairs.len() > all.len())?;
    let logs = || pairs.iter().map(|pair| pair.log);
    let (least, most) = (logs().fold(f64::INFINITY, f64::min).exp(), logs().fold(f64::NEG_INFINITY, f64::max).exp());
    ratio.interval =
        ratio.interval.map(|Interval { low, high }| Interval { low: low.max(least), high: high.min(most) });
    Some(Comparison { what, like_for_like, ratio })
}

/// Returns the ratios, the answer first. Of stock perf the answer is its fastest grouping over this tool, both as processes less their
/// start-ups: `auto` counts in groups, too. Else it is the way of perf since Linux 5.5.
pub(crate) fn ratios(document: &Record) -> Vec<Comparison> {
    let rounds = |arm: &str, key: &str| -> Vec<u64> {
        document.arm(arm).and_then(|arm| arm.rounds.metrics.get(key)).map_or_else(Vec::new, |column| column.p50.clone())
    };
    let [start, own_start, own] = [START, OWN_START, OWN].map(|name| rounds(name, ELAPSED.key));
    let (counts, auto, bare) = (rounds(OWN, TO_COUNTS.key), rounds("auto", TOTAL.key), rounds("bare calls", TOTAL.key));
    let mut found = Vec::new();
    let mut add =
        |what: &str, like, one: Side<'_>, other: Side<'_>| found.extend(compare(what.to_owned(), like, one, other));
    // The best grouping is the last.
    let arms = || document.arms.iter().rev().map(|arm| arm.name.as_str());
    for name in arms().filter(|name| name.starts_with("perf ") && *name != START) {
        let walls = rounds(name, ELAPSED.key);
        let net = (&walls[..], Some(&start[..]));
        let own = (&own[..], Some(&own_start[..]));
        add(&format!("{name} ÷ vpmu, both processes less start-up"), true, net, own);
        add(&format!("{name}'s end ÷ vpmu's counts, whole processes"), false, (&walls, None), (&counts, None));
        add(&format!("{name} less start-up ÷ auto, which is warm"), false, net, (&auto, None));
        add(&format!("{name} less start-up ÷ the bare calls, the limit"), false, net, (&bare, None));
    }
    for name in ["event-major", "cpu-major", "threads", "packed"] {
        let like = name == "cpu-major";
        let what = if like { "cpu-major (as perf since Linux 5.5)" } else { name };
        add(&format!("{what} ÷ auto, both warm"), like, (&rounds(name, TOTAL.key), None), (&auto, None));
    }
    add("auto ÷ the bare calls, the limit", false, (&auto, None), (&bare, None));
    answer_first(found)
}

/// Puts the comparison of like with like first. If several are, the first is: the answer.
fn answer_first(mut all: Vec<Comparison>) -> Vec<Comparison> {
    let answer = all.iter().position(|one| one.like_for_like);
    all.iter_mut().enumerate().for_each(|(at, one)| one.like_for_like = Some(at) == answer);
    all.sort_by_key(|one| !one.like_for_like);
    all
}

/// Returns the median times of phases, one row per arm.
fn phases(arms: &[Arm]) -> Table {
    let names = Phase::ALL.map(Phase::name);
    let mut table = Table::new(["arm"].into_iter().chain(names).chain(["total", "counts"]));
    for arm in arms {
        let total = if arm.metrics.contains_key(TOTAL.key) { TOTAL.key } else { ELAPSED.key };
        let keys = names.map(|name| format!("phases/{name}/wall_ns")).into_iter();
        let keys = keys.chain([total, TO_COUNTS.key].map(str::to_owned));
        let times = keys.map(|key| arm.metrics.get(&key).map_or_else(dash, |found| time(found.median())));
        table.add_row(std::iter::once(arm.name.clone()).chain(times));
    }
    table
}

/// Formats the answer; a ratio without an interval is none.
fn answer(one: &Comparison, done: usize) -> String {
    let Comparison { what, ratio, .. } = one;
    if ratio.interval.is_some() {
        return format!("answer: {} ×: {what}; {}", layout::ratio_with(ratio), plural(ratio.rounds, "round"));
    }
    let least = if done < MIN_ROUNDS { "" } else { ", as the others are no longer than their start-up" };
    let of = plural(done, "round");
    format!("no answer: {} of {of} can be compared{least}; an interval takes {MIN_ROUNDS} (--rounds)", ratio.rounds)
}

/// Returns the whole result as it is shown.
pub(crate) fn report(document: &Record) -> Report {
    let mut report = Report::new("vpmu stat-setup");
    let parameter = |name: &str| document.parameter(name).unwrap_or_default();
    let done = document.arms.first().map_or(0, |arm| arm.rounds.len());
    let short = document.status == Status::Complete && (done as u64) < document.size("rounds").unwrap_or_default();
    let ended = if short { format!(" of {}, ended by --duration", parameter("rounds")) } else { String::new() };
    let what = format!(
        "{} events on {} ({})",
        parameter("events"),
        plural(document.size("cpus").unwrap_or_default() as usize, "CPU"),
        parameter("mode")
    );
    report.heading(format!("Set-up of {what}, {}{ended}", plural(done, "round")));
    let ratios = ratios(document);
    report.notes(ratios.iter().filter(|one| one.like_for_like).map(|one| answer(one, done)));
    report.table(phases(&document.arms));
    report.line("median of a round; total: of a command from its start to its end; counts: until they are there");
    if !ratios.is_empty() {
        let mut table = Table::new(["ratio [95 %]", "of what"]).left(1);
        for Comparison { what, ratio, .. } in &ratios {
            table.add_row([layout::ratio_with(ratio), what.clone()]);
        }
        report.gap();
        report.table(table);
    }
    report.gap();
    state(document, &mut report);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_within_the_range_of_the_rounds() {
        // Set-ups of two modes: the centre of one side jumps where one of its rounds is left out.
        let one = [37, 60, 37, 68, 33, 33, 48, 48, 48, 68];
        let other = [60, 3, 50, 2, 4, 50, 2, 2, 60, 60];
        let found = compare("x".into(), true, (&one, None), (&other, None)).unwrap().ratio;
        let Interval { low, high } = found.interval.unwrap();
        // From 37 of 60 to 68 of 2.
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
        let Interval { low, high } = all.ratio.interval.unwrap();
        assert!(low < 4.0 && 4.0 < high && high / low < 1.3 && all.ratio.rounds == 22, "{all:?}");
        assert!(answer(&all, 22).starts_with("answer: "));
        assert_eq!(answer(&found(4), 4), "no answer: 4 of 4 rounds can be compared; an interval takes 5 (--rounds)");
        assert!(answer(&found(4), 5).starts_with("no answer: 4 of 5 rounds can be compared, as the others "));
        assert_eq!(compare("x".into(), true, (&own, Some(&walls)), (&own, None)), None, "less than nothing");
        let ordered = answer_first(vec![Comparison { like_for_like: false, ..all.clone() }, all.clone(), all]);
        assert_eq!(ordered.iter().map(|one| one.like_for_like).collect::<Vec<_>>(), [true, false, false]);
    }
}
