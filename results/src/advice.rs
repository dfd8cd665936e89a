//! Which strategy to take, by results of one or several workloads and hosts: a ranking by the worst of a strategy's times over those of
//! each result's fastest, and how sure its first place is.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::document::{Arm, BELOW_KVM, NMI_LATENCY, REPLAY, Record, Status};
use crate::metric::{self, Metric};
use crate::paired::{self, MIN_ROUNDS, Ratio, Statistic};
use crate::stats::interval::Interval;
use crate::table::column::{self, Figures, Place};
use crate::table::layout::{dash, plural, ratio, ratio_in};
use crate::table::ranking::{AS_GOOD, contenders, listed, origin};
use crate::table::{Report, Table};

/// A strategy over all results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Its name.
    pub strategy: String,
    /// Its time over that of the result's fastest strategy: the worst of all results.
    pub worst_regret: f64,
    /// Bounds of that: the worst of the 95 % intervals' ends.
    pub worst_interval: Interval,
    /// Figures by column, means over results.
    pub work: BTreeMap<&'static str, f64>,
    /// Results that have it.
    pub results: usize,
}

/// A strategy in a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regret {
    /// Its name.
    pub strategy: String,
    /// Its time over that of the fastest.
    #[serde(flatten)]
    pub ratio: Ratio,
}

/// A result: a workload on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting<'a> {
    /// Events and work of the guest.
    pub workload: String,
    /// The host's class.
    pub host: String,
    /// Its strategies, the fastest first.
    pub regrets: Vec<Regret>,
    #[serde(skip)]
    record: &'a Record,
    #[serde(skip)]
    metric: &'static Metric,
}

/// Strategies of a result that are left out, the result, and the reason.
pub type LeftOut = [String; 3];

/// The choice of a strategy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice<'a> {
    /// The strategy to take.
    pub choice: String,
    /// No other can have a worst regret that is more than 1 % smaller, and nothing is left out.
    pub is_sure: bool,
    /// The answer: the choice and its rule, what it costs, how sure it is.
    pub answer: Vec<String>,
    /// The strategies, the least regret first.
    pub strategies: Vec<Standing>,
    /// The results that it is made from.
    pub results: Vec<Setting<'a>>,
    /// What is left out.
    pub left_out: Vec<LeftOut>,
}

fn workload(record: &Record) -> String {
    record.parameter("workload").unwrap_or_default()
}

fn place(record: &Record) -> String {
    format!("{} on {}", workload(record), record.host.class)
}

fn left_out(record: &Record, strategies: &str, why: impl Into<String>) -> LeftOut {
    let what = if record.is_simulated() { place(record) } else { workload(record) };
    [strategies.to_owned(), what, why.into()]
}

/// Sources of figures, of which one answer has one: the most telling first.
const SOURCES: [&str; 4] = ["hardware events", "a tracepoint", "a stand-in clock", "a simulation"];

/// Returns the place of a result's source.
fn source(record: &Record) -> usize {
    match record.parameter("backend").unwrap_or_default() {
        _ if record.is_simulated() => 3,
        key if key.contains("clock") => 2,
        key if key.starts_with("tracepoint") => 1,
        _ => 0,
    }
}

/// Returns a ratio of two arms; a model that was calibrated knows it no better than the runs that it was made from.
fn ratio_of(record: &Record, metric: &Metric, arm: &str, base: &str) -> Option<Ratio> {
    let ratio = paired::over_runs(record, record.arm(arm)?, record.arm(base)?, metric.key, Statistic::P50)?;
    let spread = record.host.model_percent.map_or(1.0, |[low, high]| high as f64 / low as f64);
    let wide = |Interval { low, high }| Interval { low: low / spread, high: high * spread };
    Some(Ratio { interval: ratio.interval.map(wide), ..ratio })
}

