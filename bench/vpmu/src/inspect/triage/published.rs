//! Published figures of programs with a bottleneck, and the same measured here by the workloads of triage.

use std::time::Duration;

use results::document::Record;
use results::metric;
use results::paired::{Statistic, level, ratio};
use results::published::PUBLISHED;
use results::stats::interval::Interval;
use results::table::layout::dash;
use results::table::{Report, Table, state};
use toml::{Table as Figure, Value};
use triage::counting::Event;
use triage::workloads::Workload;
use triage::workloads::setup::DISKS;

use super::{IN_SPIN_LOCKS, SAMPLES, SAMPLES_PER_SECOND, Spec, TIME, Variant};

/// Length of a turn. One of rand() with eight threads on few CPUs has waits of a scheduler's slice.
const TURN: Duration = Duration::from_millis(200);
/// Draws of the published program: 8 jobs of 100 sums over a million each.
const DRAWS: f64 = 8.0 * 100.0 * 1e6;
/// Published figures, by workloads of the same kind.
const FIGURES: [(&str, &[&str]); 4] = [
    ("event-practice.rand", &["rand"]),
    ("rand-contention.2012", &["rand"]),
    ("spinlock-share", &["pagefault"]),
    ("parallel-probing", &["setup", "setup-disks"]),
];

/// A figure that workloads of triage measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Practice {
    /// Threads in `rand()`.
    Rand,
    /// Page faults of several copies of a program.
    SpinlockShare,
    /// Probing devices one after the other, and at once.
    ParallelProbing,
}

/// Finds the published figure of this id.
fn row(id: &str) -> Option<Figure> {
    let table: Figure = PUBLISHED.parse().ok()?;
    let mut rows = table.get("figure")?.as_array()?.iter().filter_map(Value::as_table);
    rows.find(|row| row.get("id").and_then(Value::as_str) == Some(id)).cloned()
}

fn text<'a>(row: &'a Figure, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// Returns the numbers of a figure, in their order, with their names.
fn numbers(row: &Figure) -> Vec<(&str, f64)> {
    let rows =
        row.get("rows").and_then(Value::as_array).into_iter().flatten().filter_map(|value| Some(("", number(value)?)));
    let named = ["before", "after", "ratio"].into_iter().filter_map(|key| Some((key, number(row.get(key)?)?)));
    named.chain(rows).collect()
}

/// Lists what was published of a workload, as no figure of this host.
pub fn figures(workload: &str) -> Vec<String> {
    let ids = FIGURES.into_iter().filter(|(_, workloads)| workloads.contains(&workload)).filter_map(|(id, _)| row(id));
    let line = |row: Figure| {
        let all: Vec<String> =
            numbers(&row).into_iter().map(|(name, value)| format!("{name} {value}").trim().to_owned()).collect();
        let [id, source, what, unit] = ["id", "source", "what", "unit"].map(|key| text(&row, key));
        format!("published, not measured here: {id} [{source}]: {what}: {} ({unit})", all.join(", "))
    };
    ids.map(line).collect()
}

/// A number that was published, and what it is here.
struct Line {
    what: &'static str,
    published: Option<f64>,
    here: Option<(f64, Option<Interval>)>,
}

/// Times so many operations take at the time of a thousand.
fn time(document: &Record, arm: usize, operations: f64) -> Option<(f64, Option<Interval>)> {
    let found = level(document.arms.get(arm)?, TIME, Statistic::P50)?;
    let seconds = |ns: f64| ns / 1e12 * operations;
    let interval = found.interval.map(|Interval { low, high }| Interval { low: seconds(low), high: seconds(high) });
    Some((seconds(found.ns), interval))
}

