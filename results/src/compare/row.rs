//! A row of a comparison, and its verdict.

use serde::Serialize;

use super::change::Change;
use super::sample::MIN_RUNS;
use crate::metric;
use crate::stats::holm;
use crate::stats::interval::CONFIDENCE;
use crate::stats::interval::Interval;
use crate::stats::jackknife::{Estimate, known};
use crate::verdict::{Limits, Verdict};

/// Runs a side that show how runs of their own host differ.
const FEW: usize = 2;

/// Changes of all arms of few runs whose p value is below are not passed in silence.
const LITTLE_ROOM: f64 = 0.2;

/// Question of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Did one arm change against the reference arm?
    OneArm,
    /// Did the times of all arms change together?
    AllArms,
}

/// One side of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideLevel {
    /// Median over rounds of the statistic, ns; of all arms the trimmed mean of their logarithms.
    pub median_ns: f64,
    /// Its 95 % interval, ns.
    pub interval_ns: Option<Interval>,
    /// Ratio to the reference arm, in paired rounds.
    pub ratio: Option<f64>,
    /// Rounds.
    pub n: usize,
    /// Number of runs.
    pub runs: usize,
}

/// One arm and metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Question that the row answers.
    pub question: Question,
    /// The arm; "all arms".
    pub arm: String,
    /// The metric, such as `nmi_handler_ns`.
    pub metric: String,
    /// BASE.
    pub base: Option<SideLevel>,
    /// NEW.
    pub new: Option<SideLevel>,
    /// Relative change, of the ratio to the reference arm or of all times: 0.1 is 10 % slower.
    pub change: Option<f64>,
    /// Its 95 % confidence interval.
    pub change_interval: Option<Interval>,
    /// p value of "no change", two-sided.
    pub p_value: Option<f64>,
    /// The p value, adjusted by Holm's method over the rows that are judged.
    pub p_value_adjusted: Option<f64>,
    /// Blocks of neighbouring runs; 0: runs were not taken in turns, or are too few.
    pub blocks: usize,
    /// Limits for this metric.
    pub limits: Limits,
    /// Verdict on the change.
    pub verdict: Verdict,
    /// Why there is no verdict, and what would do; beside one, the doubt about its figures.
    pub why: String,
    /// Its figures may be judged: both sides have them, and they are whole.
    #[serde(skip)]
    pub(super) whole: bool,
    #[serde(skip)]
    pub(super) found: Option<Change>,
}

impl Row {
    /// Fills in what `found` says.
    pub(super) fn with(mut self, found: Option<Change>) -> Self {
        if let Some(change) = found {
            let Interval { low, high } = change.log.interval();
            self.change = Some(change.log.value.exp_m1());
            self.change_interval = Some(Interval { low: low.exp_m1(), high: high.exp_m1() });
            self.p_value = Some(change.log.p());
            self.blocks = change.blocks;
            // One definition for the sides and for what is between them.
            for (level, log) in [&mut self.base, &mut self.new].into_iter().zip(change.sides) {
                let Some(level) = level else { continue };
                match self.question {
                    Question::OneArm => level.ratio = Some(log.exp()),
                    Question::AllArms => level.median_ns = log.exp(),
                }
            }
            self.found = found;
        }
        self
    }

    /// Builds a row without figures.
    pub(super) fn blank(question: Question, arm: &str, metric: &str, limits: Limits) -> Self {
        Self {
            question,
            arm: arm.to_owned(),
            metric: metric.to_owned(),
            base: None,
            new: None,
            change: None,
            change_interval: None,
            p_value: None,
            p_value_adjusted: None,
            blocks: 0,
            limits,
            verdict: Verdict::Inconclusive,
            why: String::new(),
            whole: true,
            found: None,
        }
    }

    /// Returns the runs of the side that has fewer.
    fn runs(&self) -> usize {
        [&self.base, &self.new].into_iter().flatten().map(|level| level.runs).min().unwrap_or(0)
    }

    pub(super) fn few_runs(&self) -> bool {
        self.runs() < MIN_RUNS
    }
}

