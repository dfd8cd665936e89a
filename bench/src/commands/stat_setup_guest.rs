//! `vpmu stat-setup --in guest`.

use std::time::{Duration, Instant};

use super::nmi_latency::{Wanted, measure};
use crate::backend::{BackendChoice, Chosen};
use crate::cli::stat_setup::{Mode, StatSetupArgs};
use crate::error::{Error, Exit};
use crate::experiment::stat_guest::spec::{Enable, MAX, StatGuestSpec};
use crate::rounds::spec::CommonSpec;

pub(super) fn run(args: &StatSetupArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    let wanted = Wanted {
        backend: args.guest.backend.as_ref().unwrap_or(&BackendChoice::Auto),
        output: (!args.no_save).then_some(&args.output),
        json: args.json.as_deref(),
        baseline: None,
        quiet: args.quiet,
    };
    let spec = spec(args)?;
    let plan = |chosen: &Chosen, online: Option<&[u32]>| spec.plan(chosen, online);
    measure(&wanted, &plan, command_line, process_began)
}

/// The experiment that the options specify.
///
/// # Errors
/// Exit 2 for options of `--in host`, and bad values.
fn spec(args: &StatSetupArgs) -> Result<StatGuestSpec, Error> {
    refuse_host_options(args)?;
    let guest = &args.guest;
    let strategies = args.host.strategies.iter().map(|text| {
        text.parse().map_err(|why: String| Error::usage(format!("bad value '{text}' for --strategy <LIST>"), why, ""))
    });
    let default = StatGuestSpec::default();
    Ok(StatGuestSpec {
        common: CommonSpec {
            strategies: strategies.collect::<Result<_, _>>()?,
            backend: guest.backend.clone().unwrap_or(default.common.backend),
            mux_interval: guest.mux_interval.unwrap_or(default.common.mux_interval),
            vcpus: guest.vcpus.unwrap_or(default.common.vcpus),
            pin: guest.pin.clone(),
            rounds: args.rounds,
            warmup: default.common.warmup,
            samples: guest.samples.unwrap_or(default.common.samples),
            time_limit: guest.time_limit.unwrap_or(default.common.time_limit),
            duration: None,
            seed: args.seed,
            pmu_version: guest.pmu_version.unwrap_or(default.common.pmu_version),
            seccomp: !guest.no_seccomp,
        },
        events: event_count(&args.events)?,
        enable: guest.enable.map_or(default.enable, |enable| match enable {
            crate::cli::stat_setup_guest::Enable::Each => Enable::Each,
            crate::cli::stat_setup_guest::Enable::Once => Enable::Once,
        }),
        window_ticks: guest.window,
    })
}

fn refuse_host_options(args: &StatSetupArgs) -> Result<(), Error> {
    let host = &args.host;
    let given = [
        (host.cpus.is_some(), "--cpus", "take --vcpus and --pin"),
        (host.against.is_some(), "--against", "the guest has no perf of its own; the arm 'floor' comes along"),
        (host.scale.is_some(), "--scale", "run it again with other --events"),
        (host.count != Duration::ZERO, "--count", "take --window"),
        (host.mode != Mode::Stat, "--mode", "counters of a guest's vPMU are not mapped"),
    ];
    match given.into_iter().find(|(given, ..)| *given) {
        Some((_, option, remedy)) => Err(Error::usage(format!("{option} has no place beside --in guest"), "", remedy)),
        None => Ok(()),
    }
}

fn event_count(text: &str) -> Result<u64, Error> {
    text.trim().parse().ok().filter(|count| (1..=MAX).contains(count)).ok_or_else(|| {
        Error::usage(
            format!("bad value '{text}' for --events"),
            "the payload's driver has events of its own",
            format!("with --in guest give how many, 1 to {MAX}"),
        )
    })
}
