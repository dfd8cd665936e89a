//! Options that several commands share, each declared once. A command flattens those that it obeys.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host_pmu::backend::BackendKey;
use results::verdict::Limits;

use super::backend::BackendChoice;
use super::parse::{defaults, duration_in, folder, level, number_in, share};
use super::pin::PinChoice;
use crate::terminal::console::Form;

/// JSON on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct JsonOption {
    /// Print JSON in place of tables; of several documents one a line
    #[arg(long)]
    pub json: bool,
}

/// The form of what goes to stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct FormOptions {
    /// JSON.
    #[command(flatten)]
    pub json: JsonOption,

    /// Print Markdown in place of tables
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

impl FormOptions {
    /// Returns the form that was asked for.
    pub(crate) fn form(self) -> Form {
        if self.markdown { Form::Markdown } else { Form::from(self.json.json) }
    }
}

/// Less on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct QuietOption {
    /// No progress, no summary on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

/// What the command makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct OutputOption {
    /// Where to write what the command makes [default: stdout; of report report.html; of calibrate calibrated.toml; of ab none]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// The folder that the command makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct FolderOption {
    /// Folder for what the command makes [default: vpmu-results; of trace vpmu-trace; of linux none]
    #[arg(short, long, value_name = "DIR", value_parser = folder)]
    pub output: Option<PathBuf>,
}

impl FolderOption {
    /// Returns the folder, or the one that the command makes by default.
    pub fn or(&self, usual: &str) -> PathBuf {
        self.output.clone().unwrap_or_else(|| usual.into())
    }
}

/// Bound on one guest's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct TimeLimitOption {
    /// End the guest after this time [default: 10m; of payload 30s]
    ///
    /// In Linux a command of --run is killed then, and its files are brought out within 30 s more.
    #[arg(long, value_name = "TIME", value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub time_limit: Option<Duration>,
}

/// Limits beyond which a difference is called a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args)]
pub struct LimitOptions {
    /// Significance level of the adjusted p values [default: 0.01; of history 0.001]
    #[arg(long, value_name = "P", value_parser = level)]
    pub alpha: Option<f64>,

    /// Smallest change that is called one [default: 3%; of history 5%]
    ///
    /// A row is "no change" if a slow-down of 5 % (or of this, if larger) is excluded.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub threshold: Option<f64>,
}

impl LimitOptions {
    /// Returns the limits of a comparison.
    pub fn limits(self) -> Limits {
        Limits::default().with(self.alpha, self.threshold)
    }
}

/// How a comparison of two sides is passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct GateOptions {
    /// Also show what is the same or never judged, and every note
    #[arg(short = 'v', long)]
    pub all_metrics: bool,

    /// Also write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// For `git bisect run`: exit 0 not slower, 1 slower, 125 inconclusive or NEW fails, 128 another error, which stops it
    #[arg(long)]
    pub bisect: bool,
}

/// Seed of everything that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct SeedOption {
    /// Seed of all orders within a round, and of simulated hosts
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX), help_heading = "Rounds")]
    pub seed: u64,
}

/// Most vCPUs of a simulated host, which take a quarter of a megabyte each; a real one has fewer.
pub const MOST_VCPUS: u64 = 4096;
/// Virtual CPUs of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct GuestOptions {
    /// Virtual CPUs, a thread and a vPMU each: at most 64, simulated 4096
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=MOST_VCPUS))]
    pub vcpus: u64,
}

/// What stands behind a guest's counters on this host.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct BehindOptions {
    /// Event source behind the guest's counters
    #[arg(long, value_name = "KEY", default_value = "auto", long_help = backends(), help_heading = None)]
    pub backend: BackendChoice,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none [default: auto; of payload,run,linux none]
    ///
    /// auto takes the last CPUs that this process may use, one for each vCPU, where there is more than one.
    #[arg(long, value_name = "CPULIST", help_heading = "Host")]
    pub pin: Option<PinChoice>,
}

impl BehindOptions {
    /// Returns the usual options with this backend.
    pub fn of(backend: BackendChoice) -> Self {
        Self { backend, ..defaults() }
    }
}

/// Returns the help of `--backend`.
fn backends() -> String {
    format!(
        "Event source behind the guest's counters\n\nauto, {}, cpu-clock:RATE (as 20MHz), tracepoint:GROUP/NAME or, of experiments, sim:MODEL \
         (`vpmu show models`). auto takes hardware where the host has a PMU, else cpu-clock, a stand-in; `vpmu doctor` says which and why. \
         cpu-clock counts at the TSC's rate; cpu-clock:RATE suits a host with slow exits, on which a guest would make no progress otherwise.",
        BackendKey::PLAIN.join(", ")
    )
}

/// Bound on a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct DurationOption {
    /// Bound on the whole run: it ends after the round in which this time passes [default: none, --rounds ends it; of ab 1m; of advise 100s on this host]
    ///
    /// Only whole rounds count, so the result is complete, with fewer rounds. In a simulation it is the simulated guests' time.
    /// advise bounds all its runs together, but simulated ones each.
    #[arg(long, value_name = "TIME", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)))]
    pub duration: Option<Duration>,
}