/// Adjusts the p values of the rows that are judged, and judges them. `exact`: runs are simulated, none differs from another;
/// `one_run`: rows are of arms of one run.
pub(super) fn judge(mut rows: Vec<(usize, Row)>, exact: bool, one_run: bool) -> Vec<(usize, Row)> {
    let is_judged = |row: &Row| row.p_value.is_some() && !row.limits.report_only;
    let judged: Vec<usize> = (0..rows.len()).filter(|&i| is_judged(&rows[i].1)).collect();
    let p: Vec<f64> = judged.iter().filter_map(|&i| rows[i].1.p_value).collect();
    for (&i, adjusted) in judged.iter().zip(holm(&p)) {
        let row = &mut rows[i].1;
        row.p_value_adjusted = Some(adjusted);
        let (found, why) = verdict(row, adjusted, exact, one_run, p.len());
        if row.whole {
            (row.verdict, row.why) = (found, why);
        } else if found == Verdict::Slower {
            // A doubt, which stands beside it, hides no regression.
            row.verdict = found;
        }
    }
    for (_, row) in rows.iter_mut().filter(|(_, row)| row.limits.report_only && row.verdict != Verdict::NotJudged) {
        row.verdict = Verdict::NotJudged;
        let by_default = metric::find(&row.metric).is_some_and(|found| !found.judged);
        row.why = if by_default { format!("judged only with --metric {}", row.metric) } else { String::new() };
    }
    rows
}

fn verdict(row: &Row, p: f64, exact: bool, one_run: bool, rows: usize) -> (Verdict, String) {
    let (Some(base), Some(found)) = (&row.base, &row.found) else { return (Verdict::Inconclusive, String::new()) };
    let limits = row.limits.at_level(base.median_ns);
    let (change, below) = (found.log.value.exp_m1(), found.log.interval().high.exp_m1());
    match row.limits.verdict(&found.log, p, base.median_ns) {
        Verdict::Slower | Verdict::Faster
            if !one_run && row.runs() < FEW && found.may_be_layout(limits.alpha / rows as f64) =>
        {
            let why = "runs of another host may differ by so much: their part is a default of one host; two runs a side, or \
                       `vpmu ab`, would decide";
            (Verdict::Inconclusive, why.to_owned())
        }
        judged @ (Verdict::Slower | Verdict::Faster) => (judged, String::new()),
        _ if row.question == Question::AllArms && row.few_runs() && !exact => {
            let why = format!("absolute times of fewer than {MIN_RUNS} runs a side are not judged: a host drifts");
            // A change that leaves little room for "none" is not passed in silence: the allowance is a wide one.
            let moved = found.log.p() < LITTLE_ROOM;
            (if moved { Verdict::Inconclusive } else { Verdict::NotJudged }, why)
        }
        judged if below < limits.bound => {
            let small = change.abs() < limits.threshold && (judged != Verdict::NoChange || below > row.limits.bound);
            let why = match judged {
                _ if small => small_change(row),
                Verdict::NoChange => String::new(),
                _ => {
                    format!("its interval excludes 0, and over all rows p is {p:.2}: more rounds or runs would decide")
                }
            };
            (judged, why)
        }
        _ => {
            let (high, asked) = (below * 100.0, limits.bound * 100.0);
            let mut why = format!("it may be up to {high:.1} % slower, and {asked:.1} % is the bound");
            if found.blocks == 0 && !row.few_runs() && !exact {
                why += "; runs in turns would show less of the host's wander";
            } else if let Some(more) = would_do(found, limits.bound, row, one_run) {
                why = format!("{why}; about {more} would do");
            }
            (Verdict::Inconclusive, why)
        }
    }
}

/// Says why a change that is strong as a share is none: it is small in time.
fn small_change(row: &Row) -> String {
    let least = row.limits.least_change_ns;
    let (low, high) = row.change_interval.map_or((0.0, 0.0), |change| (change.low * 100.0, change.high * 100.0));
    format!("{low:+.1} to {high:+.1} % is less than {least} ns here, which the placement of code and data moves")
}

/// Says how many rounds or runs a side would show that a change is below `bound` where there is none.
fn would_do(found: &Change, bound: f64, row: &Row, one_run: bool) -> Option<String> {
    let (base, new) = row.base.as_ref().zip(row.new.as_ref())?;
    let few = row.runs();
    let times = |fixed: &Estimate| found.log.times_as_many(fixed, f64::midpoint(1.0, CONFIDENCE), bound.ln_1p());
    let by_rounds = times(&found.allowance).filter(|times| *times < 20.0 && found.blocks == 0 && few < MIN_RUNS);
    let Some(by_rounds) = by_rounds else {
        let runs = (times(&known(0.0)).filter(|_| !one_run)? * few as f64).ceil().max(few as f64 + 1.0);
        return Some(format!("{runs} runs a side"));
    };
    // Enough rounds, and yet the change seen is close to the bound.
    let needed = (by_rounds * base.n.min(new.n) as f64 / 10.0).ceil() * 10.0;
    (by_rounds > 1.0).then(|| format!("{needed} rounds{}", if one_run { "" } else { " a side" }))
}
