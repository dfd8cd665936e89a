//! Change points of a series: E-divisive with a t-test.
//!
//! The energy statistic of Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
//! Multivariate Data" (2014), names the place where a series splits best; a t-test says whether the split is real, and the
//! search goes on in both parts. As in Fleming et al., "Hunter: Using Change Point Detection to Hunt for Performance
//! Regressions" (2023), this happens within overlapping windows and with a tenfold p at first, so that a change is found
//! although the series later changes back; then the weakest points are taken away until all that are left are significant
//! and strong.

use super::t_test;

/// Rules for accepting a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Values looked at together, at least 4.
    pub window: usize,
    /// Largest p value.
    pub p: f64,
    /// Least relative change of the mean, such as 0.05.
    pub strength: f64,
}

impl Default for Rules {
    /// Returns Hunter's rules: windows of 50, p below 0.001; and 5 %, as `compare` asks for.
    fn default() -> Self {
        Self { window: 50, p: 0.001, strength: 0.05 }
    }
}

/// A place where a series changes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct ChangePoint {
    /// First value after the change, from 0.
    pub index: usize,
    /// Mean from the change point before to this one.
    pub before: f64,
    /// Mean from here to the next.
    pub after: f64,
    /// Two-sided p value of the t-test between the two.
    pub p: f64,
}

impl ChangePoint {
    fn new(series: &[f64], begin: usize, index: usize, end: usize) -> Self {
        let (left, right) = (&series[begin..index], &series[index..end]);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        Self { index, before: mean(left), after: mean(right), p: t_test::p(left, right) }
    }

    /// Returns the relative change, such as 0.1 for 10 % more; `None` from 0.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.after / self.before - 1.0)
    }

    /// Returns the larger of the relative changes there and back, so that a fall counts as much as the rise it undoes.
    fn magnitude(&self) -> f64 {
        let [low, high] = [self.before.abs().min(self.after.abs()), self.before.abs().max(self.after.abs())];
        if high <= 0.0 { 0.0 } else { (high - low) / low }
    }
}

/// Finds every change point of a series, in order.
#[must_use]
pub fn find(series: &[f64], rules: &Rules) -> Vec<ChangePoint> {
    let window = rules.window.max(4);
    let loose = (rules.p * 10.0).min(0.5).max(rules.p);
    let mut places = Vec::new();
    let mut start = 0;
    while start < series.len() {
        let end = (start + window).min(series.len());
        let found = divide(&series[start..end], loose);
        let last = found.last().map_or(0, |index| start + index);
        places.extend(found.into_iter().map(|index| start + index));
        if end == series.len() {
            break;
        }
        // The next window begins half a window on, or at the last change: what lies before that is settled.
        start = last.max(start + window / 2);
    }
    places.sort_unstable();
    places.dedup();
    keep_strong(series, places, rules)
}

/// Splits where the statistic is highest until that split is not significant.
fn divide(series: &[f64], p: f64) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::new();
    loop {
        let best = parts(series.len(), &places)
            .filter_map(|(begin, end)| {
                let (at, energy) = best_split(&series[begin..end])?;
                Some((energy, begin, begin + at, end))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((_, begin, index, end)) if t_test::p(&series[begin..index], &series[index..end]) <= p => {
                places.push(index);
                places.sort_unstable();
            }
            _ => return places,
        }
    }
}

/// Returns the parts into which `places` cut a series of `len`, as (begin, end).
fn parts(len: usize, places: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let begins = std::iter::once(0).chain(places.iter().copied());
    let ends = places.iter().copied().chain(std::iter::once(len));
    begins.zip(ends)
}

/// Returns the τ at which `[0, τ)` and `[τ, κ)` differ most by the energy statistic, over all τ < κ, and the difference.
///
/// q(τ, κ) = 2 n m / (n + m) × (E|X − Y| − E|X − X'| / 2 − E|Y − Y'| / 2) up to the unbiased factors of the paper:
/// n = τ values before, m = κ − τ after, and the expectations are means over distinct pairs.
fn best_split(series: &[f64]) -> Option<(usize, f64)> {
    let len = series.len();
    let mut best: Option<(usize, f64)> = None;
    // Sum of distances within [0, τ).
    let mut before = 0.0;
    for split in 1..len {
        before += series[..split - 1].iter().map(|x| (x - series[split - 1]).abs()).sum::<f64>();
        let (mut between, mut after) = (0.0, 0.0);
        for end in split + 1..=len {
            let new = series[end - 1];
            between += series[..split].iter().map(|x| (x - new).abs()).sum::<f64>();
            after += series[split..end - 1].iter().map(|y| (y - new).abs()).sum::<f64>();
            let (n, m) = (split as f64, (end - split) as f64);
            let within = |sum: f64, own: f64, other: f64| {
                if own < 2.0 { 0.0 } else { 2.0 * other / (n + m) / (own - 1.0) * sum }
            };
            let energy = 2.0 / (n + m) * between - within(before, n, m) - within(after, m, n);
            if best.is_none_or(|(_, most)| energy > most) {
                best = Some((split, energy));
            }
        }
    }
    best
}

