//! Traces: [`record`] writes what a guest did to its PMU, [`import`] what a stock KVM told perf of one.

pub mod import;
pub mod record;

use clap::Subcommand;
use results::error::{Error, Exit};

/// Commands for traces.
#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Run a guest, and write what its vCPUs do to their PMUs
    #[command(
        override_usage = "vpmu trace record [OPTIONS] -- <payload|run|linux> [...]",
        disable_help_subcommand = true
    )]
    Record(Box<record::RecordOptions>),
    /// Make a trace of a recording of a stock KVM host by perf
    Import(import::ImportOptions),
}

impl TraceCommand {
    /// Carries the command out.
    ///
    /// # Errors
    /// Those of the two.
    pub fn run(&self) -> Result<Exit, Error> {
        match self {
            Self::Record(options) => record::record(options),
            Self::Import(options) => import::import(options),
        }
    }
}
