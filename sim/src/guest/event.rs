//! One event of the guest's perf: its count, its period and its counter.

use arch_pmu::intel::{IA32_FIXED_CTR0, IA32_PMC0};

/// Index of fixed counter 0, as in GLOBAL_STATUS.
pub(super) const FIXED: usize = 32;
/// Maximum period of Linux without full-width writes: WRMSR sign-extends bit 31.
pub(super) const MAX_PERIOD: i64 = 0x7fff_ffff;
pub(super) const EVNTSEL_EN: u64 = 1 << 22;
/// Counters are 48 bits wide.
const COUNTER_MASK: u64 = (1 << 48) - 1;
/// One event of the guest's perf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) count: u64,
    /// perf's `period_left`.
    pub(super) left: i64,
    /// The counter at the last update, sign-extended.
    pub(super) prev: u64,
    pub(super) period: i64,
    pub(super) overflows: u64,
    /// PERFEVTSELx with EN.
    pub(super) config: u64,
    /// Its nibble of FIXED_CTR_CTRL.
    pub(super) fixed_bits: u64,
    /// Its fixed counter.
    pub(super) fixed: Option<u8>,
    pub(super) takes_gp: bool,
    pub(super) freq: bool,
    /// Its current or last counter.
    pub(super) index: Option<u8>,
    /// TSC ticks enabled.
    pub(super) enabled_ticks: u64,
    /// TSC of the last enable.
    pub(super) enabled_at: u64,
    /// TSC ticks on a counter.
    pub(super) running: u64,
    /// TSC of the last overflow.
    pub(super) freq_tsc: u64,
    /// The count at the last tick.
    pub(super) freq_count: u64,
    /// Index in the boot page.
    pub(super) spec: usize,
}

impl Event {
    #[inline]
    pub(super) fn counter_msr(&self) -> u32 {
        let index = u32::from(self.index.unwrap_or(0));
        if index >= FIXED as u32 { IA32_FIXED_CTR0 + index - FIXED as u32 } else { IA32_PMC0 + index }
    }

    #[inline]
    pub(super) fn is_fixed(&self) -> bool {
        self.index.is_some_and(|index| usize::from(index) >= FIXED)
    }

    /// Mirrors `x86_perf_event_update` with the counter's value.
    #[inline]
    pub(super) fn update(&mut self, now: u64) {
        let delta = now.wrapping_sub(self.prev) & COUNTER_MASK;
        self.prev = now;
        self.count = self.count.wrapping_add(delta);
        self.left = self.left.wrapping_sub(delta.cast_signed());
    }

    /// Mirrors `x86_perf_event_set_period` up to the write.
    #[inline]
    pub(super) fn next_left(&mut self) -> Next {
        let mut left = self.left;
        let over = left <= 0;
        if over {
            left += self.period;
            if left <= 0 {
                left = self.period;
            }
            self.left = left;
        }
        let programmed = left.clamp(2, MAX_PERIOD);
        self.prev = programmed.wrapping_neg().cast_unsigned();
        // The payload writes the low half, with 0xffff above it; the vPMU extends bit 31.
        Next { value: self.prev & COUNTER_MASK, over, clamped: programmed != left }
    }

    /// Mirrors `perf_adjust_period`: moves the period by an eighth of the distance to `hz` overflows per second.
    #[inline]
    pub(super) fn adjust_period(&mut self, elapsed: u64, count: u64, hz: u64, tsc_hz: u64) -> Move {
        let divisor = u128::from(elapsed.wrapping_mul(hz));
        let product = u128::from(count) * u128::from(tsc_hz);
        // Otherwise the quotient has more than 64 bits, or there is no divisor.
        let divided = product >> 64 < divisor;
        let wanted = if divided { (product / divisor).min(MAX_PERIOD as u128) as i64 } else { MAX_PERIOD };
        let delta = wanted - self.period;
        self.period += (if delta >= 0 { delta + 7 } else { delta - 7 }) / 8;
        self.period = self.period.max(1);
        Move { divided, grows: delta >= 0 }
    }
}

/// Settings of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) value: u64,
    /// True if the period was over.
    pub(super) over: bool,
    /// True if the rest of the period is outside the range that can be written.
    pub(super) clamped: bool,
}

/// Change of a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) divided: bool,
    pub(super) grows: bool,
}
