//! The values that the documents of a pair give: each arm's runs by each metric that is asked for.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::group::{Both, Pair, SIDES, Said};
use crate::document::{Arm, Record, arm_names};
use crate::error::Error;
use crate::metric;
use crate::paired::{self, are_few};
use crate::verdict::Limits;

/// Rounds of a turn.
pub const ROUNDS: usize = 6;

/// What a caller asks for; by default all arms and metrics, within the default limits.
#[derive(Clone, Debug, Default)]
pub struct CompareSpec {
    /// Limits beyond which a difference is called a change.
    pub limits: Limits,
    /// Only these arms; empty: all.
    pub arms: Vec<String>,
    /// Only these metrics; empty: all.
    pub metrics: Vec<String>,
    /// Hosts may differ.
    pub unlike_hosts_allowed: bool,
    /// Documents of one place, which start at one time, are turns of a pair, as `vpmu ab` takes them.
    pub turns: bool,
}

impl CompareSpec {
    /// Returns the limits of a metric: main metrics are judged, and those that are asked for by name.
    pub(super) fn limits(&self, metric: &str) -> Limits {
        let judged = metric::is_main(metric) || self.metrics.iter().any(|asked| asked == metric);
        Limits { report_only: !judged, ..self.limits }
    }

    /// Checks that everything asked for by name is there: a slip of the pen must not pass as "no regression".
    ///
    /// # Errors
    /// Exit 2, with what there is.
    pub(super) fn check(&self, records: &[&Record]) -> Result<(), Error> {
        let measured = || records.iter().flat_map(|one| &one.arms).filter(|arm| !arm.rounds.is_empty());
        let check = |what: &str, names: &[String], there: BTreeSet<&String>| {
            let Some(name) = names.iter().find(|name| !there.contains(name)) else { return Ok(()) };
            let why = records.iter().find_map(|one| one.arm(name)?.not_available.as_deref()).unwrap_or_default();
            let there = there.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(Error::usage(format!("no figures of {what} {name}"), why, format!("there are {there}")))
        };
        check("arm", &self.arms, measured().map(|arm| &arm.name).collect())?;
        let arms = measured().filter(|arm| asked(&self.arms, &arm.name));
        check("metric", &self.metrics, arms.flat_map(|arm| arm.metrics.keys()).collect())
    }
}

/// One run of one arm.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Place of its document on its side: arms of one document are one run.
    pub(super) document: usize,
    /// Its start, seconds since 1970; two documents may share it.
    pub(super) started: u64,
    /// Its rounds against the reference arm's.
    pub(super) pairs: Vec<paired::Pair>,
    /// Its rounds' p50s, ns.
    pub(super) values: Vec<f64>,
}

/// One arm's runs by one metric.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) arm: String,
    pub(super) metric: String,
    pub(super) sides: Both<Vec<Run>>,
    /// Why its figures are not judged: a side has none, or they are not whole.
    pub(super) doubt: Option<String>,
}

/// Returns every arm and metric of a pair, in the documents' order.
pub(super) fn samples(pair: &Pair<'_>, request: &CompareSpec, (notes, missing): Said<'_>) -> Vec<Sample> {
    let reference = pair.reference;
    let spoilt = reference.and_then(|name| Some(format!("{name}, which it is divided by: {}", pair.doubt(name)?)));
    let mut found = Vec::new();
    for name in arm_names(pair.all()).into_iter().filter(|name| asked(&request.arms, name)) {
        let arms = pair.sides.each_ref().map(|side| side.iter().filter_map(|one| one.arm(name)).collect::<Vec<_>>());
        if let Some(lacks) = arms.iter().position(Vec::is_empty) {
            let other = SIDES[1 - lacks];
            let with = pair.all().find_map(|one| Some(format!(", {}", one.parameter("workload")?))).unwrap_or_default();
            let remedy = if pair.turns { alike(pair) } else { "; --arm LIST compares only what both have".to_owned() };
            notes.push(format!("arm {name}: only in {other}{remedy}"));
            missing.push((format!("arm {name}"), format!("only in {other}{with}")));
        }
        let all = || arms.iter().flatten();
        let mut metrics: BTreeSet<&String> = all().flat_map(|arm| arm.metrics.keys()).collect();
        if metrics.is_empty() {
            let why = all().find_map(|arm| arm.not_available.as_deref()).unwrap_or("it has no figures");
            notes.push(format!("{name}: not compared: {why}"));
        }
        let doubt = pair.doubt(name).or_else(|| spoilt.clone());
        let why = doubt.as_ref().filter(|_| pair.turns);
        missing.extend(why.and_then(|why| left_out(pair, name, why, notes)).map(|why| (name.to_owned(), why)));
        let not_whole = doubt.filter(|_| !pair.turns).map(|why| format!("not whole: {why}"));
        metrics.retain(|metric| asked(&request.metrics, metric));
        let of_metric = |metric: &String| {
            let run = |(document, record): (usize, &&Record)| {
                let arm = pair.arm(record, name)?;
                let values: Vec<f64> = paired::counting(arm, metric).map(|(_, value)| value).collect();
                let base = reference.and_then(|base| record.arm(base));
                let pairs = base.map_or(Vec::new(), |base| paired::pairs(arm, base, metric));
                (!values.is_empty()).then_some(Run { document, started: record.started_unix, pairs, values })
            };
            let sides: Both<Vec<Run>> =
                pair.sides.each_ref().map(|side| side.iter().enumerate().filter_map(run).collect());
            let one_sided = |at: usize| format!("one-sided: {} has no rounds of it", SIDES[at]);
            let doubt = sides.iter().position(Vec::is_empty).map(one_sided).or_else(|| not_whole.clone());
            Sample { arm: name.to_owned(), metric: metric.clone(), sides, doubt }
        };
        let of_arm: Vec<Sample> = metrics.into_par_iter().map(of_metric).collect();
        found.extend(of_arm.into_iter().filter(|one| one.sides.iter().any(|side| !side.is_empty())));
    }
    found
}

/// Says with which option turns have the same arms on both sides.
fn alike(pair: &Pair<'_>) -> String {
    let is_shared = |arm: &&Arm| arm.is_strategy() && pair.all().all(|turn| turn.arm(&arm.name).is_some());
    let shared = pair.all().take(1).flat_map(|turn| &turn.arms).filter(is_shared);
    let names: Vec<&str> = shared.map(|arm| arm.name.as_str()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; both have {}: give both sides --strategy of those", names.join(", "))
    }
}

/// Says how many pairs an arm of turns lacks, as it is not whole in one; returns what it says if these are more than few.
fn left_out(pair: &Pair<'_>, name: &str, why: &str, notes: &mut Vec<String>) -> Option<String> {
    let bad = |turn: &&Record| {
        let whole = turn.arm(name)?.rounds.complete.iter().filter(|complete| **complete).count();
        // Where no round is to blame all are.
        let bad = if whole < ROUNDS { ROUNDS - whole } else { ROUNDS };
        pair.arm(turn, name).is_none().then_some(bad)
    };
    let [base, new] = &pair.sides;
    let of_pair = |(base, new)| Some(bad(base).into_iter().chain(bad(new)).sum()).filter(|bad| *bad > 0);
    let out: Vec<usize> = base.iter().zip(new).filter_map(of_pair).collect();
    let note = format!("{} of {} pairs are left out: {why}", out.len(), base.len());
    notes.push(format!("{name}: {note}"));
    (!are_few(out.iter().sum(), 2 * ROUNDS * base.len())).then_some(note)
}

/// Returns whether a name is asked for by a list, which is empty for all.
pub(crate) fn asked(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}
