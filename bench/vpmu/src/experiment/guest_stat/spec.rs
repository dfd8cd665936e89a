//! The specification of `guest-stat`, and its plan.

use std::time::Duration;

use arch_pmu::spec::Vendor;
use clap::{Args, Command, ValueEnum};
use guest::abi::{FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, MAX_EVENTS};
use vmm::boot::layout::MAX_LOG;

use crate::arms::arm::real::log_entries;
use crate::arms::linux::spec as linux;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::{GuestTask, Plan};
use crate::setting::backend::Chosen;
use crate::setting::parse::number_in;
use crate::setting::workload::{EventSet, GuestWork, INT, Workload, hardware_event, parameter};
use results::document::{EventParameter, GUEST_STAT, SetUpParameters};
use results::error::Error;

/// The experiment's name in documents; their `place` is "guest".
pub const NAME: &str = GUEST_STAT;
/// Most events of a guest.
pub const MAX: u64 = MAX_EVENTS as u64;
/// Most events of a Linux guest's perf.
pub const MAX_LINUX: u64 = 700;
/// It counts: the guest waits for no NMIs.
pub const WORKLOAD: Workload = Workload { events: EventSet::Counting1, work: GuestWork::Ftest };
/// Ticks from a tear-down to the next set-up.
const GAP_TICKS: u64 = 1;
/// Ticks from enabling to reading, where a tick is no rotation.
const WINDOW_TICKS: u64 = 2;
/// Rounds where the run has a bound, and no number of rounds is given.
const BOUNDED_ROUNDS: u64 = 10;
/// Time beyond its limit after which a guest is ended: its last set-up may hold hundreds of host events that take tens of ms each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events of `perf stat -d`, the three with a fixed counter first.
const NAMED: [&str; 10] = [
    "cpu-cycles",
    "instructions",
    "ref-cycles",
    "branch-instructions",
    "branch-misses",
    "cache-references",
    "cache-misses",
    "bus-cycles",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
];

/// Order in which a set-up enables its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enable {
    /// Each event by a call of its own, as `perf stat -a`: the counters are re-scheduled each time
    Each,
    /// All of them by one re-scheduling, as enable_on_exec for `perf stat COMMAND`
    Once,
}

/// Options of `vpmu guest-stat`, apart from the host and from where the result goes. A sample is one set-up.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct GuestStatSpec {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,

    /// Number of counting events, or several numbers: a result for each
    ///
    /// The payload's driver takes up to 64, perf in a Linux guest up to 700.
    #[arg(long, value_name = "LIST", default_value = "10", value_delimiter = ',', value_parser = number_in(1..=MAX_LINUX),
          display_order = 1)]
    pub events: Vec<u64>,

    /// Way in which a set-up enables its events
    #[arg(long, value_enum, default_value = "each", help_heading = "Guest")]
    pub enable: Enable,
}

