//! Two sides of a fleet: each host that has runs on both is one block, with one log ratio, and a figure's change is the mean over
//! hosts.

use std::collections::{BTreeMap, BTreeSet};

use results::compare::Rules;
use results::error::{Error, Exit};
use results::junit::Case;
use results::stats::interval::{CONFIDENCE, Interval};
use results::stats::jackknife::{Estimate, known};
use results::stats::{holm, trimmed};
use results::table::layout::{change, dash, p, plural};
use results::table::{Report, Table};
use results::verdict::{Tally, Verdict};
use serde::Serialize;

use crate::hosts::{MIN_HOSTS, exp_m1};
use crate::run::{Figure, Run};
use crate::series::{Grid, Kind, Series};
use crate::show::{shortened, value};

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

/// Says that so many hosts give no verdict, and what does; `None` if they do.
pub fn too_few(hosts: usize) -> Option<String> {
    let text = format!("no verdict from {} (it takes {MIN_HOSTS}); for one host: vpmu ab", plural(hosts, "host"));
    (hosts < MIN_HOSTS).then_some(text)
}

/// Compares the hosts of `new` with themselves in `base`.
///
/// # Errors
/// Exit 2: no host has comparable runs on both sides.
pub fn compare(base: &[Run], new: &[Run], rules: &Rules) -> Result<FleetComparison, Error> {
    let variants = |runs: &[Run]| runs.iter().map(|run| run.labels.variant.clone()).collect::<BTreeSet<_>>();
    let mut all: Vec<Run> = base.iter().chain(new).cloned().collect();
    // One variant against another.
    if variants(base).len() == 1 && variants(new).len() == 1 {
        for run in &mut all {
            run.labels.variant = None;
        }
    }
    let (both_sides, lone) = whole_on(base, new);
    for run in &mut all {
        let Run { key, figures, .. } = run;
        figures.retain(|figure| both_sides.contains(&place(key, figure)));
    }
    let grid = Grid::new(&all);
    let hosts = |runs: &[Run]| runs.iter().map(|run| run.host().to_owned()).collect::<BTreeSet<_>>();
    let (of_base, of_new) = (hosts(base), hosts(new));
    let both = of_base.intersection(&of_new).count();
    let mut found: Vec<(FleetRow, Option<Estimate>)> =
        grid.series.iter().filter_map(|series| row(&grid, series, base.len())).collect();
    if found.is_empty() {
        let why = if both == 0 {
            "no host has runs on both sides"
        } else {
            "no experiment with the same parameters is on both sides"
        };
        return Err(Error::usage("cannot compare BASE and NEW", why, "give campaigns of one plan, by the same hosts"));
    }
    // A metric that is not judged is in the documents.
    found.retain(|(row, _)| !rules.limits(&row.metric, false).report_only);
    judge(&mut found, rules);
    found.sort_by(|(a, _), (b, _)| a.setting.cmp(&b.setting).then(a.class.cmp(&b.class)));
    let rows: Vec<FleetRow> = found.into_iter().map(|(row, _)| row).collect();
    let doubt = (!lone.is_empty()).then(|| format!("{} on one side only", plural(lone.len(), "figure")));
    let doubt = too_few(both).or(doubt);
    let (exit, verdict) = Tally::of(rows.iter().map(|row| row.verdict)).conclude(doubt.as_deref());
    Ok(FleetComparison {
        verdict,
        exit: exit.code(),
        hosts: both,
        only_base: of_base.difference(&of_new).cloned().collect(),
        only_new: of_new.difference(&of_base).cloned().collect(),
        unlike: unlike(base, new),
        notes: notes(&grid, base.len(), &lone),
        rows,
    })
}

/// Key, arm and metric.
type Place = (String, String, String);

fn place(key: &str, figure: &Figure) -> Place {
    (key.to_owned(), figure.arm.clone(), figure.metric.clone())
}

