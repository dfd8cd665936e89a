//! Published figures of programs with a bottleneck, and the same measured here by the workloads of triage.

use std::time::Duration;

use results::document::{Arm, Record};
use results::error::Error;
use results::metric;
use results::paired::{Statistic, level, ratio};
use results::published::PUBLISHED;
use results::stats::interval::Interval;
use results::table::layout::dash;
use results::table::{Report, Table, state};
use serde::Deserialize;
use serde_json::{Value, json};
use triage::counting::Event;
use triage::workloads::Workload;

use super::{IN_SPIN_LOCKS, SAMPLES, SAMPLES_PER_SECOND, Spec, TIME, Variant};
use crate::terminal::console::internal;

/// Length of a turn. One of rand() with eight threads on few CPUs has waits of a scheduler's slice.
const TURN: Duration = Duration::from_millis(200);

/// A published figure that workloads are about.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    id: String,
    source: String,
    what: String,
    /// The workloads; the figure is measured by a run of each.
    workloads: Vec<String>,
    before: Option<f64>,
    after: Option<f64>,
    ratio: Option<f64>,
    #[serde(default)]
    rows: Vec<f64>,
    practice: Option<Practice>,
}

/// How it is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Practice {
    threads: usize,
    /// The event to sample by, in place of the one that the counts name.
    event: Option<String>,
    sampled: Vec<Variant>,
    lines: Vec<Line>,
    /// Why what is found here is not what was published.
    reasons: Vec<String>,
}

/// A number of the figure, and what it is here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    what: String,
    /// Its place among the published numbers, or those of a quotient.
    published: Vec<usize>,
    /// Run and arm that it is read of.
    run: usize,
    arm: usize,
    read: Read,
}

/// What is read of an arm.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Read {
    /// The time of so many operations.
    Time(f64),
    /// Its time over that of the next arm.
    Ratio,
    /// The share of samples in a spin lock.
    Share,
}

/// Returns the figures of workloads.
fn all() -> Vec<Figure> {
    let table: Option<toml::Table> = PUBLISHED.parse().ok();
    let figures = table.and_then(|mut table| table.remove("figure")).and_then(|figures| figures.try_into().ok());
    let figures: Vec<toml::Value> = figures.unwrap_or_default();
    let of_workloads = figures.into_iter().filter(|figure| figure.get("workloads").is_some());
    of_workloads.filter_map(|figure| figure.try_into().ok()).collect()
}

