//! The published table of `perf record -z`, and the findings on this host.

use results::paired::{Pair, of_turns};
use results::published::PUBLISHED;
use results::stats::median;
use results::table::layout::{dash, plural};
use results::table::{Report, Table};
use serde::Serialize;

/// The id of the published figure.
pub const FIGURE: &str = "record-compression";
/// zstd's levels that were published; 0 is without compression.
pub const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];

/// Way in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One write after the other.
    Serial,
    /// One asynchronous write at once.
    Aio,
}

/// Recorder in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recorder {
    /// `vpmu record`, a guest.
    Vpmu,
    /// `perf record`, the VMM that runs the guest.
    Perf,
}

/// One recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Recorded {
    /// Time from the start of the command to its end, s.
    pub(super) elapsed: f64,
    /// Processor time of the recorder and the guest, s.
    pub(super) busy: f64,
    pub(super) samples: u64,
    /// Bytes of records before their compression, and of compressed records.
    pub(super) transferred: u64,
    pub(super) compressed: u64,
}

/// A ratio of paired rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quotient {
    /// Its centre.
    pub ratio: f64,
    /// Its 95 % interval; none of too few rounds.
    pub interval: Option<[f64; 2]>,
}

impl Quotient {
    /// Computes the quotient of pairs, one for each round.
    pub(super) fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let pair = |(round, (a, b)): (u64, (f64, f64))| Pair { round, guest: round, log: (a / b).ln() };
        let found = of_turns(&(0..).zip(pairs).map(pair).collect::<Vec<_>>())?;
        Some(Self { ratio: found.ratio, interval: found.interval.map(|interval| [interval.low, interval.high]) })
    }

    /// Formats it with so many digits, as `1.04 [1.01, 1.08]`.
    pub(super) fn text(&self, digits: usize) -> String {
        let interval = self.interval.map_or(String::new(), |[low, high]| format!(" [{low:.digits$}, {high:.digits$}]"));
        format!("{:.digits$}{interval}", self.ratio)
    }
}

/// Findings of one recorder for a level and a mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Medians over the rounds, s.
    pub elapsed_s: f64,
    /// Time over that without compression in the same round.
    pub overhead: Quotient,
    /// Processor time of the recorder and the guest, the median of all rounds, s.
    pub processor_s: f64,
    /// Processor time over that without compression in the same round.
    pub processor_overhead: Quotient,
    /// Bytes of records for each compressed byte; 1 without compression.
    pub ratio: f64,
    /// Bytes of records before their compression, of all rounds.
    pub transferred: u64,
    /// Bytes of compressed records, of all rounds; 0 without compression.
    pub compressed: u64,
    /// Samples, of all rounds.
    pub samples: u64,
}

/// A published pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Time over that without compression.
    pub overhead: f64,
    /// Bytes for each compressed byte.
    pub ratio: f64,
}

/// A level and a mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// zstd's level.
    pub level: u32,
    /// Way in which it was written.
    pub mode: Mode,
    /// Published figures; level 0 is the base of the others.
    pub published: Published,
    /// Findings of `vpmu record`.
    pub vpmu: Found,
    /// Findings of stock perf, if it was there.
    pub perf: Option<Found>,
    /// Time, and processor time, of `vpmu record` over stock perf's in the same round.
    pub against_perf: Option<[Quotient; 2]>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compression {
    /// The published figure.
    pub figure: &'static str,
    /// Guest that was recorded.
    pub guest: String,
    /// The version of stock perf, or why it is not there.
    pub perf: String,
    /// Samples a second.
    pub hertz: u64,
    /// True if call chains were recorded.
    pub chains: bool,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the order of recordings in a round.
    pub seed: u64,
    /// Levels and modes.
    pub rows: Vec<Row>,
}

impl Found {
    /// Compares the recordings of a level, one for each round, with those without compression of the same rounds.
    pub(super) fn of(all: &[Recorded], without: &[Recorded]) -> Option<Self> {
        let over =
            |of: fn(&Recorded) -> f64| Quotient::of(all.iter().zip(without).map(|(one, zero)| (of(one), of(zero))));
        let middle = |figure: fn(&Recorded) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
        let sum = |of: fn(&Recorded) -> u64| all.iter().map(of).sum::<u64>();
        let (transferred, compressed) = (sum(|one| one.transferred), sum(|one| one.compressed));
        Some(Self {
            elapsed_s: middle(|one| one.elapsed)?,
            overhead: over(|one| one.elapsed)?,
            processor_s: middle(|one| one.busy)?,
            processor_overhead: over(|one| one.busy)?,
            ratio: if compressed == 0 { 1.0 } else { transferred as f64 / compressed as f64 },
            transferred,
            compressed,
            samples: sum(|one| one.samples),
        })
    }
}

