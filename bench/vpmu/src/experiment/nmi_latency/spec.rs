//! The specification of `nmi-latency`, and its plan.

use std::time::Duration;

use crate::arms::rounds::plan::{GuestTask, Plan};
use crate::arms::rounds::spec::CommonSpec;
use crate::setting::backend::{Chosen, default_period};
use crate::setting::workload::{EventSet, GuestWork, Workload};
use results::document::EventParameter;
use results::error::Error;

/// The experiment's name in documents.
pub const NAME: &str = "nmi-latency";

/// Rounds by default.
pub const ROUNDS: u64 = 240;
/// Samples of a turn by default: more of them say little more of the guest, while a CPU's modes come and go.
pub const SAMPLES: u64 = 25;
/// Bound by default on a run whose rounds are not given.
pub const LONGEST: Duration = Duration::from_secs(36);

/// Parameters of `nmi-latency`; the defaults are those of the command.
#[derive(Clone, Debug, PartialEq)]
pub struct NmiLatencySpec {
    /// Arms, rounds and limits.
    pub common: CommonSpec,
    /// Event set and guest work.
    pub workload: Workload,
    /// Counts between two overflows; `None` = the backend's default.
    pub period: Option<u64>,
    /// Sampling frequency in Hz; `None` = fixed period.
    pub freq_hz: Option<u64>,
}

impl Default for NmiLatencySpec {
    fn default() -> Self {
        Self {
            common: CommonSpec {
                rounds: ROUNDS,
                samples: SAMPLES,
                rounds_per_guest: None,
                duration: Some(LONGEST),
                ..CommonSpec::default()
            },
            workload: Workload { events: EventSet::Single, work: GuestWork::Ftest },
            period: None,
            freq_hz: None,
        }
    }
}

impl NmiLatencySpec {
    /// Returns the plan on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn plan(&self, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let period = self.period.unwrap_or_else(|| default_period(&chosen.backend));
        let events = self.workload.events.events(self.common.cpu.vendor(), period);
        let parameter = |name: &str, selector: u64, fixed: u64, period| EventParameter {
            name: name.to_owned(),
            selector: format!("{selector:#x}"),
            fixed_counter: fixed.checked_sub(1),
            period,
        };
        let task = GuestTask {
            workload: self.workload,
            events: events
                .into_iter()
                .map(|event| {
                    let spec = event.spec;
                    (spec, parameter(event.name, spec.selector, spec.fixed, spec.period))
                })
                .collect(),
            flags: self.workload.events.flags(),
            period,
            freq_hz: self.freq_hz,
        };
        Plan::new(NAME, &self.common, task, chosen, usable)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host_pmu::backend::BackendKey;

    use super::*;
    use crate::arms::arm::runner::{ArmRunner as _, Turn};
    use crate::arms::arm::sim::{self, SimRunner};
    use crate::setting::strategy::StrategyChoice;
    use results::document::ArmKind;

    fn plan(edit: impl FnOnce(&mut NmiLatencySpec)) -> Result<Plan, Error> {
        let mut spec = NmiLatencySpec::default();
        edit(&mut spec);
        spec.plan(&Chosen::here(BackendKey::CpuClock, "test".into()), Some(&[0, 1, 2, 3]))
    }

