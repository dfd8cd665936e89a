//! Before against after on the same hosts, as pairs: the log ratio of each host, and what hosts say together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use results::error::{Error, Exit};
use results::junit::Case;
use results::stats::interval::{CONFIDENCE, Interval};
use results::stats::jackknife::{Estimate, known};
use results::stats::{holm, location};
use results::table::layout::{change, dash, p, plural};
use results::table::{Report, Table};
use results::verdict::{Tally, Verdict};
use serde::Serialize;

use crate::run::{Figure, Run};
use crate::show::tables::value;
use crate::statistics::{FleetSpec, Grid, Kind, Series};

/// One figure of one class, over the hosts that both sides have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetRow {
    /// Setting.
    pub setting: String,
    /// Host class.
    pub class: String,
    /// All arms' times together, or one arm's ratio.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric.
    pub metric: String,
    /// Mean over hosts in BASE and NEW: ns, or a ratio.
    pub base: f64,
    /// Level in NEW.
    pub new: f64,
    /// Relative change: the mean of the hosts' log ratios.
    pub change: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Two-sided p value.
    pub p: Option<f64>,
    /// Adjusted for the rows (Holm).
    pub p_adjusted: Option<f64>,
    /// Hosts with runs on both sides.
    pub hosts: usize,
    /// Runs of BASE and NEW on them.
    pub runs: [usize; 2],
    /// Runs were paired by repetition, so that the effect of a repetition on both sides cancels out.
    pub by_repetition: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is open, and what would do; empty where it is not.
    pub why: String,
}

/// Two sides of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetComparison {
    /// The verdict in a sentence.
    pub verdict: String,
    /// The exit code.
    pub exit: u8,
    /// Hosts on both sides.
    pub hosts: usize,
    /// Hosts on one side only, which were left out.
    pub only_base: Vec<String>,
    /// Hosts that only NEW has.
    pub only_new: Vec<String>,
    /// Facts that differ between the sides of a host, with the number of hosts.
    pub unlike: Vec<String>,
    /// Missing figures, and warnings.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<FleetRow>,
}

impl FleetComparison {
    /// Returns the exit code, as of `compare`: 1 slower, 3 open, 0 neither.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }
}

/// Fewest hosts of a verdict.
const MIN_HOSTS: usize = 5;

/// Says that so many hosts give no verdict, and what does; `None` if they do.
pub fn too_few(hosts: usize) -> Option<String> {
    let text = format!("no verdict from {} (it takes {MIN_HOSTS}); for one host: vpmu ab", plural(hosts, "host"));
    (hosts < MIN_HOSTS).then_some(text)
}

/// Runs of both sides whose starts are further apart are no pair, s.
const APART: u64 = 86_400;
/// One host's pair.
struct Pair {
    base: f64,
    new: f64,
    log: f64,
    /// Variance that its runs leave in `log`.
    own: f64,
    runs: [usize; 2],
    by_repetition: bool,
}

