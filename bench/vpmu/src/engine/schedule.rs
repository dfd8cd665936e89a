//! The order of arms within each round, drawn from the seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Draws a number below `bound`, every one equally likely. `bound` must not be 0.
fn below(rng: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    // The largest multiple of `bound`: what lies above would favour small results.
    let limit = u64::MAX - u64::MAX % bound;
    loop {
        let drawn = rng.next_u64();
        if drawn < limit {
            return drawn % bound;
        }
    }
}

/// Returns `0..arms` in random order.
pub(super) fn next_round(rng: &mut Xoshiro256PlusPlus, arms: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..arms).collect();
    let mut order = Vec::with_capacity(arms);
    while !left.is_empty() {
        let drawn = below(rng, left.len() as u64);
        order.push(left.remove(usize::try_from(drawn).unwrap_or(0)));
    }
    order
}
