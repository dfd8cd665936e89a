//! The verdict on a change: one vocabulary, one decision and one tally for every comparison, between results, arms,
//! builds and hosts.

use std::fmt;

use serde::Serialize;

use crate::error::Exit;
use crate::stats::jackknife::Estimate;
pub use crate::stats::limits::Limits;

/// A verdict on one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
