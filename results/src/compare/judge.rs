//! The verdict on each row of a comparison.

use rayon::prelude::*;
use serde::Serialize;

use super::rules::Limits;
use super::spec::CompareSpec;
use super::{sample, unlike};
use crate::document::Record;
use crate::error::{Error, Exit};
use crate::paired::Statistic;
use crate::stats::bootstrap::{self, Interval};
use crate::stats::permutation::{self, smallest_p};
use crate::stats::{cliffs_delta, holm, median};

/// The schema of a comparison's JSON.
pub const SCHEMA: &str = "vpmu-compare/1";

/// What may be said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Slower: significant and strong.
    Regression,
    /// Faster: significant and strong.
    Improvement,
    /// A slow-down of the strength asked for can be excluded.
    NoChange,
    /// Too few rounds for any difference to be significant.
    TooFew,
    /// Not significant, but a slow-down of the strength asked for cannot be excluded.
    TooNoisy,
    /// One side has no figures.
    OneSided,
    /// Shown, and left out of the judgement by the thresholds file.
    ReportOnly,
}

/// One side of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Median over rounds (or runs) of the statistic, ns.
    pub median_ns: f64,
    /// Its 95 % confidence interval, ns.
    pub interval_ns: Option<Interval>,
    /// Rounds (or runs).
    pub n: usize,
}

/// One arm and metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The arm.
    pub arm: String,
    /// The metric, such as `nmi_handler_ns`.
    pub metric: String,
    /// BASE.
    pub base: Option<Level>,
    /// NEW.
    pub new: Option<Level>,
    /// Relative change of the median: 0.1 is 10 % slower.
    pub change: Option<f64>,
    /// Its 95 % confidence interval.
    pub change_interval: Option<Interval>,
    /// What the change is below with 95 % confidence, one-sided.
    pub change_below: Option<f64>,
    /// p value of the permutation test, two-sided.
    pub p: Option<f64>,
    /// The same, adjusted by Holm's method over the rows that are judged.
    pub p_adjusted: Option<f64>,
    /// Whether every permutation was counted.
    pub exact: bool,
    /// Effect size: Cliff's delta, −1 to 1; positive: NEW is slower.
    pub cliffs_delta: Option<f64>,
    /// What was asked of this metric.
    pub limits: Limits,
    /// What may be said.
    pub verdict: Verdict,
    /// Why there is no verdict; empty where there is one.
    pub why: String,
}

/// What is compared with what: documents of one experiment with the same parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Experiment and parameters, for people.
    pub label: String,
    /// What a value stands for: "round" or "run".
    pub unit: &'static str,
    /// Documents of BASE and NEW.
    pub documents: [usize; 2],
    /// The rows, arms in the order of the documents.
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
    /// Seed of what is drawn.
    pub seed: u64,
    /// How hosts or builds differ.
    pub unlike: Vec<String>,
    /// Whether they may.
    pub unlike_allowed: bool,
    /// What is missing or partial.
    pub notes: Vec<String>,
    /// What was compared.
    pub groups: Vec<Group>,
    /// The exit code.
    pub exit: u8,
    /// The verdict in a sentence.
    pub verdict: String,
}

impl Comparison {
    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.exit {
            0 => Exit::Done,
            1 => Exit::Regression,
            _ => Exit::Inconclusive,
        }
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

fn side(source: &str, records: &[Record]) -> Side {
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
    let mut notes = Vec::new();
    let pairs = sample::pairs(base, new, &mut notes)?;
    let mut samples = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        let found = sample::samples(pair, request, &mut notes);
        samples.extend(found.into_iter().map(|sample| (index, sample)));
    }
    sample::check_asked(&samples, request)?;
    let rows: Vec<(usize, Row)> = (0_u64..)
        .zip(&samples)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|(number, (group, sample))| (*group, row(sample, request, request.seed.wrapping_add(number))))
        .collect();
    let rows = judge(rows);
    let mut groups: Vec<Group> = pairs
        .iter()
        .map(|pair| Group {
            label: pair.label.clone(),
            unit: pair.unit(),
            documents: [pair.base.len(), pair.new.len()],
            rows: Vec::new(),
        })
        .collect();
    for (group, row) in rows {
        groups[group].rows.push(row);
    }
    let mut unlike = unlike::differences(&base.1.iter().chain(new.1).collect::<Vec<_>>());
    unlike.sort();
    let mut comparison = Comparison {
        schema: SCHEMA,
        base: side(base.0, base.1),
        new: side(new.0, new.1),
        statistic: request.statistic,
        seed: request.seed,
        unlike,
        unlike_allowed: request.allow_unlike_hosts,
        notes,
        groups,
        exit: 0,
        verdict: String::new(),
    };
    (comparison.exit, comparison.verdict) = conclude(&comparison);
    Ok(comparison)
}

