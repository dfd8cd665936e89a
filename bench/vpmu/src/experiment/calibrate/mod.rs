//! A model of this host, fitted to measured guests.
//!
//! Costs of host operations are the distributions measured in arms `recreate`, `reuse` and `virtual`. Each constant that only the
//! guest sees has a figure of its own: `instruction` a loop in ring 0 that does not exit, `exit` the floor's handler of
//! one event beyond its instructions, `tick-exit` the floor's rotations beyond what its handlers account for; the last
//! two are solved for with the simulator. Guests of all workloads take turns, so that the host's modes meet all alike,
//! and each fitted constant has a 95 % interval over guests. No latency of a strategy is fitted; [`check`] compares
//! measured with simulated latencies, and the model says how far apart they are.

pub mod check;
pub mod draft;
pub mod fit;
pub mod measure;
pub mod run;
pub mod spec;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;

    use host_pmu::backend::scheduling::Processor;
    use host_pmu::stats::OpKind;
    use results::metric::NMI_HANDLER;
    use sim::model::{Costs, Model};
    use vmm::machine::Cpu;
    use vmm::outcome::End;

    use super::fit::fit;
    use super::measure::{Job, Measured, run};
    use super::spec::{CalibrateSpec, Outside, Pmu, plan, spec, workloads};
    use crate::arms::arm::sim::{self as simulated, SimRunner, model_text};
    use crate::arms::rounds::mock::{self, MockRunner, outcome, vcpu};
    use crate::terminal::progress::Silent;

    /// Seed, rounds and samples.
    const USUAL: (u64, u64, u64) = (0, 40, 50);

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
    fn measured(
        model: &Model,
        cpu: Cpu,
        dear: bool,
        (seed, rounds, samples): (u64, u64, u64),
    ) -> (CalibrateSpec, Vec<Measured>) {
        let calibration = CalibrateSpec {
            name: "found".to_owned(),
            backend: "cpu-clock".to_owned(),
            cpu,
            dear,
            beside: beside(&model.costs),
            rounds: Some(rounds),
            samples: Some(samples),
            ..CalibrateSpec::default()
        };
        let chosen = simulated::chosen(model, "test");
        let mut jobs = Vec::new();
        for (workload, strategies) in workloads(&calibration) {
            let spec = spec(&calibration, workload, &strategies).unwrap();
            let mut plan = plan(&spec, cpu, &chosen, None).unwrap();
            plan.simulate(&model.name);
            let runner =
                Box::new(SimRunner::new(model.clone(), &plan.guest, plan.parameters.period, plan.seed + seed).unwrap());
            jobs.push(Job { workload, spec, plan, runner });
        }
        let measured = run(&mut jobs, (rounds, None), &AtomicBool::new(false), &mut Silent).unwrap();
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
        let (calibration, measured) = measured(&model, cpu, false, USUAL);
        let draft = fit(&calibration, "a simulated host", &measured).unwrap();
        (known.parse().unwrap(), draft.toml().parse().unwrap())
    }

    /// Known constants, with an AMD's guests those of the development host, with an Intel's the same host with slow exits and fast
    /// instructions.
    fn known() -> [(String, Cpu); 2] {
        let (text, _) = model_text("development-host").unwrap();
        let other = text
            .replace("exit = { ns = 5500", "exit = { ns = 14000")
            .replace("tick-exit = { ns = 3300", "tick-exit = { ns = 6000")
            .replace("ps = 250000", "ps = 90000")
            .replace("apic = { ns = 1500", "apic = { ns = 3500");
        assert_ne!(text, other);
        [(text, Cpu::Milan), (other, Cpu::CascadeLake)]
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

    /// Counts, for each constant with an interval, the intervals that hold the truth, over `hosts` whose costs vary by `spread` to both
    /// sides.
    fn held(spread: f64, hosts: u32) -> BTreeMap<String, u32> {
        let (text, _) = model_text("development-host").unwrap();
        let (mut known, mut truth): (toml::Table, _) = (text.parse().unwrap(), BTreeMap::new());
        for (key, cost) in known["cost"].as_table_mut().unwrap() {
            let Some(ns) = cost.get("ns").and_then(toml::Value::as_integer) else { continue };
            truth.insert(key.clone(), ns as f64);
            // A whole number, and what is measured outside of guests.
            if key != "work-unit" && key != "expiry" && !key.starts_with("switch") {
                let ends = [1.0 - spread, 1.0 + spread].map(|factor| toml::Value::Float(ns as f64 * factor));
                cost.as_table_mut().unwrap().insert("ns".to_owned(), toml::Value::Array(ends.to_vec()));
            }
        }
        truth.insert("inject + interrupt".to_owned(), truth["inject"] + truth["interrupt"]);
        let model = Model::from_toml("known", &known.to_string()).unwrap();
        let mut held = BTreeMap::new();
        for seed in 0..u64::from(hosts) {
            let (calibration, measured) = measured(&model, Cpu::CascadeLake, false, (100 + seed, 12, 50));
            let draft = fit(&calibration, "a simulated host", &measured).unwrap();
            for (key, truth) in &truth {
                let Some([low, high]) = draft.interval_of(key) else { continue };
                let holds = (low as f64..=high as f64).contains(truth);
                *held.entry(key.clone()).or_default() += u32::from(holds);
            }
        }
        held
    }

    /// 17 of 20 intervals of each constant, or more, hold the truth.
    #[test]
    fn intervals_hold_the_constants_of_hosts_whose_costs_vary() {
        const HOSTS: u32 = 7;
        std::thread::scope(|scope| {
            for side in [0.2, 0.5].map(|spread| scope.spawn(move || held(spread, HOSTS))) {
                let held = side.join().unwrap();
                assert!(!held.contains_key("inject") && held.len() == 20, "only their sum is measured: {held:?}");
                assert!(held.values().all(|held| 20 * held >= 17 * HOSTS), "{held:?}");
            }
        });
    }

    #[test]
    fn a_host_with_long_turns_of_other_tasks_gets_no_interval_of_tick_exit() {
        let (text, _) = model_text("development-host").unwrap();
        let mut known: toml::Table = text.parse().unwrap();
        for (key, ns) in [("every", 1_000_000), ("length", 3_000_000)] {
            known["host"]["others"][key]["ns"] = toml::Value::Integer(ns);
        }
        let model = Model::from_toml("known", &known.to_string()).unwrap();
        let (calibration, measured) = measured(&model, Cpu::CascadeLake, false, (0, 12, 50));
        let draft = fit(&calibration, "a simulated host", &measured).unwrap();
        assert_eq!(draft.interval_of("tick-exit"), None, "{}", draft.fitted(80));
        assert!(draft.interval_of("exit").is_some() && draft.toml().contains("not identified"), "{}", draft.toml());
    }

    #[test]
    fn a_turn_that_is_not_whole_is_left_out_and_counted() {
        let (spec, plan) = (spec(&CalibrateSpec::default(), "single", &[]).unwrap(), mock::plan(&[]).unwrap());
        let runner = MockRunner::new(|arm, turn, samples| {
            let bad = if arm.strategy == "reuse" && !turn.warmup { turn.index } else { 0 };
            let mut vcpu = vcpu(samples, if [3, 7].contains(&bad) { 90_000 } else { 1000 });
            vcpu.account.counts.nmis_injected += u64::from(bad == 3);
            vcpu.end = if bad == 7 { End::TimedOut } else { End::Done };
            Ok(outcome(vec![vcpu]))
        });
        let mut jobs = [Job { workload: "single", spec, plan, runner: Box::new(runner) }];
        let measured = run(&mut jobs, (42, None), &AtomicBool::new(false), &mut Silent).unwrap();
        let reuse = measured[0].arm("reuse").unwrap();
        let medians: Vec<f64> = reuse.medians(&NMI_HANDLER).into_iter().flatten().collect();
        let opens = reuse.op_means(OpKind::Open).iter().flatten().count();
        assert_eq!((medians, opens, reuse.result.left_out.len()), (vec![1000.0; 40], 40, 2));
    }

    #[test]
    fn a_further_open_costs_what_it_costs_where_each_guest_has_a_dear_first() {
        let (text, _) = model_text("clx-ap-watchdog-off").unwrap();
        let model = Model::from_toml("known", &text).unwrap();
        let (mut calibration, measured) = measured(&model, Cpu::default(), true, USUAL);
        calibration.pmu = Some(Pmu { processor: None, counters: 7, taken: 0, outside: 0.0 });
        let found = fit(&calibration, "a simulated host", &measured).unwrap().toml();
        let found: toml::Table = found.parse().unwrap();
        let costs = |key: &str| {
            let all = found["cost"][key]["ns"].as_array().unwrap().iter();
            all.map(|ns| ns.as_integer().unwrap()).collect::<Vec<_>>()
        };
        assert!(costs("open-first")[10] > 20_000_000, "{:?}", costs("open-first"));
        assert!(costs("open-more").iter().all(|ns| (12_000..13_000).contains(ns)), "{:?}", costs("open-more"));
    }

    #[test]
    fn hardware_is_described_as_a_pmu_and_not_as_a_clock() {
        let (text, _) = model_text("clx-ap-watchdog-on").unwrap();
        let model = Model::from_toml("known", &text).unwrap();
        let (mut calibration, measured) = measured(&model, Cpu::default(), false, USUAL);
        let known = Some(Processor::CascadeLakeNoSmt);
        for (processor, outside, follow) in
            [(None, 0.0, "guest-time"), (known, 0.0, "guest-time"), (None, 1800.0, "thread-time")]
        {
            calibration.pmu = Some(Pmu { processor, counters: 8, taken: 1, outside });
            let draft = fit(&calibration, "a simulated host", &measured).unwrap();
            draft.model().unwrap();
            let found: toml::Table = draft.toml().parse().unwrap();
            assert_eq!(found["counts"]["follow"].as_str(), Some(follow));
            let host = &found["host"];
            if let Some(processor) = processor {
                assert_eq!(host["processor"]["name"].as_str(), Some(processor.name()));
                assert_eq!(host["pinned"]["events"].to_string(), "[60]", "the watchdog's cycles");
            } else {
                assert!(draft.toml().contains("is not known here"), "{}", draft.toml());
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
