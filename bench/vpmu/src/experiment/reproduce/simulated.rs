//! Simulations of the published figures: ten multiplexed events, or four, on the model of the host.

use std::collections::BTreeMap;
use std::ops::Range;

use arch_pmu::intel::IntelCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};
use host_pmu::strategy::Strategy;
use rayon::prelude::*;
use results::published::{Number, Origin};
use sim::guest::Timer;
use sim::host::{CounterSource, Plan};
use sim::mediated::Mediated;
use sim::model::Fitted;
use sim::run::{Totals, run};

use crate::arms::arm::sim::model;
use crate::setting::workload::EventSet;
use crate::terminal::console::internal;
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
pub(super) const PERIOD: u64 = 20_000_000;
/// Period for figures of the minimum. The shortest handler is that of an NMI in the middle of a rotation, while the driver has
/// disabled the counters: a window of some nanoseconds. At this period a run with reuse has such an NMI.
const FREQUENT: u64 = 1_000_000;

/// End of the ids of figures with an event filter.
pub(super) const FILTER: &str = ".filter";
/// Frequency of the published runs with a mediated vPMU, Hz.
const FREQUENCY: u64 = 1000;
/// Ticks before anything is measured, where the guest's work is compared: a second.
const BASELINE: u64 = 250;
/// Six of the ten events that fit a guest's counters: four general-purpose ones and two fixed ones. The published six
/// are not named.
const SIX: Range<usize> = 1..7;
/// Linux 6.2 and later, to the letter, in place of a preset's name.
const KVM: &str = "kvm-6.2";

/// Constant of the guest that was fitted, and the published number that it was fitted to; those of the models are in the models.
const GUEST_FITTED: [(&str, &str); 1] = [("the guest's period", "vpmu-reuse.creates.gp change")];

/// Number of a strategy, from the totals of its simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Mean handler latency of all NMIs.
    Mean,
    /// Minimum of it.
    Min,
    /// Creates behind general-purpose counters.
    CreatesGp,
    /// Creates behind fixed counters.
    CreatesFixed,
    /// Time by which the guest's work takes longer than with its counters off, percent.
    SlowDown,
}

impl Quantity {
    fn of(self, totals: &Totals) -> Option<f64> {
        // The published runs timed the guest's nmi_handler, which includes NMIs that re-armed nothing.
        let of_all_nmis = || {
            let mut all = totals.handler.clone();
            all.merge(&totals.driver_off);
            all
        };
        match self {
            Self::Mean => of_all_nmis().mean(),
            Self::Min => Some(of_all_nmis()).filter(|all| all.count() > 0).map(|all| all.min as f64),
            Self::CreatesGp => Some((totals.counts.opens - totals.counts.opens_fixed) as f64),
            Self::CreatesFixed => Some(totals.counts.opens_fixed as f64),
            Self::SlowDown => totals.slow_down().map(|share| 100.0 * share),
        }
    }
}

/// Simulation of the numbers before and after of a figure.
#[derive(Clone, PartialEq, Eq)]
struct Question {
    model: String,
    events: EventSet,
    /// Range of those events in use.
    of_them: Range<usize>,
    period: u64,
    /// Sampling frequency that the guest adjusts its periods to, Hz; 0 = it does not.
    freq_hz: u64,
    baseline_ticks: u64,
    strategies: [&'static str; 2],
    /// True if both run for the same time instead of the same ticks, so that rare events are equally likely.
    same_time: bool,
    number: Quantity,
}

impl Question {
    /// Returns the key that distinguishes its simulations from others.
    fn key(&self, strategy: &str) -> String {
        format!("{} {:?} {:?} {} {strategy}", self.model, self.events, self.of_them, self.period)
    }

