//! The biweight's centre without one group of values, for each group in turn, as a jackknife over many runs needs it.
//!
//! Calculated anew for each of a thousand groups, the centre of ten thousand values takes seconds. Here the values are
//! sorted once. Median and scale without a group are found by their ranks, and are the same to the bit. A step of the
//! biweight is a sum of polynomials of the values within reach, so sums of powers, from the middle outwards, give it
//! without a look at each value. It differs from the plain sum by rounding only.

use super::location::{CUT, MAD, STEPS, biweight};

/// A centre that is so many reaches from the middle of all values is found by a look at each value: what rounding
/// leaves of the sums grows with the fourth power of that distance.
const FAR: f64 = 30.0;

/// Sums of the powers 0 to 5.
type Powers = [f64; 6];

/// Values in order, and sums of their powers.
struct Sorted {
    values: Vec<f64>,
    /// Place of the middle, its value, and the unit of distances from it.
    split: usize,
    middle: f64,
    unit: f64,
    /// Sums over the first so many values below the split, going down, and from it on, going up.
    below: Vec<Powers>,
    above: Vec<Powers>,
}

/// Returns the centres of `values` without each of `count` groups. `group[i]` is the group of `values[i]`. `None` if
/// nothing is left without one.
pub fn centres(values: &[f64], group: &[usize], count: usize) -> Option<Vec<f64>> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (place, &index) in order.iter().enumerate() {
        places[group[index]].push(place);
    }
    let sorted = Sorted::new(order.iter().map(|&index| values[index]).collect())?;
    places.iter().map(|without| sorted.centre(without)).collect()
}

impl Sorted {
    fn new(values: Vec<f64>) -> Option<Self> {
        let mut sorted = Self { values, split: 0, middle: 0.0, unit: 0.0, below: Vec::new(), above: Vec::new() };
        (sorted.middle, sorted.unit) = sorted.place(&[])?;
        if sorted.unit > 0.0 {
            sorted.split = sorted.values.partition_point(|value| *value < sorted.middle);
            let sums = |values: &mut dyn Iterator<Item = &f64>| {
                let mut sums = vec![[0.0; 6]];
                let mut sum = [0.0; 6];
                for value in values {
                    add(&mut sum, 1.0, sorted.powers(*value));
                    sums.push(sum);
                }
                sums
            };
            let (below, above) = sorted.values.split_at(sorted.split);
            (sorted.below, sorted.above) = (sums(&mut below.iter().rev()), sums(&mut above.iter()));
        }
        Some(sorted)
    }

    fn powers(&self, value: f64) -> Powers {
        let x = (value - self.middle) / self.unit;
        [1.0, x, x * x, x * x * x, x * x * (x * x), x * x * (x * x * x)]
    }

    /// Returns the value of that rank among those that are left; `without` are places, ascending.
    fn ranked(&self, rank: usize, without: &[usize]) -> f64 {
        let mut place = rank;
        for &gone in without {
            if gone > place {
                break;
            }
            place += 1;
        }
        self.values[place]
    }

    /// Returns the median of the rest, and the reach of the biweight around it.
    fn place(&self, without: &[usize]) -> Option<(f64, f64)> {
        let left = self.values.len() - without.len();
        let half = left / 2;
        let median = |ranked: &dyn Fn(usize) -> f64| {
            let high = ranked(half);
            f64::midpoint(if left.is_multiple_of(2) { ranked(half - 1) } else { high }, high)
        };
        if left == 0 {
            return None;
        }
        let middle = median(&|rank| self.ranked(rank, without));
        // Distances grow from the middle to either side.
        let split = self.values.partition_point(|value| *value < middle);
        let lower = split - without.partition_point(|&gone| gone < split);
        let upper = left - lower;
        let down = |n: usize| (self.ranked(lower - 1 - n, without) - middle).abs();
        let up = |n: usize| (self.ranked(lower + n, without) - middle).abs();
        let ranked = |rank: usize| {
            // The search ends at the number of the `rank + 1` nearest that are below.
            let (mut least, mut most) = ((rank + 1).saturating_sub(upper), lower.min(rank + 1));
            while least < most {
                let n = usize::midpoint(least, most);
                if down(n) < up(rank - n) { least = n + 1 } else { most = n }
            }
            let below = if least > 0 { down(least - 1) } else { 0.0 };
            let above = if least <= rank { up(rank - least) } else { 0.0 };
            below.max(above)
        };
        Some((middle, CUT * (median(&ranked) / MAD)))
    }

    /// Sums of powers over the places `from..to`.
    fn sums(&self, from: usize, to: usize) -> Powers {
        let mut sum = [0.0; 6];
        if from < self.split {
            add(&mut sum, 1.0, self.below[self.split - from]);
            if to < self.split {
                add(&mut sum, -1.0, self.below[self.split - to]);
            }
        }
        if to > self.split {
            add(&mut sum, 1.0, self.above[to - self.split]);
            if from > self.split {
                add(&mut sum, -1.0, self.above[from - self.split]);
            }
        }
        sum
    }

