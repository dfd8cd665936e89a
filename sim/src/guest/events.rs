//! Events of the guest's perf and their assignment to counters: a model of `guest/payload/c/sched.c`.

use arch_pmu::amd::{PERF_CTL0, PERF_CTR0};
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::{IA32_FIXED_CTR0, IA32_PERFEVTSEL0, IA32_PMC0};
use arch_pmu::spec::MAX_GP;
use guest::abi::{BootPage, MAX_EVENTS};

use crate::stream::{Stream, draw};

const EVNTSEL_INT: u64 = 1 << 20;
const EVNTSEL_USR: u64 = 1 << 16;
const EVNTSEL_OS: u64 = 1 << 17;

/// The guest's PMU driver, which the payload chooses by CPUID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Intel's.
    #[default]
    Intel,
    /// AMD's of PERFCTR_CORE: no global control, no status.
    AmdCore,
    /// AMD's of PerfMonV2.
    AmdV2,
}

impl From<PmuCaps> for Driver {
    fn from(caps: PmuCaps) -> Self {
        match caps {
            PmuCaps::Intel(_) => Self::Intel,
            PmuCaps::Amd(amd) if amd.perfmon_v2 => Self::AmdV2,
            PmuCaps::Amd(_) => Self::AmdCore,
        }
    }
}

/// Counters that were started, perf's `active_mask`, and their events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Started {
    pub(super) mask: u64,
    pub(super) events: [u8; MAX_GP],
}

impl Started {
    /// Returns the started counters, each with its event.
    pub(super) fn each(self) -> impl Iterator<Item = (u64, usize)> {
        (0..MAX_GP as u64)
            .filter(move |bit| self.mask >> bit & 1 != 0)
            .map(move |bit| (bit, usize::from(self.events[bit as usize])))
    }
}

/// Events of a vCPU, and the active ones among them.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) all: Vec<Event>,
    /// Number of enabled events, from the first.
    pub(super) enabled: usize,
    /// Head of the list: rotation moves the first event to the end.
    head: usize,
    active: [u8; MAX_EVENTS],
    pub(super) active_count: usize,
    gp_counters: usize,
    driver: Driver,
}

impl Events {
    pub(super) fn new(driver: Driver, boot: &BootPage) -> Self {
        let count = (boot.event_count as usize).min(MAX_EVENTS);
        let specs = boot.events.iter().take(count).enumerate();
        let all = specs.filter_map(|(spec, event)| {
            let bit = |mask: u64, value: u64| if event.selector & mask == 0 { 0 } else { value };
            let fixed = event.fixed.checked_sub(1).filter(|&n| n < boot.fixed_counters).map(|n| n as u8);
            let takes_gp = boot.gp_counters > 0 && (event.fixed == 0 || event.selector & 0xff != 0);
            // Linux refuses to open an event without a counter.
            (fixed.is_some() || takes_gp).then(|| {
                let period = if event.period == 0 { MAX_PERIOD } else { event.period.cast_signed() };
                Event {
                    left: period,
                    period,
                    config: event.selector | EVNTSEL_EN,
                    fixed_bits: bit(EVNTSEL_OS, 1) | bit(EVNTSEL_USR, 2) | bit(EVNTSEL_INT, 8),
                    fixed,
                    takes_gp,
                    freq: event.period != 0 && boot.freq_hz != 0,
                    spec,
                    ..Event::default()
                }
            })
        });
        let all: Vec<Event> = all.collect();
        Self {
            enabled: all.len(),
            all,
            head: 0,
            active: [0; MAX_EVENTS],
            active_count: 0,
            gp_counters: boot.gp_counters as usize,
            driver,
        }
    }

    /// Returns the index in `all` of the `n`th active event.
    pub(super) fn active(&self, n: usize) -> usize {
        usize::from(self.active[n])
    }

    pub(super) fn rotation_needed(&self) -> bool {
        self.active_count < self.enabled
    }

    /// Mirrors `rotate_ctx`.
    pub(super) fn rotate(&mut self, go: &mut impl FnMut(u64)) {
        go(6);
        self.head += 1;
        if self.head == self.enabled {
            self.head = 0;
            go(1);
        }
    }

    /// Begins the rotation at any of its places, if the events rotate at all: copies of one guest would say nothing of another.
    pub(super) fn begin_anywhere(&mut self, places: &mut Stream) {
        // All arms draw alike, whether their events rotate at that moment or not.
        let place = draw(places, self.enabled as u64) as usize;
        if self.rotation_needed() {
            self.head = place;
            self.schedule(&mut |_| {});
        }
    }

    /// Mirrors `ctx_flexible_sched_in`: the longest prefix of the list that fits, then `x86_schedule_events`. Tells `go` its way.
    pub(super) fn schedule(&mut self, go: &mut impl FnMut(u64)) {
        if self.enabled == 0 {
            self.active_count = 0;
            go(14);
            return;
        }
        go(13);
        // The first event always finds a counter.
        self.collect(go);
        go(5);
        if !self.fits_as_before(go) {
            self.assign(go);
        }
        go(3);
    }

    /// Closes and reopens all events.
    pub(super) fn close(&mut self) {
        self.head = 0;
        for event in &mut self.all {
            event.index = None;
            event.left = event.period;
        }
    }

    /// Returns the index of an event among the active ones.
    pub(super) fn place_of(&self, at: usize) -> Option<usize> {
        self.active[..self.active_count].iter().position(|&active| usize::from(active) == at)
    }

