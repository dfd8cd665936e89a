//! The command line as a whole: its commands, their help, and what carries each out.

use std::ffi::OsString;

use clap::builder::{Resettable, StyledStr};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use results::error::{Error, Exit};
use results::table::layout::columns;
use results::table::wrapped;

use super::end::{ended, for_bisect};
use super::{
    ab, advise, calibrate, compare, conformance, export, fleet, guest_stat, history, nmi_latency, report, reproduce,
    show, stat_setup, sweep, triage, usage,
};
use crate::arms::arm::sim;
use crate::arms::rounds::options::ArmsOptions;
use crate::experiment::sweep::grid;
use crate::inspect::doctor;
use crate::inspect::guest::{GuestSpec, alone};
use crate::inspect::record::guests;
use crate::inspect::record::spec::RecordSpec;
use crate::inspect::run::RunSpec;
use crate::inspect::trace::{self, TraceCommand};
use crate::machine::linux::spec::LinuxSpec;
use crate::setting::backend::BackendChoice;
use crate::setting::options::JsonOption;
use crate::setting::parse::refused;
use crate::setting::process::VERSION;
use crate::setting::strategy;
use crate::sys::fail_large_writes;
use crate::terminal::console::{print, print_output};

/// Measure what each way of backing a guest's PMU with host perf events costs
///
/// Runs a small guest on KVM with a PMU that is emulated in userspace. Behind each of its counters a strategy keeps a host perf
/// event, or none; the guest measures how long its NMI handler takes.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "vpmu",
    version = VERSION,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    max_term_width = 80
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `nmi-latency`, the default command.
    #[command(flatten)]
    pub nmi_latency: nmi_latency::NmiLatencyArgs,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Compare strategies by guest NMI handler latency
    ///
    /// Every arm (each strategy, and the floor: the same guest without host events, PMIs raised by a timer) runs once per round,
    /// in random order from the seed, after warm-up rounds that are not counted. Writes DIR/nmi-latency-TIME.json, and a table on
    /// stdout.
    NmiLatency(Box<nmi_latency::NmiLatencyArgs>),
    /// Advise which strategy to take, on this host or modelled ones
    ///
    /// Runs the presets and strategies of your own on one or several workloads until the order is sure or the time is up. Prints the
    /// choice, how far from the fastest it may be and how sure it is, then the table of all. Writes a result as of nmi-latency for each
    /// workload and host.
    Advise(Box<advise::AdviseArgs>),
    /// Compare strategies on a simulated host
    ///
    /// The same experiment as nmi-latency, with the same vPMU and strategies, on a simulated host, guest and clock. One seed gives
    /// the same figures on any machine.
    Sim(Box<nmi_latency::SimArgs>),
    /// Measure this host's costs, and write a simulator's model of it
    ///
    /// Runs real guests with one event and with ten, under recreate, reuse, gate, virtual and no host events at all, and shows their
    /// latencies beside those of the model.
    Calibrate(Box<calibrate::CalibrateArgs>),
    /// Simulate a grid of experiments; list the strategies none beats
    ///
    /// Model × cost × workload × vCPUs × CPUs × slice × seed: the strategies are the arms of each point. A point becomes one line of
    /// DIR/sweep.jsonl as soon as it is done; a killed sweep goes on where it stopped. At the end: a table of latency, opens,
    /// operations and host events held for each scenario. The file's bytes depend on neither threads nor interruptions.
    Sweep(Box<sweep::SweepArgs>),
    /// Judge whether NEW is slower than BASE
    ///
    /// BASE and NEW are result documents, folders of them, or names of baselines (--save-baseline NAME).
    Compare(Box<compare::CompareArgs>),
    /// Judge NEW against BASE, two builds, by processes in turns
    ///
    /// A process of BASE runs six rounds of every arm, then one of NEW, or the other way round, again and again, so that both meet
    /// the same host. The ratios are those of neighbouring processes.
    Ab(Box<ab::AbArgs>),
    /// Run a plan of many experiments, here or on many hosts by Slurm
    ///
    /// A plan has experiments, hosts, variants and repetitions. Its elements run once each; what is stopped or lost runs again with
    /// the next submission.
    #[command(subcommand, disable_help_subcommand = true)]
    Fleet(fleet::FleetCommand),
    /// Find where a folder of results changed over time
    History(Box<history::HistoryArgs>),
    /// Compare published figures with simulated ones, or measure them
    Reproduce(Box<reproduce::ReproduceArgs>),
    /// Check the vPMU against the architectural rules from a guest
    ///
    /// Prints TAP. Stand-in backends check start, stop and overflow only, not counts; `--backend step`
    /// single-steps the guest and checks every count exactly, in seconds to minutes.
    Conformance(Box<conformance::ConformanceArgs>),
    /// Boot a third-party image by multiboot 1 or PVH
    ///
    /// Its serial port (0x3f8) goes to stdout. A 32-bit OUT to port 0xf4 ends the run, as in kvm-unit-tests.
    Run(Box<RunSpec>),
    /// Boot a distribution's Linux kernel, with programs of this host
    ///
    /// The kernel is the distribution's own, unpacked in memory; its PMU driver and stock perf work on the userspace vPMU. Its shell
    /// runs one command.
    Linux(Box<LinuxSpec>),
    /// Record where a guest spends its time, as a perf.data file
    ///
    /// A host event samples the thread of each vCPU; the VMM takes the guest's registers and its call chain from the guest's memory. Stock
    /// perf reads the file.
    #[command(override_usage = "vpmu record [OPTIONS] -- <payload|run|linux> [...]", disable_help_subcommand = true)]
    Record(Box<RecordSpec>),
    /// Trace what guests do to their PMUs, for `vpmu sim --trace`
    ///
    /// Each register access, PMI, overflow, signal, entry and slice of a guest goes into a folder of CSV segments, which DuckDB and
    /// pandas read as well.
    #[command(subcommand, disable_help_subcommand = true)]
    Trace(TraceCommand),
    /// Time setting up N perf events on M CPUs, beside stock perf
    ///
    /// Each arm opens, enables, reads, disables and closes the same events in the same order of phases, once per round,
    /// in random order from the seed. Writes DIR/stat-setup-TIME.json, and a table on stdout.
    StatSetup(Box<stat_setup::StatSetupArgs>),
    /// Time setting up N perf events in the payload, on its vPMU
    ///
    /// Every arm sets its events up again and again: program, enable, count, disable, read, release. Each phase and each call is
    /// timed in the guest. Writes DIR/guest-stat-TIME.json, and a table on stdout.
    GuestStat(Box<guest_stat::GuestStatArgs>),
    /// Find what holds a workload up, and the fix
    ///
    /// Counts the events of a workload with a known bottleneck against an idle baseline, samples it by the event that explains most, and
    /// runs a variant without the bottleneck beside it. On this host, without a guest.
    Triage(Box<triage::TriageArgs>),
    /// Run one of the workloads that triage knows, and print what it did
    #[command(hide = true)]
    Workload(Box<triage::WorkloadArgs>),
    /// Report what this host can do, and what disturbs a measurement
    Doctor(JsonOption),
    /// List strategies, models, workloads, metrics, events, schemas
    Show(Box<show::ShowArgs>),
    /// Make one HTML page of results: plots, tables, hosts
    Report(Box<report::ReportArgs>),
    /// Write results in another tool's format
    Export(Box<export::ExportArgs>),
}

