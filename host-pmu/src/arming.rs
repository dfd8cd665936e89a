//! Decides when the floor's timer is set: once per PMI, once where a guest with its counters off starts them by itself
//! (as at a turn's begin), at most twice at its task switch or rotation, and not while its handler runs unless a
//! counter is due more than 500 µs before the timer.
//!
//! A timer that is set where a counter starts, as an event's period is, would be set inside the handler: the guest's
//! last write there starts the counters. It is therefore set one step earlier, in the entry that brings the PMI, for
//! the time at which the counters will be due again if the handler takes about as long as others did and re-arms what
//! overflowed as it did before. A timer that is then early signals again after a short interval, without a call; one
//! that is late lengthens a period by that much. After many consecutive signals in vain the interval is doubled: an
//! exit of that host may take longer than it, and the guest would make no progress.
//!
//! Times are in the caller's units: TSC ticks, or a simulation's nanoseconds.

use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS};

/// Shortest interval after an early signal.
const SHORTEST_US: u64 = 20;
/// Longest interval after an early signal.
const LONGEST_US: u64 = 500;
/// Divisor of the shortest period that gives the interval.
const PART: u64 = 16;
/// A signal that comes this many intervals too early justifies a call.
const EARLY: u64 = 2 * PART;
/// After this many consecutive entries that a signal caused, none with an overflow, the interval is lengthened: on a
/// host whose exits take longer than the interval the guest would make no progress.
const STARVATION_LIMIT: u32 = 32;
/// Inside a handler the signals are looked at once in so many entries: the clock is not asked at each register access.
const LOOK: u32 = 32;
/// Longest interval that such a guest is given, and that a host is said to need.
const PATIENT_US: u64 = 8000;

/// Handlers of one, two, or more counters differ.
const COUNTS: usize = 4;

/// A setting of the timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// It signals at `first`, and then every `every` time units.
    At {
        /// The first signal.
        first: u64,
        /// Time between the others.
        every: u64,
    },
    /// It does not signal.
    #[default]
    Off,
}

/// Stages of the guest's work on an overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// None is under way.
    #[default]
    Idle,
    /// The PMI is on its way to a handler.
    Coming {
        /// The timer is set for the time after it.
        set: bool,
    },
    /// The counters are off: the handler runs.
    Handled,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    due: u64,
    /// The guest's period: from its start to its overflow, and by how much the overflow before was late.
    period: u64,
    /// Lateness of its last overflow; `None` once it was started again.
    late: Option<u64>,
}

/// Decides when to set the timer of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Arming {
    counters: [Counter; MAX_COUNTERS],
    stage: Stage,
    setting: Setting,
    /// Counters were started outside of a handler since then.
    restarted: bool,
    /// Time at which the overflow that is under way was seen.
    seen: u64,
    /// Counters that were found to have overflowed, in this handler so far.
    found: usize,
    /// Median time from an overflow until counters run again, by the number of counters that its entry found.
    handler: [u64; COUNTS],
    /// Index into `handler` of the handler that is under way.
    kind: usize,
    per_us: u64,
    /// Shortest interval on this host.
    least: u64,
    /// Shortest interval in use: longer than `least` after consecutive entries that a signal caused in vain.
    shortest: u64,
    /// Number of those consecutive entries.
    vain: u32,
    /// Signals of the setting at the last entry that asked.
    signals: u64,
    /// Entries of the handler that is under way since the signals were looked at.
    unlooked: u32,
    /// Settings so far.
    pub calls: u64,
}

impl Arming {
    /// Creates one for a clock of `per_us` units a microsecond, on a host where signals that follow each other sooner than `least` would
    /// leave the thread no time between them.
    pub fn new(per_us: u64, least: u64) -> Self {
        let per_us = per_us.max(1);
        let least = least.clamp(SHORTEST_US * per_us, PATIENT_US * per_us);
        Self { per_us, least, shortest: least, ..Self::default() }
    }