/// Gives the shared options the defaults of this experiment.
pub fn other_defaults(command: Command) -> Command {
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
    linux::other_defaults(
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

impl GuestStatSpec {
    /// Returns the plan on this backend with `count` events. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(&self, count: u64, host: &HostOptions, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let task = GuestTask {
            workload: WORKLOAD,
            events: events(count, host.cpu.vendor()),
            flags: FLAG_STAT_SETUP | if self.enable == Enable::Once { FLAG_ENABLE_ONCE } else { 0 },
            period: 0,
            freq_hz: None,
        };
        // A bound on the run leaves the number of rounds open.
        let arms = ArmsOptions { rounds: Some(self.arms.rounds.unwrap_or(BOUNDED_ROUNDS)), ..self.arms.clone() };
        let length = LengthOptions { guest_rounds: Some(1), ..LengthOptions::default() };
        let mut plan = Plan::new(NAME, (&arms, &length, host), task, chosen, usable)?;
        // A turn brings each event to the head of the list once.
        let multiplexed = count > plan.parameters.gp_counters + plan.parameters.fixed_counters;
        let window_ticks = if multiplexed { count + 1 } else { WINDOW_TICKS };
        let (limit, tick) = (self.arms.time_limit, self.arms.mux_interval);
        let cycle = tick * u32::try_from(window_ticks + GAP_TICKS).unwrap_or(u32::MAX);
        if cycle > limit {
            return Err(Error::usage(
                format!("one set-up takes {cycle:?}, longer than the time limit of {limit:?}"),
                format!("its events count for {window_ticks} ticks of {tick:?}"),
                "raise --time-limit, or lower --mux-interval",
            ));
        }
        plan.guest.boot.window_ticks = window_ticks;
        plan.guest.boot.gap_ticks = GAP_TICKS;
        plan.guest.boot.limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        plan.guest.machine.time_limit = limit * 2 + PATIENCE;
        plan.parameters.workload = workload(count);
        let enable = if self.enable == Enable::Once { "once" } else { "each" }.to_owned();
        plan.parameters.set_up = Some(SetUpParameters { enable, window_ticks, gap_ticks: GAP_TICKS });
        let samples = plan.parameters.samples;
        let entries = log_entries(&plan.guest.boot, samples);
        if entries > MAX_LOG {
            return Err(Error::usage(
                format!("{samples} set-ups of {count} events do not fit the guest's log"),
                format!("they need {entries} entries, and it has {MAX_LOG}"),
                "take fewer --samples and more --rounds",
            ));
        }
        Ok(plan)
    }
}

/// Returns the workload's name in documents.
pub fn workload(events: u64) -> String {
    format!("{events} counting event{}/ftest", if events == 1 { "" } else { "s" })
}

/// Returns the first so many events; beyond those with a name, raw ones whose codes come again after some 260. perf sets INT for
/// events that only count, too.
pub fn events(count: u64, vendor: Vendor) -> Vec<EventParameter> {
    let raw = (0..).map(|n| n & 0xff).map(|n| parameter(&format!("r{n:02x}d1"), n << 8 | 0xd1 | INT, None, 0));
    let named = NAMED.into_iter().filter_map(|name| {
        let (name, code, fixed) = hardware_event(name, vendor)?;
        Some(parameter(name, code | INT, fixed, 0))
    });
    named.chain(raw).zip(0..count).map(|(event, _)| event).collect()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::arms::linux::spec::LinuxGuestOptions;

    /// A plan of this line for `count` events, on cpu-clock of two CPUs.
    fn plan(count: u64, line: &[&str]) -> Result<Plan, Error> {
        let command = HostOptions::augment_args(GuestStatSpec::augment_args(Command::new("guest-stat")));
        let command = other_defaults(LinuxGuestOptions::augment_args(command)).no_binary_name(true);
        let matches = command.get_matches_from(line);
        let spec = GuestStatSpec::from_arg_matches(&matches).unwrap();
        let host = HostOptions::from_arg_matches(&matches).unwrap();
        spec.plan(count, &host, &Chosen::here(BackendKey::CpuClock, String::new()), Some(&[0, 1]))
    }

    #[test]
    fn events_differ_and_the_first_seven_fit_the_counters() {
        let all = events(MAX_EVENTS as u64, Vendor::Intel);
        let mut selectors: Vec<_> = all.iter().map(|event| event.selector.clone()).collect();
        selectors.sort_unstable();
        selectors.dedup();
        assert_eq!(selectors.len(), MAX_EVENTS);
        assert_eq!(all[..7].iter().filter(|event| event.fixed_counter.is_some()).count(), 3);
        let raw = [&all[10], &all[11]].map(|event| (event.name.as_str(), event.selector.as_str()));
        assert_eq!(raw, [("r00d1", "0x1300d1"), ("r01d1", "0x1301d1")]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (events, line, needle) in [
            (10, &["--strategy", "auto"][..], "unknown strategy 'auto'"),
            (10, &["--vcpus", "2", "--pin", "0"], "1 CPUs for 2 vCPUs"),
            (10, &["--pin", "5"], "not online"),
            (64, &["--samples", "10000"], "do not fit the guest's log"),
            (10, &["--mux-interval", "1500ms"], "shorter than two ticks"),
            (10, &["--mux-interval", "1s"], "one set-up takes 12s"),
        ] {
            let error = plan(events, line).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
