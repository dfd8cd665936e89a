//! Which strategy to take, by results of one or several workloads and hosts: a ranking by the worst of a strategy's times over those of
//! each result's fastest, and how sure its first place is.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::choice::{AS_GOOD, LeftOut, ONE_PLACE, Ranked, Regret, choose, livelocks, most_shared, rank, regrets};
use crate::document::{BELOW_KVM, NMI_LATENCY, REPLAY, Record, Status};
use crate::metric;
use crate::stats::interval::Interval;
use crate::table::column::{self, Place};
use crate::table::layout::{dash, plural, ratio_in};
use crate::table::ranking::{by_reason, listed, origin};
use crate::table::{Report, Table};
use crate::write::utc;

/// A result: a workload on a host.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ResultRanking {
    /// Events and work of the guest.
    pub workload: String,
    /// The host's class.
    pub host: String,
    /// Its strategies, the fastest first.
    pub regrets: Vec<Regret>,
}

/// The choice of a strategy.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Advice {
    /// The strategy to take.
    pub choice: String,
    /// No further run would change the choice; `said` has why, or why not.
    pub is_sure: bool,
    /// The choice, how it stands beside others, how sure it is, in sentences.
    pub said: Vec<String>,
    /// The strategies, the least regret first.
    pub strategies: Vec<Ranked>,
    /// The results that it is made from: each strategy beside the fastest, with intervals.
    #[serde(rename = "answer")]
    pub results: Vec<ResultRanking>,
    /// What is left out.
    pub left_out: Vec<LeftOut>,
}

/// Returns the source of a result's figures, of which one answer has one: the most telling first.
fn source(record: &Record) -> (u8, &'static str) {
    match record.parameter("backend").unwrap_or_default() {
        _ if record.is_simulated() => (3, "a simulation"),
        key if key.contains("clock") => (2, "a stand-in clock"),
        key if key.starts_with("tracepoint") => (1, "a tracepoint"),
        _ => (0, "hardware events"),
    }
}

fn workload(record: &Record) -> String {
    record.parameter("workload").unwrap_or_default()
}

fn subject(record: &Record) -> String {
    let on = if record.is_simulated() { format!(" on {}", record.host.class) } else { String::new() };
    workload(record) + &on
}

fn names(ranked: &[&Ranked]) -> String {
    listed(ranked.iter().map(|one| &*one.arm))
}

/// Advises by results of guests, each judged by its own strategies, and of one source. `left_out` is what is left out already;
/// `modelled`: models of a later KVM may be chosen.
///
/// # Errors
/// There is nothing to choose by: what was left out, and why.
pub fn advise(records: &[&Record], mut left_out: Vec<LeftOut>, modelled: bool) -> Result<Advice, Vec<LeftOut>> {
    let mut of_guests: Vec<&Record> = records.iter().copied().filter(|one| one.experiment == NMI_LATENCY).collect();
    of_guests.sort_by_key(|record| source(record));
    let others = records.len() - of_guests.len();
    let why = "of other experiments than nmi-latency".to_owned();
    left_out.extend((others > 0).then(|| LeftOut { what: plural(others, "document"), why, is_open: false }));
    let mut own = Vec::<(&Record, ResultRanking)>::new();
    for record in of_guests {
        let what = subject(record);
        match ranking(record, &own, &mut left_out) {
            Ok(found) => own.push((record, found)),
            Err((why, is_open)) => left_out.push(LeftOut { what, why, is_open }),
        }
    }
    let pair = most_shared(own.iter().map(|(_, one)| &one.regrets[..]), modelled).map(|pair| pair.map(str::to_owned));
    let Some(pair) = pair else { return Err(left_out) };
    let has = |one: &ResultRanking, name: &str| one.regrets.iter().any(|regret| regret.arm == name);
    let (own, odd): (Vec<_>, Vec<_>) = own.into_iter().partition(|(_, one)| pair.iter().all(|name| has(one, name)));
    let why = format!("it lacks {}, by which the choice is made", pair.join(" or "));
    left_out.extend(odd.iter().map(|(record, _)| LeftOut { what: subject(record), why: why.clone(), is_open: true }));
    let strategies = rank(own.iter().map(|(_, one)| &one.regrets[..]));
    let Some((chosen, as_good, open)) = choose(&strategies, modelled) else { return Err(left_out) };
    for one in strategies.iter().filter(|one| one.results < own.len()) {
        let why = if one.worst_regret < chosen.worst_regret {
            "not in every result, and faster than the choice where it is: measure it in the others, too"
        } else {
            "not in every result"
        };
        let is_open = one.may_beat(chosen, AS_GOOD) && !own.iter().any(|(record, _)| livelocks(record, &one.arm));
        left_out.push(LeftOut { what: one.arm.clone(), why: why.to_owned(), is_open });
    }
    let choice = chosen.arm.clone();
    let (with, results): (Vec<&Record>, Vec<ResultRanking>) = own.into_iter().unzip();
    let counts = with.iter().filter_map(|record| Some(record.arm(&choice)?.own.counts));
    // The result in which most are absent.
    let share = |[absent, taken]: &[u64; 2]| absent.saturating_mul(1_000_000) / taken.max(&1);
    let absent = counts.map(|all| [all.pmis_absent, all.nmis]).max_by_key(share).unwrap_or_default();
    let any_open = left_out.iter().any(|one| one.is_open);
    let (is_sure, how_sure) = sureness(&with, (&as_good, &open), any_open, absent);
    let said = vec![take(&with, chosen, &as_good), how_sure];
    Ok(Advice { choice, is_sure, said, strategies, results, left_out })
}

