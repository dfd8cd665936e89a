//! Which strategy to take, by results of one or several workloads and hosts: the choice, what it costs, how sure it is, and what
//! each key of a user's own strategy is worth.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::document::warnings::UNIDENTIFIED;
use crate::document::{Any, Arm, ArmKind, BELOW_KVM, Counts, KVM_ARMS, NMI_LATENCY, REPLAY, Record, Status};
use crate::metric::{self, Metric};
use crate::paired::{self, MIN_ROUNDS, Ratio, Statistic};
use crate::stats::interval::Interval;
use crate::stats::jackknife::{Estimate, known};
use crate::stats::pareto::{dominates, front};
use crate::table::column::{self, Figures, Place, Unit};
use crate::table::layout::{dash, plural, ratio, ratio_in};
use crate::table::ranking::{OF_KVM, WITHOUT, contenders, listed, origin, times};
use crate::table::{Report, Table};

/// Difference up to which one strategy is as good as another.
pub const AS_GOOD: f64 = 0.01;

/// A strategy over all results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Its name.
    pub strategy: String,
    /// Its time over that of the result's fastest strategy: the worst of all results.
    pub worst_regret: f64,
    /// Bounds of that: the worst of the 95 % intervals' ends.
    pub worst_interval: Interval,
    /// The mean over results.
    pub mean_regret: f64,
    /// Least and greatest ratio to the floor.
    pub times_floor: Option<Interval>,
    /// Figures by column: means over results, of counts the most.
    pub work: BTreeMap<&'static str, f64>,
    /// Results that have it.
    pub results: usize,
    /// A strategy that is at least as fast, holds no more events, and is better in one of these.
    pub beaten_by: Option<String>,
}

/// A workload on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Events and work of the guest.
    pub workload: String,
    /// The host's class.
    pub host: String,
    /// Its fastest strategy.
    pub first: String,
    /// Its slowest strategy.
    pub last: String,
    /// Time of the choice over that of the fastest; absent without the choice.
    pub regret: Option<f64>,
    /// Rounds that count.
    pub rounds: usize,
    /// Strategies that left early, once it was clear that they are neither first nor last, with their rounds.
    pub left_early: BTreeMap<String, usize>,
}

/// A key of a user's strategy, set back alone to its default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    /// The strategy.
    pub strategy: String,
    /// The choice as the strategy has it.
    pub choice: String,
    /// The choice at its default.
    pub default: String,
    /// Time without the choice over that with it, the geometric mean over results.
    pub times: f64,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
    /// Events held in the mean, with and without the choice.
    pub held: [f64; 2],
}

/// The choice of a strategy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The strategy to take.
    pub choice: String,
    /// No other can have a worst regret that is more than 1 % smaller, and nothing is left out.
    pub is_sure: bool,
    /// The answer: the choice and why, what it costs, how sure it is.
    pub answer: Vec<String>,
    /// The strategies, the least regret first.
    pub strategies: Vec<Standing>,
    /// The results that it is made from.
    pub results: Vec<Setting>,
    /// Keys of a user's strategies, the most valuable first.
    pub keys: Vec<Key>,
    /// Strategies and results that are left out, with the reason.
    pub left_out: Vec<String>,
}

/// A strategy in a result.
struct Entry {
    name: String,
    /// Ratio to the fastest.
    regret: Ratio,
    over_floor: Option<Ratio>,
}

/// A result with the figures of its strategies.
struct Run<'a> {
    record: &'a Record,
    metric: &'static Metric,
    /// The fastest first.
    entries: Vec<Entry>,
    /// Its share in a mean over the results: those of a workload under the same costs count as one.
    share: f64,
}

