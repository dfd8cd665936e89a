//! Measured counterparts of published figures, from result documents.

use results::document::warnings::{first_open_is_expensive, shares_first_event};
use results::document::{Arm, Document, Summary};
use results::metric::{Metric, NMI_DRIVER_OFF, NMI_HANDLER, ROTATION};
use results::paired::MIN_ROUNDS;
use results::paired::groups::groups;
use results::published::{Measured, Number};
use results::stats::interval::Interval;
use results::stats::jackknife::over_groups;

/// Source of a figure: documents of its regime, arms, and a number to read.
pub(super) struct Reading {
    /// Prefix of the workload. Not of runs with a tracepoint: it is a single event.
    pub(super) events: &'static str,
    /// True if an event that a guest creates is the first of its kind on the host, which is what makes creating it expensive.
    pub(super) first_event: bool,
    arms: [&'static str; 2],
    quantity: Quantity,
}

/// Number of an arm.
#[derive(Clone, Copy)]
enum Quantity {
    /// Mean of all samples of these metrics together.
    Mean(&'static [&'static Metric]),
    /// Least latency of all NMIs.
    Least,
    /// Host events created per NMI behind fixed counters, or behind the others.
    Creates { fixed: bool },
}

/// The handler's latencies: of NMIs that re-armed a counter, and of those that re-armed none. The published figures are of both.
const ALL_NMIS: &[&Metric] = &[&NMI_HANDLER, &NMI_DRIVER_OFF];

pub(super) fn reading(figure: &str) -> Option<Reading> {
    let arms = ["recreate", "reuse-lazy"];
    let cheap = Reading { events: "sampling10/", first_event: false, arms, quantity: Quantity::Mean(ALL_NMIS) };
    if let Some(of_host) = figure.strip_prefix("vpmu-reuse.watchdog-").and_then(|rest| rest.split_once('.')) {
        let mean = Reading { first_event: of_host.0 == "off", ..cheap };
        return Some(match of_host.1 {
            "mean" => mean,
            "min" => Reading { quantity: Quantity::Least, ..mean },
            "stat" => Reading { events: "counting1/", quantity: Quantity::Mean(&[&ROTATION]), ..mean },
            "linux" => Reading { events: "linux:", ..mean },
            "kept" => Reading { arms: ["recreate", "reuse"], ..mean },
            "in-kernel" => Reading { arms: ["kvm:recreate", "kvm"], ..mean },
            "kvm" => Reading { arms: ["recreate", "kvm"], ..mean },
            "kvm-mediated" => Reading { arms: ["recreate", "kvm-mediated"], ..mean },
            _ => return None,
        });
    }
    Some(match figure {
        "vpmu-reuse.v1.mean" => cheap,
        "vpmu-reuse.creates.gp" => Reading { quantity: Quantity::Creates { fixed: false }, ..cheap },
        "vpmu-reuse.creates.fixed" => Reading { quantity: Quantity::Creates { fixed: true }, ..cheap },
        "vpmu-paused-flag.mean" => Reading { events: "sampling4/", arms: ["reuse-lazy", "paused-flag"], ..cheap },
        _ => return None,
    })
}

/// Figures with a measured counterpart.
const FIGURES: [&str; 5] = [
    "vpmu-reuse.watchdog-on.mean",
    "vpmu-reuse.v1.mean",
    "vpmu-reuse.watchdog-off.mean",
    "vpmu-reuse.watchdog-off.min",
    "vpmu-paused-flag.mean",
];

/// Returns whether some published figure has a counterpart in this document.
pub fn answers(document: &Document) -> bool {
    let numbers = [Number::Before, Number::After];
    let of =
        |figure: &&str| numbers.into_iter().any(|one| number(std::slice::from_ref(document), figure, one).is_some());
    FIGURES.iter().any(of)
}

/// Returns whether an event that a guest of this document creates is the first of its kind on the host.
///
/// # Errors
/// Returns why that is unknown or differs by guest: such a document is a counterpart of no published figure.
pub fn first_event(document: &Document) -> Result<bool, &'static str> {
    let backend = document.parameters.backend.as_str();
    match (backend, document.host.nmi_watchdog) {
        _ if backend.starts_with("sim:") => Err("a simulation is no measurement"),
        ("hardware", None) => Err("whether the host's NMI watchdog held an event is unknown"),
        ("hardware", Some(true)) => Ok(false),
        _ if first_open_is_expensive(backend) && shares_first_event(document) => {
            Err("guests of several strategies held events at the same time; take --guest-rounds 1")
        }
        _ => Ok(first_open_is_expensive(backend)),
    }
}

/// Returns the number from the first document in the regime.
pub(super) fn number(documents: &[Document], figure: &str, number: Number) -> Option<Measured> {
    let reading = reading(figure)?;
    documents.iter().find_map(|document| {
        let parameters = &document.parameters;
        let same = parameters.backend.starts_with("tracepoint:") || parameters.workload.starts_with(reading.events);
        if first_event(document) != Ok(reading.first_event) || !same {
            return None;
        }
        of(document, &reading, number)
    })
}

