//! A fleet over time: the hosts of each class, each against its own level, by period; and steps of that, with the facts that changed.

use std::collections::{BTreeMap, BTreeSet};

use results::error::Exit;
use results::stats::change_points::{self, MIN_VALUES, Rules};
use results::stats::interval::Interval;
use results::stats::{median, trimmed};
use results::table::layout::{change, p, plural};
use results::table::{Report, Table};
use results::write::utc;
use serde::Serialize;

use crate::compare::unlike;
use crate::hosts::exp_m1;
use crate::run::Run;
use crate::series::{Grid, mean};

/// Least relative change of a step.
const STRENGTH: f64 = 0.01;

/// The hosts of a class in one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeriodRow {
    /// The period.
    pub period: String,
    /// Host class.
    pub class: String,
    /// Mean difference of its hosts from their own level over all periods, 0.03 for 3 % slower.
    pub change: f64,
    /// Its 95 % interval, by t over hosts; `None` of one host.
    pub interval: Option<Interval>,
    /// Hosts.
    pub hosts: usize,
}

/// A period from which a class is slower or faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Host class.
    pub class: String,
    /// First period after it.
    pub period: String,
    /// Relative change of the mean.
    pub change: f64,
    /// Its p value, corrected for all places and classes.
    pub p: f64,
    /// Facts that differ between the last runs of hosts before it and their first after it.
    pub also_changed: Vec<String>,
}

/// A fleet over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetHistory {
    /// Number of its runs.
    pub runs: usize,
    /// Periods are repetitions of a campaign; else UTC days by the hosts' clocks.
    pub by_repetition: bool,
    /// The periods, in order.
    pub periods: Vec<String>,
    /// The classes, by period.
    pub rows: Vec<PeriodRow>,
    /// Their steps.
    pub steps: Vec<Step>,
}

/// Follows the hosts of these runs.
pub fn history(runs: &[Run]) -> FleetHistory {
    let grid = Grid::new(runs);
    let (periods, by_repetition, period_of) = periods(runs);
    let rules = Rules { strength: STRENGTH, ..Rules::default() };
    let (mut rows, mut steps) = (Vec::new(), Vec::new());
    let classes = grid.classes();
    for &class in &classes {
        let speed = grid.speed(class);
        let levels: BTreeMap<&str, f64> =
            grid.by_host(&speed).into_iter().filter_map(|(host, logs)| Some((host, trimmed::centre(&logs)?))).collect();
        // Each host has one value in a period, however many runs it has there.
        let mut values: Vec<BTreeMap<&str, Vec<f64>>> = vec![BTreeMap::new(); periods.len()];
        for (run, log) in &speed {
            let host = runs[*run].host();
            values[period_of[*run]].entry(host).or_default().push(log - levels[host]);
        }
        let mut series = Vec::new();
        for (period, hosts) in values.iter().enumerate() {
            let logs: Vec<f64> = hosts.values().filter_map(|logs| trimmed::centre(logs)).collect();
            if logs.is_empty() {
                continue;
            }
            let mean = mean(&logs);
            series.push((period, mean));
            rows.push(PeriodRow {
                period: periods[period].clone(),
                class: class.to_owned(),
                change: mean.exp_m1(),
                interval: trimmed::over_blocks(&logs).map(|mean| exp_m1(mean.interval())),
                hosts: logs.len(),
            });
        }
        let means: Vec<f64> = series.iter().map(|(_, mean)| mean.exp()).collect();
        for point in change_points::find(&means, &rules, classes.len()) {
            let first = series[point.index].0;
            let of_class = |(run, _): &(usize, f64)| (&runs[*run], period_of[*run]);
            let mut own: Vec<(&Run, usize)> = speed.iter().map(of_class).collect();
            own.sort_by_key(|(run, period)| (*period, run.started_unix));
            let before = own.iter().filter(|(_, period)| *period < first).map(|(run, _)| *run);
            // Of two runs of one host the later one here counts: the first after the step.
            let after = own.iter().rev().filter(|(_, period)| *period >= first).map(|(run, _)| *run);
            steps.push(Step {
                class: class.to_owned(),
                period: periods[first].clone(),
                change: point.after / point.before - 1.0,
                p: point.p,
                also_changed: unlike(before, after),
            });
        }
    }
    FleetHistory { runs: runs.len(), by_repetition, periods, rows, steps }
}

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Returns the names of periods, whether they are repetitions, and the period of each run. Periods are repetitions where each run has
/// one; else UTC days by the hosts' clocks.
fn periods(runs: &[Run]) -> (Vec<String>, bool, Vec<usize>) {
    let by_repetition = !runs.is_empty() && runs.iter().all(|run| run.labels.repetition.is_some());
    let number = |run: &Run| run.labels.repetition.filter(|_| by_repetition).unwrap_or(run.started_unix / DAY);
    let mut starts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        // A simulation has no date.
        let date = (run.started_unix > 0).then_some(run.started_unix as f64);
        starts.entry(number(run)).or_default().extend(date);
    }
    let place: BTreeMap<u64, usize> = starts.keys().enumerate().map(|(place, number)| (*number, place)).collect();
    let of_run = runs.iter().map(|run| place[&number(run)]).collect();
    let name = |(number, starts): (u64, Vec<f64>)| match (median(&starts).map(date), by_repetition) {
        (Some(date), true) => format!("repetition {number} ({date})"),
        (Some(date), false) => date,
        (None, true) => format!("repetition {number}"),
        (None, false) => "no date".to_owned(),
    };
    (starts.into_iter().map(name).collect(), by_repetition, of_run)
}

