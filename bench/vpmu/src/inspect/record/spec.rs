//! The specification of a recording.

use std::path::{Path, PathBuf};
use std::time::Duration;

use host_pmu::sampler::Rate;
use perf_data::writer::Options;
use results::error::Error;
use results::write::Target;
use vmm::sample::Event;

use super::beside::Companion;
use super::layout::As;

/// Parameters of `record`, apart from its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// Where it goes; `-` is stdout.
    pub output: PathBuf,
    /// The events that sample.
    pub events: Vec<Event>,
    /// How often.
    pub rate: Rate,
    /// Whether samples have call chains.
    pub chains: bool,
    /// How it is compressed and written.
    pub writing: Options,
    /// Time after which the recording, and the guest with it, ends.
    pub duration: Option<Duration>,
    /// What stock perf takes the guest for.
    pub guest_as: As,
    /// Whether the report at the end is left out.
    pub quiet: bool,
    /// The command line, which the file names.
    pub command_line: Vec<String>,
}

impl RecordSpec {
    /// Whether it goes to stdout.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.output == Path::new("-")
    }

    /// A companion that is written in the folder that the recording is in now.
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

    /// The file beside the recording for what comes with it. A pipe has no name, and `perf.data` may be another recording.
    #[must_use]
    pub fn beside(&self, what: Companion) -> PathBuf {
        what.of(if self.is_pipe() { Path::new(PIPED) } else { &self.output })
    }
}

/// The name that stands for a recording on stdout.
pub const PIPED: &str = "perf.pipe";