/// Returns the strategies of a result beside those of `others`, or why it is left out, and whether the choice might be another with it.
fn ranking(
    record: &Record,
    others: &[(&Record, ResultRanking)],
    left_out: &mut Vec<LeftOut>,
) -> Result<ResultRanking, (String, bool)> {
    let (of, by) = (source(record).1, others.first().map_or(source(record), |(first, _)| source(first)).1);
    if of != by {
        return Err((format!("of {of}; this answer is by {by}"), false));
    }
    let metric = record.metric().and_then(metric::find).ok_or_else(|| ("it has no figures".to_owned(), true))?;
    let (regrets, lacks) = regrets(record, metric, column::work);
    let is_other = |one: &&Regret| others.iter().any(|(other, _)| !record.defines_alike(other, &one.arm));
    if let Some(other) = regrets.iter().find(is_other) {
        return Err((format!("it defines {} otherwise than another result", other.arm), true));
    }
    let of_record = |lack: LeftOut| LeftOut { what: format!("{} of {}", lack.what, subject(record)), ..lack };
    left_out.extend(lacks.into_iter().map(of_record));
    if regrets.len() < 2 {
        return Err(("fewer than two strategies have figures".to_owned(), true));
    }
    Ok(ResultRanking { workload: workload(record), host: record.host.class.clone(), regrets })
}

/// PMIs of a trace beside which one that did not come changes no choice.
const ABSENT: u64 = 1000;

/// Formats the worst of a strategy's ratios, in the choice and in the table.
fn worst(one: &Ranked) -> String {
    ratio_in(one.worst_regret, Some(one.worst_interval).filter(|Interval { low, high }| low < high))
}

/// Says which strategy to take, and how it stands beside others.
fn take(own: &[&Record], chosen: &Ranked, as_good: &[&Ranked]) -> String {
    let (places, measured) = match own {
        [one] => (workload(one), "measured"),
        _ => (plural(own.len(), "result") + " of nmi-latency", "the newest of"),
    };
    // A simulation has no date.
    let last = own.iter().map(|record| record.started_unix).max().filter(|unix| *unix > 0);
    let last = last.map_or_else(String::new, |unix| format!(", {measured} {}", &utc(unix)[..10]));
    let (name, worst) = (&chosen.arm, worst(chosen));
    let below = if name.starts_with(BELOW_KVM) { " (the kernel module, or patches to KVM)" } else { "" };
    let good = format!("; as good within 1 %, and holding no fewer events: {}", names(as_good));
    let good = if as_good.is_empty() { "" } else { &good };
    let origins: BTreeSet<String> = own.iter().map(|record| origin(record)).collect();
    format!(
        "take {name}{below}: worst {worst} × the fastest of {places}{last}{good}{}",
        origins.into_iter().collect::<String>()
    )
}