/// Formats the date of a time, UTC.
#[expect(clippy::cast_sign_loss, reason = "no time is before 1970")]
fn date(unix: f64) -> String {
    utc(unix as u64).chars().take(10).collect()
}

impl FleetHistory {
    /// Returns the exit: done, or inconclusive if there are too few periods for steps.
    pub fn exit(&self) -> Exit {
        if self.periods.len() < MIN_VALUES { Exit::Inconclusive } else { Exit::Done }
    }

    /// Returns the history as it is shown.
    pub fn report(&self) -> Report {
        let mut report = Report::new("vpmu history");
        let unit = if self.by_repetition { "repetition" } else { "UTC day" };
        report.line(format!("{} in {}", plural(self.runs, "run"), plural(self.periods.len(), unit)));
        let classes: BTreeSet<&str> = self.rows.iter().map(|row| row.class.as_str()).collect();
        for class in classes {
            let caption = format!("{class}: mean over hosts, each against its own level; 95 % intervals");
            let mut table = Table::new(["period", "change", "hosts"]).caption(caption).cut();
            for row in self.rows.iter().filter(|row| row.class == class) {
                table.add_row([row.period.clone(), change(row.change, row.interval), row.hosts.to_string()]);
            }
            report.table(table);
        }
        for step in &self.steps {
            let Step { class, period, also_changed, .. } = step;
            report.note(format!("{class}: {} from {period} on, p {}", change(step.change, None), p(step.p)));
            report.notes(also_changed.iter().map(|line| format!("{class}: changed at the same time: {line}")));
        }
        if self.exit() == Exit::Inconclusive {
            report.note(format!("too few periods: steps need {MIN_VALUES}"));
        } else if self.steps.is_empty() {
            report.note("no step");
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Fleet;

    #[test]
    fn a_kernel_that_makes_all_hosts_slower_is_a_step_with_its_name() {
        let mut runs = Fleet { kernel: Some(9), ..Fleet::default() }.runs();
        for by_repetition in [true, false] {
            let found = history(&runs);
            let [step] = &found.steps[..] else { panic!("{:?}", found.steps) };
            assert_eq!((found.by_repetition, found.rows.len(), found.exit()), (by_repetition, 16, Exit::Done));
            assert!((step.change - 0.05_f64.exp_m1()).abs() < 0.005, "{step:?}");
            assert_eq!(step.period, if by_repetition { "repetition 9 (2026-11-10)" } else { "2026-11-10" });
            assert_eq!(step.also_changed, ["kernel: 6.1.0-31 / 6.1.0-32 on 40 hosts"]);
            let text = found.report().text(80);
            assert!(text.contains("changed at the same time: kernel: 6.1.0-31"), "{text}");
            for run in &mut runs {
                run.labels.repetition = None;
            }
        }
    }

    #[test]
    fn without_a_change_there_is_no_step_and_few_periods_are_inconclusive() {
        for seed in 1..=10 {
            let found = history(&Fleet { seed, ..Fleet::default() }.runs());
            assert!(found.steps.is_empty(), "{:?}", found.steps);
        }
        let short = history(&Fleet { days: 3, ..Fleet::default() }.runs());
        assert_eq!(short.exit(), Exit::Inconclusive);
        assert!(short.report().text(80).contains("steps need 6"));
    }
}
