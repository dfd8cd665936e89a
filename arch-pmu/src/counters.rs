//! The counting core: counters without registers.
//!
//! A counter has a value, a configuration (what it counts, its own enable, its interrupt enable) and, beside that, a global
//! enable. It counts while both enables are on and the PMU is not frozen. Its value is
//! the base kept here plus the counts that the host side still holds, so no count and no overflow is lost however events
//! are kept: at each hand-over a carry out of the counter's top bit marks it as overflowed, before the guest's access has
//! any effect of its own.
//!
//! # Vendors
//! Nothing here knows a register. The files in [`crate::intel`] and [`crate::amd`] translate: Intel's PERFEVTSEL and
//! FIXED_CTR_CTRL and AMD's PERF_CTL become [`Counters::configure`], the global controls become
//! [`Counters::set_global`], the global status is made of [`Counters::overflowed`]. Without a global control, as on
//! Intel's version 1 and AMD's PERFCTR_CORE, every counter keeps its global enable. A freeze is [`Counters::freeze`] or
//! [`Counters::stop_all`].

use counts::Counts;

use crate::host::{AfterOverflow, HostCounters, Reprogram};
use crate::journal::{Journal, Note};
use crate::spec::{CounterId, CounterSet, MAX_COUNTERS, Selection, Source, Spec};

/// The configuration of one counter, from its control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) spec: Spec,
    /// Its own enable.
    pub(crate) enabled: bool,
    /// An overflow requests a PMI.
    pub(crate) interrupts: bool,
}

/// The counters of one vCPU, with `H` behind them.
#[derive(Debug)]
pub(crate) struct Counters<H> {
    pub(crate) host: H,
    /// Every bit a counter can hold.
    mask: u64,
    /// Counters of this PMU.
    pub(crate) existing: CounterSet,
    /// Values without the counts that the host side still holds.
    base: [u64; MAX_COUNTERS],
    specs: [Spec; MAX_COUNTERS],
    /// Own enables.
    enabled: CounterSet,
    /// Global enables.
    global: CounterSet,
    interrupts: CounterSet,
    pub(crate) frozen: bool,
    overflowed: CounterSet,
    /// Counters with such an overflow that asked for a PMI.
    asked: CounterSet,
    /// Counters with such an overflow that no driver has handled yet, as far as can be seen: for the statistics.
    unhandled: CounterSet,
    /// Number of times that the guest turned a counter's own enable on.
    pub(crate) turned_on: u64,
    /// Counters started on the host side.
    running: CounterSet,
    /// Counters to reprogram before the next entry.
    dirty: CounterSet,
    pub(crate) pmi_pending: bool,
    pub(crate) counts: Counts,
    pub(crate) journal: Journal,
}

impl<H: HostCounters> Counters<H> {
    const NO_SPEC: Spec = Spec(Source::Selector(Selection::new()));

    /// Creates counters at 0, off and without a global enable. `mask`: every bit a counter can hold.
    pub(crate) fn new(host: H, existing: CounterSet, mask: u64) -> Self {
        Self {
            host,
            mask,
            existing,
            base: [0; MAX_COUNTERS],
            specs: [Self::NO_SPEC; MAX_COUNTERS],
            enabled: CounterSet::EMPTY,
            global: CounterSet::EMPTY,
            interrupts: CounterSet::EMPTY,
            frozen: false,
            overflowed: CounterSet::EMPTY,
            unhandled: CounterSet::EMPTY,
            asked: CounterSet::EMPTY,
            turned_on: 0,
            running: CounterSet::EMPTY,
            dirty: CounterSet::EMPTY,
            pmi_pending: false,
            counts: Counts::default(),
            journal: Journal::default(),
        }
    }

    /// Stops every counter and sets it to 0, off and without a global enable.
    pub(crate) fn reset(&mut self) {
        for counter in self.existing {
            self.host.pause(counter);
            self.host.stop(counter, false);
        }
        self.base = [0; MAX_COUNTERS];
        self.specs = [Self::NO_SPEC; MAX_COUNTERS];
        self.enabled = CounterSet::EMPTY;
        self.global = CounterSet::EMPTY;
        self.interrupts = CounterSet::EMPTY;
        self.frozen = false;
        self.set_overflowed(CounterSet::EMPTY);
        self.running = CounterSet::EMPTY;
        self.dirty = CounterSet::EMPTY;
        self.pmi_pending = false;
    }

