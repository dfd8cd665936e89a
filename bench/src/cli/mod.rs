//! The command line: definitions, help, and one-line errors.

pub mod calibrate;
pub mod compare;
pub mod export;
pub mod history;
pub mod parse;
pub mod report;
pub mod run;
pub mod shell;
pub mod stat_setup;
pub mod stat_setup_guest;
pub mod sweep;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::backend::BackendChoice;
use crate::error::Error;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::rounds::spec::CommonSpec;
use crate::strategy::StrategyChoice;
use crate::workload::Workload;
use calibrate::CalibrateArgs;
use compare::CompareArgs;
use export::ExportArgs;
use history::HistoryArgs;
use parse::{CpuList, duration_in, number_in};
use report::ReportArgs;
use run::RunArgs;
use shell::{CompletionsArgs, ManArgs};
use stat_setup::StatSetupArgs;
use sweep::SweepArgs;

/// What the version line says.
pub const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("VPMU_GIT_REVISION"), ", ", env!("VPMU_PROFILE"), ")");

const EXAMPLES: &str = "\
Examples:
  vpmu                                         compare recreate, reuse, reuse-lazy and the floor, < 60 s
  vpmu doctor                                  what this host can do, and what spoils a measurement here
  vpmu nmi-latency --workload counting1        one counting event, stopped and restarted by task switches
  vpmu nmi-latency --backend tracepoint:kvm/kvm_userspace_exit --workload io --rounds 3
                                               host events that take tens of ms to create
  vpmu nmi-latency --strategy reuse,mine.toml  a strategy of your own beside a preset
  vpmu sim clx-ap-watchdog-off --workload sampling10
                                               a simulated host where the guest's event is the only one
  vpmu report                                  one HTML page of all results in vpmu-results
  vpmu --json - | jq '.arms[].nmi_handler_ns.p50'

Exit codes: 0 done, 1 regression found, 2 bad usage or input, 3 inconclusive, 4 the host cannot do it.";

/// What should stand behind a guest's performance counters, and what does each choice cost?
///
/// Runs a small guest on KVM whose PMU is emulated in userspace, with a host perf event (or none) behind
/// each counter by a chosen strategy, and measures what the guest feels: how long its NMI handler takes.
/// Without a command: nmi-latency.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "vpmu",
    version = VERSION,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `nmi-latency`, the default command.
    #[command(flatten)]
    pub nmi_latency: NmiLatencyArgs,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Compare strategies by guest NMI handler latency
    ///
    /// Every arm (each strategy, and the floor: the same guest with no host event, PMIs raised by a timer)
    /// runs once per round, in random order from the seed, after a warm-up that is not counted.
    /// Writes DIR/nmi-latency-TIME.json, .hlog (HdrHistogram) and .txt (benchstat), and a table on stdout.
    #[command(after_help = EXAMPLES)]
    NmiLatency(Box<NmiLatencyArgs>),
    /// Compare strategies on a simulated host
    ///
    /// The same experiment as nmi-latency, with the same vPMU and strategies, on a host, guest and clock that are simulated.
    /// One seed gives the same figures on any machine. Short for nmi-latency --backend sim:MODEL.
    #[command(after_help = "\
Examples:
  vpmu sim                                               the default experiment, to the byte the same anywhere
  vpmu sim clx-ap-watchdog-off --workload sampling10     a published host, ten events multiplexed
  vpmu sim mine.toml --strategy reuse,pool --json -      a model of your own (docs/simulator.md)")]
    Sim(Box<SimArgs>),
    /// Measure what guests and host operations cost here, and write a simulator's model of this host
    ///
    /// Runs real guests with one event and with ten, under recreate, reuse and no host events at all. With --check every
    /// strategy is measured beside simulated.
    #[command(after_help = calibrate::EXAMPLES)]
    Calibrate(Box<CalibrateArgs>),
    /// Simulate a grid of experiments on all cores, and say which strategies no other beats
    ///
    /// Strategy × model × cost × workload × vCPUs × CPUs × slice × slices until release × seed. Each point becomes one line of
    /// DIR/sweep.jsonl as soon as it is done; a killed sweep goes on where it stopped. At the end: a table of latency against
    /// host events held for each scenario. The file's bytes depend on neither threads nor interruptions.
    #[command(after_help = sweep::EXAMPLES)]
    Sweep(Box<SweepArgs>),
    /// Say whether NEW is slower than BASE, by statistics over rounds: exit 1 if it is, 3 if it cannot be told
    ///
    /// BASE and NEW are result documents, folders of them, or names of baselines (--save-baseline NAME).
    #[command(after_help = compare::EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Find where a folder of results changed over time, and name the first changed revision
    #[command(after_help = history::EXAMPLES)]
    History(HistoryArgs),
    /// Set every published vPMU figure beside the simulated one, and measured ones if there are any
    #[command(after_help = "\
