//! The verdict on each row of a comparison.

use std::collections::BTreeSet;

use rayon::prelude::*;
use serde::Serialize;

use super::change::{self, Change, Order};
use super::row::{Question, Row, SideLevel, judge};
use super::rules::CompareSpec;
use super::sample::{self, Run, Sample, Sides};
use super::{comparable, counts};
use crate::document::{Any, Arm, Record};
use crate::error::{Error, Exit};
use crate::paired::{self, Statistic};
use crate::stats::median;
use crate::table::layout;
use crate::verdict::{Tally, Verdict};

/// Begin of the note that both sides hold one run.
const SAME: &str = "the same run";

/// The arm that ratios within a factor are of.
const FLOOR: &str = "floor";

/// The schema of a comparison's JSON.
pub const SCHEMA: &str = "vpmu-compare/2";

/// Documents that are compared: of one experiment with the same parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Experiment and parameters, for people.
    pub label: String,
    /// Unit of a value: "round" or "run".
    pub unit: &'static str,
    /// Documents of BASE and NEW.
    pub documents: [usize; 2],
    /// Order in which they were taken; `None` of one document a side.
    pub order: Option<Order>,
    /// The arm that the others are divided by.
    pub reference: String,
    /// The rows: arms in the order of the documents, then all arms together.
    pub rows: Vec<Row>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// As given on the command line.
    pub source: String,
    /// Revisions of the tool that measured.
    pub revisions: Vec<String>,
    /// Host class of the first document.
    pub host: String,
    /// The files.
    pub files: Vec<String>,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// BASE.
    pub base: Side,
    /// NEW.
    pub new: Side,
    /// The quantile of a round that is compared.
    pub statistic: Statistic,
    /// Differences of hosts or builds.
    pub unlike: Vec<String>,
    /// Differences of hosts are allowed.
    pub unlike_hosts_allowed: bool,
    /// Missing or partial figures.
    pub notes: Vec<String>,
    /// Groups that were compared.
    pub groups: Vec<Group>,
    /// The exit code.
    pub exit: u8,
    /// The verdict in a sentence.
    pub verdict: String,
}

