//! Count of one host event: base, rate, running time and next signal.

use arch_pmu::spec::{MAX_FIXED, Source, Spec};

use crate::clock::Times;
use crate::model::Rate;

/// umask << 8 | event code of the fixed counters (SDM vol. 3, table 21-2).
const FIXED_CODES: [u16; MAX_FIXED] = [0x00c0, 0x003c, 0x0300, 0x0400];

/// Returns umask << 8 | event code of a spec.
#[inline]
pub(crate) fn code(spec: Spec) -> u16 {
    match spec.0 {
        Source::Selector(selection) => selection.code(),
        Source::Fixed { index, .. } => FIXED_CODES[usize::from(index) % MAX_FIXED],
    }
}

/// Base of an event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Time of the thread. `least` is the shortest time to a signal, ns, as with the clocks of `host_pmu::backend::perf`: a
    /// shorter period could keep the thread busy forever.
    Thread { least: u64 },
    /// Exits to userspace.
    Exits,
    /// Guest mode, in these rings: every bit is set for one that counts.
    Guest { user: u64, kernel: u64 },
}

impl Base {
    /// Returns the base of guest mode, in these rings.
    pub(crate) const fn guest(user: bool, kernel: bool) -> Self {
        Self::Guest { user: (user as u64).wrapping_neg(), kernel: (kernel as u64).wrapping_neg() }
    }

    #[inline]
    pub(crate) const fn of(self, times: Times) -> u64 {
        match self {
            Self::Thread { .. } => times.thread,
            Self::Exits => times.exits,
            Self::Guest { user, kernel } => (times.user & user) + (times.kernel & kernel),
        }
    }

    /// Returns whether the base advances while the guest is in ring 3.
    #[inline]
    pub(crate) const fn in_user_mode(self) -> bool {
        matches!(self, Self::Thread { .. } | Self::Guest { user: u64::MAX, .. })
    }
}

/// The count of an event; times are in the unit of its base: ns, or exits.
#[derive(Clone, Copy, Debug)]
pub struct EventCount {
    pub(crate) base: Base,
    pub(crate) rate: Rate,
    pub(crate) samples: bool,
    /// Running time before the last resume.
    pub(crate) ran: u64,
    /// The base at the last resume.
    pub(crate) since: u64,
    pub(crate) period: u64,
    /// Count of the next signal, and the running time at which it is reached.
    pub(crate) signal_at: u64,
    pub(crate) due: u64,
    pub(crate) running: bool,
    /// Time off the CPU when its count was last known, where it is [peeked](host_pmu::backend::Backend::peek) at.
    pub(crate) anchored: Option<u64>,
}

impl EventCount {
    pub(crate) fn new(base: Base, rate: Rate, samples: bool, period: u64) -> Self {
        let (signal_at, due, running, anchored) = (0, 0, false, None);
        let mut new = Self { base, rate, samples, ran: 0, since: 0, period, signal_at, due, running, anchored };
        new.aim(0, period);
        new
    }

    #[inline]
    pub(crate) const fn ran(&self, times: Times) -> u64 {
        if self.running { self.ran + (self.base.of(times) - self.since) } else { self.ran }
    }

    /// Returns its base at the next signal, if it runs until then.
    #[inline]
    pub(crate) const fn signals_at(&self) -> u64 {
        self.since.saturating_add(self.due.saturating_sub(self.ran))
    }

    /// Returns its next signal, in its base, while it runs. With events of several bases there is one that advances at
    /// least as fast as each, now at `common`: a lower bound in that.
    #[inline]
    pub(crate) const fn next(&self, times: Times, common: Option<u64>) -> u64 {
        match common {
            None => self.signals_at(),
            Some(now) => now.saturating_add(self.due.saturating_sub(self.ran(times))),
        }
    }

    #[inline]
    pub(crate) const fn count(&self, times: Times) -> u64 {
        self.rate.counts(self.ran(times))
    }

    /// Returns how often it has expired since it last signalled, if it is a clock.
    #[inline]
    pub(crate) const fn expiries(&self, times: Times) -> u64 {
        if !matches!(self.base, Base::Thread { .. }) || !self.running || !self.samples {
            return 0;
        }
        let ran = self.ran(times);
        if ran < self.due {
            return 0;
        }
        let late = self.rate.counts(ran).saturating_sub(self.signal_at);
        if self.period == 0 || late < self.period { 1 } else { 1 + late / self.period }
    }

    #[inline]
    pub(crate) fn aim(&mut self, count: u64, period: u64) {
        self.period = period;
        self.signal_at = count.saturating_add(period);
        self.due = self.rate.ns_for(self.signal_at);
        if let Base::Thread { least } = self.base {
            self.due = self.due.max(self.rate.ns_for(count).saturating_add(least));
        }
    }
}
