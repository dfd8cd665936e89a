//! `vpmu calibrate`.

use std::path::PathBuf;

use clap::Args;

use super::parse::number_in;
use crate::backend::BackendChoice;

/// Examples below the options.
pub const EXAMPLES: &str = "\
Examples:
  vpmu calibrate -o here.toml                  measure this host's costs, write a model of it
  vpmu sim here.toml --strategy deferred,gate  and simulate with it
  vpmu calibrate --check -o here.toml          every strategy, measured beside simulated
  vpmu calibrate --backend tracepoint:kvm/kvm_userspace_exit --check -o expensive.toml

Exit codes: 0 done, 2 bad usage or a file that cannot be written, 3 interrupted or a run that did not end as it should,
4 this host cannot run guests.";

/// Options of `vpmu calibrate`.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// What counts behind the guest's counters: auto, cpu-clock, task-clock or tracepoint:kvm/kvm_userspace_exit
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// The model's name
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub name: String,

    /// Where the model goes
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "calibrated.toml")]
    pub output: PathBuf,

    /// Also run every strategy, and show measured beside simulated handler latencies and host operations
    ///
    /// The strategies run in the same rounds as what the model is made from; the model is made from recreate, reuse and the floor
    /// alone.
    #[arg(long)]
    pub check: bool,

    /// Rounds of each workload
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(2..=1000))]
    pub rounds: u64,

    /// NMIs per strategy and round [default: 200, 20 with a tracepoint]
    #[arg(long, value_name = "N", value_parser = number_in(10..=100_000))]
    pub samples: Option<u64>,

    /// Print the comparison of --check as JSON
    #[arg(long, requires = "check")]
    pub json: bool,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}