    /// Returns its number of a strategy.
    fn of(&self, strategy: &str) -> String {
        format!("{} {:?}", self.key(strategy), self.number)
    }
}

fn question(figure: &str) -> Option<Question> {
    let watchdog_on = Question {
        model: "clx-ap-watchdog-on".to_owned(),
        events: EventSet::Sampling10,
        of_them: 0..MAX_EVENTS,
        period: PERIOD,
        freq_hz: 0,
        baseline_ticks: 1,
        strategies: ["recreate", "reuse-lazy"],
        same_time: false,
        number: Quantity::Mean,
    };
    if figure.starts_with("mediated.") {
        let after = if figure.ends_with(FILTER) { "mediated-filter" } else { "mediated" };
        return Some(Question {
            model: "spr-2026".to_owned(),
            of_them: if figure.starts_with("mediated.6-events") { SIX } else { 0..MAX_EVENTS },
            // The guest adjusts it within a few ticks.
            period: FREQUENT,
            freq_hz: FREQUENCY,
            baseline_ticks: BASELINE,
            strategies: [KVM, after],
            number: Quantity::SlowDown,
            ..watchdog_on
        });
    }
    Some(match figure {
        // v1 and v2 differ from v3 in the kernel, which the models do not cover.
        "vpmu-reuse.watchdog-on.mean" | "vpmu-reuse.v1.mean" => watchdog_on,
        "vpmu-reuse.watchdog-off.mean" => Question { model: "clx-ap-watchdog-off".to_owned(), ..watchdog_on },
        "vpmu-reuse.watchdog-off.min" => Question {
            model: "clx-ap-watchdog-off".to_owned(),
            period: FREQUENT,
            same_time: true,
            number: Quantity::Min,
            ..watchdog_on
        },
        "vpmu-reuse.creates.gp" => Question { number: Quantity::CreatesGp, ..watchdog_on },
        "vpmu-reuse.creates.fixed" => Question { number: Quantity::CreatesFixed, ..watchdog_on },
        "vpmu-paused-flag.mean" => Question {
            model: "icx-2021".to_owned(),
            events: EventSet::Sampling4,
            strategies: ["reuse-lazy", "paused-flag"],
            ..watchdog_on
        },
        _ => return None,
    })
}

/// Returns the question, and the same of each form of its model that fits the published figures as well.
fn forms(question: Question) -> Result<Vec<Question>, Error> {
    let model = model(&question.model)?;
    let others: Vec<Question> =
        model.fitting_forms().map(|other| Question { model: other.name.clone(), ..question.clone() }).collect();
    Ok(std::iter::once(question).chain(others).collect())
}

/// Returns the reason why the model does not explain a figure, and the regime that would. docs/simulator.md has the regimes that were tried.
pub(super) fn not_explained(figure: &str) -> Option<&'static str> {
    if figure.starts_with("mediated.10-events") {
        return Some(
            "a guest with eight general-purpose counters for its ten events has 83 % in the model: KVM gives a guest eight on this processor; \
             the published counters and events are not known",
        );
    }
    (figure == "vpmu-reuse.watchdog-off.mean").then_some(
        "786 times the mean with the watchdog on is 38.0 ms before, and 685 times v1's 38.5 ms: 1.9 times the minimum. A last close of 17.5 ms \
         beside a first open of 20.3 ms gives 782 x, and then no minimum of 20.4 ms; no period, tick, frequency or number of vCPUs does",
    )
}

/// Simulated numbers of a figure.
pub(super) struct Found {
    pub(super) model: String,
    before: Option<f64>,
    after: Option<f64>,
    /// Both numbers by each form of the model, its own first.
    forms: Vec<[Option<f64>; 2]>,
    fitted: Vec<Fitted>,
}

impl Found {
    pub(super) fn number(&self, number: Number) -> Option<f64> {
        Self::of(self.before, self.after, number)
    }

    /// Returns the least and the greatest number of the model's forms, where there are several.
    pub(super) fn range(&self, number: Number) -> Vec<f64> {
        let mut all: Vec<f64> = self.forms.iter().filter_map(|form| Self::of(form[0], form[1], number)).collect();
        all.sort_by(f64::total_cmp);
        if let [low, .., high] = all[..] { vec![low, high] } else { Vec::new() }
    }

    fn of(before: Option<f64>, after: Option<f64>, number: Number) -> Option<f64> {
        let both = before.zip(after);
        match number {
            Number::Before => before,
            Number::After => after,
            Number::Ratio => both.filter(|&(_, after)| after > 0.0).map(|(before, after)| before / after),
            Number::Change => both.filter(|&(b, _)| b > 0.0).map(|(before, after)| 100.0 * (after / before - 1.0)),
        }
    }

