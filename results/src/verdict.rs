//! The verdict on a change: one vocabulary, one decision and one tally for every comparison, between results, arms,
//! builds and hosts.

use std::fmt;

use serde::Serialize;

use crate::error::Exit;
use crate::stats::interval::{Interval, NORMAL_95};
use crate::stats::jackknife::Estimate;
pub use crate::stats::limits::Limits;

/// A verdict on one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Shown, and left out of the judgement.
    NotJudged,
    /// Neither slower nor faster, and the interval excludes a slow-down of the bound.
    NoChange,
    /// Significant, and faster by the threshold or more.
    Faster,
    /// Neither a change nor its absence can be shown; the row says why, and what would do.
    #[default]
    Inconclusive,
    /// Significant, and slower by the threshold or more.
    Slower,
}

impl Verdict {
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

impl Limits {
    /// The verdict on a logarithm of NEW over BASE whose p value, adjusted for the rows beside it, is `p`.
    pub fn verdict(&self, log: &Estimate, p: f64) -> Verdict {
        let change = log.value.exp_m1();
        if p < self.alpha && change.abs() >= self.threshold {
            return if change > 0.0 { Verdict::Slower } else { Verdict::Faster };
        }
        // A strong change whose interval leaves no room for "none" is not passed in silence.
        let interval = log.interval();
        let moved = interval.excludes(0.0) && change.abs() >= self.threshold;
        if !moved && interval.high.exp_m1() < self.bound { Verdict::NoChange } else { Verdict::Inconclusive }
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
    const WIDE: f64 = 2.0;

    /// Returns that the two are of different things.
    pub fn not_comparable(why: &str) -> Self {
        Self { verdict: Verdict::NotJudged, by: None, why: Some(why.to_owned()) }
    }

    /// Compares a measured number with `others`: one number, or the ends of a range, of which the nearest counts; to lie in one that is
    /// wider than `WIDE` is no agreement.
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
        let verdict = if value.is_finite() {
            let error = (interval.high / interval.low).ln() / (2.0 * NORMAL_95);
            let error = if error.is_finite() { error } else { f64::MAX };
            let limits = Limits::default().with(Some(0.05), Some(Self::WITHIN));
            let log = Estimate { value, error, freedom: f64::INFINITY };
            limits.verdict(&log, log.p())
        } else {
            // There is no ratio, but nothing and something differ, unless the interval reaches to the other.
            let differs = if measured > other { Verdict::Slower } else { Verdict::Faster };
            if interval.excludes(other) { differs } else { Verdict::Inconclusive }
        };
        if verdict == Verdict::NoChange && high > low * Self::WIDE {
            let why = format!("the range of the other is wider than a factor of {}", Self::WIDE);
            return Self { verdict: Verdict::Inconclusive, by: None, why: Some(why) };
        }
        Self { verdict, by, why: None }
    }

    /// Says it without the difference.
    pub const fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::NoChange => "agrees",
            Verdict::Slower | Verdict::Faster => "differs",
            Verdict::Inconclusive => "inconclusive",
            Verdict::NotJudged => "not comparable",
        }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self.by.filter(|_| self.verdict != Verdict::NoChange) {
            Some(by) => write!(f, ", {:+.1} %", 100.0 * by),
            None => Ok(()),
        }
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
    pub inconclusive: usize,
}

impl Tally {
    /// Counts these verdicts.
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let all: Vec<Verdict> = verdicts.into_iter().collect();
        let of = |wanted| all.iter().filter(|one| **one == wanted).count();
        let [slower, faster] = [Verdict::Slower, Verdict::Faster].map(of);
        Self { slower, faster, same: of(Verdict::NoChange), inconclusive: of(Verdict::Inconclusive) }
    }

    /// The exit of the whole, and it in a sentence. `doubt` is what keeps "no regression" from being said although no
    /// row is inconclusive; it does not hide a regression.
    pub fn conclude(self, doubt: Option<&str>) -> (Exit, String) {
        if self.slower > 0 {
            return (Exit::Regression, format!("regression: {self}"));
        }
        let doubt = doubt.map_or_else(String::new, |doubt| format!("{doubt}; "));
        if self.inconclusive > 0 || self.faster + self.same == 0 || !doubt.is_empty() {
            return (Exit::Inconclusive, format!("inconclusive: {doubt}{self}"));
        }
        (Exit::Done, format!("no regression: {self}"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slower, faster, same, inconclusive } = self;
        write!(f, "{slower} slower, {faster} faster, {same} unchanged, {inconclusive} inconclusive")
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
        let verdict = |change, error, p| Limits::default().verdict(&estimate(change, error), p);
        assert_eq!(verdict(0.04, 0.001, 0.001), Verdict::Slower);
        assert_eq!(verdict(-0.04, 0.001, 0.001), Verdict::Faster);
        assert_eq!(verdict(0.02, 0.001, 0.001), Verdict::NoChange, "significant, and weak");
        assert_eq!(verdict(0.04, 0.001, 0.5), Verdict::Inconclusive, "strong, not significant, and not none");
        assert_eq!(verdict(-0.15, 0.05, 0.02), Verdict::Inconclusive, "faster or not");
        assert_eq!(verdict(-0.04, 0.03, 0.5), Verdict::NoChange);
        assert_eq!(verdict(0.04, 0.1, 0.5), Verdict::Inconclusive);
        // The interval that stands beside it reaches to +5.5 %.
        assert_eq!(verdict(0.02, 0.017, 0.5), Verdict::Inconclusive);
    }

    #[test]
    fn a_measured_number_agrees_differs_or_is_inconclusive() {
        let of = |measured, width: f64, others: &[f64]| {
            let interval = Interval { low: measured * (1.0 - width), high: measured * (1.0 + width) };
            Judged::of(measured, Some(interval), others).to_string()
        };
        assert_eq!(of(104.0, 0.02, &[100.0]), "agrees");
        assert_eq!(of(130.0, 0.02, &[100.0]), "differs, +30.0 %");
        assert_eq!(of(70.0, 0.02, &[100.0]), "differs, -30.0 %");
        assert_eq!(of(115.0, 0.4, &[100.0]), "inconclusive, +15.0 %");
        assert_eq!(of(100.1, 0.0, &[100.0]), "agrees", "the least of all has no interval");
        assert_eq!(of(1.40, 0.01, &[1.34, 1.48]), "agrees", "within a range");
        assert_eq!(of(1.40, 0.01, &[0.9, 2.1]), "inconclusive", "nearly anything is within such a range");
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
        use Verdict::{Faster, NoChange, NotJudged, Slower};
        let of = |verdicts: &[Verdict], doubt| Tally::of(verdicts.iter().copied()).conclude(doubt);
        assert_eq!(of(&[NoChange, Faster], None).0, Exit::Done);
        assert_eq!(of(&[NoChange, Slower], Some("hosts differ")).0, Exit::Regression);
        assert_eq!(
            of(&[NotJudged], None),
            (Exit::Inconclusive, "inconclusive: 0 slower, 0 faster, 0 unchanged, 0 inconclusive".into())
        );
        let (exit, why) = of(&[NoChange], Some("an arm is on one side only"));
        assert_eq!(
            (exit, why.starts_with("inconclusive: an arm is on one side only; 0 slower")),
            (Exit::Inconclusive, true)
        );
    }
}
