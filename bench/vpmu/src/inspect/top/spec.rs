//! The options of `top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::inspect::sampled::{GuestSpec, SamplingOptions};
use crate::setting::parse::{duration_in, number_in};

/// Options of `vpmu top`.
#[derive(Clone, Debug, Args)]
pub struct TopSpec {
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingOptions,

    /// Time between two screen updates or tables
    #[arg(long, value_name = "TIME", default_value = "1s",
          value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(3600)))]
    pub interval: Duration,

    /// Length of the sliding window: rates and the first column of functions are of this time
    #[arg(long, value_name = "TIME", default_value = "10s",
          value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(60)))]
    pub window: Duration,

    /// End the guest after so many screen updates or tables
    #[arg(long, value_name = "N", value_parser = number_in(1..=1_000_000_000))]
    pub iterations: Option<u64>,

    /// Plain tables on stdout, as also where stdout is no terminal
    #[arg(long)]
    pub stdio: bool,

    /// File for the guest's own output; otherwise it is dropped and its bytes are counted
    #[arg(long, value_name = "FILE")]
    pub guest_output: Option<PathBuf>,

    /// Names of a Linux guest's kernel while it runs, as /proc/kallsyms lists them
    ///
    /// `vpmu record -- linux` leaves such a list of the same kernel: FILE.kallsyms. Without one, functions of a kernel without a
    /// symbol table are shown by page; at the end of --run they have names.
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,

    /// No report of the guest on stderr
    #[arg(short, long)]
    pub quiet: bool,

    /// The guest.
    #[command(subcommand)]
    pub guest: GuestSpec,
}

impl TopSpec {
    /// Returns the ticks of the window.
    pub fn span(&self) -> usize {
        let ticks = self.window.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        usize::try_from(ticks).unwrap_or(usize::MAX).clamp(1, 100_000)
    }
}