    /// Notes that a counter starts at `now` and is due after `period`.
    pub fn started(&mut self, counter: CounterId, now: u64, period: u64) {
        let counter = &mut self.counters[counter.index()];
        counter.due = now.saturating_add(period);
        // One that wrapped, and is not yet armed again, is started with all of its range.
        let wrapped = self.stage != Stage::Handled && counter.late.is_some();
        match counter.late.take_if(|_| !wrapped) {
            // A period that is late by a whole one begins anew, as in perf.
            Some(late) if late < counter.period => counter.period = period.saturating_add(late),
            Some(_) => counter.period = period,
            None if !wrapped && counter.period == 0 => counter.period = period,
            None => {}
        }
        self.restarted |= self.stage == Stage::Idle;
        if self.stage == Stage::Handled {
            self.handler_took(now.saturating_sub(self.seen));
        }
    }

    /// Notes that a running counter is due `period` after `now`: the guest wrote it, or a signal was early and its
    /// period is set anew. A handler that leaves its counters on, as that of AMD's PERFCTR_CORE, arms them again by a
    /// write, and is over once it has done that with each that overflowed.
    pub fn moved(&mut self, counter: CounterId, now: u64, period: u64) {
        let counter = &mut self.counters[counter.index()];
        let due = now.saturating_add(period);
        let before = std::mem::replace(&mut counter.due, due);
        // One that is due when it was due before was not written.
        let is_written = due.abs_diff(before) > SHORTEST_US * self.per_us;
        if !is_written || self.stage != (Stage::Coming { set: true }) {
            return;
        }
        let Some(late) = counter.late.take() else { return };
        counter.period = if late < counter.period { period.saturating_add(late) } else { period };
        self.handler_took(now.saturating_sub(self.seen));
        if self.counters.iter().all(|counter| counter.late.is_none()) {
            self.stage = Stage::Idle;
        }
    }

    /// Notes that a running counter was found to have overflowed.
    pub fn overflowed(&mut self, counter: CounterId, now: u64) {
        let counter = &mut self.counters[counter.index()];
        counter.late = Some(now.saturating_sub(counter.due));
        if self.stage == Stage::Idle {
            (self.stage, self.seen, self.found) = (Stage::Coming { set: false }, now, 0);
        }
        self.found += 1;
        self.vain = 0;
    }

    /// Returns whether an [entry](Self::entry) with no counter running has nothing to do because the handler runs, as
    /// at the entry before, and counts it. Once in a while there is: signals may leave the handler no time.
    #[inline]
    pub fn passes_in_handler(&mut self) -> bool {
        let passes = self.stage == Stage::Handled && self.unlooked < LOOK;
        self.unlooked += u32::from(passes);
        passes
    }

    /// Decides on a new setting before a guest entry with these counters running. A setting that is returned is made
    /// now; `now` is asked for where it matters.
    #[inline]
    pub fn entry(&mut self, running: CounterSet, now: impl FnOnce() -> u64) -> Option<Setting> {
        if running.is_empty() && self.stage != Stage::Idle {
            self.stage = Stage::Handled;
            if self.unlooked < LOOK {
                return None;
            }
            // A timer that is too fast for this host interrupts a handler at each of its entries, and would for good.
            let entries = std::mem::take(&mut self.unlooked);
            let wanted = self.starved(now(), entries)?;
            return Some(self.make(wanted));
        }
        self.unlooked = 0;
        let now = now();
        let wanted = match self.stage {
            // A guest that takes no PMI, or leaves its counters on meanwhile, may need the timer earlier.
            Stage::Coming { set: true } => self.much_earlier(running, now),
            Stage::Coming { set: false } => {
                self.stage = Stage::Coming { set: true };
                self.kind = self.found.min(COUNTS) - 1;
                Some(self.after_handler(running, now))
            }
            Stage::Handled => {
                self.stage = Stage::Idle;
                // The handler's last write: the timer is set already, unless the guest programmed something else meanwhile, or the
                // overflow was found with the counters switched off.
                match self.setting {
                    Setting::Off => self.idle(running, now),
                    Setting::At { .. } => self.much_earlier(running, now),
                }
            }
            Stage::Idle => self.idle(running, now),
        };
        let wanted = wanted.or_else(|| self.starved(now, 1))?;
        self.restarted = false;
        Some(self.make(wanted))
    }

