//! The verdict on a comparison: its rows, and what keeps "no regression" from being said.

use std::collections::BTreeSet;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::change::{self, Change};
use super::group::{self, MIN_RUNS, Pair};
use super::row::{GEOMEAN, Over, Question, Row, SideLevel, judge};
use super::sample::{self, CompareSpec, Sample, asked};
use super::{counts, facts};
use crate::document::{Arm, Record};
use crate::error::{Error, Exit};
use crate::paired;
use crate::table::layout;
use crate::table::ranking::by_reason;
use crate::verdict::{Tally, Verdict};

/// Why an arm has no ratio.
const NO_RATIO: &str = "no round has a ratio to the arm it is divided by: one of the two is 0 ns, or they share none";

/// Documents that are compared: of one experiment with the same parameters.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Group {
    /// Experiment and parameters, for people.
    pub label: String,
    /// Unit of a value: "round" or "run".
    pub unit: &'static str,
    /// Documents of BASE and NEW.
    pub documents: [usize; 2],
    /// The arm that the others are divided by.
    pub reference: String,
    /// The rows: arms in the order of the documents, then all arms together.
    pub rows: Vec<Row>,
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// BASE.
    pub base: Side,
    /// NEW.
    pub new: Side,
    /// Differences of hosts or builds.
    pub unlike: Vec<String>,
    /// Missing or partial figures.
    pub notes: Vec<String>,
    /// Groups that were compared.
    pub groups: Vec<Group>,
    /// The rows that were judged.
    pub answer: Vec<Row>,
    /// The exit code.
    pub exit: u8,
    /// The verdict in a sentence.
    pub verdict: String,
}

impl Comparison {
    /// Keeps "no regression" from being said.
    pub fn doubt(&mut self, why: &str) {
        if self.exit() != Exit::Regression {
            let said = self.verdict.split_once(": ").map_or("", |(_, said)| said);
            (self.exit, self.verdict) = (Exit::Inconclusive.code(), format!("inconclusive: {why}; {said}"));
        }
    }

