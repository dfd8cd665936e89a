//! The specification of `nmi-latency`, and its plan.

use std::time::Duration;

use clap::Args;
use results::document::Parameters;
use results::error::Error;

use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions, Usual};
use crate::arms::rounds::plan::Plan;
use crate::setting::backend::{Chosen, default_period};
use crate::setting::parse::number_in;
use crate::setting::workload::{EventSet, GuestWork, Workload};

/// The experiment's name in documents.
pub const NAME: &str = "nmi-latency";
/// Its defaults with the payload.
pub const PAYLOAD: Usual = Usual {
    workload: Workload { events: EventSet::SINGLE, work: GuestWork::FTEST },
    strategies: &["recreate", "reuse", "reuse-lazy", "gate"],
    rounds: (240, Some(Duration::from_secs(36))),
    warmup: 1,
    samples: 25,
    time_limit: Duration::from_millis(1100),
    mux_interval: Duration::from_millis(4),
};
/// With Linux, which takes seconds to boot, and its perf to start. Each round boots one.
pub const LINUX: Usual = Usual {
    workload: Workload { events: EventSet::SAMPLING10, work: GuestWork::FTEST },
    rounds: (5, None),
    warmup: 0,
    samples: 1000,
    time_limit: Duration::from_secs(3),
    ..PAYLOAD
};

/// Options of `vpmu nmi-latency` and `vpmu sim`, apart from the host and from where the result goes.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct NmiLatencySpec {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The end of the run.
    #[command(flatten)]
    pub length: LengthOptions,

    /// Workload of the guest: EVENTS[/WORK] or WORK [default: single; with Linux sampling10]
    ///
    /// EVENTS: sampling10 (ten events multiplexed on 4 general-purpose and 3 fixed counters), sampling4 (four events, restarted
    /// at each tick as by a task switch), counting1 (one counting event, restarted likewise: no NMIs, rotations are timed),
    /// single (one sampling event). WORK: ftest (a branchy loop, ring 3; the default), io (port writes, so VM exits), idle (HLT).
    /// WORK alone means single/WORK.
    #[arg(long, value_name = "EVENTS[/WORK]", help_heading = None, display_order = 1)]
    pub workload: Option<Workload>,

    /// Events between two overflows [default: 2000000 (1 ms at 2 GHz); with a tracepoint 100]
    ///
    /// In the backend's own unit: cycles, ns of a clock, occurrences. Event i of a set gets N × (16 + 3 i) / 16, so that
    /// stand-ins, which count every event at one rate, do not overflow all counters at once.
    #[arg(long, value_name = "N", value_parser = number_in(2..=(1 << 47) - 1), conflicts_with = "freq", help_heading = "Guest")]
    pub period: Option<u64>,

    /// Let the guest adjust each event's period to this sampling frequency, as perf record -F
    #[arg(long, value_name = "HZ", value_parser = number_in(1..=100_000), help_heading = "Guest")]
    pub freq: Option<u64>,
}

impl NmiLatencySpec {
    /// Returns the plan on this backend, with these defaults. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(
        &self,
        usual: &Usual,
        host: &HostOptions,
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Plan, Error> {
        let period = self.period.unwrap_or_else(|| default_period(&chosen.backend));
        let workload = self.workload.unwrap_or(usual.workload);
        let events = workload.events.events(host.cpu.vendor(), period);
        let parameters = Parameters { events, period, freq_hz: self.freq, ..Parameters::default() };
        let task = (workload, workload.events.flags, parameters);
        Plan::new((NAME, usual), (&self.arms, &self.length, host), task, chosen, usable)
    }
}

#[cfg(test)]
mod tests {
    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::arms::arm::sim;
    use crate::arms::rounds::options::OPEN_ENDED;
    use crate::setting::parse::options;

    /// A plan of this line on a backend of four CPUs.
    fn plan(line: &str, chosen: &Chosen) -> Result<Plan, Error> {
        #[derive(Args)]
        struct Line {
            #[command(flatten)]
            spec: NmiLatencySpec,
            #[command(flatten)]
            host: HostOptions,
        }
        let Line { spec, host } = options(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        spec.plan(&PAYLOAD, &host, chosen, Some(&[0, 1, 2, 3]))
    }

    fn on(backend: &str) -> Chosen {
        Chosen::here(backend.parse().unwrap(), String::new())
    }

    #[test]
    fn the_default_run_keeps_below_40_seconds() {
        let plan = plan("", &on("cpu-clock")).unwrap();
        let arms = u32::try_from(plan.parameters.strategies.len()).unwrap() + 1;
        // The last round may begin just before the bound; a turn that ends by its time limit is not the rule.
        assert!(plan.duration().unwrap() < Duration::from_secs(38));
        assert!(Duration::from_nanos(plan.parameters.time_limit_ns) * arms < Duration::from_secs(6));
        // Enough guests to see how guests differ, and all rounds fit at the usual speed.
        assert!(plan.parameters.rounds / plan.parameters.rounds_per_guest.unwrap() >= 10);
    }

    #[test]
    fn guests_live_on_unless_they_would_spare_each_other_the_first_event() {
        let model = sim::chosen(&sim::model("clx-ap-watchdog-off").unwrap(), "");
        for (line, chosen, rounds_per_guest, rounds, seconds) in [
            ("", on("cpu-clock"), Some(20), 240, Some(36)),
            ("--rounds 1", on("cpu-clock"), None, 1, None),
            ("--quick", on("hardware"), None, 24, Some(5)),
            ("--duration 7s", on("tracepoint:kvm/kvm_exit"), None, OPEN_ENDED, Some(7)),
            // A simulated arm has its host to itself, and nobody waits for its time, so that no default cuts its rounds.
            ("", model.clone(), Some(20), 240, None),
            ("--quick", model, Some(20), 24, None),
        ] {
            let plan = plan(line, &chosen).unwrap();
            let found = (
                plan.parameters.rounds_per_guest,
                plan.parameters.rounds,
                plan.duration().map(|bound| bound.as_secs()),
            );
            assert_eq!(found, (rounds_per_guest, rounds, seconds), "{line} {}", chosen.backend);
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_a_remedy() {
        for (line, needle) in [
            ("--vcpus 2 --pin 0", "fewer CPUs (1) than there are vCPUs (2)"),
            ("--pin 9", "CPU 9 is not online"),
            ("--samples 1000000 --vcpus 64", "do not fit"),
            ("--vcpus 65", "out of range"),
            ("--until-ci 0.01%", "cannot be met"),
        ] {
            let error = plan(line, &Chosen::here(BackendKey::CpuClock, String::new())).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }
}