    const fn make(&mut self, setting: Setting) -> Setting {
        (self.setting, self.calls, self.signals) = (setting, self.calls + 1, 0);
        setting
    }

    /// Returns the setting with a longer interval, where signals bring the guest back again and again and none finds an overflow.
    /// `entries`: those since the last call.
    fn starved(&mut self, now: u64, entries: u32) -> Option<Setting> {
        let Setting::At { first, every } = self.setting else { return None };
        let signals = if first <= now { (now - first) / every + 1 } else { 0 };
        let new = signals.saturating_sub(std::mem::replace(&mut self.signals, signals));
        if new == 0 {
            return None;
        }
        // Several signals during one entry are one that is in vain.
        self.vain += entries.min(u32::try_from(new).unwrap_or(u32::MAX));
        let longest = PATIENT_US * self.per_us;
        if self.vain < STARVATION_LIMIT || every >= longest {
            return None;
        }
        (self.vain, self.shortest) = (0, (every * 2).min(longest));
        Some(Setting::At { first: now.saturating_add(self.shortest), every: self.shortest })
    }

    /// Stops the signals while the vCPU rests, because one would disturb others.
    pub fn rest(&mut self) -> Option<Setting> {
        // The time of a handler excludes a rest, and an overflow that was found when the guest switched its counters
        // off has no handler.
        (self.stage, self.found) = (Stage::Idle, 0);
        self.counters.iter_mut().for_each(|counter| counter.late = None);
        (self.setting != Setting::Off).then(|| self.make(Setting::Off))
    }

    /// Returns the setting with counters that were not just found to have overflowed; `None`: the timer is well as it is.
    fn idle(&self, running: CounterSet, now: u64) -> Option<Setting> {
        let due = running.into_iter().map(|counter| self.counters[counter.index()].due).min();
        match (due, self.setting) {
            // Counters that are off for a moment need no call.
            (None, Setting::At { first, .. }) => (first <= now).then_some(Setting::Off),
            (None, Setting::Off) => None,
            (Some(due), Setting::Off) => Some(self.at(running, due.max(now))),
            (Some(due), Setting::At { every, .. }) => {
                let next = self.next(now)?;
                // The guest started counters by itself, as after a task switch: that justifies a call.
                let (late_by, early_by) = if self.restarted { (every / 4, every) } else { (every, every * EARLY) };
                let late = next > due.max(now).saturating_add(late_by);
                let early = due > next.saturating_add(early_by);
                (late || early).then(|| self.at(running, due.max(now)))
            }
        }
    }

    /// Returns the setting where a counter is due long before the timer signals; `None`: none is.
    fn much_earlier(&self, running: CounterSet, now: u64) -> Option<Setting> {
        let ahead = |counter: &CounterId| {
            let Counter { due, late, .. } = self.counters[counter.index()];
            // An overflow that was seen waits for the guest.
            late.is_none() || due > now
        };
        let due = running.into_iter().filter(ahead).map(|counter| self.counters[counter.index()].due).min()?.max(now);
        (self.next(now)? > due.saturating_add(LONGEST_US * self.per_us)).then(|| self.at(running, due))
    }

    /// Returns when the timer signals next; `None` if it is off.
    const fn next(&self, now: u64) -> Option<u64> {
        match self.setting {
            Setting::At { first, every } if first <= now => Some(now + every - (now - first) % every),
            Setting::At { first, .. } => Some(first),
            Setting::Off => None,
        }
    }

    /// Returns the setting for the time after the handler that is about to run.
    fn after_handler(&self, running: CounterSet, now: u64) -> Setting {
        let due_after = |counter: CounterId| {
            let Counter { due, period, late } = self.counters[counter.index()];
            // A period that began late is as much shorter.
            late.map_or(due, |late| now.saturating_add(if late < period { period - late } else { period }))
        };
        let due = running.into_iter().map(due_after).min().unwrap_or(now);
        self.at(running, due.max(now).saturating_add(self.handler[self.kind]))
    }

    fn at(&self, running: CounterSet, first: u64) -> Setting {
        let shortest = running.into_iter().map(|counter| self.counters[counter.index()].period).min().unwrap_or(0);
        let longest = (LONGEST_US * self.per_us).max(self.shortest);
        let every = (shortest / PART).clamp(self.shortest, longest);
        Setting::At { first, every }
    }

