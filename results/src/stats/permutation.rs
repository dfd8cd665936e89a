//! Permutation test of two samples by the sum of ranks.
//!
//! If it made no difference which sample a value came from, every assignment of the values to the samples would be as
//! likely as the one that was seen. The p value is the share of assignments whose rank sum lies at least as far from its
//! expectation. Ranks (ties share their mean) make the test indifferent to how far an outlying round is out.
//!
//! Small samples are counted exactly: the number of ways to reach each rank sum follows from a recursion over the values,
//! so that no assignment is enumerated. Larger ones are drawn from a seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Fewest assignments drawn where they are too many to count.
pub const MIN_RESAMPLES: u32 = 9_999;
/// Steps of the exact recursion that are worth it: about ten milliseconds.
const EXACT_STEPS: u64 = 20_000_000;

/// What a permutation test found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PermutationTest {
    /// Two-sided p value.
    pub p: f64,
    /// Whether every assignment was counted, or some were drawn.
    pub exact: bool,
}

/// Ranks from 1, doubled so that shared ranks are whole.
fn doubled_ranks(values: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let same = order[begin..].iter().take_while(|&&i| values[i] <= values[order[begin]]).count();
        // Ranks begin + 1 … begin + same share their mean.
        for &index in &order[begin..begin + same] {
            ranks[index] = (2 * begin + same + 1) as u64;
        }
        begin += same;
    }
    ranks
}

/// Tests whether `a` and `b` differ. `None` if one of them is empty.
#[must_use]
pub fn test(a: &[f64], b: &[f64], resamples: u32, seed: u64) -> Option<PermutationTest> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let ranks = doubled_ranks(&all);
    // The rank sums of the two samples mirror each other: the smaller sample is less work.
    let chosen = if a.len() <= b.len() { &ranks[..a.len()] } else { &ranks[a.len()..] };
    let size = chosen.len();
    let rank_sum: u64 = chosen.iter().sum();
    // The doubled rank sum's expectation is size × (n + 1); whole, so distances are exact.
    let middle = size as u64 * (ranks.len() as u64 + 1);
    let distance = rank_sum.abs_diff(middle);
    let top: u64 = ranks.iter().sum();
    if (ranks.len() as u64).saturating_mul(size as u64).saturating_mul(top) <= EXACT_STEPS {
        return Some(PermutationTest { p: exact(&ranks, size, middle, distance), exact: true });
    }
    let p = drawn(&ranks, size, middle, distance, resamples.max(MIN_RESAMPLES), seed);
    Some(PermutationTest { p, exact: false })
}

/// Counts the subsets of `size` ranks by their sum.
fn exact(ranks: &[u64], size: usize, middle: u64, distance: u64) -> f64 {
    let top = ranks.iter().sum::<u64>() as usize;
    // ways[k][s]: subsets of k ranks with sum s among those seen so far.
    let mut ways = vec![vec![0.0_f64; top + 1]; size + 1];
    ways[0][0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        let rank = rank as usize;
        for k in (1..=size.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            for (to, from) in more[0][rank..].iter_mut().zip(&fewer[k - 1]) {
                *to += from;
            }
        }
    }
    let all: f64 = ways[size].iter().sum();
    let far: f64 = (0_u64..).zip(&ways[size]).filter(|(sum, _)| sum.abs_diff(middle) >= distance).map(|(_, n)| n).sum();
    (far / all).min(1.0)
}

/// Draws assignments; the one that was seen counts as one of them, so that p is never 0.
fn drawn(ranks: &[u64], size: usize, middle: u64, distance: u64, resamples: u32, seed: u64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut ranks = ranks.to_vec();
    let mut far = 1_u32;
    for _ in 0..resamples {
        let mut sum = 0;
        for i in 0..size {
            let j = i + below(&mut rng, ranks.len() - i);
            ranks.swap(i, j);
            sum += ranks[i];
        }
        far += u32::from(sum.abs_diff(middle) >= distance);
    }
    f64::from(far) / (f64::from(resamples) + 1.0)
}

