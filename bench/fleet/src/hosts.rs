//! Hosts of a fleet: the level of each against its class, hosts that stand apart, and figures over hosts.

use std::collections::{BTreeMap, BTreeSet};

use results::error::Exit;
use results::stats::interval::Interval;
use results::stats::jackknife::Estimate;
use results::stats::{median, trimmed};
use results::table::layout::plural;
use results::verdict::{Tally, Verdict};
use serde::Serialize;

use crate::run::Run;
use crate::series::{Grid, Kind, Setting, block, scale};

/// Fewest hosts of a class in which one can stand apart, and fewest of a verdict on a comparison by hosts.
pub(crate) const MIN_HOSTS: usize = 5;
/// Least difference from its class of a host that stands apart.
pub(crate) const APART: f64 = 0.03;
/// Least distance of one from the middle of its class, in robust standard deviations. Those of five hosts say little: where hosts differ
/// by 1.5 %, one of five stands apart by chance in a few of a hundred classes, one of forty in a few of a thousand.
pub(crate) const FAR: f64 = 5.0;

/// A host class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Hosts.
    pub hosts: usize,
    /// Number of its runs.
    pub runs: usize,
}

/// The level of a host: its judged times over all arms, metrics and settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelRow {
    /// Setting.
    pub setting: String,
    /// Host class.
    pub class: String,
    /// Kind of the figure.
    pub kind: Kind,
    /// Arm, or "all arms".
    pub arm: String,
    /// Metric.
    pub metric: String,
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The verdict in a sentence.
    pub verdict: String,
    /// The exit code.
    pub exit: u8,
    /// Host classes, the largest first.
    pub classes: Vec<Class>,
    /// Settings that were run.
    pub settings: Vec<Setting>,
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

/// Returns the ends of an interval of a logarithm, as ratios.
pub(crate) fn exp(interval: Interval) -> Interval {
    Interval { low: interval.low.exp(), high: interval.high.exp() }
}

/// Returns the ends of an interval of a logarithm, as relative changes.
pub(crate) fn exp_m1(interval: Interval) -> Interval {
    Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() }
}

/// Judges the hosts of these runs.
pub fn analyse(runs: &[Run]) -> Analysis {
    let grid = Grid::new(runs);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for doubt in runs.iter().flat_map(|run| &run.figures).filter_map(|figure| figure.doubt.as_deref()) {
        *left_out.entry(doubt.to_owned()).or_default() += 1;
    }
    let class = |(class, name): (usize, &String)| {
        let (hosts, runs) = grid.size(class);
        Class { name: name.clone(), hosts, runs }
    };
    let classes: Vec<Class> = grid.classes.iter().enumerate().map(class).collect();
    let mut hosts: Vec<HostRow> = (0..classes.len()).flat_map(|class| of_class(&grid, class)).collect();
    hosts.sort_by_key(|host| !host.apart);
    // Hosts whose figures are not whole show nothing.
    let judged = |class: &Class| hosts.iter().filter(|host| host.class == class.name).count() >= MIN_HOSTS;
    let large: BTreeSet<&str> = classes.iter().filter(|class| judged(class)).map(|class| class.name.as_str()).collect();
    let verdict = |host: &HostRow| match (host.apart, host.level > 0.0) {
        (true, true) => Verdict::Slower,
        (true, false) => Verdict::Faster,
        (false, _) => Verdict::NoChange,
    };
    let doubt = large.is_empty().then(|| format!("no class has {MIN_HOSTS} hosts"));
    let verdicts = hosts.iter().filter(|host| large.contains(host.class.as_str())).map(verdict);
    let (exit, verdict) = Tally::of(verdicts).conclude(doubt.as_deref());
    let notes = notes(&grid, &classes);
    Analysis {
        verdict,
        exit: exit.code(),
        levels: levels(&grid),
        settings: grid.settings,
        classes,
        hosts,
        left_out,
        notes,
    }
}