/// Compares the hosts of `new` with themselves in `base`.
///
/// # Errors
/// Exit 2: no host has comparable runs on both sides.
pub fn compare(base: &[Run], new: &[Run], spec: &FleetSpec) -> Result<FleetComparison, Error> {
    let variants = |runs: &[Run]| runs.iter().map(|run| run.labels.variant.clone()).collect::<BTreeSet<_>>();
    let mut all: Vec<Run> = base.iter().chain(new).cloned().collect();
    // One variant against another.
    if variants(base).len() == 1 && variants(new).len() == 1 {
        for run in &mut all {
            run.labels.variant = None;
        }
    }
    let (both_sides, lone) = sides(base, new);
    for run in &mut all {
        run.figures.retain(|figure| both_sides.contains(&place(&run.key, figure)));
    }
    let grid = Grid::new(&all);
    let names = |side: std::ops::Range<usize>| -> BTreeSet<String> {
        side.map(|run| grid.hosts[grid.meta[run].host].name.to_string()).collect()
    };
    let (of_base, of_new) = (names(0..base.len()), names(base.len()..all.len()));
    let both = of_base.intersection(&of_new).count();
    let mut notes = Vec::new();
    let mut found: Vec<(FleetRow, Option<Estimate>, f64)> = Vec::new();
    for series in grid.series.iter().filter(|series| matches!(series.kind, Kind::AllArms | Kind::Ratio)) {
        let pairs = pairs(&grid, series, base.len());
        if let Some(row) = row(&grid, series, &pairs) {
            found.push(row);
        }
    }
    if found.is_empty() {
        let why = if both == 0 {
            "no host has runs on both sides"
        } else {
            "no experiment with the same parameters is on both sides"
        };
        return Err(Error::usage("cannot compare BASE and NEW", why, "give campaigns of one plan, by the same hosts"));
    }
    judge(&grid, &mut found, spec);
    let rows: Vec<FleetRow> = found.into_iter().map(|(row, ..)| row).collect();
    if rows.iter().any(|row| !row.by_repetition) {
        notes.push(
            "BASE and NEW were taken at different times: what all hosts share with the time is in the change"
                .to_owned(),
        );
    }
    let on = |range: std::ops::Range<usize>| range.map(|run| all[run].key.clone()).collect::<BTreeSet<_>>();
    let alone = on(0..base.len()).symmetric_difference(&on(base.len()..all.len())).count();
    if alone > 0 {
        notes.push(format!("{} on one side only, left out", plural(alone, "setting")));
    }
    notes.extend(
        grid.classes
            .iter()
            .filter(|class| class.starts_with("simulated"))
            .map(|class| format!("{class}: no measurement")),
    );
    if grid.settings.iter().any(|setting| setting.stand_in) {
        notes.push("a stand-in for hardware events: not a host with a PMU".to_owned());
    }
    if !lone.is_empty() {
        let figures = plural(lone.len(), "figure");
        notes.push(format!("{figures} whole on one side only, not compared: {}", lone.join(", ")));
    }
    let doubt = (!lone.is_empty()).then(|| format!("{} on one side only", plural(lone.len(), "figure")));
    let doubt = too_few(both).or(doubt);
    let (exit, verdict) = Tally::of(rows.iter().map(|row| row.verdict)).conclude(doubt.as_deref());
    Ok(FleetComparison {
        verdict,
        exit: exit.code(),
        hosts: both,
        only_base: of_base.difference(&of_new).cloned().collect(),
        only_new: of_new.difference(&of_base).cloned().collect(),
        unlike: unlike(&grid, base.len()),
        notes,
        rows,
    })
}

/// Key, arm and metric.
type Place = (Arc<str>, Arc<str>, Arc<str>);

fn place(key: &Arc<str>, figure: &Figure) -> Place {
    (key.clone(), figure.arm.clone(), figure.metric.clone())
}

/// Figures that are whole on both sides; and, of settings that both have, the names of those that are whole on one.
///
/// An arm of one side would be part of one side's mean over arms, and an arm that is nowhere whole would vanish without a word.
fn sides(base: &[Run], new: &[Run]) -> (BTreeSet<Place>, Vec<String>) {
    let of = |runs: &[Run]| -> BTreeSet<Place> {
        let whole = |run: &Run| {
            let figures = run.figures.iter().filter(|figure| figure.doubt.is_none());
            figures.map(|figure| place(&run.key, figure)).collect::<Vec<_>>()
        };
        runs.iter().flat_map(whole).collect()
    };
    let keys = |runs: &[Run]| runs.iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>();
    let shared: BTreeSet<Arc<str>> = keys(base).intersection(&keys(new)).cloned().collect();
    let (of_base, of_new) = (of(base), of(new));
    let lone = of_base.symmetric_difference(&of_new).filter(|(key, ..)| shared.contains(key));
    let lone: BTreeSet<String> = lone.map(|(_, arm, metric)| format!("{arm} {metric}")).collect();
    (of_base.intersection(&of_new).cloned().collect(), lone.into_iter().collect())
}

/// Pairs the sides of each host of a series.
fn pairs(grid: &Grid<'_>, series: &Series, base: usize) -> Vec<Pair> {
    // Runs of both sides, per host.
    let mut hosts: BTreeMap<usize, [Vec<(usize, f64)>; 2]> = BTreeMap::new();
    for point in &series.points {
        let side = usize::from(point.run >= base);
        hosts.entry(grid.meta[point.run].host).or_default()[side].push((point.run, point.log));
    }
    hosts.values().filter_map(|sides| pair(grid, sides)).collect()
}

