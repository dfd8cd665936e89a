//! Columns of figures: one entry each, whatever shows it.
//!
//! The terminal's tables, those of a page, Markdown and CSV take their columns from [`ALL`], in its order. A new column
//! is one entry.

use super::fold::{Cell, Table};
use super::layout::{mean, time};
use super::report::Report;
use crate::answers;
use crate::document::{Arm, Document, GuestArm, PhaseResult, SET_UP, Summary};
use crate::metric::Metric;

/// A table that columns stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first table, beside times.
    Answer,
    /// Latencies that a guest's user feels, of all samples.
    Latency,
    /// Host work per PMI, per rotation where the workload only counts, or per set-up.
    Work,
    /// A strategy of an advice, over several results.
    Advice,
    /// A metric in CSV.
    Csv,
}

/// Formats a column's value for people.
type Format = fn(f64) -> String;
/// A whole number.
const COUNT: Format = |value| value.to_string();

/// Figures that a column's value is computed from.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    own: &'a GuestArm,
    /// The metric that the row is of, over all rounds or in one.
    summary: Option<&'a Summary>,
}

impl<'a> Figures<'a> {
    /// Takes the figures of an arm, with the metric that the row is of.
    pub fn new(arm: &'a Arm, summary: Option<&'a Summary>) -> Self {
        Self { own: &arm.own, summary }
    }

    /// Returns a count per sample of the metric, or per NMI if there were more; of set-ups per set-up.
    fn per_sample(&self, count: u64) -> Option<f64> {
        let samples = self.summary.map_or(0, |summary| summary.count).max(self.own.counts.nmis);
        let samples = if self.own.cycles > 0 { self.own.cycles } else { samples };
        (samples > 0).then(|| count as f64 / samples as f64)
    }

    /// Returns what was counted within set-ups, where they are measured, for each of them.
    fn per_set_up(&self, count: impl Fn(&PhaseResult) -> u64) -> Option<f64> {
        let set_up = self.own.phases.get(SET_UP).filter(|phase| phase.begun > 0)?;
        Some(count(set_up) as f64 / set_up.begun as f64)
    }

    /// Returns operations per sample: of a kind, else of all; `None` where nothing counted them, as below KVM's own vPMU. Whatever KVM
    /// asked the kernel module for between set-ups is among them.
    fn ops(&self, kind: Option<&str>) -> Option<f64> {
        let is_kind = |key: &String| kind.is_none_or(|kind| kind == key);
        let within = |phase: &PhaseResult| phase.host_ops.iter().filter(|(key, _)| is_kind(key)).map(|(_, n)| n).sum();
        let of_set_up = self.own.nmis_delivered.and_then(|_| self.per_set_up(within));
        let count = kind.map_or_else(|| self.own.all_ops(), |kind| self.own.op_count(kind));
        of_set_up.or_else(|| self.per_sample(count).filter(|_| !self.own.host_ops.is_empty()))
    }
}

/// Returns MSR exits per sample.
fn exits(figures: &Figures<'_>) -> Option<f64> {
    let of_set_up = figures.per_set_up(|phase| phase.msr_reads + phase.msr_writes);
    of_set_up.or_else(|| figures.per_sample(figures.own.all_exits()))
}

