//! The throughput probe: a fixed piece of work that tells how fast this CPU is just now.
//!
//! A busy hyper-thread sibling, below a virtual machine even an invisible one, takes a third of a CPU's throughput for a second or
//! so, and little of its latency. Additions that do not depend on each other show it.

use crate::sys;

/// Additions: about 20 µs at 0.25 ns each.
const ADDITIONS: u64 = 80_000;

/// Measures the TSC ticks that the work takes here and now.
pub(crate) fn ticks() -> u64 {
    let begin = sys::rdtsc();
    sys::add_independently(ADDITIONS);
    sys::rdtsc().saturating_sub(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done() {
        // No CPU adds more than 16 pairs of numbers in a tick of its TSC.
        assert!(ticks() > ADDITIONS / 16);
    }
}