    #[test]
    fn defaults_give_three_strategies_the_floor_and_kvm() {
        let plan = plan(|_| ()).unwrap();
        let names: Vec<&str> = plan.arms.iter().map(|arm| arm.strategy.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "floor", "kvm"]);
        assert_eq!(plan.guest.baseline_ticks, 10);
        assert_eq!(plan.guest.max_ticks, 275);
        assert!(plan.guest.hard_limit > NmiLatencySpec::default().common.time_limit);
        assert_eq!(plan.parameters.backend, "cpu-clock");
    }

    #[test]
    fn the_default_run_keeps_below_40_seconds() {
        let spec = NmiLatencySpec::default();
        let CommonSpec { strategies, time_limit, duration, .. } = &spec.common;
        let arms = u32::try_from(strategies.len()).unwrap() + 1;
        // The last round may begin just before the bound; a turn that ends by its time limit is not the rule.
        assert!(duration.unwrap() < Duration::from_secs(38) && *time_limit * arms < Duration::from_secs(5));
        // Enough guests to see how guests differ, and all rounds fit at the usual speed.
        let plan = plan(|_| ()).unwrap();
        assert!(plan.rounds / plan.rounds_per_guest >= 10);
        assert!((20..36).contains(&plan.estimate(4).as_secs()), "{:?}", plan.estimate(4));
    }

    #[test]
    fn guests_live_on_unless_they_would_spare_each_other_the_first_event() {
        let rounds_per_guest = |backend: &str, asked: Option<u64>| {
            let common = CommonSpec { rounds_per_guest: asked, ..NmiLatencySpec::default().common };
            let spec = NmiLatencySpec { common, ..NmiLatencySpec::default() };
            let chosen = Chosen::here(backend.parse().unwrap(), String::new());
            spec.plan(&chosen, None).unwrap().rounds_per_guest
        };
        assert_eq!([rounds_per_guest("cpu-clock", None), rounds_per_guest("cpu-clock", Some(3))], [20, 3]);
        for backend in ["tracepoint:kvm/kvm_exit", "hardware"] {
            assert_eq!([rounds_per_guest(backend, None), rounds_per_guest(backend, Some(3))], [1, 3], "{backend}");
        }
        // A simulated arm has its host to itself.
        let model = crate::arms::arm::sim::model("clx-ap-watchdog-off").unwrap();
        let plan = NmiLatencySpec::default().plan(&crate::arms::arm::sim::chosen(&model, ""), None).unwrap();
        assert_eq!(plan.rounds_per_guest, 20);
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_a_remedy() {
        type Edit = fn(&mut CommonSpec);
        let cases: [(Edit, &str); 6] = [
            (|spec| spec.strategies = StrategyChoice::presets(&["reues"]), "did you mean reuse?"),
            (|spec| spec.strategies = StrategyChoice::presets(&["reuse", "reuse"]), "two arms"),
            (|spec| (spec.vcpus, spec.pin) = (2, "0".parse().unwrap()), "1 CPUs for 2 vCPUs"),
            (|spec| spec.pin = "9".parse().unwrap(), "CPU 9 is not online"),
            (|spec| (spec.samples, spec.vcpus) = (1_000_000, 64), "do not fit"),
            (|spec| spec.time_limit = Duration::from_millis(5), "two ticks"),
        ];
        for (edit, needle) in cases {
            let error = plan(|spec| edit(&mut spec.common)).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error}");
        }
    }

    #[test]
    fn a_tracepoint_has_its_own_default_period() {
        let chosen = Chosen::here("tracepoint:kvm/kvm_exit".parse().unwrap(), String::new());
        let planned_period = |period| {
            let spec = NmiLatencySpec { workload: "io".parse().unwrap(), period, ..NmiLatencySpec::default() };
            spec.plan(&chosen, None).unwrap().guest.events[0].period
        };
        assert_eq!((planned_period(None), planned_period(Some(32))), (100, 32));
    }

    fn simulated(model: &str, edit: impl FnOnce(&mut CommonSpec)) -> (Plan, SimRunner) {
        let model = sim::model(model).unwrap();
        let mut spec = NmiLatencySpec::default();
        edit(&mut spec.common);
        let mut plan = spec.plan(&sim::chosen(&model, "test"), None).unwrap();
        plan.simulate(&model.name);
        let runner = SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed).unwrap();
        (plan, runner)
    }

    #[test]
    fn simulated_arms_are_whole_and_take_their_samples() {
        let (plan, mut runner) = simulated("clx-ap-watchdog-on", |spec| (spec.samples, spec.vcpus) = (200, 2));
        let turn = Turn { index: 0, position: 0, warmup: false, samples: plan.samples };
        for arm in plan.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
            let outcome = runner.run(arm, turn).unwrap();
            assert!(outcome.end.is_complete());
            assert_eq!(outcome.vcpus.len(), 2);
            for vcpu in outcome.vcpus {
                let report = vcpu.left.report.unwrap();
                assert_eq!((report.nmis, report.dropped), (vcpu.account.counts.nmis_injected, 0));
                assert!(report.nmis >= 200);
                assert_eq!(vcpu.account.deliveries.len() as u64, report.nmis);
            }
        }
    }

    #[test]
    fn a_plan_of_a_model_names_no_real_backend() {
        let (plan, _) = simulated("icx-2021", |spec| spec.backend = "sim:icx-2021".parse().unwrap());
        assert_eq!(plan.parameters.backend, "sim:icx-2021");
        assert_eq!(plan.parameters.backend_requested, "sim:icx-2021");
        assert!(plan.arms.iter().all(|arm| arm.backend != "hardware"));
        assert_eq!(sim::facts(&sim::model("icx-2021").unwrap()).class, "simulated (model icx-2021)");
    }
}