fn pair(grid: &Grid<'_>, sides: &[Vec<(usize, f64)>; 2]) -> Option<Pair> {
    let logs = |side: &[(usize, f64)]| side.iter().map(|(_, log)| *log).collect::<Vec<_>>();
    let [base, new] = [logs(&sides[0]), logs(&sides[1])];
    let levels = [location::centre(&base)?, location::centre(&new)?];
    let runs = [base.len(), new.len()];
    let variance = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() > 1 {
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
        } else {
            0.0
        }
    };
    let together: Vec<f64> = sides[0]
        .iter()
        .filter_map(|(run, base)| {
            let run = &grid.runs[*run];
            let repetition = run.labels.repetition?;
            let near = |other: &&(usize, f64)| {
                let other = &grid.runs[other.0];
                other.labels.repetition == Some(repetition) && other.started_unix.abs_diff(run.started_unix) < APART
            };
            sides[1].iter().find(near).map(|(_, new)| new - base)
        })
        .collect();
    let by_repetition = together.len() * 2 > base.len().min(new.len());
    let (log, own) = if by_repetition {
        (location::centre(&together)?, variance(&together))
    } else {
        (levels[1] - levels[0], variance(&base) + variance(&new))
    };
    Some(Pair { base: levels[0], new: levels[1], log, own, runs, by_repetition })
}

fn row(grid: &Grid<'_>, series: &Series, pairs: &[Pair]) -> Option<(FleetRow, Option<Estimate>, f64)> {
    let n = pairs.len() as f64;
    let mean = |value: fn(&Pair) -> f64| pairs.iter().map(value).sum::<f64>() / n;
    let change = mean(|pair| pair.log);
    let variance = pairs.iter().map(|pair| (pair.log - change).powi(2)).sum::<f64>() / (n - 1.0);
    let estimate =
        (pairs.len() > 1).then(|| Estimate { value: change, error: (variance / n).sqrt(), freedom: n - 1.0 });
    let interval = estimate.map(|estimate| estimate.interval());
    let row = FleetRow {
        setting: grid.settings[series.setting?].label.clone(),
        class: grid.classes[series.class].clone(),
        kind: series.kind,
        arm: series.arm.clone(),
        metric: series.metric.clone(),
        base: mean(|pair| pair.base).exp(),
        new: mean(|pair| pair.new).exp(),
        change: change.exp_m1(),
        interval: interval.map(|interval| Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() }),
        p: estimate.map(|estimate| estimate.p()),
        p_adjusted: None,
        hosts: pairs.len(),
        runs: [pairs.iter().map(|pair| pair.runs[0]).sum(), pairs.iter().map(|pair| pair.runs[1]).sum()],
        by_repetition: pairs.iter().all(|pair| pair.by_repetition),
        verdict: Verdict::Inconclusive,
        why: String::new(),
    };
    (!pairs.is_empty()).then_some((row, estimate, mean(|pair| pair.own)))
}

fn judge(grid: &Grid<'_>, found: &mut [(FleetRow, Option<Estimate>, f64)], spec: &FleetSpec) {
    let several = grid.settings.len() > 1;
    let limits = |row: &FleetRow| spec.rules.limits(&row.metric, false);
    let counts = |row: &FleetRow| row.p.is_some() && row.hosts >= MIN_HOSTS && !limits(row).report_only;
    let p: Vec<f64> = found.iter().filter(|(row, ..)| counts(row)).filter_map(|(row, ..)| row.p).collect();
    let mut adjusted = holm(&p).into_iter();
    // An arm's ratio has no ns of its own: those of all arms stand for them.
    let level = |row: &FleetRow| (row.setting.clone(), row.class.clone(), row.metric.clone());
    let times: BTreeMap<_, f64> =
        found.iter().filter(|(row, ..)| row.kind == Kind::AllArms).map(|(row, ..)| (level(row), row.base)).collect();
    for (row, estimate, own) in found.iter_mut() {
        let limits = limits(row);
        let ns = times.get(&level(row)).copied().unwrap_or(0.0);
        if limits.report_only {
            row.verdict = Verdict::NotJudged;
            continue;
        }
        let Some(estimate) = estimate.filter(|_| row.hosts >= MIN_HOSTS) else {
            let hosts = plural(row.hosts, "host");
            row.why = format!("{hosts} on both sides: a verdict takes {MIN_HOSTS}");
            continue;
        };
        let p_adjusted = adjusted.next().unwrap_or(1.0);
        row.p_adjusted = Some(p_adjusted);
        row.verdict = limits.verdict(&estimate, p_adjusted, ns);
        if row.verdict == Verdict::Inconclusive {
            // The interval must separate the change from nothing, or from the bound.
            let bound = limits.at_level(ns).bound;
            let room = estimate.value.abs().max((bound.ln_1p() - estimate.value).abs());
            row.why = enough(row, estimate, *own, room);
        }
    }
    if !several {
        return;
    }
    found.sort_by(|(a, ..), (b, ..)| a.setting.cmp(&b.setting).then(a.class.cmp(&b.class)));
}

