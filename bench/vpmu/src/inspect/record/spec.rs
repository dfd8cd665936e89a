//! The options of a recording.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use perf_data::writer::{MOST_OF_CHUNK, Options};
use results::error::Error;
use results::write::Target;
use vmm::sample::Event;

use super::beside::Companion;
use super::layout::As;
use crate::inspect::sampled::{GuestSpec, SamplingOptions};
use crate::setting::parse::{bytes_in, duration_in, number_in};

/// The event of `--at-pmi`.
const AT_PMI: &[Event] = &[Event::Pmi];

/// Options of `vpmu record`.
#[derive(Clone, Debug, Args)]
pub struct RecordSpec {
    /// File of the recording; - is stdout, in perf's pipe mode
    ///
    /// A file of that name is kept as FILE.old. The guest's own output goes to stderr if this is -.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub output: PathBuf,

    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingOptions,

    /// Sample where the guest takes PMIs of its own counters: -e pmi
    #[arg(long, conflicts_with = "event")]
    pub at_pmi: bool,

    /// Compress with zstd at this level, 1 to 22 (0: not at all); -z is level 1
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = number_in(0..=22))]
    pub compression_level: Option<u64>,

    /// Threads that compress; the order of the records stays
    ///
    /// 1 is the recorder's own thread. More keep up with more samples at high levels, where CPUs are free.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=64))]
    pub compress_threads: u64,

    /// Least bytes of records that are compressed and written together, e.g. 64K [default: what half a second or 128K brings]
    ///
    /// More makes fewer and better compressed records. What is less waits in memory, and is lost if the process is killed.
    #[arg(long, value_name = "SIZE", value_parser = bytes_in(1..=MOST_OF_CHUNK as u64))]
    pub mmap_flush: Option<u64>,

    /// Write asynchronously, with up to N writes on their way; --aio is 1
    ///
    /// A thread writes. Only for a file.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = number_in(1..=64))]
    pub aio: Option<u64>,

    /// End the recording, and the guest, after this time
    #[arg(long, value_name = "TIME",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub duration: Option<Duration>,

    /// Machine that stock perf takes a Linux guest for
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value = "auto")]
    pub guest_as: As,

    /// No summary on stderr
    #[arg(short, long)]
    pub quiet: bool,

    /// The guest.
    #[command(subcommand)]
    pub guest: GuestSpec,

    /// The command line, which the file names.
    #[arg(skip)]
    pub command_line: Vec<String>,
}

impl RecordSpec {
    /// Returns the events that sample.
    pub fn events(&self) -> &[Event] {
        if self.at_pmi { AT_PMI } else { &self.sampling.event }
    }

    /// Returns how it is compressed and written.
    pub fn writing(&self) -> Options {
        Options {
            level: self.compression_level.unwrap_or(0) as u32,
            threads: self.compress_threads as usize,
            least: self.mmap_flush.map(|bytes| bytes as usize),
            aio: self.aio.map(|writes| writes as usize),
        }
    }

    /// Returns whether it goes to stdout.
    pub fn is_pipe(&self) -> bool {
        self.output == Path::new("-")
    }

    /// Opens a companion in the folder that the recording is in now.
    ///
    /// # Errors
    /// Exit 2: the folder's.
    pub fn companion(&self, what: Companion) -> Result<Target, Error> {
        let path = self.beside(what);
        let target = Target::of(&path).map(|target| target.private().always_file());
        target.map_err(|error| {
            let what = format!("cannot write {} beside the recording", path.display());
            Error::usage(what, error.to_string(), "give another --output")
        })
    }

    /// Returns the file beside the recording for what comes with it. A pipe has no name, and `perf.data` may be another recording.
    pub fn beside(&self, what: Companion) -> PathBuf {
        what.of(if self.is_pipe() { Path::new(PIPED) } else { &self.output })
    }
}

/// The name that stands for a recording on stdout.
pub const PIPED: &str = "perf.pipe";
