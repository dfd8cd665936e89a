//! Everything that is said of a fleet.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

use super::changes::{self, Change};
use super::components::{Components, components};
use super::event;
use super::fit::{MIN_SHARED, fit};
use super::grid::{Grid, Setting};
use super::heat::{self, Heat};
use super::levels::{self, LevelRow};
use super::odd::{self, Judged, MIN_CLASS, OddHost};
use super::periods::{self, Clock};
use super::spec::FleetSpec;
use crate::run::Run;
use results::error::Exit;
use results::stats::change_points::MIN_VALUES;
use results::stats::interval::Interval;
use results::table::layout::plural;
use results::verdict::{Tally, Verdict};

/// A host class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Hosts.
    pub hosts: usize,
    /// Runs.
    pub runs: usize,
    /// It is simulated.
    pub simulated: bool,
}

/// The speed of a class in one period: history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeriodRow {
    /// The period.
    pub period: String,
    /// Host class.
    pub class: String,
    /// Mean difference of its hosts from their own middle over all periods, 0.03 for 3 % slower.
    pub change: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Hosts.
    pub hosts: usize,
}

/// Statistics of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Request that it answers.
    pub spec: FleetSpec,
    /// The verdict in a sentence.
    pub verdict: String,
    /// The exit code.
    pub exit: u8,
    /// Hosts.
    pub hosts: usize,
    /// Boots.
    pub boots: usize,
    /// Runs.
    pub runs: usize,
    /// Periods in order, and whether they are repetitions or days.
    pub periods: Vec<String>,
    /// Repetitions or days.
    pub by_repetition: bool,
    /// Host classes, the largest first.
    pub classes: Vec<Class>,
    /// Settings that were run.
    pub settings: Vec<Setting>,
    /// Odd hosts.
    pub odd: Vec<OddHost>,
    /// Changes over time.
    pub changes: Vec<Change>,
    /// Levels, class against class, and components of variance.
    pub levels: Vec<LevelRow>,
    /// Components of the speed of hosts by class.
    pub speed: BTreeMap<String, Components>,
    /// The speed of each class over time.
    pub history: Vec<PeriodRow>,
    /// Clocks that are off.
    pub clocks: Vec<Clock>,
    /// Figures that are not whole and were left out, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// Questions without an answer, and why.
    pub notes: Vec<String>,
    /// Hosts by periods.
    #[serde(skip)]
    pub(crate) heat: Heat,
}

impl Analysis {
    /// The exit code: 1 if something is slower, 3 if nothing could be judged.
    #[must_use]
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }
}

/// Statistics of runs by host.
#[must_use]
pub fn analyse(runs: &[Run], spec: &FleetSpec) -> Analysis {
    let grid = Grid::new(runs);
    let mut changed = changes::changes(&grid, spec);
    let all: Vec<(Judged, Components)> = (0..grid.series.len())
        .into_par_iter()
        .map(|index| {
            let series = &grid.series[index];
            let fit = fit(&grid, series, &changed.logs[index]);
            let (found, noise) = components(&grid, series, &fit);
            (Judged { series: index, fit, noise }, found)
        })
        .collect();
    let levels = levels::levels(&grid, &all);
    let speed = (0..grid.classes.len())
        .filter_map(|class| Some((grid.classes[class].clone(), all[grid.speed(class)?].1.clone())))
        .collect();
    let judged: Vec<Judged> =
        all.into_iter().map(|(judged, _)| judged).filter(|judged| grid.series[judged.series].is_judged()).collect();
    let odd = odd::odd(&grid, &judged, &changed.turns, spec);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for doubt in runs.iter().flat_map(|run| &run.figures).filter_map(|figure| figure.doubt.as_deref()) {
        *left_out.entry(doubt.to_owned()).or_default() += 1;
    }
    let of_class = |(class, name): (usize, &String)| Class {
        name: name.clone(),
        hosts: grid.hosts.iter().filter(|host| host.class == class).count(),
        runs: grid.meta.iter().filter(|meta| grid.hosts[meta.host].class == class).count(),
        simulated: name.starts_with("simulated"),
    };
    let classes: Vec<Class> = grid.classes.iter().enumerate().map(of_class).collect();
    let mut notes = notes(&grid, &classes);
    notes.append(&mut changed.notes);
    let boots = grid.meta.iter().map(|meta| meta.boot + 1).max().unwrap_or(0);
    let clocks = periods::clocks(runs, grid.by_repetition);
    let (exit, verdict) = conclude(&grid, &odd, &changed.changes, spec);
    Analysis {
        spec: spec.clone(),
        verdict,
        exit,
        hosts: grid.hosts.len(),
        boots,
        runs: runs.len(),
        heat: heat::heat(&grid, &odd),
        history: history(&grid),
        periods: grid.periods,
        by_repetition: grid.by_repetition,
        classes,
        settings: grid.settings,
        odd,
        changes: changed.changes,
        levels,
        speed,
        clocks,
        left_out,
        notes,
    }
}

