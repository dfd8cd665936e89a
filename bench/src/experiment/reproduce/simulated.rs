//! Simulations of the published figures: ten multiplexed events, or four, on the model of the host.

use std::collections::BTreeMap;

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};
use host_pmu::strategy::Strategy;
use results::published::{Number, Origin};
use sim::guest::Timer;
use sim::host::{Behind, Plan};
use sim::model::Fitted;
use sim::run::{Totals, run};

use crate::arm::sim::model;
use crate::console::internal;
use crate::workload::EventSet;
use results::error::Error;

/// perf's default multiplex interval.
const MUX_INTERVAL_NS: u64 = 4_000_000;
/// Ticks in ten seconds.
const TICKS: u64 = 2500;
/// Hosts per number. One is enough: the models have fixed costs only.
const HOSTS: u64 = 1;
/// Factor on the duration of a run for a rare event.
const RARE: u64 = 3;
/// Sampling period of the guest. The published text does not give it; this one is fitted to `vpmu-reuse.creates.gp`: about 1.3
/// PMIs per rotation. Handler latencies hardly depend on it.
const PERIOD: u64 = 20_000_000;
/// Period for figures of the minimum. The shortest handler is that of an NMI in the middle of a rotation, while the driver has
/// disabled the counters: a window of some nanoseconds. At this period a run with reuse has such an NMI.
const FREQUENT: u64 = 1_000_000;

/// Simulation of the numbers before and after of a figure.
struct Question {
    model: &'static str,
    events: EventSet,
    period: u64,
    strategies: [&'static str; 2],
    /// Whether both run for the same time instead of the same ticks, so that rare events are equally likely.
    same_time: bool,
    /// Number of a strategy, from its totals.
    number: fn(&Totals) -> Option<f64>,
}

fn question(figure: &str) -> Option<Question> {
    let mean: fn(&Totals) -> Option<f64> = |totals| totals.handler.mean();
    let watchdog_on = Question {
        model: "clx-ap-watchdog-on",
        events: EventSet::Sampling10,
        period: PERIOD,
        strategies: ["recreate", "reuse-lazy"],
        same_time: false,
        number: mean,
    };
    Some(match figure {
        // v1 and v2 differ from v3 in the kernel, which the models do not cover.
        "vpmu-reuse.watchdog-on.mean" | "vpmu-reuse.v1.mean" => watchdog_on,
        "vpmu-reuse.watchdog-off.mean" => Question { model: "clx-ap-watchdog-off", ..watchdog_on },
        "vpmu-reuse.watchdog-off.min" => Question {
            model: "clx-ap-watchdog-off",
            period: FREQUENT,
            same_time: true,
            number: |totals| (totals.handler.count() > 0).then_some(totals.handler.min as f64),
            ..watchdog_on
        },
        "vpmu-reuse.creates.gp" => Question { number: |totals| Some(totals.creates.gp as f64), ..watchdog_on },
        "vpmu-reuse.creates.fixed" => Question { number: |totals| Some(totals.creates.fixed as f64), ..watchdog_on },
        "vpmu-paused-flag.mean" => Question {
            model: "icx-2021",
            events: EventSet::Sampling4,
            strategies: ["reuse-lazy", "paused-flag"],
            ..watchdog_on
        },
        _ => return None,
    })
}

/// Simulated numbers of a figure.
pub(super) struct Found {
    pub(super) model: String,
    before: Option<f64>,
    after: Option<f64>,
    fitted: Vec<Fitted>,
}

impl Found {
    pub(super) fn number(&self, number: Number) -> Option<f64> {
        let both = self.before.zip(self.after);
        match number {
            Number::Before => self.before,
            Number::After => self.after,
            Number::Ratio => both.filter(|&(_, after)| after > 0.0).map(|(before, after)| before / after),
            Number::Change => both.filter(|&(b, _)| b > 0.0).map(|(before, after)| 100.0 * (after / before - 1.0)),
        }
    }

    pub(super) fn origin(&self, id: &str, number: Number) -> Origin {
        let to = |number: Number| -> Vec<String> {
            let name = format!("{id} {}", number.key());
            let fitted = self.fitted.iter().filter(|fitted| fitted.figure == name);
            fitted.map(|fitted| fitted.constant.clone()).collect()
        };
        let here = to(number);
        if id == "vpmu-reuse.creates.gp" {
            Origin::Fitted(vec!["the guest's period".to_owned()])
        } else if !here.is_empty() {
            Origin::Fitted(here)
        } else if number == Number::Ratio && !to(Number::Before).is_empty() && !to(Number::After).is_empty() {
            Origin::OfFitted
        } else {
            Origin::Predicted
        }
    }
}

/// Cache of simulations.
pub(super) struct Simulations {
    seed: u64,
    done: BTreeMap<String, Totals>,
}

impl Simulations {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, done: BTreeMap::new() }
    }

    /// Simulates a published figure; `None` if there is no simulation for it.
    pub(super) fn figure(&mut self, id: &str) -> Result<Option<Found>, Error> {
        let Some(question) = question(id) else { return Ok(None) };
        let model = model(question.model)?;
        let mut numbers = [None, None];
        for (number, name) in numbers.iter_mut().zip(question.strategies) {
            let key = format!("{} {:?} {} {name}", question.model, question.events, question.period);
            if !self.done.contains_key(&key) {
                let strategy = Strategy::preset(name).map_err(|error| internal("cannot simulate", error))?;
                let totals = run(&model, &self.plan(&question, strategy), HOSTS);
                self.done.insert(key.clone(), totals);
            }
            *number = self.done.get(&key).and_then(question.number);
        }
        let [before, after] = numbers;
        Ok(Some(Found { model: question.model.to_owned(), before, after, fitted: model.fitted }))
    }

    fn plan(&self, question: &Question, strategy: Strategy) -> Plan {
        let mut events = [EventSpec::default(); MAX_EVENTS];
        let named = question.events.events(question.period);
        for (slot, event) in events.iter_mut().zip(&named) {
            *slot = event.spec;
        }
        let ticks = if question.same_time { RARE * TICKS } else { TICKS };
        let boot = BootPage {
            flags: question.events.flags(),
            tick_count: MUX_INTERVAL_NS,
            baseline_ticks: 1,
            max_ticks: ticks,
            event_count: named.len().min(MAX_EVENTS) as u64,
            events,
            ..BootPage::default()
        };
        Plan {
            behind: Behind::Events(strategy),
            pmu: PmuCaps::default(),
            vcpus: 1,
            cpus: 1,
            boot,
            // Linux rotates by an hrtimer.
            timer: Timer::Forwarded,
            limit_ns: if question.same_time { ticks * MUX_INTERVAL_NS } else { u64::MAX },
            seed: self.seed,
        }
    }
}