/// Returns the figures that are whole on both sides; and, of settings that both have, the names of those that are whole on one.
///
/// An arm of one side would be part of one side's mean over arms, and an arm that is nowhere whole would vanish without a word.
fn whole_on(base: &[Run], new: &[Run]) -> (BTreeSet<Place>, Vec<String>) {
    let of = |runs: &[Run]| -> BTreeSet<Place> {
        let whole = |run: &Run| {
            let figures = run.figures.iter().filter(|figure| figure.doubt.is_none());
            figures.map(|figure| place(&run.key, figure)).collect::<Vec<_>>()
        };
        runs.iter().flat_map(whole).collect()
    };
    let keys = |runs: &[Run]| runs.iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>();
    let shared: BTreeSet<String> = keys(base).intersection(&keys(new)).cloned().collect();
    let (of_base, of_new) = (of(base), of(new));
    let lone = of_base.symmetric_difference(&of_new).filter(|(key, ..)| shared.contains(key));
    let lone: BTreeSet<String> = lone.map(|(_, arm, metric)| format!("{arm} {metric}")).collect();
    (of_base.intersection(&of_new).cloned().collect(), lone.into_iter().collect())
}

/// Builds the row of a series, whose first `base` runs are those of BASE; `None` if no host has both sides.
fn row(grid: &Grid<'_>, series: &Series, base: usize) -> Option<(FleetRow, Option<Estimate>)> {
    let (old, new) = series.points.iter().partition(|(run, _)| *run < base);
    let (old, mut new) = (grid.by_host(&old), grid.by_host(&new));
    let sides: Vec<[Vec<f64>; 2]> = old.into_iter().filter_map(|(host, old)| Some([old, new.remove(host)?])).collect();
    let levels = |side: usize| sides.iter().filter_map(|host| trimmed::centre(&host[side])).collect::<Vec<_>>();
    let runs = |side: usize| sides.iter().map(|host| host[side].len()).sum();
    let [before, after] = [levels(0), levels(1)];
    let mean = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    let logs: Vec<f64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let estimate = trimmed::over_blocks(&logs);
    let row = FleetRow {
        setting: grid.settings[series.setting].label.clone(),
        class: grid.classes[series.class].clone(),
        kind: series.kind,
        arm: series.arm.clone(),
        metric: series.metric.clone(),
        base: mean(&before).exp(),
        new: mean(&after).exp(),
        change: mean(&logs).exp_m1(),
        interval: estimate.map(|estimate| exp_m1(estimate.interval())),
        p: estimate.map(|estimate| estimate.p()),
        p_adjusted: None,
        hosts: sides.len(),
        runs: [runs(0), runs(1)],
        verdict: Verdict::Inconclusive,
        why: String::new(),
    };
    (!sides.is_empty()).then_some((row, estimate))
}

fn judge(found: &mut [(FleetRow, Option<Estimate>)], rules: &Rules) {
    let limits = |row: &FleetRow| rules.limits(&row.metric, false);
    let p: Vec<f64> = found.iter().filter(|(row, _)| row.hosts >= MIN_HOSTS).filter_map(|(row, _)| row.p).collect();
    let mut adjusted = holm(&p).into_iter();
    for (row, estimate) in found.iter_mut() {
        let limits = limits(row);
        let hosts = plural(row.hosts, "host");
        let Some(estimate) = estimate.filter(|_| row.hosts >= MIN_HOSTS) else {
            row.why = format!("{hosts} on both sides: a verdict takes {MIN_HOSTS}");
            continue;
        };
        let p_adjusted = adjusted.next().unwrap_or(1.0);
        row.p_adjusted = Some(p_adjusted);
        row.verdict = limits.verdict(&estimate, p_adjusted);
        if row.verdict == Verdict::Inconclusive {
            // The interval must separate the change from nothing, or from the bound.
            let bound = limits.bound;
            let room = estimate.value.abs().max((bound.ln_1p() - estimate.value).abs());
            let times = estimate.times_as_many(&known(0.0), f64::midpoint(1.0, CONFIDENCE), room);
            let enough = times.map_or("no number of hosts that is in reach would do".to_owned(), |times| {
                let n = row.hosts as f64;
                format!("about {:.0} hosts would do", (times * n).ceil().max(n + 1.0))
            });
            row.why = format!("too noisy over {hosts}: {enough}");
        }
    }
}

