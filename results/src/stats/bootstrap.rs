//! Bootstrap: how far a median would move if the rounds were drawn again from those that were measured.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::permutation::below;
use super::quantile::median_of;

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;
/// Values drawn at most per sample; large samples are drawn anew less often, as their medians move less.
pub(crate) const MAX_DRAWS: usize = 2_000_000;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Confidence intervals of two medians and of their ratio, new over base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intervals {
    /// Of the base's median.
    pub base: Interval,
    /// Of the new median.
    pub new: Interval,
    /// Of new over base.
    pub ratio: Interval,
    /// What the ratio is below with [`CONFIDENCE`], one-sided: the upper bound for "it is not slower than that".
    pub ratio_below: f64,
}

/// Percentile bootstrap of medians. `None` if a sample is empty, or a median is 0 so that there is no ratio.
#[must_use]
pub fn medians(base: &[f64], new: &[f64], resamples: u32, seed: u64) -> Option<Intervals> {
    if base.is_empty() || new.is_empty() {
        return None;
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let times = (resamples as usize).min(MAX_DRAWS / base.len().max(new.len())).max(999);
    let (mut bases, mut news, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut a, mut b) = (base.to_vec(), new.to_vec());
    for _ in 0..times {
        let base = redrawn(base, &mut a, &mut rng)?;
        let new = redrawn(new, &mut b, &mut rng)?;
        bases.push(base);
        news.push(new);
        ratios.push(new / base);
    }
    let ratio = interval(&mut ratios);
    let ratio_below = ratios[ratios.len() - 1 - outside(ratios.len(), 1.0 - CONFIDENCE)];
    let (base, new) = (interval(&mut bases), interval(&mut news));
    ratio.high.is_finite().then_some(Intervals { base, new, ratio, ratio_below })
}

fn redrawn(from: &[f64], into: &mut [f64], rng: &mut Xoshiro256PlusPlus) -> Option<f64> {
    for value in into.iter_mut() {
        *value = from[below(rng, from.len())];
    }
    median_of(into)
}

fn interval(values: &mut [f64]) -> Interval {
    of_draws(values, CONFIDENCE)
}

/// What the middle `share` of drawn figures spans. They are sorted, and there is at least one.
pub(crate) fn of_draws(values: &mut [f64], share: f64) -> Interval {
    values.sort_by(f64::total_cmp);
    let outside = outside(values.len(), (1.0 - share) / 2.0);
    Interval { low: values[outside], high: values[values.len() - 1 - outside] }
}

/// How many of `len` sorted values make up a tail; of 999 values and 2.5 %, 24.
fn outside(len: usize, tail: f64) -> usize {
    (1..=len).take_while(|&n| n as f64 <= tail * len as f64).count()
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::rand_core::Rng;

    use super::*;

    #[test]
    fn one_value_has_no_width_and_the_seed_decides() {
        let one = medians(&[2.0], &[3.0], 9999, 1).unwrap();
        assert_eq!((one.base, one.ratio), (Interval { low: 2.0, high: 2.0 }, Interval { low: 1.5, high: 1.5 }));
        let a: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(medians(&a, &a, 9999, 4), medians(&a, &a, 9999, 4));
        assert_eq!(medians(&[], &a, 9999, 4), None);
        assert_eq!(medians(&[0.0], &a, 9999, 4), None);
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_its_order_statistics() {
        // P(median* <= x_(k)) of 9 values is P(Binomial(9, k/9) >= 5): 0.0013 for k = 1, 0.0304 for k = 2,
        // so the 2.5 % point is x_(2), and by symmetry the 97.5 % point is x_(8).
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let found = medians(&values, &values, 99_999, 1).unwrap();
        assert_eq!(found.base, Interval { low: 2.0, high: 8.0 });
        assert!(found.ratio_below < found.ratio.high);
    }

    #[test]
    fn intervals_hold_the_true_median_about_as_often_as_they_say() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        let hits = (0..400)
            .filter(|&seed| {
                let values: Vec<f64> = (0..15).map(|_| (rng.next_u64() >> 11) as f64).collect();
                let found = medians(&values, &values, 999, seed).unwrap().base;
                (found.low..=found.high).contains(&((1_u64 << 52) as f64))
            })
            .count();
        // 380 expected; the percentile bootstrap of few values runs a few points short or over.
        assert!((350..=400).contains(&hits), "{hits}");
    }
}
