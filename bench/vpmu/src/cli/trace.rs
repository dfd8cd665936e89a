//! `vpmu trace`.

use clap::{Args, Subcommand};
use results::error::{Error, Exit};

use crate::inspect::trace::import::{ImportOptions, import};
use crate::inspect::trace::record::{RecordOptions, record};

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
  # through other strategies, on a modelled host
  vpmu sim icx-2021 --trace t --strategy reuse,pool,gate
  # its accesses by register; _trace.json has a query for its rows
  duckdb -c \"select kind, register, count(*) from 't/*.csv.zst'
             group by all order by all\"

Exit codes: 0 done; record: that of the guest, 2 bad usage or
input, 3 interrupted or rows are missing, 4 the host cannot do
it or its disk is full, 70 a bug of vpmu.";

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
}

pub(super) fn run(args: &TraceArgs) -> Result<Exit, Error> {
    match &args.command {
        TraceCommand::Record(options) => record(options),
        TraceCommand::Import(options) => import(options),
    }
}
