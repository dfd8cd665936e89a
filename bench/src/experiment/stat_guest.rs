//! `stat-setup --in guest`: `nmi-latency`'s arms and rounds, with a guest that sets events up again and again.

use std::path::PathBuf;
use std::time::Duration;

use guest::abi::{EventSpec, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, MAX_EVENTS};
use host_pmu::strategy::PRESETS;

use super::plan::Plan;
use crate::backend::{BackendArg, Chosen};
use crate::cli::NmiLatencyArgs;
use crate::cli::parse;
use crate::cli::stat_setup::{Mode, StatSetupArgs};
use crate::cli::stat_setup_guest::Enable;
use crate::error::Error;
use crate::result::{EventParameter, SetUpParameters};
use crate::workload::{EventSet, GuestWork, Workload};

/// USR, OS and INT: perf sets INT for events that only count, too.
const FLAGS: u64 = 0x13_0000;
/// Ticks from a tear-down to the next set-up.
const GAP_TICKS: u64 = 1;
/// Ticks from enabling to reading, where a tick is no rotation.
const WINDOW_TICKS: u64 = 2;
/// A guest that has not ended by itself so long after its time limit is ended: its last set-up may hold hundreds of host events
/// that take tens of ms each.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `perf stat -d` counts, the three with a fixed counter first: perf name, umask << 8 | event code, fixed counter.
const NAMED: &[(&str, u64, Option<u64>)] = &[
    ("cpu-cycles", 0x003c, Some(1)),
    ("instructions", 0x00c0, Some(0)),
    ("ref-cycles", 0x0300, Some(2)),
    ("branch-instructions", 0x00c4, None),
    ("branch-misses", 0x00c5, None),
    ("cache-references", 0x4f2e, None),
    ("cache-misses", 0x412e, None),
    ("bus-cycles", 0x013c, None),
    ("L1-dcache-loads", 0x81d0, None),
    ("L1-dcache-load-misses", 0x0151, None),
];

/// The plan of what the options ask for.
///
/// # Errors
/// Exit 2 for what does not fit together.
pub fn plan(args: &StatSetupArgs, chosen: &Chosen, online: Option<&[u32]>) -> Result<Plan, Error> {
    refuse_host_options(args)?;
    let (guest, count) = (&args.guest, event_count(&args.events)?);
    let mut plan = Plan::new(&same_options(args)?, &PRESETS, chosen, online)?;
    let (gp, fixed) = (plan.guest.gp_counters, plan.guest.fixed_counters);
    // A turn brings each event to the head of the list once.
    let multiplexed = count > gp + fixed;
    let window_ticks = guest.window.unwrap_or(if multiplexed { count + 1 } else { WINDOW_TICKS });
    let (limit, tick) = (Duration::from_nanos(plan.parameters.time_limit_ns), plan.guest.mux_interval);
    let cycle = tick * u32::try_from(window_ticks + GAP_TICKS).unwrap_or(u32::MAX);
    if cycle > limit {
        return Err(Error::usage(
            format!("one set-up takes {cycle:?}, longer than the time limit of {limit:?}"),
            format!("its events count for {window_ticks} ticks of {tick:?}"),
            "raise --time-limit, or lower --window or --mux-interval",
        ));
    }
    let enable = guest.enable.unwrap_or(Enable::Each);
    let (events, parameters): (Vec<EventSpec>, Vec<EventParameter>) = events(count).into_iter().unzip();
    plan.experiment = "stat-setup";
    plan.guest.events = events;
    plan.guest.flags = FLAG_STAT_SETUP | if enable == Enable::Once { FLAG_ENABLE_ONCE } else { 0 };
    plan.guest.freq_hz = 0;
    plan.guest.window_ticks = window_ticks;
    plan.guest.gap_ticks = GAP_TICKS;
    plan.guest.limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    plan.guest.hard_limit = limit * 2 + PATIENCE;
    plan.parameters.events = parameters;
    plan.parameters.period = 0;
    plan.parameters.workload = format!("{count} counting event{}/ftest", if count == 1 { "" } else { "s" });
    plan.parameters.set_up =
        Some(SetUpParameters { enable: enable.key().to_owned(), window_ticks, gap_ticks: GAP_TICKS });
    let lines = crate::runner::log_entries(&plan.guest, plan.samples);
    if lines > vmm::boot::layout::MAX_LOG {
        return Err(Error::usage(
            format!("{} set-ups of {count} events do not fit the guest's log", plan.samples),
            format!("they are {lines} lines, and it has {}", vmm::boot::layout::MAX_LOG),
            "take fewer --samples and more --rounds",
        ));
    }
    Ok(plan)
}

