//! A row of a comparison, and its verdict.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;

use super::change::{Change, of_blocks};
use super::group::{Both, MIN_RUNS};
use crate::paired::MIN_ROUNDS;
use crate::stats::holm;
use crate::stats::interval::Interval;
use crate::stats::jackknife::Estimate;
use crate::table::layout;
use crate::verdict::{Limits, Verdict};

/// Runs a side that show how runs of their own host differ.
const FEW: usize = 2;
/// Change below which one run a side is never slower or faster: processes of another host may differ by so much.
const ONE_RUN: f64 = 0.2;
/// Change of all arms, of runs that show none, that is not passed in silence.
const ALL_MOVED: f64 = 0.25;
/// Room over half an interval in which nine of ten repetitions see what it shows: 1.96 and 1.28 standard errors over 1.96.
const NINE_OF_TEN: f64 = 1.65;

/// Name of the row of all arms together: the geometric mean of their times.
pub const GEOMEAN: &str = "geomean";

/// Question of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Did one arm change against the reference arm?
    #[default]
    OneArm,
    /// Did the times of all arms change together?
    AllArms,
    /// Did the times of one arm change from one build to the other, in turns?
    Turns,
    /// Does an arm do more for each PMI?
    Counts,
}

/// Verdicts are over these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Runs of two sides.
    Runs,
    /// Rounds of one run, or of simulated ones, none of which differs from another.
    Rounds,
    /// Hosts, each with itself.
    Hosts,
}

/// One side of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SideLevel {
    /// Ratio to the reference arm in paired rounds; of all arms, and of turns, the time in ns; the count for a PMI or a sample, NEW's
    /// operations, where they do not repeat, are converted to the exits of BASE.
    pub value: Option<f64>,
    /// Rounds; 0: the side has none.
    pub n: usize,
    /// Number of runs.
    pub runs: usize,
}

/// One arm and metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Question that the row answers.
    pub question: Question,
    /// The arm; "geomean", of those that both sides have whole, the floor included.
    pub arm: String,
    /// The metric, such as `nmi_handler_ns`, or the count, such as `open/PMI`.
    pub metric: String,
    /// BASE.
    pub base: SideLevel,
    /// NEW.
    pub new: SideLevel,
    /// Relative change, of the ratio to the reference arm, of all times or of a count: 0.1 is 10 % more.
    pub change: Option<f64>,
    /// Its 95 % confidence interval; `None` of what is not judged, and of counts that repeat.
    pub change_interval: Option<Interval>,
    /// Two-sided p value.
    pub p_value: Option<f64>,
    /// Adjusted for the number of rows by Holm's method.
    pub p_value_adjusted: Option<f64>,
    /// Pairs of neighbouring runs behind the interval; 0: there were none.
    pub blocks: usize,
    /// The counts repeat, from round to round or in most turns, and were compared exactly.
    pub exact: bool,
    /// Limits of the verdict.
    pub limits: Limits,
    /// The verdict.
    pub verdict: Verdict,
    /// Why there is no verdict, and what would do; beside one, the doubt about its figures.
    pub why: String,
    /// Its figures may be judged: both sides have them, and they are whole.
    #[serde(skip)]
    pub(super) whole: bool,
    /// Logarithm of NEW over BASE, of what may be judged.
    #[serde(skip)]
    pub(super) log: Option<Estimate>,
}

/// How the reason begins of a row whose interval is too wide.
pub(super) const WIDE: &str = "it may be up to";

impl Row {
    /// Builds a row of these sides.
    pub(super) fn new(
        question: Question,
        (arm, metric): (&str, &str),
        limits: Limits,
        [base, new]: Both<SideLevel>,
    ) -> Self {
        let (arm, metric) = (arm.to_owned(), metric.to_owned());
        let rounds = if question == Question::Turns { "pairs" } else { "rounds" };
        let why = format!("too few {rounds}: an interval needs {MIN_ROUNDS} a side");
        Self { question, arm, metric, base, new, limits, why, whole: true, ..Self::default() }
    }

    /// Keeps its figures from being judged as whole, if there is a doubt.
    pub(super) fn doubted(self, doubt: Option<String>) -> Self {
        let whole = doubt.is_none();
        Self { why: doubt.unwrap_or(self.why), whole, ..self }
    }

    /// Fills in what `found` says.
    pub(super) fn with(mut self, found: Option<Change>) -> Self {
        let Some(change) = found else { return self };
        self.change_interval = Some(change.log.interval().map(f64::exp_m1));
        self.p_value = Some(change.log.p());
        self.blocks = change.blocks;
        self.log = Some(change.log);
        self.shows(change.base, change.log.value)
    }

    /// Shows a logarithm of BASE, and that of NEW over it, on sides that have a value: one definition for them and what is between.
    pub(super) fn shows(mut self, base: f64, log: f64) -> Self {
        for (level, log) in [&mut self.base, &mut self.new].into_iter().zip([base, base + log]) {
            level.value = level.value.map(|_| log.exp());
        }
        self.change = Some(log.exp_m1());
        self
    }

    /// Formats its sides.
    pub(super) fn sides(&self) -> Both<String> {
        [&self.base, &self.new].map(|side| match (self.question, side.value) {
            (_, None) => layout::dash(),
            (Question::OneArm, Some(ratio)) => layout::against(ratio),
            (Question::Counts, Some(count)) => format!("{count:.3}"),
            (_, Some(level)) => layout::value(&self.metric, level),
        })
    }

