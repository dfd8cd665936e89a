//! Rates at which the statistics are right, by the synthetic hosts with a known truth in `statistics.toml`: intervals cover it in 95 % of
//! the runs but where guests are few, equal sides raise no alarm, what is planted is found. Rates of a few draws are golden; those of
//! more are the tables of docs/evidence.md: `VPMU_STATISTICS_RUNS=300 cargo test --release -p results --test statistics intervals --
//! --nocapture`.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use results::compare::{CompareSpec, Question, compare};
use results::paired::{Looks, Ratio, median_interval, of_turns};
use results::stats::change_points::{USUAL, find, trend};
use results::stats::interval::Interval;
use results::stats::median;
use serde::Deserialize;
use trials::fixture;
use trials::synthetic::{Host, Random, paired};

/// The ratio of the first arm to the second.
const TRUTH: f64 = 0.97;
/// Rounds of a run that is long enough for its median to be the host's.
const LONG: usize = 400_000;

/// A host, how its level and one arm's ratio go from run to run, and what a series of its runs has beside its noise.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Row {
    name: String,
    host: Host,
    correlation: f64,
    wander: f64,
    at: usize,
    by: f64,
    creep: f64,
}

fn rows(name: &str) -> Vec<Row> {
    let mut all: BTreeMap<String, Vec<Row>> = toml::from_str(include_str!("statistics.toml")).expect("tables of rows");
    all.remove(name).expect("a table")
}

/// Looks at the table of this name, with so many draws unless others are asked for. Each row has lines by the number of draws.
fn table(name: &str, columns: &str, few: u64, lines: impl Fn(&Row, u64) -> Vec<String>) {
    let asked = std::env::var("VPMU_STATISTICS_RUNS").ok().map(|runs| runs.parse().expect("a number of draws"));
    let rows = rows(name);
    let lines = rows.iter().flat_map(|row| lines(row, asked.unwrap_or(few)));
    let rule = "|---".repeat(columns.matches('|').count() - 1);
    let text = [columns.to_owned(), rule + "|"].into_iter().chain(lines).collect::<Vec<_>>().join("\n") + "\n";
    if asked.is_some() {
        print!("{text}");
    } else {
        let file = format!("tests/golden/statistics-{name}.txt");
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file), &text);
    }
}

/// Draws something with so many seeds.
fn drawn<T: Send>(runs: u64, of: impl Fn(u64) -> T + Send + Sync) -> Vec<T> {
    (0..runs).into_par_iter().map(of).collect()
}

/// Returns the share of those that are so, %.
fn share<T>(all: &[T], is: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|one| is(one)).count() as f64 / all.len() as f64 * 100.0
}

fn covers(interval: Option<Interval>, truth: f64) -> bool {
    interval.is_some_and(|one| one.low <= truth && truth <= one.high)
}

/// Says how many intervals cover the truth, %, and half of their median width, % of it.
fn shown(found: &[Option<Interval>], truth: f64) -> String {
    let widths: Vec<f64> = found.iter().flatten().map(|one| (one.high - one.low) / 2.0 / truth * 100.0).collect();
    format!("{:5.1} ± {:4.1}", share(found, |one| covers(*one, truth)), median(&widths).unwrap_or(f64::NAN))
}

/// Draws the times of an arm, and their guests.
fn times(host: &Host, seed: u64) -> (Vec<f64>, Vec<u64>) {
    let arms = host.run(&[0.0; 4], &mut Random::new(seed));
    arms[0].iter().map(|turn| (turn.log.exp(), turn.guest)).unzip()
}

/// Coverage and half-width of the intervals of a ratio and of an arm's p50.
#[test]
fn intervals() {
    table("intervals", "| 160 rounds | ratio | p50 |", 200, |Row { name, host, .. }, runs| {
        let ratios = drawn(runs, |seed| {
            let arms = host.run(&[TRUTH.ln(), 0.0, 0.05], &mut Random::new(seed));
            of_turns(&paired(&arms[0], &arms[1])).and_then(|ratio| ratio.interval)
        });
        let alone = Host { drift: 0.0, ..*host };
        let truth = median(&times(&Host { rounds: LONG, ..alone }, 1 << 40).0).unwrap_or_default();
        let levels = drawn(runs, |seed| {
            let (values, guests) = times(&alone, seed);
            median_interval(&values, &guests)
        });
        vec![format!("| {name} | {} | {} |", shown(&ratios, TRUTH), shown(&levels, truth))]
    });
}

/// Draws a run that ends, as `--until-ci` does, when all of its ratios are known to `wanted`; whether each covers the truth.
/// `None`: it was never sure.
fn ended(host: &Host, wanted: f64, seed: u64) -> Option<Vec<bool>> {
    let truth = [TRUTH.ln(), 0.0, 0.05];
    let arms = host.run(&truth, &mut Random::new(seed));
    let pairs = [(0, 1), (0, 2), (1, 2)]
        .map(|(a, b): (usize, usize)| (paired(&arms[a], &arms[b]), (truth[a] - truth[b]).exp()));
    let found = |guests: usize| -> Vec<Ratio> {
        pairs.iter().filter_map(|(pairs, _)| of_turns(&pairs[..guests * host.rounds_per_guest])).collect()
    };
    let sure = |guests| found(guests).iter().all(|one| one.half_width().is_some_and(|half| half <= wanted));
    let mut looks = Looks::default();
    let guests = (1..=host.rounds / host.rounds_per_guest).find(|&guests| looks.are_enough(|| sure(guests)))?;
    Some(found(guests).into_iter().zip(&pairs).map(|(one, (_, truth))| covers(one.interval, *truth)).collect())
}