Examples:
  vpmu reproduce                                         published beside simulated, as Markdown
  vpmu reproduce --measured vpmu-results/nmi-*.json      and what was measured, where it answers a figure")]
    Reproduce(ReproduceArgs),
    /// Check the vPMU against the architectural rules from inside a guest: TAP on stdout, exit 1 if a case fails
    ///
    /// A stand-in is asked for what it can promise (counters stand and go, overflows come); `--backend step`
    /// single-steps the guest and checks every count exactly, in seconds to minutes.
    #[command(after_help = "\
Examples:
  vpmu conformance                                       every case, for every strategy
  vpmu conformance --backend step --strategy reuse       and every count exactly")]
    Conformance(ConformanceArgs),
    /// Boot somebody else's kernel with the userspace vPMU: multiboot 1 and ELF images
    ///
    /// Its serial port (0x3f8) goes to stdout. A 32-bit OUT to port 0xf4 ends the run, as kvm-unit-tests do it.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Time setting up N perf events on M CPUs: by strategy, beside stock perf, and inside a guest
    ///
    /// Each arm opens, enables, reads, disables and closes the same events in the same order of phases, once per round,
    /// in random order from the seed. Writes DIR/stat-setup-TIME.json, and a table on stdout.
    #[command(after_help = stat_setup::EXAMPLES)]
    StatSetup(Box<StatSetupArgs>),
    /// Say what this host can do, what spoils a measurement here, and which backend will be used
    #[command(after_help = "\
Examples:
  vpmu doctor                                            what to mend before measuring, and how
  vpmu doctor --json                                     the same for a script")]
    Doctor(DoctorArgs),
    /// Make one self-contained HTML page of results: plots, tables, hosts, published figures
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// Write results in another tool's format
    #[command(after_help = export::EXAMPLES)]
    Export(ExportArgs),
    /// Print a shell's completions of this command line
    #[command(after_help = shell::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print vpmu's manual page, or write those of all commands
    #[command(after_help = shell::MAN)]
    Man(ManArgs),
}

/// Options of `vpmu reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Result documents (.json of nmi-latency) whose figures stand beside the published ones
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub measured: Vec<PathBuf>,

    /// Seed of the simulations
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// Print JSON instead of Markdown
    #[arg(long)]
    pub json: bool,
}

/// Options of `vpmu sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// A model that comes along (development-host, development-host-tracepoint, clx-ap-watchdog-on, clx-ap-watchdog-off, icx-2021) or a .toml file
    #[arg(value_name = "MODEL", default_value = crate::arm::sim::DEFAULT_MODEL)]
    pub model: String,

    /// The experiment's options.
    #[command(flatten)]
    pub experiment: NmiLatencyArgs,
}

/// Options of `vpmu doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `vpmu conformance`.
#[derive(Clone, Debug, Args)]
pub struct ConformanceArgs {
    /// Strategies to check: preset names or .toml files
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate"
    )]
    pub strategy: Vec<StrategyChoice>,

    /// What counts behind the guest's counters: auto, hardware, cpu-clock, task-clock, step or none
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// Architectural PMU versions the guest sees
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4", value_parser = parse::pmu_version)]
    pub pmu_version: Vec<u64>,

    /// Print one JSON document in place of TAP
    #[arg(long)]
    pub json: bool,

    /// Do not confine the vCPU threads to the system calls they need (for debugging)
    #[arg(long)]
    pub no_seccomp: bool,
}

/// Most vCPUs a payload has room for; KVM's own limit is checked when the VM is made.
const MAX_VCPUS: u64 = guest::abi::MAX_VCPUS as u64;

