//! Two sides of a fleet: each host that has runs on both is one block, with one log ratio, and a figure's change is the mean over
//! hosts.

use std::collections::{BTreeMap, BTreeSet};

use results::compare::{Comparison, Group, Over, Row, Side, judge};
use results::error::Error;
use results::metric;
use results::stats::trimmed;
use results::table::layout::plural;
use results::verdict::Limits;

use crate::hosts::MIN_HOSTS;
use crate::run::{Figure, Run};
use crate::series::{Grid, Series, caveats};
use crate::show::shortened;

/// Says that so many hosts give no verdict, and what does; `None` if they do.
pub fn too_few(hosts: usize) -> Option<String> {
    let text = format!("no verdict from {} (it takes {MIN_HOSTS}); for one host: vpmu ab", plural(hosts, "host"));
    (hosts < MIN_HOSTS).then_some(text)
}

/// Compares the hosts of `new` with themselves in `base`; each side has its name.
///
/// # Errors
/// Exit 2: no host has comparable runs on both sides.
pub fn compare(base: (&str, &[Run]), new: (&str, &[Run]), limits: &Limits) -> Result<Comparison, Error> {
    let (of, (base, new)) = ([side(base), side(new)], (base.1, new.1));
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
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let found = grid.series.iter().filter_map(|series| Some((series, row(&grid, series, base.len(), limits)?)));
    for (Series { question, .. }, row) in found {
        groups.entry(format!("{}, {}", question.setting, question.class)).or_default().push(row);
    }
    let hosts = |runs: &[Run]| runs.iter().map(|run| run.host().to_owned()).collect::<BTreeSet<_>>();
    let (hosts_of_base, hosts_of_new) = (hosts(base), hosts(new));
    let count = hosts_of_base.intersection(&hosts_of_new).count();
    if groups.is_empty() {
        let why = if count == 0 {
            "no host has runs on both sides"
        } else {
            "no experiment with the same parameters is on both sides"
        };
        return Err(Error::usage("cannot compare BASE and NEW", why, "give campaigns of one plan, by the same hosts"));
    }
    judge(groups.values_mut().flatten().filter(|row| row.blocks >= MIN_HOSTS), Over::Hosts);
    let keys = |runs: &'_ [Run]| runs.iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>();
    let (keys_of_base, keys_of_new) = (keys(base), keys(new));
    // An arm that is nowhere whole would vanish without a word.
    let is_shared = |(key, ..): &(&str, &str, &str)| keys_of_base.contains(*key) && keys_of_new.contains(*key);
    let lone = (&of_base ^ &of_new).into_iter().filter(is_shared).map(|(_, arm, metric)| format!("{arm} {metric}"));
    let lone: Vec<String> = lone.collect::<BTreeSet<String>>().into_iter().collect();
    let mut notes = Vec::new();
    for (which, hosts) in [("BASE", &hosts_of_base - &hosts_of_new), ("NEW", &hosts_of_new - &hosts_of_base)] {
        let hosts: Vec<String> = hosts.into_iter().collect();
        notes.extend((!hosts.is_empty()).then(|| format!("only in {which}, left out: {}", shortened(&hosts, 20))));
    }
    let alone = (&keys_of_base ^ &keys_of_new).len();
    notes.extend((alone > 0).then(|| format!("{} on one side only, left out", plural(alone, "setting"))));
    notes.extend(caveats(&all));
    let figures = (!lone.is_empty()).then(|| plural(lone.len(), "figure"));
    let names = lone.join(", ");
    notes.extend(figures.as_ref().map(|figures| format!("{figures} whole on one side only, not compared: {names}")));
    let doubt = too_few(count).or(figures.map(|figures| format!("{figures} on one side only")));
    let group = |(label, rows): (String, Vec<Row>)| {
        let most = |runs: fn(&Row) -> usize| rows.iter().map(runs).max().unwrap_or(0);
        let documents = [most(|row| row.base.runs), most(|row| row.new.runs)];
        Group { label, unit: "host", documents, reference: String::new(), rows }
    };
    let groups: Vec<Group> = groups.into_iter().map(group).collect();
    Ok(Comparison::of(of, groups, (unlike(base, new), true), notes, doubt.as_deref()))
}