    /// Tells the host side that the guest writes the counter's selector or nibble.
    pub(crate) fn touch(&mut self, counter: CounterId) {
        self.host.touch(counter);
    }

    /// Returns a counter's value now.
    pub(crate) fn read(&mut self, counter: CounterId) -> u64 {
        self.sync(counter);
        self.base[counter.index()]
    }

    /// Gives a counter a value; if it runs, its overflow moves with it (168d918f2643).
    pub(crate) fn write(&mut self, counter: CounterId, value: u64) {
        self.host.touch(counter);
        self.sync(counter);
        self.base[counter.index()] = value & self.mask;
        if self.running.contains(counter) {
            self.host.set_period(counter, self.distance(counter));
        }
    }

    /// Gives a counter another configuration. Counts so far overflow, or not, under the old one.
    pub(crate) fn configure(&mut self, counter: CounterId, config: Config) {
        self.sync(counter);
        self.specs[counter.index()] = config.spec;
        self.turned_on += u64::from(config.enabled && !self.enabled.contains(counter));
        self.enabled.set(counter, config.enabled);
        self.interrupts.set(counter, config.interrupts);
        self.changed(CounterSet::from_iter([counter]));
    }

    /// Sets the global enables at RESET.
    pub(crate) const fn reset_global(&mut self, enables: CounterSet) {
        self.global = enables;
    }

    /// Returns the counters with their global enable on.
    pub(crate) const fn global(&self) -> CounterSet {
        self.global
    }

    /// Sets the global enables.
    pub(crate) fn set_global(&mut self, enables: CounterSet) {
        let changed = self.global.xor(enables).and(self.existing);
        self.global = enables;
        // A guest turns all its counters off and on at once, of which it uses few.
        let unused = self.host.keeps_nothing_for().and(self.on().complement()).and(self.running.complement());
        self.changed(changed.and(unused.complement()));
    }

    /// Clears all global enables and stops the counters at once, whatever the host side defers: a guest in its PMI handler
    /// must not count on.
    pub(crate) fn stop_all(&mut self) {
        let cleared = std::mem::take(&mut self.global).and(self.existing);
        self.reprogram(cleared);
    }

    /// Stops all counters at once; their enables stay.
    pub(crate) fn freeze(&mut self) {
        if !std::mem::replace(&mut self.frozen, true) {
            self.reprogram(self.existing);
        }
    }

    /// Ends a freeze.
    pub(crate) fn unfreeze(&mut self) {
        if std::mem::take(&mut self.frozen) {
            self.changed(self.existing);
        }
    }

    /// Returns the counters that overflowed, as the status register has it.
    pub(crate) const fn overflowed(&self) -> CounterSet {
        self.overflowed
    }

    /// Sets or clears overflow marks; no PMI comes of it.
    pub(crate) const fn set_overflowed(&mut self, overflowed: CounterSet) {
        self.overflowed = overflowed;
        self.asked = self.asked.and(overflowed);
        self.unhandled = self.unhandled.and(overflowed);
    }

    /// Notes that the guest has seen the counter's overflow without the status register.
    pub(crate) fn handled(&mut self, counter: CounterId) {
        self.unhandled.remove(counter);
    }

