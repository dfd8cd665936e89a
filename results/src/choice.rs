//! The rule by which a strategy is chosen, by the main job and by `advise`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::document::warnings::{LIVELOCK, NO_FIGURE};
use crate::document::{Arm, Document, Experiment, Warning};
use crate::metric::Metric;
use crate::paired::{self, MIN_ROUNDS, Ratio};
use crate::stats::interval::Interval;

/// Difference up to which one strategy is as good as another.
pub const AS_GOOD: f64 = 0.01;
/// One that is as good by its figures may gain so much on the choice by their intervals: few rounds more would not tell them apart.
pub const ONE_PLACE: f64 = 0.05;

/// Figures of an arm's work by column.
pub type Work = BTreeMap<&'static str, f64>;

/// A strategy in a result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Regret {
    /// Its name.
    pub arm: String,
    /// Its time over that of the fastest.
    #[serde(flatten)]
    pub ratio: Ratio,
    #[serde(skip)]
    work: Work,
}

/// A strategy over all results.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Ranked {
    /// Its name.
    pub arm: String,
    /// Its time over that of the result's fastest strategy: the worst of all results.
    pub worst_regret: f64,
    /// Bounds of that: the worst of the 95 % intervals' ends.
    pub worst_interval: Interval,
    /// Figures by column, means over results.
    pub work: Work,
    /// Results that have it.
    pub results: usize,
}

impl Ranked {
    /// Returns whether its worst may be below that of another by more than this share.
    pub fn may_beat(&self, other: &Self, by: f64) -> bool {
        other.worst_interval.high > self.worst_interval.low * (1.0 + by)
    }
}

/// What is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The result, or strategies of it.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The choice might be another with it.
    pub is_open: bool,
}

/// Returns a ratio of two arms; a model that was calibrated knows it no better than the runs that it was made from.
fn ratio_of<E: Experiment>(document: &Document<E>, metric: &Metric, arm: &str, base: &str) -> Option<Ratio> {
    let ratio = paired::over_runs(document, document.arm(arm)?, document.arm(base)?, metric.key)?;
    let spread = document.host.model_percent.map_or(1.0, |[low, high]| high as f64 / low as f64);
    let wide = |Interval { low, high }| Interval { low: low / spread, high: high * spread };
    Some(Ratio { interval: ratio.interval.map(wide), ..ratio })
}

/// Returns the strategies of a result with their times over that of the fastest, which is the first; and those without figures. `work`
/// returns the figures that are shown beside, and "held_mean".
pub fn regrets<E: Experiment>(
    document: &Document<E>,
    metric: &Metric,
    work: fn(&Arm, &Metric) -> Work,
) -> (Vec<Regret>, Vec<LeftOut>) {
    let (mut names, mut lacks) = (Vec::new(), Vec::new());
    let mut lack = |what: &str, why: String, is_open| lacks.push(LeftOut { what: what.to_owned(), why, is_open });
    for arm in document.arms.iter().filter(|arm| arm.is_strategy()) {
        if let Some(why) = &arm.not_available {
            lack(&arm.name, why.clone(), false);
        } else if let Some(why) = no_figure(document, &arm.name) {
            lack(&arm.name, why.message.clone(), why.code != LIVELOCK);
        } else if contenders(document, metric).any(|one| one.name == arm.name) {
            names.push(arm.name.as_str());
        } else {
            lack(&arm.name, "it has no whole figures".to_owned(), true);
        }
    }
    let one = Ratio { interval: Some(Interval { low: 1.0, high: 1.0 }), ..Ratio::of_means(1.0, 0) };
    // The rounds that say by how much others are slower say which is the fastest.
    let (mut first, mut ratios) = (names.first().copied(), Vec::new());
    for _ in 0..=names.len() {
        let Some(name) = first.take() else { break };
        let ratio = |own: &str| if own == name { Some(one) } else { ratio_of(document, metric, own, name) };
        ratios = names.iter().map(|own| (*own, ratio(own))).collect();
        let ahead = ratios.iter().filter_map(|(name, ratio)| Some((*name, (*ratio)?.ratio)));
        first = ahead.filter(|(_, ratio)| *ratio < 1.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name);
    }
    let mut regrets = Vec::new();
    for (name, found) in ratios {
        let Some(found) = found.filter(|found| found.interval.is_some()) else {
            lack(name, format!("an interval takes {MIN_ROUNDS} rounds beside the fastest's"), true);
            continue;
        };
        let work = document.arm(name).map(|arm| work(arm, metric)).unwrap_or_default();
        let ratio = Ratio { ratio: found.ratio.max(1.0), ..found };
        regrets.push(Regret { arm: name.to_owned(), ratio, work });
    }
    regrets.sort_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio));
    (regrets, lacks)
}

/// Returns the warning that says why an arm has no figure.
fn no_figure<'a, E: Experiment>(document: &'a Document<E>, arm: &str) -> Option<&'a Warning> {
    let is_its = |one: &&Warning| one.arm.as_deref().is_none_or(|own| own == arm) && NO_FIGURE.contains(&&*one.code);
    document.warnings.iter().find(is_its)
}

