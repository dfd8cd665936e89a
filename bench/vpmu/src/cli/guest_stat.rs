//! `vpmu guest-stat`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Command, ValueEnum};
use results::error::{Error, Exit};

use super::baseline::BaselineOptions;
use super::linux_guest::{self, GuestKind, LinuxGuestOptions};
use super::measure::{Invocation, Wanted, measure};
use super::nmi_latency::estimated;
use super::options::{ArmsOptions, HostOptions, ResultOptions};
use crate::arms::linux::job::Kind;
use crate::experiment::guest_stat::spec::{self, GuestStatSpec, MAX, MAX_LINUX};
use crate::setting::backend::Chosen;
use crate::setting::parse::number_in;
use crate::sys::interrupted;

pub(super) const EXAMPLES: &str = "\
Examples:
  # ten events, five strategies and the floor, half a minute
  vpmu guest-stat
  vpmu guest-stat --events 20 --vcpus 2 --pin 0,1
  # as perf stat COMMAND, not perf stat -a
  vpmu guest-stat --events 7 --enable once
  # a simulated host, a second
  vpmu guest-stat --backend sim:clx-ap-watchdog-off
  # where creating an event takes tens of ms
  vpmu guest-stat --events 1 --samples 5 --rounds 2 \\
    --backend tracepoint:kvm/kvm_userspace_exit

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
4 the host cannot do it, 70 a bug of vpmu.";

/// Order in which a set-up enables its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enable {
    /// Each event by a call of its own, as `perf stat -a`: the counters are re-scheduled each time
    Each,
    /// All of them by one re-scheduling, as enable_on_exec for `perf stat COMMAND`
    Once,
}

/// Options of `vpmu guest-stat`.
#[derive(Clone, Debug, Args)]
pub struct GuestStatArgs {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,

    /// Number of counting events, or several numbers: a result for each
    ///
    /// The payload's driver takes up to 64, perf in a Linux guest up to 700.
    #[arg(long, value_name = "LIST", default_value = "10", value_delimiter = ',', value_parser = number_in(1..=MAX_LINUX),
          help_heading = "Guest")]
    pub events: Vec<u64>,

    /// How a set-up enables its events
    #[arg(long, value_enum, default_value = "each", help_heading = "Guest")]
    pub enable: Enable,

    /// Ticks from enabling events to reading them [default: 2; where they are multiplexed a whole turn of the rotation]
    #[arg(long, value_name = "TICKS", value_parser = number_in(1..=10_000), help_heading = "Guest")]
    pub window: Option<u64>,

    /// The kind of guest.
    #[command(flatten)]
    pub linux: LinuxGuestOptions,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,

    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

/// Gives the shared options the defaults of this experiment.
pub(super) fn defaults(command: Command) -> Command {
    let command = command
        .mut_arg("strategy", |arg| arg.default_value("recreate,reuse,reuse-lazy,deferred,pool"))
        .mut_arg("mux_interval", |arg| {
            arg.default_value("1ms").help("The guest's tick: rotation of multiplexed events")
        })
        .mut_arg("vcpus", |arg| arg.help("Virtual CPUs; each sets its events up for itself"))
        .mut_arg("rounds", |arg| arg.default_value("5").help("Rounds that count; every arm runs once in each"))
        .mut_arg("samples", |arg| arg.default_value("40").help("Set-ups per arm, round and vCPU"))
        .mut_arg("time_limit", |arg| {
            arg.default_value("2s").help("In a round no set-up begins after this time, even with fewer samples")
        });
    linux_guest::defaults(
        command,
        &[
            ("rounds", "3"),
            ("warmup", "0"),
            ("samples", "10"),
            ("time_limit", "60s"),
            ("mux_interval", "4ms"),
            ("enable", "once"),
        ],
    )
}

/// Builds the specification with so many events.
fn spec(args: &GuestStatArgs, events: u64) -> GuestStatSpec {
    GuestStatSpec {
        common: args.arms.spec(Some(&args.host)),
        events,
        enable: match args.enable {
            Enable::Each => spec::Enable::Each,
            Enable::Once => spec::Enable::Once,
        },
        window_ticks: args.window,
    }
}

/// Estimates the time that these options take; `None`: unknown.
pub(super) fn estimate(args: &GuestStatArgs) -> Option<Duration> {
    if args.linux.guest == GuestKind::Linux {
        return None;
    }
    let each = args.events.iter().map(|&events| {
        let spec = spec(args, events);
        estimated(&spec.common, |chosen| spec.plan(chosen, None))
    });
    each.sum()
}

pub(super) fn run(args: &GuestStatArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let linux = args.linux.job(Kind::SetUp)?;
    if linux.is_some() && (args.enable == Enable::Each || args.window.is_some()) {
        return Err(Error::usage(
            "--enable each and --window are not for a Linux guest",
            "its perf stat enables all events at once, and counts a program that does nothing",
            "leave them out",
        ));
    }
    let most = if linux.is_some() { MAX_LINUX } else { MAX };
    if let Some(events) = args.events.iter().find(|&&events| events > most) {
        return Err(Error::usage(format!("{events} events"), "", format!("give 1 to {most}")));
    }
    if args.events.len() > 1 && args.baseline.baseline(&args.result).is_some() {
        return Err(Error::usage(
            format!("a baseline of {} numbers of events", args.events.len()),
            "a baseline has one document",
            "give one number with --events",
        ));
    }
    let mut first = Exit::Done;
    for &events in &args.events {
        // The payload's boot page has room for MAX events; Linux's list is set below.
        let mut spec = spec(args, events.min(MAX));
        spec.common.cpu = args.linux.cpu.cpu();
        let plan = |chosen: &Chosen, usable: Option<&[u32]>| {
            let mut plan = spec.plan(chosen, usable)?;
            if let Some(job) = &linux {
                plan.parameters.events = spec::event_parameters(events, spec.common.cpu.vendor());
                plan.parameters.workload = spec::workload(events);
                job.adapt(&mut plan, spec::WORKLOAD)?;
            }
            Ok(plan)
        };
        let baseline = args.baseline.baseline(&args.result);
        let wanted = Wanted { backend: &spec.common.backend, linux: linux.as_ref(), result: &args.result, baseline };
        let exit = measure(&wanted, &plan, invocation.clone())?;
        if first == Exit::Done {
            first = exit;
        }
        if interrupted().load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn parsed(line: &[&str]) -> GuestStatArgs {
        let command = defaults(GuestStatArgs::augment_args(Command::new("guest-stat").no_binary_name(true)));
        GuestStatArgs::from_arg_matches(&command.get_matches_from(line)).unwrap()
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        let args = parsed(&[]);
        assert_eq!(spec(&args, args.events[0]), GuestStatSpec::default());
    }

    #[test]
    fn its_own_options_reach_the_specification() {
        let args = parsed(&["--events", "20,7", "--enable", "once", "--window", "3", "--samples", "7"]);
        assert_eq!(args.events, [20, 7]);
        let found = spec(&args, args.events[0]);
        assert_eq!((found.events, found.enable, found.window_ticks), (20, spec::Enable::Once, Some(3)));
        assert_eq!(found.common.samples, 7);
    }
}
