//! A slow-down planted to see whether comparisons find it (feature `planted-slowdown`, never in a release).
//!
//! Each MSR exit is made a tenth longer, world switch included: what lies between two exits of one handler is the exit
//! path and a few guest instructions, so a tenth of that time is spent spinning before re-entry. When the tool is compiled,
//! VPMU_PLANTED_SHARE=20 makes that a twentieth, and VPMU_PLANTED_ARM=reuse leaves all arms but that one alone.

use crate::sys;

/// 1 / the share added.
const SHARE: u64 = match option_env!("VPMU_PLANTED_SHARE") {
    Some(text) => number(text.as_bytes()),
    None => 10,
};
/// The only strategy that is slowed down; `None`: all arms are.
const ARM: Option<&str> = option_env!("VPMU_PLANTED_ARM");

/// Reads a decimal number above 0.
const fn number(text: &[u8]) -> u64 {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        assert!(text[at].is_ascii_digit(), "VPMU_PLANTED_SHARE is no number");
        value = value * 10 + (text[at] - b'0') as u64;
        at += 1;
    }
    assert!(value > 0, "VPMU_PLANTED_SHARE is 0");
    value
}
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
    /// Creates a slow-down for a host TSC of this frequency, and the strategy behind the counters.
    pub(super) fn new(tsc_khz: u64, strategy: Option<&str>) -> Self {
        let slowed = ARM.is_none() || ARM == strategy;
        let limit = if slowed { tsc_khz * SAME_HANDLER_NS / 1_000_000 } else { 0 };
        Self { limit, last: 0, gap: 0, own: 0 }
    }

    /// Returns TSC ticks to spin after the MSR exit at host TSC `at`.
    const fn ticks(&mut self, at: u64) -> u64 {
        // The delay that was planted before the last entry is no part of the exit's time.
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
        let mut planted = Planted::new(1_000_000, ARM);
        assert_eq!(planted.ticks(5_000_000), 0);
        let share = 8000 / SHARE;
        assert_eq!(planted.ticks(5_008_000), share);
        assert_eq!(planted.ticks(5_016_000 + share), share);
        // The next handler: its first exit is as slow as the last one.
        assert_eq!(planted.ticks(9_000_000), share);
        assert_eq!(planted.ticks(9_010_000 + share), 10_000 / SHARE);
    }

    #[test]
    fn numbers_are_read_when_the_tool_is_compiled() {
        const TWENTY: u64 = number(b"20");
        assert_eq!(TWENTY, 20);
    }
}
