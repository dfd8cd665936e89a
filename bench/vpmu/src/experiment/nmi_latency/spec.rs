//! The specification of `nmi-latency`, and its plan.

use clap::Args;

use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::{GuestTask, Plan};
use crate::setting::backend::{Chosen, default_period};
use crate::setting::parse::number_in;
use crate::setting::workload::Workload;
use results::error::Error;

/// The experiment's name in documents.
pub const NAME: &str = "nmi-latency";

/// Options of `vpmu nmi-latency` and `vpmu sim`, apart from the host and from where the result goes.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct NmiLatencySpec {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The end of the run.
    #[command(flatten)]
    pub length: LengthOptions,

    /// Workload of the guest: EVENTS[/WORK] or WORK
    ///
    /// EVENTS: sampling10 (ten events multiplexed on 4 general-purpose and 3 fixed counters), sampling4 (four events, restarted
    /// at each tick as by a task switch), counting1 (one counting event, restarted likewise: no NMIs, rotations are timed),
    /// single (one sampling event). WORK: ftest (a branchy loop, ring 3; the default), io (port writes, so VM exits), idle (HLT).
    /// WORK alone means single/WORK.
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single", help_heading = None, display_order = 1)]
    pub workload: Workload,

    /// Events between two overflows [default: 2000000 (1 ms at 2 GHz), 100 with a tracepoint]
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
    /// Returns the plan on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(&self, host: &HostOptions, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let period = self.period.unwrap_or_else(|| default_period(&chosen.backend));
        let task = GuestTask {
            workload: self.workload,
            events: self.workload.events.events(host.cpu.vendor(), period),
            flags: self.workload.events.flags(),
            period,
            freq_hz: self.freq,
        };
        Plan::new(NAME, (&self.arms, &self.length, host), task, chosen, usable)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::arms::arm::sim;
    use crate::setting::parse::defaults;

    /// A plan on cpu-clock of four CPUs.
    fn plan(edit: impl FnOnce(&mut NmiLatencySpec, &mut HostOptions)) -> Result<Plan, Error> {
        let (mut spec, mut host) = (defaults::<NmiLatencySpec>(), defaults());
        edit(&mut spec, &mut host);
        spec.plan(&host, &Chosen::here(BackendKey::CpuClock, "test".into()), Some(&[0, 1, 2, 3]))
    }

    #[test]
    fn the_default_run_keeps_below_40_seconds() {
        let plan = plan(|_, _| ()).unwrap();
        let arms = u32::try_from(plan.parameters.strategies.len()).unwrap() + 1;
        // The last round may begin just before the bound; a turn that ends by its time limit is not the rule.
        assert!(plan.duration().unwrap() < Duration::from_secs(38));
        assert!(Duration::from_nanos(plan.parameters.time_limit_ns) * arms < Duration::from_secs(5));
        // Enough guests to see how guests differ, and all rounds fit at the usual speed.
        assert!(plan.parameters.rounds / plan.rounds_per_guest() >= 10);
    }

    #[test]
    fn guests_live_on_unless_they_would_spare_each_other_the_first_event() {
        let rounds_per_guest = |backend: &str, asked: Option<u64>| {
            let mut spec: NmiLatencySpec = defaults();
            spec.length.guest_rounds = asked;
            let chosen = Chosen::here(backend.parse().unwrap(), String::new());
            spec.plan(&defaults(), &chosen, None).unwrap().rounds_per_guest()
        };
        assert_eq!([rounds_per_guest("cpu-clock", None), rounds_per_guest("cpu-clock", Some(3))], [20, 3]);
        for backend in ["tracepoint:kvm/kvm_exit", "hardware"] {
            assert_eq!([rounds_per_guest(backend, None), rounds_per_guest(backend, Some(3))], [1, 3], "{backend}");
        }
        // A simulated arm has its host to itself.
        let model = sim::model("clx-ap-watchdog-off").unwrap();
        let plan = defaults::<NmiLatencySpec>().plan(&defaults(), &sim::chosen(&model, ""), None).unwrap();
        assert_eq!(plan.rounds_per_guest(), 20);
        // Nobody waits for its time, so that no default cuts its rounds.
        let mut quick: NmiLatencySpec = defaults();
        quick.length.quick = true;
        let of = |spec: &NmiLatencySpec, chosen: &Chosen| {
            let plan = spec.plan(&defaults(), chosen, None).unwrap();
            (plan.parameters.rounds, plan.duration())
        };
        assert_eq!(of(&quick, &sim::chosen(&model, "")), (24, None));
        assert_eq!(of(&quick, &Chosen::here(BackendKey::CpuClock, String::new())), (24, Some(Duration::from_secs(5))));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_a_remedy() {
        type Edit = fn(&mut ArmsOptions, &mut HostOptions);
        let cases: [(Edit, &str); 4] = [
            (|arms, host| (arms.guest.vcpus, host.behind.pin) = (2, "0".parse().ok()), "1 CPUs for 2 vCPUs"),
            (|_, host| host.behind.pin = "9".parse().ok(), "CPU 9 is not online"),
            (|arms, _| (arms.samples, arms.guest.vcpus) = (1_000_000, 64), "do not fit"),
            (|arms, _| arms.time_limit = Duration::from_millis(5), "two ticks"),
        ];
        for (edit, needle) in cases {
            let error = plan(|spec, host| edit(&mut spec.arms, host)).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
