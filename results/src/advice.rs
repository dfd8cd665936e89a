//! Which strategy to take, by results of one or several workloads and hosts: the choice, what it costs, how sure it is, and what
//! each key of a user's own strategy is worth.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::document::warnings::UNIDENTIFIED;
use crate::document::{Any, Arm, ArmKind, BELOW_KVM, Counts, KVM_ARMS, NMI_LATENCY, REPLAY, Record, Status};
use crate::metric::{self, Metric};
use crate::paired::{self, Ratio, Statistic};
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
    /// Time of the choice over that of the fastest.
    pub regret: f64,
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
    /// No other can have a worst regret that is more than 1 % smaller.
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

/// A result with the figures of its strategies.
struct Run<'a> {
    record: &'a Record,
    metric: &'static Metric,
    /// Ratio of each strategy to the fastest, in the order of the names.
    regrets: Vec<Ratio>,
    over_floor: Vec<Option<Ratio>>,
    first: usize,
    last: usize,
    /// Its share in a mean over the results: those of a workload under the same costs count as one.
    share: f64,
}

impl Run<'_> {
    /// Returns the workload, and the host's costs: models may have them from each other.
    fn evidence(&self) -> (String, &str) {
        let Record { host, .. } = self.record;
        let costs = host.model.as_deref().and_then(|constants| constants.split('-').next());
        (self.workload(), costs.unwrap_or(&host.class))
    }

    fn workload(&self) -> String {
        self.record.parameter("workload").unwrap_or_default()
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

/// Returns the figures of a result; `None` if one of the strategies has no ratio to another.
fn run<'a>(record: &'a Record, metric: &'static Metric, names: &[String]) -> Option<Run<'a>> {
    let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    // The floor has every round, and a strategy may have left early.
    let base = floor.filter(|floor| paired::p50(floor, metric.key).is_some()).map_or(&names[0], |floor| &floor.name);
    let times = |name: &String| ratio_of(record, metric, name, base).map(|ratio| ratio.ratio);
    let times = names.iter().map(times).collect::<Option<Vec<f64>>>()?;
    let by_time = |a: &usize, b: &usize| times[*a].total_cmp(&times[*b]);
    let first = (0..names.len()).min_by(by_time)?;
    let last = (0..names.len()).max_by(by_time)?;
    let one = Ratio { interval: Some(Interval { low: 1.0, high: 1.0 }), ..Ratio::of_means(1.0, 0) };
    let regret = |(place, name): (usize, &String)| {
        if place == first { Some(one) } else { ratio_of(record, metric, name, &names[first]) }
    };
    let regrets = names.iter().enumerate().map(regret).collect::<Option<Vec<Ratio>>>()?;
    let over_floor = names.iter().map(|name| ratio_of(record, metric, name, &floor?.name)).collect();
    Some(Run { record, metric, regrets, over_floor, first, last, share: 1.0 })
}

/// Returns whether an arm is a strategy, and not one without a key.
fn is_whole_strategy(arm: &Arm<Any>) -> bool {
    arm.is_strategy() && !arm.name.contains(WITHOUT)
}

/// Advises by results of guests: those that have the strategies of the one with the most. `None` where no result has two.
pub fn advise(records: &[&Record]) -> Option<Advice> {
    let is_strategy = |arm: &&Arm<Any>| is_whole_strategy(arm) && arm.not_available.is_none();
    let of_guests = || records.iter().copied().filter(|record| record.experiment == NMI_LATENCY);
    let count = |record: &&Record| record.arms.iter().filter(is_strategy).count();
    let widest = of_guests().max_by_key(count)?;
    let mut names: Vec<String> = widest.arms.iter().filter(is_strategy).map(|arm| arm.name.clone()).collect();
    let has_all =
        |record: &&Record| names.iter().all(|name| record.arm(name).is_some() && record.defines_alike(widest, name));
    let with_all: Vec<(&Record, &'static Metric)> =
        of_guests().filter(has_all).filter_map(|record| Some((record, metric::find(record.metric()?)?))).collect();
    let cannot = |arm: &Arm<Any>| Some(format!("{} is left out: {}", arm.name, arm.not_available.as_ref()?));
    let mut left_out: Vec<String> =
        widest.arms.iter().filter(|arm| is_whole_strategy(arm)).filter_map(cannot).collect();
    names.retain(|name| {
        let lacks =
            |(record, metric): &&(&Record, &'static Metric)| !contenders(record, metric).any(|arm| arm.name == *name);
        let found = with_all.iter().find(lacks);
        left_out.extend(found.map(|(record, _)| {
            format!(
                "{name} is left out: it has no whole figures on {}",
                record.parameter("workload").unwrap_or_default()
            )
        }));
        found.is_none()
    });
    if names.len() < 2 {
        return None;
    }
    let mut runs: Vec<Run<'_>> = with_all.iter().filter_map(|(record, metric)| run(record, metric, &names)).collect();
    if runs.is_empty() {
        return None;
    }
    let evidence: Vec<_> = runs.iter().map(Run::evidence).collect();
    let different = evidence.iter().collect::<BTreeSet<_>>().len() as f64;
    let alike = |of: &(String, &str)| evidence.iter().filter(|other| *other == of).count() as f64;
    let shares: Vec<f64> = evidence.iter().map(|of| 1.0 / (alike(of) * different)).collect();
    runs.iter_mut().zip(shares).for_each(|(run, share)| run.share = share);
    let strategies: Vec<Standing> =
        names.iter().enumerate().map(|(place, name)| standing(&runs, name, place)).collect();
    let choice = choose(&strategies)?;
    let rivals = (0..names.len()).filter(|place| *place != choice);
    let high = strategies[choice].worst_interval.high;
    let open: Vec<usize> =
        rivals.filter(|place| high > strategies[*place].worst_interval.low * (1.0 + AS_GOOD)).collect();
    let answer = answer(&runs, &strategies, choice, &open);
    let setting = |run: &Run<'_>| Setting {
        workload: run.workload(),
        host: run.record.host.class.clone(),
        first: names[run.first].clone(),
        last: names[run.last].clone(),
        regret: run.regrets[choice].ratio,
        rounds: run.regrets.iter().map(|ratio| ratio.rounds).max().unwrap_or(0),
        left_early: left_early(run.record),
    };
    let mut found = Advice {
        choice: names[choice].clone(),
        is_sure: open.is_empty(),
        answer,
        results: runs.iter().map(setting).collect(),
        keys: keys(&runs, &names),
        strategies,
        left_out,
    };
    mark_front(&mut found.strategies);
    found.strategies.sort_by(|a, b| a.worst_regret.total_cmp(&b.worst_regret));
    Some(found)
}

/// Returns the strategies that have fewer rounds than others though nothing went wrong, with these.
fn left_early(record: &Record) -> BTreeMap<String, usize> {
    let most = record.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let of =
        record.arms.iter().filter(|arm| is_whole_strategy(arm) && arm.incomplete.is_empty() && !arm.rounds.is_empty());
    of.filter(|arm| arm.rounds.len() < most).map(|arm| (arm.name.clone(), arm.rounds.len())).collect()
}

fn standing(runs: &[Run<'_>], name: &str, place: usize) -> Standing {
    let regrets = || runs.iter().map(|run| run.regrets[place]);
    let worst = |of: &dyn Fn(Ratio) -> f64| regrets().map(of).fold(0.0, f64::max);
    let floors = runs.iter().filter_map(|run| run.over_floor[place]).map(|over| over.ratio);
    let range = floors.fold(None, |range: Option<Interval>, over| {
        let Interval { low, high } = range.unwrap_or(Interval { low: over, high: over });
        Some(Interval { low: low.min(over), high: high.max(over) })
    });
    let value = |column: &column::Column| {
        let of_run = |run: &Run<'_>| {
            let arm = run.record.arm(name)?;
            (column.value)(&Figures::new(arm, arm.metric(run.metric)))
        };
        let values: Vec<f64> = runs.iter().filter_map(of_run).collect();
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
        mean_regret: regrets().zip(runs).map(|(ratio, run)| ratio.ratio * run.share).sum(),
        times_floor: range,
        work: column::columns(Place::Advice).filter_map(value).collect(),
        beaten_by: None,
    }
}

/// Chooses the strategy with the least worst regret; of several that are as good, the one that holds the fewest events.
fn choose(strategies: &[Standing]) -> Option<usize> {
    let worst = |place: &usize| strategies[*place].worst_regret;
    let least = strategies.iter().map(|one| one.worst_regret).fold(f64::INFINITY, f64::min);
    let as_good = (0..strategies.len()).filter(|place| worst(place) <= least * (1.0 + AS_GOOD));
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
    let points: Vec<[f64; 2]> = strategies.iter().map(|one| [one.mean_regret, one.held()]).collect();
    let on_front = front(&points);
    let names: Vec<String> = strategies.iter().map(|one| one.strategy.clone()).collect();
    for (own, strategy) in points.iter().zip(strategies) {
        let better = (0..points.len()).find(|other| on_front[*other] && dominates(&points[*other], own));
        strategy.beaten_by = better.map(|other| names[other].clone());
    }
}

/// Writes the answer in three sentences: the choice and why, what it costs, and how sure it is.
fn answer(runs: &[Run<'_>], strategies: &[Standing], choice: usize, open: &[usize]) -> Vec<String> {
    let chosen = &strategies[choice];
    let hosts: BTreeSet<&str> = runs.iter().map(|run| run.record.host.class.as_str()).collect();
    let place = |run: &Run<'_>| match hosts.len() {
        1 => run.workload(),
        _ => format!("{} on {}", run.workload(), run.record.host.class),
    };
    let what = if runs.iter().all(|run| run.workload().starts_with(REPLAY)) { "traces" } else { "workloads" };
    let among = match runs {
        [run] => format!("on {}", place(run)),
        _ if hosts.len() == 1 => format!("on each of {} {what}", runs.len()),
        _ => format!("on each of {} {what} and hosts", runs.len()),
    };
    let rank = if chosen.worst_regret <= 1.0 {
        format!("it is the fastest {among}")
    } else {
        format!("it takes at most {} × the fastest {among}", ratio(chosen.worst_regret))
    };
    let floor = match (runs, chosen.times_floor) {
        ([run], _) if let Some(over) = &run.over_floor[choice] => format!(", {}", times(over, "the floor")),
        (_, Some(Interval { low, high })) => format!(", {} to {} × the floor", ratio(low), ratio(high)),
        _ => String::new(),
    };
    let (kvm, since) = OF_KVM;
    let kvm = strategies.iter().find(|one| one.strategy == kvm && one.strategy != chosen.strategy);
    let kvm = kvm.map(|one| {
        format!("; {kvm} ({since}) takes up to {} × the fastest", ratio(one.worst_regret), kvm = one.strategy)
    });
    let as_it_is = if chosen.strategy.starts_with(BELOW_KVM) { kvm_as_it_is(runs, &chosen.strategy) } else { None };
    let kvm = kvm.or(as_it_is);
    let origins: BTreeSet<String> = runs.iter().map(|run| origin(run.record)).collect();
    let why = format!(
        "take {}: {rank}{floor}{}{}",
        chosen.strategy,
        kvm.unwrap_or_default(),
        origins.into_iter().collect::<String>()
    );
    let costs = costs(chosen, &runs[0].record.definition(&chosen.strategy).unwrap_or_default());
    let mut sure = if open.is_empty() {
        format!("sure: no other can have a worst ratio that is more than {} % smaller", AS_GOOD * 100.0)
    } else {
        let cut =
            runs.iter().any(|run| run.record.size("duration_ns").is_some_and(|bound| run.record.wall_ns >= bound));
        let names: Vec<String> = open.iter().map(|place| strategies[*place].strategy.clone()).collect();
        let why = match runs.iter().find_map(|run| run.record.host.model_percent) {
            Some([low, high]) => {
                format!("the model takes {low} to {high} % of what it was made from, and tells no better")
            }
            None if cut => "the time was up, a longer --duration may tell".to_owned(),
            None => "more rounds may tell".to_owned(),
        };
        format!("not sure: {} may be as good; {why}", listed(&names))
    };
    let mut add = |text: String| sure.push_str(&text);
    add(scope(runs, &chosen.strategy));
    for run in runs {
        let found = &run.regrets[choice];
        if ends(found).low > 1.0 + AS_GOOD {
            add(format!(
                "; on {} {} is faster, by {} ×",
                place(run),
                strategies[run.first].strategy,
                ratio_in(found.ratio, found.interval)
            ));
        }
    }
    for run in runs {
        let own = run.record.warnings.iter().filter(|warning| warning.code == UNIDENTIFIED);
        for warning in own.filter(|warning| warning.arm.as_ref() == Some(&chosen.strategy)) {
            add(format!("; on {} its ratio is {}", place(run), warning.message));
        }
        if run.record.status != Status::Complete {
            add(format!("; {} was not run to its end", place(run)));
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
fn kvm_as_it_is(runs: &[Run<'_>], choice: &str) -> Option<String> {
    let of = |run: &Run<'_>| ratio_of(run.record, run.metric, KVM_ARMS[0], choice);
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
fn scope(runs: &[Run<'_>], choice: &str) -> String {
    let mut text = String::new();
    let different = runs.iter().map(Run::evidence).collect::<BTreeSet<_>>().len();
    if different < runs.len() {
        let _ = write!(
            text,
            "; the {} results are {different} in the mean, for some of the models have the same costs",
            runs.len()
        );
    }
    let arms = runs.iter().filter(|run| run.record.is_replayed()).flat_map(|run| &run.record.arms);
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
    let is_stand_in = |run: &Run<'_>| !run.record.is_simulated() && run.record.arms.iter().any(|arm| arm.stand_in);
    if runs.iter().any(is_stand_in) {
        text.push_str("; hardware events may order otherwise than a stand-in");
    }
    if runs.iter().any(|run| run.record.is_simulated()) {
        text.push_str(
            "; of models, and of a VMM in userspace: in KVM's own code, where a model has that form (MODEL:in-kernel), \
             another may be the fastest",
        );
    }
    text
}

/// Ranks the keys of a user's strategies by their variants, each of which has one key at its default.
fn keys(runs: &[Run<'_>], names: &[String]) -> Vec<Key> {
    let arms = runs[0].record.arms.iter().filter_map(|arm| Some((arm, arm.name.split_once(WITHOUT)?)));
    let of = arms.filter(|(_, (strategy, _))| names.iter().any(|name| name == strategy));
    let key = |(arm, (strategy, key)): (&Arm<Any>, (&str, &str))| {
        let ratios: Vec<Ratio> =
            runs.iter().filter_map(|run| ratio_of(run.record, run.metric, &arm.name, strategy)).collect();
        let share = 1.0 / (ratios.len() as f64);
        let log = ratios.iter().map(|one| one.ratio.ln()).sum::<f64>() * share;
        // The results are independent of each other.
        let sum = ratios.iter().try_fold(known(0.0), |sum, one| Some(sum.less(&one.log?)));
        let interval = sum.map(|sum| Estimate { value: log, error: sum.error * share, ..sum }.interval());
        let choice = |name: &str| {
            let choices = runs[0].record.definition(name).unwrap_or_default();
            let own: Vec<String> = choices
                .into_iter()
                .filter(|choice| choice.starts_with(&format!("{key} ")) || choice.starts_with(&format!("{key}.")))
                .collect();
            own.join(", ")
        };
        let held = |name: &str| {
            let held = |run: &Run<'_>| run.record.arm(name)?.own.events_held.time_mean;
            runs.iter().filter_map(held).sum::<f64>() / runs.len() as f64
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
        let head = ["strategy", "worst", "mean", "× floor", "front"].into_iter();
        let mut table = Table::new(head.chain(columns.clone().map(|column| column.heading))).left(4);
        for one in &self.strategies {
            let floor = one.times_floor.map_or_else(dash, |Interval { low, high }| {
                let [low, high] = [low, high].map(ratio);
                if low == high { low } else { format!("{low} to {high}") }
            });
            let front = one.beaten_by.as_ref().map_or_else(|| "●".to_owned(), |by| format!("beaten by {by}"));
            let cells = [one.strategy.clone(), ratio(one.worst_regret), ratio(one.mean_regret), floor, front];
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
        report.notes(self.answer.clone());
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
        report.notes(self.left_out.clone());
        report
    }
}

/// Sentences under the table of strategies.
pub const LEGEND: [&str; 2] = [
    "worst, mean: time over that of each result's fastest strategy",
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
        let found = advise(records).unwrap();
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
        assert!(text.contains("; KVM as it is takes 1.998 × that [1.98"), "{text}");
        assert!(text.contains("it costs: the kernel module") && !text.contains("one group"), "{text}");
        let text = answer(&[&of(4000, "kvm:gate")]).1;
        assert!(text.contains("it costs: nothing: it is KVM as it is") && !text.contains("at most;"), "{text}");
        let mut other = of(1000, "kvm:gate");
        other.parameters.insert("workload".to_owned(), "counting1/ftest".into());
        let text = answer(&[&of(500, "kvm:gate"), &other]).1;
        assert!(text.contains("; KVM as it is takes 2.00 to 3.99 × that"), "{text}");
    }

    #[test]
    fn the_worst_regret_decides_over_workloads_and_another_first_is_named() {
        let mut other = timed(40, &[("recreate", 1200), ("gate", 1500), ("reuse-lazy", 1150)]);
        other.parameters.insert("workload".to_owned(), "counting1/ftest".into());
        let (found, text) = answer(&[&timed(40, &TIMES), &other]);
        assert_eq!((found.choice.as_str(), found.is_sure), ("gate", true));
        assert!(text.contains("at most 1.30 × the fastest on each of 2 workloads"), "{text}");
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
        assert_eq!(advise(&[]), None);
        assert_eq!(advise(&[&timed(40, &[("gate", 1270)])]), None);
    }
}
