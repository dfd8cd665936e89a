//! Change points of a series whose runs are related and sometimes disturbed.
//!
//! E-divisive ([`change_points`]) takes runs for independent and was wrong in 57 of 100 series that drift (autocorrelation 0.7).
//! Here its points are candidates only. Each is tested with the spread that the series has from run to run, the
//! correlation of neighbours included, and corrected for the number of places it was chosen from and of series in the folder.

use crate::stats::change_points::{self, ChangePoint, Rules};
use crate::stats::jackknife::Estimate;
use crate::stats::median;

/// p value for candidates.
const LOOSE: f64 = 0.05;
/// Runs on either side that show whether one is disturbed.
const NEIGHBOURS: usize = 3;
/// Deviations from them, in robust standard deviations, beyond which it is.
const FAR: f64 = 4.0;
/// Largest correlation of neighbours that is allowed for.
const MOST: f64 = 0.9;

/// Spread and correlation of a series without its changes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Noise {
    variance: f64,
    correlation: f64,
}

impl Noise {
    /// Estimates the noise by differences of runs one and two apart, without those across a candidate; far ones are cut. In a series with
    /// correlation ρ their variances are 2σ²(1 − ρ) and 2σ²(1 − ρ²).
    fn of(series: &[f64], places: &[usize]) -> Self {
        let squares = |apart: usize| {
            let across = |at: usize| places.iter().any(|place| at < *place && *place <= at + apart);
            let windows = series.windows(apart + 1).enumerate().filter(|(at, _)| !across(*at));
            let apart: Vec<f64> = windows.map(|(_, w)| (w[apart] - w[0]).powi(2)).collect();
            // The median of squares of normal values is 0.455 of their mean.
            let cut = median(&apart).unwrap_or(0.0) / 0.455 * 9.0;
            let kept: Vec<f64> = apart.iter().map(|square| square.min(cut)).collect();
            kept.iter().sum::<f64>() / kept.len().max(1) as f64
        };
        let (one, two) = (squares(1), squares(2));
        if one <= 0.0 {
            return Self { variance: two / 2.0, correlation: 0.0 };
        }
        // One standard error up: short series show less correlation than there is.
        let correlation = (two / one - 1.0 + 1.0 / (series.len() as f64).sqrt()).clamp(0.0, MOST);
        Self { variance: one / (2.0 * (1.0 - correlation)), correlation }
    }

    /// Returns the variance of the mean of so many neighbouring runs.
    fn of_mean(self, runs: usize) -> f64 {
        let n = runs as f64;
        let related: f64 = (1..runs)
            .map(|lag| (1.0 - lag as f64 / n) * self.correlation.powi(i32::try_from(lag).unwrap_or(i32::MAX)))
            .sum();
        self.variance / n * (1.0 + 2.0 * related)
    }
}

/// Returns the series with runs that differ from all around them replaced by the median of those.
fn undisturbed(series: &[f64]) -> Vec<f64> {
    let differences: Vec<f64> = series.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // The median of absolute differences of normal values is 0.954 standard deviations.
    let usual = median(&differences).unwrap_or(0.0) / 0.954;
    let near = |at: usize| &series[at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(series.len())];
    (0..series.len())
        .map(|at| {
            let middle = median(near(at)).unwrap_or(series[at]);
            // The last two may be the first of a change.
            let settled = at + 2 < series.len();
            if settled && usual > 0.0 && (series[at] - middle).abs() > FAR * usual { middle } else { series[at] }
        })
        .collect()
}

