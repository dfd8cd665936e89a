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
use crate::series::{Grid, Question, Series, caveats, mean};
use crate::show::{groups, shortened};

/// One figure of one class, over the hosts that both sides have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetRow {
    /// The class, setting, metric and arm that the row compares.
    #[serde(flatten)]
    pub question: Question,
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
    #[serde(skip)]
    estimate: Option<Estimate>,
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
    // One variant against another, or variants each with itself.
    let is_one = variants(base).len() == 1 && variants(new).len() == 1;
    let (of_base, of_new) = (whole(base), whole(new));
    // An arm of one side would be part of one side's mean over arms.
    let both = &of_base & &of_new;
    let kept = |run: &Run| {
        let mut kept = run.clone();
        kept.labels.variant.take_if(|_| is_one);
        kept.figures.retain(|figure| both.contains(&place(run, figure)));
        kept
    };
    let all: Vec<Run> = base.iter().chain(new).map(kept).collect();
    let grid = Grid::new(&all);
    let mut rows: Vec<FleetRow> = grid.series.iter().filter_map(|series| row(&grid, series, base.len())).collect();
    let hosts = |runs: &[Run]| runs.iter().map(|run| run.host().to_owned()).collect::<BTreeSet<_>>();
    let (hosts_of_base, hosts_of_new) = (hosts(base), hosts(new));
    let count = hosts_of_base.intersection(&hosts_of_new).count();
    if rows.is_empty() {
        let why = if count == 0 {
            "no host has runs on both sides"
        } else {
            "no experiment with the same parameters is on both sides"
        };
        return Err(Error::usage("cannot compare BASE and NEW", why, "give campaigns of one plan, by the same hosts"));
    }
    // A metric that is not judged is in the documents.
    rows.retain(|row| !rules.limits(&row.question.metric, false).report_only);
    judge(&mut rows, rules);
    let keys = |runs: &'_ [Run]| runs.iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>();
    let (keys_of_base, keys_of_new) = (keys(base), keys(new));
    // An arm that is nowhere whole would vanish without a word.
    let is_shared = |(key, ..): &(&str, &str, &str)| keys_of_base.contains(*key) && keys_of_new.contains(*key);
    let lone = (&of_base ^ &of_new).into_iter().filter(is_shared).map(|(_, arm, metric)| format!("{arm} {metric}"));
    let lone: BTreeSet<String> = lone.collect();
    let alone = (&keys_of_base ^ &keys_of_new).len();
    let mut notes = caveats(&all);
    if alone > 0 {
        notes.insert(0, format!("{} on one side only, left out", plural(alone, "setting")));
    }
    if !lone.is_empty() {
        let names = lone.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        notes.push(format!("{} whole on one side only, not compared: {names}", plural(lone.len(), "figure")));
    }
    let doubt = (!lone.is_empty()).then(|| format!("{} on one side only", plural(lone.len(), "figure")));
    let doubt = too_few(count).or(doubt);
    let (exit, verdict) = Tally::of(rows.iter().map(|row| row.verdict)).conclude(doubt.as_deref());
    Ok(FleetComparison {
        verdict,
        exit: exit.code(),
        hosts: count,
        only_base: hosts_of_base.difference(&hosts_of_new).cloned().collect(),
        only_new: hosts_of_new.difference(&hosts_of_base).cloned().collect(),
        unlike: unlike(base, new),
        notes,
        rows,
    })
}

/// Key, arm and metric of a figure.
fn place<'a>(run: &'a Run, figure: &'a Figure) -> (&'a str, &'a str, &'a str) {
    (&run.key, &figure.arm, &figure.metric)
}

/// Returns the figures that are whole in a run.
fn whole<'a>(runs: &'a [Run]) -> BTreeSet<(&'a str, &'a str, &'a str)> {
    let figures = |run: &'a Run| run.figures.iter().map(move |figure| (run, figure));
    let whole = runs.iter().flat_map(figures).filter(|(_, figure)| figure.doubt.is_none());
    whole.map(|(run, figure)| place(run, figure)).collect()
}

