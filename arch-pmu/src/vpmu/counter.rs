//! The counters: what they count, their values, their overflows.

use super::{AfterOverflow, CounterId, GeneralProtection, HostCounters, PerfEvtSel, Touch, Vpmu, status, within};
use crate::regs::FixedControl;
use crate::spec::{Source, Spec};

impl<H: HostCounters> Vpmu<H> {
    /// IA32_PERFEVTSEL`n`; a write of the same value changes nothing (KVM elides it), but keeps the counter in use.
    pub(super) fn write_selector(&mut self, n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, self.caps.selector_mask(n))?;
        let Some(counter) = CounterId::gp(n) else { return Err(GeneralProtection) };
        self.host.touch(counter, Touch::Write);
        let selector = PerfEvtSel::from_bits(value);
        if self.selectors[n] != selector {
            // What was counted so far overflows, or not, under the old selector's INT.
            self.sync(counter);
            self.selectors[n] = selector;
            self.enabled.set(counter, selector.en());
            self.mark_dirty(counter);
        }
        Ok(())
    }

    /// IA32_FIXED_CTR_CTRL: every nibble that changes.
    pub(super) fn write_fixed_ctr_ctrl(&mut self, value: u64) -> Result<(), GeneralProtection> {
        within(value, self.caps.fixed_ctr_ctrl_mask())?;
        let old = self.fixed_ctr_ctrl;
        for n in 0..usize::from(self.caps.fixed) {
            let Some(counter) = CounterId::fixed(n) else { continue };
            if FixedControl::of(old ^ value, n) == FixedControl::new() {
                continue;
            }
            self.host.touch(counter, Touch::Write);
            self.sync(counter);
            let nibble = 0xf << (4 * n);
            self.fixed_ctr_ctrl = self.fixed_ctr_ctrl & !nibble | value & nibble;
            self.enabled.set(counter, FixedControl::of(value, n).enabled());
            self.mark_dirty(counter);
        }
        Ok(())
    }

    /// A counter's value now.
    pub(super) fn read_counter(&mut self, counter: CounterId) -> u64 {
        self.host.touch(counter, Touch::Read);
        self.sync(counter);
        self.base[counter.index()]
    }

    /// Gives a counter a value; if it runs, its overflow moves with it (168d918f2643).
    pub(super) fn write_counter(&mut self, counter: CounterId, value: u64) {
        self.host.touch(counter, Touch::Write);
        self.sync(counter);
        self.base[counter.index()] = value & self.caps.counter_mask();
        if self.running.contains(counter) {
            self.host.set_period(counter, self.distance(counter));
        }
    }

    /// Counts until the counter overflows: a counter at 0 has its whole width before it (168d918f2643).
    pub(super) fn distance(&self, counter: CounterId) -> u64 {
        self.caps.counter_mask() + 1 - self.base[counter.index()]
    }

    /// Fetches what the host side gathered.
    pub(super) fn sync(&mut self, counter: CounterId) {
        if self.running.contains(counter) {
            let gathered = self.host.take(counter);
            if self.advance(counter, gathered) {
                let near = self.distance(counter) <= self.caps.counter_mask() / 2;
                match self.host.overflowed(counter, near) {
                    AfterOverflow::Reprogram => self.dirty.insert(counter),
                    AfterOverflow::Aim => self.aim(counter),
                    AfterOverflow::Leave => {}
                }
            }
        }
    }

    /// Aims a running counter at its next overflow. What the host told of it may be older than what an aim needs.
    pub(super) fn aim(&mut self, counter: CounterId) {
        let gathered = self.host.take(counter);
        self.advance(counter, gathered);
        self.host.set_period(counter, self.distance(counter));
    }

    /// Pauses the counter and starts it again if it still counts: KVM's `reprogram_counter`.
    pub(super) fn reprogram(&mut self, counter: CounterId) {
        let gathered = self.host.pause(counter);
        self.running.remove(counter);
        self.dirty.remove(counter);
        self.advance(counter, gathered);
        if self.counts(counter) {
            self.running.insert(counter);
            self.host.start(counter, self.spec(counter), self.distance(counter));
        } else {
            self.host.stop(counter, self.enabled.contains(counter));
        }
    }

    /// Adds counts; a carry out of the top bit is an overflow (however many times it carried: STATUS has one bit).
    fn advance(&mut self, counter: CounterId, gathered: u64) -> bool {
        let sum = u128::from(self.base[counter.index()]) + u128::from(gathered);
        let mask = self.caps.counter_mask();
        self.base[counter.index()] = sum as u64 & mask;
        let overflowed = sum > u128::from(mask);
        if overflowed {
            self.overflow(counter);
        }
        overflowed
    }

    fn overflow(&mut self, counter: CounterId) {
        self.global_status |= 1 << counter.global_bit();
        self.stats.overflows += 1;
        if self.interrupts(counter) {
            self.stats.pmi_requests += 1;
            self.pmi_pending = true;
        }
    }

    /// Own enable AND GLOBAL_CTRL AND not frozen AND not denied.
    pub(super) fn counts(&self, counter: CounterId) -> bool {
        let global = self.caps.version < 2 || self.global_ctrl & 1 << counter.global_bit() != 0;
        global && self.global_status & status::CTR_FRZ == 0 && self.enabled.contains(counter) && self.allowed(counter)
    }

    fn allowed(&self, counter: CounterId) -> bool {
        // A fixed counter has no selector.
        let selector = self.selectors.get(counter.index()).copied().unwrap_or_default();
        self.filter.allows(counter, selector)
    }

    fn interrupts(&self, counter: CounterId) -> bool {
        match counter.as_fixed() {
            Some(n) => FixedControl::of(self.fixed_ctr_ctrl, n).pmi(),
            None => self.selectors[counter.index()].int(),
        }
    }

    fn spec(&self, counter: CounterId) -> Spec {
        Spec(match counter.as_fixed() {
            Some(n) => Source::Fixed { index: n as u8, control: FixedControl::of(self.fixed_ctr_ctrl, n).into() },
            None => Source::Selector(self.selectors[counter.index()].into()),
        })
    }
}