/// Finds the change points of one of `family` series.
pub(super) fn find(series: &[f64], rules: &Rules, family: usize) -> Vec<ChangePoint> {
    let clean = undisturbed(series);
    let loose = Rules { p: rules.p.max(LOOSE), ..*rules };
    let mut places: Vec<usize> = change_points::find(&clean, &loose).iter().map(|point| point.index).collect();
    let noise = Noise::of(&clean, &places);
    loop {
        let points = points(&clean, &places, noise, family);
        let strong = |point: &ChangePoint| point.change().is_some_and(|change| change.abs() >= rules.strength);
        let weakest =
            points.iter().filter(|point| point.p >= rules.p || !strong(point)).max_by(|a, b| a.p.total_cmp(&b.p));
        let Some(weakest) = weakest.map(|point| point.index) else { return points };
        places.retain(|place| *place != weakest);
    }
}

fn points(series: &[f64], places: &[usize], noise: Noise, family: usize) -> Vec<ChangePoint> {
    let ends: Vec<usize> = [0].into_iter().chain(places.iter().copied()).chain([series.len()]).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let point = |at: &[usize]| {
        let (left, right) = (&series[at[0]..at[1]], &series[at[1]..at[2]]);
        let (before, after) = (mean(left), mean(right));
        let error = (noise.of_mean(left.len()) + noise.of_mean(right.len())).sqrt();
        // The variance is that of differences of which every second one is independent.
        let freedom = (series.len() as f64 / 2.0 - 1.0).max(1.0);
        let chosen_from = (series.len() - 1) as f64 * family.max(1) as f64;
        let p = (Estimate { value: after - before, error, freedom }.p() * chosen_from).min(1.0);
        ChangePoint { index: at[1], before, after, p }
    };
    ends.windows(3).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Random;

    /// Returns a series around 1 with this spread, correlation and share of outliers; from `at` on `up` higher.
    fn series(seed: u64, [spread, correlation, outliers]: [f64; 3], (at, up): (usize, f64)) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut state = random.normal();
        (0..50)
            .map(|run| {
                state = correlation * state + (1.0 - correlation * correlation).sqrt() * random.normal();
                let far = if random.uniform() < outliers { 0.3 } else { 0.0 };
                1.0 + spread * state + far + if run >= at { up } else { 0.0 }
            })
            .collect()
    }

    fn found(noise: [f64; 3], change: (usize, f64), count: u64) -> usize {
        let rules = Rules::default();
        (0..count).filter(|&seed| !find(&series(seed, noise, change), &rules, 12).is_empty()).count()
    }

    #[test]
    fn drift_and_outliers_seldom_look_like_a_change() {
        for noise in [[0.02, 0.0, 0.0], [0.02, 0.0, 0.02], [0.02, 0.7, 0.0], [0.05, 0.7, 0.02]] {
            let alarms = found(noise, (50, 0.0), 60);
            assert!(alarms <= 3, "{noise:?}: {alarms} of 60");
        }
    }

    #[test]
    fn steps_are_found() {
        let all = [
            ([0.01, 0.0, 0.0], 48, 0.1),
            ([0.01, 0.0, 0.02], 47, 0.1),
            ([0.01, 0.0, 0.02], 46, 0.1),
            ([0.01, 0.0, 0.02], 30, 0.06),
        ];
        let counts = all.map(|(noise, at, up)| found(noise, (at, up), 30));
        assert!(counts.iter().all(|count| *count >= 28), "of 30 steps: {counts:?}");
        let points = find(&series(3, [0.01, 0.0, 0.0], (25, 0.1)), &Rules::default(), 12);
        assert_eq!(points.iter().map(|point| point.index).collect::<Vec<_>>(), [25]);
    }

    #[test]
    fn neighbours_that_are_alike_have_a_correlation() {
        let estimated = |correlation| {
            let all: Vec<f64> = (0..40)
                .map(|seed| Noise::of(&series(seed, [0.02, correlation, 0.0], (50, 0.0)), &[]).correlation)
                .collect();
            all.iter().sum::<f64>() / 40.0
        };
        assert!(estimated(0.0) < 0.3 && estimated(0.7) > 0.6, "{} {}", estimated(0.0), estimated(0.7));
        assert!(Noise::of(&[1.0; 9], &[]).variance.abs() < 1e-12);
    }
}
