//! The verdict on a change: one vocabulary, one decision and one tally for every comparison, between results, arms,
//! builds and hosts.

use std::fmt;

use serde::Serialize;

use crate::error::Exit;
use crate::stats::interval::{CONFIDENCE, Interval, NORMAL_95};
use crate::stats::jackknife::Estimate;

/// A verdict on one change, from the least pressing to the most: the verdict on several is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Shown, and left out of the judgement.
    NotJudged,
    /// Neither slower nor faster, and the interval excludes a slow-down of the bound.
    NoChange,
    /// Significant, and faster by the threshold or more.
    Faster,
    /// Neither a change nor its absence can be shown; the row says why, and what would do.
    Inconclusive,
    /// Significant, and slower by the threshold or more.
    Slower,
}

impl Verdict {
    /// Returns the exit of a command whose answer this is.
    pub const fn exit(self) -> Exit {
        match self {
            Self::Slower => Exit::Regression,
            Self::NoChange | Self::Faster => Exit::Done,
            Self::Inconclusive | Self::NotJudged => Exit::Inconclusive,
        }
    }

    /// The verdict in words.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotJudged => "(not judged)",
            Self::NoChange => "no change",
            Self::Faster => "faster",
            Self::Inconclusive => "inconclusive",
            Self::Slower => "SLOWER",
        }
    }
}

/// Limits for a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Adjusted p values below this are significant.
    pub alpha: f64,
    /// Relative changes of at least this are strong.
    pub threshold: f64,
    /// A slow-down of at least this must be excluded for "no change".
    pub bound: f64,
    /// Changes below this many ns are not strong, whatever their share.
    pub least_change_ns: f64,
    /// Shown, but not judged.
    pub report_only: bool,
}

impl Default for Limits {
    /// p < 0.01, 3 %, 5 % excluded, 50 ns: where a process's code and data come to lie moves an exit path of 150 ns by tens of ns.
    fn default() -> Self {
        Self { alpha: 0.01, threshold: 0.03, bound: 0.05, least_change_ns: 50.0, report_only: false }
    }
}

impl Limits {
    /// Returns the limits with a threshold and a bound that are at least [`least_change_ns`](Self::least_change_ns) of `ns`.
    pub fn at_level(self, ns: f64) -> Self {
        let least = if ns > 0.0 { self.least_change_ns / ns } else { 0.0 };
        Self { threshold: self.threshold.max(least), bound: self.bound.max(least), ..self }
    }

    /// The verdict on a logarithm of NEW over BASE whose p value, adjusted for the rows beside it, is `p`; BASE takes `ns`, 0 if it has
    /// no time.
    pub fn verdict(&self, log: &Estimate, p: f64, ns: f64) -> Verdict {
        let (change, at) = (log.value.exp_m1(), self.at_level(ns));
        if p < self.alpha && change.abs() >= at.threshold {
            return if change > 0.0 { Verdict::Slower } else { Verdict::Faster };
        }
        // A strong change whose interval leaves no room for "none" is not passed in silence.
        let interval = log.interval();
        let moved = interval.excludes(0.0) && change.abs() >= self.threshold;
        if !moved && interval.high.exp_m1() < at.bound { Verdict::NoChange } else { Verdict::Inconclusive }
    }

    /// Returns how many times as many values decide in nine of ten cases if the truth is as they say: that the change is one, over so
    /// many rows, or that a slow-down of the bound is none. `fixed` is the part of the error that they do not make smaller.
    pub fn would_do(&self, log: &Estimate, fixed: &Estimate, rows: usize) -> Option<f64> {
        let (change, bound) = (log.value.exp_m1(), self.bound.ln_1p());
        let one = (change.abs() >= self.threshold)
            .then(|| log.times_as_many(fixed, 1.0 - self.alpha / (2 * rows.max(1)) as f64, log.value.abs()));
        // A change of the threshold or more never ends as none: its interval would exclude 0 first.
        let none = (log.value < bound && change.abs() < self.threshold)
            .then(|| log.times_as_many(fixed, f64::midpoint(1.0, CONFIDENCE), bound - log.value.max(0.0)));
        [one, none].into_iter().flatten().flatten().min_by(f64::total_cmp)
    }
}