/// The share of samples in a spin lock, percent, with its 95 % interval by Wilson.
fn share(document: &Record, arm: usize) -> Option<(f64, Option<Interval>)> {
    /// The 97.5 % quantile of the normal distribution.
    const Z: f64 = 1.96;
    let of = |key: &str| Some(document.arms.get(arm)?.metrics.get(key)?.max? as f64);
    let n = of(SAMPLES).filter(|samples| *samples > 0.0)?;
    let p = of(IN_SPIN_LOCKS)? / n;
    let (centre, scale) = (p + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let [low, high] = [(centre - half).max(0.0), centre + half].map(|bound| 100.0 * bound / scale);
    Some((100.0 * p, Some(Interval { low, high })))
}

impl Practice {
    /// Returns the figure's id.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Rand => "event-practice.rand",
            Self::SpinlockShare => "spinlock-share",
            Self::ParallelProbing => "parallel-probing",
        }
    }

    /// Threads of the published run: adapters, for devices; of the copies it says only that there were several.
    const fn threads(self) -> usize {
        if matches!(self, Self::Rand) { 8 } else { 4 }
    }

    /// Returns what is run for it.
    pub fn runs(self, rounds: u64, seed: u64) -> Vec<Spec> {
        let (names, event, sampled): (&[&str], _, &[Variant]) = match self {
            Self::Rand => (&["rand"], None, &[Variant::Workload]),
            Self::SpinlockShare => (&["pagefault"], Event::named("cpu-clock"), &[Variant::Apart, Variant::Workload]),
            Self::ParallelProbing => (&["setup", "setup-disks"], None, &[Variant::Workload]),
        };
        let spec = |workload| {
            let (threads, turn, frequency) = (self.threads(), TURN, SAMPLES_PER_SECOND);
            Spec { workload, threads, rounds, turn, frequency, seed, event, sampled }
        };
        names.iter().filter_map(|name| Workload::named(name)).map(spec).collect()
    }

    fn lines(self, figure: &Figure, all: &[Record]) -> Vec<Line> {
        let published = numbers(figure);
        let nth = |at: usize| published.get(at).map(|(_, value)| *value);
        let quotient = |one: usize, other: usize| Some(nth(one)? / nth(other)?);
        let time = |run: usize, arm: usize, operations: f64| time(all.get(run)?, arm, operations);
        let ratio = |run: usize| {
            let [one, other, ..] = &all.get(run)?.arms[..] else { return None };
            ratio(one, other, TIME, Statistic::P50).map(|found| (found.ratio, found.interval))
        };
        let line = |what, published, here| Line { what, published, here };
        match self {
            Self::Rand => vec![
                line("one locked rand(), s", nth(0), time(0, 0, DRAWS)),
                line("a generator per thread, s", nth(1), time(0, 1, DRAWS)),
                line("ratio", nth(2), ratio(0)),
            ],
            // The sampled runs are behind the five arms that take turns.
            Self::SpinlockShare => {
                let share = |arm: usize| share(all.first()?, arm);
                vec![
                    line("a process per copy, % in spin locks", nth(0), share(5)),
                    line("threads of one process, % in spin locks", None, share(6)),
                ]
            }
            Self::ParallelProbing => {
                let devices = (self.threads() * (1 + DISKS)) as f64;
                vec![
                    line("one by one, s", nth(0), time(0, 0, devices)),
                    line("adapters at once, s", nth(1), time(1, 0, devices)),
                    line("all at once, s", nth(2), time(0, 1, devices)),
                    line("one by one over all at once", quotient(0, 2), ratio(0)),
                    line("adapters over all at once", quotient(1, 2), ratio(1)),
                ]
            }
        }
    }

    /// Says why what was found here is not what was published.
    const fn reasons(self) -> [&'static str; 2] {
        match self {
            Self::Rand => [
                "published: 8 threads on CPUs 0 to 7 of a larger machine; each draw there is also divided and put into sin()",
                "here: the time of as many draws, 800 million, at the rate of the turns; threads that do not run do not contend",
            ],
            Self::SpinlockShare => [
                "published: Linux 2.6.31, whose memory cgroups counted every page under one global spin lock; it went with their counters per CPU",
                "here: of samples by a clock, whose interrupt waits while a lock holds interrupts off: time there shows where they are on again",
            ],
            Self::ParallelProbing => [
                "published: a POWER5 with 4 adapters and 13 disks that spin up, from boot to user space",
                "here: 4 simulated adapters with 3 disks each, a wait of one length for every device that is fitted to nothing: only ratios are alike",
            ],
        }
    }

    /// Returns the figure as it is shown, and whether every published number has one of this host beside it.
    pub fn report(self, all: &[Record]) -> (Report, bool) {
        let figure = row(self.id()).unwrap_or_default();
        let lines = self.lines(&figure, all);
        let mut table = Table::new(["figure", "published", "here", "95 %"]);
        let value = |value: f64| if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") };
        for Line { what, published, here } in &lines {
            let interval = here.and_then(|(_, interval)| interval);
            let interval =
                interval.map_or_else(dash, |Interval { low, high }| format!("{} to {}", value(low), value(high)));
            let [published, here] =
                [*published, here.map(|(here, _)| here)].map(|number| number.map_or_else(dash, value));
            table.add_row([(*what).to_owned(), published, here, interval]);
        }
        let mut report = Report::new("vpmu reproduce");
        report.table(table);
        report.note(format!("Published, {} [{}]: {}.", self.id(), text(&figure, "source"), text(&figure, "what")));
        report.notes(self.reasons().map(|reason| format!("Why they differ: {reason}.")));
        report.note(format!("times are medians of rounds, by the {}", metric::name(TIME)));
        for document in all {
            let parameter = |name: &str| document.parameter(name).unwrap_or_default();
            report.gap();
            report.heading(format!("{}, {} threads", parameter("workload"), parameter("threads")));
            state(document, &mut report);
        }
        let whole = lines.iter().all(|line| line.here.is_some()) && !lines.is_empty();
        (report, whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_published_and_its_runs_are_possible() {
        for figure in [Practice::Rand, Practice::SpinlockShare, Practice::ParallelProbing] {
            let runs = figure.runs(10, 1);
            assert!(!runs.is_empty() && runs.iter().all(|run| run.workload.check_threads(run.threads).is_ok()));
            let lines = figure.lines(&row(figure.id()).unwrap(), &[]);
            assert!(lines.iter().any(|line| line.published.is_some()) && !figure.report(&[]).1, "{figure:?}");
        }
        assert_eq!((figures("rand").len(), figures("setup-disks").len(), figures("spinlock").len()), (2, 1, 0));
    }
}
