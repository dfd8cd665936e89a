//! Events of the guest's perf and their assignment to counters: a model of `guest/payload/c/sched.c`.

use guest::abi::{BootPage, MAX_EVENTS};

use super::event::{EVNTSEL_EN, Event, FIXED, MAX_PERIOD};
use super::paths::Path;

const EVNTSEL_INT: u64 = 1 << 20;
const EVNTSEL_USR: u64 = 1 << 16;
const EVNTSEL_OS: u64 = 1 << 17;

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
}

impl Events {
    pub(super) fn new(boot: &BootPage) -> Self {
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
    pub(super) fn rotate(&mut self, go: &mut impl FnMut(Path)) {
        go(Path::Rotate);
        self.head += 1;
        if self.head == self.enabled {
            self.head = 0;
            go(Path::RotateWraps);
        }
    }

    /// Mirrors `ctx_flexible_sched_in`: the longest prefix of the list that fits, then `x86_schedule_events`. Tells `go` its way.
    pub(super) fn schedule(&mut self, go: &mut impl FnMut(Path)) {
        if self.enabled == 0 {
            self.active_count = 0;
            go(Path::ScheduleNone);
            return;
        }
        go(Path::Schedule);
        // The first event always finds a counter.
        self.collect(go);
        go(Path::AsBefore);
        if !self.fits_as_before(go) {
            self.assign(go);
        }
        go(Path::ScheduleDone);
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

    fn collect(&mut self, go: &mut impl FnMut(Path)) {
        let (mut gp_free, mut fixed_used, mut fixed_movable) = (self.gp_counters, 0_u64, 0_u64);
        let mut n = 0;
        let mut at = self.head;
        while n < self.enabled {
            let event = &self.all[at];
            let mask = event.fixed.map_or(0, |n| 1 << n);
            go(Path::Collect);
            if mask & !fixed_used != 0 {
                fixed_used |= mask;
                go(Path::CollectFixed);
                if event.takes_gp {
                    fixed_movable |= mask;
                    go(Path::CollectFixedOrGp);
                }
            } else if gp_free > 0 && event.takes_gp {
                gp_free -= 1;
                go(Path::CollectGp);
            } else if gp_free > 0 && mask & fixed_movable != 0 {
                // The event that it drives from its fixed counter takes one.
                fixed_movable &= !mask;
                gp_free -= 1;
                go(Path::CollectMoved);
            } else {
                go(if gp_free == 0 { Path::CollectFull } else { Path::CollectStuck });
                break;
            }
            self.active[n] = at as u8;
            n += 1;
            at = if at + 1 == self.enabled { 0 } else { at + 1 };
            go(Path::CollectNext);
        }
        self.active_count = n;
    }

    fn fits_as_before(&self, go: &mut impl FnMut(Path)) -> bool {
        let mut used = 0_u64;
        for n in 0..self.active_count {
            match self.all[self.active(n)].index {
                None => {
                    go(Path::AsBeforeNever);
                    return false;
                }
                Some(index) if used >> index & 1 != 0 => {
                    go(Path::AsBeforeTaken);
                    return false;
                }
                Some(index) => used |= 1 << index,
            }
            go(Path::AsBeforeEvent);
        }
        true
    }

    /// Assigns counters: events with one choice first, then those of general-purpose counters, then those that may have either.
    fn assign(&mut self, go: &mut impl FnMut(Path)) {
        let (mut fixed_used, mut gp) = (0_u64, 0_u8);
        go(Path::Anew);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            if let (false, Some(fixed)) = (event.takes_gp, event.fixed) {
                fixed_used |= 1 << fixed;
                event.index = Some(FIXED as u8 + fixed);
                go(Path::AnewOnly);
                go(Path::AssignFixed);
            } else {
                go(Path::AnewOnlySkip);
            }
        }
        let mut next_gp = || {
            gp += 1;
            Some(gp - 1)
        };
        go(Path::AnewGeneral);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            if event.fixed.is_none() {
                event.index = next_gp();
                go(Path::AnewGeneralTaken);
                go(Path::AssignGp);
            } else {
                go(Path::AnewGeneralSkip);
            }
        }
        go(Path::AnewEither);
        for n in 0..self.active_count {
            let at = self.active(n);
            let event = &mut self.all[at];
            match event.fixed {
                _ if !event.takes_gp => go(Path::AnewEitherNotGp),
                None => go(Path::AnewEitherNotFixed),
                Some(fixed) if fixed_used & 1 << fixed == 0 => {
                    fixed_used |= 1 << fixed;
                    event.index = Some(FIXED as u8 + fixed);
                    go(Path::AnewEitherFixed);
                    go(Path::AssignFixed);
                }
                Some(_) => {
                    event.index = next_gp();
                    go(Path::AnewEitherGp);
                    go(Path::AssignGp);
                }
            }
        }
    }
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

    #[test]
    fn ten_events_rotate_over_seven_counters() {
        let fixed = [(0x3c, 2), (0xc0, 1), (0x300, 3)];
        let specs: Vec<_> = (1..=5).map(|code| (code, 0)).chain(fixed).chain([(6, 0), (7, 0)]).collect();
        let mut events = Events::new(&boot(&specs));
        let mut counts = Vec::new();
        for _ in 0..10 {
            events.schedule(&mut |_| {});
            assert!(events.rotation_needed());
            counts.push(events.active_count);
            events.rotate(&mut |_| {});
        }
        // perf stops at the first event that does not fit: with the five general-purpose ones in front, at the fifth.
        assert_eq!(counts, [4, 7, 7, 7, 7, 7, 6, 5, 4, 4]);
    }

    proptest! {
        /// No two active events share a counter, and each has one it may have.
        #[test]
        fn assignments_are_possible(
            specs in proptest::collection::vec((0..4u64, 0..4u64), 1..12), turns in 0..12usize,
        ) {
            let mut events = Events::new(&boot(&specs));
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