/// Says how many more hosts or repetitions would resolve `room`.
fn enough(row: &FleetRow, estimate: Estimate, own: f64, room: f64) -> String {
    let n = row.hosts as f64;
    let variance = estimate.error.powi(2) * n;
    let Some(more) = estimate.times_as_many(&known(0.0), f64::midpoint(1.0, CONFIDENCE), room) else {
        return format!("too noisy over {}: no number of hosts that is in reach would do", plural(row.hosts, "host"));
    };
    let wanted = (more * n).ceil().max(n + 1.0);
    let hosts = format!("about {wanted:.0} hosts would do");
    // Differences of hosts beyond their runs stay, however many runs there are.
    let beyond = (variance - own).max(0.0);
    let allowed = variance / more;
    if own <= 0.0 || allowed <= beyond {
        return format!(
            "too noisy over {}: {hosts}; hosts differ, so more runs of the same would not",
            plural(row.hosts, "host")
        );
    }
    let times = (own / (allowed - beyond)).ceil().max(2.0);
    format!("too noisy over {}: {hosts}, or {times:.0} times the repetitions", plural(row.hosts, "host"))
}

/// Facts of hosts that differ between the sides: of the last run of each.
fn unlike(grid: &Grid<'_>, base: usize) -> Vec<String> {
    let mut last: BTreeMap<usize, [Option<usize>; 2]> = BTreeMap::new();
    for (run, meta) in grid.meta.iter().enumerate() {
        last.entry(meta.host).or_default()[usize::from(run >= base)] = Some(run);
    }
    let mut found: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for sides in last.values() {
        let [Some(old), Some(new)] = sides else { continue };
        let (old, new) = (&grid.runs[*old].facts, &grid.runs[*new].facts);
        for (fact, value) in new.iter() {
            let before = old.get(fact).map_or("unknown", String::as_str);
            if before != value {
                *found.entry((fact.clone(), before.to_owned(), value.clone())).or_default() += 1;
            }
        }
    }
    let line = |((fact, old, new), hosts): ((String, String, String), usize)| {
        format!("{fact}: {old} / {new} on {}", plural(hosts, "host"))
    };
    found.into_iter().map(line).collect()
}

/// Runs of one variant and of another.
pub fn by_variant(runs: &[Run], base: &str, new: &str) -> (Vec<Run>, Vec<Run>) {
    let of = |name: &str| runs.iter().filter(|run| run.labels.variant.as_deref() == Some(name)).cloned().collect();
    (of(base), of(new))
}

/// Runs with one value of a fact and with another, such as two kernels.
pub fn by_fact(runs: &[Run], fact: &str, base: &str, new: &str) -> (Vec<Run>, Vec<Run>) {
    let of =
        |value: &str| runs.iter().filter(|run| run.facts.get(fact).is_some_and(|own| own == value)).cloned().collect();
    (of(base), of(new))
}

const HEADER: [&str; 7] = ["arm", "metric", "BASE", "NEW", "change", "p (adj.)", "verdict"];
/// Most hosts that are named in a line.
const NAMED: usize = 20;

fn cells(row: &FleetRow) -> [String; 7] {
    [
        row.arm.clone(),
        row.metric.clone(),
        value(row.kind, row.base),
        value(row.kind, row.new),
        change(row.change, row.interval),
        row.p_adjusted.or(row.p).map_or_else(dash, p),
        row.verdict.word().to_owned(),
    ]
}

fn named(hosts: &[String]) -> String {
    let more = hosts.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    hosts.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ") + &more
}