impl Run<'_> {
    /// Returns the workload, and the host's costs: models may have them from each other.
    fn evidence(&self) -> (String, String) {
        let Record { host, .. } = self.record;
        let costs = host.model.as_deref().and_then(|constants| constants.split('-').next());
        (workload(self.record), costs.unwrap_or(&host.class).to_owned())
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

fn workload(record: &Record) -> String {
    record.parameter("workload").unwrap_or_default()
}

fn place(record: &Record) -> String {
    format!("{} on {}", workload(record), record.host.class)
}

/// Sources of figures, of which one answer has one: the most telling first.
const SOURCES: [&str; 4] = ["hardware events", "a tracepoint", "a clock", "a model"];

/// Returns the place of a result's source.
fn source(record: &Record) -> usize {
    let backend = record.parameter("backend").unwrap_or_default();
    match backend.as_str() {
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
    // Two of its standard errors are an interval's half.
    let log = ratio.log.map(|log| log.widened(spread.ln() / 2.0));
    Some(Ratio { interval: ratio.interval.map(wide), log, ..ratio })
}

/// Returns the ends of a ratio's interval; without one it may be anything.
fn ends(ratio: &Ratio) -> Interval {
    ratio.interval.unwrap_or(Interval { low: 0.0, high: f64::INFINITY })
}

/// Says why a strategy of a result is not judged, beside `others`.
fn no_figures(record: &Record, arm: &Arm<Any>, metric: &Metric, others: &[Run<'_>]) -> Option<String> {
    if let Some(why) = &arm.not_available {
        return Some(why.clone());
    }
    if !contenders(record, metric).any(|one| one.name == arm.name) {
        return Some("it has no whole figures".to_owned());
    }
    let has = others.iter().find(|run| run.entry(&arm.name).is_some());
    has.filter(|run| !record.defines_alike(run.record, &arm.name))
        .map(|run| format!("it is defined otherwise than in {}", place(run.record)))
}

/// Returns the figures of a result beside `others`, by its own strategies, and what is left out of it.
///
/// # Errors
/// Says why the result is left out.
fn run<'a>(record: &'a Record, others: &[Run<'_>]) -> Result<(Run<'a>, Vec<String>), String> {
    let out = |why: String| format!("{} is left out: {why}", place(record));
    let metric = record.metric().and_then(metric::find).ok_or_else(|| out("it has no figures".to_owned()))?;
    let (mut names, mut lacks) = (Vec::new(), Vec::new());
    for arm in record.arms.iter().filter(|arm| is_whole_strategy(arm)) {
        match no_figures(record, arm, metric, others) {
            None => names.push(&arm.name),
            Some(why) => lacks.push((&arm.name, why)),
        }
    }
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    let one = Ratio { interval: Some(Interval { low: 1.0, high: 1.0 }), ..Ratio::of_means(1.0, 0) };
    let against = |first: &String| -> Vec<(&String, Option<Ratio>)> {
        let ratio = |name| if name == first { Some(one) } else { ratio_of(record, metric, name, first) };
        names.iter().map(|name| (*name, ratio(name))).collect()
    };
    // The rounds that say by how much others are slower say which is the fastest.
    let (mut first, mut regrets) = (names.first().copied(), Vec::new());
    for _ in 0..=names.len() {
        let Some(name) = first.take() else { break };
        regrets = against(name);
        let ahead = regrets.iter().filter_map(|(name, ratio)| Some((*name, (*ratio)?.ratio)));
        first = ahead.filter(|(_, ratio)| *ratio < 1.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name);
    }
    let mut entries = Vec::new();
    for (name, regret) in regrets {
        match regret.filter(|regret| regret.interval.is_some()) {
            Some(regret) => entries.push(Entry {
                name: name.clone(),
                regret: Ratio { ratio: regret.ratio.max(1.0), ..regret },
                over_floor: floor.and_then(|floor| ratio_of(record, metric, name, &floor.name)),
            }),
            None => lacks.push((name, format!("an interval takes {MIN_ROUNDS} rounds beside the fastest's"))),
        }
    }
    if entries.len() < 2 {
        let of = |why: &String| lacks.iter().filter(|one| one.1 == *why).map(|one| one.0.clone()).collect::<Vec<_>>();
        let whys: BTreeSet<&String> = lacks.iter().map(|(_, why)| why).collect();
        let whys: Vec<String> = whys.into_iter().map(|why| format!(", {}: {why}", listed(&of(why)))).collect();
        return Err(out(format!("fewer than two strategies have figures{}", whys.concat())));
    }
    entries.sort_by(|a, b| a.regret.ratio.total_cmp(&b.regret.ratio));
    let lacks = lacks.iter().map(|(name, why)| format!("{name} is left out of {}: {why}", place(record))).collect();
    Ok((Run { record, metric, entries, share: 1.0 }, lacks))
}

/// Returns whether an arm is a strategy, and not one without a key.
fn is_whole_strategy(arm: &Arm<Any>) -> bool {
    arm.is_strategy() && !arm.name.contains(WITHOUT)
}

/// Advises by results of guests, each judged by its own strategies, and of one source. `left_out` says what is left out already.
///
/// # Errors
/// There is nothing to choose by; what was left out, and why.
pub fn advise(records: &[&Record], mut left_out: Vec<String>) -> Result<Advice, Vec<String>> {
    let mut of_guests: Vec<&Record> = records.iter().copied().filter(|one| one.experiment == NMI_LATENCY).collect();
    of_guests.sort_by_key(|record| source(record));
    let mut runs = Vec::<Run<'_>>::new();
    for record in of_guests {
        let other = runs.first().map(|run| source(run.record)).filter(|other| *other != source(record));
        if let Some(other) = other {
            let (own, other) = (SOURCES[source(record)], SOURCES[other]);
            left_out.push(format!("{} is left out: it is of {own}, and the answer of {other}", place(record)));
            continue;
        }
        match run(record, &runs) {
            Ok((run, lacks)) => {
                runs.push(run);
                left_out.extend(lacks);
            }
            Err(why) => left_out.push(why),
        }
    }
    let evidence: Vec<_> = runs.iter().map(Run::evidence).collect();
    let different = evidence.iter().collect::<BTreeSet<_>>().len() as f64;
    let alike = |of: &(String, String)| evidence.iter().filter(|other| *other == of).count() as f64;
    let shares: Vec<f64> = evidence.iter().map(|of| 1.0 / (alike(of) * different)).collect();
    runs.iter_mut().zip(shares).for_each(|(run, share)| run.share = share);
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| &run.entries).map(|entry| &entry.name).collect();
    let mut strategies: Vec<Standing> = names.into_iter().map(|name| standing(&runs, name)).collect();
    for run in &runs {
        let lacks = strategies.iter().filter(|one| run.record.arm(&one.strategy).is_none());
        let lacks: Vec<String> = lacks.map(|one| one.strategy.clone()).collect();
        if !lacks.is_empty() {
            left_out.push(format!("a result of {} is without {}", place(run.record), listed(&lacks)));
        }
    }
    let Some(choice) = choose(&strategies) else { return Err(left_out) };
    let chosen = strategies[choice].clone();
    // Of those that some results lack more rounds tell nothing.
    let rivals = strategies.iter().filter(|one| one.strategy != chosen.strategy && one.results == chosen.results);
    let open: Vec<String> = rivals
        .filter(|one| chosen.worst_interval.high > one.worst_interval.low * (1.0 + AS_GOOD))
        .map(|one| one.strategy.clone())
        .collect();
    let answer = answer(&runs, &strategies, &chosen, (&open, !left_out.is_empty()));
    let setting = |run: &Run<'_>| Setting {
        workload: workload(run.record),
        host: run.record.host.class.clone(),
        first: run.entries[0].name.clone(),
        last: run.entries[run.entries.len() - 1].name.clone(),
        regret: run.entry(&chosen.strategy).map(|entry| entry.regret.ratio),
        rounds: run.entries.iter().map(|entry| entry.regret.rounds).max().unwrap_or(0),
        left_early: left_early(run.record),
    };
    mark_front(&mut strategies);
    strategies.sort_by(|a, b| a.worst_regret.total_cmp(&b.worst_regret));
    Ok(Advice {
        choice: chosen.strategy.clone(),
        is_sure: open.is_empty() && left_out.is_empty(),
        answer,
        results: runs.iter().map(setting).collect(),
        keys: keys(&runs),
        strategies,
        left_out,
    })
}

/// Returns the strategies that have fewer rounds than others though nothing went wrong, with these.
fn left_early(record: &Record) -> BTreeMap<String, usize> {
    let most = record.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let of =
        record.arms.iter().filter(|arm| is_whole_strategy(arm) && arm.incomplete.is_empty() && !arm.rounds.is_empty());
    of.filter(|arm| arm.rounds.len() < most).map(|arm| (arm.name.clone(), arm.rounds.len())).collect()
}

fn standing(runs: &[Run<'_>], name: &str) -> Standing {
    let runs: Vec<(&Run<'_>, &Entry)> = runs.iter().filter_map(|run| Some((run, run.entry(name)?))).collect();
    let regrets = || runs.iter().map(|(_, entry)| entry.regret);
    let all: f64 = runs.iter().map(|(run, _)| run.share).sum();
    let worst = |of: &dyn Fn(Ratio) -> f64| regrets().map(of).fold(0.0, f64::max);
    let floors = runs.iter().filter_map(|(_, entry)| entry.over_floor).map(|over| over.ratio);
    let range = floors.fold(None, |range: Option<Interval>, over| {
        let Interval { low, high } = range.unwrap_or(Interval { low: over, high: over });
        Some(Interval { low: low.min(over), high: high.max(over) })
    });
    let value = |column: &column::Column| {
        let of_run = |run: &Run<'_>| {
            let arm = run.record.arm(name)?;
            (column.value)(&Figures::new(arm, arm.metric(run.metric)))
        };
        let values: Vec<f64> = runs.iter().filter_map(|(run, _)| of_run(run)).collect();
        let all = match column.unit {
            Unit::Count => values.iter().copied().fold(0.0, f64::max),
            Unit::Ns | Unit::Mean => values.iter().sum::<f64>() / values.len() as f64,
        };
        (!values.is_empty()).then_some((column.key, all))
    };
    Standing {
        strategy: name.to_owned(),
        worst_regret: worst(&|ratio| ratio.ratio),
        worst_interval: Interval { low: worst(&|ratio| ends(&ratio).low), high: worst(&|ratio| ends(&ratio).high) },
        mean_regret: runs.iter().map(|(run, entry)| entry.regret.ratio * run.share / all).sum(),
        results: runs.len(),
        times_floor: range,
        work: column::columns(Place::Advice).filter_map(value).collect(),
        beaten_by: None,
    }
}

/// Chooses the strategy with the least worst regret, of those that the most results have; of several that are as good, the one that
/// holds the fewest events.
fn choose(strategies: &[Standing]) -> Option<usize> {
    let worst = |place: &usize| strategies[*place].worst_regret;
    let most = strategies.iter().map(|one| one.results).max()?;
    let of_most = || (0..strategies.len()).filter(|place| strategies[*place].results == most);
    let least = of_most().map(|place| worst(&place)).fold(f64::INFINITY, f64::min);
    let as_good = of_most().filter(|place| worst(place) <= least * (1.0 + AS_GOOD));
    let held = |place: &usize| strategies[*place].held();
    as_good.min_by(|a, b| held(a).total_cmp(&held(b)).then(worst(a).total_cmp(&worst(b))))
}

impl Standing {
    fn held(&self) -> f64 {
        self.work.get("held_mean").copied().unwrap_or(f64::INFINITY)
    }
}

/// Names for each strategy off the front one of the front that is as good in everything and better in something.
fn mark_front(strategies: &mut [Standing]) {
    // Means over other results are not comparable.
    let most = strategies.iter().map(|one| one.results).max();
    let mut strategies: Vec<&mut Standing> = strategies.iter_mut().filter(|one| Some(one.results) == most).collect();
    let points: Vec<[f64; 2]> = strategies.iter().map(|one| [one.mean_regret, one.held()]).collect();
    let on_front = front(&points);
    let names: Vec<String> = strategies.iter().map(|one| one.strategy.clone()).collect();
    for (own, strategy) in points.iter().zip(&mut strategies) {
        let better = (0..points.len()).find(|other| on_front[*other] && dominates(&points[*other], own));
        strategy.beaten_by = better.map(|other| names[other].clone());
    }
}

/// Writes the answer in three sentences: the choice and why, what it costs, and how sure it is.
fn answer(
    runs: &[Run<'_>],
    strategies: &[Standing],
    chosen: &Standing,
    (open, any_left_out): (&[String], bool),
) -> Vec<String> {
    let runs: Vec<(&Run<'_>, &Entry)> =
        runs.iter().filter_map(|run| Some((run, run.entry(&chosen.strategy)?))).collect();
    let records: Vec<&Record> = runs.iter().map(|(run, _)| run.record).collect();
    let hosts: BTreeSet<&str> = records.iter().map(|record| record.host.class.as_str()).collect();
    let place = |record: &Record| if hosts.len() == 1 { workload(record) } else { place(record) };
    let what = if records.iter().all(|record| workload(record).starts_with(REPLAY)) { "traces" } else { "workloads" };
    let places: BTreeSet<String> = records.iter().map(|record| place(record)).collect();
    let among = match places.len() {
        1 => format!("on {}", place(records[0])),
        _ if hosts.len() == 1 => format!("on each of {} {what}", places.len()),
        _ => format!("on each of {} {what} and hosts", places.len()),
    };
    let is_alike = |one: &&Standing| one.strategy != chosen.strategy && !one.worst_interval.excludes(1.0);
    let others: Vec<String> = strategies.iter().filter(is_alike).map(|one| one.strategy.clone()).collect();
    let rank = if chosen.worst_regret > 1.0 {
        format!("it takes at most {} × the fastest {among}", ratio(chosen.worst_interval.high))
    } else if others.is_empty() {
        format!("it is the fastest {among}")
    } else {
        format!("it is among the fastest {among}, not distinguishable from {}", listed(&others))
    };
    let floor = match (&runs[..], chosen.times_floor) {
        ([(_, entry)], _) if let Some(over) = &entry.over_floor => format!(", {}", times(over, "the floor")),
        (_, Some(Interval { low, high })) => format!(", {} to {} × the floor", ratio(low), ratio(high)),
        _ => String::new(),
    };
    let (kvm, since) = OF_KVM;
    let kvm = strategies.iter().find(|one| one.strategy == kvm && one.strategy != chosen.strategy);
    let kvm = kvm.map(|one| {
        format!("; {kvm} ({since}) takes up to {} × the fastest", ratio(one.worst_interval.high), kvm = one.strategy)
    });
    let as_it_is = if chosen.strategy.starts_with(BELOW_KVM) { kvm_as_it_is(&runs, &chosen.strategy) } else { None };
    let kvm = kvm.or(as_it_is);
    let origins: BTreeSet<String> = records.iter().map(|record| origin(*record)).collect();
    let why = format!(
        "take {}: {rank}{floor}{}{}",
        chosen.strategy,
        kvm.unwrap_or_default(),
        origins.into_iter().collect::<String>()
    );
    let costs = costs(chosen, &records[0].definition(&chosen.strategy).unwrap_or_default());
    let mut sure = if open.is_empty() && any_left_out {
        "not sure: what is left out may change it".to_owned()
    } else if open.is_empty() {
        format!("sure: no other can have a worst ratio that is more than {} % smaller", AS_GOOD * 100.0)
    } else {
        let cut = records.iter().any(|record| record.size("duration_ns").is_some_and(|bound| record.wall_ns >= bound));
        let why = match records.iter().find_map(|record| record.host.model_percent) {
            Some([low, high]) => {
                format!("the model takes {low} to {high} % of what it was made from, and tells no better")
            }
            None if cut => "the time was up, a longer --duration may tell".to_owned(),
            None => "more rounds may tell".to_owned(),
        };
        format!("not sure: {} may be as good; {why}", listed(open))
    };
    let mut add = |text: String| {
        if !sure.contains(&text) {
            sure.push_str(&text);
        }
    };
    add(scope(&runs, &chosen.strategy));
    for (run, Entry { regret: found, .. }) in &runs {
        if ends(found).low > 1.0 + AS_GOOD {
            add(format!(
                "; on {} {} is faster, by {} ×",
                place(run.record),
                run.entries[0].name,
                ratio_in(found.ratio, found.interval)
            ));
        }
    }
    for record in records {
        let own = record.warnings.iter().filter(|warning| warning.code == UNIDENTIFIED);
        for warning in own.filter(|warning| warning.arm.as_ref() == Some(&chosen.strategy)) {
            add(format!("; on {} its ratio is {}", place(record), warning.message));
        }
        if record.status != Status::Complete {
            add(format!("; {} was not run to its end", place(record)));
        }
    }
    vec![why, costs, sure]
}

/// Says what a strategy of this definition costs beside its time.
fn costs(chosen: &Standing, definition: &[String]) -> String {
    let figure =
        |key: &str| chosen.work.get(key).map_or_else(|| "an unknown number of".to_owned(), |value| ratio(*value));
    let below = chosen.strategy.strip_prefix(BELOW_KVM);
    let held = match (below, chosen.work.get("events_held")) {
        (Some("stock"), _) => "nothing: it is KVM as it is, through the kernel module".to_owned(),
        (Some(_), _) => "the kernel module of host-pmu/kernel, or patches to KVM that do the same".to_owned(),
        (None, most) => format!(
            "{} host events held, {} at most",
            figure("held_mean"),
            most.map_or_else(|| "an unknown number".to_owned(), ToString::to_string)
        ),
    };
    let group = if below.is_none() && definition.iter().any(|choice| choice == "gate = true") {
        "; its events are one group, which gets all its counters or falls apart"
    } else {
        ""
    };
    format!(
        "it costs: {held}; {} opens and {} operations per PMI or rotation{group}",
        figure("opens"),
        figure("host_ops")
    )
}

/// Says what KVM's own vPMU as it is takes beside a strategy of its host events.
fn kvm_as_it_is(runs: &[(&Run<'_>, &Entry)], choice: &str) -> Option<String> {
    let of = |(run, _): &(&Run<'_>, &Entry)| ratio_of(run.record, run.metric, KVM_ARMS[0], choice);
    let found = runs.iter().map(of).collect::<Option<Vec<Ratio>>>()?;
    Some(match &found[..] {
        [one] => format!("; KVM as it is takes {}", times(one, "that")),
        all => {
            let values = || all.iter().map(|one| one.ratio);
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            format!("; KVM as it is takes {} to {} × that", ratio(low), ratio(high))
        }
    })
}

/// Says what the figures are not of.
fn scope(runs: &[(&Run<'_>, &Entry)], choice: &str) -> String {
    let records = || runs.iter().map(|(run, _)| run.record);
    let mut text = String::new();
    let different = runs.iter().map(|(run, _)| run.evidence()).collect::<BTreeSet<_>>().len();
    if different < runs.len() {
        let _ = write!(
            text,
            "; the {} results are {different} in the mean, for some of the models have the same costs",
            runs.len()
        );
    }
    let arms = records().filter(|record| record.is_replayed()).flat_map(|record| &record.arms);
    let otherwise = arms.filter(|arm| arm.own.counts.played > 0).map(|arm| {
        let Counts { played, counters_otherwise, values_otherwise, .. } = arm.own.counts;
        ((counters_otherwise + values_otherwise) as f64 / played as f64, &arm.name)
    });
    let otherwise: Vec<_> = otherwise.collect();
    let most = otherwise.iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share > 0.0);
    if let Some((share, name)) = most {
        let own = otherwise.iter().filter(|(_, name)| *name == choice).map(|(share, _)| *share).fold(0.0, f64::max);
        let _ = write!(
            text,
            "; under it a trace's guest would have read up to {} % of the values otherwise",
            ratio(100.0 * own)
        );
        if *name != choice {
            let _ = write!(text, ", under {name} {} %", ratio(100.0 * share));
        }
        text.push_str(" (vpmu sim --trace)");
    }
    let is_stand_in = |record: &Record| !record.is_simulated() && record.arms.iter().any(|arm| arm.stand_in);
    if records().any(is_stand_in) {
        text.push_str("; hardware events may order otherwise than a stand-in");
    }
    if records().any(Record::is_simulated) {
        text.push_str(
            "; of models, and of a VMM in userspace: in KVM's own code, where a model has that form (MODEL:in-kernel), \
             another may be the fastest",
        );
    }
    text
}

/// Ranks the keys of a user's strategies by their variants, each of which has one key at its default.
fn keys(runs: &[Run<'_>]) -> Vec<Key> {
    let has_variants = |run: &&Run<'_>| run.record.arms.iter().any(|arm| arm.name.contains(WITHOUT));
    let Some(first) = runs.iter().find(has_variants) else { return Vec::new() };
    let arms = first.record.arms.iter().filter_map(|arm| Some((arm, arm.name.split_once(WITHOUT)?)));
    let of = arms.filter(|(_, (strategy, _))| first.entry(strategy).is_some());
    let key = |(arm, (strategy, key)): (&Arm<Any>, (&str, &str))| {
        let ratios: Vec<Ratio> =
            runs.iter().filter_map(|run| ratio_of(run.record, run.metric, &arm.name, strategy)).collect();
        let share = 1.0 / (ratios.len() as f64);
        let log = ratios.iter().map(|one| one.ratio.ln()).sum::<f64>() * share;
        // The results are independent of each other.
        let sum = ratios.iter().try_fold(known(0.0), |sum, one| Some(sum.less(&one.log?)));
        let interval = sum.map(|sum| Estimate { value: log, error: sum.error * share, ..sum }.interval());
        let choice = |name: &str| {
            let choices = first.record.definition(name).unwrap_or_default();
            let own: Vec<String> = choices
                .into_iter()
                .filter(|choice| choice.starts_with(&format!("{key} ")) || choice.starts_with(&format!("{key}.")))
                .collect();
            own.join(", ")
        };
        let held = |name: &str| {
            let held = |run: &Run<'_>| run.record.arm(name)?.own.events_held.time_mean;
            runs.iter().filter_map(held).sum::<f64>() / runs.iter().filter_map(held).count() as f64
        };
        (!ratios.is_empty()).then(|| Key {
            strategy: strategy.to_owned(),
            choice: choice(strategy),
            default: choice(&arm.name),
            times: log.exp(),
            interval: interval.map(|Interval { low, high }| Interval { low: low.exp(), high: high.exp() }),
            held: [held(strategy), held(&arm.name)],
        })
    };
    let mut found: Vec<Key> = of.filter_map(key).collect();
    found.sort_by(|a, b| b.times.total_cmp(&a.times));
    found
}

impl Key {
    /// Says what the choice does to the time, as far as it is known.
    pub fn verdict(&self) -> &'static str {
        match self.interval {
            Some(interval) if interval.excludes(1.0) && self.times > 1.0 => "saves time",
            Some(interval) if interval.excludes(1.0) => "costs time",
            _ => "not distinguishable",
        }
    }
}

impl Advice {
    /// Returns the strategies as a table.
    pub fn table(&self) -> Table {
        let columns = column::columns(Place::Advice);
        let head = ["strategy", "worst [95 %]", "mean", "× floor", "front"].into_iter();
        let most = self.strategies.iter().map(|one| one.results).max();
        let mut table = Table::new(head.chain(columns.clone().map(|column| column.heading))).left(4);
        for one in &self.strategies {
            let floor = one.times_floor.map_or_else(dash, |Interval { low, high }| {
                let [low, high] = [low, high].map(ratio);
                if low == high { low } else { format!("{low} to {high}") }
            });
            let front = match &one.beaten_by {
                Some(by) => format!("beaten by {by}"),
                None if Some(one.results) < most => format!("in {}", plural(one.results, "result")),
                None => "●".to_owned(),
            };
            let spread = Some(one.worst_interval).filter(|Interval { low, high }| low < high);
            let worst = ratio_in(one.worst_regret, spread);
            let cells = [one.strategy.clone(), worst, ratio(one.mean_regret), floor, front];
            let value =
                |column: &column::Column| one.work.get(column.key).map_or_else(dash, |value| column.unit.text(*value));
            table.add_row(cells.into_iter().chain(columns.clone().map(value)));
        }
        table
    }

    /// Returns the keys of the user's strategies as a table.
    pub fn key_table(&self) -> Table {
        let caption =
            "Keys of the user's strategies, each set back alone to its default: time without it over time with it";
        let head = ["key", "set back to", "× without it [95 %]", "verdict", "held mean", "held without"];
        let mut table = Table::new(head).keys(2).left(3).caption(caption);
        for key in &self.keys {
            table.add_row([
                format!("{}: {}", key.strategy, key.choice),
                key.default.clone(),
                ratio_in(key.times, key.interval),
                key.verdict().to_owned(),
                ratio(key.held[0]),
                ratio(key.held[1]),
            ]);
        }
        table
    }

    /// Returns the advice as it is shown.
    pub fn report(&self) -> Report {
        let mut report = Report::new("vpmu advise");
        report.notes(self.left_out.iter().chain(&self.answer).cloned());
        report.gap();
        report.table(self.table());
        report.notes(LEGEND);
        report.note(column::legend(Place::Advice).collect::<Vec<_>>().join("; "));
        if self.results.iter().any(|one| one.workload.starts_with(REPLAY)) {
            report.note(OF_TRACES);
        }
        if !self.keys.is_empty() {
            report.gap();
            report.table(self.key_table());
        }
        report.gap();
        for one in &self.results {
            let rounds = plural(one.rounds, "round");
            let early: Vec<String> = one.left_early.iter().map(|(name, rounds)| format!("{name} {rounds}")).collect();
            let early = if early.is_empty() {
                early.concat()
            } else {
                format!(" (fewer of those clearly between: {})", listed(&early))
            };
            let Setting { workload, host, first, last, .. } = one;
            report.note(format!("{workload}, {host}: first {first}, last {last}, {rounds}{early}"));
        }
        report
    }
}

/// Sentences under the table of strategies.
pub const LEGEND: [&str; 2] = [
    "worst, mean: time over that of each result's fastest strategy; \"at most\" is the end of worst's interval",
    "front: ● no other is as fast in the mean, holds as few events, and is better in one of these",
];

/// Says what the figures of a trace are.
const OF_TRACES: &str = "of a trace on a model: the host's work from PMI to PMI (without PMIs, from one start of counters to the next); \
                         floor: its exits and the VMM alone; rounds: its parts";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::timed;

    const TIMES: [(&str, u64); 3] = [("recreate", 2600), ("gate", 1270), ("reuse-lazy", 2032)];

    fn answer(records: &[&Record]) -> (Advice, String) {
        let found = advise(records, Vec::new()).unwrap();
        let answer = found.answer.join("\n");
        (found, answer)
    }

    #[test]
    fn a_strategy_below_kvm_takes_the_module_or_patches_and_is_beside_kvm_as_it_is() {
        let of = |direct: u64, name: &str| {
            let mut record = timed(40, &[("kvm:stock", 2000), (name, direct), ("as-it-is", 2000)]);
            record.arms.retain(|arm| arm.name != KVM_ARMS[0]);
            for arm in record.arms.iter_mut().filter(|arm| arm.kind == ArmKind::Strategy) {
                arm.kind = ArmKind::Kvm;
                if arm.name == "as-it-is" {
                    KVM_ARMS[0].clone_into(&mut arm.name);
                }
            }
            record
        };
        let (found, text) = answer(&[&of(1000, "kvm:gate")]);
        assert_eq!((found.choice.as_str(), found.strategies.len()), ("kvm:gate", 2), "{text}");
        assert!(text.contains("; KVM as it is takes 1.998 × that [1.979"), "{text}");
        assert!(text.contains("it costs: the kernel module") && !text.contains("one group"), "{text}");
        let text = answer(&[&of(4000, "kvm:gate")]).1;
        assert!(text.contains("it costs: nothing: it is KVM as it is") && !text.contains("at most;"), "{text}");
        let mut other = of(1000, "kvm:gate");
        other.parameters.insert("workload".to_owned(), "counting1/ftest".into());
        let text = answer(&[&of(500, "kvm:gate"), &other]).1;
        assert!(text.contains("; KVM as it is takes 2.00 to 3.99 × that"), "{text}");
    }

    #[test]
    fn each_workload_is_judged_by_its_own_strategies_and_what_is_left_out_is_said() {
        let of = |workload: &str, times: &[(&str, u64)]| {
            let mut record = timed(40, times);
            record.parameters.insert("workload".to_owned(), workload.into());
            record
        };
        let wide = of("single/ftest", &[("recreate", 2600), ("reuse", 1270), ("reuse-lazy", 2032)]);
        let two = ["counting1/ftest", "sampling4/ftest"].map(|work| of(work, &[("reuse", 3000), ("gate", 1000)]));
        let (found, text) = answer(&[&wide, &two[0], &two[1]]);
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("reuse", false, 3), "{text}");
        assert!(
            text.contains("on each of 3 workloads") && text.contains("not sure: what is left out may change it"),
            "{text}"
        );
        let regret = found.results.iter().filter_map(|one| one.regret).fold(0.0, f64::max);
        assert!(
            regret > 2.9
                && found
                    .left_out
                    .iter()
                    .any(|why| why.starts_with("a result of single/ftest") && why.ends_with("without gate"))
        );
        assert!(text.contains("on counting1/ftest gate is faster, by 2.99"), "{text}");
        let shown = found.report().text(200);
        assert!(shown.find("without gate") < shown.find("take reuse"), "{shown}");
    }

    #[test]
    fn a_tracepoint_a_clock_and_a_model_are_not_one_answer() {
        let of = |backend: &str, reuse: u64| {
            let mut record = timed(40, &[("recreate", 2600), ("reuse", reuse)]);
            record.parameters.insert("backend".to_owned(), backend.into());
            if backend.starts_with("sim:") {
                record.host.class = "simulated icx".to_owned();
            }
            record
        };
        let all = [of("sim:icx-2021", 9000), of("cpu-clock", 1000), of("tracepoint:kvm/kvm_exit", 5000)];
        let (found, text) = answer(&all.iter().collect::<Vec<_>>());
        assert_eq!((found.choice.as_str(), found.is_sure, found.results.len()), ("recreate", false, 1), "{text}");
        for what in ["it is of a clock, and the answer of a tracepoint", "it is of a model, and"] {
            assert!(found.left_out.iter().any(|why| why.contains(what)), "{:?}", found.left_out);
        }
        assert!(answer(&[&all[1]]).0.is_sure);
    }

    #[test]
    fn four_rounds_are_no_choice_and_a_bound_is_the_end_of_an_interval() {
        let why = advise(&[&timed(4, &TIMES)], Vec::new()).unwrap_err();
        assert!(why[0].contains("figures, recreate and reuse-lazy: an interval takes 5 rounds"), "{why:?}");
        let mut other = timed(40, &[("recreate", 1200), ("gate", 1500), ("reuse-lazy", 1150)]);
        other.parameters.insert("workload".to_owned(), "counting1/ftest".into());
        let (found, text) = answer(&[&timed(40, &TIMES), &other]);
        let gate = found.strategies.iter().find(|one| one.strategy == "gate").unwrap();
        assert!(gate.worst_interval.high > gate.worst_regret + 0.01, "{gate:?}");
        assert!(text.contains(&format!("at most {} × the fastest", ratio(gate.worst_interval.high))), "{text}");
        assert!(found.report().text(200).contains(&ratio_in(gate.worst_regret, Some(gate.worst_interval))));
        let text = answer(&[&timed(40, &[("gate", 1000), ("reuse", 1000), ("recreate", 2600)])]).1;
        assert!(text.contains("among the fastest on single/ftest, not distinguishable from"), "{text}");
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
        assert_eq!(found.results[0].first, "reuse", "{:?}", found.strategies);
        assert!(found.strategies.iter().all(|one| one.worst_regret >= 1.0), "{:?}", found.strategies);
    }

    #[test]
    fn the_worst_regret_decides_over_workloads_and_another_first_is_named() {
        let mut other = timed(40, &[("recreate", 1200), ("gate", 1500), ("reuse-lazy", 1150)]);
        other.parameters.insert("workload".to_owned(), "counting1/ftest".into());
        let (found, text) = answer(&[&timed(40, &TIMES), &other]);
        assert_eq!((found.choice.as_str(), found.is_sure), ("gate", true));
        assert!(text.contains(" × the fastest on each of 2 workloads"), "{text}");
        assert!(text.contains("; on counting1/ftest reuse-lazy is faster, by 1.30"), "{text}");
        let gate = found.strategies.iter().find(|one| one.strategy == "gate").unwrap();
        assert!((gate.mean_regret - 1.152).abs() < 0.01 && (gate.worst_regret - 1.304).abs() < 0.01, "{gate:?}");
    }

    #[test]
    fn a_model_tells_no_better_than_the_runs_that_it_was_made_from() {
        let mut record = timed(40, &TIMES);
        record.host.model_percent = Some([80, 140]);
        let (found, text) = answer(&[&record]);
        assert!(
            !found.is_sure && text.contains("not sure: reuse-lazy may be as good; the model takes 80 to 140 %"),
            "{text}"
        );
        record.host.model_percent = Some([90, 120]);
        assert!(answer(&[&record]).0.is_sure, "1.6 times is more than 1.33");
    }

    #[test]
    fn models_of_the_same_costs_are_one_piece_of_evidence() {
        let on = |class: &str, model: &str, gate: u64| {
            let mut record = timed(40, &[("recreate", 2000), ("gate", gate), ("reuse-lazy", 1000)]);
            (record.host.class, record.host.model) = (class.to_owned(), Some(model.to_owned()));
            record
        };
        let records = [on("a", "11-1", 2000), on("b", "11-2", 2000), on("c", "33-3", 1000)];
        let (found, text) = answer(&records.iter().collect::<Vec<_>>());
        let gate = found.strategies.iter().find(|one| one.strategy == "gate").unwrap();
        assert!((gate.mean_regret - 1.5).abs() < 0.01, "{gate:?}");
        assert!(text.contains("the 3 results are 2 in the mean"), "{text}");
        assert!(!answer(&[&records[0], &records[2]]).1.contains("in the mean"));
    }

    #[test]
    fn keys_are_ranked_by_what_they_are_worth() {
        let [gate, none] = ["gate", "mark"].map(|key| format!("gate{WITHOUT}{key}"));
        let times = [("recreate", 2600), ("gate", 1270), (gate.as_str(), 1900), (none.as_str(), 1270)];
        let (found, _) = answer(&[&timed(40, &times)]);
        let verdicts: Vec<_> =
            found.keys.iter().map(|key| (key.choice.as_str(), key.default.as_str(), key.verdict())).collect();
        assert_eq!(verdicts, [("gate = true", "gate = false", "saves time"), ("", "", "not distinguishable")]);
        assert_eq!(found.strategies.len(), 2, "variants are no strategies to take");
    }

    #[test]
    fn what_has_no_whole_figures_is_left_out_and_named() {
        let mut record = timed(40, &TIMES);
        record.arms[1].own.lost = Some(3);
        let (found, _) = answer(&[&record]);
        assert_eq!((found.choice.as_str(), found.left_out.len()), ("reuse-lazy", 1));
        assert!(found.left_out[0].starts_with("gate is left out"), "{:?}", found.left_out);
        assert_eq!(advise(&[], Vec::new()), Err(Vec::new()));
        assert_eq!(advise(&[&timed(40, &[("gate", 1270)])], Vec::new()).unwrap_err().len(), 1);
    }
}