    /// Moves the estimate by a handler's time: steps up and down are equal, so half of the handlers take less; none
    /// takes the estimate far.
    fn handler_took(&mut self, time: u64) {
        self.shortest = (self.shortest / 2).max(self.least);
        let estimate = &mut self.handler[self.kind];
        *estimate = match *estimate {
            0 => time.min(LONGEST_US * self.per_us),
            before if time > before => before + before / 32 + 1,
            before => before - before / 32,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1000;

    fn counter() -> CounterId {
        CounterId::gp(0).unwrap()
    }

    fn running() -> CounterSet {
        let mut set = CounterSet::EMPTY;
        set.insert(counter());
        set
    }

    /// Lets the guest run until a signal finds its counter due. Returns when, and the number of signals.
    fn run_until(arming: &mut Arming, mut now: u64, due: u64) -> (u64, u64) {
        for signals in 1.. {
            now = arming.next(now).expect("a signal");
            if now >= due {
                return (now, signals);
            }
            arming.entry(running(), || now);
        }
        unreachable!()
    }

    /// Returns the rest of a period after an overflow that was so late.
    fn rest_of(late: u64) -> u64 {
        if late < PERIOD { PERIOD - late } else { PERIOD }
    }

    /// Simulates a guest with one counter and a handler of `took(n)` µs, for `pmis` PMIs. Returns how late each
    /// overflow was seen, and the settings made outside and inside of handlers.
    fn run(pmis: u64, took: impl Fn(u64) -> u64) -> (Vec<u64>, u64, u64) {
        let (mut arming, mut now, mut left) = (Arming::new(1, 0), 0, PERIOD);
        let (mut late, mut inside) = (Vec::new(), 0);
        arming.started(counter(), now, left);
        assert!(arming.entry(running(), || 0).is_some());
        for n in 0..pmis {
            let due = now + left;
            (now, _) = run_until(&mut arming, now, due);
            late.push(now - due);
            arming.overflowed(counter(), now);
            arming.started(counter(), now, 1 << 40);
            arming.entry(running(), || now);
            let before = arming.calls;
            for step in 0..4 {
                now += took(n) / 4;
                arming.entry(if step == 3 { running() } else { CounterSet::EMPTY }, || now);
                if step == 2 {
                    left = rest_of(late[late.len() - 1]);
                    arming.started(counter(), now + took(n) / 4, left);
                }
            }
            inside += arming.calls - before;
        }
        (late, arming.calls, inside)
    }

    #[test]
    fn a_pmi_costs_one_setting_and_none_in_its_handler() {
        let (late, calls, inside) = run(1000, |_| 160);
        assert_eq!((calls, inside), (1001, 0));
        assert!(late[20..].iter().all(|&late| late <= 80), "{:?}", &late[..60]);
        // Handlers of two modes, and now and then a long one.
        let (late, calls, inside) = run(1000, |n| if n % 50 == 7 { 1200 } else { 150 + 64 * (n / 9 % 2) });
        assert_eq!((calls, inside), (1001, 0));
        let mean = late.iter().sum::<u64>() / 1000;
        assert!(mean < 150 && late.iter().all(|&late| late < PERIOD), "{mean}");
    }

    #[test]
    fn a_handler_that_leaves_its_counters_on_costs_one_setting_too() {
        let (mut arming, mut now, mut left) = (Arming::new(1, 0), 0, PERIOD);
        arming.started(counter(), now, left);
        arming.entry(running(), || 0);
        let mut signals = 0;
        for _ in 0..1000 {
            let due = now + left;
            let (at, more) = run_until(&mut arming, now, due);
            (now, signals) = (at, signals + more);
            let late = now - due;
            arming.overflowed(counter(), now);
            arming.started(counter(), now, 1 << 40);
            arming.entry(running(), || now);
            now += 40;
            // A signal while the handler runs finds no overflow, and the wrapped counter's period is set anew.
            arming.moved(counter(), now, (1 << 40) - 41);
            now += 40;
            left = rest_of(late);
            arming.moved(counter(), now, left);
            arming.entry(running(), || now);
        }
        assert_eq!(arming.calls, 1001);
        assert!(signals < 2000, "{signals} signals for 1000 PMIs");
    }

    /// Enters a guest that needs 10 µs on a host whose exits take 60, until it had them: it runs for the time until a signal, less the
    /// way into it. Fewer than `most` entries do.
    fn gets_on(arming: &mut Arming, mut now: u64, most: u32, enter: impl Fn(&mut Arming, u64)) {
        const EXIT: u64 = 60;
        let mut left = 10;
        for _ in 0..most {
            enter(arming, now);
            let next = arming.next(now).unwrap();
            left -= (next - now).saturating_sub(EXIT).min(left);
            now = next.max(now + EXIT);
            if left == 0 {
                return;
            }
        }
        panic!("it starves with {:?}", arming.setting);
    }

    #[test]
    fn a_guest_whose_exits_take_longer_than_the_interval_gets_on() {
        let mut arming = Arming::new(1, 0);
        arming.started(counter(), 0, 10);
        arming.entry(running(), || 0);
        arming.overflowed(counter(), 40);
        arming.started(counter(), 40, 1 << 40);
        gets_on(&mut arming, 0, 200, |arming, now| _ = arming.entry(running(), || now));
        assert!(arming.shortest > SHORTEST_US && arming.calls < 10);
        // Handlers that take place bring the interval down again.
        (0..20).for_each(|_| arming.handler_took(10));
        assert_eq!(arming.shortest, SHORTEST_US);
    }

    /// A handler that a busy host preempts for longer than the period has its counters off, and signals at each entry.
    #[test]
    fn a_handler_whose_exits_take_longer_than_the_interval_gets_on() {
        let mut arming = Arming::new(1, 0);
        arming.started(counter(), 0, PERIOD);
        arming.entry(running(), || 0);
        arming.overflowed(counter(), PERIOD);
        arming.entry(running(), || PERIOD);
        // The counters are off from here on, after ten periods in which the handler did not run.
        gets_on(&mut arming, 11 * PERIOD, 400, |arming, now| {
            if !arming.passes_in_handler() {
                arming.entry(CounterSet::EMPTY, || now);
            }
        });
        assert!(arming.calls < 10, "{}", arming.calls);
    }

    #[test]
    fn a_slow_host_has_no_signals_closer_than_it_needs() {
        let mut arming = Arming::new(1, 900);
        arming.started(counter(), 0, PERIOD);
        assert_eq!(arming.entry(running(), || 0), Some(Setting::At { first: PERIOD, every: 900 }));
        (0..20).for_each(|_| arming.handler_took(10));
        assert_eq!(arming.shortest, 900);
        let bounded = |least| Arming::new(2, least).shortest;
        assert_eq!((bounded(0), bounded(u64::MAX)), (2 * SHORTEST_US, 2 * PATIENT_US));
    }

    #[test]
    fn a_counter_that_is_due_sooner_or_much_later_is_worth_a_call_outside_of_handlers() {
        let mut arming = Arming::new(1, 0);
        let at = |setting: Option<Setting>| match setting {
            Some(Setting::At { first, .. }) => first,
            other => panic!("{other:?}"),
        };
        arming.started(counter(), 0, PERIOD);
        assert_eq!(at(arming.entry(running(), || 0)), PERIOD);
        assert_eq!(arming.entry(running(), || 10), None);
        arming.started(counter(), 20, 100);
        assert_eq!(at(arming.entry(running(), || 20)), 120);
        arming.moved(counter(), 20, 9 * PERIOD - 20);
        assert_eq!(at(arming.entry(running(), || 30)), 9 * PERIOD);
        // Off for a moment, and for good.
        assert_eq!(arming.entry(CounterSet::EMPTY, || 40), None);
        assert_eq!(arming.entry(CounterSet::EMPTY, || 20 * PERIOD), Some(Setting::Off));
        assert_eq!((arming.entry(CounterSet::EMPTY, || 21 * PERIOD), arming.rest()), (None, None));
        arming.started(counter(), 0, PERIOD);
        arming.entry(running(), || 0);
        assert_eq!(arming.rest(), Some(Setting::Off));
    }
}