/// Returns whether a choice is sure, that is whether no further run would change it, and says how sure and what the figures are not of.
fn sureness(
    own: &[&Record],
    (as_good, open): (&[&Ranked], &[&Ranked]),
    any_open: bool,
    [absent, taken]: [u64; 2],
) -> (bool, String) {
    let cut = own.iter().filter(|record| record.status != Status::Complete);
    let of_them =
        if as_good.is_empty() { String::new() } else { format!(" (of those as good, over {} %)", ONE_PLACE * 100.0) };
    let is_little = absent <= 1 || absent.saturating_mul(ABSENT) <= taken;
    let missed = format!("under it {} of a trace did not come beside {taken}", plural(absent as usize, "PMI"));
    let mut doubts: Vec<String> = cut.map(|record| format!("{} was not run to its end", subject(record))).collect();
    doubts.extend((!is_little).then(|| format!("{missed}, more than one in {ABSENT}; give more --duration")));
    let may = format!("not sure: {} may be as good; ", names(open));
    let (is_sure, first) = match own.iter().find_map(|record| record.host.model_percent) {
        Some([low, high]) if !open.is_empty() => {
            (false, format!("{may}the model takes {low} to {high} % of what it was made from, and tells no better"))
        }
        None if !open.is_empty() => (false, may + "more rounds, or a longer --duration, may tell"),
        _ if any_open => (false, "not sure: what is left out may change it".to_owned()),
        _ if !doubts.is_empty() => (false, format!("not sure: {}", std::mem::take(&mut doubts).join("; "))),
        _ => {
            let (least, simulated) = (AS_GOOD * 100.0, own.iter().any(|record| record.is_simulated()));
            let of_model = if simulated { ", in the model" } else { "" };
            (true, format!("sure{of_model}: no other's worst ratio can be over {least} % smaller{of_them}"))
        }
    };
    let mut parts = vec![first];
    // All of them are of one source.
    let elsewhere = match own.iter().find(|record| record.is_simulated() || record.arms.iter().any(|arm| arm.stand_in))
    {
        Some(record) if record.host.class.contains("in-kernel") => None,
        Some(record) if record.is_simulated() => Some("in KVM's own code (model clx-in-kernel)"),
        stand_in => stand_in.map(|_| "on hardware events"),
    };
    parts.extend(elsewhere.map(|place| format!("{place} another may be the fastest")));
    parts.extend(doubts.into_iter().chain((absent > 0 && is_little).then_some(missed)));
    (is_sure, parts.join("; "))
}

/// Returns a line for all that is left out for one reason.
pub fn lines(left_out: &[LeftOut]) -> Vec<String> {
    let pairs = left_out.iter().map(|LeftOut { what, why, .. }| (what, why));
    by_reason(pairs, false).into_iter().map(|line| format!("left out: {line}")).collect()
}

impl Advice {
    /// Returns the strategies as a table.
    fn table(&self) -> Table {
        let columns = column::columns(Place::Advice);
        let head = ["strategy", "worst [95 %]", "results"].into_iter();
        let mut table = Table::new(head.chain(columns.clone().map(|column| column.heading)));
        for one in &self.strategies {
            let cells = [one.arm.clone(), worst(one), one.results.to_string()];
            let value =
                |column: &column::Column| one.work.get(column.key).map_or_else(dash, |value| (column.text)(*value));
            table.add_row(cells.into_iter().chain(columns.clone().map(value)));
        }
        table
    }

    /// Adds the results as a table, each with its fastest and its slowest strategy, below their hosts.
    fn add_results(&self, report: &mut Report) {
        let hosts: BTreeSet<&str> = self.results.iter().map(|one| one.host.as_str()).collect();
        report.heading(hosts.iter().copied().collect::<Vec<_>>().join("; "));
        let head = ["workload", "fastest", "slowest", "× fastest", "rounds"];
        let mut table = Table::new(head).left(1).left(2).cut();
        for one in &self.results {
            let Some(last) = one.regrets.last() else { continue };
            let on = if hosts.len() > 1 { format!(" on {}", one.host) } else { String::new() };
            let rounds = one.regrets.iter().map(|one| one.ratio.rounds).max().unwrap_or(0).to_string();
            let behind = ratio_in(last.ratio.ratio, last.ratio.interval);
            // Those that nothing tells apart are one place.
            let is_first = |one: &&Regret| one.ratio.ratio <= 1.0 + AS_GOOD || !one.ratio.is_distinguishable();
            let fastest = listed(one.regrets.iter().filter(is_first).map(|one| &*one.arm));
            table.add_row([one.workload.clone() + &on, fastest, last.arm.clone(), behind, rounds]);
        }
        report.table(table);
    }

