//! `vpmu trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use results::error::{Error, Exit};
use results::table::layout::columns;
use trace::read::Trace;

use crate::inspect::trace::record::{RecordOptions, record};
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
  # its rows, and its accesses by register
  vpmu trace show t --rows 100
  vpmu trace stat t
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
    /// List the rows of a trace
    Show(ShowOptions),
    /// Count its accesses by register
    Stat(StatOptions),
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

pub(super) fn run(args: &TraceArgs) -> Result<Exit, Error> {
    match &args.command {
        TraceCommand::Record(options) => return record(options),
        TraceCommand::Show(options) => {
            let trace = Trace::open(&options.trace)?;
            let from = u64::try_from(options.from.as_nanos()).unwrap_or(u64::MAX);
            print(&show::rows(&trace, from, options.rows as usize)?.text(columns()))?;
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