fn side((source, runs): (&str, &[Run])) -> Side {
    let revisions = runs.iter().filter_map(|run| run.facts.get("revision")).cloned().collect::<BTreeSet<_>>();
    Side {
        source: source.to_owned(),
        revisions: revisions.into_iter().collect(),
        host: runs.first().map(|run| run.class().to_owned()).unwrap_or_default(),
        files: runs.iter().map(|run| run.file.clone()).collect(),
    }
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

/// Builds the row of a series, whose first `base` runs are those of BASE; `None` if no host has both sides, or the metric is not
/// judged, which is in the documents.
fn row(grid: &Grid<'_>, Series { question, points }: &Series, base: usize, limits: &Limits) -> Option<Row> {
    let (old, new) = points.iter().partition(|(run, _)| *run < base);
    let (old, mut new) = (grid.by_host(&old), grid.by_host(&new));
    let sides: Vec<[Vec<f64>; 2]> = old.into_iter().filter_map(|(host, old)| Some([old, new.remove(host)?])).collect();
    let level = |[old, new]: &[Vec<f64>; 2]| Some([trimmed::centre(old)?, trimmed::centre(new)?]);
    let logs: Vec<[f64; 2]> = sides.iter().filter_map(level).collect();
    if logs.is_empty() || !metric::is_main(&question.metric) {
        return None;
    }
    let runs = [0, 1].map(|side| sides.iter().map(|host| host[side].len()).sum());
    let mut row = Row::over_hosts((&question.arm, &question.metric), *limits, &logs, runs);
    let hosts = plural(logs.len(), "host");
    row.why = format!("{hosts} on both sides: a verdict takes {MIN_HOSTS}");
    Some(row)
}

/// Lists the facts that differ between the last runs of each host before and after, with the number of hosts.
fn unlike(before: &[Run], after: &[Run]) -> Vec<String> {
    let [before, after]: [BTreeMap<&str, &Run>; 2] =
        [before, after].map(|side| side.iter().map(|run| (run.host(), run)).collect());
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

#[cfg(test)]
mod tests {
    use results::compare::{GEOMEAN, report};
    use results::verdict::Verdict;

    use super::*;
    use crate::synthetic::{Fleet, name};

    /// Runs before a slower kernel and with it.
    fn kernels(fleet: &Fleet) -> (Vec<Run>, Vec<Run>) {
        let runs = Fleet { kernel: Some(8), ..fleet.clone() }.runs();
        runs.into_iter().partition(|run| run.facts["kernel"] == "6.1.0-31")
    }

    fn compared(base: &[Run], new: &[Run]) -> Comparison {
        compare(("old", base), ("new", new), &Limits::default()).unwrap()
    }

    #[test]
    fn a_kernel_that_is_slower_is_a_regression_of_times_and_not_of_ratios() {
        let (old, new) = kernels(&Fleet::default());
        let found = compared(&old, &new);
        assert_eq!((found.exit, found.rows().next().unwrap().blocks), (1, 40), "{}", found.verdict);
        for row in found.rows() {
            let times = row.arm == GEOMEAN;
            assert_eq!(row.verdict, if times { Verdict::Slower } else { Verdict::NoChange }, "{row:?}");
            let (interval, truth) = (row.change_interval.unwrap(), if times { 0.05_f64.exp_m1() } else { 0.0 });
            assert!(interval.low - 0.003 < truth && truth < interval.high + 0.003, "{row:?}");
        }
        assert_eq!(found.unlike, ["kernel: 6.1.0-31 / 6.1.0-32 on 40 hosts"]);
        let text = report(&found, false).text(80);
        assert!(text.contains("SLOWER") && text.contains("regression:"), "{text}");
        let same = compared(&old, &old);
        assert!(same.rows().all(|row| row.verdict == Verdict::NoChange), "{}", same.verdict);
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
        let slower: Vec<_> = found.rows().filter(|row| row.verdict == Verdict::Slower).collect();
        assert!(slower.len() == 1 && slower.iter().all(|row| row.arm == "reuse"), "{slower:?}");
    }

    #[test]
    fn a_host_on_one_side_is_named_and_left_out() {
        let (old, mut new) = kernels(&Fleet::default());
        new.retain(|run| run.host != name(3));
        let found = compared(&old, &new);
        assert_eq!(found.notes[0], format!("only in BASE, left out: {}", name(3)));
        assert!(found.rows().all(|row| row.blocks == 39));
        new.retain(|run| run.host.is_empty());
        let error = compare(("old", &old), ("new", &new), &Limits::default()).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("no host has runs on both sides"), "{error}");
    }

    #[test]
    fn few_hosts_and_much_noise_are_inconclusive_with_what_would_do() {
        let (old, new) = kernels(&Fleet { hosts: 4, ..Fleet::default() });
        let found = compared(&old, &new);
        let why = "inconclusive: no verdict from 4 hosts (it takes 5); for one host: vpmu ab";
        assert!(found.exit == 3 && found.verdict.starts_with(why), "{}", found.verdict);
        assert!(found.rows().all(|row| row.why == "4 hosts on both sides: a verdict takes 5"), "{found:?}");
        let (old, new) = kernels(&Fleet { hosts: 6, between_runs: 0.2, ..Fleet::default() });
        let found = compared(&old, &new);
        let open: Vec<_> = found.rows().filter(|row| row.verdict == Verdict::Inconclusive).collect();
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
        assert!(found.rows().all(|row| row.arm != "reuse" && row.change.unwrap().abs() < 0.01), "{found:?}");
    }
}
