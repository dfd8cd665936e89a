//! The bank's accounts.

use std::any::Any;

use arch_pmu::spec::CounterSet;
use counts::Counts;

use super::{Bank, BankStats, Gate, MOST_ENTRIES, Measured, NEVER_ENDS};
use crate::backend::Backend;
use crate::backend::step::StepCounts;
use crate::side::HostPmu;
use crate::stats::{HostSide, OpKind};

impl<B: Backend> HostPmu for Bank<B> {
    #[inline]
    fn passes_entry(&mut self) -> bool {
        let may_be_slice = self.host.backend.may_have_switched() && self.looks_at_slices();
        if may_be_slice || self.host.stats.counts.entries >= self.quiet_until {
            return false;
        }
        self.host.stats.counts.entries += 1;
        true
    }

    fn attend(&mut self) {
        self.host.backend.attend();
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn account(&mut self, counts: &mut Counts) -> HostSide {
        // An overflow belongs to no account: those found here wait for the next kick.
        self.drain(false);
        self.find_lost();
        let Measured { backend, stats } = &mut self.host;
        let now = backend.now_ns();
        stats.holds_until(now, self.held);
        let BankStats { ops, signal_ns, last_error, since_ns, throttled_before, .. } = &*stats;
        counts.merge(&Counts {
            throttled: backend.throttled() - throttled_before,
            blind: backend.facts().blind.into(),
            ungated: matches!(self.gate, Gate::Failed | Gate::Left).into(),
            opens: ops.count(OpKind::Open),
            held_at_end: self.held,
            time_ns: now.saturating_sub(*since_ns),
            ..stats.counts
        });
        HostSide {
            ops: ops.clone(),
            signal_ns: signal_ns.clone(),
            last_error: last_error.as_ref().map(ToString::to_string),
        }
    }

    fn restart_account(&mut self) {
        self.drain(false);
        let now = self.host.backend.now_ns();
        if std::mem::take(&mut self.rests) {
            // The switch of a rest begins no slice of the guest's.
            self.host.backend.sched_in();
        }
        // Entries are counted anew.
        if self.pauses_until != NEVER_ENDS {
            self.pauses_until = MOST_ENTRIES;
        }
        self.host.stats.restart(now, self.held, self.host.backend.throttled());
    }

    fn rest(&mut self) {
        self.rests = true;
    }

    fn nothing_overflowed(&mut self) -> bool {
        self.drain(false);
        !self.facts().blind && self.recorded.is_some_and(CounterSet::is_empty)
    }

    #[inline]
    fn saw_signals(&mut self, since_return: u64) {
        let BankStats { overflowed_at, signal_ns, .. } = &mut self.host.stats;
        if overflowed_at.is_empty() {
            return;
        }
        let now = self.host.backend.now_ns();
        let returned = now.saturating_sub(since_return);
        // An overflow before KVM_RUN's return was seen by it.
        for at in overflowed_at.drain(..) {
            let seen = if at <= returned { returned } else { now };
            signal_ns.record(seen.saturating_sub(at));
        }
    }

    fn ops(&self) -> ([u64; OpKind::ALL.len()], u64) {
        self.host.stats.ops.totals()
    }

    fn slices(&mut self) -> Option<(bool, bool)> {
        self.host.backend.slices()
    }

    fn stepper(&mut self) -> Option<&mut StepCounts> {
        (&mut self.host.backend as &mut dyn Any).downcast_mut()
    }
}
