//! Random numbers: a stream per vCPU and purpose.
//!
//! No result depends on the order of simulation, and arms of one seed meet the same world: what one of them draws for
//! its host operations shifts neither the other tasks of its host nor the cost of its exits.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random numbers of one vCPU for one purpose.
pub(crate) type Stream = Xoshiro256PlusPlus;

/// Purpose of a stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times at which other tasks take the CPU, and their lengths.
    Others,
    /// Cost of an MSR exit.
    Exit,
    /// Additional cost of an MSR exit in the tick.
    TickExit,
    /// Cost of a port write.
    Io,
    /// Work of the vPMU.
    Vmm,
    /// Cost of a write to the local APIC.
    Apic,
    /// Time from an overflow to the vPMU.
    Signal,
    /// Injection of a PMI.
    Inject,
    /// Time from an entry to the first instruction of a handler.
    Interrupt,
    /// Cost of creating an event.
    Open,
    /// Decision whether creating an event fails.
    Refused,
    /// Cost of closing an event.
    Release,
    /// Cost of pausing.
    Pause,
    /// Cost of resuming.
    Resume,
    /// Additional cost of a resume for each running event.
    ResumeOther,
    /// Cost of setting a period.
    Period,
    /// Cost of reading.
    Read,
    /// Cost of events at a context switch.
    Switch,
    /// Cost of switching a PMU that the guest owns.
    PmuSwitch,
    /// Cost of an access to a register of such a PMU.
    Register,
    /// Cost of an expiry that no guest in ring 3 waits for.
    Expiry,
    /// Rest of a guest between two turns.
    Rest,
    /// Place of the rotation at which a turn begins.
    Rotation,
}

impl Purpose {
    /// Number of purposes.
    const COUNT: usize = Self::Rotation as usize + 1;
}

/// The streams of one vCPU.
#[derive(Clone, Debug)]
pub struct Streams([Stream; Purpose::COUNT]);

impl Streams {
    /// Creates the streams of `vcpu` on host number `host`.
    pub fn new(seed: u64, host: u64, vcpu: u64) -> Self {
        let vcpu = mix(mix(mix(seed) ^ host) ^ vcpu);
        Self(std::array::from_fn(|purpose| Stream::seed_from_u64(mix(vcpu ^ purpose as u64))))
    }

    /// Returns the stream of a purpose.
    #[inline]
    pub const fn of(&mut self, purpose: Purpose) -> &mut Stream {
        &mut self.0[purpose as usize]
    }
}

/// Mixes a number with the finalizer of SplitMix64, which decorrelates neighbouring numbers.
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Draws a number from 0 to `below` − 1 (0 if `below` is 0).
#[inline]
pub(crate) fn draw(stream: &mut Stream, below: u64) -> u64 {
    draw_with_rest(stream, below).0
}

/// Draws a number from 0 to `below` − 1, and a fraction that is independent of it: how far towards the next one, in units of 2^-64.
#[inline]
pub(crate) fn draw_with_rest(stream: &mut Stream, below: u64) -> (u64, u64) {
    // High half of the product: uniform to 2^-64, without a division.
    let product = u128::from(stream.next_u64()) * u128::from(below);
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, host, vcpu, purpose| Streams::new(seed, host, vcpu).of(purpose).next_u64();
        assert_eq!(first(1, 2, 3, Purpose::Exit), first(1, 2, 3, Purpose::Exit));
        let hosts = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (0, 1, 0)];
        let purposes = [Purpose::Others, Purpose::Exit, Purpose::Register, Purpose::Expiry];
        let all: Vec<u64> = hosts
            .iter()
            .flat_map(|&(seed, host, vcpu)| purposes.map(|purpose| first(seed, host, vcpu, purpose)))
            .collect();
        for (i, n) in all.iter().enumerate() {
            assert!(!all[..i].contains(n));
        }
    }

    #[test]
    fn a_draw_of_one_purpose_shifts_no_other() {
        let (mut one, mut other) = (Streams::new(1, 0, 0), Streams::new(1, 0, 0));
        other.of(Purpose::Pause).next_u64();
        assert_eq!(one.of(Purpose::Exit), other.of(Purpose::Exit));
        assert_ne!(one.of(Purpose::Pause), other.of(Purpose::Pause));
    }

    #[test]
    fn draws_cover_their_range_and_no_more() {
        let mut streams = Streams::new(1, 0, 0);
        let stream = streams.of(Purpose::Exit);
        let (mut seen, mut upper) = ([0_u32; 5], 0_u32);
        for _ in 0..1000 {
            let (n, rest) = draw_with_rest(stream, 5);
            seen[n as usize] += 1;
            upper += u32::from(rest >> 63 == 1);
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
        assert!((400..600).contains(&upper), "{upper}");
        assert_eq!(draw(stream, 0), 0);
    }
}