impl Comparison {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

fn side(source: &str, records: &[&Record]) -> Side {
    let mut revisions: Vec<String> = records.iter().map(|record| record.tool.git_revision.clone()).collect();
    revisions.dedup();
    Side {
        source: source.to_owned(),
        revisions,
        host: records.first().map(|record| record.host.class.clone()).unwrap_or_default(),
        files: records.iter().map(|record| record.path.display().to_string()).collect(),
    }
}

/// Compares `new` with `base`, each with the name it was given by.
///
/// # Errors
/// Exit 2: they measured different things, or an arm or metric that was asked for is in neither.
pub fn compare(base: (&str, &[Record]), new: (&str, &[Record]), request: &CompareSpec) -> Result<Comparison, Error> {
    let (mut notes, mut same_runs) = (Vec::new(), Vec::new());
    let of_base = comparable::Runs::new(base.1);
    let found: Vec<(&Record, Option<&Record>)> =
        new.1.iter().map(|record| (record, of_base.same_run(record))).collect();
    let others: Vec<&Record> = found.iter().filter(|(_, same)| same.is_none()).map(|(record, _)| *record).collect();
    // A folder often has the baseline's own run, too; without it there must be something to compare.
    let left_out = others.len() < new.1.len() && {
        let kinds: Vec<_> = base.1.iter().map(sample::group_key).collect();
        others.iter().any(|record| kinds.contains(&sample::group_key(record)))
    };
    for (record, same) in found {
        let Some(same) = same else { continue };
        let path = record.path.display();
        if left_out {
            same_runs.push(format!("left out of NEW, as it is a run of BASE: {path}"));
        } else {
            same_runs.push(format!("{SAME}: {} and {path}", same.path.display()));
        }
    }
    let base = (base.0, base.1.iter().collect::<Vec<_>>());
    let new = (new.0, if left_out { others } else { new.1.iter().collect() });
    let pairs = sample::pairs((base.0, &base.1), (new.0, &new.1), &mut notes)?;
    notes.extend(same_runs);
    let mut samples = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        notes.extend(comparable::conditions(&pair.base, &pair.new));
        let found = sample::samples(pair, request, &mut notes);
        notes.extend(counts::unlike(&pair.base, &pair.new));
        samples.extend(found.into_iter().map(|sample| (index, sample)));
    }
    sample::check_asked(&samples, &pairs, request)?;
    let exact = pairs.iter().all(sample::Pair::simulated);
    let references: Vec<String> = pairs.iter().map(|pair| pair.reference().unwrap_or_default()).collect();
    let mut rows: Vec<(usize, Row)> = samples
        .par_iter()
        .filter(|(_, sample)| !sample.is_reference)
        .map(|(group, sample)| {
            let times: Vec<f64> = sample.base.iter().chain(&sample.new).flat_map(|run| run.zeros.clone()).collect();
            let zero = no_ratio(&references[*group], times.iter());
            (*group, of_arm(sample, zero, request, pairs[*group].simulated()))
        })
        .collect();
    for (group, pair) in pairs.iter().enumerate() {
        let own: Vec<&Sample> = samples.iter().filter(|(of, _)| *of == group).map(|(_, sample)| sample).collect();
        let mut metrics: Vec<&String> = own.iter().map(|sample| &sample.metric).collect();
        metrics.sort();
        metrics.dedup();
        rows.extend(
            metrics.iter().filter_map(|metric| Some((group, of_all(&own, metric, request, pair.simulated())?))),
        );
        let mut whole: Vec<&String> =
            own.iter().filter(|sample| sample.not_whole.is_none()).map(|sample| &sample.arm).collect();
        whole.dedup();
        if counts::unlike(&pair.base, &pair.new).is_none() && request.metrics.is_empty() {
            let of_arm = |arm: &&String| counts::rows(arm, &pair.base, &pair.new, request);
            rows.extend(whole.iter().flat_map(of_arm).map(|row| (group, row)));
        }
    }
    let rows = judge(rows, exact, false);
    let starts = |side: &[&Record]| side.iter().map(|record| record.started_unix).collect::<Vec<_>>();
    let mut groups: Vec<Group> = pairs
        .iter()
        .zip(references)
        .map(|(pair, reference)| Group {
            label: pair.label.clone(),
            unit: pair.unit(),
            documents: [pair.base.len(), pair.new.len()],
            order: Order::of(&starts(&pair.base), &starts(&pair.new)),
            reference,
            rows: Vec::new(),
        })
        .collect();
    for (group, row) in rows {
        groups[group].rows.push(row);
    }
    // Each pair of groups may have the same to say.
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    let mut unlike: Vec<String> =
        pairs.iter().flat_map(|pair| comparable::differences(&pair.base, &pair.new)).collect();
    unlike.sort();
    unlike.dedup();
    let mut comparison = Comparison {
        schema: SCHEMA,
        base: side(base.0, &base.1),
        new: side(new.0, &new.1),
        statistic: request.statistic,
        unlike,
        unlike_hosts_allowed: request.unlike_hosts_allowed,
        notes,
        groups,
        exit: 0,
        verdict: String::new(),
    };
    (comparison.exit, comparison.verdict) = of_comparison(&comparison);
    Ok(comparison)
}

