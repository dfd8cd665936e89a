//! `guest-stat`: how long a guest's own set-up of counting events takes on its vPMU, by strategy. Its options, and its plan.

use std::time::Duration;

use arch_pmu::spec::Vendor;
use clap::{Args, ValueEnum};
use guest::abi::{FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, MAX_EVENTS};
use host_pmu::stats::ns;
use vmm::boot::layout::MAX_LOG;

use crate::arms::arm::real::log_entries;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions, Usual};
use crate::arms::rounds::plan::Plan;
use crate::setting::backend::Chosen;
use crate::setting::parse::number_in;
use crate::setting::workload::{EventSet, GuestWork, INT, Workload, hardware_event, parameter};
use results::document::{EventParameter, GUEST_STAT, Parameters, SetUpParameters};
use results::error::Error;

/// The experiment's name in documents; their `in` is "guest".
pub const NAME: &str = GUEST_STAT;
/// Most events of a guest.
const MAX: u64 = MAX_EVENTS as u64;
/// Its defaults. It counts: the guest waits for no NMIs.
pub const USUAL: Usual = Usual {
    workload: Workload { events: EventSet::COUNTING1, work: GuestWork::FTEST },
    strategies: &["recreate", "reuse", "reuse-lazy", "deferred", "pool"],
    // Half a minute on the development host: more guests of fewer set-ups, with fewer ticks in each, tell more apart. The median of
    // three is none of the first, which opens every event.
    rounds: (18, None),
    warmup: 1,
    samples: 3,
    time_limit: Duration::from_secs(2),
    mux_interval: Duration::from_millis(4),
};
/// Ticks from a tear-down to the next set-up.
const GAP_TICKS: u64 = 1;
/// Ticks from enabling to reading, where a tick is no rotation.
const WINDOW_TICKS: u64 = 2;
/// Time beyond its limit after which a guest is ended: its last set-up may hold hundreds of host events that take tens of ms each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events of `perf stat -d`, the three with a fixed counter first.
const NAMED: &str = "cpu-cycles instructions ref-cycles branch-instructions branch-misses cache-references cache-misses bus-cycles \
     L1-dcache-loads L1-dcache-load-misses";

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

    /// Number of counting events, up to 64, or several numbers: a result for each
    #[arg(long, value_name = "LIST", default_value = "10", value_delimiter = ',', value_parser = number_in(1..=MAX),
          display_order = 1)]
    pub events: Vec<u64>,

    /// Way in which a set-up enables its events
    #[arg(long, value_enum, default_value = "each", help_heading = "Guest")]
    pub enable: Enable,
}

impl GuestStatSpec {
    /// Returns the plan on this backend with `count` events. `usable` are the CPUs that this process may use, if
    /// known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(&self, count: u64, host: &HostOptions, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let once = self.enable == Enable::Once;
        let parameters = Parameters { events: events(count, host.cpu.vendor()), ..Parameters::default() };
        let flags = FLAG_STAT_SETUP | if once { FLAG_ENABLE_ONCE } else { 0 };
        let options = (&self.arms, &LengthOptions::default(), host);
        let mut plan = Plan::new((NAME, &USUAL), options, (USUAL.workload, flags, parameters), chosen, usable)?;
        let (boot, parameters) = (&mut plan.guest.boot, &mut plan.parameters);
        // A turn brings each event to the head of the list once.
        let multiplexed = count > parameters.gp_counters + parameters.fixed_counters;
        boot.window_ticks = if multiplexed { count + 1 } else { WINDOW_TICKS };
        boot.gap_ticks = GAP_TICKS;
        // One set-up has to fit.
        let cycle = parameters.mux_interval_ns * (boot.window_ticks + GAP_TICKS);
        if let Some(given) = self.arms.time_limit.filter(|given| ns(*given) < cycle) {
            let what =
                format!("one set-up takes {:?}, longer than the time limit of {given:?}", Duration::from_nanos(cycle));
            let why = format!("its events count for {} ticks", boot.window_ticks);
            return Err(Error::usage(what, why, "raise --time-limit, or lower --mux-interval"));
        }
        let limit = parameters.time_limit_ns.max(2 * cycle);
        boot.limit_us = limit / 1000;
        plan.guest.machine.time_limit = Duration::from_nanos(2 * limit) + PATIENCE;
        (parameters.time_limit_ns, parameters.rounds_per_guest) = (limit, None);
        parameters.workload = format!("{count} counting event{}/ftest", if count == 1 { "" } else { "s" });
        let enable = if once { "once" } else { "each" }.to_owned();
        parameters.set_up = Some(SetUpParameters { enable, window_ticks: boot.window_ticks, gap_ticks: GAP_TICKS });
        let entries = log_entries(boot, parameters.samples);
        if entries > MAX_LOG {
            return Err(Error::usage(
                format!("{} set-ups of {count} events do not fit the guest's log", parameters.samples),
                format!("they need {entries} entries, and it has {MAX_LOG}"),
                "take fewer --samples and more --rounds",
            ));
        }
        Ok(plan)
    }
}

/// Returns the first so many events; beyond those with a name, raw ones. perf sets INT for events that only count, too.
fn events(count: u64, vendor: Vendor) -> Vec<EventParameter> {
    let raw = (0..).map(|n: u64| parameter(&format!("r{n:02x}d1"), n << 8 | 0xd1 | INT, None, 0));
    let named = NAMED.split(' ').filter_map(|name| {
        let (name, code, fixed) = hardware_event(name, vendor)?;
        Some(parameter(name, code | INT, fixed, 0))
    });
    named.chain(raw).zip(0..count).map(|(event, _)| event).collect()
}

#[cfg(test)]
mod tests {
    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::setting::parse::{defaults, options};

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
    fn a_set_up_fits_the_limit_and_the_log_or_is_refused() {
        let plan = |events: u64, line: &[&str]| {
            let spec: GuestStatSpec = options(line).unwrap();
            let chosen = Chosen::here(BackendKey::CpuClock, String::new());
            spec.plan(events, &defaults(), &chosen, Some(&[0, 1]))
        };
        assert_eq!(plan(10, &[]).unwrap().parameters.time_limit_ns, 2_000_000_000);
        assert_eq!(plan(10, &["--mux-interval", "1s"]).unwrap().guest.boot.limit_us, 24_000_000);
        for (count, words, why) in [
            (64, ["--samples", "10000"], "do not fit the guest's log"),
            (64, ["--time-limit", "60ms"], "longer than the time limit of 60ms"),
        ] {
            let error = plan(count, &words).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(why), "{error}");
        }
    }
}