/// Coverage of runs that ended as soon as their intervals were narrow enough.
#[test]
fn until() {
    table("until", "| host | until | covered, % |", 20, |Row { name, host, .. }, runs| {
        let line = |wanted| {
            let found = drawn(runs, |seed| ended(host, wanted, seed));
            let all: Vec<bool> = found.into_iter().flatten().flatten().collect();
            format!("| {name} | {} % | {:.1} |", wanted * 100.0, share(&all, |hit| *hit))
        };
        [0.02, 0.01].map(line).to_vec()
    });
}

/// Returns the exit of a comparison of so many runs a side, and whether the interval of the one arm covers the truth. `planted` is
/// what NEW has in one arm that BASE has not, or in all.
fn compared(row: &Row, runs: usize, in_turns: bool, (planted, of_all): (f64, bool), seed: u64) -> Option<(u8, bool)> {
    let template = fixture::record(row.host.rounds as u64, 1, |_, _| 1000);
    let mut random = Random::new(seed);
    let mut sides = [Vec::new(), Vec::new()];
    let ratios = Random::new(!seed).related(2 * runs, row.correlation);
    for (run, level) in random.related(2 * runs, row.correlation).into_iter().enumerate() {
        let side = if in_turns { run % 2 } else { run / runs };
        let more = if side == 0 { 0.0 } else { planted };
        let (one, all) = if of_all { (0.0, more) } else { (more, 0.0) };
        let truth = [0.15 + all, 0.1 + all + one + row.wander * ratios[run], 0.1 + all, all];
        let turns = row.host.run_at(level, &truth, &mut random);
        sides[side].push(fixture::of_turns(&template, 100 + run as u64, &turns));
    }
    let [base, new] = &sides;
    let found = compare(("base", base), ("new", new), &CompareSpec::default()).ok()?;
    let (question, arm) = if of_all { (Question::AllArms, "geomean") } else { (Question::OneArm, "reuse") };
    let judged = found.rows().find(|row| row.question == question && row.arm == arm);
    Some((found.exit, covers(judged.and_then(|row| row.change_interval), planted.exp_m1())))
}

/// Returns lines of exits 1 / 0 / 3 of so many pairs by runs a side and order, and the coverage of the one interval, by what is planted.
fn exits(row: &Row, orders: &[(usize, bool)], planted: &[(f64, bool)], pairs: u64) -> Vec<String> {
    let line = |&(runs, in_turns): &(usize, bool)| {
        let order = if in_turns { "in turns" } else { "one after the other" };
        let cells = planted.iter().map(|&(by, of_all)| {
            let of = |seed| compared(row, runs, in_turns, (by.ln_1p(), of_all), seed);
            let all: Vec<_> = drawn(pairs, of).into_iter().flatten().collect();
            let exits = [1, 0, 3].map(|exit| format!("{:.0}", share(&all, |one| one.0 == exit)));
            format!(" {} ({:.0}) |", exits.join(" / "), share(&all, |one| one.1))
        });
        format!("| {runs} a side, {order}: {} |{}", row.name, cells.collect::<String>())
    };
    orders.iter().map(line).collect()
}

#[test]
fn comparisons() {
    let orders = [(1, true), (2, true), (3, true), (4, true), (8, true), (8, false)];
    let planted = [(0.0, false), (0.03, false), (0.05, false), (0.1, false), (0.1, true)];
    let columns = "| exits 1 / 0 / 3 (covered), % | A/A | +3 % | +5 % | +10 % | all +10 % |";
    table("comparisons", columns, 1, |row, pairs| exits(row, &orders, &planted, pairs));
}

/// These bounds hold whatever the golden figures become.
#[test]
fn equal_sides_are_quiet_and_a_tenth_is_found() {
    let (mut alarms, mut found) = (0, 0);
    for row in &rows("comparisons")[..4] {
        let slower = |runs, by| {
            let exits = drawn(5, |seed| compared(row, runs, true, (by, false), 1000 + seed));
            exits.into_iter().flatten().filter(|(exit, _)| *exit == 1).count()
        };
        alarms += slower(1, 0.0) + slower(8, 0.0);
        found += slower(8, 0.1_f64.ln_1p());
    }
    assert!(alarms <= 2 && found >= 19, "{alarms} of 40 alarms, {found} of 20 found");
}

#[test]
fn wanders() {
    let planted = [(0.0, false), (0.11, false), (0.17, false)];
    let columns = "| exits 1 / 0 / 3 (covered), % | A/A | +11 % | +17 % |";
    table("wanders", columns, 1, |row, pairs| exits(row, &[(10, false)], &planted, pairs));
}

/// How many series of 50 runs have changes, how many one at the right place, and how many a trend.
#[test]
fn histories() {
    let columns = "| series of 50, % with | any change | its place | a trend |";
    table("histories", columns, 100, |Row { name, host, correlation, at, by, creep, .. }, runs| {
        let found = drawn(runs, |seed| {
            let mut random = Random::new(seed);
            let noise = random.related(50, *correlation);
            let mut far = || if random.uniform() < host.outliers { 0.3 } else { 0.0 };
            let shape = |run: usize| creep * run as f64 / 49.0 + if run >= *at { *by } else { 0.0 };
            let series: Vec<f64> = (0..50).map(|run| 1.0 + shape(run) + host.noise * noise[run] + far()).collect();
            let (trend, steps) = trend(&series, &USUAL, 12, find(&series, &USUAL, 12));
            let is_right = steps.iter().any(|step| *at > 0 && step.index.abs_diff(*at) < 2);
            [!steps.is_empty(), is_right, trend.is_some()]
        });
        let [any, right, trends] = [0, 1, 2].map(|at| share(&found, |one| one[at]));
        vec![format!("| {name} | {any:.1} | {right:.1} | {trends:.1} |")]
    });
}