/// Compares ratios to the floor alone, within `factor`: the one comparison that unlike hosts allow. It takes no statistics: it asks
/// whether a ratio is off by more than a factor, as a gate for machines whose times mean nothing.
///
/// # Errors
/// Returns the errors of [`compare`].
pub fn ratios(
    base: (&str, &[Record]),
    new: (&str, &[Record]),
    factor: f64,
    request: &CompareSpec,
) -> Result<Comparison, Error> {
    let mut found = compare(base, new, &CompareSpec { unlike_hosts_allowed: true, ..request.clone() })?;
    let mut missing = found.notes.iter().any(|note| note.starts_with(sample::ONLY_IN));
    for group in &mut found.groups {
        missing |= group.reference != FLOOR;
        group.rows.retain(|row| row.question == Question::OneArm && !row.limits.report_only);
        for row in &mut group.rows {
            let ratios = [&row.base, &row.new].map(|side| side.as_ref().and_then(|level| level.ratio));
            (row.verdict, row.why) = match ratios {
                [Some(base), Some(new)] if new > base * factor => (Verdict::Slower, String::new()),
                [Some(_), Some(_)] => (Verdict::NoChange, String::new()),
                _ => (Verdict::Inconclusive, "a side has no ratio to the floor".to_owned()),
            };
            (row.change_interval, row.p_value, row.p_value_adjusted) = (None, None, None);
        }
    }
    let rows: Vec<&Row> = found.rows().collect();
    let (exit, words) = conclude(&rows, missing.then_some("an arm or the floor is on one side only"));
    let bad = rows.iter().filter(|row| row.verdict == Verdict::Slower).count();
    let above = format!("{bad} of {} ratios above {} × BASE's; {words}", rows.len(), layout::ratio(factor));
    (found.exit, found.verdict) = (exit.code(), above);
    Ok(found)
}

/// Compares arms of one result with the first of them.
///
/// # Errors
/// Exit 2: fewer than two arms, or an arm or metric that is not there.
pub fn arms(name: &str, record: &Record, arms: &[String], request: &CompareSpec) -> Result<Comparison, Error> {
    let measured = || record.arms.iter().filter(|arm| !arm.rounds.is_empty());
    let there = || measured().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ");
    let found: Result<Vec<_>, Error> = arms
        .iter()
        .map(|name| {
            measured().find(|arm| arm.name == *name).ok_or_else(|| {
                let why = record.arm(name).and_then(|arm| arm.not_available.as_deref()).unwrap_or_default();
                Error::usage(format!("no figures of arm {name}"), why, format!("there are {}", there()))
            })
        })
        .collect();
    let found = found?;
    let Some((first, others)) = found.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Err(Error::usage("--arms needs two arms or more", "", format!("there are {}", there())));
    };
    let mut rows = Vec::new();
    for arm in others {
        for metric in first.metrics.keys().filter(|metric| arm.metrics.contains_key(*metric)) {
            if request.metrics.is_empty() || request.metrics.iter().any(|asked| asked == metric) {
                rows.push((0, within_row(record, first, arm, metric, request)));
            }
        }
    }
    if rows.is_empty() {
        let there: Vec<&str> = first.metrics.keys().map(String::as_str).collect();
        return Err(Error::usage("no such metric in both arms", "", format!("there are {}", there.join(", "))));
    }
    let group = Group {
        label: sample::group_label(record),
        unit: "round",
        documents: [1, 1],
        order: None,
        reference: first.name.clone(),
        rows: judge(rows, false, true).into_iter().map(|(_, row)| row).collect(),
    };
    let records = &[record];
    let mut notes = Vec::new();
    for arm in std::iter::once(first).chain(others) {
        sample::note_short(&arm.name, name, &[*arm], &mut notes);
    }
    let mut comparison = Comparison {
        schema: SCHEMA,
        base: side(&format!("{} of {name}", first.name), records),
        new: side(&format!("{} of {name}", arms[1..].join(", ")), records),
        statistic: request.statistic,
        unlike: Vec::new(),
        unlike_hosts_allowed: true,
        notes,
        groups: vec![group],
        exit: 0,
        verdict: String::new(),
    };
    (comparison.exit, comparison.verdict) = of_comparison(&comparison);
    Ok(comparison)
}

fn level(runs: &[Run]) -> Option<SideLevel> {
    let values: Vec<f64> = runs.iter().flat_map(|run| run.values.iter().copied()).collect();
    let pairs: Vec<paired::Pair> = runs.iter().flat_map(|run| run.pairs.iter().copied()).collect();
    let ratio = paired::centre(&pairs).map(f64::exp);
    Some(SideLevel { median_ns: Some(median(&values)?), ratio, count: None, n: values.len(), runs: runs.len() })
}