    /// Mirrors `x86_pmu_del`: removes an active event.
    pub(super) fn remove_active(&mut self, place: usize) {
        self.active.copy_within(place + 1..self.active_count, place);
        self.active_count -= 1;
    }

    fn collect(&mut self, go: &mut impl FnMut(u64)) {
        let (mut gp_free, mut fixed_used, mut fixed_movable) = (self.gp_counters, 0_u64, 0_u64);
        let mut n = 0;
        let mut at = self.head;
        while n < self.enabled {
            let event = &self.all[at];
            let mask = event.fixed.map_or(0, |n| 1 << n);
            go(9);
            if mask & !fixed_used != 0 {
                fixed_used |= mask;
                go(3);
                if event.takes_gp {
                    fixed_movable |= mask;
                    go(1);
                }
            } else if gp_free > 0 && event.takes_gp {
                gp_free -= 1;
                go(6);
            } else if gp_free > 0 && mask & fixed_movable != 0 {
                // The event that it drives from its fixed counter takes one.
                fixed_movable &= !mask;
                gp_free -= 1;
                go(10);
            } else {
                go(if gp_free == 0 { 4 } else { 8 });
                break;
            }
            self.active[n] = at as u8;
            n += 1;
            at = if at + 1 == self.enabled { 0 } else { at + 1 };
            go(8);
        }
        self.active_count = n;
    }

    fn fits_as_before(&self, go: &mut impl FnMut(u64)) -> bool {
        let mut used = 0_u64;
        for n in 0..self.active_count {
            match self.all[self.active(n)].index {
                None => {
                    go(4);
                    return false;
                }
                Some(index) if used >> index & 1 != 0 => {
                    go(6);
                    return false;
                }
                Some(index) => used |= 1 << index,
            }
            go(12);
        }
        true
    }

    /// Assigns counters: events with one choice first, then those of general-purpose counters, then those that may have either.
    fn assign(&mut self, go: &mut impl FnMut(u64)) {
        let (mut fixed_used, mut gp, driver) = (0_u64, 0_u8, self.driver);
        go(3);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            if let (false, Some(fixed)) = (event.takes_gp, event.fixed) {
                fixed_used |= 1 << fixed;
                go(11);
                go(event.assign(FIXED as u8 + fixed, driver));
            } else {
                go(7);
            }
        }
        let mut next_gp = || {
            gp += 1;
            gp - 1
        };
        go(5);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            if event.fixed.is_none() {
                go(11);
                go(event.assign(next_gp(), driver));
            } else {
                go(6);
            }
        }
        go(4);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            match event.fixed {
                _ if !event.takes_gp => go(6),
                None => go(9),
                Some(fixed) if fixed_used & 1 << fixed == 0 => {
                    fixed_used |= 1 << fixed;
                    go(16);
                    go(event.assign(FIXED as u8 + fixed, driver));
                }
                Some(_) => {
                    go(17);
                    go(event.assign(next_gp(), driver));
                }
            }
        }
    }
}

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
    /// Registers of that counter.
    pub(super) counter_msr: u32,
    pub(super) config_msr: u32,
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
    /// Mirrors `x86_assign_hw_event`; returns the way it goes.
    fn assign(&mut self, index: u8, driver: Driver) -> u64 {
        self.index = Some(index);
        let n = u32::from(index);
        match driver {
            _ if self.is_fixed() => {
                self.counter_msr = IA32_FIXED_CTR0 + n - FIXED as u32;
                9
            }
            Driver::Intel => {
                (self.counter_msr, self.config_msr) = (IA32_PMC0 + n, IA32_PERFEVTSEL0 + n);
                12
            }
            Driver::AmdCore | Driver::AmdV2 => {
                (self.counter_msr, self.config_msr) = (PERF_CTR0 + 2 * n, PERF_CTL0 + 2 * n);
                13
            }
        }
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

#[cfg(test)]
mod tests {
    use guest::abi::EventSpec;
    use proptest::prelude::*;

    use super::*;

    fn boot(specs: &[(u64, u64)]) -> BootPage {
        let mut boot =
            BootPage { gp_counters: 4, fixed_counters: 3, event_count: specs.len() as u64, ..BootPage::default() };
        for (slot, &(code, fixed)) in boot.events.iter_mut().zip(specs) {
            *slot = EventSpec { selector: code | EVNTSEL_INT | EVNTSEL_USR, fixed, period: 1000 };
        }
        boot
    }

    proptest! {
        /// No two active events share a counter, and each has one it may have.
        #[test]
        fn assignments_are_possible(
            specs in proptest::collection::vec((0..4u64, 0..4u64), 1..12), turns in 0..12usize,
        ) {
            let mut events = Events::new(Driver::Intel, &boot(&specs));
            for _ in 0..=turns {
                events.schedule(&mut |_| {});
                let mut used = Vec::new();
                for n in 0..events.active_count {
                    let event = events.all[events.active(n)];
                    let index = usize::from(event.index.unwrap());
                    prop_assert!(!used.contains(&index));
                    used.push(index);
                    if index >= FIXED {
                        prop_assert_eq!(event.fixed, Some((index - FIXED) as u8));
                    } else {
                        prop_assert!(event.takes_gp && index < 4);
                    }
                }
                events.rotate(&mut |_| {});
            }
        }
    }
}
