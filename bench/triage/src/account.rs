//! Document of triage, and its exit code.

use results::error::Exit;
use results::host::HostFacts;
use results::published::PUBLISHED;
use results::stats::interval::Interval;
use serde::Serialize;
use toml::{Table, Value};

use crate::counting::Class;
use crate::symbols::Frame;

/// `schema` of an account.
pub const SCHEMA: &str = "vpmu-triage/1";

/// Progress of a triage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All rounds, and the samples.
    Complete,
    /// Ctrl-C or a request to terminate ended it.
    Interrupted,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The tool's version.
    pub tool: String,
    /// Progress of the triage.
    pub status: Status,
    /// Subject that ran.
    pub subject: Subject,
    /// The host.
    pub host: HostFacts,
    /// Rounds that count.
    pub rounds: usize,
    /// The events, in the order of [`crate::counting::ALL`].
    pub events: Vec<EventRow>,
    /// The event to sample by.
    pub choice: Option<Choice>,
    /// The samples; `None`: see `no_samples`.
    pub sampling: Option<Sampling>,
    /// Why there are no samples.
    pub no_samples: Option<String>,
    /// The variant without the bottleneck against the workload.
    pub ratio: Option<Speedup>,
    /// Three sentences.
    pub verdict: Vec<String>,
    /// Remarks about the host.
    pub notes: Vec<String>,
    /// Published figures of the same kind, of other hosts.
    pub published: Vec<Published>,
}

/// Subject of a triage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The workload.
    pub workload: String,
    /// Description of the workload.
    pub about: String,
    /// Description of its variant without the bottleneck.
    pub apart: String,
    /// Description of an operation.
    pub operation: String,
    /// Threads.
    pub threads: usize,
    /// CPUs that the threads may use.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Length of a turn, ms.
    pub turn_ms: u64,
}

/// A rate over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Median of the rounds, per second.
    pub per_second: f64,
    /// Its 95 % interval; `None` with fewer than five rounds.
    pub interval: Option<Interval>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRow {
    /// Its name.
    pub event: String,
    /// Class of its evidence.
    pub class: Class,
    /// Why it is not counted here.
    pub not_counted: Option<String>,
    /// Without what happens in the kernel.
    pub user_mode_only: bool,
    /// Threads that sleep.
    pub idle: Option<Rate>,
    /// The workload.
    pub workload: Option<Rate>,
    /// The variant without the bottleneck.
    pub apart: Option<Rate>,
    /// The workload's lowest rate was above the highest idle one, and its mean above that by half.
    pub rose: bool,
}

/// An event to sample by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Its name.
    pub event: String,
    /// Why this one.
    pub why: String,
}

/// The samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// The event.
    pub event: String,
    /// Counts per sample.
    pub period: u64,
    /// Samples.
    pub samples: usize,
    /// Samples that found no room.
    pub lost: u64,
    /// Records that could not be read.
    pub damaged: u64,
    /// Times that the kernel held the event back.
    pub throttled: u64,
    /// Chains that reach the beginning of their thread.
    pub complete: usize,
    /// Ends of the others, the most frequent first.
    pub broken: Vec<Broken>,
    /// The stacks, the heaviest first.
    pub stacks: Vec<Stack>,
    /// The functions that samples are in, the most frequent first.
    pub functions: Vec<Leaf>,
    /// Most frequent way into the library or the kernel.
    pub found: Option<Found>,
}

/// Place at which chains end too early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// At which function, or why.
    pub at: String,
    /// Samples.
    pub samples: usize,
}

/// A function, and the samples in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// Samples.
    pub samples: usize,
    /// The function.
    pub function: Frame,
}

/// Samples of one call chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Samples.
    pub samples: usize,
    /// The functions, innermost first.
    pub frames: Vec<Frame>,
}

/// Place of most samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Samples of this kind.
    pub samples: usize,
    /// The library's function that the program calls; `None`: the program is in its own code, or the kernel is below it at once.
    pub called: Option<Frame>,
    /// The program's function.
    pub program: Option<Frame>,
    /// The kernel's innermost function below it that is neither the scheduler's nor on the way into the kernel: the
    /// most frequent one.
    pub kernel: Option<Frame>,
    /// Samples in that function.
    pub kernel_samples: usize,
}

/// One variant against the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// Operations of the workload, without events that count.
    pub workload: Rate,
    /// Rate of the variant without the bottleneck.
    pub apart: Rate,
    /// Operations per second of the variant over those of the workload, in the same rounds.
    pub ratio: f64,
    /// Its 95 % interval; `None` with fewer than five rounds.
    pub interval: Option<Interval>,
    /// Rounds.
    pub rounds: usize,
}

impl Speedup {
    /// Returns whether the interval leaves 1 out.
    pub fn is_distinguishable(&self) -> bool {
        self.interval.is_some_and(|Interval { low, high }| low > 1.0 || high < 1.0)
    }
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Its id in `results/published.toml`.
    pub id: String,
    /// The document it is from.
    pub source: String,
    /// Description of the number.
    pub what: String,
    /// Its numbers with their unit.
    pub figures: String,
}

impl Account {
    /// Returns the exit code: inconclusive without samples or without a difference that is sure.
    pub fn exit(&self) -> Exit {
        let sampled = self.sampling.as_ref().is_some_and(|sampling| sampling.samples > 0);
        let sure = self.ratio.as_ref().is_some_and(Speedup::is_distinguishable);
        if self.status == Status::Complete && sampled && sure { Exit::Done } else { Exit::Inconclusive }
    }
}

// Published figures of the same kind, from `results/published.toml`.

/// Keys that are numbers of a figure.
const NUMBERS: [&str; 5] = ["before", "after", "ratio", "change", "rows"];

/// Lists the figures of these ids that are there.
pub fn figures(ids: &[&str]) -> Vec<Published> {
    let row = |id: &&str| {
        let row = figure_row(id)?;
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let numbers = NUMBERS.iter().filter_map(|key| match row.get(*key)? {
            Value::Array(values) => Some(values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            value => Some(format!("{key} {value}")),
        });
        let figures = format!("{} ({})", numbers.collect::<Vec<_>>().join(", "), text("unit"));
        Some(Published { id: text("id"), source: text("source"), what: text("what"), figures })
    };
    ids.iter().filter_map(row).collect()
}

/// Finds the published figure of this id.
pub(crate) fn figure_row(id: &str) -> Option<Table> {
    let table: Table = PUBLISHED.parse().ok()?;
    let rows = table.get("figure")?.as_array()?;
    rows.iter().filter_map(Value::as_table).find(|row| row.get("id").and_then(Value::as_str) == Some(id)).cloned()
}

// Numbers for readers: three digits, with a unit prefix.

/// Formats three significant digits: `0.012`, `3.40`, `571`, `12.3k`, `4.56M`.
pub(crate) fn figure(value: f64) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // 999.6 would be shown as 1000.
    let found = prefixes.iter().find(|(unit, _)| value.abs() >= 0.9995 * unit);
    let (scaled, prefix) = found.map_or((value, ""), |(unit, prefix)| (value / unit, *prefix));
    let magnitude = scaled.abs();
    let decimals = match magnitude {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 || m == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.decimals$}");
    // Whole numbers need no decimals.
    let text = if text.contains('.') && text.trim_end_matches('0').ends_with('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    format!("{text}{prefix}")
}

/// Formats a share of a whole, in percent.
pub(crate) fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "none".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}