/// Returns the published pair of a level and a mode; `None` if the published figures are not whole.
pub(super) fn published(level: u32, mode: Mode) -> Option<Published> {
    if level == 0 {
        return Some(Published { overhead: 1.0, ratio: 1.0 });
    }
    let table: toml::Table = PUBLISHED.parse().ok()?;
    let figures = table.get("figure")?.as_array()?;
    let figure = figures.iter().find(|figure| figure.get("id").and_then(toml::Value::as_str) == Some(FIGURE))?;
    let rows = figure.get("rows")?.as_array()?;
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    let rows = rows.iter().filter_map(|row| row.as_array()?.iter().map(number).collect::<Option<Vec<f64>>>());
    let row = rows.into_iter().find(|row| row.len() == 5 && (row[0] - f64::from(level)).abs() < 0.5)?;
    let at = if mode == Mode::Serial { 1 } else { 3 };
    Some(Published { overhead: row[at], ratio: row[at + 1] })
}

const COLUMNS: [&str; 12] =
    ["level", "writes", "published", "ratio", "vpmu", "cpu", "ratio", "MiB", "perf", "cpu", "ratio", "MiB"];

fn cells(row: &Row) -> Vec<String> {
    let writes = if row.mode == Mode::Serial { "serial" } else { "aio" };
    let mib = |found: &Found| format!("{:.2}", found.transferred as f64 / f64::from(1 << 20));
    let cpu = |found: &Found| found.processor_overhead.text(3);
    let ratio = |found: &Found| format!("{:.3}", found.ratio);
    let mut cells = vec![
        row.level.to_string(),
        writes.to_owned(),
        format!("{:.2}", row.published.overhead),
        format!("{:.3}", row.published.ratio),
        row.vpmu.overhead.text(3),
        cpu(&row.vpmu),
        ratio(&row.vpmu),
        mib(&row.vpmu),
    ];
    match &row.perf {
        Some(perf) => cells.extend([perf.overhead.text(3), cpu(perf), ratio(perf), mib(perf)]),
        None => cells.extend([dash(), dash(), dash(), dash()]),
    }
    cells
}

fn lines(found: &Compression) -> Vec<String> {
    let mut lines = vec![
        "Columns published, vpmu and perf: time with compression over time at level 0 of the same round and mode, with its 95 % interval where there are five rounds and more; cpu: the same of processor \
         time; ratio: bytes of records over bytes of compressed ones; MiB of records, of all rounds."
            .to_owned(),
        format!(
            "vpmu record -F {}{} of {}; {} in random order, seed {}.",
            found.hertz,
            if found.chains { " -g" } else { "" },
            found.guest,
            plural(found.rounds as usize, "round"),
            found.seed
        ),
        format!("Stock perf record of the VMM with the same guest: {}.", found.perf),
        format!(
            "Published for perf record on a matrix product, results/published.toml {}: another program, host and trace.",
            found.figure
        ),
    ];
    for row in found.rows.iter().filter(|row| row.level == 1) {
        let (Some(perf), Some([time, busy])) = (&row.perf, &row.against_perf) else { continue };
        lines.push(format!(
            "Level 1, {}, against perf in the same round: overhead {} ×, of processor time {} ×; compression {:.3} × perf's.",
            if row.mode == Mode::Serial { "serial" } else { "aio" },
            time.text(3),
            busy.text(3),
            row.vpmu.ratio / perf.ratio
        ));
    }
    lines
}

/// Returns the findings as they are shown.
pub fn report(found: &Compression) -> Report {
    let mut table = Table::new(COLUMNS).keys(2);
    found.rows.iter().for_each(|row| table.add_row(cells(row)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(lines(found));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_ratios_within_a_round() {
        let one = |elapsed, transferred, compressed| Recorded {
            elapsed,
            busy: elapsed * 2.0,
            samples: 10,
            transferred,
            compressed,
        };
        let without = [one(1.0, 0, 0), one(2.0, 0, 0), one(4.0, 0, 0)];
        let all = [one(1.5, 100, 10), one(2.0, 100, 10), one(5.0, 100, 20)];
        let found = Found::of(&all, &without).unwrap();
        assert!(found.overhead.ratio > 1.0 && found.overhead.ratio < 1.5 && found.overhead == found.processor_overhead);
        assert_eq!((found.overhead.interval, found.elapsed_s, found.processor_s), (None, 2.0, 4.0));
        let more: Vec<_> = all.iter().zip(&without).cycle().take(9).collect();
        let quotient = Quotient::of(more.into_iter().map(|(one, zero)| (one.elapsed, zero.elapsed))).unwrap();
        let [low, high] = quotient.interval.unwrap();
        assert!(low <= quotient.ratio && quotient.ratio <= high);
        assert_eq!((found.ratio, found.transferred, found.samples), (7.5, 300, 30));
        assert!((Found::of(&without, &without).unwrap().ratio - 1.0).abs() < 1e-12);
        assert_eq!(Found::of(&[], &[]), None);
    }
}
