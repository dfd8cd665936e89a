//! `vpmu record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use perf_data::writer::{MOST_OF_CHUNK, Options};
use results::error::{Error, Exit};
use vmm::sample::Event;

use super::linux::LinuxArgs;
use super::measure::Invocation;
use super::options::CountersOptions;
use super::run::RunArgs;
use super::sampling::SamplingOptions;
use crate::arms::rounds::spec::CommonSpec;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::inspect::record::guests;
use crate::inspect::record::layout::As;
use crate::inspect::record::spec::RecordSpec;
use crate::inspect::sampled::guest::{GuestSpec, PayloadSpec};
use crate::setting::parse::{bytes_in, duration_in, number_in};
use crate::setting::workload::Workload;

pub(super) const EXAMPLES: &str = "\
Examples:
  # an image with call chains; then its functions
  vpmu record -g -- run kernel.elf
  perf report -i perf.data
  # the payload at 4 kHz, compressed
  vpmu record -F 4000 -z -- payload --samples 2000
  # a distribution's kernel, its chains by ORC
  vpmu record -g -- linux vmlinuz --run 'sleep 5'
  perf report --kallsyms perf.data.kallsyms
  # compressed by two threads, written by another
  vpmu record -z3 --compress-threads 2 --aio=4 -- payload
  # where the guest's own profiler would stand
  vpmu record --at-pmi -g -- run kernel.elf
  # one sample in 100 writes of MSRs; into a pipe
  vpmu record -e exit:wrmsr -c 100 -o - -- run x.elf |
    perf script -i -

Exit codes: 0 the guest is done, or --duration ended it; with
run and linux otherwise that of the guest, 2 bad usage or input,
3 the recording ended early or was interrupted, 4 the host
cannot do it, 70 a bug of vpmu.";

/// Options of `vpmu record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// Where the recording goes; - is stdout, in perf's pipe mode
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

    /// What stock perf takes a Linux guest for
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value = "auto")]
    pub guest_as: As,

    /// No summary on stderr
    #[arg(short, long)]
    pub quiet: bool,

    /// The guest.
    #[command(subcommand)]
    pub guest: RecordedGuest,
}

/// The guest that is recorded.
#[derive(Clone, Debug, Subcommand)]
pub enum RecordedGuest {
    /// The project's own payload, which takes PMIs
    Payload(Box<PayloadArgs>),
    /// A third-party image, as `vpmu run`
    Run(Box<RunArgs>),
    /// A distribution's kernel, as `vpmu linux`
    Linux(Box<LinuxArgs>),
}

/// Options of the payload as a guest.
#[derive(Clone, Debug, Args)]
pub struct PayloadArgs {
    /// What the guest samples and does: EVENTS[/WORK] or WORK, as of `vpmu nmi-latency`
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// NMIs per vCPU; the guest ends then
    #[arg(long, value_name = "N", default_value = "1000", value_parser = number_in(1..=1_000_000))]
    pub samples: u64,

    /// The guest ends after this time, even with fewer NMIs
    #[arg(long, value_name = "TIME", default_value = "30s",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Duration,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=guest::abi::MAX_VCPUS as u64))]
    pub vcpus: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,
}

impl RecordedGuest {
    pub(super) fn into_spec(self) -> GuestSpec {
        match self {
            Self::Payload(payload) => GuestSpec::Payload(Box::new(payload.spec())),
            Self::Run(run) => GuestSpec::Image(Box::new(run.into_spec())),
            Self::Linux(linux) => GuestSpec::Linux(Box::new(linux.into_spec())),
        }
    }
}

impl PayloadArgs {
    fn spec(&self) -> PayloadSpec {
        let common = CommonSpec {
            strategies: vec![self.counters.strategy.clone()],
            backend: self.counters.backend.clone(),
            vcpus: self.vcpus,
            pin: self.counters.pin.clone(),
            samples: self.samples,
            time_limit: self.time_limit,
            pmu_version: self.counters.pmu_version,
            seccomp: !self.no_seccomp,
            ..CommonSpec::default()
        };
        let experiment = NmiLatencySpec { common, workload: self.workload, ..NmiLatencySpec::default() };
        PayloadSpec { experiment, strategy: self.counters.strategy.clone() }
    }
}

impl RecordArgs {
    fn spec(&self, command_line: Vec<String>) -> RecordSpec {
        RecordSpec {
            output: self.output.clone(),
            events: if self.at_pmi { vec![Event::Pmi] } else { self.sampling.event.clone() },
            rate: self.sampling.rate(),
            chains: self.sampling.chains,
            writing: Options {
                level: self.compression_level.unwrap_or(0) as u32,
                threads: self.compress_threads as usize,
                least: self.mmap_flush.map(|bytes| bytes as usize),
                aio: self.aio.map(|writes| writes as usize),
            },
            duration: self.duration,
            guest_as: self.guest_as,
            quiet: self.quiet,
            command_line,
        }
    }
}