/// A command line that was understood.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// A command; `None` of [`Cli::command`] is resolved.
    Run(Command),
    /// Help or version text for stdout.
    Print(String),
}

/// Parses a command line, program name first.
///
/// # Errors
/// Usage errors, each folded into one line.
pub fn parse(args: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Parsed, Error> {
    let args = usage::as_perf_spells(args.into_iter().map(Into::into).collect());
    let found = definition().try_get_matches_from(&args).and_then(|found| Cli::from_arg_matches(&found));
    // The last one of any other option counts.
    let has_one = matches!(found, Ok(Cli { command: None | Some(Command::NmiLatency(_) | Command::Sim(_)), .. }));
    if has_one && args.iter().filter(|word| usage::is_workload(&word.to_string_lossy())).count() > 1 {
        let remedy = "`vpmu advise --workload LIST` takes several";
        return Err(Error::usage("--workload is given twice", "a run has one workload", remedy));
    }
    match found {
        Ok(Cli { command, nmi_latency: own }) => Ok(Parsed::Run(command.unwrap_or(Command::NmiLatency(Box::new(own))))),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Parsed::Print(error.to_string()))
        }
        Err(error) => Err(refused(&error)),
    }
}

/// The commands of the root's help. Options of the main job are in that of `vpmu nmi-latency`.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Compare strategies", &["nmi-latency", "advise", "sim", "sweep", "reproduce", "guest-stat", "stat-setup"]),
    ("Guests", &["linux", "run", "record", "trace", "conformance"]),
    ("Workshop", &["compare", "ab", "history", "fleet", "report", "export", "calibrate", "triage", "doctor", "show"]),
];

/// Examples and exit codes of each command, the tool's own first: `== NAME`, then their lines.
const HELP: &str = include_str!("help.txt");

