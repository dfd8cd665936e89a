//! `vpmu guest-stat`.

use clap::{Args, Command, ValueEnum};
use results::error::{Error, Exit};

use super::baseline::BaselineOptions;
use super::measure::{Invocation, Wanted, measure};
use super::options::{ArmsOptions, HostOptions, ResultOptions};
use crate::experiment::guest_stat::spec::{self, GuestStatSpec, MAX};
use crate::parse::number_in;

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

/// How a set-up enables its events.
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

    /// Number of counting events; the payload's driver has its own list
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(1..=MAX), help_heading = "Guest")]
    pub events: u64,

    /// How a set-up enables its events
    #[arg(long, value_enum, default_value = "each", help_heading = "Guest")]
    pub enable: Enable,

    /// Ticks from enabling events to reading them [default: 2; where they are multiplexed a whole turn of the rotation]
    #[arg(long, value_name = "TICKS", value_parser = number_in(1..=10_000), help_heading = "Guest")]
    pub window: Option<u64>,

    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultOptions,

    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

/// Gives the shared options the defaults of this experiment.
pub(super) fn defaults(command: Command) -> Command {
    command
        .mut_arg("strategy", |arg| arg.default_value("recreate,reuse,reuse-lazy,deferred,pool"))
        .mut_arg("mux_interval", |arg| {
            arg.default_value("1ms").help("The guest's tick: rotation of multiplexed events")
        })
        .mut_arg("vcpus", |arg| arg.help("Virtual CPUs; each sets its events up for itself"))
        .mut_arg("rounds", |arg| arg.default_value("5").help("Rounds that count; every arm runs once in each"))
        .mut_arg("samples", |arg| arg.default_value("40").help("Set-ups per arm, round and vCPU"))
        .mut_arg("time_limit", |arg| {
            arg.default_value("2s").help("In a round no set-up begins after this time, even with fewer samples")
        })
}

fn spec(args: &GuestStatArgs) -> GuestStatSpec {
    GuestStatSpec {
        common: args.arms.spec(Some(&args.host)),
        events: args.events,
        enable: match args.enable {
            Enable::Each => spec::Enable::Each,
            Enable::Once => spec::Enable::Once,
        },
        window_ticks: args.window,
    }
}

pub(super) fn run(args: &GuestStatArgs, invocation: Invocation) -> Result<Exit, Error> {
    let spec = spec(args);
    let baseline = args.baseline.baseline(&args.result);
    let wanted = Wanted { backend: &spec.common.backend, result: &args.result, baseline };
    measure(&wanted, &|chosen, usable| spec.plan(chosen, usable), invocation)
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
        assert_eq!(spec(&parsed(&[])), GuestStatSpec::default());
    }

    #[test]
    fn its_own_options_reach_the_specification() {
        let found = spec(&parsed(&["--events", "20", "--enable", "once", "--window", "3", "--samples", "7"]));
        assert_eq!((found.events, found.enable, found.window_ticks), (20, spec::Enable::Once, Some(3)));
        assert_eq!(found.common.samples, 7);
    }
}
