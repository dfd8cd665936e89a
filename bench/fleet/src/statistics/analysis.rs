//! Everything that is said of a fleet.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use results::error::Exit;
use results::stats::change_points::MIN_VALUES;
use results::stats::interval::Interval;
use results::table::layout::plural;
use results::verdict::{Tally, Verdict};
use serde::Serialize;

use super::changes::{self, Change};
use super::fit::{Components, MIN_SHARED, components, fit};
use super::grid::{self, Clock, FleetSpec, Grid, Setting};
use super::levels::{self, Heat, LevelRow};
use super::odd::{self, Judged, MIN_CLASS, OddHost};
use crate::run::Run;

/// A host class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Hosts.
    pub hosts: usize,
    /// Number of its runs.
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
    /// Number of its runs.
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
    /// Returns the exit code: 1 if something is slower, 3 if nothing could be judged.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }
}

/// Statistics of runs by host.
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
    let clocks = grid::clocks(runs, grid.by_repetition);
    let (exit, verdict) = conclude(&grid, &odd, &changed.changes, spec);
    Analysis {
        spec: spec.clone(),
        verdict,
        exit,
        hosts: grid.hosts.len(),
        boots,
        runs: runs.len(),
        heat: levels::heat(&grid, &odd),
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
            let found = changes::over_hosts(values);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::run::Run;
    use crate::statistics::Kind;
    use crate::synthetic::{Change, Fleet, name, runs};

    fn small() -> Fleet {
        Fleet { hosts: 40, days: 16, classes: 1, slow_share: 0.05, change: None, ..Fleet::default() }
    }

    fn of(fleet: &Fleet) -> Analysis {
        analyse(&runs(fleet), &FleetSpec::default())
    }

    fn names(fleet: &Fleet) -> BTreeSet<String> {
        fleet.slow().into_iter().map(name).collect()
    }

    fn odd(analysis: &Analysis) -> BTreeSet<String> {
        analysis.odd.iter().map(|host| host.host.clone()).collect()
    }

    #[test]
    fn slow_hosts_are_named_and_no_others() {
        let fleet = small();
        let analysis = of(&fleet);
        assert_eq!(odd(&analysis), names(&fleet));
        for host in &analysis.odd {
            let first = &host.figures[0];
            assert!(host.whole && host.slower && first.kind == Kind::Speed, "{host:?}");
            assert!(first.interval.low < 0.05 && first.interval.high > 0.03 && first.change > 0.03, "{first:?}");
        }
        assert_eq!((analysis.exit, analysis.hosts), (1, 40));
    }

    #[test]
    fn a_fleet_without_an_odd_host_has_none() {
        for seed in 1..=6 {
            let analysis = of(&Fleet { slow_share: 0.0, seed, ..small() });
            assert!(analysis.odd.is_empty() && analysis.exit == 0, "{seed}: {:?}", analysis.odd);
            assert!(!analysis.changes.iter().any(super::Change::is_found), "{seed}: {:?}", analysis.changes);
        }
    }

    #[test]
    fn a_host_that_is_slow_in_one_arm_is_no_slow_host() {
        let fleet = Fleet { slow_arm: Some(1), slow_by: 0.08, ..small() };
        let analysis = of(&fleet);
        assert_eq!(odd(&analysis), names(&fleet));
        for host in &analysis.odd {
            assert!(!host.whole && host.figures.iter().any(|figure| figure.arm == "reuse"), "{host:?}");
            assert!(host.figures.iter().all(|figure| figure.kind == Kind::Ratio), "{host:?}");
        }
    }

    #[test]
    fn a_host_that_got_slow_lately_is_named_with_the_day() {
        let mut all = runs(&Fleet { days: 24, slow_share: 0.0, ..small() });
        for run in all.iter_mut().filter(|run| &*run.host == "node0007" && run.labels.repetition >= Some(18)) {
            run.figures.iter_mut().for_each(|figure| figure.time.log += 0.12);
        }
        let analysis = analyse(&all, &FleetSpec::default());
        let odd = &analysis.odd[..];
        assert!(odd.len() == 1 && odd[0].host == "node0007" && odd[0].figures[0].lately, "{odd:?}");
        assert!(odd[0].since.starts_with("repetition 18 "), "{odd:?}");
        assert!(odd[0].verdict.starts_with("slow host lately"), "{odd:?}");
    }

    fn change(day: u64, roll_out: u64, kernel: bool) -> Change {
        Change { day, by: 0.03, roll_out, kernel }
    }

    #[test]
    fn a_kernel_that_makes_all_hosts_slower_on_one_day_is_found_and_named() {
        let analysis = of(&Fleet { change: Some(change(9, 1, true)), slow_share: 0.0, ..small() });
        let found: Vec<_> = analysis.changes.iter().filter(|change| change.is_found()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].facts, ["kernel 6.1.0-31-amd64 → 6.1.0-32-amd64"]);
        assert!(found[0].periods[0].starts_with("repetition 8 "), "{found:?}");
        let speed = &found[0].rows[0];
        assert!(speed.interval.low < 0.03 && speed.interval.high > 0.03, "{speed:?}");
        assert!(analysis.odd.is_empty(), "{:?}", analysis.odd);
    }

    #[test]
    fn a_roll_out_over_days_is_found_by_each_hosts_own_day() {
        let analysis = of(&Fleet { change: Some(change(5, 8, true)), slow_share: 0.0, ..small() });
        let found: Vec<_> = analysis.changes.iter().filter(|change| change.is_found()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].facts[0].starts_with("kernel") && found[0].periods[0] != found[0].periods[1], "{found:?}");
        assert!((found[0].rows[0].change - 0.03).abs() < 0.01, "{found:?}");
        assert!(analysis.odd.is_empty(), "{:?}", analysis.odd);
    }

    #[test]
    fn a_change_without_a_fact_says_so() {
        let analysis = of(&Fleet { change: Some(change(9, 1, false)), slow_share: 0.0, ..small() });
        let found: Vec<_> = analysis.changes.iter().filter(|change| change.is_found()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].facts.is_empty() && found[0].note.contains("no fact"), "{found:?}");
        assert!(found[0].periods[0].starts_with("repetition 8 "), "{found:?}");
    }

    #[test]
    fn facts_that_change_together_are_all_named() {
        let fleet = Fleet { change: Some(change(9, 1, true)), slow_share: 0.0, ..small() };
        let with_microcode = |mut run: Run| {
            if run.facts["kernel"].contains("32") {
                let mut facts = (*run.facts).clone();
                facts.insert("microcode".to_owned(), "0x5003605".to_owned());
                run.facts = Arc::new(facts);
            }
            run
        };
        let all: Vec<Run> = runs(&fleet).into_iter().map(with_microcode).collect();
        let analysis = analyse(&all, &FleetSpec::default());
        let found = analysis.changes.iter().find(|change| change.is_found()).unwrap();
        assert_eq!(found.facts.len(), 2, "{found:?}");
        assert!(found.facts.iter().any(|fact| fact.starts_with("microcode 0x5003604 → ")), "{found:?}");
    }

    #[test]
    fn a_fact_that_changes_days_before_the_figures_is_not_their_cause() {
        let fleet = Fleet { change: Some(change(11, 1, false)), slow_share: 0.0, ..small() };
        let early = |mut run: Run| {
            if run.labels.repetition >= Some(8) {
                let mut facts = (*run.facts).clone();
                facts.insert("governor".to_owned(), "powersave".to_owned());
                run.facts = Arc::new(facts);
            }
            run
        };
        let all: Vec<Run> = runs(&fleet).into_iter().map(early).collect();
        let analysis = analyse(&all, &FleetSpec::default());
        let governor = analysis.changes.iter().find(|change| !change.facts.is_empty()).unwrap();
        assert!(!governor.is_found(), "{governor:?}");
        let found = analysis.changes.iter().find(|change| change.is_found()).unwrap();
        assert!(found.facts.is_empty() && found.periods[0].starts_with("repetition 10 "), "{found:?}");
    }

    #[test]
    fn components_of_variance_are_those_of_the_fleet() {
        let fleet = Fleet {
            hosts: 150,
            days: 20,
            slow_share: 0.0,
            between_hosts: 0.02,
            between_boots: 0.01,
            reboot_every: 4.0,
            outliers: 0.0,
            own: 0.0,
            ..small()
        };
        let analysis = of(&fleet);
        let row =
            analysis.levels.iter().find(|row| row.kind == Kind::AllArms && row.metric == "nmi_handler_ns").unwrap();
        let near = |spread: Option<crate::statistics::Spread>, wanted: f64| {
            let found = spread.unwrap();
            assert!((found.value / wanted - 1.0).abs() < 0.25, "{found:?}, not {wanted}");
            assert!(found.interval.low < found.value && found.interval.high > found.value, "{found:?}");
        };
        near(row.spread.hosts, 0.02);
        near(row.spread.boots, 0.01);
        near(row.spread.runs, 0.02);
        // Four arms of 1 % each.
        assert!((row.spread.rounds.unwrap().value - 0.005).abs() < 1e-6);
        assert_eq!(row.spread.hosts.unwrap().over, 150);
    }

    #[test]
    fn one_host_has_no_spread_of_hosts_and_no_verdict() {
        let analysis = of(&Fleet { hosts: 1, slow_share: 0.0, ..small() });
        assert!(analysis.odd.is_empty() && analysis.exit == 3, "{}", analysis.verdict);
        assert!(analysis.levels.iter().all(|row| row.spread.hosts.is_none() && row.interval.is_none()));
        assert!(analysis.notes.iter().any(|note| note.contains("takes at least 3")), "{:?}", analysis.notes);
    }

    #[test]
    fn of_four_equal_hosts_none_is_accused() {
        for seed in 1..=20 {
            let fleet = Fleet { hosts: 4, slow_share: 0.0, between_hosts: 0.01, between_boots: 0.01, seed, ..small() };
            let analysis = of(&fleet);
            assert!(analysis.odd.is_empty(), "{seed}: {:?}", analysis.odd);
        }
    }

    #[test]
    fn a_clock_that_is_hours_off_is_named_and_does_not_move_its_runs() {
        let fleet = Fleet { clocks_off: 1, slow_share: 0.0, ..small() };
        let analysis = of(&fleet);
        assert_eq!(analysis.clocks.len(), 1);
        assert_eq!(analysis.clocks[0].host, name(0));
        assert!((analysis.clocks[0].seconds / 3600.0 - 5.0).abs() < 0.5, "{:?}", analysis.clocks);
        assert!(analysis.by_repetition && analysis.periods.len() == 16);
        let mut all = runs(&fleet);
        for run in &mut all {
            run.labels.repetition = None;
        }
        let by_day = analyse(&all, &FleetSpec::default());
        assert!(
            !by_day.by_repetition && by_day.clocks.is_empty() && by_day.notes.iter().any(|note| note.contains("clock"))
        );
    }

    #[test]
    fn classes_are_kept_apart_and_compared_over_hosts() {
        let fleet = Fleet { classes: 2, slow_share: 0.0, ..small() };
        let mut all = runs(&fleet);
        // Hosts of the second class take 10 % longer.
        let first = all[0].class().to_owned();
        for run in &mut all {
            if run.class() != first {
                run.figures.iter_mut().for_each(|figure| figure.time.log += 1.1_f64.ln());
            }
        }
        let analysis = analyse(&all, &FleetSpec::default());
        assert_eq!(analysis.classes.iter().map(|class| class.hosts).collect::<Vec<_>>(), [20, 20]);
        assert!(analysis.odd.is_empty());
        let second = analysis.classes[1].name.clone();
        let of = |kind| analysis.levels.iter().find(|row| row.class == second && row.kind == kind).unwrap();
        let (times, ratios) =
            (of(Kind::AllArms).over_first_interval.unwrap(), of(Kind::Ratio).over_first_interval.unwrap());
        let sides = if first == second { 1.0 / 1.1 } else { 1.1 };
        assert!(times.low < sides && times.high > sides, "{times:?}");
        assert!(ratios.low < 1.0 && ratios.high > 1.0 && ratios.high - ratios.low < 0.02, "{ratios:?}");
    }

    #[test]
    fn figures_that_are_not_whole_are_left_out_and_counted() {
        let mut all = runs(&Fleet { slow_share: 0.0, ..small() });
        for figure in &mut all[3].figures {
            figure.doubt = Some("NMIs were lost".into());
            figure.time.log += 9.0;
        }
        let analysis = analyse(&all, &FleetSpec::default());
        assert_eq!(analysis.left_out["NMIs were lost"], 12);
        assert!(analysis.odd.is_empty());
    }

    #[test]
    fn no_runs_are_no_error() {
        let analysis = analyse(&[], &FleetSpec::default());
        assert_eq!((analysis.exit, analysis.hosts), (3, 0));
    }
}