/// Builds the row of a series, whose first `base` runs are those of BASE; `None` if no host has both sides.
fn row(grid: &Grid<'_>, series: &Series, base: usize) -> Option<FleetRow> {
    let (old, new) = series.points.iter().partition(|(run, _)| *run < base);
    let (old, mut new) = (grid.by_host(&old), grid.by_host(&new));
    let sides: Vec<[Vec<f64>; 2]> = old.into_iter().filter_map(|(host, old)| Some([old, new.remove(host)?])).collect();
    let levels = |side: usize| sides.iter().filter_map(|host| trimmed::centre(&host[side])).collect::<Vec<_>>();
    let [before, after] = [levels(0), levels(1)];
    let logs: Vec<f64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let estimate = trimmed::over_blocks(&logs);
    (!sides.is_empty()).then(|| FleetRow {
        question: series.question.clone(),
        base: mean(&before).exp(),
        new: mean(&after).exp(),
        change: mean(&logs).exp_m1(),
        interval: estimate.map(|estimate| exp_m1(estimate.interval())),
        p: estimate.map(|estimate| estimate.p()),
        p_adjusted: None,
        hosts: sides.len(),
        runs: [0, 1].map(|side| sides.iter().map(|host| host[side].len()).sum()),
        verdict: Verdict::Inconclusive,
        why: String::new(),
        estimate,
    })
}

fn judge(rows: &mut [FleetRow], rules: &Rules) {
    let p: Vec<f64> = rows.iter().filter(|row| row.hosts >= MIN_HOSTS).filter_map(|row| row.p).collect();
    let mut adjusted = holm(&p).into_iter();
    for row in rows {
        let limits = rules.limits(&row.question.metric, false);
        let hosts = plural(row.hosts, "host");
        let Some(estimate) = row.estimate.filter(|_| row.hosts >= MIN_HOSTS) else {
            row.why = format!("{hosts} on both sides: a verdict takes {MIN_HOSTS}");
            continue;
        };
        let p_adjusted = adjusted.next().unwrap_or(1.0);
        row.p_adjusted = Some(p_adjusted);
        row.verdict = limits.verdict(&estimate, p_adjusted);
        if row.verdict == Verdict::Inconclusive {
            // The interval must separate the change from nothing, or from the bound.
            let room = estimate.value.abs().max((limits.bound.ln_1p() - estimate.value).abs());
            let times = estimate.times_as_many(&known(0.0), f64::midpoint(1.0, CONFIDENCE), room);
            let enough = times.map_or("no number of hosts that is in reach would do".to_owned(), |times| {
                let n = row.hosts as f64;
                format!("about {:.0} hosts would do", (times * n).ceil().max(n + 1.0))
            });
            row.why = format!("too noisy over {hosts}: {enough}");
        }
    }
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
        row.question.arm.clone(),
        row.question.metric.clone(),
        row.question.value(row.base),
        row.question.value(row.new),
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

    fn remarks(&self) -> Vec<String> {
        // Rows that are open for one reason have one line.
        let mut open: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for FleetRow { question, why, .. } in self.rows.iter().filter(|row| !row.why.is_empty()) {
            open.entry(why).or_default().push(format!("{}, {}", question.arm, question.metric));
        }
        let line = |(why, names): (&str, Vec<String>)| {
            let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
            format!("{}{more}: {}: {why}", names[0], Verdict::Inconclusive.word())
        };
        let mut lines: Vec<String> = open.into_iter().map(line).collect();
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
                name: format!("{} {}", row.question.arm, row.question.metric),
                class: format!("vpmu.fleet.{}", row.question.arm),
                verdict: row.verdict,
                message: format!("{} {}{why}", row.verdict.word(), change(row.change, row.interval)),
            }
        };
        let heading = |FleetRow { question, hosts, runs: [base, new], .. }: &FleetRow| {
            let (Question { setting, class, .. }, hosts) = (question, plural(*hosts, "host"));
            format!(
                "{setting}, {class}: {hosts}, {base} and {new} runs, each host with itself; means over hosts, 95 % intervals"
            )
        };
        for (heading, rows) in groups(&self.rows, heading) {
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
            let times = row.question.is_of_all_arms();
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
                let by = by * (1.0 + (run.started_unix % 7) as f64 / 50.0);
                for figure in run.figures.iter_mut().filter(|figure| figure.arm == "reuse") {
                    figure.time += by;
                    figure.ratio = figure.ratio.map(|ratio| ratio + by);
                }
            }
            runs
        };
        let found = compared(&of_variant("a", 0.0), &of_variant("b", 0.06));
        let slower: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Slower).collect();
        assert!(slower.len() == 1 && slower.iter().all(|row| row.question.arm == "reuse"), "{slower:?}");
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
        assert!(
            found.rows.iter().all(|row| row.question.arm != "reuse" && row.change.abs() < 0.01),
            "{:?}",
            found.rows
        );
    }
}