impl FleetComparison {
    /// Rows of one setting and class, with their heading.
    fn groups(&self) -> Vec<(String, Vec<&FleetRow>)> {
        let mut groups: Vec<(String, Vec<&FleetRow>)> = Vec::new();
        for row in &self.rows {
            let pairs = if row.by_repetition { "paired by repetition" } else { "each host with itself" };
            let [base, new] = row.runs;
            let hosts = plural(row.hosts, "host");
            let heading = format!(
                "{}, {}: {hosts}, {base} and {new} runs, {pairs}; means over hosts, 95 % intervals",
                row.setting, row.class
            );
            match groups.iter_mut().find(|(own, _)| *own == heading) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((heading, vec![row])),
            }
        }
        groups
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        // Rows that are open for one reason have one line.
        let mut open: Vec<(String, Vec<String>)> = Vec::new();
        for row in self.rows.iter().filter(|row| !row.why.is_empty()) {
            let (why, name) = (format!("{}: {}", row.verdict.word(), row.why), format!("{}, {}", row.arm, row.metric));
            match open.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(name),
                None => open.push((why, vec![name])),
            }
        }
        for (why, names) in open {
            let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
            lines.push(format!("{}{more}: {why}", names[0]));
        }
        for (side, hosts) in [("BASE", &self.only_base), ("NEW", &self.only_new)] {
            if !hosts.is_empty() {
                lines.push(format!("only in {side}, left out: {}", named(hosts)));
            }
        }
        lines.extend(self.unlike.iter().map(|line| format!("unlike: {line}")));
        lines.extend(self.notes.iter().map(|line| format!("note: {line}")));
        lines
    }

    /// Returns the comparison as a report: slower rows fail, open ones are skipped with their reason.
    pub fn report(&self) -> Report {
        let mut report = Report::new("vpmu fleet compare");
        report.verdict = Some((self.exit(), self.verdict.clone()));
        let case = |row: &&FleetRow| {
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            Case {
                name: format!("{} {}", row.arm, row.metric),
                class: format!("vpmu.fleet.{}", row.arm),
                verdict: row.verdict,
                message: format!("{} {}{why}", row.verdict.word(), change(row.change, row.interval)),
            }
        };
        for (heading, rows) in self.groups() {
            let mut table = Table::new(HEADER).caption(heading.clone()).keys(2).left(6);
            for row in &rows {
                table.add_row(cells(row));
            }
            report.table(table);
            report.suite(heading, rows.iter().map(case).collect());
        }
        report.notes(self.remarks());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Change, Fleet, runs};

    fn small() -> Fleet {
        let change = Some(Change { day: 6, by: 0.05, roll_out: 3, kernel: true });
        Fleet { hosts: 30, days: 16, classes: 1, slow_share: 0.1, change, ..Fleet::default() }
    }

    #[test]
    fn a_kernel_that_is_slower_is_a_regression_of_times_and_not_of_ratios() {
        let (old, new) = by_fact(&runs(&small()), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
        let found = compare(&old, &new, &FleetSpec::default()).unwrap();
        assert_eq!((found.exit, found.hosts), (1, 30), "{}", found.verdict);
        for row in &found.rows {
            let wanted = if row.kind == Kind::AllArms { Verdict::Slower } else { Verdict::NoChange };
            assert_eq!(row.verdict, wanted, "{row:?}");
            let interval = row.interval.unwrap();
            let truth = if row.kind == Kind::AllArms { 0.05 } else { 0.0 };
            assert!(interval.low - 0.003 < truth && truth < interval.high + 0.003, "{row:?}");
            assert!(!row.by_repetition);
        }
        assert!(found.unlike.iter().any(|line| line.contains("kernel: 6.1.0-31-amd64 / 6.1.0-32-amd64 on 30 hosts")));
        assert!(found.notes.iter().any(|note| note.contains("different times")));
    }

    /// Each run twice, as two variants one after the other; the second is slower in one arm.
    fn variants(fleet: &Fleet, slower: f64) -> Vec<Run> {
        let mut all = Vec::new();
        for run in runs(fleet) {
            for (name, by) in [("a", 0.0), ("b", slower)] {
                let mut run = run.clone();
                run.labels.variant = Some(name.to_owned());
                for figure in run.figures.iter_mut().filter(|figure| &*figure.arm == "reuse") {
                    figure.time.log += by;
                    figure.ratio.as_mut().unwrap().log += by + 0.001 * (run.started_unix % 7) as f64 * by.signum();
                }
                all.push(run);
            }
        }
        all
    }

    #[test]
    fn variants_of_a_campaign_are_paired_by_repetition() {
        let all = variants(&small(), 0.06);
        let (a, b) = by_variant(&all, "a", "b");
        let found = compare(&a, &b, &FleetSpec::default()).unwrap();
        let slower: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Slower).collect();
        assert!(slower.iter().all(|row| row.arm == "reuse" && row.by_repetition) && slower.len() == 3, "{slower:?}");
        assert_eq!(found.exit, 1);
        let same = compare(&a, &a, &FleetSpec::default()).unwrap();
        assert!(same.rows.iter().all(|row| row.verdict == Verdict::NoChange), "{}", same.verdict);
    }

    #[test]
    fn a_host_on_one_side_is_named_and_left_out() {
        let all = variants(&small(), 0.0);
        let (a, mut b) = by_variant(&all, "a", "b");
        b.retain(|run| &*run.host != "node0003");
        let found = compare(&a, &b, &FleetSpec::default()).unwrap();
        assert_eq!((found.only_base, found.hosts), (vec!["node0003".to_owned()], 29));
        assert!(found.rows.iter().all(|row| row.hosts == 29));
    }

    #[test]
    fn few_hosts_and_much_noise_are_inconclusive_with_what_would_do() {
        let (old, new) = by_fact(&runs(&Fleet { hosts: 4, ..small() }), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
        let found = compare(&old, &new, &FleetSpec::default()).unwrap();
        let why = "inconclusive: no verdict from 4 hosts (it takes 5); for one host: vpmu ab";
        assert!(found.exit == 3 && found.verdict.starts_with(why), "{}", found.verdict);
        assert_eq!(too_few(MIN_HOSTS), None);
        assert!(
            found.rows.iter().all(|row| row.why == "4 hosts on both sides: a verdict takes 5"),
            "{:?}",
            found.rows[0]
        );
        let noisy = Fleet { hosts: 6, between_runs: 0.2, between_boots: 0.1, ..small() };
        let (old, new) = by_fact(&runs(&noisy), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
        let found = compare(&old, &new, &FleetSpec::default()).unwrap();
        let why: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive).collect();
        assert!(!why.is_empty() && why.iter().all(|row| row.why.contains("hosts would do")), "{why:?}");
    }

    #[test]
    fn nothing_in_common_is_refused() {
        let all = runs(&small());
        let (a, b): (Vec<Run>, Vec<Run>) = all.into_iter().partition(|run| &*run.host < "node0010");
        let error = compare(&a, &b, &FleetSpec::default()).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("no host has runs on both sides"), "{error}");
    }

    #[test]
    fn every_format_has_the_verdicts() {
        let (old, new) = by_fact(&runs(&small()), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
        let found = compare(&old, &new, &FleetSpec::default()).unwrap();
        let text = found.report().text(80);
        assert!(text.contains("SLOWER") && text.contains("regression:"), "{text}");
        assert!(
            found.report().markdown().starts_with("### ❌ vpmu fleet compare: regression"),
            "{}",
            found.report().markdown()
        );
        assert!(found.report().junit().contains("<failure message=\"SLOWER +"));
        assert!(serde_json::to_string(&found).unwrap().contains("\"verdict\":\"no-change\""));
    }

    #[test]
    fn an_arm_that_is_whole_on_one_side_only_leaves_the_verdict_open() {
        let all = variants(&small(), 0.0);
        let (a, mut b) = by_variant(&all, "a", "b");
        for figure in b.iter_mut().flat_map(|run| &mut run.figures).filter(|figure| &*figure.arm == "reuse") {
            figure.doubt = Some("7 events were throttled".into());
            figure.time.log += 1.0;
        }
        let found = compare(&a, &b, &FleetSpec::default()).unwrap();
        assert_eq!(found.exit, 3, "{}", found.verdict);
        assert!(found.notes.iter().any(|note| note.contains("reuse nmi_handler_ns")), "{:?}", found.notes);
        assert!(found.rows.iter().all(|row| row.arm != "reuse" && row.change.abs() < 0.01), "{:?}", found.rows);
    }
}
