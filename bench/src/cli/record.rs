//! `vpmu record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use host_pmu::sampler::{Rate, SampledEvent};
use results::error::{Error, Exit};

use super::linux::LinuxArgs;
use super::measure::Invocation;
use super::run::RunArgs;
use crate::backend::BackendChoice;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::parse::{duration_in, number_in, pmu_version};
use crate::record::guests;
use crate::record::layout::As;
use crate::record::spec::{GuestSpec, PayloadSpec, RecordSpec};
use crate::rounds::pin::PinChoice;
use crate::rounds::spec::CommonSpec;
use crate::strategy::StrategyChoice;
use crate::workload::Workload;

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
  # one sample in 100 exits to the VMM; into a pipe
  vpmu record -e kvm:kvm_userspace_exit -c 100 -o - -- run x.elf |
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

    /// Host events to sample by: cpu-clock, task-clock, cycles, instructions, rHEX, kvm:kvm_exit ...
    ///
    /// cpu-clock needs no PMU. cycles, instructions, branches, branch-misses, cache-references, cache-misses and rHEX count in guest
    /// mode only, on a host with a PMU. GROUP:NAME is a tracepoint of the host that happens on the vCPU's thread.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "cpu-clock")]
    pub event: Vec<SampledEvent>,

    /// Samples a second of each vCPU that runs
    #[arg(short = 'F', long, value_name = "HZ", default_value = "999", value_parser = number_in(1..=100_000))]
    pub freq: u64,

    /// One sample in N counts, in place of --freq; of a clock they are ns, 10000 and more
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = number_in(1..=1 << 47))]
    pub count: Option<u64>,

    /// Record call chains: a Linux kernel's by its ORC tables, others by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub chains: bool,

    /// Compress with zstd at this level, 1 to 22 (0: not at all); -z is level 1
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = number_in(0..=22))]
    pub compression_level: Option<u64>,

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

    /// Architectural PMU version of the guest: 2, as KVM's, or 4, as Cascade Lake's
    #[arg(long, value_name = "N", default_value = "2", value_parser = pmu_version)]
    pub pmu_version: u64,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none
    #[arg(long, value_name = "CPULIST", default_value = "none")]
    pub pin: PinChoice,

    /// Strategy: preset or .toml file
    #[arg(long, value_name = "NAME", default_value = "reuse-lazy")]
    pub strategy: StrategyChoice,

    /// Event source behind the guest's counters; none = the TSC, and a timer raises the PMIs
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,
}

impl PayloadArgs {
    fn spec(&self) -> PayloadSpec {
        let common = CommonSpec {
            strategies: vec![self.strategy.clone()],
            backend: self.backend.clone(),
            vcpus: self.vcpus,
            pin: self.pin.clone(),
            samples: self.samples,
            time_limit: self.time_limit,
            pmu_version: self.pmu_version,
            seccomp: !self.no_seccomp,
            ..CommonSpec::default()
        };
        let experiment = NmiLatencySpec { common, workload: self.workload, ..NmiLatencySpec::default() };
        PayloadSpec { experiment, strategy: self.strategy.clone() }
    }
}

impl RecordArgs {
    fn spec(&self, command_line: Vec<String>) -> RecordSpec {
        RecordSpec {
            output: self.output.clone(),
            events: self.event.clone(),
            rate: self.count.map_or(Rate::Hertz(self.freq), Rate::Period),
            chains: self.chains,
            level: self.compression_level.unwrap_or(0) as u32,
            duration: self.duration,
            guest_as: self.guest_as,
            quiet: self.quiet,
            command_line,
        }
    }
}

pub(super) fn run(args: RecordArgs, invocation: Invocation) -> Result<Exit, Error> {
    let spec = args.spec(invocation.command_line);
    let guest = match args.guest {
        RecordedGuest::Payload(payload) => GuestSpec::Payload(Box::new(payload.spec())),
        RecordedGuest::Run(run) => GuestSpec::Image(Box::new(run.into_spec())),
        RecordedGuest::Linux(linux) => GuestSpec::Linux(Box::new(linux.into_spec())),
    };
    guests::record(&spec, guest)
}

/// perf's spelling: `-- GUEST` after the options, and `-zN`.
pub(super) fn as_perf_spells(args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "record") {
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
        ahead &= !matches!(word, "payload" | "run" | "linux");
        match word.strip_prefix("-z") {
            Some(level) if ahead && !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()) => {
                spelt.push(format!("-z={level}").into());
            }
            _ => spelt.push(arg),
        }
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::super::app::{Command, Parsed, parse};
    use super::*;

    fn record(args: &[&str]) -> Result<RecordArgs, Error> {
        match parse(["vpmu", "record"].iter().chain(args))? {
            Parsed::Run(Command::Record(args)) => Ok(*args),
            other => panic!("not record: {other:?}"),
        }
    }

    #[test]
    fn options_are_those_of_perf() {
        let args = record(&["-F", "4000", "-g", "-z", "-o", "x", "--", "run", "k.elf", "--vcpus", "2"]).unwrap();
        let spec = args.spec(Vec::new());
        assert_eq!((spec.rate, spec.level, spec.chains), (Rate::Hertz(4000), 1, true));
        assert!(matches!(args.guest, RecordedGuest::Run(run) if run.vcpus == 2));
        let level = |args: &[&str]| record(args).unwrap().spec(Vec::new()).level;
        assert_eq!((level(&["-z5", "payload"]), level(&["-z=3", "--", "payload"]), level(&["payload"])), (5, 3, 0));
        let args =
            record(&["-e", "cpu-clock,kvm:kvm_exit", "-c", "100", "linux", "vmlinuz", "--run", "ls -z9"]).unwrap();
        assert_eq!((args.event.len(), args.spec(Vec::new()).rate), (2, Rate::Period(100)));
        assert!(matches!(args.guest, RecordedGuest::Linux(linux) if linux.run.as_deref() == Some("ls -z9")));
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        for (args, needle) in [
            (&["-e", "cycels", "payload"][..], "cpu-clock"),
            (&["-F", "0", "payload"], "1 to 100000"),
            (&["-z23", "payload"], "0 to 22"),
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