/// Says why a strategy of a result is not judged, beside the results before it.
fn no_figures(record: &Record, arm: &Arm, metric: &Metric, others: &[Setting<'_>]) -> Option<String> {
    if let Some(why) = &arm.not_available {
        return Some(why.clone());
    }
    if !contenders(record, metric).any(|one| one.name == arm.name) {
        return Some("it has no whole figures".to_owned());
    }
    let has = others.iter().find(|other| other.regret(&arm.name).is_some())?.record;
    (!record.defines_alike(has, &arm.name)).then(|| format!("it is defined otherwise than in {}", place(has)))
}

impl<'a> Setting<'a> {
    /// Returns the figures of a result by its own strategies, and what is left out of it; no figures of fewer than two strategies.
    fn of(record: &'a Record, others: &[Self]) -> (Option<Self>, Vec<LeftOut>) {
        let Some(metric) = record.metric().and_then(metric::find) else {
            return (None, vec![left_out(record, "all", "it has no figures")]);
        };
        let (mut names, mut lacks) = (Vec::new(), Vec::new());
        for arm in record.arms.iter().filter(|arm| arm.is_strategy()) {
            match no_figures(record, arm, metric, others) {
                None => names.push(&arm.name),
                Some(why) => lacks.push(left_out(record, &arm.name, why)),
            }
        }
        let one = Ratio { interval: Some(Interval { low: 1.0, high: 1.0 }), ..Ratio::of_means(1.0, 0) };
        // The rounds that say by how much others are slower say which is the fastest.
        let (mut first, mut ratios) = (names.first().copied(), Vec::new());
        for _ in 0..=names.len() {
            let Some(name) = first.take() else { break };
            let ratio = |own: &String| if own == name { Some(one) } else { ratio_of(record, metric, own, name) };
            ratios = names.iter().map(|own| (*own, ratio(own))).collect();
            let ahead = ratios.iter().filter_map(|(name, ratio)| Some((*name, (*ratio)?.ratio)));
            first = ahead.filter(|(_, ratio)| *ratio < 1.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name);
        }
        let mut regrets = Vec::new();
        for (name, found) in ratios {
            match found.filter(|found| found.interval.is_some()) {
                Some(found) => regrets
                    .push(Regret { strategy: name.clone(), ratio: Ratio { ratio: found.ratio.max(1.0), ..found } }),
                None => lacks.push(left_out(
                    record,
                    name,
                    format!("an interval takes {MIN_ROUNDS} rounds beside the fastest's"),
                )),
            }
        }
        regrets.sort_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio));
        let (workload, host) = (workload(record), record.host.class.clone());
        if regrets.len() < 2 {
            let why = lacks.first().map_or_else(String::new, |[name, _, why]| format!(": {name}: {why}"));
            let why = format!("fewer than two strategies have figures{why}");
            return (None, vec![left_out(record, "all", why)]);
        }
        (Some(Self { workload, host, regrets, record, metric }), lacks)
    }

    /// Names the fastest strategies, those that nothing tells apart as one place.
    fn fastest(&self) -> String {
        let is_first = |one: &&Regret| one.ratio.ratio <= 1.0 + AS_GOOD || !one.ratio.is_distinguishable();
        listed(&self.regrets.iter().filter(is_first).map(|one| one.strategy.clone()).collect::<Vec<_>>())
    }

    fn regret(&self, strategy: &str) -> Option<&Regret> {
        self.regrets.iter().find(|one| one.strategy == strategy)
    }
}

/// Returns what is left out as a table.
fn table_of(left_out: &[LeftOut]) -> Table {
    let mut table = Table::new(["left out", "because", "of"]).left(1).left(2).cut();
    for [strategies, what, why] in left_out {
        table.add_row([strategies.as_str(), why, what]);
    }
    table
}

