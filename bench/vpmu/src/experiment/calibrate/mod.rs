//! A model of this host, fitted to measured guests.
//!
//! Costs of host operations are the distributions measured in arms `recreate`, `reuse`, `gate` and `virtual`. Constants that only
//! the guest sees have figures: `instruction` a loop in ring 0 that does not exit, `exit` the floor's handler of one event,
//! `tick-exit` the floor's rotations. All but `instruction`, and two more, are solved together, as the constants with which the
//! simulator has the measured figures.
//! Guests of all workloads take turns, so that the host's modes meet all alike. No latency of a strategy is fitted; [`run`]
//! compares measured with simulated latencies, and the model says how far apart they are.

pub mod beside;
pub mod fit;
pub mod measure;
pub mod run;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use host_pmu::backend::scheduling::Processor;
    use host_pmu::stats::OpKind;
    use results::metric::NMI_HANDLER;
    use sim::model::{Costs, Model};
    use vmm::machine::Cpu;
    use vmm::outcome::End;

    use super::fit::fit;
    use super::measure::{CalibrateSpec, Job, Measured, Outside, Pmu, run};
    use crate::arms::arm::sim as simulated;
    use crate::arms::rounds::mock::{self, MockRunner, vcpu};
    use crate::terminal::progress::Silent;

    /// Returns costs that are measured outside of guests, as they are known of this model.
    fn beside(costs: &Costs) -> Vec<Outside> {
        let known = [
            ("switch", &costs.switch),
            ("switch-held", &costs.switch_held),
            ("switch-running", &costs.switch_running),
            ("expiry", &costs.expiry),
        ];
        known.map(|(key, cost)| (key, "known", vec![cost.smallest() as f64; 9])).to_vec()
    }

    /// Guests on a simulated host with these constants, measured as real ones are.
    fn measured(model: &Model, cpu: Cpu, pmu: Option<Pmu>) -> (CalibrateSpec, Vec<Measured>) {
        let calibration = CalibrateSpec {
            name: "found".to_owned(),
            cpu,
            pmu,
            beside: beside(&model.costs),
            rounds: Some(40),
            ..CalibrateSpec::default()
        };
        let chosen = simulated::chosen(model, "test");
        let job = |workload| -> Job {
            let mut plan = calibration.plan(workload, &chosen, None).unwrap();
            plan.simulate(&model.name);
            let runner = plan.on_model(model.clone()).unwrap();
            (workload, runner, plan)
        };
        let jobs = calibration.workloads().map(job);
        let measured = run(&jobs, 40, &AtomicBool::new(false), &mut Silent).unwrap();
        (calibration, measured)
    }

    fn constant(model: &toml::Table, key: &str) -> f64 {
        let constant = &model["cost"][key];
        let number = |value: &toml::Value| value.as_integer().map_or_else(|| value.as_float().unwrap(), |n| n as f64);
        match constant.get("ns").or_else(|| constant.get("ps")).unwrap() {
            toml::Value::Array(quantiles) => number(&quantiles[quantiles.len() / 2]),
            value => number(value),
        }
    }

    fn fitted(known: &str, cpu: Cpu) -> (toml::Table, toml::Table) {
        let model = Model::from_toml("known", known).unwrap();
        let (calibration, measured) = measured(&model, cpu, None);
        let draft = fit(&calibration, "a simulated host", &measured).unwrap();
        (known.parse().unwrap(), draft.0)
    }

    /// Known constants, with an AMD's guests those of the development host, with an Intel's the same host with slow exits and fast
    /// instructions.
    fn known() -> [(String, Cpu); 2] {
        let text = Model::text("development-host").unwrap();
        let other = text
            .replace("exit = { ns = 5500", "exit = { ns = 14000")
            .replace("tick-exit = { ns = 3300", "tick-exit = { ns = 6000")
            .replace("ps = 250000", "ps = 90000")
            .replace("apic = { ns = 1500", "apic = { ns = 3500");
        assert_ne!(text, other);
        [(text.to_owned(), Cpu::Milan), (other, Cpu::CascadeLake)]
    }

    #[test]
    fn known_constants_are_recovered_within_5_percent() {
        let mut failed = Vec::new();
        for (text, cpu) in known() {
            let (known, found) = fitted(&text, cpu);
            let read = "exit instruction tick-exit vmm work-unit open-first open-more release-last release pause resume \
                resume-other period period-running read";
            for key in read.split(' ') {
                let off = constant(&found, key) / constant(&known, key) - 1.0;
                if off.abs() > 0.05 {
                    failed.push(format!("{key} {:+.1} %", 100.0 * off));
                }
            }
            let delivery = |model| constant(model, "inject") + constant(model, "interrupt");
            let off = delivery(&found) / delivery(&known) - 1.0;
            assert!(off.abs() < 0.05, "inject and interrupt {off}");
        }
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn a_turn_that_is_not_whole_is_left_out_and_counted() {
        let runner = MockRunner::changed(|call, found| {
            let bad = if call.arm == "reuse" && !call.warmup { call.turn } else { 0 };
            *found = vcpu(found.left.log.len() as u64, if [3, 7].contains(&bad) { 90_000 } else { 1000 });
            found.account.counts.nmis_injected += u64::from(bad == 3);
            found.end = if bad == 7 { End::TimedOut } else { End::Done };
        });
        let jobs: [Job; 1] = [(("single", ""), runner.runner(), mock::plan(&[]).unwrap())];
        let measured = run(&jobs, 42, &AtomicBool::new(false), &mut Silent).unwrap();
        let reuse = measured[0].arm("reuse").unwrap();
        let whole = reuse.guests.iter().filter(|guest| guest.ops.count(OpKind::Open) > 0).count();
        assert_eq!((reuse.p50(&NMI_HANDLER), whole, reuse.result.left_out.len()), (Some(1000.0), 40, 2));
    }

    #[test]
    fn a_further_open_costs_what_it_costs_where_each_guest_has_a_dear_first() {
        let text = Model::text("clx-ap-watchdog-off").unwrap();
        let model = Model::from_toml("known", text).unwrap();
        let pmu = Pmu { processor: None, counters: 7, taken: 0, outside: 0.0 };
        let (calibration, measured) = measured(&model, Cpu::default(), Some(pmu));
        let found = fit(&calibration, "a simulated host", &measured).unwrap().0;
        let costs = |key: &str| {
            let all = found["cost"][key]["ns"].as_array().unwrap().iter();
            all.map(|ns| ns.as_integer().unwrap()).collect::<Vec<_>>()
        };
        assert!(costs("open-first")[10] > 20_000_000, "{:?}", costs("open-first"));
        assert!(costs("open-more").iter().all(|ns| (12_000..13_000).contains(ns)), "{:?}", costs("open-more"));
    }

    #[test]
    fn hardware_is_described_as_a_pmu_and_not_as_a_clock() {
        let text = Model::text("clx-ap-watchdog-on").unwrap();
        let model = Model::from_toml("known", text).unwrap();
        let (mut calibration, measured) = measured(&model, Cpu::default(), None);
        let known = Some(Processor::CascadeLakeNoSmt);
        for (processor, outside, follow) in
            [(None, 0.0, "guest-time"), (known, 0.0, "guest-time"), (None, 1800.0, "thread-time")]
        {
            calibration.pmu = Some(Pmu { processor, counters: 8, taken: 1, outside });
            let draft = fit(&calibration, "a simulated host", &measured).unwrap();
            draft.model().unwrap();
            let found = &draft.0;
            assert_eq!(found["counts"]["follow"].as_str(), Some(follow));
            let host = &found["host"];
            if let Some(processor) = processor {
                assert_eq!(host["processor"]["name"].as_str(), Some(processor.name()));
                assert_eq!(host["pinned"]["events"].to_string(), "[60]", "the watchdog's cycles");
            } else {
                assert!(draft.toml().contains("is not known here"));
                let value = |key: &str| host[key]["value"].as_integer();
                assert_eq!((value("counters"), value("taken")), (Some(8), Some(1)));
            }
            let rate = found["counts"]["default"]["per-us"].as_float().unwrap();
            let events = found["counts"].get("events").and_then(toml::Value::as_table).map_or(0, toml::Table::len);
            if outside > 0.0 {
                assert_eq!((rate, events), (outside, 0));
            } else {
                // Known: 2000 in guest mode, and not in the VMM.
                assert!((1960.0..=2040.0).contains(&rate) && events > 1, "{rate}, {events} events");
            }
        }
    }
}