/// The share of samples in a spin lock, percent, with its 95 % interval by Wilson.
fn share(arm: &Arm) -> Option<(f64, Option<Interval>)> {
    /// The 97.5 % quantile of the normal distribution.
    const Z: f64 = 1.96;
    let of = |key: &str| Some(arm.metrics.get(key)?.max? as f64);
    let n = of(SAMPLES).filter(|samples| *samples > 0.0)?;
    let p = of(IN_SPIN_LOCKS)? / n;
    let (centre, scale) = (p + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let [low, high] = [(centre - half).max(0.0), centre + half].map(|bound| 100.0 * bound / scale);
    Some((100.0 * p, Some(Interval { low, high })))
}

impl Line {
    fn here(&self, all: &[Record]) -> Option<(f64, Option<Interval>)> {
        let arms = &all.get(self.run)?.arms;
        let arm = arms.get(self.arm)?;
        match self.read {
            Read::Time(operations) => {
                let found = level(arm, TIME, Statistic::P50)?;
                let seconds = |ns: f64| ns / 1e12 * operations;
                let both = |Interval { low, high }| Interval { low: seconds(low), high: seconds(high) };
                Some((seconds(found.ns), found.interval.map(both)))
            }
            Read::Ratio => {
                let found = ratio(arm, arms.get(self.arm + 1)?, TIME, Statistic::P50)?;
                Some((found.ratio, found.interval))
            }
            Read::Share => share(arm),
        }
    }
}

impl Figure {
    /// Finds a figure that can be measured.
    ///
    /// # Errors
    /// There is none of this id, which is a bug.
    pub fn find(id: &str) -> Result<Self, Error> {
        let found = all().into_iter().find(|figure| figure.id == id && figure.practice.is_some());
        found.ok_or_else(|| internal("a figure cannot be measured", id))
    }

    /// Returns its numbers, in their order.
    fn numbers(&self) -> Vec<f64> {
        [self.before, self.after, self.ratio].into_iter().flatten().chain(self.rows.iter().copied()).collect()
    }

    /// Returns what is run for it.
    pub fn runs(&self, rounds: u64, seed: u64) -> Vec<Spec> {
        let Some(practice) = &self.practice else { return Vec::new() };
        let spec = |workload| Spec {
            workload,
            threads: practice.threads,
            rounds,
            turn: TURN,
            frequency: SAMPLES_PER_SECOND,
            seed,
            event: practice.event.as_deref().and_then(Event::named),
            sampled: practice.sampled.clone(),
        };
        self.workloads.iter().filter_map(|name| Workload::named(name)).map(spec).collect()
    }

    /// Returns the published number of a line, or the quotient of its two.
    fn published(&self, line: &Line) -> Option<f64> {
        let numbers = self.numbers();
        line.published.iter().filter_map(|at| numbers.get(*at).copied()).reduce(|one, other| one / other)
    }

    /// Returns the figure with what it is here, as JSON.
    pub fn document(&self, all: &[Record]) -> Value {
        let lines = self.practice.iter().flat_map(|practice| &practice.lines).map(|line| {
            let here = line.here(all);
            json!({
                "what": line.what,
                "published": self.published(line),
                "here": here.map(|(here, _)| here),
                "interval": here.and_then(|(_, interval)| interval).map(|Interval { low, high }| [low, high]),
            })
        });
        json!({
            "figure": self.id,
            "what": self.what,
            "source": self.source,
            "lines": lines.collect::<Vec<_>>(),
            "reasons": self.practice.iter().flat_map(|practice| &practice.reasons).collect::<Vec<_>>(),
            "documents": all,
        })
    }

    /// Returns the figure as it is shown, and whether every published number has one of this host beside it.
    pub fn report(&self, all: &[Record]) -> (Report, bool) {
        let (lines, reasons) =
            self.practice.as_ref().map_or((&[][..], &[][..]), |practice| (&practice.lines, &practice.reasons));
        let mut table = Table::new(["figure", "published", "here", "95 %"]);
        let mut whole = !lines.is_empty();
        let value = |value: f64| if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") };
        for line in lines {
            let here = line.here(all);
            whole &= here.is_some();
            let interval = here.and_then(|(_, interval)| interval);
            let interval =
                interval.map_or_else(dash, |Interval { low, high }| format!("{} to {}", value(low), value(high)));
            let [published, here] =
                [self.published(line), here.map(|(here, _)| here)].map(|one| one.map_or_else(dash, value));
            table.add_row([line.what.clone(), published, here, interval]);
        }
        let mut report = Report::new("vpmu reproduce");
        report.table(table);
        report.note(format!("Published, {} [{}]: {}.", self.id, self.source, self.what));
        report.notes(reasons.iter().map(|reason| format!("Why they differ: {reason}.")));
        report.note(format!("times are medians of rounds, by the {}", metric::name(TIME)));
        for document in all {
            let parameter = |name: &str| document.parameter(name).unwrap_or_default();
            report.gap();
            report.heading(format!("{}, {} threads", parameter("workload"), parameter("threads")));
            state(document, &mut report);
        }
        (report, whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_published_and_its_runs_are_possible() {
        for id in ["event-practice.rand", "spinlock-share", "parallel-probing"] {
            let figure = Figure::find(id).unwrap();
            let (runs, practice) = (figure.runs(10, 1), figure.practice.as_ref().unwrap());
            assert_eq!(runs.len(), figure.workloads.len());
            assert!(runs.iter().all(|run| run.workload.check_threads(run.threads).is_ok()));
            assert!(runs.iter().all(|run| run.event.is_some() == practice.event.is_some()));
            let places = practice.lines.iter().flat_map(|line| &line.published);
            assert!(places.max() < Some(&figure.numbers().len()) && !figure.report(&[]).1, "{id}");
        }
    }
}
