//! The specification of `guest-stat`, and its plan.

use std::time::Duration;

use arch_pmu::spec::Vendor;
use guest::abi::{EventSpec, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, MAX_EVENTS};
use vmm::boot::layout::MAX_LOG;

use crate::arms::rounds::plan::{GuestTask, Plan};
use crate::arms::rounds::spec::CommonSpec;
use crate::setting::backend::Chosen;
use crate::setting::strategy::StrategyChoice;
use crate::setting::workload::{EventSet, GuestWork, Workload, hardware_event};
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
/// USR, OS and INT: perf sets INT for events that only count, too.
const FLAGS: u64 = 0x13_0000;
/// Ticks from a tear-down to the next set-up.
const GAP_TICKS: u64 = 1;
/// Ticks from enabling to reading, where a tick is no rotation.
const WINDOW_TICKS: u64 = 2;
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

/// Way in which a set-up enables its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enable {
    /// Each event by a call of its own, as `perf stat -a`: the counters are re-scheduled each time.
    Each,
    /// All of them by one re-scheduling, as enable_on_exec does for `perf stat COMMAND`.
    Once,
}

impl Enable {
    /// Returns the key in documents and on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Once => "once",
        }
    }
}

/// Parameters of `guest-stat`; the defaults are those of the command. A sample is one set-up.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestStatSpec {
    /// Arms, rounds and limits.
    pub common: CommonSpec,
    /// Number of events, 1 to [`MAX`].
    pub events: u64,
    /// Way in which a set-up enables them.
    pub enable: Enable,
    /// Ticks from enabling to reading; `None` = two, or a whole turn of the rotation if the events are multiplexed.
    pub window_ticks: Option<u64>,
}

impl Default for GuestStatSpec {
    fn default() -> Self {
        Self {
            common: CommonSpec {
                strategies: StrategyChoice::presets(&["recreate", "reuse", "reuse-lazy", "deferred", "pool"]),
                mux_interval: Duration::from_millis(1),
                rounds: 5,
                samples: 40,
                time_limit: Duration::from_secs(2),
                ..CommonSpec::default()
            },
            events: 10,
            enable: Enable::Each,
            window_ticks: None,
        }
    }
}

impl GuestStatSpec {
    /// Returns the plan on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(&self, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let count = self.events;
        if !(1..=MAX).contains(&count) {
            return Err(Error::usage(format!("{count} events"), "", format!("give 1 to {MAX}")));
        }
        let task = GuestTask {
            workload: WORKLOAD,
            events: events(count, self.common.cpu.vendor()),
            flags: FLAG_STAT_SETUP | if self.enable == Enable::Once { FLAG_ENABLE_ONCE } else { 0 },
            period: 0,
            freq_hz: None,
        };
        let mut plan = Plan::new(NAME, &self.common, task, chosen, usable)?;
        // A turn brings each event to the head of the list once.
        let multiplexed = count > plan.guest.gp_counters + plan.guest.fixed_counters;
        let window_ticks = self.window_ticks.unwrap_or(if multiplexed { count + 1 } else { WINDOW_TICKS });
        let (limit, tick) = (self.common.time_limit, self.common.mux_interval);
        let cycle = tick * u32::try_from(window_ticks + GAP_TICKS).unwrap_or(u32::MAX);
        if cycle > limit {
            return Err(Error::usage(
                format!("one set-up takes {cycle:?}, longer than the time limit of {limit:?}"),
                format!("its events count for {window_ticks} ticks of {tick:?}"),
                "raise --time-limit, or lower --window or --mux-interval",
            ));
        }
        plan.guest.window_ticks = window_ticks;
        plan.guest.gap_ticks = GAP_TICKS;
        plan.guest.limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        plan.guest.hard_limit = limit * 2 + PATIENCE;
        plan.parameters.workload = workload(count);
        plan.parameters.set_up =
            Some(SetUpParameters { enable: self.enable.key().to_owned(), window_ticks, gap_ticks: GAP_TICKS });
        let entries = plan.guest.log_entries(plan.samples);
        if entries > MAX_LOG {
            return Err(Error::usage(
                format!("{} set-ups of {count} events do not fit the guest's log", plan.samples),
                format!("they need {entries} entries, and it has {MAX_LOG}"),
                "take fewer --samples and more --rounds",
            ));
        }
        Ok(plan)
    }
}