    /// Computes the centre by a look at each value.
    fn plain(&self, without: &[usize], middle: f64, reach: f64) -> f64 {
        let mut gone = without.iter().peekable();
        let left = self.values.iter().enumerate().filter(|(place, _)| gone.next_if_eq(&place).is_none());
        biweight(&left.map(|(_, value)| *value).collect::<Vec<_>>(), middle, reach, STEPS)
    }

    fn centre(&self, without: &[usize]) -> Option<f64> {
        let (middle, reach) = self.place(without)?;
        if reach <= 0.0 {
            return Some(middle);
        }
        if self.unit <= 0.0 {
            return Some(self.plain(without, middle, reach));
        }
        let narrow = (self.unit / reach).powi(2);
        let mut at = middle;
        for _ in 0..STEPS {
            if (at - self.middle).abs() > FAR * reach {
                return Some(self.plain(without, middle, reach));
            }
            let from = self.values.partition_point(|value| *value <= at - reach);
            let to = self.values.partition_point(|value| *value < at + reach);
            let mut m = self.sums(from, to);
            for &gone in without.iter().filter(|gone| (from..to).contains(gone)) {
                add(&mut m, -1.0, self.powers(self.values[gone]));
            }
            // The sums of powers are moved to `at` by the binomial theorem.
            let a = (at - self.middle) / self.unit;
            let (a2, a3) = (a * a, a * a * a);
            let first = m[1] - a * m[0];
            let second = m[2] - 2.0 * a * m[1] + a2 * m[0];
            let third = m[3] - 3.0 * a * m[2] + 3.0 * a2 * m[1] - a3 * m[0];
            let fourth = m[4] - 4.0 * a * m[3] + 6.0 * a2 * m[2] - 4.0 * a3 * m[1] + a2 * a2 * m[0];
            let fifth =
                m[5] - 5.0 * a * m[4] + 10.0 * a2 * m[3] - 10.0 * a3 * m[2] + 5.0 * a2 * a2 * m[1] - a2 * a3 * m[0];
            // Σ (1 − (x / reach)²)² of the values, and the same times x.
            let weights = m[0] - 2.0 * narrow * second + narrow * narrow * fourth;
            let sum = first - 2.0 * narrow * third + narrow * narrow * fifth;
            let step = self.unit * (sum / weights);
            if !step.is_finite() || weights <= 0.0 {
                return Some(self.plain(without, middle, reach));
            }
            at += step;
            if step.abs() <= reach * 1e-9 {
                break;
            }
        }
        Some(at)
    }
}

fn add(to: &mut Powers, times: f64, powers: Powers) {
    to.iter_mut().zip(powers).for_each(|(to, power)| *to += times * power);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::location::centre;

    proptest! {
        /// The centres are those of the values that are left.
        #[test]
        fn a_group_less_is_a_group_less(
            values in proptest::collection::vec(prop_oneof![
                4 => -0.1..0.1_f64,
                1 => (-4..5_i32).prop_map(|n| f64::from(n) * 0.02),
                1 => -50.0..50.0_f64,
                1 => Just(0.03),
                3 => 0.05..0.050_000_1_f64,
            ], 1..120),
            groups in 2..30_usize,
            whole in any::<bool>(),
        ) {
            // Neighbours together, or each group all over the values.
            let count = groups.min(values.len());
            let group_of = |i: usize| if whole { i * count / values.len() } else { i % count };
            let group: Vec<usize> = (0..values.len()).map(group_of).collect();
            let plain: Option<Vec<f64>> = (0..count)
                .map(|out| {
                    let kept = values.iter().zip(&group).filter(|(_, own)| **own != out).map(|(value, _)| *value);
                    centre(&kept.collect::<Vec<_>>())
                })
                .collect();
            let found = centres(&values, &group, count);
            prop_assert_eq!(found.is_some(), plain.is_some());
            for (found, plain) in found.into_iter().flatten().zip(plain.into_iter().flatten()) {
                prop_assert!((found - plain).abs() < 1e-7 * (1.0 + plain.abs()), "{found} {plain}");
            }
        }
    }

    /// The values without one run may be a million times as close together.
    #[test]
    fn a_scale_that_shrinks_far_is_found() {
        for spread in [1e-3, 1e-5, 1e-6, 1e-7, 1e-9] {
            let mut values: Vec<f64> = (0..4).map(|n| 0.3 + spread * f64::from(n * n)).collect();
            values.extend([0.02, 0.05, 0.07, 0.09, 0.1]);
            let group: Vec<usize> = (0..values.len()).collect();
            let found = centres(&values, &group, values.len()).unwrap();
            for (out, found) in found.into_iter().enumerate() {
                let kept: Vec<f64> = (0..values.len()).filter(|at| *at != out).map(|at| values[at]).collect();
                let plain = centre(&kept).unwrap();
                assert!((found - plain).abs() <= 1e-9, "{spread}, without {out}: {found} {plain}");
            }
        }
    }
}