fn row(sample: &sample::Sample, request: &CompareSpec, seed: u64) -> Row {
    let (base, new) = (&sample.base[..], &sample.new[..]);
    let intervals = bootstrap::medians(base, new, request.resamples, seed);
    let level = |values: &[f64], interval: Option<Interval>| {
        Some(Level { median_ns: median(values)?, interval_ns: interval, n: values.len() })
    };
    let (a, b) = (level(base, intervals.map(|all| all.base)), level(new, intervals.map(|all| all.new)));
    let change =
        a.as_ref().zip(b.as_ref()).filter(|(a, _)| a.median_ns > 0.0).map(|(a, b)| b.median_ns / a.median_ns - 1.0);
    let test = permutation::test(base, new, request.resamples, seed);
    Row {
        arm: sample.arm.clone(),
        metric: sample.metric.clone(),
        change,
        change_interval: intervals.map(|all| Interval { low: all.ratio.low - 1.0, high: all.ratio.high - 1.0 }),
        change_below: intervals.map(|all| all.ratio_below - 1.0),
        p: test.map(|test| test.p),
        p_adjusted: None,
        exact: test.is_some_and(|test| test.exact),
        cliffs_delta: cliffs_delta(base, new),
        limits: request.rules.limits(&sample.metric),
        verdict: Verdict::OneSided,
        why: match (&a, &b) {
            (None, _) => "BASE has no rounds of it".to_owned(),
            (_, None) => "NEW has no rounds of it".to_owned(),
            _ => String::new(),
        },
        base: a,
        new: b,
    }
}

/// Adjusts the p values of the rows that are judged, and judges them.
fn judge(mut rows: Vec<(usize, Row)>) -> Vec<(usize, Row)> {
    let judged: Vec<usize> =
        (0..rows.len()).filter(|&i| rows[i].1.p.is_some() && !rows[i].1.limits.report_only).collect();
    let p: Vec<f64> = judged.iter().filter_map(|&i| rows[i].1.p).collect();
    for (&i, adjusted) in judged.iter().zip(holm(&p)) {
        let row = &mut rows[i].1;
        row.p_adjusted = Some(adjusted);
        (row.verdict, row.why) = verdict(row, adjusted, judged.len());
    }
    for (_, row) in rows.iter_mut().filter(|(_, row)| row.limits.report_only) {
        row.verdict = Verdict::ReportOnly;
    }
    rows
}

fn verdict(row: &Row, p: f64, family: usize) -> (Verdict, String) {
    let (Some(base), Some(new), Some(change)) = (&row.base, &row.new, row.change) else {
        return (Verdict::OneSided, "there is no ratio: BASE's median is 0".to_owned());
    };
    let Limits { p: level, least_change_ns, .. } = row.limits;
    let strength = row.limits.strength.max(least_change_ns / base.median_ns);
    if smallest_p(base.n, new.n) * family as f64 >= level {
        let why = format!(
            "{} and {} rounds cannot give an adjusted p below {level}, whatever they hold: measure more rounds",
            base.n, new.n
        );
        return (Verdict::TooFew, why);
    }
    if p < level && change.abs() >= strength {
        return (if change > 0.0 { Verdict::Regression } else { Verdict::Improvement }, String::new());
    }
    match row.change_below {
        Some(below) if below < strength => (Verdict::NoChange, String::new()),
        Some(below) => {
            let (high, asked) = (below * 100.0, strength * 100.0);
            (Verdict::TooNoisy, format!("it may be up to {high:.1} % slower, and {asked:.1} % was asked about"))
        }
        None => (Verdict::TooNoisy, "there is no confidence interval".to_owned()),
    }
}

fn conclude(comparison: &Comparison) -> (u8, String) {
    let count = |wanted: &[Verdict]| comparison.rows().filter(|row| wanted.contains(&row.verdict)).count();
    let slower = count(&[Verdict::Regression]);
    let faster = count(&[Verdict::Improvement]);
    let same = count(&[Verdict::NoChange]);
    let open = count(&[Verdict::TooFew, Verdict::TooNoisy, Verdict::OneSided]);
    let tally = format!("{slower} slower, {faster} faster, {same} unchanged, {open} open");
    if !comparison.unlike.is_empty() && !comparison.unlike_allowed {
        return (
            3,
            format!("inconclusive: hosts or builds differ ({tally}); --ignore-host-differences judges nevertheless"),
        );
    }
    if slower > 0 {
        return (1, format!("regression: {tally}"));
    }
    let missing = comparison.notes.iter().any(|note| note.starts_with(sample::ONLY_IN));
    if open > 0 || missing || slower + faster + same == 0 {
        return (3, format!("inconclusive: {tally}"));
    }
    (0, format!("no regression: {tally}"))
}