/// Returns what stands below a command's options.
fn after_help(command: &str) -> &'static str {
    let section = |part: &'static str| part.split_once('\n').filter(|(name, _)| *name == command);
    HELP.split("\n== ").find_map(section).map_or("", |(_, text)| text.trim_end())
}

/// Leaves of "[default: A; of COMMAND,.. B; with Linux C]" in the help of options what holds in this command, or in the one that it is
/// part of.
fn with_own_defaults(command: clap::Command, part_of: &str) -> clap::Command {
    let name = command.get_name().to_owned();
    let has = |option: &str| command.get_arguments().any(|arg| arg.get_id() == option);
    let mut lacks = vec![("guest", "with Linux"), ("backend", "with a tracepoint")];
    lacks.retain(|(option, _)| !has(option));
    let own = |text: &StyledStr| {
        let text = text.to_string();
        let split = text.split_once("[default: ").and_then(|(about, rest)| Some((about, rest.split_once(']')?)));
        let Some((about, (defaults, rest))) = split else { return text };
        let (of, all): (Vec<&str>, Vec<&str>) = defaults.split("; ").partition(|part| part.starts_with("of "));
        let own = of.iter().find_map(|part| {
            let (names, value) = part[3..].split_once(' ')?;
            names.split(',').any(|one| one == name || one == part_of).then_some(value)
        });
        let all =
            all.iter().skip(own.iter().count()).filter(|part| !lacks.iter().any(|(_, lack)| part.starts_with(lack)));
        let shown: Vec<&str> = own.iter().chain(all).copied().collect();
        format!("{about}[default: {}]{rest}", shown.join("; "))
    };
    let command = command.mut_args(|arg| {
        let helps = [arg.get_help().map(own), arg.get_long_help().map(own)];
        let [help, long] = helps.map(|help| Resettable::from(help.map(StyledStr::from)));
        arg.help(help).long_help(long)
    });
    command.mut_subcommands(|one| with_own_defaults(one, &name))
}

/// Returns the definition of the command line.
pub fn definition() -> clap::Command {
    let command = Cli::command().after_help(after_help("vpmu")).mut_subcommand("advise", advise::with_defaults);
    let command = command.mut_subcommands(|command| {
        let help = after_help(command.get_name());
        with_own_defaults(command.after_help(help), "")
    });
    let (mut help, width) = ("{about-with-newline}\n{usage-heading} {usage}\n".to_owned(), columns().min(80));
    for (group, names) in GROUPS {
        help += &["\n", group, ":\n"].concat();
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let line = format!("  {name:<11}  {}", about.map(ToString::to_string).unwrap_or_default());
            help += &(wrapped(&line, width, &" ".repeat(15)) + "\n");
        }
    }
    help += include_str!("options.txt");
    command.help_template(help)
}

/// Carries out a command line, program name first.
///
/// # Errors
/// Everything that ends it early, with the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    fail_large_writes();
    let args: Vec<OsString> = args.into_iter().collect();
    let command_line: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    // `git bisect run` takes an exit of 2 for a bad revision.
    let exit = |error: &Error| for_bisect(command_line.iter().any(|word| word == "--bisect"), error.exit);
    let command = match parse(args).map_err(|error| Error { exit: exit(&error), ..error })? {
        Parsed::Print(text) => return print(&text).map(|()| Exit::Done),
        Parsed::Run(command) => command,
    };
    let found = match command {
        Command::NmiLatency(args) => nmi_latency::run(&args, &command_line),
        Command::Sim(args) => nmi_latency::run_simulated(&args, &command_line),
        Command::Advise(args) => advise::run(&args, &command_line),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Ab(args) => ended("vpmu ab", &args.gate, ab::run(&args, &command_line)),
        Command::Compare(args) => ended("vpmu compare", &args.gate, compare::run(&args)),
        Command::Fleet(command) => fleet::run(&command, &check),
        Command::History(args) => history::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Run(args) => alone(GuestSpec::Run(args)),
        Command::Linux(args) => alone(GuestSpec::Linux(args)),
        Command::Record(args) => guests::record(&args),
        Command::Trace(TraceCommand::Record(options)) => trace::record(&options),
        Command::Trace(TraceCommand::Import(options)) => trace::import(&options),
        Command::StatSetup(args) => stat_setup::run(&args, &command_line),
        Command::GuestStat(args) => guest_stat::run(&args, &command_line),
        Command::Triage(args) => triage::run(&args, &command_line),
        Command::Workload(args) => triage::run_workload(&args),
        Command::Doctor(JsonOption { json }) => doctor::run(json),
        Command::Show(args) => show::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Export(args) => export::run(&args),
    };
    print_output(show::schema_of(&command_of(&command_line)), *found.as_ref().unwrap_or_else(|error| &error.exit))?;
    found
}