/// Options of `vpmu nmi-latency`.
#[derive(Clone, Debug, Args)]
pub struct NmiLatencyArgs {
    /// Strategies to compare: preset names or .toml files; the floor always comes along
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "recreate,reuse,reuse-lazy")]
    pub strategy: Vec<StrategyChoice>,

    /// What counts behind the guest's counters
    ///
    /// auto, hardware, cpu-clock, task-clock, tracepoint:GROUP/NAME, step, none or sim:MODEL (see vpmu sim --help). auto takes hardware where the host
    /// has a PMU, else cpu-clock, a stand-in; `vpmu doctor` says which and why.
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// What the guest samples and does: EVENTS[/WORK] or WORK
    ///
    /// EVENTS: sampling10 (ten events multiplexed on 4 general-purpose and 3 fixed counters), sampling4 (four
    /// events, restarted at each tick as by a task switch), counting1 (one counting event, restarted
    /// likewise: no NMIs, rotations are timed), single (one sampling event).
    /// WORK: ftest (a branchy loop, ring 3; the default), io (port writes, so VM exits), idle (HLT).
    /// WORK alone stands for single/WORK.
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// Events between two overflows [default: 2000000 (1 ms at 2 GHz), 100 with a tracepoint]
    ///
    /// In the backend's own unit: cycles, ns of a clock, occurrences. Event i of a set gets N × (16 + 3 i) / 16, so
    /// that stand-ins, which count every event at one rate, do not overflow all counters at once.
    #[arg(long, value_name = "N", value_parser = number_in(2..=(1 << 47) - 1), conflicts_with = "freq")]
    pub period: Option<u64>,

    /// Let the guest adjust each event's period to this sampling frequency, as perf record -F does
    #[arg(long, value_name = "HZ", value_parser = number_in(1..=100_000))]
    pub freq: Option<u64>,

    /// The guest's tick: rotation of multiplexed events, task switches
    #[arg(long, value_name = "TIME", default_value = "4ms",
          value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(10)))]
    pub mux_interval: Duration,

    /// Virtual CPUs, a thread and a vPMU each
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=MAX_VCPUS))]
    pub vcpus: u64,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7
    #[arg(long, value_name = "CPULIST")]
    pub pin: Option<CpuList>,

    /// Rounds that count; every arm runs once in each
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(1..=10_000))]
    pub rounds: u64,

    /// NMIs per arm, round and vCPU (rotations, if the workload only counts)
    #[arg(long, value_name = "N", default_value = "800", value_parser = number_in(1..=1_000_000))]
    pub samples: u64,

    /// A round's measured phase ends after this time even with fewer samples
    #[arg(long, value_name = "TIME", default_value = "1100ms",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Duration,

    /// Seed of the order of arms within each round
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,

    /// Architectural PMU version the guest sees: 2, as KVM, or 4, as Cascade Lake itself
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse::pmu_version)]
    pub pmu_version: u64,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,

    /// Folder for the results
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "vpmu-results")]
    pub output: PathBuf,

    /// Also keep the result as this baseline, in DIR/baselines/NAME, for `vpmu compare NAME NEW`
    #[arg(long, value_name = "NAME", value_parser = crate::load::check_name)]
    pub save_baseline: Option<String>,

    /// Do not write a results folder
    #[arg(long)]
    pub no_save: bool,

    /// Also write the result document to FILE, or with - or nothing to stdout, in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

impl NmiLatencyArgs {
    /// The experiment that these options specify.
    #[must_use]
    pub fn spec(&self) -> NmiLatencySpec {
        NmiLatencySpec {
            common: CommonSpec {
                strategies: self.strategy.clone(),
                backend: self.backend.clone(),
                mux_interval: self.mux_interval,
                vcpus: self.vcpus,
                pin: self.pin.clone(),
                rounds: self.rounds,
                samples: self.samples,
                time_limit: self.time_limit,
                seed: self.seed,
                pmu_version: self.pmu_version,
                seccomp: !self.no_seccomp,
                ..CommonSpec::default()
            },
            workload: self.workload,
            period: self.period,
            freq_hz: self.freq,
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// A command; `None` of [`Cli::command`] is resolved.
    Run(Command),
    /// Help or version text for stdout.
    Print(String),
}

/// Parses a command line, program name first.
///
/// # Errors
/// Usage errors, each folded into one line.
pub fn parse<I, T>(args: I) -> Result<Request, Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let args = run::as_qemu_spells(args.into_iter().map(Into::into).collect());
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Request::Print(error.to_string()));
        }
        Err(error) => return Err(usage(&error)),
    };
    let command = cli.command.unwrap_or(Command::NmiLatency(Box::new(cli.nmi_latency)));
    let json = match &command {
        Command::NmiLatency(args) => args.json.as_ref(),
        Command::StatSetup(args) => args.json.as_ref(),
        _ => None,
    };
    if let Some(file) = json
        && Cli::command().get_subcommands().any(|sub| file.as_os_str() == sub.get_name())
    {
        let name = file.display();
        return Err(Error::usage(
            format!("--json {name} would write a file named like a command"),
            "",
            format!("put the command first (vpmu {name} ...), or give ./{name}"),
        ));
    }
    Ok(Request::Run(command))
}

