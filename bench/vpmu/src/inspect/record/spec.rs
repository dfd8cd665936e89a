//! The options of a recording.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use perf_data::writer::Options;

use super::beside;
use crate::inspect::sampled::{GuestSpec, SamplingOptions};
use crate::setting::options::QuietOption;
use crate::setting::parse::{duration_in, number_in};

/// Options of `vpmu record`.
#[derive(Clone, Debug, Args)]
pub struct RecordSpec {
    /// File of the recording; one of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub output: PathBuf,

    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingOptions,

    /// Take call chains: by tables of a Linux kernel and of the payload, else by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub chains: bool,

    /// Compress with zstd at this level, 1 to 22 (0: not at all); -z is level 1
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = number_in(0..=22))]
    pub compression_level: Option<u64>,

    /// Write asynchronously, with up to N writes on their way; --aio is 1
    ///
    /// A thread writes.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = number_in(1..=64))]
    pub aio: Option<u64>,

    /// End the recording, and the guest, after this time
    #[arg(long, value_name = "TIME",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub duration: Option<Duration>,

    /// Print a table of the guest's functions on stdout in each such time, the last one at its end
    ///
    /// Functions of a Linux kernel without a symbol table are shown by page; in the last table of --run they have names. The guest's own
    /// output goes to stderr.
    #[arg(long, value_name = "TIME", value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(3600)))]
    pub interval: Option<Duration>,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,

    /// The guest.
    #[command(subcommand)]
    pub guest: GuestSpec,
}

impl RecordSpec {
    /// Returns how it is compressed and written.
    pub fn writing(&self) -> Options {
        Options { level: self.compression_level.unwrap_or(0) as u32, aio: self.aio.map(|writes| writes as usize) }
    }

    /// Returns the file beside the recording for what comes with it.
    pub fn beside(&self, word: &str) -> PathBuf {
        beside::with(&self.output, word)
    }
}