    /// Concludes from rows that are judged. `missing` is what keeps "no regression" from being said.
    pub fn of(
        [base, new]: [Side; 2],
        groups: Vec<Group>,
        (unlike, unlike_hosts_allowed): (Vec<String>, bool),
        notes: Vec<String>,
        missing: Option<&str>,
    ) -> Self {
        let rows: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
        let (exit, verdict) = if unlike.is_empty() || unlike_hosts_allowed {
            let is_open = |row: &&&Row| row.question == Question::AllArms && row.verdict == Verdict::Inconclusive;
            let moved = rows.iter().filter(is_open).find_map(|row| row.change.filter(|_| row.log.is_none()));
            let moved = moved.map(|by| format!("{GEOMEAN}: moved by {}, not judged", layout::change(by, None)));
            conclude(&rows, missing.or(moved.as_deref()))
        } else {
            let times = rows.iter().filter(|row| row.question != Question::Counts);
            let tally = Tally::of(times.map(|row| row.verdict));
            let (before, remedy) = match missing {
                Some(why) => (format!("{why}; "), ""),
                None => (String::new(), "; --ignore-host-differences compares anyway"),
            };
            (Exit::Inconclusive, format!("inconclusive: {before}hosts or builds differ ({tally}){remedy}"))
        };
        let (judged, exit) = (rows.into_iter().filter(|row| row.verdict != Verdict::NotJudged), exit.code());
        let answer = judged.cloned().collect();
        Self { base, new, unlike, notes, groups, answer, exit, verdict }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        Exit::from_code(self.exit)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

fn side((source, records): (&str, &[&Record])) -> Side {
    let mut revisions: Vec<String> = records.iter().map(|record| record.tool.git_revision.clone()).collect();
    revisions.dedup();
    let host = records.first().map(|record| record.host.class.clone()).unwrap_or_default();
    let files = records.iter().map(|record| record.path.display().to_string()).collect();
    Side { source: source.to_owned(), revisions, host, files }
}

/// Compares `new` with `base`, each with the name it was given by.
///
/// # Errors
/// Exit 2: they measured different things, or an arm or metric that was asked for is in neither. Exit 3: all that NEW has of what BASE
/// measured are runs of BASE.
pub fn compare(base: (&str, &[Record]), new: (&str, &[Record]), request: &CompareSpec) -> Result<Comparison, Error> {
    // A folder often has the baseline's own run, too.
    let (own, others) = group::of_base(base.1, new.1);
    let sides = [base.1.iter().collect::<Vec<_>>(), others];
    let (mut notes, mut missing) = (Vec::new(), Vec::new());
    let pairs = group::pairs([base.0, new.0], &sides, request.turns, (&mut notes, &mut missing)).map_err(|error| {
        let why = format!("every run of {} that can be compared is also in {}", new.0, base.0);
        let same = Error::new(Exit::Inconclusive, "BASE and NEW hold the same run", why, "give another run");
        if own.is_empty() { error } else { same }
    })?;
    request.check(&pairs.iter().flat_map(Pair::all).collect::<Vec<_>>())?;
    let left_out = |record: &Record| format!("{}: left out of NEW, as it is a run of BASE", record.path.display());
    notes.extend(own.into_iter().map(left_out));
    let (mut groups, mut unlike) = (Vec::new(), BTreeSet::new());
    for pair in &pairs {
        let differ = facts::differences(&pair.sides[0], &pair.sides[1]);
        notes.extend(facts::conditions(&pair.sides, &["pin", "quick"]));
        notes.extend(facts::definitions(&pair.sides[0], &pair.sides[1]));
        let samples = sample::samples(pair, request, (&mut notes, &mut missing));
        let mut rows = arms_of(pair, &samples, request, &mut notes);
        // Hosts that are allowed to differ do: that all arms moved says nothing.
        if pair.turns || differ.is_empty() || !request.unlike_hosts_allowed {
            let metrics: BTreeSet<&String> = samples.iter().map(|sample| &sample.metric).collect();
            for metric in metrics {
                let arms: Vec<_> = samples.iter().filter(|one| one.metric == *metric && one.doubt.is_none()).collect();
                rows.extend(of_times(GEOMEAN, &arms, request, pair).filter(|_| !pair.turns || arms.len() > 1));
            }
        }
        unlike.extend(differ);
        let other_counts = facts::conditions(&pair.sides, &counts::CONDITIONS);
        if other_counts.is_empty() && (pair.turns || request.metrics.is_empty()) {
            let mut whole: Vec<&String> =
                samples.iter().filter(|one| one.doubt.is_none()).map(|one| &one.arm).collect();
            whole.dedup();
            rows.extend(whole.into_iter().flat_map(|arm| counts::rows(arm, pair, request.limits)));
        }
        notes.extend(other_counts.into_iter().map(|line| line + ": counts are not compared"));
        groups.push(Group {
            label: pair.label.clone(),
            unit: if pair.sides.iter().all(|side| side.len() >= MIN_RUNS) { "run" } else { "round" },
            documents: pair.sides.each_ref().map(Vec::len),
            reference: pair.reference.cloned().unwrap_or_default(),
            rows,
        });
    }
    let over = if pairs.iter().all(Pair::simulated) { Over::Rounds } else { Over::Runs };
    judge(groups.iter_mut().flat_map(|group| &mut group.rows), over);
    // Each pair of groups may have the same to say.
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    let sides = [side((base.0, &sides[0])), side((new.0, &sides[1]))];
    let unlike = (unlike.into_iter().collect(), request.unlike_hosts_allowed);
    let missing = Some(by_reason(missing, true).join("; ")).filter(|missing| !missing.is_empty());
    Ok(Comparison::of(sides, groups, unlike, notes, missing.as_deref()))
}

/// Compares the arms of one result that are asked for with the first of them.
///
/// # Errors
/// Exit 2: fewer than two arms, or an arm or metric that is not there.
pub fn arms(name: &str, record: &Record, request: &CompareSpec) -> Result<Comparison, Error> {
    request.check(&[record])?;
    let all: Vec<&Arm> = request.arms.iter().filter_map(|name| record.arm(name)).collect();
    if all.len() < 2 || request.arms.iter().collect::<BTreeSet<_>>().len() < all.len() {
        return Err(Error::usage(
            "--arms needs two arms or more, each once",
            "",
            "give those to compare with the first",
        ));
    }
    let (mut rows, first) = (Vec::new(), all[0]);
    for arm in &all[1..] {
        let both = first.metrics.keys().filter(|key| arm.metrics.contains_key(*key) && asked(&request.metrics, key));
        rows.extend(both.map(|metric| within_row(record, first, arm, metric, request)));
    }
    judge(&mut rows, Over::Rounds);
    let (label, reference) = (group::group_label(record), first.name.clone());
    let group = Group { label, unit: "round", documents: [1, 1], reference, rows };
    let of = |names: &[String]| side((&format!("{} of {name}", names.join(", ")), &[record]));
    let sides = [of(&request.arms[..1]), of(&request.arms[1..])];
    Ok(Comparison::of(sides, vec![group], (Vec::new(), true), Vec::new(), None))
}

/// The rows of arms that are divided by the reference.
fn arms_of(pair: &Pair<'_>, samples: &[Sample], request: &CompareSpec, notes: &mut Vec<String>) -> Vec<Row> {
    let reference = pair.reference.map_or("", String::as_str);
    let others = samples.par_iter().filter(|sample| sample.arm != reference);
    let mut rows: Vec<Row> = others.map(|sample| of_arm(sample, request, pair)).collect();
    let has = |key: &str| pair.all().filter_map(|one| one.arm(reference)).any(|arm| arm.metrics.contains_key(key));
    for row in rows.iter_mut().filter(|row| !row.limits.report_only && !pair.turns && !has(&row.metric)) {
        row.limits.report_only = true;
        notes.push(format!("{} {}: not judged: {reference} has none to divide it by", row.arm, row.metric));
    }
    rows
}

/// The row of an arm.
fn of_arm(sample: &Sample, request: &CompareSpec, pair: &Pair<'_>) -> Row {
    let times = pair.turns.then(|| of_times(&sample.arm, &[sample], request, pair)).flatten();
    if let Some(row) = times {
        return row.doubted(sample.doubt.clone());
    }
    let sides = sample.sides.each_ref().map(|runs| {
        let pairs: Vec<paired::Pair> = runs.iter().flat_map(|run| run.pairs.iter().copied()).collect();
        let n = runs.iter().map(|run| run.values.len()).sum();
        SideLevel { value: paired::centre(&pairs).map(f64::exp), n, runs: runs.len() }
    });
    let has_ratio = sides.iter().all(|side| side.value.is_some());
    let row = Row::new(Question::OneArm, (&sample.arm, &sample.metric), request.limits(&sample.metric), sides);
    let row = if has_ratio { row } else { Row { why: NO_RATIO.to_owned(), ..row } };
    row.doubted(sample.doubt.clone()).with(change::of_arm(&sample.sides, pair))
}

/// The row of the times of these arms together; `None` if there is none.
fn of_times(name: &str, arms: &[&Sample], request: &CompareSpec, pair: &Pair<'_>) -> Option<Row> {
    let (metric, question) = (&arms.first()?.metric, if pair.turns { Question::Turns } else { Question::AllArms });
    let side = |at: usize| {
        let runs = arms.iter().map(|arm| arm.sides[at].len()).max()?;
        let n = arms.iter().flat_map(|arm| &arm.sides[at]).map(|run| run.values.len()).sum::<usize>() / arms.len();
        Some(SideLevel { value: Some(0.0), n, runs })
    };
    let row = Row::new(question, (name, metric), request.limits(metric), [side(0)?, side(1)?]);
    Some(match change::of_all(arms, pair) {
        Some((found, true)) => row.with(Some(found)),
        Some((found, false)) => row.shows(found.base, found.log.value),
        None => row,
    })
}

/// Returns the exit of rows, and the verdict in a sentence. `doubt` is what keeps "no regression" from being said.
fn conclude(rows: &[&Row], doubt: Option<&str>) -> (Exit, String) {
    let (counts, times): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.question == Question::Counts);
    let tally = Tally::of(times.iter().map(|row| row.verdict));
    let one_sided = counts.iter().any(|row| row.verdict == Verdict::Inconclusive);
    let found = tally.conclude(doubt.or(one_sided.then_some("counts are on one side only")));
    let is_faster = times.iter().any(|row| row.verdict == Verdict::Faster);
    match more_work(&counts) {
        Some(more) if found.0 == Exit::Done && !is_faster => {
            (Exit::Regression, format!("regression: same time, {more}"))
        }
        Some(more) => (Exit::Regression, format!("regression: {more}; times: {tally}")),
        None => found,
    }
}

/// Says which counts grew most: all operations of an arm before one kind of them, beside which stands their sum.
fn more_work(counts: &[&Row]) -> Option<String> {
    let size = |row: &&&Row| (row.metric == counts::OPERATIONS, row.change.unwrap_or(f64::INFINITY));
    let grew = counts.iter().filter(|row| row.verdict == Verdict::Slower);
    let row = grew.max_by(|a, b| size(a).partial_cmp(&size(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let by = row.change.map_or_else(String::new, |share| format!("{} % ", layout::percent(share)));
    let what = if row.metric == counts::OPERATIONS { "host operations" } else { &row.metric };
    let sum = |all: &&&Row| all.arm == row.arm && all.metric == counts::OPERATIONS && row.metric != all.metric;
    let all = counts.iter().find(sum);
    let all = all.map_or_else(String::new, |all| format!("; all operations {}", all.sides().join(" → ")));
    let at = if row.exact { "" } else { " at BASE's exits" };
    Some(format!("{by}more {what} ({}: {} of a PMI{at}{all})", row.arm, row.sides().join(" → ")))
}

/// The row of `arm` against `base` of one run.
fn within_row(record: &Record, base: &Arm, arm: &Arm, metric: &str, request: &CompareSpec) -> Row {
    let found = paired::over_runs(record, arm, base, metric);
    let side = |arm: &Arm, value| SideLevel { value, n: paired::counting(arm, metric).count(), runs: 1 };
    let doubt = facts::doubt_of(record, base).or_else(|| facts::doubt_of(record, arm));
    let change = found.and_then(|found| Some(Change { log: found.log?, base: 0.0, blocks: 0 }));
    let sides = [side(base, Some(1.0)), side(arm, found.map(|found| found.ratio))];
    let row = Row::new(Question::OneArm, (&arm.name, metric), request.limits(metric), sides);
    row.doubted(doubt.map(|why| format!("not whole: {why}"))).with(change)
}
