//! The order of the strategies of a run, in a sentence: the fastest, and how far behind the slowest is.

use std::fmt::Write as _;

use super::layout::{self, plural};
use crate::choice::{contenders, is_whole, with_figures};
use crate::document::{Arm, ArmKind, Document, Experiment};
use crate::metric::Metric;
use crate::paired::{self, Ratio};

/// A strategy of a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// Time, in a unit that all contenders share.
    pub cost: f64,
    /// Ratio to the floor.
    pub over_floor: Option<Ratio>,
}

/// Formats a ratio as `1.27 × the floor [1.26, 1.28]`.
pub fn times(ratio: &Ratio, what: &str) -> String {
    let text = layout::ratio_with(ratio);
    let (value, interval) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{value} × {what} {interval}").trim_end().to_owned()
}

/// Joins names as `a, b and c`.
pub fn listed(names: &[String]) -> String {
    match names {
        [many @ .., last] if !many.is_empty() => format!("{} and {last}", many.join(", ")),
        _ => names.concat(),
    }
}

/// Describes the order of strategies; `None` of fewer than two. `against` returns the ratio of one to another, `origin` says what the
/// figures are if they are not measured on hardware events, `repeated` what is repeated for an interval.
pub fn sentence(
    contenders: &[Contender],
    against: &dyn Fn(&Contender, &Contender) -> Option<Ratio>,
    (origin, repeated): (&str, &str),
) -> Option<String> {
    let mut order: Vec<&Contender> = contenders.iter().collect();
    order.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let (first, others) = order.split_first().filter(|(_, others)| !others.is_empty())?;
    let is_tied = |other: &Contender| {
        against(other, first).is_none_or(|ratio| match ratio.interval {
            Some(_) => !ratio.is_distinguishable(),
            None => other.cost <= first.cost || ratio.ratio <= 1.0,
        })
    };
    let (tied, behind): (Vec<&Contender>, Vec<&Contender>) = others.iter().partition(|other| is_tied(other));
    let names: Vec<String> = [*first].iter().chain(&tied).map(|one| one.name.clone()).collect();
    let mut text = format!("fastest: {}", listed(&names));
    if !tied.is_empty() {
        text += ", not distinguishable";
    }
    if let Some(floor) = &first.over_floor {
        let _ = write!(text, ", {}", times(floor, "the floor"));
    }
    if let Some((slowest, ratio)) = behind.last().and_then(|slowest| Some((slowest, against(slowest, first)?))) {
        let _ = write!(text, "; {}, the slowest, is {}", slowest.name, times(&ratio, "that"));
    }
    if let Some(ratio) = others.iter().filter_map(|other| against(other, first)).find(|one| one.interval.is_none()) {
        let _ = write!(text, "; {}, no interval", plural(ratio.rounds, repeated));
    }
    Some(text + origin)
}

/// Describes the order of the strategies of a run; `None` of fewer than two.
pub(super) fn fastest<E: Experiment>(document: &Document<E>, metric: &Metric) -> Option<String> {
    let floor = document.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    let ratio = |arm: &Arm, base: &Arm| paired::over_runs(document, arm, base, metric.key);
    let base = floor.or_else(|| contenders(document, metric).next())?;
    let contender = |arm: &Arm| {
        let over = ratio(arm, base)?;
        Some(Contender { name: arm.name.clone(), cost: over.ratio, over_floor: floor.and(Some(over)) })
    };
    let found: Vec<Contender> = contenders(document, metric).filter_map(contender).collect();
    let against = |one: &Contender, other: &Contender| ratio(document.arm(&one.name)?, document.arm(&other.name)?);
    let text = sentence(&found, &against, (&origin(document), "round"))?;
    Some(text + &unranked(document, metric, "").unwrap_or_default())
}

/// Names the arms that have figures, and none that may be ranked; `of` says of what.
pub(super) fn unranked<E: Experiment>(document: &Document<E>, metric: &Metric, of: &str) -> Option<String> {
    let doubtful = with_figures(document, metric).filter(|arm| !is_whole(arm));
    let names: Vec<String> = doubtful.map(|arm| arm.name.clone()).collect();
    (!names.is_empty()).then(|| format!("; not whole{of}, so not ranked: {}", listed(&names)))
}

/// Says what the figures of a run are, if they are not measured on hardware events.
pub(crate) fn origin<E: Experiment>(document: &Document<E>) -> String {
    let stand_in = document.arms.iter().find(|arm| arm.stand_in);
    match stand_in {
        _ if document.is_replayed() => " (replayed on a model)".to_owned(),
        _ if document.is_simulated() => " (simulated)".to_owned(),
        Some(arm) => format!(" (stand-in {})", arm.backend),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::timed;
    use crate::metric::NMI_HANDLER;

    /// Returns the sentence of a run of these strategies at these times, and the floor at 1000 ns.
    fn said(rounds: u64, times: &[(&str, u64)]) -> Option<String> {
        fastest(&timed(rounds, times), &NMI_HANDLER)
    }

    #[test]
    fn doubtful_arms_are_not_ranked() {
        let text = said(40, &[("recreate", 2600), ("gate", 1270)]).unwrap();
        assert!(text.starts_with("fastest: gate, 1.27"), "{text}");
        let mut document = crate::fixture::document(10);
        document.arms[1].own.lost = Some(1);
        let names: Vec<_> = contenders(&document, &NMI_HANDLER).map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse-lazy"]);
        let text = fastest(&document, &NMI_HANDLER).unwrap();
        assert!(text.ends_with("; not whole, so not ranked: reuse"), "{text}");
    }
}