/// Names the command of a line, of fleet with its own.
fn command_of(words: &[String]) -> String {
    let depth = if words.get(1).is_some_and(|word| word == "fleet") { 2 } else { 1 };
    words.iter().skip(1).take(depth).map(String::as_str).collect::<Vec<_>>().join("-")
}

/// Checks a command line, program name first. Files are not looked for: where the command runs may be another folder.
fn check(line: Vec<String>) -> Result<(), Error> {
    let Parsed::Run(command) = parse(line)? else { return Ok(()) };
    let names = |arms: &ArmsOptions, backend: &BackendChoice| {
        strategy::check_names(&arms.strategy)?;
        if let BackendChoice::Sim(model) = backend { sim::check_name(model) } else { Ok(()) }
    };
    match command {
        Command::NmiLatency(args) => names(&args.spec.arms, &args.host.behind.backend),
        Command::GuestStat(args) => names(&args.spec.arms, &args.host.behind.backend),
        Command::Sim(args) => names(&args.sim.spec.arms, &BackendChoice::Sim(args.sim.model.clone())),
        Command::Sweep(args) => grid::check(&args.keys),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_plan_is_checked_to_its_names() {
        let check =
            |line: &[&str]| check(std::iter::once("vpmu").chain(line.iter().copied()).map(str::to_owned).collect());
        for (line, needle) in [
            (&["nmi-latency", "--strategy", "reues"][..], "unknown strategy 'reues'"),
            (&["nmi-latency", "--backend", "sim:hots"], "no model 'hots'"),
            (&["sim", "no-model"], "no model 'no-model'"),
            (&["guest-stat", "--strategy", "reues"], "unknown strategy"),
            (&["stat-setup", "--strategy", "reues"], "reues"),
            (&["sweep", "stratgy=reuse"], "a similar argument exists: '--strategy'"),
            (&["sweep", "model=mine.toml", "vcpus=0"], "0 is out of range"),
            (&["sweep", "strategy=reuse,mine.toml,reues"], "unknown strategy 'reues'"),
            (&["nmi-latency", "--rond", "3"], "--rond"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
        // A file is looked for where the command runs.
        check(&["sim", "elsewhere.toml", "--strategy", "reuse,mine.toml"]).unwrap();
        check(&["sweep", "model=elsewhere.toml", "strategy=mine.toml"]).unwrap();
        check(&["nmi-latency", "--guest", "linux", "--kernel", "vmlinuz"]).unwrap();
    }

    #[test]
    fn the_roots_help_fits_two_screens_and_has_each_command_once() {
        let text = definition().render_long_help().to_string();
        assert!(text.lines().count() <= 100 && !text.contains(" \n"), "{text}");
        for command in definition().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let of = GROUPS.iter().flat_map(|(_, names)| *names).filter(|shown| **shown == name);
            assert_eq!(of.count(), 1, "{name}");
        }
    }

    /// Each command's help fits a terminal, teaches by examples that are command lines of this tool, and ends with its exit codes,
    /// which are part of the interface.
    #[test]
    fn help_has_examples_that_parse_and_exit_codes() {
        let mut command = definition().term_width(80);
        command.build();
        let is_ours = |command: &&clap::Command| !command.is_hide_set() && command.get_name() != "help";
        let shown = command.get_subcommands().filter(is_ours);
        for command in std::iter::once(&command).chain(shown) {
            let name = command.get_name();
            let text = command.clone().term_width(80).render_long_help().to_string();
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{name}");
            let after = command.get_after_help().unwrap_or_else(|| panic!("{name} has no examples")).to_string();
            let long = after.lines().find(|line| line.chars().count() > 60);
            assert_eq!(long, None, "{name}");
            let (examples, codes) = after.split_once("\nExit codes: 0 ").unwrap_or_else(|| panic!("{name}: {after}"));
            assert!(codes.replace('\n', " ").ends_with("70 a bug of vpmu."), "{name}: {codes}");
            assert!(examples.starts_with("Examples:\n  "), "{name}");
            for line in examples.replace("\\\n", " ").lines().map(str::trim).filter(|line| line.starts_with("vpmu")) {
                let found = parse(words(line));
                assert!(found.is_ok(), "{line}: {:?}", found.err());
            }
        }
    }

    /// Words of a shell's line up to a pipe or redirection; single quotes keep spaces.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.take_while(|word| word != "|" && !word.trim_start_matches('2').starts_with('>')).collect()
    }
}
