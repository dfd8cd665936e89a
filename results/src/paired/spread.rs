//! How runs of one host differ from each other: a default, pooled with what several runs show.

use crate::stats::jackknife::Estimate;

/// How logarithms of ratios differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The standard deviation.
    pub deviation: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

impl Spread {
    /// Degrees of freedom of the default: it is of one host, and others may be several times quieter or wilder.
    pub const FREEDOM: f64 = 3.0;

    /// The spread of a ratio, to the floor or of two strategies: 26 default runs of the development host on two days, at loads of 0 to 19
    /// (docs/comparing.md).
    pub const fn between_runs(to_floor: bool) -> Self {
        Self { deviation: if to_floor { 0.003 } else { 0.0025 }, freedom: Self::FREEDOM }
    }

    /// Returns the error that it gives to the mean of so many runs, or to the difference of two such means: `share` is the sum of 1 /
    /// runs.
    pub fn error(self, share: f64) -> Estimate {
        Estimate { value: 0.0, error: self.deviation * share.sqrt(), freedom: self.freedom }
    }

    /// Returns it pooled with what runs show, by `seen` variances, each with its degrees of freedom. Where they show more than that
    /// they are believed: other hosts are wilder.
    pub fn pooled(self, seen: &[(f64, f64)]) -> Self {
        let new = seen.iter().map(|(_, freedom)| freedom).sum::<f64>();
        let squares = seen.iter().map(|(variance, freedom)| variance * freedom).sum::<f64>();
        let freedom = self.freedom + new;
        let pooled = (self.freedom * self.deviation.powi(2) + squares) / freedom;
        // What rests on the runs alone has their freedom.
        let wilder = new > 0.0 && squares / new > pooled;
        let (variance, freedom) = if wilder { (squares / new, new) } else { (pooled, freedom) };
        Self { deviation: variance.sqrt(), freedom }
    }

    /// Computes the variance between runs beyond their own errors, and its degrees of freedom: a run whose own error hides it
    /// brings few. `None` of too few such runs.
    pub fn seen(self, runs: &[Estimate]) -> Option<(f64, f64)> {
        let variance = self.deviation.powi(2);
        // A difference beyond this spread shows in spite of larger errors.
        let (wider, _) = moments(runs, variance)?;
        moments(runs, variance.max(wider)).filter(|(_, freedom)| *freedom > 0.0)
    }
}

/// Computes the variance between runs by moments with the weights of a supposed one, and its degrees of freedom.
fn moments(runs: &[Estimate], supposed: f64) -> Option<(f64, f64)> {
    let own = |run: &Estimate| run.error.powi(2);
    let weight = |run: &Estimate| 1.0 / (own(run) + supposed).max(f64::MIN_POSITIVE);
    let sum = |of: &dyn Fn(&Estimate) -> f64| runs.iter().map(of).sum::<f64>();
    let all = sum(&weight);
    let mean = sum(&|run| weight(run) * run.value) / all;
    let squares = sum(&|run| weight(run) * (run.value - mean).powi(2));
    let by_chance = sum(&|run| weight(run) * own(run) * (1.0 - weight(run) / all));
    let scale = all - sum(&|run| weight(run).powi(2)) / all;
    let freedom = sum(&|run| (weight(run) * supposed).powi(2)) - 1.0;
    (runs.len() > 1 && scale > 0.0).then(|| (((squares - by_chance) / scale).max(0.0), freedom))
}