/// Returns the workload's name in documents.
#[must_use]
pub fn workload(events: u64) -> String {
    format!("{events} counting event{}/ftest", if events == 1 { "" } else { "s" })
}

/// Returns the first so many events as documents have them; their codes come again after some 260.
#[must_use]
pub fn event_parameters(count: u64, vendor: Vendor) -> Vec<EventParameter> {
    events(count, vendor).into_iter().map(|(_, parameter)| parameter).collect()
}

/// Returns the first so many events; beyond those with a name, raw ones that differ from each other.
fn events(count: u64, vendor: Vendor) -> Vec<(EventSpec, EventParameter)> {
    let raw = (0..).map(|n| n & 0xff).map(|n| (format!("r{n:02x}d1"), n << 8 | 0xd1, None));
    let named = NAMED.into_iter().filter_map(|name| {
        let (name, code, fixed) = hardware_event(name, vendor)?;
        Some((name.to_owned(), code, fixed))
    });
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
mod tests {
    use host_pmu::backend::BackendKey;

    use super::*;

    fn plan(edit: impl FnOnce(&mut GuestStatSpec)) -> Result<Plan, Error> {
        let mut spec = GuestStatSpec::default();
        edit(&mut spec);
        spec.plan(&Chosen::here(BackendKey::CpuClock, String::new()), Some(&[0, 1]))
    }

    #[test]
    fn every_name_is_a_hardware_event() {
        for (name, (_, event)) in NAMED.into_iter().zip(events(10, Vendor::Intel)) {
            assert_eq!(event.name, name);
        }
    }

    #[test]
    fn the_defaults_are_a_guests() {
        let plan = plan(|_| ()).unwrap();
        assert_eq!((plan.experiment, plan.guest.events.len(), plan.rounds, plan.samples), ("guest-stat", 10, 5, 40));
        let names: Vec<_> = plan.arms.iter().map(|arm| arm.strategy.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "deferred", "pool", "floor", "kvm"]);
        // A set-up on the development host takes 25 ms: a minute, and without running into the limit.
        let runs = (plan.arms.len() as u64 - 1) * (plan.rounds + 1);
        assert!(plan.samples * 25 * runs < 55_000 && plan.guest.limit_us > plan.samples * 25_000);
        assert_eq!((plan.parameters.period, plan.guest.freq_hz), (0, 0));
    }

    #[test]
    fn more_events_than_counters_are_given_a_turn() {
        let window = |events, window_ticks| {
            plan(|spec| (spec.events, spec.window_ticks) = (events, window_ticks)).unwrap().guest.window_ticks
        };
        assert_eq!((window(7, None), window(8, None)), (2, 9));
        assert_eq!(window(20, Some(3)), 3);
    }

    #[test]
    fn events_differ_and_the_first_seven_fit_the_counters() {
        let all = events(MAX_EVENTS as u64, Vendor::Intel);
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
        type Edit = fn(&mut GuestStatSpec);
        let cases: [(Edit, &str); 8] = [
            (|spec| spec.events = 0, "1 to 64"),
            (|spec| spec.events = 65, "1 to 64"),
            (|spec| spec.common.strategies = StrategyChoice::presets(&["auto"]), "unknown strategy 'auto'"),
            (|spec| (spec.common.vcpus, spec.common.pin) = (2, "0".parse().unwrap()), "1 CPUs for 2 vCPUs"),
            (|spec| spec.common.pin = "5".parse().unwrap(), "not online"),
            (|spec| (spec.events, spec.common.samples) = (64, 10_000), "do not fit the guest's log"),
            (|spec| spec.common.mux_interval = Duration::from_millis(1500), "shorter than two ticks"),
            (|spec| spec.common.mux_interval = Duration::from_secs(1), "one set-up takes 12s"),
        ];
        for (edit, needle) in cases {
            let error = plan(edit).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