/// Advises by results of guests, each judged by its own strategies, and of one source. `left_out` is what is left out already.
///
/// # Errors
/// There is nothing to choose by: why, in a sentence, and what was left out.
pub fn advise<'a>(records: &[&'a Record], mut left_out: Vec<LeftOut>) -> Result<Advice<'a>, Box<(String, Table)>> {
    let mut of_guests: Vec<&Record> = records.iter().copied().filter(|one| one.experiment == NMI_LATENCY).collect();
    of_guests.sort_by_key(|record| source(record));
    let mut results = Vec::<Setting<'_>>::new();
    for record in of_guests {
        let other = results.first().map(|first| source(first.record)).filter(|other| *other != source(record));
        if let Some(other) = other {
            let why = format!("its figures are of {}, this answer is by {}", SOURCES[source(record)], SOURCES[other]);
            left_out.push(self::left_out(record, "all", why));
            continue;
        }
        let (setting, lacks) = Setting::of(record, &results);
        results.extend(setting);
        left_out.extend(lacks);
    }
    let names: BTreeSet<&String> = results.iter().flat_map(|one| &one.regrets).map(|one| &one.strategy).collect();
    let mut strategies: Vec<Standing> = names.into_iter().map(|name| Standing::of(&results, name)).collect();
    for Setting { record, .. } in &results {
        let lacks = strategies.iter().filter(|one| record.arm(&one.strategy).is_none());
        let lacks: Vec<String> = lacks.map(|one| one.strategy.clone()).collect();
        if !lacks.is_empty() {
            left_out.push(self::left_out(record, &listed(&lacks), "the result is without them"));
        }
    }
    strategies.sort_by(|a, b| a.worst_regret.total_cmp(&b.worst_regret));
    // Of those that some results lack more rounds tell nothing.
    let most = strategies.iter().map(|one| one.results).max().unwrap_or(0);
    let whole: Vec<&Standing> = strategies.iter().filter(|one| one.results == most).collect();
    let why = match &whole[..] {
        [] => "no result of nmi-latency has two strategies with whole figures".to_owned(),
        [one] => format!("{} alone is in {}: run the others together", one.strategy, plural(most, "result")),
        _ => String::new(),
    };
    let as_good = whole.iter().filter(|one| one.worst_regret <= whole[0].worst_regret * (1.0 + AS_GOOD));
    let chosen = as_good.clone().min_by(|a, b| a.held().total_cmp(&b.held())).filter(|_| why.is_empty());
    let Some(chosen) = chosen else { return Err(Box::new((why, table_of(&left_out)))) };
    let names = |all: &mut dyn Iterator<Item = &&Standing>| -> Vec<String> {
        all.filter(|one| one.strategy != chosen.strategy).map(|one| one.strategy.clone()).collect()
    };
    let is_open = |one: &&&Standing| chosen.worst_interval.high > one.worst_interval.low * (1.0 + AS_GOOD);
    let (open, as_good) = (names(&mut whole.iter().filter(is_open)), names(&mut as_good.clone()));
    let own: Vec<&Setting<'_>> = results.iter().filter(|one| one.regret(&chosen.strategy).is_some()).collect();
    let counts = own.iter().filter_map(|one| Some(one.record.arm(&chosen.strategy)?.own.counts));
    let absent: u64 = counts.map(|counts| counts.pmis_absent).sum();
    let answer = vec![
        choice(&own, whole.len() < strategies.len(), chosen, &as_good),
        costs(chosen, &own[0].record.definition(&chosen.strategy).unwrap_or_default()),
        sureness(&own, &open, !left_out.is_empty(), absent),
    ];
    let (choice, is_sure) = (chosen.strategy.clone(), open.is_empty() && left_out.is_empty() && absent == 0);
    Ok(Advice { choice, is_sure, answer, strategies, results, left_out })
}