fn notes(grid: &Grid<'_>, classes: &[Class]) -> Vec<String> {
    let mut notes = Vec::new();
    for class in classes {
        let hosts = plural(class.hosts, "host");
        if class.hosts < MIN_CLASS {
            notes.push(format!("{}: {hosts}: which host is odd takes at least {MIN_CLASS}", class.name));
        } else if class.hosts < MIN_SHARED {
            notes.push(format!(
                "{}: {hosts}: what all hosts share in a period is not taken out, and only a host far off its class is named",
                class.name
            ));
        }
        if class.simulated {
            notes.push(format!("{}: simulated, no measurement", class.name));
        }
    }
    let nameless = grid.runs.iter().filter(|run| run.host.is_empty()).count();
    if nameless > 0 {
        let runs = plural(nameless, "document");
        notes.push(format!(
            "{runs} without a host's name, as older versions leave them, are taken for one host of each class"
        ));
    }
    if grid.runs.iter().any(|run| run.boot.is_empty()) {
        notes.push("documents without the identity of a boot are taken for one boot of each host".to_owned());
    }
    if grid.settings.iter().any(|setting| setting.stand_in) {
        notes.push("a stand-in for hardware events: compare hosts and arms, not times with those of a PMU".to_owned());
    }
    if !grid.by_repetition {
        notes.push(
            "periods are UTC days by the hosts' own clocks: without repetitions nothing shows that a clock is off"
                .to_owned(),
        );
    }
    notes
}

fn history(grid: &Grid<'_>) -> Vec<PeriodRow> {
    let mut rows = Vec::new();
    for class in 0..grid.classes.len() {
        let Some(series) = grid.speed(class).map(|index| &grid.series[index]) else { continue };
        let logs: Vec<f64> = series.points.iter().map(|point| point.log).collect();
        let fitted = fit(grid, series, &logs);
        let mut by_period: Vec<Vec<f64>> = vec![Vec::new(); grid.periods.len()];
        for host in &fitted.hosts {
            for index in host.points.clone() {
                by_period[grid.meta[series.points[index].run].period].push(logs[index] - fitted.grand - host.level);
            }
        }
        for (period, values) in by_period.iter().enumerate() {
            let found = event::over_hosts(values);
            let Some(change) = found.map(|found| found.value).or_else(|| values.first().copied()) else { continue };
            let interval = found.map(|found| found.interval());
            rows.push(PeriodRow {
                period: grid.periods[period].clone(),
                class: grid.classes[class].clone(),
                change: change.exp_m1(),
                interval: interval
                    .map(|interval| Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() }),
                hosts: values.len(),
            });
        }
    }
    rows
}

/// Judges hosts and changes: each host of a class that is large enough, and each change that was found.
fn conclude(grid: &Grid<'_>, odd: &[OddHost], changes: &[Change], spec: &FleetSpec) -> (u8, String) {
    // Hosts whose figures are not whole show nothing.
    let hosts = |series: usize| {
        let points = &grid.series[series].points;
        points.iter().map(|point| grid.meta[point.run].host).collect::<BTreeSet<_>>().len()
    };
    let judged = (0..grid.classes.len()).filter_map(|class| grid.speed(class)).map(hosts).filter(|n| *n >= MIN_CLASS);
    let unchanged = judged.sum::<usize>().saturating_sub(odd.len());
    let of_host = |host: &OddHost| if host.slower { Verdict::Slower } else { Verdict::Faster };
    let of_change = |change: &Change| {
        if change.is_slower(spec.least_host) {
            Verdict::Slower
        } else if change.rows.iter().all(|row| row.change < 0.0) {
            Verdict::Faster
        } else {
            Verdict::NoChange
        }
    };
    let found = changes.iter().filter(|change| change.is_found());
    let verdicts = odd.iter().map(of_host).chain(std::iter::repeat_n(Verdict::NoChange, unchanged));
    let doubt = (unchanged + odd.len() == 0).then(|| format!("no class has {MIN_CLASS} hosts"));
    let (exit, verdict) = Tally::of(verdicts.chain(found.clone().map(of_change))).conclude(doubt.as_deref());
    let what = if are_changes_judged(grid.periods.len(), changes) {
        format!("{} and {}", plural(odd.len(), "odd host"), plural(found.count(), "change"))
    } else {
        format!("{}; changes take {MIN_VALUES} periods", plural(odd.len(), "odd host"))
    };
    (exit.code(), format!("{verdict} ({what})"))
}

/// Returns whether changes could be found: there are periods enough for steps, or facts changed on hosts enough.
pub(crate) fn are_changes_judged(periods: usize, changes: &[Change]) -> bool {
    periods >= MIN_VALUES || changes.iter().any(|change| !change.rows.is_empty())
}