fn notes(grid: &Grid<'_>, base: usize, lone: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let keys = |runs: &[Run]| runs.iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>();
    let alone = keys(&grid.runs[..base]).symmetric_difference(&keys(&grid.runs[base..])).count();
    if alone > 0 {
        notes.push(format!("{} on one side only, left out", plural(alone, "setting")));
    }
    let simulated = grid.classes.iter().filter(|class| class.starts_with("simulated"));
    notes.extend(simulated.map(|class| format!("{class}: no measurement")));
    if grid.settings.iter().any(|setting| setting.stand_in) {
        notes.push("a stand-in for hardware events: not a host with a PMU".to_owned());
    }
    if !lone.is_empty() {
        let figures = plural(lone.len(), "figure");
        notes.push(format!("{figures} whole on one side only, not compared: {}", lone.join(", ")));
    }
    notes
}

/// Lists the facts that differ between the last runs of each host before and after, with the number of hosts.
pub(crate) fn unlike<'a>(
    before: impl IntoIterator<Item = &'a Run>,
    after: impl IntoIterator<Item = &'a Run>,
) -> Vec<String> {
    let before: BTreeMap<&str, &Run> = before.into_iter().map(|run| (run.host(), run)).collect();
    let after: BTreeMap<&str, &Run> = after.into_iter().map(|run| (run.host(), run)).collect();
    let mut found: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for (host, new) in after {
        let Some(old) = before.get(host) else { continue };
        for (fact, value) in &new.facts {
            let before = old.facts.get(fact).map_or("unknown", String::as_str);
            if before != value {
                *found.entry((fact, before, value)).or_default() += 1;
            }
        }
    }
    let line = |((fact, old, new), hosts)| format!("{fact}: {old} / {new} on {}", plural(hosts, "host"));
    found.into_iter().map(line).collect()
}

const HEADER: [&str; 7] = ["arm", "metric", "BASE", "NEW", "change", "p (adj.)", "verdict"];

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

impl FleetComparison {
    /// Returns the exit code, as of `compare`: 1 slower, 3 open, 0 neither.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }

    /// Rows of one setting and class, with their heading.
    fn groups(&self) -> Vec<(String, Vec<&FleetRow>)> {
        let mut groups: Vec<(String, Vec<&FleetRow>)> = Vec::new();
        for row in &self.rows {
            let [base, new] = row.runs;
            let hosts = plural(row.hosts, "host");
            let heading = format!(
                "{}, {}: {hosts}, {base} and {new} runs, each host with itself; means over hosts, 95 % intervals",
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
                lines.push(format!("only in {side}, left out: {}", shortened(hosts, 20)));
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
    use crate::synthetic::{Fleet, name};

    /// Runs before a slower kernel and with it.
    fn kernels(fleet: &Fleet) -> (Vec<Run>, Vec<Run>) {
        let runs = Fleet { kernel: Some(8), ..fleet.clone() }.runs();
        runs.into_iter().partition(|run| run.facts["kernel"] == "6.1.0-31")
    }

    fn compared(base: &[Run], new: &[Run]) -> FleetComparison {
        compare(base, new, &Rules::default()).unwrap()
    }

    #[test]
    fn a_kernel_that_is_slower_is_a_regression_of_times_and_not_of_ratios() {
        let (old, new) = kernels(&Fleet::default());
        let found = compared(&old, &new);
        assert_eq!((found.exit, found.hosts), (1, 40), "{}", found.verdict);
        for row in &found.rows {
            let times = row.kind == Kind::AllArms;
            assert_eq!(row.verdict, if times { Verdict::Slower } else { Verdict::NoChange }, "{row:?}");
            let (interval, truth) = (row.interval.unwrap(), if times { 0.05_f64.exp_m1() } else { 0.0 });
            assert!(interval.low - 0.003 < truth && truth < interval.high + 0.003, "{row:?}");
        }
        assert_eq!(found.unlike, ["kernel: 6.1.0-31 / 6.1.0-32 on 40 hosts"]);
        let text = found.report().text(80);
        assert!(text.contains("SLOWER") && text.contains("regression:"), "{text}");
        let same = compared(&old, &old);
        assert!(same.rows.iter().all(|row| row.verdict == Verdict::NoChange), "{}", same.verdict);
    }

    #[test]
    fn a_variant_that_is_slower_in_one_arm_is_a_regression_of_that_arm_alone() {
        let of_variant = |name: &str, by: f64| -> Vec<Run> {
            let mut runs = Fleet::default().runs();
            for run in &mut runs {
                run.labels.variant = Some(name.to_owned());
                for figure in run.figures.iter_mut().filter(|figure| figure.arm == "reuse") {
                    let by = by * (1.0 + (run.started_unix % 7) as f64 / 50.0);
                    figure.time += by;
                    *figure.ratio.as_mut().unwrap() += by;
                }
            }
            runs
        };
        let found = compared(&of_variant("a", 0.0), &of_variant("b", 0.06));
        let slower: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Slower).collect();
        assert!(slower.len() == 1 && slower.iter().all(|row| row.arm == "reuse"), "{slower:?}");
    }

    #[test]
    fn a_host_on_one_side_is_named_and_left_out() {
        let (old, mut new) = kernels(&Fleet::default());
        new.retain(|run| run.host != name(3));
        let found = compared(&old, &new);
        assert_eq!((&found.only_base[..], found.hosts), (&[name(3)][..], 39));
        assert!(found.rows.iter().all(|row| row.hosts == 39));
        new.retain(|run| run.host.is_empty());
        let error = compare(&old, &new, &Rules::default()).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("no host has runs on both sides"), "{error}");
    }

    #[test]
    fn few_hosts_and_much_noise_are_inconclusive_with_what_would_do() {
        let (old, new) = kernels(&Fleet { hosts: 4, ..Fleet::default() });
        let found = compared(&old, &new);
        let why = "inconclusive: no verdict from 4 hosts (it takes 5); for one host: vpmu ab";
        assert!(found.exit == 3 && found.verdict.starts_with(why), "{}", found.verdict);
        assert!(found.rows.iter().all(|row| row.why == "4 hosts on both sides: a verdict takes 5"), "{found:?}");
        let (old, new) = kernels(&Fleet { hosts: 6, between_runs: 0.2, ..Fleet::default() });
        let found = compared(&old, &new);
        let open: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive).collect();
        assert!(!open.is_empty() && open.iter().all(|row| row.why.contains("hosts would do")), "{open:?}");
    }

    #[test]
    fn an_arm_that_is_whole_on_one_side_only_leaves_the_verdict_open() {
        let old = Fleet::default().runs();
        let mut new = old.clone();
        for figure in new.iter_mut().flat_map(|run| &mut run.figures).filter(|figure| figure.arm == "reuse") {
            figure.doubt = Some("7 events were throttled".into());
            figure.time += 1.0;
        }
        let found = compared(&old, &new);
        assert_eq!(found.exit, 3, "{}", found.verdict);
        assert!(found.notes.iter().any(|note| note.contains("reuse nmi_handler_ns")), "{:?}", found.notes);
        assert!(found.rows.iter().all(|row| row.arm != "reuse" && row.change.abs() < 0.01), "{:?}", found.rows);
    }
}