    /// Returns the advice as it is shown: what is left out first.
    pub fn report(&self) -> Report {
        let mut report = Report::new("vpmu advise");
        report.notes(lines(&self.left_out));
        self.add_results(&mut report);
        report.notes(self.said.iter().cloned());
        report.heading(format!("Strategies over {}", plural(self.results.len(), "result")));
        report.table(self.table());
        report.note(LEGEND);
        report.note(column::legend(Place::Advice));
        if self.results.iter().any(|one| one.workload.starts_with(REPLAY) && one.host.starts_with("simulated")) {
            report.note(OF_TRACES);
        }
        report
    }
}

/// The sentence under the table of strategies.
const LEGEND: &str = "worst: largest ratio, over all results, to the fastest strategy's time; the choice has the smallest, \
                      and of those within 1 % the fewest events held";

/// Says what the figures of a trace are.
const OF_TRACES: &str = "of a trace on a model: the host's work from PMI to PMI (without PMIs, from one start of counters to the next); \
                         floor: its exits and the VMM alone; rounds: its parts";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::warnings::LIVELOCK;
    use crate::document::{ArmKind, Warning};
    use crate::fixture::timed;

    const TIMES: [(&str, u64); 3] = [("recreate", 2600), ("gate", 1270), ("reuse-lazy", 2032)];

    /// Returns a result of 40 rounds of another workload.
    fn of(workload: &str, times: &[(&str, u64)]) -> Record {
        let mut record = timed(40, times);
        record.parameters.insert("workload".to_owned(), workload.into());
        record
    }

    fn answer(records: &[&Record]) -> (Advice, String) {
        let found = advise(records, Vec::new(), false).unwrap();
        let answer = found.said.join("\n");
        (found, answer)
    }

    #[test]
    fn a_strategy_below_kvm_takes_the_module_or_patches() {
        let mut record = timed(40, &[("kvm:stock", 2000), ("kvm:gate", 1000)]);
        record.arms.iter_mut().filter(|arm| arm.is_strategy()).for_each(|arm| arm.kind = ArmKind::Kvm);
        let (found, text) = answer(&[&record]);
        assert_eq!((found.choice.as_str(), found.strategies.len()), ("kvm:gate", 2), "{text}");
        assert!(text.contains("take kvm:gate (the kernel module, or patches to KVM): worst 1.00 ×"), "{text}");
    }

    #[test]
    fn each_workload_is_judged_by_its_own_strategies_and_what_is_left_out_is_said_first() {
        let wide = of("single/ftest", &[("recreate", 2600), ("reuse", 1270), ("reuse-lazy", 2032)]);
        let two = ["counting1/ftest", "sampling4/ftest"]
            .map(|work| of(work, &[("recreate", 3500), ("reuse", 3000), ("gate", 1000)]));
        let (found, text) = answer(&[&wide, &two[0], &two[1]]);
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("reuse", false, 3), "{text}");
        assert!(
            text.contains("× the fastest of 3 results") && text.contains("not sure: what is left out may change it"),
            "{text}"
        );
        let shown = found.report().text(200);
        assert!(shown.starts_with("left out: "), "{shown}");
        assert!(shown.lines().any(|line| line.starts_with("counting1/ftest") && line.contains("gate")), "{shown}");
        // One that shares a single strategy with the others does not keep them from an answer.
        let odd = of("sampling10/ftest", &[("reuse", 1000), ("mine", 900)]);
        let (found, _) = answer(&[&odd, &wide, &two[0], &two[1]]);
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("reuse", false, 3));
        let why = "left out: sampling10/ftest: it lacks recreate or reuse, by which the choice is made";
        assert!(lines(&found.left_out).contains(&why.to_owned()), "{:?}", found.left_out);
        let (found, _) = answer(&[&of("single/ftest", &[("recreate", 3000), ("gate", 1000)]), &odd]);
        assert_eq!((found.is_sure, found.results.len(), found.left_out.len()), (false, 1, 1));
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
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("recreate", true, 1), "{text}");
        for what in ["of a stand-in clock; this answer is by a tracepoint", "of a simulation; this"] {
            assert!(found.left_out.iter().any(|one| one.why.contains(what)), "{:?}", found.left_out);
        }
        assert!(answer(&[&all[1]]).0.is_sure);
    }

    #[test]
    fn the_worst_regret_decides_and_is_said_as_in_the_table_and_four_rounds_are_no_choice() {
        let other = of("counting1/ftest", &[("recreate", 1200), ("gate", 1500), ("reuse-lazy", 1150)]);
        let first = timed(40, &TIMES);
        let (found, text) = answer(&[&first, &other]);
        assert_eq!((found.choice.as_str(), found.is_sure), ("gate", true), "{text}");
        let gate = found.strategies.iter().find(|one| one.arm == "gate").unwrap();
        assert!((gate.worst_regret - 1.304).abs() < 0.01 && gate.worst_interval.high > gate.worst_regret + 0.01);
        let worst = ratio_in(gate.worst_regret, Some(gate.worst_interval));
        assert!(text.starts_with(&format!("take gate: worst {worst} × the fastest of 2 results")), "{text}");
        let shown = found.report().text(200);
        assert!(shown.lines().any(|line| line.starts_with("gate ") && line.contains(&worst)), "{shown}");
        let none = lines(&advise(&[&timed(4, &TIMES)], Vec::new(), false).unwrap_err()).join("\n");
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
        assert_eq!(found.results[0].regrets[0].arm, "reuse", "{:?}", found.strategies);
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
        assert!(found.left_out[0].what.starts_with("gate of "), "{:?}", found.left_out);
        assert!(!found.is_sure);
        // One that livelocks in a workload is no choice, whatever it does elsewhere.
        let mut stuck = of("sampling10", &TIMES);
        stuck.arms[1].metrics.clear();
        stuck.warnings.push(Warning { arm: Some("gate".to_owned()), ..Warning::of_all(LIVELOCK, "") });
        for records in [&[&stuck][..], &[&timed(40, &TIMES), &stuck]] {
            let (found, text) = answer(records);
            assert_eq!((found.choice.as_str(), found.is_sure), ("reuse-lazy", true), "{text}");
            assert!(found.report().text(200).starts_with("left out: "), "{text}");
        }
        // A workload that falls out whole might have another choice.
        let mut bare = of("single", &TIMES);
        bare.arms.iter_mut().for_each(|arm| arm.metrics.clear());
        let (found, _) = answer(&[&timed(40, &TIMES), &bare]);
        assert!(!found.is_sure && found.results[0].regrets.len() == 3, "{:?}", found.left_out);
        assert_eq!(found.results[0].regrets[0].arm, "gate");
        let none = |records: &[&Record]| advise(records, Vec::new(), false).is_err();
        assert!(none(&[]) && none(&[&timed(40, &[("gate", 1270)])]));
    }

    #[test]
    fn pmis_of_a_trace_that_did_not_come_are_said_and_many_forbid_a_sure_choice() {
        let mut record = timed(40, &TIMES);
        let counts = &mut record.arms[1].own.counts;
        (counts.nmis, counts.pmis_absent) = (3000, 3);
        let (found, text) = answer(&[&record]);
        assert!(found.is_sure && text.contains("; under it 3 PMIs of a trace did not come beside 3000"), "{text}");
        record.arms[1].own.counts.pmis_absent = 4;
        let (found, text) = answer(&[&record]);
        assert!(!found.is_sure && text.contains("\nnot sure: under it 4 PMIs of a trace did not come"), "{text}");
    }

    #[test]
    fn a_model_of_a_later_kvm_is_shown_and_chosen_if_it_was_named() {
        let record = timed(40, &[("mediated", 500), ("recreate", 2600), ("gate", 1270)]);
        let of = |named| advise(&[&record], Vec::new(), named).unwrap();
        assert_eq!((of(false).choice.as_str(), of(false).strategies.len()), ("gate", 3));
        assert_eq!(of(true).choice, "mediated");
        assert!(!crate::choice::is_modelled("mediated-mine"));
        // One that may not be chosen does not say in how many results the others must be.
        let all = [["mediated", "recreate", "gate"], ["mediated", "reuse", "pool"]];
        let all = all.map(|[a, b, c]| timed(40, &[(a, 500), (b, 2600), (c, 1270)]));
        let found = advise(&all.each_ref(), Vec::new(), false).unwrap();
        assert!(!found.is_sure && !found.choice.starts_with("mediated"), "{}", found.choice);
    }
}