/// A measured number against another one for the same: published, or predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// "no-change" is agreement within 10 %; "slower" is more, "faster" is less.
    pub verdict: Verdict,
    /// The difference, as a share of the other number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<f64>,
    /// Why it is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Judged {
    /// Difference up to which two numbers agree.
    pub const WITHIN: f64 = 0.1;
    /// Factor between the ends of a range from which on they say little.
    pub const WIDE: f64 = 2.0;

    /// Returns that the two are of different things.
    pub fn not_comparable(why: &str) -> Self {
        Self { verdict: Verdict::NotJudged, by: None, why: Some(why.to_owned()) }
    }

    /// Compares a measured number with `others`: one number, or the ends of a range, of which the nearest counts; to lie in one that is
    /// wider than [`WIDE`](Self::WIDE) is no agreement.
    /// `interval` is that of the measured one, at 95 %; of the least of all it has no width.
    pub fn of(measured: f64, interval: Option<Interval>, others: &[f64]) -> Self {
        let (low, high) = others.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), n| (a.min(*n), b.max(*n)));
        let other = if low <= high { measured.clamp(low, high) } else { f64::NAN };
        if !(measured >= 0.0 && other >= 0.0) {
            return Self::not_comparable("one of the two is no number, or negative");
        }
        if measured.max(other) == 0.0 {
            return Self { verdict: Verdict::NoChange, by: Some(0.0), why: None };
        }
        let value = (measured / other).ln();
        let by = Some(value.exp_m1()).filter(|by| by.is_finite());
        let Some(interval) = interval else {
            return Self { verdict: Verdict::Inconclusive, by, why: Some("too few rounds for an interval".to_owned()) };
        };
        if !value.is_finite() {
            // There is no ratio, but nothing and something differ, unless the interval reaches to the other.
            let differs = if measured > other { Verdict::Slower } else { Verdict::Faster };
            let verdict = if interval.excludes(other) { differs } else { Verdict::Inconclusive };
            return Self { verdict, by, why: None };
        }
        let error = (interval.high / interval.low).ln() / (2.0 * NORMAL_95);
        let limits = Limits { alpha: 0.05, threshold: Self::WITHIN, bound: Self::WITHIN, ..Limits::default() };
        let log = Estimate { value, error: if error.is_finite() { error } else { f64::MAX }, freedom: f64::INFINITY };
        let verdict = limits.verdict(&log, log.p(), 0.0);
        if verdict == Verdict::NoChange && high > low * Self::WIDE {
            let why = format!("the range of the other is wider than a factor of {}", Self::WIDE);
            return Self { verdict: Verdict::Inconclusive, by: None, why: Some(why) };
        }
        Self { verdict, by, why: None }
    }

    /// Says it, with this text of the difference.
    pub fn words(&self, by: &str) -> String {
        match self.verdict {
            Verdict::NoChange => "agrees".to_owned(),
            Verdict::Slower | Verdict::Faster if by.is_empty() => "differs".to_owned(),
            Verdict::Inconclusive if by.is_empty() => "open".to_owned(),
            Verdict::Slower | Verdict::Faster => format!("differs, {by}"),
            Verdict::Inconclusive => format!("open, {by}"),
            Verdict::NotJudged => "not comparable".to_owned(),
        }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&self.by.map_or_else(String::new, |by| format!("{:+.1} %", 100.0 * by))))
    }
}

/// Number of rows by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Slower.
    pub slower: usize,
    /// Faster.
    pub faster: usize,
    /// No change.
    pub same: usize,
    /// Inconclusive.
    pub open: usize,
}