    /// Builds a row whose blocks are hosts, from the logarithms of each on both sides; `runs` are those of a side. Times of all arms
    /// are ns, those of one arm ratios.
    pub fn over_hosts(of: (&str, &str), limits: Limits, logs: &[Both<f64>], runs: Both<usize>) -> Self {
        let question = if of.0 == GEOMEAN { Question::AllArms } else { Question::OneArm };
        let [base, new] = [0, 1].map(|side: usize| logs.iter().map(|host| host[side]).sum::<f64>() / logs.len() as f64);
        let level = |runs| SideLevel { value: Some(0.0), n: logs.len(), runs };
        let row = Self::new(question, of, limits, runs.map(level)).shows(base, new - base);
        let change = of_blocks(&logs.iter().map(|[base, new]| new - base).collect::<Vec<_>>(), base);
        Self { blocks: logs.len(), ..row.with(change) }
    }

    /// Builds a row of counts on both sides: those that repeat on each side are compared exactly, so that any difference is a change,
    /// others by what was found.
    pub(super) fn of_counts(
        of: (&str, &str),
        limits: Limits,
        sides: Both<SideLevel>,
        exact: bool,
        found: Option<Change>,
    ) -> Self {
        let [before, after] = sides.each_ref().map(|side| side.value.unwrap_or_default());
        let verdict = match before.total_cmp(&after) {
            _ if !exact => Verdict::NotJudged,
            _ if is_same(before, after) => Verdict::NoChange,
            Ordering::Less => Verdict::Slower,
            _ => Verdict::Faster,
        };
        let change = (before > 0.0).then(|| after / before - 1.0);
        let row = Self::new(Question::Counts, of, limits, sides);
        let row = Self { change, verdict, exact, why: String::new(), ..row };
        if exact { row } else { row.with(found) }
    }

    /// Returns the verdict in a word.
    pub fn word(&self) -> &'static str {
        match (self.question, self.verdict) {
            (Question::Counts, Verdict::Slower) => "MORE",
            (Question::Counts, Verdict::Faster) => "fewer",
            (Question::Counts, Verdict::NoChange) => "the same",
            (_, verdict) => verdict.word(),
        }
    }

    /// Returns whether it says what a reader asked for: not a metric that is not judged, nor a count that is the same.
    pub(super) fn is_news(&self) -> bool {
        match self.question {
            Question::Counts => ![Verdict::NotJudged, Verdict::NoChange].contains(&self.verdict),
            _ => !self.limits.report_only,
        }
    }
}

/// Returns whether two counts are the same number but for how they were calculated.
pub(super) fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Adjusts the p values of the rows that are judged, and judges them.
pub fn judge<'a>(rows: impl IntoIterator<Item = &'a mut Row>, over: Over) {
    let (judged, others): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.log.is_some() && !row.limits.report_only);
    let p = holm(&judged.iter().filter_map(|row| row.p_value).collect::<Vec<_>>());
    for (row, p) in judged.into_iter().zip(p) {
        row.p_value_adjusted = Some(p);
        let Some(log) = row.log else { continue };
        let (verdict, why) = verdict(row, &log, p, over);
        if row.whole {
            (row.verdict, row.why) = (verdict, why);
        } else if verdict == Verdict::Slower {
            // A doubt, which stands beside it, hides no regression.
            row.verdict = verdict;
        }
    }
    for row in others {
        let moved = row.change.filter(|_| row.question == Question::AllArms);
        if row.limits.report_only {
            (row.verdict, row.why) = (Verdict::NotJudged, String::new());
        } else if let Some(change) = moved {
            row.verdict = if change.abs() >= ALL_MOVED { Verdict::Inconclusive } else { Verdict::NotJudged };
            row.why = format!("times of all arms are judged of {MIN_RUNS} runs a side in turns: a host wanders");
        }
    }
}

fn verdict(row: &Row, log: &Estimate, p: f64, over: Over) -> (Verdict, String) {
    let (judged, runs) = (row.limits.verdict(log, p), row.base.runs.min(row.new.runs));
    let is_clear = matches!(judged, Verdict::Slower | Verdict::Faster);
    if row.question == Question::Counts {
        // What a host's load does to counts is no news, and leaves nothing open.
        return (if is_clear { judged } else { Verdict::NotJudged }, String::new());
    }
    if is_clear && over == Over::Runs && runs < FEW && log.value.exp_m1().abs() < ONE_RUN {
        let least = ONE_RUN * 100.0;
        let why = format!(
            "one run a side shows no change below {least:.0} %: another process may differ by so much; two runs a side, or `vpmu ab`, \
             would decide"
        );
        return (Verdict::Inconclusive, why);
    }
    if judged != Verdict::Inconclusive {
        return (judged, String::new());
    }
    let (high, bound) = (log.interval().high, row.limits.bound);
    if high.exp_m1() < bound {
        let why = format!(
            "its interval excludes 0, and over all rows the adjusted p is {p:.2}: more rounds or runs would decide"
        );
        return (judged, why);
    }
    let (n, what) = match over {
        Over::Hosts => (row.blocks, "hosts"),
        Over::Rounds => (row.base.n.min(row.new.n), "rounds"),
        Over::Runs => (runs, "runs a side, in turns,"),
    };
    // So many would show, if there is no change, that it is below the bound.
    let times = (NINE_OF_TEN * (high - log.value) / bound.ln_1p()).powi(2);
    let more =
        if times > 1.0 { format!("; about {:.0} {what} would do", (times * n as f64).ceil()) } else { String::new() };
    let [high, bound] = [high.exp_m1(), bound].map(|share| share * 100.0);
    (judged, format!("{WIDE} {high:.1} % slower, and {bound:.1} % is the bound{more}"))
}