    /// Returns whether the status register has an overflow that asked for a PMI.
    pub(crate) const fn pmi_unacknowledged(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Looks at the counters behind the host's signals, and returns how many overflowed.
    ///
    /// A clock may signal a little before its count is there. The period of a counter signalled without an overflow is
    /// therefore set anew, so that the overflow is signalled again.
    pub(crate) fn kick(&mut self) -> u32 {
        let before = self.counts.overflows;
        let signalled = self.host.signalled();
        self.journal.note(|| Note::Signalled(signalled));
        let mut early = CounterSet::EMPTY;
        for counter in self.running.and(signalled.counters) {
            let overflows = self.counts.overflows;
            self.sync(counter);
            early.set(counter, self.counts.overflows == overflows);
        }
        if signalled.certain || self.counts.overflows == before {
            early.into_iter().for_each(|counter| self.aim(counter));
        }
        (self.counts.overflows - before) as u32
    }

    /// Does everything due before the guest is entered.
    pub(crate) fn enter(&mut self) {
        self.dirty.extend(self.host.due());
        if !self.dirty.is_empty() {
            let dirty = std::mem::take(&mut self.dirty);
            self.reprogram(dirty);
        }
        self.host.on_entry(self.enabled);
    }

    /// Returns whether nothing of this side is due before the guest is entered.
    #[inline]
    pub(crate) const fn is_quiet(&self) -> bool {
        self.dirty.is_empty() && !self.pmi_pending
    }

    /// Takes the PMI that is due; returns whether there was one.
    pub(crate) const fn take_pmi(&mut self) -> bool {
        std::mem::replace(&mut self.pmi_pending, false)
    }

    /// Reprograms the counters now or before the next entry, as the host side says.
    fn changed(&mut self, counters: CounterSet) {
        let mut now = CounterSet::EMPTY;
        for counter in counters {
            match self.host.changed(counter) {
                Reprogram::Now => now.insert(counter),
                Reprogram::AtEntry => self.dirty.insert(counter),
            }
        }
        self.reprogram(now);
    }

    /// Returns the counts until the counter overflows: a counter at 0 has its whole width before it (168d918f2643).
    fn distance(&self, counter: CounterId) -> u64 {
        self.mask + 1 - self.base[counter.index()]
    }

    /// Fetches the counts that the host side holds.
    #[inline]
    fn sync(&mut self, counter: CounterId) {
        // In a handler, which has the counters off, there are none.
        if self.running.contains(counter) {
            self.sync_running(counter);
        }
    }

    #[inline(never)]
    fn sync_running(&mut self, counter: CounterId) {
        let gathered = self.host.take(counter);
        if self.advance_noted(counter, gathered) {
            let near = self.distance(counter) <= self.mask / 2;
            match self.host.overflowed(counter, near) {
                AfterOverflow::Reprogram => self.dirty.insert(counter),
                AfterOverflow::Aim => self.aim(counter),
                AfterOverflow::Leave => {}
            }
        }
    }

    /// Sets the period of a running counter to its next overflow, from a count that is not older than this call.
    fn aim(&mut self, counter: CounterId) {
        let gathered = self.host.take(counter);
        self.advance_noted(counter, gathered);
        self.host.set_period(counter, self.distance(counter));
    }

    fn reprogram(&mut self, counters: CounterSet) {
        if !counters.is_empty() {
            self.host.changing(counters);
            self.dirty = self.dirty.and(counters.complement());
            counters.into_iter().for_each(|counter| self.reprogram_one(counter));
        }
    }

    /// Pauses the counter and starts it again if it still counts: KVM's `reprogram_counter`.
    fn reprogram_one(&mut self, counter: CounterId) {
        let gathered = self.host.pause(counter);
        if gathered > 0 || self.running.contains(counter) {
            self.advance_noted(counter, gathered);
        }
        if self.on().contains(counter) {
            self.running.insert(counter);
            self.host.start(counter, self.specs[counter.index()], self.distance(counter));
        } else {
            self.running.remove(counter);
            self.host.stop(counter, self.enabled.contains(counter));
        }
    }

    /// Adds counts that the host side handed over; returns whether the counter overflowed.
    #[inline]
    fn advance_noted(&mut self, counter: CounterId, count: u64) -> bool {
        let overflowed = self.advance(counter, count);
        self.journal.note(|| Note::Counted { counter, count, overflowed });
        overflowed
    }

    /// Adds counts; returns whether the counter overflowed: a carry out of the top bit is one overflow, however many
    /// times it carried.
    fn advance(&mut self, counter: CounterId, gathered: u64) -> bool {
        let (sum, carry) = self.base[counter.index()].overflowing_add(gathered);
        self.base[counter.index()] = sum & self.mask;
        let overflows = carry || sum > self.mask;
        if overflows {
            self.overflow(counter);
        }
        overflows
    }

    fn overflow(&mut self, counter: CounterId) {
        self.overflowed.insert(counter);
        self.counts.overflows += 1;
        if self.interrupts.contains(counter) {
            self.counts.status_shared += u64::from(self.unhandled.contains(counter));
            self.unhandled.insert(counter);
            self.asked.insert(counter);
            self.counts.pmi_requests += 1;
            self.pmi_pending = true;
        }
    }

    /// Returns the counters that are to count: own enable AND global enable AND not frozen.
    const fn on(&self) -> CounterSet {
        if self.frozen { CounterSet::EMPTY } else { self.enabled.and(self.global) }
    }
}
