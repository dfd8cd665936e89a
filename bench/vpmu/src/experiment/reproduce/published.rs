//! Published figures and their counterparts, simulated and measured, and whether two numbers agree.

use std::fmt;

use results::host::HostFacts;
use results::stats::interval::{Interval, NORMAL_95};
use results::stats::jackknife::Estimate;
use results::verdict::{Limits, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use sim::model::{Number, Origin};
use stat_setup::model::Fitted;

/// A number, published, simulated and measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// The figure's id in `results/published.toml`.
    pub figure: String,
    /// Description of the figure.
    pub what: String,
    /// The number of it that is published.
    #[schemars(with = "String")]
    pub number: Number,
    /// Its unit.
    pub unit: String,
    /// As published; `None` of a figure that belongs to the series' workloads and has no published number.
    pub published: Option<f64>,
    /// The model it was simulated with.
    pub model: String,
    /// As simulated.
    pub simulated: Option<f64>,
    /// Simulated against published: percent, or points where the number is itself a percentage.
    pub error: Option<f64>,
    /// Origin of the number: "predicted", "of-fitted", {"fitted": constants} or {"transferred": figure}.
    #[schemars(with = "serde_json::Value")]
    pub origin: Origin,
    /// With `--run`, as a model of this host predicts it: the ends of the range that the model is off where it was made.
    pub predicted: Vec<f64>,
    /// As measured by `--run`.
    pub measured: Option<Measured>,
    /// The measured number of `--run` against the published one.
    pub against_published: Option<Judged>,
    /// The measured number of `--run` against the predicted one.
    pub against_predicted: Option<Judged>,
    /// Why the model does not explain it, if it does not.
    pub not_explained: Option<String>,
}

/// A measured number.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measured {
    /// The number.
    pub value: f64,
    /// Its 95 % interval, where it has one.
    pub interval: Option<Interval>,
    /// The backend behind the counters.
    pub backend: String,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
}

/// Everything `reproduce` found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reproduction {
    /// The simulations' seed.
    pub seed: u64,
    /// The rows, in the order of `results/published.toml`.
    #[serde(rename = "answer")]
    pub rows: Vec<Row>,
    /// Constants of the set-up model that were fitted.
    pub fitted: Vec<Fitted>,
    /// The host of `--run`, and the end of the run.
    pub here: Option<Here>,
}

/// The part of a [`Reproduction`] that was measured at once, on this host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Here {
    /// The host.
    pub host: HostFacts,
    /// Facts and incidents that its figures depend on, in sentences.
    pub notes: Vec<String>,
    /// Everything that was asked for was measured.
    pub whole: bool,
    /// The whole in a sentence.
    pub conclusion: String,
}

/// A measured number against another one for the same: published, or predicted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Judged {
    /// "no-change" is agreement within 10 %; "slower" is more, "faster" is less.
    pub verdict: Verdict,
    /// The difference, as a share of the other number.
    pub by: Option<f64>,
    /// Why it is not judged.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let left = |change| Number::Change.judged(change);
        assert_eq!(of(left(-99.0), 0.1, &[left(-99.9)]), "differs, +900.0 %", "of creations that are left");
        assert_eq!(of(left(0.0), 0.1, &[left(-100.0)]), "differs", "all creations are left, and none was to be");
        assert_eq!(of(left(-100.0), 0.1, &[left(-100.0)]), "agrees");
        assert_eq!(of(left(-100.0), 0.0, &[left(-99.0), left(-100.0)]), "agrees");
        for others in [&[][..], &[-1.0], &[f64::NAN]] {
            assert_eq!(of(1.0, 0.1, others), "not comparable", "{others:?}");
        }
    }
}