/// A number below `bound`; the bias of the multiplication is below 2^-32 for any sample that fits memory.
pub(crate) fn below(rng: &mut Xoshiro256PlusPlus, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// The smallest p value that samples of these sizes can give: two assignments of all are the farthest out.
#[must_use]
pub fn smallest_p(a: usize, b: usize) -> f64 {
    let (few, all) = (a.min(b), a + b);
    let mut assignments = 1.0_f64;
    for i in 0..few {
        assignments *= (all - i) as f64 / (i + 1) as f64;
    }
    (2.0 / assignments).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn p(a: &[f64], b: &[f64]) -> f64 {
        let found = test(a, b, MIN_RESAMPLES, 1).unwrap();
        assert!(found.exact);
        found.p
    }

    #[test]
    fn exact_p_values_are_those_of_published_tables() {
        // Mann-Whitney's table, as in R's wilcox.test(exact = TRUE): U = 0 for 3 and 3, 4 and 4, 5 and 5, 10 and 10.
        for (n, wanted) in [(3_u32, 0.1), (4, 2.0 / 70.0), (5, 2.0 / 252.0), (10, 2.0 / 184_756.0)] {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = (n..2 * n).map(f64::from).collect();
            assert!((p(&low, &high) - wanted).abs() < 1e-12, "{n}");
            assert!((smallest_p(low.len(), high.len()) - wanted).abs() < 1e-12);
        }
        // Hollander & Wolfe's permeability data (R's example of wilcox.test): W = 35, one-sided p 0.1272, two-sided 0.2544.
        let x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let y = [1.15, 0.88, 0.90, 0.74, 1.21];
        assert!((p(&x, &y) - 0.2544).abs() < 5e-5, "{}", p(&x, &y));
    }

    #[test]
    fn ties_share_their_rank() {
        assert_eq!(doubled_ranks(&[5.0, 1.0, 5.0, 9.0]), [5, 2, 5, 8]);
        assert!((p(&[1.0, 1.0, 1.0], &[1.0, 1.0]) - 1.0).abs() < 1e-12);
        // {1, 1, 2} against {2, 3, 3}: 2 of 20 subsets reach that sum, 2 its mirror.
        assert!((p(&[1.0, 1.0, 2.0], &[2.0, 3.0, 3.0]) - 4.0 / 20.0).abs() < 1e-12);
    }

    #[test]
    fn drawn_and_counted_p_values_agree() {
        let a: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
        let b: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 12) + 2.6).collect();
        let all: Vec<f64> = a.iter().chain(&b).copied().collect();
        let ranks = doubled_ranks(&all);
        let (seen, middle) = (ranks[..12].iter().sum::<u64>(), 12 * 25);
        let exact = p(&a, &b);
        let drawn = drawn(&ranks, 12, middle, seen.abs_diff(middle), 99_999, 3);
        // Four standard errors of 10^5 draws.
        assert!((exact - drawn).abs() < 4.0 * (exact / 1e5).sqrt(), "{exact} {drawn}");
    }

    #[test]
    fn p_is_uniform_where_nothing_differs() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut draw = |n| (0..n).map(|_| rng.next_u64() as f64).collect::<Vec<f64>>();
        let all: Vec<f64> = (0..4000).map(|_| p(&draw(9), &draw(10))).collect();
        for level in [0.01, 0.05, 0.2, 0.5] {
            let share = all.iter().filter(|&&p| p <= level).count() as f64 / all.len() as f64;
            // The test is discrete, so it may fall a little short; four standard errors above, two per cent below.
            let error = (level * (1.0 - level) / all.len() as f64).sqrt();
            assert!(share < level + 4.0 * error && share > level - 4.0 * error - 0.02, "{level}: {share}");
        }
    }

    #[test]
    fn large_samples_are_drawn_from_the_seed() {
        let a: Vec<f64> = (0..300).map(f64::from).collect();
        let b: Vec<f64> = (0..300).map(|n| f64::from(n) + 40.0).collect();
        let first = test(&a, &b, 1, 5).unwrap();
        assert!(!first.exact && first.p > 0.0);
        assert_eq!(Some(first), test(&a, &b, 1, 5));
        assert!((first.p - 1.0 / 10_000.0).abs() < 1e-4 + 2e-4);
        assert_eq!(test(&[], &b, 1, 5), None);
    }

    proptest! {
        #[test]
        fn p_is_a_probability_that_swapping_does_not_change(
            a in prop::collection::vec(0_u8..20, 1..9), b in prop::collection::vec(0_u8..20, 1..9),
        ) {
            let (a, b): (Vec<f64>, Vec<f64>) =
                (a.into_iter().map(f64::from).collect(), b.into_iter().map(f64::from).collect());
            let there = p(&a, &b);
            prop_assert!(there > 0.0 && there <= 1.0);
            prop_assert!((there - p(&b, &a)).abs() < 1e-9);
            // Half of it where only one side has a farthest assignment, by ties.
            prop_assert!(there >= smallest_p(a.len(), b.len()) / 2.0 - 1e-12);
        }

        #[test]
        fn p_falls_as_samples_move_apart(values in prop::collection::vec(0_u16..1000, 5)) {
            let a: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let mut last = 1.0;
            for shift in [500.0, 1000.0, 2000.0] {
                let b: Vec<f64> = a.iter().map(|v| v + shift).collect();
                let now = p(&a, &b);
                prop_assert!(now <= last + 1e-12);
                last = now;
            }
        }
    }
}
