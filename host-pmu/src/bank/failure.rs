//! Events that fail: refused, without a hardware counter, behind a gate whose events do not fit together.

use arch_pmu::spec::CounterId;

use super::held::AtHost;
use super::host::Backoff;
use super::{Bank, Gate};
use crate::backend::{Backend, HostError};
use crate::stats::OpKind;

impl<B: Backend> Bank<B> {
    /// Handles the failure of a host operation on the event of `counter`, which is tried again if it is on.
    ///
    /// A pinned event that got no hardware counter is kept, with its counts until then, and is enabled again at the
    /// next resume, as KVM does. Since Linux 6.15 its failure signals its owner: enabled again at the entry that
    /// follows, it would keep the vCPU out of the guest, so it waits for the guest to reprogram the counter, or for
    /// ever more entries. Any other event is released.
    #[cold]
    pub(super) fn fail(&mut self, counter: CounterId, error: &HostError) {
        let slot = &mut self.slots[counter.index()];
        let is_on = slot.as_ref().is_none_or(|held| held.on);
        if *error == HostError::PinnedLost
            && let Some(held) = slot
        {
            self.host.stats.counts.pinned_errors += 1;
            held.at_host = AtHost::Lost;
            held.forget_aim();
            held.recorded = None;
            held.forfeited |= !is_on;
            self.backoffs[counter.index()].lost(held.spec);
        } else if let Some(held) = slot {
            self.backoffs[counter.index()].failed(held.spec);
            self.release(counter.index());
        }
        if is_on {
            self.retries.insert(counter);
        }
        self.quiet_until = 0;
    }

    /// Looks at an event that was enabled again after it had no hardware counter, now with `period` counts to its
    /// counter's overflow. Returns whether it can be used.
    #[cold]
    pub(super) fn regain(&mut self, counter: CounterId, period: u64) -> bool {
        let least = self.shortest_period(counter, period);
        let Self { host, slots, .. } = self;
        let Some(held) = &mut slots[counter.index()] else { return false };
        match host.op(OpKind::Read, |b| b.read(&mut held.event)) {
            Ok(total) => {
                self.backoffs[counter.index()] = Backoff::default();
                if std::mem::take(&mut held.forfeited) {
                    held.gather(total);
                    held.aim = held.taken.saturating_add(period);
                    held.aimed(period, least);
                }
                let ahead = total.saturating_sub(held.taken);
                // Its counts before the loss bring the overflow of its counter nearer.
                let left = period.saturating_sub(ahead).max(1);
                ahead == 0 || !held.spec.samples() || host.aim(held, left, least)
            }
            Err(HostError::PinnedLost) => {
                self.fail(counter, &HostError::PinnedLost);
                true
            }
            Err(_) => false,
        }
    }

    /// Finds pinned events that lost their counters and were not looked at since: a guest that waits for their
    /// overflows looks at none.
    pub(super) fn find_lost(&mut self) {
        for counter in self.with(|held| held.counts() && self.host.backend.is_lost(&held.event)) {
            self.host.stats.failed(&HostError::PinnedLost);
            self.fail(counter, &HostError::PinnedLost);
        }
        self.find_gate_lost();
    }

    /// Gives up the gate if its events count no more.
    pub(super) fn find_gate_lost(&mut self) {
        if self.gate == Gate::Open && self.host.backend.is_gate_lost() {
            self.host.stats.counts.pinned_errors += 1;
            self.fail_gate();
        }
    }

    /// Gives up the gate, whose events do not get hardware counters together: a group is scheduled as a whole or not at
    /// all, where single events keep most of their counters. Each counter that is on hands over its counts at the next
    /// entry and has a single event then.
    #[cold]
    pub(super) fn fail_gate(&mut self) {
        self.host.stats.last_error = Some(HostError::GateTooLarge);
        self.gate = Gate::Failed;
        for counter in self.counters_on() {
            let Some(held) = &mut self.slots[counter.index()] else { continue };
            // The leader alone is in error state.
            held.shut_at = self.host.count(&mut held.event).unwrap_or(held.taken);
            self.retry(counter);
        }
        self.note_change();
    }

    /// Releases the events of a gate that failed, once all counts were handed over: single ones are opened from now on.
    /// Returns whether it did.
    #[cold]
    pub(super) fn leave_gate(&mut self) -> bool {
        if !self.counters_on().is_empty() {
            return false;
        }
        self.release_all(|_| true);
        self.host.backend.leave_gate();
        self.gate = Gate::Left;
        true
    }

    /// Has `counter` started again before the next entry.
    pub(super) fn retry(&mut self, counter: CounterId) {
        self.backoffs[counter.index()] = Backoff::default();
        self.retries.insert(counter);
        self.quiet_until = 0;
    }
}