/// Says that an arm is 0 ns in some rounds, which have no ratio.
fn no_ratio<'a>(arm: &str, times: impl Iterator<Item = &'a f64>) -> Option<String> {
    let rounds = times.filter(|ns| **ns <= 0.0).count();
    (rounds > 0).then(|| format!("{arm} is 0 ns in {}, which have no ratio", layout::plural(rounds, "round")))
}

/// Says the same of all runs of an arm.
fn of_zeros(sample: &Sample) -> Option<String> {
    no_ratio(&sample.arm, sample.base.iter().chain(&sample.new).flat_map(|run| &run.values))
}

/// The row of an arm; `zero` says that its reference arm is 0 ns.
fn of_arm(sample: &Sample, zero: Option<String>, request: &CompareSpec, simulated: bool) -> Row {
    let (base, new) = (level(&sample.base), level(&sample.new));
    let found = change::of_arm(&sample.base, &sample.new, simulated);
    let (whole, why) = match (&base, &new, &sample.not_whole) {
        (None, ..) => (false, "one-sided: BASE has no rounds of it".to_owned()),
        (_, None, _) => (false, "one-sided: NEW has no rounds of it".to_owned()),
        (.., Some(why)) => (false, format!("not whole: {why}")),
        _ => (true, zero.or_else(|| of_zeros(sample)).unwrap_or_else(few_rounds)),
    };
    let row = Row::blank(Question::OneArm, &sample.arm, &sample.metric, request.limits(&sample.metric));
    Row { base, new, why, whole, ..row }.with(found)
}

/// All arms together that both sides have whole; `None` if there is none.
fn of_all(samples: &[&Sample], metric: &str, request: &CompareSpec, simulated: bool) -> Option<Row> {
    let common = |sample: &&&Sample| {
        sample.metric == metric && !sample.base.is_empty() && !sample.new.is_empty() && sample.not_whole.is_none()
    };
    let arms: Vec<Sides<'_>> = samples.iter().filter(common).map(|one| (&one.base[..], &one.new[..])).collect();
    let side = |pick: for<'a> fn(&Sides<'a>) -> &'a [Run]| {
        let n = arms.iter().flat_map(pick).map(|run| run.values.len()).sum::<usize>() / arms.len();
        let runs = arms.iter().map(|both| pick(both).len()).max()?;
        Some(SideLevel { median_ns: None, ratio: None, count: None, n, runs })
    };
    if arms.is_empty() {
        return None;
    }
    let row = Row::blank(Question::AllArms, "all arms", metric, request.limits(metric));
    let why = samples.iter().filter(common).find_map(|sample| of_zeros(sample)).unwrap_or_else(few_rounds);
    let row = Row { base: side(|both| both.0), new: side(|both| both.1), why, ..row };
    Some(match change::of_all(&arms, simulated) {
        Some((sides, found)) => row.shows(sides).with(found),
        None => row,
    })
}

fn few_rounds() -> String {
    format!("too few rounds: an interval needs {} a side", paired::MIN_ROUNDS)
}

fn of_comparison(comparison: &Comparison) -> (u8, String) {
    let rows: Vec<&Row> = comparison.rows().collect();
    let tally = Tally::of(rows.iter().filter(|row| row.question != Question::Counts).map(|row| row.verdict));
    if comparison.notes.iter().any(|note| note.starts_with(SAME)) {
        return (
            3,
            format!("inconclusive: BASE and NEW hold the same run: every run of NEW is also in BASE ({tally})"),
        );
    }
    let is_of_arm = |note: &String| sample::ARM_ONLY_IN.iter().any(|begin| note.starts_with(begin));
    let missing = comparison.notes.iter().any(is_of_arm).then(|| "an arm is on one side only".to_owned());
    if !comparison.unlike.is_empty() && !comparison.unlike_hosts_allowed {
        let (before, remedy) = match missing {
            Some(one_sided) => (format!("{one_sided}; "), ""),
            None => (String::new(), "; --ignore-host-differences compares anyway"),
        };
        return (3, format!("inconclusive: {before}hosts or builds differ ({tally}){remedy}"));
    }
    let all = |row: &&&Row| row.question == Question::AllArms && row.verdict == Verdict::Inconclusive;
    let moved = rows.iter().filter(all).find_map(|row| row.change.filter(|_| row.found.is_none()));
    let moved = moved.map(|share| format!("all arms moved by {} and were not judged", layout::change(share, None)));
    let (exit, verdict) = conclude(&rows, missing.or(moved).as_deref());
    (exit.code(), verdict)
}

