//! The guest's TSC: its map to the host's.

use guest::abi::{Report, SYNC_ROUNDS};

use crate::outcome::TscMap;

/// Converts ticks of a TSC to nanoseconds without dividing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickClock {
    ns_per_tick_q32: u64,
}

impl TickClock {
    pub(crate) fn new(khz: u64) -> Self {
        Self { ns_per_tick_q32: ((1_000_000u128 << 32) / u128::from(khz.max(1))) as u64 }
    }

    pub(crate) fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }
}

/// Computes the offset from the payload's exchanges: it read its TSC before and after each, the VMM read the host's in
/// between (`host`), so each exchange bounds the offset from both sides and all of them together bound it best.
pub(crate) fn map(khz: u64, report: Option<&Report>, host: &[u64]) -> TscMap {
    let unknown = TscMap { khz, offset: 0, uncertainty: u64::MAX };
    let Some(report) = report else { return unknown };
    let rounds = usize::try_from(report.syncs).unwrap_or(usize::MAX).min(SYNC_ROUNDS).min(host.len());
    let mut bounds: Option<(i64, i64)> = None;
    for (round, &host) in host.iter().enumerate().take(rounds) {
        let difference = |guest: u64| guest.wrapping_sub(host).cast_signed();
        let (low, high) = (difference(report.sync_before[round]), difference(report.sync_after[round]));
        let (known_low, known_high) = bounds.unwrap_or((low, high));
        let (low, high) = (low.max(known_low), high.min(known_high));
        if low > high {
            // The TSC jumped, or the guest wrote nonsense.
            return unknown;
        }
        bounds = Some((low, high));
    }
    let Some((low, high)) = bounds else { return unknown };
    let half = high.abs_diff(low) / 2;
    TscMap { khz, offset: low.saturating_add_unsigned(half), uncertainty: half + 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_true_offset_lies_within_the_uncertainty(
            offset in any::<i32>(),
            rounds in prop::collection::vec((0..50_000u64, 0..50_000u64), 1..SYNC_ROUNDS),
        ) {
            let offset = i64::from(offset) * 1000;
            let mut report = Report { syncs: rounds.len() as u64, ..Report::default() };
            let mut host = Vec::new();
            for (i, &(out, back)) in rounds.iter().enumerate() {
                let now = (1 << 50) + i as u64 * 200_000;
                host.push(now);
                report.sync_before[i] = (now - out).wrapping_add_signed(offset);
                report.sync_after[i] = (now + back).wrapping_add_signed(offset);
            }
            let map = map(2_000_000, Some(&report), &host);
            prop_assert!(map.offset.abs_diff(offset) <= map.uncertainty);
            prop_assert!(map.uncertainty <= 50_001);
        }
    }

    #[test]
    fn nonsense_is_unknown() {
        let mut report = Report { syncs: 2, ..Report::default() };
        (report.sync_before, report.sync_after) = ([5; SYNC_ROUNDS], [1; SYNC_ROUNDS]);
        assert_eq!(map(1, Some(&report), &[3, 3]).uncertainty, u64::MAX);
        assert_eq!(map(1, None, &[]).uncertainty, u64::MAX);
        assert_eq!(map(1, Some(&Report::default()), &[]).uncertainty, u64::MAX);
    }

    #[test]
    fn ticks_become_nanoseconds() {
        assert_eq!(TickClock::new(2_000_000).ns(2_000_000_000), 1_000_000_000);
        assert!(TickClock::new(2_596_000).ns(2_596_000).abs_diff(1_000_000) <= 1);
    }
}