impl Standing {
    fn of(results: &[Setting<'_>], name: &str) -> Self {
        let own: Vec<(&Setting<'_>, &Regret)> =
            results.iter().filter_map(|one| Some((one, one.regret(name)?))).collect();
        let worst = |of: fn(&Ratio) -> f64| own.iter().map(|(_, regret)| of(&regret.ratio)).fold(0.0, f64::max);
        let mean = |column: &column::Column| {
            let of = |(one, _): &(&Setting<'_>, &Regret)| {
                let arm = one.record.arm(name)?;
                (column.value)(&Figures::new(arm, arm.metric(one.metric)))
            };
            let values: Vec<f64> = own.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| (column.key, values.iter().sum::<f64>() / values.len() as f64))
        };
        Self {
            strategy: name.to_owned(),
            worst_regret: worst(|ratio| ratio.ratio),
            worst_interval: Interval {
                low: worst(|ratio| ratio.interval.map_or(0.0, |ends| ends.low)),
                high: worst(|ratio| ratio.interval.map_or(f64::INFINITY, |ends| ends.high)),
            },
            work: column::columns(Place::Advice).filter_map(mean).collect(),
            results: own.len(),
        }
    }

    fn held(&self) -> f64 {
        self.work.get("held_mean").copied().unwrap_or(f64::INFINITY)
    }
}

/// Says which strategy to take, by which rule, and how it stands beside others.
fn choice(own: &[&Setting<'_>], some_lack: bool, chosen: &Standing, as_good: &[String]) -> String {
    let places = if let [one] = own { one.workload.clone() } else { plural(own.len(), "result") };
    let (name, bound) = (&chosen.strategy, ratio(chosen.worst_interval.high));
    let least = if some_lack { "those that are in each" } else { "all" };
    let mut parts = vec![format!("take {name}: at most {bound} × the fastest of {places}, the least of {least}")];
    if !as_good.is_empty() {
        parts.push(format!("as good within 1 %, and holding no fewer events: {}", listed(as_good)));
    }
    parts.join("; ")
        + &own.iter().map(|one| origin(one.record)).collect::<BTreeSet<String>>().into_iter().collect::<String>()
}

/// Says what a strategy takes: events that are held, or what has to be in KVM, and operations.
fn costs(chosen: &Standing, definition: &[String]) -> String {
    let unknown = || "an unknown number of".to_owned();
    let figure = |key: &str| chosen.work.get(key).map_or_else(unknown, |value| ratio(*value));
    let held = if chosen.strategy.starts_with(BELOW_KVM) {
        "the kernel module of host-pmu/kernel, or patches to KVM that do the same".to_owned()
    } else {
        let is_group = definition.iter().any(|choice| choice == "gate = true");
        let group = if is_group { ", as one group, which gets all its counters or falls apart" } else { "" };
        format!("{} host events held{group}", figure("held_mean"))
    };
    format!("it costs: {held}; {} opens and {} operations per PMI or rotation", figure("opens"), figure("host_ops"))
}

/// Says how sure a choice is, and what the figures are not of.
fn sureness(own: &[&Setting<'_>], open: &[String], any_left_out: bool, absent: u64) -> String {
    let records = || own.iter().map(|one| one.record);
    let mut parts = Vec::new();
    if !open.is_empty() {
        parts.push(format!("not sure: {} may be as good", listed(open)));
        let model = records().find_map(|record| record.host.model_percent).map(|[low, high]| {
            format!("the model takes {low} to {high} % of what it was made from, and tells no better")
        });
        parts.push(model.unwrap_or_else(|| "more rounds, or a longer --duration, may tell".to_owned()));
    } else if any_left_out {
        parts.push("not sure: what is left out may change it".to_owned());
    } else if absent > 0 {
        parts.push(format!("not sure: under it {absent} PMIs of a trace did not come"));
    } else {
        let least = AS_GOOD * 100.0;
        parts.push(format!("sure: no other can have a worst ratio that is more than {least} % smaller"));
    }
    if records().any(|record| !record.is_simulated() && record.arms.iter().any(|arm| arm.stand_in)) {
        parts.push("hardware events may order otherwise than a stand-in".to_owned());
    }
    if records().any(Record::is_simulated) {
        let other = "in KVM's own code (model clx-in-kernel) another may be the fastest";
        parts.push(format!("of models, and of a VMM in userspace: {other}"));
    }
    let cut = records().filter(|record| record.status != Status::Complete);
    parts.extend(cut.map(|record| format!("{} was not run to its end", place(record))));
    parts.join("; ")
}

impl Advice<'_> {
    /// Returns the strategies as a table.
    fn table(&self) -> Table {
        let columns = column::columns(Place::Advice);
        let head = ["strategy", "worst [95 %]", "results"].into_iter();
        let mut table = Table::new(head.chain(columns.clone().map(|column| column.heading)));
        for one in &self.strategies {
            let spread = Some(one.worst_interval).filter(|Interval { low, high }| low < high);
            let cells = [one.strategy.clone(), ratio_in(one.worst_regret, spread), one.results.to_string()];
            let value =
                |column: &column::Column| one.work.get(column.key).map_or_else(dash, |value| (column.text)(*value));
            table.add_row(cells.into_iter().chain(columns.clone().map(value)));
        }
        table
    }

    /// Returns the results as a table, each with its fastest and its slowest strategy.
    fn settings(&self) -> Table {
        let hosts: BTreeSet<&str> = self.results.iter().map(|one| one.host.as_str()).collect();
        let head = ["workload", "fastest", "slowest", "× fastest", "rounds"];
        let caption = hosts.iter().copied().collect::<Vec<_>>().join("; ");
        let mut table = Table::new(head).left(1).left(2).caption(caption).cut();
        for one in &self.results {
            let Some(last) = one.regrets.last() else { continue };
            let on = if hosts.len() > 1 { format!(" on {}", one.host) } else { String::new() };
            let rounds = one.regrets.iter().map(|one| one.ratio.rounds).max().unwrap_or(0).to_string();
            let behind = ratio_in(last.ratio.ratio, last.ratio.interval);
            table.add_row([one.workload.clone() + &on, one.fastest(), last.strategy.clone(), behind, rounds]);
        }
        table
    }

    /// Returns the advice as it is shown: what is left out first.
    pub fn report(&self) -> Report {
        let mut report = Report::new("vpmu advise");
        report.notes(match &self.left_out[..] {
            [] => None,
            [[strategies, what, why]] => Some(format!("left out of {what}: {strategies}: {why}")),
            several => Some(format!("left out: {} results or strategies, which the last table names", several.len())),
        });
        report.table(self.settings());
        report.notes(self.answer.iter().cloned());
        report.gap();
        report.table(self.table());
        report.note(LEGEND);
        report.note(column::legend(Place::Advice).collect::<Vec<_>>().join("; "));
        if self.results.iter().any(|one| one.workload.starts_with(REPLAY)) {
            report.note(OF_TRACES);
        }
        if self.left_out.len() > 1 {
            report.gap();
            report.table(table_of(&self.left_out));
        }
        report
    }
}

/// The sentence under the table of strategies.
const LEGEND: &str = "worst: time over that of each result's fastest strategy, the worst of all results with its interval's end, which \
                          is \"at most\"; the choice has the least worst, and of those within 1 % the fewest events held";

/// Says what the figures of a trace are.
const OF_TRACES: &str = "of a trace on a model: the host's work from PMI to PMI (without PMIs, from one start of counters to the next); \
                         floor: its exits and the VMM alone; rounds: its parts";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::ArmKind;
    use crate::fixture::timed;

    const TIMES: [(&str, u64); 3] = [("recreate", 2600), ("gate", 1270), ("reuse-lazy", 2032)];

    /// Returns a result of 40 rounds of another workload.
    fn of(workload: &str, times: &[(&str, u64)]) -> Record {
        let mut record = timed(40, times);
        record.parameters.insert("workload".to_owned(), workload.into());
        record
    }

    fn answer<'a>(records: &[&'a Record]) -> (Advice<'a>, String) {
        let found = advise(records, Vec::new()).unwrap();
        let answer = found.answer.join("\n");
        (found, answer)
    }

    #[test]
    fn a_strategy_below_kvm_takes_the_module_or_patches() {
        let mut record = timed(40, &[("kvm:stock", 2000), ("kvm:gate", 1000)]);
        record.arms.iter_mut().filter(|arm| arm.is_strategy()).for_each(|arm| arm.kind = ArmKind::Kvm);
        let (found, text) = answer(&[&record]);
        assert_eq!((found.choice.as_str(), found.strategies.len()), ("kvm:gate", 2), "{text}");
        assert!(text.contains("it costs: the kernel module"), "{text}");
    }

    #[test]
    fn each_workload_is_judged_by_its_own_strategies_and_what_is_left_out_is_said_first() {
        let wide = of("single/ftest", &[("recreate", 2600), ("reuse", 1270), ("reuse-lazy", 2032)]);
        let two = ["counting1/ftest", "sampling4/ftest"]
            .map(|work| of(work, &[("recreate", 3500), ("reuse", 3000), ("gate", 1000)]));
        let (found, text) = answer(&[&wide, &two[0], &two[1]]);
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("reuse", false, 3), "{text}");
        assert!(
            text.contains("of 3 results, the least of those that are in each")
                && text.contains("not sure: what is left out may change it"),
            "{text}"
        );
        let shown = found.report().text(200);
        assert!(shown.starts_with("left out: ") && shown.find("last table") < shown.find("take reuse"), "{shown}");
        let other = of("counting1/ftest", &[("recreate", 3000), ("gate", 1000)]);
        let one = of("single/ftest", &[("recreate", 3000), ("reuse", 1000)]);
        let none = advise(&[&one, &other], Vec::new()).unwrap_err();
        assert_eq!(none.0, "recreate alone is in 2 results: run the others together");
        assert!(none.1.text(200).contains("single/ftest"), "{}", none.1.text(200));
        assert!(shown.lines().any(|line| line.starts_with("counting1/ftest") && line.contains("gate")), "{shown}");
    }

    #[test]
    fn a_tracepoint_a_clock_and_a_model_are_not_one_answer() {
        let by = |backend: &str, reuse: u64| {
            let mut record = timed(40, &[("recreate", 2600), ("reuse", reuse)]);
            record.parameters.insert("backend".to_owned(), backend.into());
            if backend.starts_with("sim:") {
                record.host.class = "simulated icx".to_owned();
            }
            record
        };
        let all = [by("sim:icx-2021", 9000), by("cpu-clock", 1000), by("tracepoint:kvm/kvm_exit", 5000)];
        let (found, text) = answer(&all.iter().collect::<Vec<_>>());
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("recreate", false, 1), "{text}");
        for what in ["are of a stand-in clock, this answer is by a tracepoint", "are of a simulation, this"] {
            assert!(found.left_out.iter().any(|one| one[2].contains(what)), "{:?}", found.left_out);
        }
        assert!(answer(&[&all[1]]).0.is_sure);
    }

    #[test]
    fn the_worst_regret_decides_its_bound_is_an_intervals_end_and_four_rounds_are_no_choice() {
        let other = of("counting1/ftest", &[("recreate", 1200), ("gate", 1500), ("reuse-lazy", 1150)]);
        let first = timed(40, &TIMES);
        let (found, text) = answer(&[&first, &other]);
        assert_eq!((found.choice.as_str(), found.is_sure), ("gate", true), "{text}");
        let gate = found.strategies.iter().find(|one| one.strategy == "gate").unwrap();
        assert!((gate.worst_regret - 1.304).abs() < 0.01 && gate.worst_interval.high > gate.worst_regret + 0.01);
        assert!(
            text.contains(&format!("at most {} × the fastest of 2 results", ratio(gate.worst_interval.high))),
            "{text}"
        );
        assert!(found.report().text(200).contains(&ratio_in(gate.worst_regret, Some(gate.worst_interval))));
        let none = advise(&[&timed(4, &TIMES)], Vec::new()).unwrap_err().1.text(200);
        assert!(none.contains("recreate") && none.contains("an interval takes 5 rounds"), "{none}");
    }

    #[test]
    fn of_strategies_that_are_as_fast_the_one_that_holds_fewest_events_is_taken_and_that_is_said() {
        let mut record = timed(40, &[("virtual", 1000), ("gate", 1000), ("recreate", 2600)]);
        for (arm, held) in record.arms.iter_mut().zip([2.0, 1.0]) {
            arm.own.events_held.time_mean = Some(held);
        }
        let (found, text) = answer(&[&record]);
        assert_eq!(found.choice, "gate", "{text}");
        assert!(text.contains("; as good within 1 %, and holding no fewer events: virtual"), "{text}");
    }

    #[test]
    fn no_strategy_is_faster_than_the_fastest() {
        // By the floor's rounds, two modes of them, the one is the faster, and by their own the other.
        let mut record = timed(40, &[("recreate", 2600), ("gate", 1000), ("reuse", 1000)]);
        for (arm, left, less) in [(1, 4..40, 0), (2, 0..40, 30)] {
            let column = record.arms[arm].rounds.metrics.get_mut("nmi_handler_ns").unwrap();
            for (round, p50) in column.p50.iter_mut().enumerate() {
                *p50 = if round < 20 { 1000 } else { 1400 } - less;
            }
            for (round, complete) in record.arms[arm].rounds.complete.iter_mut().enumerate() {
                *complete = left.contains(&round) && (arm != 1 || round < 20);
            }
        }
        let (found, _) = answer(&[&record]);
        assert_eq!(found.results[0].regrets[0].strategy, "reuse", "{:?}", found.strategies);
        assert!(found.strategies.iter().all(|one| one.worst_regret >= 1.0), "{:?}", found.strategies);
    }

    #[test]
    fn a_model_tells_no_better_than_the_runs_that_it_was_made_from() {
        let mut record = timed(40, &TIMES);
        record.host.model_percent = Some([80, 140]);
        let (found, text) = answer(&[&record]);
        let why = "not sure: reuse-lazy may be as good; the model takes 80 to 140 %";
        assert!(!found.is_sure && text.contains(why), "{text}");
        record.host.model_percent = Some([90, 120]);
        assert!(answer(&[&record]).0.is_sure, "1.6 times is more than 1.33");
    }

    #[test]
    fn what_has_no_whole_figures_is_left_out_and_named() {
        let mut record = timed(40, &TIMES);
        record.arms[1].own.lost = Some(3);
        let (found, _) = answer(&[&record]);
        assert_eq!((found.choice.as_str(), found.left_out.len()), ("reuse-lazy", 1));
        assert_eq!(found.left_out[0][0], "gate");
        assert!(advise(&[], Vec::new()).is_err() && advise(&[&timed(40, &[("gate", 1270)])], Vec::new()).is_err());
    }
}