    /// Constants that were fitted to a number.
    fn fitted_to(&self, id: &str, number: Number) -> Vec<String> {
        let name = format!("{id} {}", number.key());
        let of_model = self.fitted.iter().map(|fitted| (fitted.constant.as_str(), fitted.figure.as_str()));
        let all = of_model.chain(GUEST_FITTED).filter(|(_, figure)| *figure == name);
        all.map(|(constant, _)| constant.to_owned()).collect()
    }

    pub(super) fn origin(&self, id: &str, number: Number) -> Origin {
        let here = self.fitted_to(id, number);
        let parts = |id: &str| {
            match number {
                Number::Ratio | Number::Change => [number, Number::Before, Number::After].to_vec(),
                Number::Before | Number::After => vec![number],
            }
            .into_iter()
            .any(|number| !self.fitted_to(id, number).is_empty())
        };
        if !here.is_empty() {
            return Origin::Fitted(here);
        }
        if parts(id) {
            return Origin::OfFitted;
        }
        // Constants fitted to another figure that is the same number of the same simulation.
        let figures = self.fitted.iter().filter_map(|fitted| fitted.figure.split(' ').next());
        let same = |other: &&str| *other != id && question(other) == question(id) && parts(other);
        figures.into_iter().find(same).map_or(Origin::Predicted, |from| Origin::Transferred(from.to_owned()))
    }
}

/// Seed of the stored figures, the default of `vpmu reproduce`.
pub(super) const SEED: u64 = 1;

/// Stored results of the simulations with [`SEED`], which are the same on any machine: they take longer than to read a
/// thousand results. A test simulates them again.
pub(super) const STORED: &str = include_str!("simulated.toml");

/// The simulations behind published figures: their numbers by [`Question::key`] and [`Quantity`].
#[derive(Debug, PartialEq)]
pub(super) struct Simulations {
    done: BTreeMap<String, f64>,
}

impl Simulations {
    /// Simulates what these figures ask for, each once, on the threads of rayon's pool.
    pub(super) fn run(seed: u64, figures: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut wanted: BTreeMap<String, (Vec<Question>, &'static str)> = BTreeMap::new();
        for question in figures.filter_map(|id| question(&id)) {
            for question in forms(question)? {
                for name in question.strategies {
                    let (questions, _) = wanted.entry(question.key(name)).or_insert_with(|| (Vec::new(), name));
                    questions.push(question.clone());
                }
            }
        }
        let simulate = |(questions, name): (Vec<Question>, &str)| {
            let totals = run(&model(&questions[0].model)?, &Self::plan(seed, &questions[0], behind(name)?), HOSTS);
            let numbers =
                questions.iter().filter_map(|question| Some((question.of(name), question.number.of(&totals)?)));
            Ok(numbers.collect::<Vec<_>>())
        };
        let done: Result<Vec<_>, Error> = wanted.into_par_iter().map(|(_, one)| simulate(one)).collect();
        Ok(Self { done: done?.into_iter().flatten().collect() })
    }

    /// Returns the result of [`Self::run`] with [`SEED`].
    pub(super) fn stored() -> Result<Self, Error> {
        let done = toml::from_str(STORED).map_err(|error| internal("cannot read the simulated figures", error))?;
        Ok(Self { done })
    }

    /// Returns a published figure; `None` if there is no simulation for it.
    pub(super) fn figure(&self, id: &str) -> Result<Option<Found>, Error> {
        let Some(question) = question(id) else { return Ok(None) };
        let fitted = model(&question.model)?.fitted;
        let found = |one: &Question| one.strategies.map(|name| self.done.get(&one.of(name)).copied());
        let [before, after] = found(&question);
        let forms = forms(question.clone())?.iter().map(found).collect();
        Ok(Some(Found { model: question.model, before, after, forms, fitted }))
    }

    fn plan(seed: u64, question: &Question, behind: CounterSource) -> Plan {
        let mut events = [EventSpec::default(); MAX_EVENTS];
        let named = question.events.events(Vendor::Intel, question.period);
        let Range { start, end } = question.of_them;
        let named = named.get(start..end.min(named.len())).unwrap_or_default();
        for (slot, event) in events.iter_mut().zip(named) {
            *slot = event.spec;
        }
        let ticks = if question.same_time { RARE * TICKS } else { TICKS };
        let boot = BootPage {
            flags: question.events.flags(),
            tick_count: MUX_INTERVAL_NS,
            baseline_ticks: question.baseline_ticks,
            max_ticks: ticks,
            freq_hz: question.freq_hz,
            event_count: named.len().min(MAX_EVENTS) as u64,
            events,
            ..BootPage::default()
        };
        Plan {
            behind,
            pmu: IntelCaps::default().into(),
            vcpus: 1,
            cpus: 1,
            boot,
            // Linux rotates by an hrtimer.
            timer: Timer::Forwarded,
            limit_ns: if question.same_time { ticks * MUX_INTERVAL_NS } else { u64::MAX },
            seed,
            trace: None,
        }
    }
}

/// Returns the source of counters with this name.
fn behind(name: &str) -> Result<CounterSource, Error> {
    let preset = |name| Strategy::preset(name).map_err(|error| internal("cannot simulate", error));
    Ok(match Mediated::named(name) {
        Some(kind) => CounterSource::Mediated(kind),
        None => CounterSource::Events(preset(if name == KVM { "deferred" } else { name })?),
    })
}

#[cfg(test)]
mod tests {
    use guest::abi::EventSpec;
    use sim::model::Model;