/// Takes away the weakest point until all are significant and strong: a point's neighbours change as others go.
fn keep_strong(series: &[f64], mut places: Vec<usize>, rules: &Rules) -> Vec<ChangePoint> {
    loop {
        let parts: Vec<(usize, usize)> = parts(series.len(), &places).collect();
        let points: Vec<ChangePoint> =
            parts.windows(2).map(|two| ChangePoint::new(series, two[0].0, two[1].0, two[1].1)).collect();
        let unlikely = points.iter().max_by(|a, b| a.p.total_cmp(&b.p));
        let slight = points.iter().min_by(|a, b| a.magnitude().total_cmp(&b.magnitude()));
        let weakest = match (unlikely, slight) {
            (Some(point), _) if point.p >= rules.p => point.index,
            (_, Some(point)) if point.magnitude() < rules.strength => point.index,
            _ => return points,
        };
        places.retain(|&index| index != weakest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    fn indices(series: &[f64], rules: Rules) -> Vec<usize> {
        find(series, &rules).iter().map(|point| point.index).collect()
    }

    /// The series and change points that Apache Otava publishes with its tests (tests/series_test.py, analysis_test.py).
    const FALL: [f64; 11] = [1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55];
    const SLIP: [f64; 11] = [2.02, 2.03, 2.01, 2.04, 1.82, 1.85, 1.79, 1.81, 1.80, 1.76, 1.78];
    const HALF: [f64; 20] = [
        1.02, 0.95, 0.99, 1.00, 1.12, 1.00, 1.01, 0.98, 1.01, 0.96, 0.50, 0.51, 0.48, 0.48, 0.55, 0.50, 0.49, 0.51,
        0.50, 0.49,
    ];

    #[test]
    fn published_examples_give_the_published_points() {
        let any = Rules { strength: 0.0, ..Rules::default() };
        assert_eq!(indices(&FALL, any), [6]);
        assert_eq!(indices(&SLIP, any), [4]);
        assert_eq!(indices(&HALF, Rules { window: 10, p: 0.0001, strength: 0.0 }), [10]);
        // With a least magnitude of 20 % only the fall is left.
        let strong = Rules { strength: 0.2, ..any };
        assert_eq!((indices(&FALL, strong), indices(&SLIP, strong)), (vec![6], vec![]));
    }

    #[test]
    fn the_energy_statistic_by_its_definition() {
        // X = {0, 0}, Y = {1, 1}: all between-distances are 1, all within 0: 2 / 4 × 4 = 2.
        let (at, energy) = best_split(&[0.0, 0.0, 1.0, 1.0]).unwrap();
        assert_eq!(at, 2);
        assert!((energy - 2.0).abs() < 1e-12);
        assert_eq!(best_split(&[1.0]), None);
    }

    #[test]
    fn a_change_that_is_undone_is_two_changes() {
        let noise = |n: usize| ((n * 7919) % 13) as f64 / 100.0;
        let series: Vec<f64> = (0..90).map(|n| if (40..60).contains(&n) { 11.0 } else { 10.0 } + noise(n)).collect();
        let points = find(&series, &Rules::default());
        assert_eq!(points.iter().map(|point| point.index).collect::<Vec<_>>(), [40, 60]);
        assert!((points[0].change().unwrap() - 0.1).abs() < 0.01);
        assert!(points[1].change().unwrap() < 0.0);
    }

    #[test]
    fn noise_alone_seldom_has_a_change_point() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let alarms = (0..60)
            .filter(|_| {
                let series: Vec<f64> = (0..60).map(|_| 100.0 + (rng.next_u64() % 1000) as f64 / 100.0).collect();
                !find(&series, &Rules { strength: 0.0, ..Rules::default() }).is_empty()
            })
            .count();
        // The split is chosen before it is tested, so more than 0.1 % of such series have one.
        assert!(alarms <= 9, "{alarms} of 60");
    }

    proptest! {
        // A window is cubic work, and tests are not optimized.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn any_series_gives_ordered_points_within(
            series in prop::collection::vec(0.0_f64..1e9, 0..120), window in 2_usize..60,
        ) {
            let points = find(&series, &Rules { window, ..Rules::default() });
            prop_assert!(points.windows(2).all(|pair| pair[0].index < pair[1].index));
            prop_assert!(points.iter().all(|point| point.index > 0 && point.index < series.len() && point.p < 0.001));
        }

        #[test]
        fn a_step_far_above_the_noise_is_found_where_it_is(at in 6_usize..34, up in 1.2_f64..3.0) {
            let series: Vec<f64> =
                (0..40).map(|n| if n < at { 1.0 } else { up } + ((n * 31) % 7) as f64 / 1000.0).collect();
            prop_assert_eq!(indices(&series, Rules::default()), vec![at]);
        }
    }
}
