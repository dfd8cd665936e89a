//! A slow-down planted to see whether comparisons find it (feature `planted-slowdown`, never in a release).
//!
//! Each MSR exit is made a tenth longer, world switch included: what lies between two exits of one handler is the exit
//! path and a few guest instructions, so a tenth of that time is spent spinning before re-entry.

use crate::sys;

/// The share added: 1/10.
const SHARE: u64 = 10;
/// Exits further apart than this have guest work between them, ns.
const SAME_HANDLER_NS: u64 = 100_000;

/// Spins before entries that follow an MSR exit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planted {
    limit: u64,
    last: u64,
    gap: u64,
    own: u64,
}

impl Planted {
    /// For a host TSC of this frequency.
    pub(super) const fn new(tsc_khz: u64) -> Self {
        Self { limit: tsc_khz * SAME_HANDLER_NS / 1_000_000, last: 0, gap: 0, own: 0 }
    }

    /// TSC ticks to spin after the MSR exit at host TSC `at`.
    const fn ticks(&mut self, at: u64) -> u64 {
        // What was planted before the last entry is not part of what an exit takes.
        let since = at.wrapping_sub(self.last).saturating_sub(self.own);
        if since < self.limit {
            self.gap = since;
        }
        self.last = at;
        self.own = self.gap / SHARE;
        self.own
    }

    /// Spins after the MSR exit at host TSC `at`.
    pub(super) fn spin(&mut self, at: u64) {
        let until = sys::rdtsc() + self.ticks(at);
        while sys::rdtsc() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_time_between_exits_is_added_whatever_was_added_before() {
        let mut planted = Planted::new(1_000_000);
        assert_eq!(planted.ticks(5_000_000), 0);
        assert_eq!(planted.ticks(5_008_000), 800);
        assert_eq!(planted.ticks(5_016_800), 800);
        // The next handler: its first exit is as slow as the last one.
        assert_eq!(planted.ticks(9_000_000), 800);
        assert_eq!(planted.ticks(9_010_800), 1000);
    }
}
