//! Random numbers: one stream per vCPU, so that no result depends on the order of simulation.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random numbers of one vCPU.
pub type Stream = Xoshiro256PlusPlus;

/// Stream of `vcpu` on host number `host`.
#[must_use]
pub fn stream(seed: u64, host: u64, vcpu: u64) -> Stream {
    /// Finalizer of SplitMix64: decorrelates neighbouring numbers.
    const fn mix(n: u64) -> u64 {
        let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }
    Stream::seed_from_u64(mix(mix(mix(seed) ^ host) ^ vcpu))
}

/// A number from 0 to `below` − 1 (0 if `below` is 0).
#[inline]
pub fn draw(stream: &mut Stream, below: u64) -> u64 {
    // High half of the product: uniform to 2^-64, without a division.
    ((u128::from(stream.next_u64()) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, host, vcpu| stream(seed, host, vcpu).next_u64();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let all = [first(1, 0, 0), first(1, 0, 1), first(1, 1, 0), first(2, 0, 0), first(0, 1, 0)];
        for (i, n) in all.iter().enumerate() {
            assert!(!all[..i].contains(n));
        }
    }

    #[test]
    fn draws_cover_their_range_and_no_more() {
        let mut stream = stream(1, 0, 0);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[draw(&mut stream, 5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
        assert_eq!(draw(&mut stream, 0), 0);
    }
}
