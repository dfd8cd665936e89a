//! `vpmu trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use results::error::{Error, Exit};
use results::table::layout::columns;
use trace::edit;
use trace::read::Trace;

use crate::inspect::trace::import::{ImportOptions, import};
use crate::inspect::trace::record::{RecordOptions, pmu, record, summarize};
use crate::inspect::trace::show;
use crate::setting::parse::{duration_in, number_in};
use crate::terminal::console::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  # the payload's PMU: accesses, PMIs, overflows, slices
  vpmu trace record -o t -- payload --workload sampling10
  # an image, a distribution's kernel, a simulated host
  vpmu trace record -o u -- run kernel.elf
  vpmu trace record -o v -- linux vmlinuz --run 'perf top'
  vpmu trace record -o w -- payload --backend sim:icx-2021
  # a VM of a stock KVM host (recorded as docs/simulator.md says)
  vpmu trace import perf.data --pid 4711 -o x
  # its rows, and its accesses by register
  vpmu trace show t --rows 100
  vpmu trace stat t
  # its second second; two in one; one that may be given away
  vpmu trace cut t --from 1s --to 2s -o t2
  vpmu trace merge t u -o both
  vpmu trace anonymize t -o given
  # through other strategies, on a modelled host
  vpmu sim icx-2021 --trace t --strategy reuse,pool,gate

Exit codes: 0 done; record: that of the guest, 2 bad usage or
input, 3 the trace ended early or lacks rows, 4 the host cannot
do it, 70 a bug of vpmu.";

/// Options of `vpmu trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Command to carry out.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// Commands for traces.
#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Run a guest, and write what its vCPUs do to their PMUs
    #[command(override_usage = "vpmu trace record [OPTIONS] -- <payload|run|linux> [...]")]
    Record(Box<RecordOptions>),
    /// Make a trace of a recording of a stock KVM host by perf
    Import(ImportOptions),
    /// List the rows of a trace
    Show(ShowOptions),
    /// Count its accesses by register
    Stat(StatOptions),
    /// Copy a part; each vCPU begins with its registers as they were
    Cut(CutOptions),
    /// Put traces of one PMU side by side, as vCPUs of one
    Merge(MergeOptions),
    /// Copy without addresses of code and the names of guest and host
    Anonymize(CopyOptions),
}

/// Options of `vpmu trace show`.
#[derive(Clone, Debug, Args)]
pub struct ShowOptions {
    /// The trace
    #[arg(value_name = "DIR")]
    pub trace: PathBuf,
    /// Rows from this time on
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration_in(Duration::ZERO..=Duration::MAX))]
    pub from: Duration,
    /// Most rows
    #[arg(long, value_name = "N", default_value = "40", value_parser = number_in(1..=1_000_000))]
    pub rows: u64,
}

/// Options of `vpmu trace stat`.
#[derive(Clone, Debug, Args)]
pub struct StatOptions {
    /// The trace
    #[arg(value_name = "DIR")]
    pub trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `vpmu trace cut`.
#[derive(Clone, Debug, Args)]
pub struct CutOptions {
    /// The copy.
    #[command(flatten)]
    pub copy: CopyOptions,
    /// From this time on
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration_in(Duration::ZERO..=Duration::MAX))]
    pub from: Duration,
    /// Up to this time [default: the end]
    #[arg(long, value_name = "TIME", value_parser = duration_in(Duration::ZERO..=Duration::MAX))]
    pub to: Option<Duration>,
}

/// Options of `vpmu trace merge`.
#[derive(Clone, Debug, Args)]
pub struct MergeOptions {
    /// The traces
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    pub traces: Vec<PathBuf>,
    /// New folder of the copy
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// Options of a copy.
#[derive(Clone, Debug, Args)]
pub struct CopyOptions {
    /// The trace
    #[arg(value_name = "DIR")]
    pub trace: PathBuf,
    /// New folder of the copy
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// Returns a time in ns.
fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn run(args: &TraceArgs) -> Result<Exit, Error> {
    match &args.command {
        TraceCommand::Record(options) => return record(options),
        TraceCommand::Import(options) => return import(options),
        TraceCommand::Show(options) => {
            let trace = Trace::open(&options.trace)?;
            print(&show::rows(&trace, ns(options.from), options.rows as usize)?.text(columns()))?;
        }
        TraceCommand::Cut(CutOptions { copy, from, to }) => {
            let trace = Trace::open(&copy.trace)?;
            let to = to.map_or(u64::MAX, ns);
            let meta = edit::cut(&trace, pmu(&trace.meta)?, &(ns(*from)..to), &copy.output)?;
            summarize(&copy.output, &meta, false)?;
        }
        TraceCommand::Merge(MergeOptions { traces, output }) => {
            let traces: Vec<Trace> = traces.iter().map(|folder| Trace::open(folder)).collect::<Result<_, _>>()?;
            summarize(output, &edit::merge(&traces, output)?, false)?;
        }
        TraceCommand::Anonymize(CopyOptions { trace, output }) => {
            summarize(output, &edit::anonymize(&Trace::open(trace)?, output)?, false)?;
        }
        TraceCommand::Stat(options) => {
            let trace = Trace::open(&options.trace)?;
            let (mix, report) = show::mix(&trace)?;
            if options.json {
                let rows = mix.rows.iter().map(|((kind, register), count)| {
                    serde_json::json!({ "kind": kind.key(), "register": register, "count": count })
                });
                let rows: Vec<_> = rows.collect();
                print_json(&serde_json::json!({ "trace": trace.meta, "bytes": trace.bytes(), "rows": rows }))?;
            } else {
                print(&report.text(columns()))?;
            }
        }
    }
    Ok(Exit::Done)
}