    use super::*;

    impl Simulations {
        /// Returns the text of [`STORED`].
        pub(crate) fn to_text(&self) -> String {
            let lines = self.done.iter().map(|(name, number)| format!("{name:?} = {number:?}"));
            lines.chain([String::new()]).collect::<Vec<_>>().join("\n")
        }
    }

    fn mean(model: &Model, question: &Question, strategy: &str) -> f64 {
        let plan = Simulations::plan(SEED, question, behind(strategy).unwrap());
        Quantity::Mean.of(&run(model, &plan, HOSTS)).unwrap()
    }

    #[test]
    fn forms_of_a_model_fit_the_published_figure_as_well() {
        let question = question("vpmu-reuse.watchdog-on.mean").unwrap();
        let of = |model: &Model| ["reuse-lazy", "gate"].map(|strategy| mean(model, &question, strategy));
        let whole = model(&question.model).unwrap();
        let [fitted, gate] = of(&whole);
        let others: Vec<_> = whole.fitting_forms().map(of).collect();
        assert!(others.iter().all(|[mean, _]| (mean / fitted - 1.0).abs() < 0.001), "{fitted}, {others:?}");
        assert!(
            others.iter().any(|[_, other]| other / gate > 1.05),
            "{gate}, {others:?}: another figure tells them apart"
        );
    }

    /// Checks what [`not_explained`] says.
    #[test]
    fn the_regimes_that_would_explain_a_figure_give_it() {
        let off = question("vpmu-reuse.watchdog-off.mean").unwrap();
        let mut symmetrical = model(&off.model).unwrap();
        let close = symmetrical.costs.release_last.smallest() as f64;
        symmetrical.scale("release-last", 17.5e6 / close).unwrap();
        let ratio = mean(&symmetrical, &off, "recreate") / mean(&symmetrical, &off, "reuse-lazy");
        assert!((ratio / 786.0 - 1.0).abs() < 0.01, "{ratio}");

        let ten = question("mediated.10-events").unwrap();
        let mut plan = Simulations::plan(SEED, &ten, behind(KVM).unwrap());
        plan.pmu = IntelCaps { gp: 8, ..IntelCaps::default() }.into();
        for (code, event) in (0xc4..).zip(&mut plan.boot.events[..10]) {
            *event = EventSpec { selector: event.selector & !0xffff | code, fixed: 0, ..*event };
        }
        let slow_down = Quantity::SlowDown.of(&run(&model(&ten.model).unwrap(), &plan, HOSTS)).unwrap();
        assert!((slow_down - 83.5).abs() < 1.0, "{slow_down}");
    }
}
