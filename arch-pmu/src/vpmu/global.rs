//! The global registers, freezing, and IA32_PERF_GLOBAL_INUSE.

use super::{CounterId, GeneralProtection, HostCounters, Touch, Vpmu, status, within};
use crate::regs::FixedControl;

impl<H: HostCounters> Vpmu<H> {
    /// IA32_PERF_GLOBAL_CTRL: every counter whose bit changes.
    pub(super) fn write_global_ctrl(&mut self, value: u64) -> Result<(), GeneralProtection> {
        within(value, self.caps.global_mask())?;
        self.set_global_ctrl(value);
        Ok(())
    }

    fn set_global_ctrl(&mut self, value: u64) {
        let changed = std::mem::replace(&mut self.global_ctrl, value) ^ value;
        self.for_each_bit(changed, |vpmu, counter| {
            vpmu.host.touch(counter, Touch::GlobalCtrl);
            vpmu.mark_dirty(counter);
        });
    }

    /// IA32_PERF_GLOBAL_OVF_CTRL: bits written 1 are cleared; unfreezing lets the counters run again.
    pub(super) fn write_global_ovf_ctrl(&mut self, value: u64) -> Result<(), GeneralProtection> {
        within(value, self.caps.status_clear_mask())?;
        let frozen = self.global_status & status::CTR_FRZ != 0;
        self.global_status &= !value;
        if frozen && value & status::CTR_FRZ != 0 {
            self.for_each_bit(self.caps.global_mask(), Self::mark_dirty);
        }
        Ok(())
    }

    /// Sets bits of IA32_PERF_GLOBAL_STATUS; setting CTR_FRZ stops the counters.
    pub(super) fn set_status(&mut self, bits: u64) {
        let freezes = bits & !self.global_status & status::CTR_FRZ != 0;
        self.global_status |= bits;
        if freezes {
            self.for_each_bit(self.caps.global_mask(), Self::reprogram);
        }
    }

    /// SDM vol. 3, 18.4.7: version 4 freezes by STATUS bits, earlier ones by clearing the enables themselves.
    pub(super) fn freeze_on_pmi(&mut self) {
        let (lbrs, counters) = (self.debugctl.freeze_lbrs_on_pmi(), self.debugctl.freeze_perfmon_on_pmi());
        if self.caps.version >= 4 {
            let mut bits = 0;
            if lbrs {
                bits |= status::LBR_FRZ;
            }
            if counters {
                bits |= status::CTR_FRZ;
            }
            if bits != 0 {
                self.set_status(bits);
            }
        } else {
            if lbrs {
                self.debugctl.set_lbr(false);
            }
            if counters {
                // At once whatever the strategy: the guest must not count on.
                let cleared = std::mem::take(&mut self.global_ctrl);
                self.for_each_bit(cleared, Self::reprogram);
            }
        }
    }

    /// IA32_PERF_GLOBAL_INUSE (SDM vol. 3, 21.2.4): a counter is in use if its selector, or its nibble, is not 0.
    pub(super) fn in_use(&self) -> u64 {
        let mut bits = 0;
        let mut pmi = false;
        for n in 0..usize::from(self.caps.gp) {
            bits |= u64::from(self.selectors[n].event() != 0) << n;
            pmi |= self.selectors[n].int();
        }
        for n in 0..usize::from(self.caps.fixed) {
            let control = FixedControl::of(self.fixed_ctr_ctrl, n);
            bits |= u64::from(control.enabled()) << (32 + n);
            pmi |= control.pmi();
        }
        bits | u64::from(pmi) << 63
    }

    fn for_each_bit(&mut self, bits: u64, mut act: impl FnMut(&mut Self, CounterId)) {
        let mut left = bits & self.caps.global_mask();
        while left != 0 {
            if let Some(counter) = CounterId::from_global_bit(left.trailing_zeros()) {
                act(self, counter);
            }
            left &= left - 1;
        }
    }
}