impl Tally {
    /// Counts these verdicts.
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Slower => tally.slower += 1,
                Verdict::Faster => tally.faster += 1,
                Verdict::NoChange => tally.same += 1,
                Verdict::Inconclusive => tally.open += 1,
                Verdict::NotJudged => {}
            }
        }
        tally
    }

    /// The exit of the whole, and it in a sentence. `doubt` is what keeps "no regression" from being said although no
    /// row is open; it does not hide a regression.
    pub fn conclude(self, doubt: Option<&str>) -> (Exit, String) {
        if self.slower > 0 {
            return (Exit::Regression, format!("regression: {self}"));
        }
        let doubt = doubt.map_or_else(String::new, |doubt| format!("{doubt}; "));
        if self.open > 0 || self.faster + self.same == 0 || !doubt.is_empty() {
            return (Exit::Inconclusive, format!("inconclusive: {doubt}{self}"));
        }
        (Exit::Done, format!("no regression: {self}"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slower, faster, same, open } = self;
        write!(f, "{slower} slower, {faster} faster, {same} unchanged, {open} open")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(change: f64, error: f64) -> Estimate {
        Estimate { value: f64::ln_1p(change), error, freedom: 100.0 }
    }

    #[test]
    fn a_change_must_be_significant_and_strong() {
        let verdict = |change, error, p| Limits::default().verdict(&estimate(change, error), p, 0.0);
        assert_eq!(verdict(0.04, 0.001, 0.001), Verdict::Slower);
        assert_eq!(verdict(-0.04, 0.001, 0.001), Verdict::Faster);
        assert_eq!(verdict(0.02, 0.001, 0.001), Verdict::NoChange, "significant, and weak");
        assert_eq!(verdict(0.04, 0.001, 0.5), Verdict::Inconclusive, "strong, not significant, and not none");
        assert_eq!(verdict(-0.15, 0.05, 0.02), Verdict::Inconclusive, "faster or not");
        assert_eq!(verdict(-0.04, 0.03, 0.5), Verdict::NoChange);
        assert_eq!(verdict(0.04, 0.1, 0.5), Verdict::Inconclusive);
        // The interval that stands beside it reaches to +5.5 %.
        assert_eq!(verdict(0.02, 0.017, 0.5), Verdict::Inconclusive);
        let short = |change| Limits::default().verdict(&estimate(change, 0.001), 0.001, 500.0);
        assert_eq!((short(0.02), short(0.04)), (Verdict::NoChange, Verdict::Inconclusive), "less than 50 ns");
    }

    #[test]
    fn what_would_decide_is_said_of_a_change_and_of_none() {
        let times = |change, error| {
            Limits::default().would_do(&estimate(change, error), &crate::stats::jackknife::known(0.0), 4).unwrap()
        };
        // 5 % are to be 1.96 + 1.28 standard errors, or less room if it seems slower; 6 % over four rows 3.02 + 1.28.
        assert!((10.0..12.0).contains(&times(0.0, 0.05)) && times(0.02, 0.05) > 20.0, "{}", times(0.0, 0.05));
        assert!((12.5..15.0).contains(&times(0.06, 0.05)), "{}", times(0.06, 0.05));
    }

    #[test]
    fn a_measured_number_agrees_differs_or_is_open() {
        let of = |measured, width: f64, others: &[f64]| {
            let interval = Interval { low: measured * (1.0 - width), high: measured * (1.0 + width) };
            Judged::of(measured, Some(interval), others).to_string()
        };
        assert_eq!(of(104.0, 0.02, &[100.0]), "agrees");
        assert_eq!(of(130.0, 0.02, &[100.0]), "differs, +30.0 %");
        assert_eq!(of(70.0, 0.02, &[100.0]), "differs, -30.0 %");
        assert_eq!(of(115.0, 0.4, &[100.0]), "open, +15.0 %");
        assert_eq!(of(100.1, 0.0, &[100.0]), "agrees", "the least of all has no interval");
        assert_eq!(of(1.40, 0.01, &[1.34, 1.48]), "agrees", "within a range");
        assert_eq!(of(1.40, 0.01, &[0.9, 2.1]), "open", "nearly anything is within such a range");
        assert_eq!(of(1.80, 0.01, &[1.48, 1.34]), "differs, +21.6 %", "from its nearest end");
        assert_eq!(Judged::of(1.0, None, &[1.0]).verdict, Verdict::Inconclusive);
        let left = |change| crate::published::Number::Change.judged(change);
        assert_eq!(of(left(-99.0), 0.1, &[left(-99.9)]), "differs, +900.0 %", "of creations that are left");
        assert_eq!(of(left(0.0), 0.1, &[left(-100.0)]), "differs", "all creations are left, and none was to be");
        assert_eq!(of(left(-100.0), 0.1, &[left(-100.0)]), "agrees");
        assert_eq!(of(left(-100.0), 0.0, &[left(-99.0), left(-100.0)]), "agrees");
        for others in [&[][..], &[-1.0], &[f64::NAN]] {
            assert_eq!(of(1.0, 0.1, others), "not comparable", "{others:?}");
        }
    }

    #[test]
    fn the_verdict_on_several_is_the_most_pressing() {
        use Verdict::{Faster, Inconclusive, NoChange, NotJudged, Slower};
        assert_eq!([NoChange, Slower, Inconclusive].into_iter().max(), Some(Slower));
        assert_eq!([Faster, NoChange, Inconclusive, NotJudged].into_iter().max(), Some(Inconclusive));
        let of = |verdicts: &[Verdict], doubt| Tally::of(verdicts.iter().copied()).conclude(doubt);
        assert_eq!(of(&[NoChange, Faster], None).0, Exit::Done);
        assert_eq!(of(&[NoChange, Slower], Some("hosts differ")).0, Exit::Regression);
        assert_eq!(
            of(&[NotJudged], None),
            (Exit::Inconclusive, "inconclusive: 0 slower, 0 faster, 0 unchanged, 0 open".into())
        );
        let (exit, why) = of(&[NoChange], Some("an arm is on one side only"));
        assert_eq!(
            (exit, why.starts_with("inconclusive: an arm is on one side only; 0 slower")),
            (Exit::Inconclusive, true)
        );
    }
}
