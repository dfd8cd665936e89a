//! Hosts of a fleet: the level of each against its class, hosts that stand apart, and figures over hosts.

use std::collections::BTreeMap;

use results::error::Exit;
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;
use results::stats::{median, trimmed};
use results::table::layout::plural;
use results::verdict::{Tally, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use crate::run::Run;
use crate::series::{Grid, Question, Series, block, caveats, mean, scale};

/// Fewest hosts of a class in which one can stand apart, and fewest of a verdict on a comparison by hosts.
pub const MIN_HOSTS: usize = 5;
/// Least difference from its class of a host that stands apart.
pub(crate) const APART: f64 = 0.03;
/// Share of the hosts that stand apart that may do so by chance.
pub(crate) const BY_CHANCE: f64 = 0.01;

/// The level of a host: its judged times over all arms, metrics and settings.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostRow {
    /// The host.
    pub host: String,
    /// Host class.
    pub class: String,
    /// Number of its runs.
    pub runs: usize,
    /// Difference from the median of the class's hosts: 0.03 for 3 % slower.
    pub level: f64,
    /// Its 95 % interval, by t over the host's runs; `None` of one run.
    pub interval: Option<Interval>,
    /// The difference in standard deviations: of the class's hosts, by the median absolute deviation, and of the host's own level.
    /// `None` where both are 0.
    pub z: Option<f64>,
    /// It stands apart.
    pub apart: bool,
}

/// A figure of a class over its hosts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LevelRow {
    /// The class, setting, metric and arm that the row shows.
    #[serde(flatten)]
    pub question: Question,
    /// Mean over hosts: ns, or a ratio.
    pub level: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Hosts.
    pub hosts: usize,
    /// Number of its runs.
    pub runs: usize,
}

/// Statistics of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// The verdict in a sentence.
    pub verdict: String,
    /// The exit code.
    pub exit: u8,
    /// The hosts: those that stand apart first, then by class and name.
    pub hosts: Vec<HostRow>,
    /// Figures over hosts.
    pub levels: Vec<LevelRow>,
    /// Figures that are not whole and were left out, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// Questions without an answer, and why.
    pub notes: Vec<String>,
}

impl Analysis {
    /// Returns the exit code: 1 if a host is slower than its class, 3 if nothing could be judged.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }
}

/// Judges the hosts of these runs.
pub fn analyse(runs: &[Run]) -> Analysis {
    let grid = Grid::new(runs);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for doubt in runs.iter().flat_map(|run| &run.figures).filter_map(|figure| figure.doubt.as_deref()) {
        *left_out.entry(doubt.to_owned()).or_default() += 1;
    }
    let mut notes = caveats(runs);
    let (mut hosts, mut verdicts) = (Vec::new(), Vec::new());
    for class in grid.classes() {
        // Hosts whose figures are not whole have no level.
        let rows = of_class(&grid, class);
        if rows.len() < MIN_HOSTS {
            let count = plural(rows.len(), "host");
            let alone = if rows.len() == 1 { ", an interval over hosts 2" } else { "" };
            notes.push(format!("{class}: {count}: which of them stands apart takes {MIN_HOSTS}{alone}"));
        } else {
            verdicts.extend(rows.iter().map(HostRow::verdict));
        }
        hosts.extend(rows);
    }
    hosts.sort_by_key(|host| !host.apart);
    let nameless = runs.iter().filter(|run| run.labels.host.is_none() && run.host.is_empty()).count();
    if nameless > 0 {
        let runs = plural(nameless, "document");
        notes.push(format!("{runs} without a host's name are taken for one host of each class"));
    }
    let doubt = verdicts.is_empty().then(|| format!("no class has {MIN_HOSTS} hosts"));
    let (exit, verdict) = Tally::of(verdicts).conclude(doubt.as_deref());
    Analysis { verdict, exit: exit.code(), levels: levels(&grid), hosts, left_out, notes }
}

impl HostRow {
    /// Returns the verdict on the host.
    pub fn verdict(&self) -> Verdict {
        match (self.apart, self.level > 0.0) {
            (true, true) => Verdict::Slower,
            (true, false) => Verdict::Faster,
            (false, _) => Verdict::NoChange,
        }
    }
}

/// Returns the hosts of a class by name, each against all of them.
fn of_class(grid: &Grid<'_>, class: &str) -> Vec<HostRow> {
    let hosts = grid.by_host(&grid.speed(class));
    let levels: Vec<f64> = hosts.values().filter_map(|logs| median(logs)).collect();
    let (Some(middle), Some(scale)) = (median(&levels), scale(&levels)) else { return Vec::new() };
    let row = |(host, logs): (&&str, &Vec<f64>), level: &f64| {
        let own = block(logs).map(|own| Estimate { value: own.value - middle, ..own });
        // A host of few runs may be off by chance, however much the hosts with many agree.
        let error = scale.hypot(own.map_or(0.0, |own| own.error));
        let off = Estimate { value: level - middle, error, freedom: levels.len() as f64 - 1.0 };
        let row = HostRow {
            host: (*host).to_owned(),
            class: class.to_owned(),
            runs: logs.len(),
            level: off.value.exp_m1(),
            interval: own.map(|own| own.interval().map(f64::exp_m1)),
            z: (error > 0.0).then(|| off.value / error),
            apart: false,
        };
        (row, off.p())
    };
    let (mut rows, p): (Vec<HostRow>, Vec<f64>) =
        hosts.iter().zip(&levels).map(|(host, level)| row(host, level)).unzip();
    for (row, p) in rows.iter_mut().zip(benjamini_hochberg(&p)) {
        row.apart = levels.len() >= MIN_HOSTS && p < BY_CHANCE && row.level.abs() >= APART;
    }
    rows
}