pub(super) fn run(args: RecordArgs, invocation: Invocation) -> Result<Exit, Error> {
    let spec = args.spec(invocation.command_line);
    args.sampling.check(&spec.events)?;
    if args.guest_as != As::Auto && !matches!(args.guest, RecordedGuest::Linux(_)) {
        let why = "stock perf takes a payload or an image for a user task";
        return Err(Error::usage("--as is for Linux guests", why, "leave it out"));
    }
    guests::record(&spec, args.guest.into_spec())
}

/// The names of guests on a command line.
pub(super) const GUESTS: [&str; 3] = ["payload", "run", "linux"];

/// Accepts perf's spelling: `-- GUEST` after the options, and `-zN` of `record`.
pub(super) fn as_perf_spells(args: Vec<OsString>) -> Vec<OsString> {
    let of = |name: &str| args.get(1).is_some_and(|command| command == name);
    let record = of("record");
    if !record && !of("top") {
        return args;
    }
    let mut ahead = true;
    let mut spelt = Vec::with_capacity(args.len());
    for arg in args {
        let word = arg.to_str().unwrap_or_default();
        if ahead && word == "--" {
            ahead = false;
            continue;
        }
        ahead &= !GUESTS.contains(&word);
        match word.strip_prefix("-z") {
            Some(level) if record && ahead && !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()) => {
                spelt.push(format!("-z={level}").into());
            }
            _ => spelt.push(arg),
        }
    }
    spelt
}

#[cfg(test)]
mod tests {
    use host_pmu::sampler::Rate;

    use super::super::app::{Command, Parsed, parse};
    use super::*;

    fn record(args: &[&str]) -> Result<RecordArgs, Error> {
        match parse(["vpmu", "record"].iter().chain(args))? {
            Parsed::Run(Command::Record(args)) => Ok(args.into_inner()),
            other => panic!("not record: {other:?}"),
        }
    }

    #[test]
    fn options_are_those_of_perf() {
        let args = record(&["-F", "4000", "-g", "-z", "-o", "x", "--", "run", "k.elf", "--vcpus", "2"]).unwrap();
        let spec = args.spec(Vec::new());
        assert_eq!((spec.rate, spec.writing, spec.chains), (Rate::Hertz(4000), Options::level(1), true));
        assert!(matches!(args.guest, RecordedGuest::Run(run) if run.vcpus == 2));
        let level = |args: &[&str]| record(args).unwrap().spec(Vec::new()).writing.level;
        assert_eq!((level(&["-z5", "payload"]), level(&["-z=3", "--", "payload"]), level(&["payload"])), (5, 3, 0));
        let writing = |args: &[&str]| record(args).unwrap().spec(Vec::new()).writing;
        let ways = writing(&["-z3", "--compress-threads", "4", "--mmap-flush", "64K", "--aio", "payload"]);
        assert_eq!(ways, Options { level: 3, threads: 4, least: Some(64 << 10), aio: Some(1) });
        assert_eq!((writing(&["--aio=4", "payload"]).aio, writing(&["payload"]).aio), (Some(4), None));
        let args =
            record(&["-e", "cpu-clock,kvm:kvm_exit", "-c", "100", "linux", "vmlinuz", "--run", "ls -z9"]).unwrap();
        assert_eq!((args.sampling.event.len(), args.spec(Vec::new()).rate), (2, Rate::Period(100)));
        assert!(matches!(args.guest, RecordedGuest::Linux(linux) if linux.run.as_deref() == Some("ls -z9")));
        assert_eq!(record(&["--at-pmi", "payload"]).unwrap().spec(Vec::new()).events, [Event::Pmi]);
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        for (args, needle) in [
            (&["-e", "cycels", "payload"][..], "cpu-clock"),
            (&["-e", "exit:vmx", "payload"], "exit:wrmsr"),
            (&["-e", "cycles", "--at-pmi", "payload"], "--at-pmi"),
            (&["-F", "0", "payload"], "1 to 100000"),
            (&["-z23", "payload"], "0 to 22"),
            (&["--mmap-flush", "2M", "payload"], "1 to 1048576"),
            (&["--mmap-flush", "2X", "payload"], "64K"),
            (&["--compress-threads", "0", "payload"], "1 to 64"),
            (&["--aio=0", "payload"], "1 to 64"),
            (&["-F", "5", "-c", "5", "payload"], "--count"),
            (&["--", "sleep", "1"], "sleep"),
            (&["--", "run"], "IMAGE"),
            (&["--as", "kernel", "payload"], "guest"),
        ] {
            let error = record(args).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