/// One line of clap's several: what is wrong, with which value, and where help is.
fn usage(error: &clap::Error) -> Error {
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(list)) => Some(list.join(", ")),
        Some(ContextValue::StyledStr(text)) => Some(text.to_string()),
        Some(ContextValue::StyledStrs(list)) => {
            Some(list.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        _ => None,
    };
    if error.kind() == ErrorKind::ValueValidation
        && let Some(arg) = get(ContextKind::InvalidArg)
    {
        let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let value = get(ContextKind::InvalidValue).unwrap_or_default();
        // Our own parsers say the remedy in the same breath.
        return Error::usage(format!("bad value '{value}' for {arg}"), why, "");
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let remedy = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(get)
        .map_or_else(
            || help(&get(ContextKind::Usage).unwrap_or_default()),
            |suggested| format!("did you mean {suggested}?"),
        );
    Error::usage(first, "", remedy)
}

/// Where help is, for a usage line such as `Usage: vpmu compare [OPTIONS] <BASE> <NEW>`.
fn help(usage: &str) -> String {
    let word = usage.split_whitespace().nth(2).unwrap_or_default();
    if Cli::command().get_subcommands().any(|sub| sub.get_name() == word) {
        format!("`vpmu {word} --help` lists what it takes")
    } else {
        "`vpmu --help` lists commands and options".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nmi(args: &[&str]) -> Result<NmiLatencyArgs, Error> {
        let args = std::iter::once("vpmu").chain(args.iter().copied());
        match parse(args)? {
            Request::Run(Command::NmiLatency(args)) => Ok(*args),
            other => panic!("not nmi-latency: {other:?}"),
        }
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_is_the_main_job_with_its_defaults() {
        let args = nmi(&[]).unwrap();
        assert_eq!(args.strategy.len(), 3);
        assert_eq!(args.backend, BackendChoice::Auto);
        assert_eq!(args.mux_interval, Duration::from_millis(4));
        assert_eq!(args.workload.to_string(), "single/ftest");
        assert_eq!(nmi(&["nmi-latency"]).unwrap().rounds, args.rounds);
        assert_eq!(nmi(&["--rounds", "3"]).unwrap().rounds, 3);
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        assert_eq!(nmi(&[]).unwrap().spec(), NmiLatencySpec::default());
    }

    #[test]
    fn json_goes_to_stdout_unless_a_file_is_given() {
        assert_eq!(nmi(&["--json"]).unwrap().json, Some("-".into()));
        assert_eq!(nmi(&["--json", "-"]).unwrap().json, Some("-".into()));
        assert_eq!(nmi(&["--json", "x.json"]).unwrap().json, Some("x.json".into()));
        let error = nmi(&["--json", "doctor"]).unwrap_err();
        assert!(error.to_string().contains("vpmu doctor"), "{error}");
    }

    #[test]
    fn bad_values_say_option_reason_and_range_in_one_line() {
        for (args, needles) in [
            (&["--period", "0"][..], &["--period", "0 is out of range", "2 to"][..]),
            (&["--vcpus", "0"], &["--vcpus", "1 to 64"]),
            (&["--rounds", "x"], &["--rounds", "not a whole number"]),
            (&["--mux-interval", "4"], &["--mux-interval", "unit"]),
            (&["--pin", "3-1"], &["--pin", "backwards"]),
            (&["--backend", "cycles"], &["--backend", "cpu-clock"]),
            (&["--workload", "spin"], &["--workload", "sampling10"]),
            (&["--pmu-version", "3"], &["--pmu-version", "2, 4"]),
            (&["--period", "9", "--freq", "9"], &["--freq", "cannot be used"]),
            (&["--bogus"], &["--bogus"]),
            (&["frobnicate"], &["frobnicate"]),
        ] {
            let error = nmi(args).unwrap_err();
            let line = error.to_string();
            assert_eq!(error.exit.code(), 2);
            assert!(!line.contains('\n'), "{line}");
            for needle in needles {
                assert!(line.contains(needle), "{line:?} lacks {needle:?}");
            }
        }
    }

    #[test]
    fn help_and_version_are_not_errors() {
        for (flag, needle) in [("--help", "Examples:"), ("--version", env!("CARGO_PKG_VERSION"))] {
            let Request::Print(text) = parse(["vpmu", flag]).unwrap() else { panic!() };
            assert!(text.contains(needle));
        }
    }
}