fn levels(grid: &Grid<'_>) -> Vec<LevelRow> {
    let row = |Series { question, points }: &Series| {
        let levels: Vec<f64> = grid.by_host(points).values().filter_map(|logs| trimmed::centre(logs)).collect();
        LevelRow {
            question: question.clone(),
            level: mean(&levels).exp(),
            interval: trimmed::over_blocks(&levels).map(|mean| mean.interval().map(f64::exp)),
            hosts: levels.len(),
            runs: points.len(),
        }
    };
    grid.series.iter().map(row).collect()
}

/// Adjusts p values by Benjamini and Hochberg: of those below a level, that share at most is expected to be chance.
fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut adjusted = vec![1.0; p.len()];
    let mut most = 1.0_f64;
    for (after, &index) in order.iter().enumerate() {
        most = most.min(p[index] * p.len() as f64 / (p.len() - after) as f64);
        adjusted[index] = most;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Fleet, name};

    fn apart(analysis: &Analysis) -> Vec<&str> {
        analysis.hosts.iter().filter(|host| host.apart).map(|host| host.host.as_str()).collect()
    }

    #[test]
    fn slow_hosts_are_named_and_no_others() {
        let analysis = analyse(&Fleet { slow: 2, ..Fleet::default() }.runs());
        assert_eq!(apart(&analysis), [name(0), name(1)]);
        for host in &analysis.hosts[..2] {
            let interval = host.interval.unwrap();
            assert!(interval.low < 0.08 && interval.high > 0.06 && host.z.unwrap() > 4.0, "{host:?}");
        }
        assert_eq!((analysis.exit, analysis.hosts.len()), (1, 40));
    }

    #[test]
    fn equal_hosts_are_not_accused_however_few_they_are() {
        let mut accused = 0;
        for (hosts, seed) in [4, 5, 8, 20, 40].into_iter().flat_map(|hosts| (1..=40).map(move |seed| (hosts, seed))) {
            let analysis = analyse(&Fleet { hosts, between_hosts: 0.01, seed, ..Fleet::default() }.runs());
            accused += apart(&analysis).len();
            assert!(hosts >= MIN_HOSTS || analysis.exit == 3, "{analysis:?}");
        }
        assert!(accused <= 2, "{accused} hosts of 200 fleets");
    }

    #[test]
    fn what_says_nothing_about_a_host_does_not_accuse_it() {
        let add = |run: &mut Run, by: f64| run.figures.iter_mut().for_each(|figure| figure.time += by);
        // One disturbed run of three.
        let mut runs = Fleet::default().runs();
        runs.retain(|run| run.host != name(3) || run.labels.repetition < Some(3));
        add(runs.iter_mut().find(|run| run.host == name(3)).unwrap(), 0.3);
        assert!(apart(&analyse(&runs)).is_empty());
        // Another class.
        let mut runs = Fleet { classes: 2, ..Fleet::default() }.runs();
        let first = runs[0].class().to_owned();
        runs.iter_mut().filter(|run| run.class() != first).for_each(|run| add(run, 0.1));
        let analysis = analyse(&runs);
        assert_eq!(analysis.hosts.iter().filter(|host| host.class == first).count(), 20);
        assert!(apart(&analysis).is_empty());
        // Figures that are not whole, which are counted.
        let mut runs = Fleet::default().runs();
        add(&mut runs[3], 9.0);
        runs[3].figures.iter_mut().for_each(|figure| figure.doubt = Some("NMIs were lost".into()));
        let analysis = analyse(&runs);
        assert_eq!(analysis.left_out["NMIs were lost"], runs[3].figures.len());
        assert!(apart(&analysis).is_empty());
    }

    #[test]
    fn one_host_has_no_interval_over_hosts_and_no_verdict() {
        let analysis = analyse(&Fleet { hosts: 1, ..Fleet::default() }.runs());
        assert_eq!((analysis.exit, analysis.hosts.len()), (3, 1));
        assert!(analysis.levels.iter().all(|row| row.interval.is_none()));
        assert!(analysis.notes.iter().any(|note| note.contains("takes 5")), "{:?}", analysis.notes);
        let none = analyse(&[]);
        assert_eq!((none.exit, none.hosts.len()), (3, 0));
    }
}
