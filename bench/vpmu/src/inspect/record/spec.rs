//! The options of `vpmu record`: the events that sample a guest and how often, the file, the guest.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::Event;
use perf_data::writer::Options;
use results::error::Error;
use vmm::sample::{MOST_EVENTS, Sampling};

use super::beside::with;
use crate::inspect::guest::GuestSpec;
use crate::setting::options::QuietOption;
use crate::setting::parse::{duration_in, number_in, suggestion};

/// Shortest period of the kernel's clocks, ns.
const SHORTEST_NS: u64 = 10_000;
/// PERF_TYPE_RAW, of tracepoints: perf refuses a file that has one without its format.
const RAW: u32 = 4;

/// Options of `vpmu record`.
#[derive(Clone, Debug, Args)]
pub struct RecordSpec {
    /// File of the recording; one of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub output: PathBuf,

    /// Events to sample by: cpu-clock, cycles, rHEX, kvm:kvm_exit ... (`vpmu show events`)
    ///
    /// cpu-clock and task-clock need no PMU. cycles, instructions, branches, branch-misses, cache-references, cache-misses and rHEX count
    /// in guest mode only, on a host with a PMU. GROUP:NAME is a tracepoint of the host that happens on the vCPU's thread.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "cpu-clock", value_parser = event)]
    pub event: Vec<SampledEvent>,

    /// Samples a second of each vCPU that runs
    #[arg(short = 'F', long, value_name = "HZ", default_value = "999", value_parser = number_in(1..=100_000))]
    pub freq: u64,

    /// One sample in N counts, in place of --freq; of a clock they are ns, 10000 and more
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = number_in(1..=1 << 47))]
    pub count: Option<u64>,

    /// Take call chains: by tables of a Linux kernel and of the payload, else by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub chains: bool,

    /// Compress with zstd at this level, 1 to 22 (0: not at all); -z is level 1
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, default_missing_value = "1",
          value_parser = number_in(0..=22))]
    pub compression_level: Option<u64>,

    /// Write asynchronously, with up to N writes on their way; --aio is 1
    ///
    /// A thread of its own writes; the recorder waits for it only while N writes are on their way.
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
        with(&self.output, word)
    }

    /// Returns the rate of samples.
    pub fn rate(&self) -> Rate {
        self.count.map_or(Rate::Hertz(self.freq), Rate::Period)
    }

    /// Checks that each event is there once and can be sampled so often.
    ///
    /// # Errors
    /// Exit 2: it is not so.
    pub fn check(&self) -> Result<(), Error> {
        let events = &self.event;
        let twice = events.iter().enumerate().find(|(at, event)| events[..*at].contains(event));
        let shortest = matches!(self.rate(), Rate::Period(..SHORTEST_NS)) && events.iter().any(SampledEvent::is_clock);
        let (why, remedy) = if let Some((_, event)) = twice {
            (format!("--event names {event} twice"), "leave one out")
        } else if events.len() > MOST_EVENTS {
            (format!("a recording has {MOST_EVENTS} events at the most"), "leave some out")
        } else if shortest {
            (format!("the kernel's clocks sample each {SHORTEST_NS} ns at the most"), "give a longer --count")
        } else {
            return Ok(());
        };
        Err(Error::usage("cannot sample so", why, remedy))
    }
}

/// Reads the name of an event.
fn event(text: &str) -> Result<SampledEvent, String> {
    text.parse().map_err(|_: String| {
        let known: Vec<_> = SampledEvent::named().collect();
        suggestion(text, &known, ", rHEX, and tracepoints as kvm:kvm_exit; none has modifiers")
    })
}

/// The events as a recording has them; `user_only`: all samples are those of a user task, and perf misses no kernel.
///
/// # Errors
/// Exit 4: this host does not have one.
pub fn described(sampling: &Sampling, user_only: bool) -> Result<Vec<Event>, Error> {
    let event = |(at, event): (usize, &SampledEvent)| {
        let cannot = |why| {
            Error::host(format!("cannot sample by {event}"), why, "give another --event; `vpmu show events` has them")
        };
        let (type_, config) = event.encoding().map_err(cannot)?;
        // perf refuses a file with a tracepoint and without its format. Its name is in the file, whatever its type.
        let type_ = if event.is_tracepoint() { RAW } else { type_ };
        let (period, by_frequency) = sampling.rate.of(event);
        let (exclude_host, name, id) = (event.is_hardware(), event.to_string(), at as u64 + 1);
        Ok(Event { type_, config, period, by_frequency, exclude_host, exclude_kernel: user_only, name, id })
    };
    sampling.events.iter().enumerate().map(event).collect()
}