/// The options that both experiments have, as `nmi-latency`'s.
fn same_options(args: &StatSetupArgs) -> Result<NmiLatencyArgs, Error> {
    let guest = &args.guest;
    let strategies = args.host.strategies.iter().map(|text| {
        parse::strategy(text).map_err(|why| Error::usage(format!("bad value '{text}' for --strategy <LIST>"), why, ""))
    });
    Ok(NmiLatencyArgs {
        strategy: strategies.collect::<Result<_, _>>()?,
        backend: guest.backend.clone().unwrap_or(BackendArg::Auto),
        // It counts: no NMIs are waited for.
        workload: Workload { events: EventSet::Counting1, work: GuestWork::Ftest },
        period: None,
        freq: None,
        mux_interval: guest.mux_interval.unwrap_or(Duration::from_millis(1)),
        vcpus: guest.vcpus.unwrap_or(1),
        pin: guest.pin.clone(),
        rounds: args.rounds,
        samples: guest.samples.unwrap_or(40),
        time_limit: guest.time_limit.unwrap_or(Duration::from_secs(2)),
        seed: args.seed,
        pmu_version: guest.pmu_version.clone().unwrap_or_else(|| "2".to_owned()),
        no_seccomp: guest.no_seccomp,
        output: PathBuf::new(),
        no_save: true,
        save_baseline: None,
        json: None,
        quiet: args.quiet,
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
    let most = MAX_EVENTS as u64;
    text.trim().parse().ok().filter(|count| (1..=most).contains(count)).ok_or_else(|| {
        Error::usage(
            format!("bad value '{text}' for --events"),
            "the payload's driver has events of its own",
            format!("with --in guest give how many, 1 to {most}"),
        )
    })
}

/// The first so many events; beyond those with a name, raw ones that differ from each other.
fn events(count: u64) -> Vec<(EventSpec, EventParameter)> {
    let raw = (0..).map(|n| (format!("r{n:02x}d1"), n << 8 | 0xd1, None));
    let named = NAMED.iter().map(|&(name, code, fixed)| (name.to_owned(), code, fixed));
    named
        .chain(raw)
        .zip(0..count)
        .map(|((name, code, fixed_counter), _)| {
            let selector = code | FLAGS;
            let spec = EventSpec { selector, fixed: fixed_counter.map_or(0, |n| n + 1), period: 0 };
            (spec, EventParameter { name, selector: format!("{selector:#x}"), fixed_counter, period: 0 })
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::cli::{Command, Request, parse};

    pub(crate) fn args(line: &[&str]) -> StatSetupArgs {
        let all = ["vpmu", "stat-setup", "--in", "guest"].iter().chain(line);
        match parse(all).unwrap() {
            Request::Run(Command::StatSetup(args)) => *args,
            other => panic!("not stat-setup: {other:?}"),
        }
    }

    pub(crate) fn plan_of(line: &[&str]) -> Result<Plan, Error> {
        let chosen = Chosen { backend: BackendKey::CpuClock, why: String::new() };
        plan(&args(line), &chosen, Some(&[0, 1]))
    }

    #[test]
    fn the_defaults_are_a_guests() {
        let plan = plan_of(&[]).unwrap();
        assert_eq!((plan.experiment, plan.guest.events.len(), plan.rounds, plan.samples), ("stat-setup", 10, 5, 40));
        let names: Vec<_> = plan.arms.iter().map(|arm| arm.strategy.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "deferred", "pool", "floor", "kvm"]);
        // A set-up on the development host takes 25 ms: a minute, and without running into the limit.
        let runs = (plan.arms.len() as u64 - 1) * (plan.rounds + 1);
        assert!(plan.samples * 25 * runs < 55_000 && plan.guest.limit_us > plan.samples * 25_000);
    }

    #[test]
    fn more_events_than_counters_are_given_a_turn() {
        let window = |line: &[&str]| plan_of(line).unwrap().guest.window_ticks;
        assert_eq!((window(&["--events", "7"]), window(&["--events", "8"])), (2, 9));
        assert_eq!(window(&["--events", "20", "--window", "3"]), 3);
    }

    #[test]
    fn events_differ_and_the_first_seven_fit_the_counters() {
        let all = events(MAX_EVENTS as u64);
        let mut selectors: Vec<_> = all.iter().map(|(spec, _)| spec.selector).collect();
        selectors.sort_unstable();
        selectors.dedup();
        assert_eq!(selectors.len(), MAX_EVENTS);
        assert_eq!(all[..7].iter().filter(|(spec, _)| spec.fixed > 0).count(), 3);
        assert_eq!((all[10].1.name.as_str(), all[10].0.selector & 0xffff), ("r00d1", 0x00d1));
        assert_eq!((all[11].1.name.as_str(), all[11].0.selector & 0xffff), ("r01d1", 0x01d1));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (line, needle) in [
            (&["--events", "0"][..], "1 to 64"),
            (&["--events", "65"], "1 to 64"),
            (&["--events", "cycles,instructions"], "driver has events of its own"),
            (&["--strategy", "auto"], "unknown strategy 'auto'"),
            (&["--strategy", ","], "empty name"),
            (&["--cpus", "0"], "--vcpus"),
            (&["--scale", "100,200"], "--scale has no place"),
            (&["--against", "perf"], "--against has no place"),
            (&["--count", "1s"], "--window"),
            (&["--vcpus", "2", "--pin", "0"], "1 CPUs for 2 vCPUs"),
            (&["--pin", "5"], "not online"),
            (&["--events", "64", "--samples", "10000"], "do not fit the guest's log"),
            (&["--mux-interval", "1500ms"], "shorter than two ticks"),
            (&["--mux-interval", "1s"], "one set-up takes 12s"),
        ] {
            let error = plan_of(line).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }

    #[test]
    fn an_option_of_the_guest_is_known_to_be_given() {
        assert_eq!(args(&[]).guest.given(), None);
        for line in [
            &["--backend", "none"][..],
            &["--enable", "once"],
            &["--window", "3"],
            &["--mux-interval", "2ms"],
            &["--vcpus", "2"],
            &["--pin", "0"],
            &["--samples", "5"],
            &["--time-limit", "1s"],
            &["--pmu-version", "4"],
            &["--no-seccomp"],
        ] {
            assert_eq!(args(line).guest.given(), Some(line[0]));
        }
    }
}