/// Returns whether an arm's guest gets no period whole: it is no choice for this workload.
pub(crate) fn livelocks<E: Experiment>(document: &Document<E>, arm: &str) -> bool {
    no_figure(document, arm).is_some_and(|why| why.code == LIVELOCK)
}

/// Returns the strategies of a run that a ranking may name: those with figures that nothing makes doubtful.
pub fn contenders<'a, E: Experiment>(document: &'a Document<E>, metric: &'a Metric) -> impl Iterator<Item = &'a Arm> {
    document.arms.iter().filter(move |arm| has_figures(arm, metric) && arm.doubt().is_none())
}

pub(crate) fn has_figures(arm: &Arm, metric: &Metric) -> bool {
    arm.is_strategy() && paired::p50(arm, metric.key).is_some()
}

/// Returns the mean of each figure over those that have it.
pub fn means<'a>(all: &(impl Iterator<Item = &'a Work> + Clone)) -> Work {
    let mean = |key: &'static str| {
        let values: Vec<f64> = all.clone().filter_map(|work| work.get(key).copied()).collect();
        (key, values.iter().sum::<f64>() / values.len() as f64)
    };
    all.clone().flat_map(Work::keys).map(|key| mean(key)).collect()
}

/// Ranks the strategies of results by their worst, the least first.
pub fn rank<'a>(results: impl Iterator<Item = &'a [Regret]>) -> Vec<Ranked> {
    let mut by_name: BTreeMap<&str, Vec<&Regret>> = BTreeMap::new();
    for regret in results.flatten() {
        by_name.entry(&regret.arm).or_default().push(regret);
    }
    let ranked = |(name, own): (&str, Vec<&Regret>)| {
        let worst = |of: fn(&Ratio) -> f64| own.iter().map(|one| of(&one.ratio)).fold(0.0, f64::max);
        Ranked {
            arm: name.to_owned(),
            worst_regret: worst(|ratio| ratio.ratio),
            worst_interval: Interval {
                low: worst(|ratio| ratio.interval.map_or(0.0, |ends| ends.low)),
                high: worst(|ratio| ratio.interval.map_or(f64::INFINITY, |ends| ends.high)),
            },
            work: means(&own.iter().map(|one| &one.work)),
            results: own.len(),
        }
    };
    let mut all: Vec<Ranked> = by_name.into_iter().map(ranked).collect();
    all.sort_by(|a, b| a.worst_regret.total_cmp(&b.worst_regret));
    all
}

/// Returns the two strategies that may be chosen and are in the most results together: others are judged with them. Of several the
/// first.
pub fn most_shared<'a>(results: impl Iterator<Item = &'a [Regret]>, modelled: bool) -> Option<[&'a str; 2]> {
    let mut counts = BTreeMap::new();
    for (place, result) in results.enumerate() {
        let mut names: Vec<&str> = result.iter().map(|one| &*one.arm).collect();
        names.retain(|name| modelled || !is_modelled(name));
        names.sort_unstable();
        for (at, one) in names.iter().enumerate() {
            names[..at].iter().for_each(|other| counts.entry([*other, *one]).or_insert((0, Reverse(place))).0 += 1);
        }
    }
    counts.into_iter().rev().max_by_key(|(_, found)| *found).map(|(pair, _)| pair)
}

/// Models of a later KVM.
const MODELLED: [&str; 2] = ["mediated", "mediated-filter"];

/// Returns whether a strategy is a model of a later KVM, which is shown, and chosen if it was named alone.
pub fn is_modelled(strategy: &str) -> bool {
    MODELLED.contains(&strategy)
}

/// Chooses the strategy whose worst is the least of those that are in the most results, of those that may be
/// chosen; of those within 1 % the one that holds the fewest events. Returns it with those that are as good, and those that may be.
pub fn choose(ranked: &[Ranked], modelled: bool) -> Option<(&Ranked, Vec<&Ranked>, Vec<&Ranked>)> {
    let may = || ranked.iter().filter(|one| modelled || !is_modelled(&one.arm));
    let most = may().map(|one| one.results).max()?;
    let whole: Vec<&Ranked> = may().filter(|one| one.results == most).collect();
    let held = |one: &Ranked| one.work.get("held_mean").copied().unwrap_or(f64::INFINITY);
    let least = whole.first().filter(|_| whole.len() > 1)?.worst_regret;
    let is_good = |one: &&Ranked| one.worst_regret <= least * (1.0 + AS_GOOD);
    let chosen = whole.iter().copied().filter(is_good).min_by(|a, b| held(a).total_cmp(&held(b)))?;
    let is_open = |one: &&Ranked| one.may_beat(chosen, if is_good(one) { ONE_PLACE } else { AS_GOOD });
    let others = |of: &dyn Fn(&&Ranked) -> bool| -> Vec<&Ranked> {
        whole.iter().copied().filter(|one| one.arm != chosen.arm && of(one)).collect()
    };
    Some((chosen, others(&is_good), others(&is_open)))
}
