//! Statistics over rounds and runs: what may be said of two samples, and where a series changes.
//!
//! Nothing here assumes a distribution but [`change_points`]: latencies of small guests have several
//! modes and long tails, so two samples are compared by ranks and medians.

pub mod change_points;
pub mod interval;
pub mod jackknife;
pub mod leave_one_out;
pub mod location;
pub mod pareto;
mod quantile;
mod slope;

pub use quantile::median_of;
pub use quantile::{median, nearest_rank};
pub use slope::slope;

/// Returns Cliff's delta, −1 to 1: the chance that a value of `new` is above one of `base`, less the chance that it is below. 0: neither is
/// above the other; 1: every value of `new` is above every one of `base`. `None` without values.
#[must_use]
pub fn cliffs_delta(base: &[f64], new: &[f64]) -> Option<f64> {
    let mut sorted = base.to_vec();
    sorted.sort_by(f64::total_cmp);
    let pairs = base.len() as f64 * new.len() as f64;
    let sum: f64 = new
        .iter()
        .map(|&n| {
            let below = sorted.partition_point(|&b| b < n);
            let above = sorted.len() - sorted.partition_point(|&b| b <= n);
            below as f64 - above as f64
        })
        .sum();
    (pairs > 0.0).then(|| sum / pairs)
}

/// Applies Holm's adjustment: p values of a family of tests such that "below α" is wrong anywhere with a chance of at most α.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        least = least.max(p[index] * (p.len() - rank) as f64).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn cliffs_delta_counts_pairs() {
        assert!(near(cliffs_delta(&[1.0, 2.0], &[3.0, 4.0]).unwrap(), 1.0));
        assert!(near(cliffs_delta(&[3.0, 4.0], &[1.0, 2.0]).unwrap(), -1.0));
        assert!(near(cliffs_delta(&[1.0, 2.0], &[1.0, 2.0]).unwrap(), 0.0));
        // 9 pairs: 5 above, 3 below, 1 tied.
        assert!(near(cliffs_delta(&[1.0, 4.0, 6.0], &[2.0, 5.0, 6.0]).unwrap(), 2.0 / 9.0));
        assert_eq!(cliffs_delta(&[], &[1.0]), None);
    }

    #[test]
    fn holm_as_in_the_textbook() {
        // Holm 1979's procedure on p = 0.01, 0.04, 0.03, 0.005.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (is, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!(near(*is, wanted), "{adjusted:?}");
        }
        assert!(near(holm(&[0.7, 0.9])[1], 1.0));
        assert!(holm(&[]).is_empty());
    }
}
