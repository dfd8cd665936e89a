//! The specification of a recording.

use std::path::{Path, PathBuf};
use std::time::Duration;

use host_pmu::sampler::Rate;
use perf_data::writer::Options;
use vmm::sample::Event;

use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::linux::spec::LinuxSpec;
use crate::run::spec::RunSpec;
use crate::strategy::StrategyChoice;

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

    /// The file beside the recording for what comes with it. A pipe has no name, and `perf.data` may be another recording.
    #[must_use]
    pub fn beside(&self, what: Companion) -> PathBuf {
        what.of(if self.is_pipe() { Path::new(PIPED) } else { &self.output })
    }
}

/// The name that stands for a recording on stdout.
const PIPED: &str = "perf.pipe";

/// The payload as a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct PayloadSpec {
    /// Its work, its vCPUs, its samples.
    pub experiment: NmiLatencySpec,
    /// The strategy behind its counters.
    pub strategy: StrategyChoice,
}

/// The guest that is recorded.
#[derive(Clone, Debug)]
pub enum GuestSpec {
    /// The project's own payload.
    Payload(Box<PayloadSpec>),
    /// A third-party image.
    Image(Box<RunSpec>),
    /// A distribution's kernel.
    Linux(Box<LinuxSpec>),
}
