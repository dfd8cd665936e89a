//! The guest's TSC: its map to the host's, and a modelled cost of the guest's PMU registers, for which it is held back.

use std::io;

use guest::abi::{Report, SYNC_ROUNDS};
use kvm_ioctls::VcpuFd;

use crate::outcome::{HeldBack, TscMap};
use crate::sys;

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

// An access that exits costs the guest the way out of it, the VMM's work and the way back in. A guest that is a host
// itself has a driver that touches the PMU's registers as if each were a processor's, so that its figures would be
// those of the exits. Here the guest's TSC loses the time of an access, less its modelled cost (`KVM_VCPU_TSC_OFFSET`,
// Linux 5.16, 828ca89628bf). Events of the host that stand behind the counters go on counting.

/// This part of the least time that KVM_RUN took is held back. It has the ways in and out and the guest's own time in
/// between, so that more could move the guest's TSC back.
const SIXTEENTHS: u64 = 15;

/// The guest's TSC, and the cost of an access to one of its PMU's registers. Times are TSC ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterCost {
    wanted: u64,
    /// KVM's offset of the guest's TSC.
    offset: u64,
    entered_at: u64,
    /// The least time of a KVM_RUN that ended at an access, once there was one before this.
    least_run: Option<u64>,
    /// The least time that setting the offset took: more could move the guest's TSC back.
    least_set: Option<u64>,
    /// The offset was set, and no access has paid for that yet.
    owes: bool,
    accesses: u64,
    short: u64,
    held: u64,
}

impl RegisterCost {
    /// Creates the account of accesses that are to cost the guest `wanted` ticks.
    ///
    /// # Errors
    /// KVM's, if it cannot shift the TSC of a vCPU.
    pub(crate) fn new(fd: &VcpuFd, wanted: u64) -> io::Result<Self> {
        let offset = sys::tsc_offset(fd)?;
        sys::set_tsc_offset(fd, offset)?;
        Ok(Self::with_offset(offset, wanted))
    }

    const fn with_offset(offset: u64, wanted: u64) -> Self {
        Self {
            wanted,
            offset,
            entered_at: 0,
            least_run: None,
            least_set: None,
            owes: false,
            accesses: 0,
            short: 0,
            held: 0,
        }
    }

    /// Notes that KVM_RUN begins.
    pub(super) const fn enters(&mut self, now: u64) {
        self.entered_at = now;
    }

    /// Notes that the guest goes on after an access for which KVM_RUN returned at `returned_at`, and which was served
    /// at `served_at`.
    #[cold]
    pub(super) fn goes_on(&mut self, fd: &VcpuFd, returned_at: u64, served_at: u64) {
        if !self.account(returned_at, served_at) {
            return;
        }
        let begin = sys::rdtsc();
        // KVM took one before the vCPU's first entry; this one asks for nothing more.
        if sys::set_tsc_offset(fd, self.offset).is_ok() {
            self.was_set(sys::rdtsc().saturating_sub(begin));
        }
    }

    /// Notes that setting the offset took `took` ticks, which the guest sees at first.
    fn was_set(&mut self, took: u64) {
        self.least_set = Some(self.least_set.map_or(took, |least| least.min(took)));
        self.owes = true;
    }

    /// Takes the time of an access from the offset. Returns whether it has changed.
    fn account(&mut self, returned_at: u64, served_at: u64) -> bool {
        let run = returned_at.saturating_sub(self.entered_at);
        // The first one is the guest's own time to an unknown part.
        let ways = self.least_run.map_or(0, |least| least.min(run) / 16 * SIXTEENTHS);
        self.least_run = Some(self.least_run.map_or(run, |least| least.min(run)));
        let owed = if std::mem::take(&mut self.owes) { self.least_set.unwrap_or(0) } else { 0 };
        let held = (served_at.saturating_sub(returned_at) + ways + owed).saturating_sub(self.wanted);
        if held == 0 {
            self.short += 1;
            return false;
        }
        self.offset = self.offset.wrapping_sub(held);
        (self.accesses, self.held) = (self.accesses + 1, self.held + held);
        true
    }

    /// Returns what was held back so far, in ns by the clock `ns`.
    pub(super) fn held_back(&self, ns: impl Fn(u64) -> u64) -> HeldBack {
        HeldBack { accesses: self.accesses, ns: ns(self.held), short: self.short }
    }
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

    #[test]
    fn an_access_costs_what_it_shall() {
        let mut cost = RegisterCost::with_offset(1_000_000, 100);
        // Nothing is known of the guest's share of the first run.
        cost.enters(3000);
        assert!(cost.account(4600, 5000));
        assert_eq!(cost.offset, 1_000_000 - (400 - 100));
        // The run took 1600 ticks, the VMM 400.
        cost.enters(5000);
        assert!(cost.account(6600, 7000));
        assert_eq!(cost.offset, 1_000_000 - 300 - (400 + 1500 - 100));
        // A longer run is the guest's own time.
        cost.enters(7000);
        assert!(cost.account(20_000, 20_400));
        assert_eq!(cost.held_back(|ticks| ticks / 2), HeldBack { accesses: 3, ns: (300 + 1800 + 1800) / 2, short: 0 });
    }

    #[test]
    fn setting_the_offset_is_paid_by_what_it_takes_at_least() {
        let mut cost = RegisterCost::with_offset(1_000_000, 0);
        cost.enters(0);
        assert!(cost.account(0, 100));
        cost.was_set(50);
        cost.enters(200);
        assert!(cost.account(200, 300));
        assert_eq!(cost.offset, 1_000_000 - 100 - 150);
        // One that was preempted: taken back, the guest's TSC would go back too, if the next were short again.
        cost.was_set(90_000);
        cost.enters(100_000);
        assert!(cost.account(100_000, 100_100));
        assert_eq!(cost.offset, 1_000_000 - 100 - 150 - 150);
        // Nothing is owed without another setting.
        cost.enters(200_000);
        assert!(!cost.account(200_000, 200_000));
    }

    #[test]
    fn time_is_never_given() {
        let mut cost = RegisterCost::with_offset(7, 1_000_000);
        cost.enters(10);
        assert!(!cost.account(20, 30));
        assert_eq!((cost.offset, cost.held_back(|ticks| ticks)), (7, HeldBack { short: 1, ..HeldBack::default() }));
        let mut cost = RegisterCost::with_offset(0, 0);
        cost.enters(0);
        assert!(cost.account(16, 17));
        assert_eq!(cost.offset, 0_u64.wrapping_sub(1), "offsets wrap as the TSC does");
        // A TSC that jumped back takes nothing.
        cost.enters(100);
        assert!(!cost.account(90, 80));
    }
}