/// Returns the number from a document of the regime.
pub(super) fn of(document: &Document, reading: &Reading, number: Number) -> Option<Measured> {
    let arm = |name| document.arms.iter().find(|arm: &&Arm| arm.name == name);
    let (before, after) = (arm(reading.arms[0]), arm(reading.arms[1]));
    let (value, interval) = match (reading.quantity, number) {
        (Quantity::Mean(metrics), Number::Before) => mean(before?, None, metrics)?,
        (Quantity::Mean(metrics), Number::After) => mean(after?, None, metrics)?,
        (Quantity::Mean(metrics), Number::Ratio) => mean(before?, Some(after?), metrics)?,
        (Quantity::Least, Number::Before) => (least(before?)?, None),
        (Quantity::Least, Number::After) => (least(after?)?, None),
        (Quantity::Least, Number::Ratio) => (least(before?)? / least(after?)?, None),
        (Quantity::Creates { fixed }, Number::Change) => creates(before?, after?, fixed)?,
        _ => return None,
    };
    Some(Measured {
        value,
        interval,
        backend: document.parameters.backend.clone(),
        stand_in: document.arms.iter().any(|arm| arm.stand_in),
        host: document.host.class.clone(),
    })
}

/// Returns the summaries of these metrics; `None` if the document has no latencies of NMIs that re-armed nothing, and
/// there were some.
fn summaries<'a>(arm: &'a Arm, metrics: &'a [&Metric]) -> Option<impl Iterator<Item = &'a Summary> + Clone> {
    let asked = metrics.contains(&&NMI_DRIVER_OFF);
    let known = !asked || arm.metric(&NMI_DRIVER_OFF).is_some() || arm.own.counts.nmis_driver_off == 0;
    known.then(|| metrics.iter().filter_map(|metric| arm.metric(metric)))
}

/// Returns the minimum of all NMIs.
fn least(arm: &Arm) -> Option<f64> {
    summaries(arm, ALL_NMIS)?.filter_map(|summary| summary.min).min().map(|ns| ns as f64)
}

/// Returns the mean of all samples of these metrics, or its ratio to another arm's, with its interval over guests. A median would
/// not see the few creations, of tens of ms, that a mean is made of.
fn mean(arm: &Arm, over: Option<&Arm>, metrics: &[&Metric]) -> Option<(f64, Option<Interval>)> {
    let of_all = |arm: &Arm| {
        let all = summaries(arm, metrics)?;
        let count: u64 = all.clone().map(|summary| summary.count).sum();
        let sum = all.map(|summary| Some(summary.mean? * summary.count as f64)).sum::<Option<f64>>()?;
        Some(sum / count as f64).filter(|mean| mean.is_finite() && *mean > 0.0)
    };
    let value = of_all(arm)? / over.map_or(Some(1.0), of_all)?;
    let sums = |arm: &Arm, at: usize| {
        let of = |metric: &&Metric| {
            let summary = arm.rounds.metric(metric, at)?;
            Some((summary.mean? * summary.count as f64, summary.count as f64))
        };
        metrics.iter().filter_map(of).fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    Some((value, interval(value, arm, over, sums)))
}

/// Returns the change of the host events created per NMI, percent, with its interval. Documents without the count of fixed
/// counters have no figure, and without those of each round no interval.
fn creates(before: &Arm, after: &Arm, fixed: bool) -> Option<(f64, Option<Interval>)> {
    let created = |all: u64, of_fixed: u64| (if fixed { of_fixed } else { all.saturating_sub(of_fixed) }) as f64;
    let per_nmi =
        |arm: &Arm| created(arm.own.op_count("open"), arm.own.counts.opens_fixed) / arm.own.counts.nmis as f64;
    let left = Some(per_nmi(after) / per_nmi(before));
    let left = left.filter(|left| before.own.counts.opens_fixed > 0 && left.is_finite())?;
    let sums = |arm: &Arm, at: usize| {
        let counts = &arm.rounds.counts;
        let round = (counts.opens.get(at), counts.opens_fixed.get(at), counts.nmis.get(at));
        if let (Some(&all), Some(&of_fixed), Some(&nmis)) = round {
            (created(all, of_fixed), nmis as f64)
        } else {
            (0.0, 0.0)
        }
    };
    let change = |left: f64| 100.0 * (left - 1.0);
    let found = interval(left, after, Some(before), sums);
    Some((change(left), found.map(|Interval { low, high }| Interval { low: change(low), high: change(high) })))
}

/// Returns the interval of `value`, a quotient of sums over rounds or its ratio to another arm's, over guests: few creations
/// make it, and they come in bursts.
fn interval(value: f64, arm: &Arm, over: Option<&Arm>, sums: impl Fn(&Arm, usize) -> (f64, f64)) -> Option<Interval> {
    let (guests, rounds): (Vec<u64>, Vec<[f64; 4]>) = arm
        .rounds
        .iter()
        .filter(|round| round.complete)
        .filter_map(|round| {
            let other = match over {
                Some(over) => sums(over, over.rounds.iter().find(|one| one.index == round.index && one.complete)?.at),
                None => (1.0, 1.0),
            };
            let own = sums(arm, round.at);
            (own.1 > 0.0 && other.1 > 0.0).then_some((round.guest, [own.0, own.1, other.0, other.1]))
        })
        .unzip();
    let figure = |rounds: &[[f64; 4]]| {
        let sum = |at: usize| rounds.iter().map(|round| round[at]).sum::<f64>();
        Some((sum(0) / sum(1)) / (sum(2) / sum(3))).filter(|figure| figure.is_finite())
    };
    let found = (rounds.len() >= MIN_ROUNDS).then(|| over_groups(&rounds, &groups(&guests).group, figure)).flatten();
    found.filter(|found| found.value > 0.0).map(|found| {
        let Interval { low, high } = found.interval();
        Interval { low: (value * low / found.value).max(0.0), high: value * high / found.value }
    })
}