/// Returns the exit of rows, and the verdict in a sentence. `doubt` is what keeps "no regression" from being said.
pub fn conclude(rows: &[&Row], doubt: Option<&str>) -> (Exit, String) {
    let of = |of_counts: bool| rows.iter().filter(move |row| (row.question == Question::Counts) == of_counts);
    let tally = Tally::of(of(false).map(|row| row.verdict));
    if let Some(more) = more_work(of(true).copied().filter(|row| row.verdict == Verdict::Slower)) {
        let times = match tally {
            Tally { slower: 0, open: 0, .. } if doubt.is_none() => "same time, ".to_owned(),
            Tally { slower: 0, .. } => format!("times are open ({tally}); "),
            _ => format!("{tally}; "),
        };
        return (Exit::Regression, format!("regression: {times}{more}"));
    }
    let one_sided = of(true).any(|row| row.verdict == Verdict::Inconclusive);
    tally.conclude(doubt.or(one_sided.then_some("counts are on one side only")))
}

/// Says which counts grew most: all operations of an arm before one kind of them.
fn more_work<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let size = |row: &&Row| (row.metric == counts::OPERATIONS, row.change.unwrap_or(f64::INFINITY));
    let row = rows.max_by(|a, b| size(a).partial_cmp(&size(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let by = row.change.map_or_else(String::new, |share| format!("{} % ", layout::percent(share)));
    let what = if row.metric == counts::OPERATIONS { "host operations" } else { &row.metric };
    let [base, new] =
        [&row.base, &row.new].map(|side| side.as_ref().map_or_else(layout::dash, |side| side.text(&row.metric)));
    Some(format!("{by}more {what} ({}: {base} → {new} of a PMI)", row.arm))
}

/// The row of `arm` against `base` of one run.
fn within_row(record: &Record, base: &Arm<Any>, arm: &Arm<Any>, metric: &str, request: &CompareSpec) -> Row {
    let found = paired::over_runs(record, arm, base, metric, request.statistic);
    let times =
        |arm: &Arm<Any>| paired::counting(arm, metric, request.statistic).map(|(_, value)| value).collect::<Vec<f64>>();
    let level = |arm: &Arm<Any>, ratio: Option<f64>| {
        let values = times(arm);
        Some(SideLevel { median_ns: Some(median(&values)?), ratio, count: None, n: values.len(), runs: 1 })
    };
    let not_whole = comparable::of_record(record, base).or_else(|| comparable::of_record(record, arm));
    let whole = not_whole.is_none();
    let why = not_whole.map_or_else(
        || {
            let zero = [base, arm].into_iter().find_map(|one| no_ratio(&one.name, times(one).iter()));
            zero.unwrap_or_else(|| format!("too few rounds: an interval needs {}", paired::MIN_ROUNDS))
        },
        |why| format!("not whole: {why}"),
    );
    let change = found.and_then(|found| {
        let log = found.log?;
        Some(Change { log, sides: [0.0, log.value], fixed: found.between, blocks: 0 })
    });
    let row = Row::blank(Question::OneArm, &arm.name, metric, request.limits(metric));
    let (base, new) = (level(base, Some(1.0)), level(arm, found.map(|found| found.ratio)));
    Row { base, new, why, whole, ..row }.with(change)
}