/// Returns the most events held, where the VMM holds them and not KVM.
fn most_held(figures: &Figures<'_>) -> Option<f64> {
    figures.own.nmis_delivered.map(|_| figures.own.events_held.max as f64)
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name in CSV; the suffix names the unit.
    pub key: &'static str,
    /// Heading for people.
    pub heading: &'static str,
    /// Formats a value for people.
    pub text: Format,
    /// Sentence under the table; empty for a column that explains itself, or that the sentence of the one before it explains.
    pub about: &'static str,
    /// Tables that have it.
    pub places: &'static [Place],
    /// Computes the value.
    pub value: fn(&Figures<'_>) -> Option<f64>,
}

const fn column(
    key: &'static str,
    heading: &'static str,
    text: Format,
    places: &'static [Place],
    value: fn(&Figures<'_>) -> Option<f64>,
) -> Column {
    Column { key, heading, text, about: "", places, value }
}

impl Column {
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Returns the value for people; a dash where it is unknown.
    pub fn cell(&self, figures: &Figures<'_>) -> Cell {
        Cell::of((self.value)(figures), |value| (self.text)(value))
    }
}

use Place::{Advice, Answer, Csv, Latency, Work};

/// All columns, in the order in which tables have them.
pub const ALL: &[Column] = &[
    column("count", "values", COUNT, &[Csv], |arm| Some(arm.summary?.count as f64)),
    column("min_ns", "min", time, &[Csv], |arm| Some(arm.summary?.min? as f64)),
    column("p50_ns", "p50", time, &[Csv], |arm| Some(arm.summary?.p50 as f64)),
    column("p90_ns", "p90", time, &[Latency, Csv], |arm| Some(arm.summary?.p90? as f64)),
    column("p99_ns", "p99", time, &[Latency, Csv], |arm| Some(arm.summary?.p99? as f64)),
    column("p99_9_ns", "p99.9", time, &[Csv], |arm| Some(arm.summary?.p99_9? as f64)),
    column("max_ns", "max", time, &[Latency, Csv], |arm| Some(arm.summary?.max? as f64)),
    column("mean_ns", "mean", time, &[Latency, Csv], |arm| arm.summary?.mean),
    column("opens", "opens", mean, &[Answer, Work, Advice], |arm| arm.ops(Some("open")))
        .about("opens: host events opened"),
    column("host_ops", "ops", mean, &[Answer, Work, Advice], |arm| arm.ops(None)).about("ops: operations on them"),
    column("msr_exits", "exits", mean, &[Work], exits).about("exits: MSR exits"),
    column("held_mean", "held mean", mean, &[Advice], |arm| arm.own.events_held.time_mean)
        .about("held mean: host events of a vCPU, mean over time"),
    column("events_held", "held", COUNT, &[Work], most_held).about("held: most host events at once"),
    column("nmis", "NMIs", COUNT, &[Work], |arm| Some(arm.own.counts.nmis as f64)),
    column("nmis_driver_off", "off", COUNT, &[Work], |arm| Some(arm.own.counts.nmis_driver_off as f64))
        .about("off: NMIs in no latency of the handler: the guest's driver was off, or its replay not there yet"),
    column("lost", "lost", COUNT, &[Work], |arm| Some(arm.own.lost? as f64))
        .about("lost: NMIs delivered to KVM and not taken, or taken and not delivered"),
    column("work_slowdown", "work", mean, &[Csv], |arm| Some(arm.own.workload.as_ref()?.slowdown)),
    column("releases", "releases", mean, &[Work], |arm| arm.ops(Some("release")))
        .about("releases … reads: operations by kind"),
    column("pauses", "pauses", mean, &[Work], |arm| arm.ops(Some("pause"))),
    column("resumes", "resumes", mean, &[Work], |arm| arm.ops(Some("resume"))),
    column("periods", "periods", mean, &[Work], |arm| arm.ops(Some("period"))),
    column("reads", "reads", mean, &[Work], |arm| arm.ops(Some("read"))),
];

/// Returns the columns of a table.
pub fn columns(place: Place) -> impl Iterator<Item = &'static Column> + Clone {
    ALL.iter().filter(move |column| column.places.contains(&place))
}

/// Returns the figures of an arm that an advice has.
pub fn work(arm: &Arm, metric: &Metric) -> crate::choice::Work {
    let figures = Figures::new(arm, arm.metric(metric));
    columns(Place::Advice).filter_map(|column| Some((column.key, (column.value)(&figures)?))).collect()
}

/// Returns the arms of a table of guests, each with its name, starred where its figures are not whole, and its figures.
pub(super) fn rows(document: &Document) -> impl Iterator<Item = (String, &Arm, Figures<'_>)> {
    let metric = answers::metric(&document.parameters);
    document.arms.iter().filter(|arm| arm.not_available.is_none()).map(|arm| {
        let star = if arm.incomplete.is_empty() { "" } else { "*" };
        (format!("{}{star}", arm.name), arm, Figures::new(arm, arm.metric(metric)))
    })
}

/// Adds a table with a row for each arm, below a heading and above its sentences.
pub(super) fn add(report: &mut Report, heading: String, place: Place, document: &Document) {
    let mut table = Table::new(std::iter::once("arm").chain(columns(place).map(|column| column.heading)));
    for (name, _, figures) in rows(document) {
        table.add_row(std::iter::once(name.into()).chain(columns(place).map(|column| column.cell(&figures))));
    }
    report.heading(heading);
    report.table(table);
    report.notes(Some(legend(place)).filter(|legend| !legend.is_empty()));
}

/// Returns the sentences under a table.
pub fn legend(place: Place) -> String {
    columns(place).map(|column| column.about).filter(|about| !about.is_empty()).collect::<Vec<_>>().join("; ")
}