/// Returns the hosts of a class by name, each against all of them.
fn of_class(grid: &Grid<'_>, class: usize) -> Vec<HostRow> {
    let hosts = grid.by_host(&grid.speed(class));
    let levels: Vec<f64> = hosts.values().filter_map(|logs| median(logs)).collect();
    let (Some(middle), Some(scale)) = (median(&levels), scale(&levels)) else { return Vec::new() };
    let row = |((host, logs), level): ((&str, &Vec<f64>), &f64)| {
        let own = block(logs).map(|own| Estimate { value: own.value - middle, ..own });
        let value = level - middle;
        // A host of few runs may be off by chance, however much the hosts with many agree.
        let error = scale.hypot(own.map_or(0.0, |own| own.error));
        HostRow {
            host: host.to_owned(),
            class: grid.classes[class].clone(),
            runs: logs.len(),
            level: value.exp_m1(),
            interval: own.map(|own| exp_m1(own.interval())),
            z: (error > 0.0).then(|| value / error),
            apart: levels.len() >= MIN_HOSTS && value.abs() >= FAR * error && value.exp_m1().abs() >= APART,
        }
    };
    hosts.iter().map(|(host, logs)| (*host, logs)).zip(&levels).map(row).collect()
}

fn levels(grid: &Grid<'_>) -> Vec<LevelRow> {
    let row = |series: &crate::series::Series| {
        let hosts = grid.by_host(&series.points);
        let levels: Vec<f64> = hosts.values().filter_map(|logs| trimmed::centre(logs)).collect();
        LevelRow {
            setting: grid.settings[series.setting].label.clone(),
            class: grid.classes[series.class].clone(),
            kind: series.kind,
            arm: series.arm.clone(),
            metric: series.metric.clone(),
            level: (levels.iter().sum::<f64>() / levels.len() as f64).exp(),
            interval: trimmed::over_blocks(&levels).map(|mean| exp(mean.interval())),
            hosts: levels.len(),
            runs: series.points.len(),
        }
    };
    grid.series.iter().map(row).collect()
}

fn notes(grid: &Grid<'_>, classes: &[Class]) -> Vec<String> {
    let mut notes = Vec::new();
    for class in classes {
        if class.hosts < MIN_HOSTS {
            let hosts = plural(class.hosts, "host");
            notes.push(format!("{}: {hosts}: which of them stands apart takes {MIN_HOSTS}", class.name));
        }
        if class.name.starts_with("simulated") {
            notes.push(format!("{}: no measurement", class.name));
        }
    }
    let nameless = grid.runs.iter().filter(|run| run.labels.host.is_none() && run.host.is_empty()).count();
    if nameless > 0 {
        let runs = plural(nameless, "document");
        notes.push(format!("{runs} without a host's name are taken for one host of each class"));
    }
    if grid.settings.iter().any(|setting| setting.stand_in) {
        notes.push("a stand-in for hardware events: compare hosts and arms, not times with those of a PMU".to_owned());
    }
    notes
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
            assert!(interval.low < 0.08 && interval.high > 0.06 && host.z.unwrap() > FAR, "{host:?}");
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
    fn a_host_with_one_disturbed_run_is_not_accused() {
        let mut runs = Fleet::default().runs();
        runs.retain(|run| run.host != name(3) || run.labels.repetition < Some(3));
        let disturbed = runs.iter_mut().find(|run| run.host == name(3)).unwrap();
        disturbed.figures.iter_mut().for_each(|figure| figure.time += 0.3);
        assert!(apart(&analyse(&runs)).is_empty());
    }

    #[test]
    fn classes_are_kept_apart() {
        let mut runs = Fleet { classes: 2, ..Fleet::default() }.runs();
        let first = runs[0].class().to_owned();
        for run in runs.iter_mut().filter(|run| run.class() != first) {
            run.figures.iter_mut().for_each(|figure| figure.time += 0.1);
        }
        let analysis = analyse(&runs);
        assert_eq!(analysis.classes.iter().map(|class| class.hosts).collect::<Vec<_>>(), [20, 20]);
        assert!(apart(&analysis).is_empty());
    }

    #[test]
    fn figures_that_are_not_whole_are_left_out_and_counted() {
        let mut runs = Fleet::default().runs();
        for figure in &mut runs[3].figures {
            figure.doubt = Some("NMIs were lost".into());
            figure.time += 9.0;
        }
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
