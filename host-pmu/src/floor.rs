//! No host event at all: a clock counts and a timer signals.
//!
//! The floor arm is an estimated lower bound: guest, exits and vPMU without host events. Whatever its event, a counter
//! advances by one per TSC tick, as the clock stand-ins do after scaling, or at a given pace beside arms that count
//! something rarer. Clock and timer are a thread's, or a simulated one's; times are in the clock's units.
//!
//! The timer is set once per PMI, once where a guest with its counters off starts them by itself (as at a turn's begin), at
//! most twice at its task switch or rotation, and not while its handler runs unless a counter is due more than 500 µs before
//! the timer.
//!
//! A timer that is set where a counter starts, as an event's period is, would be set inside the handler: the guest's
//! last write there starts the counters. It is therefore set one step earlier, in the entry that brings the PMI, for
//! the time at which the counters will be due again if the handler takes about as long as others did and re-arms what
//! overflowed as it did before. A timer that is then early signals again after a short interval, without a call; one
//! that is late lengthens a period by that much. After many consecutive signals in vain the interval is doubled: an
//! exit of that host may take longer than it, and the guest would make no progress.

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;

use crate::backend::{HostError, Scale};
use crate::kick::ThreadTimer;
use crate::side::HostPmu;
use crate::stats::HostSide;
use crate::sys;

/// The timer's signals follow each other no sooner than after so many system calls of this host: where handling one
/// takes longer than the time to the next, as under a tracer, the thread would come to nothing else, not even to the
/// check whether so many were in vain.
const INTERVAL_CALLS: u64 = 40;
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

/// A setting of the timer: it signals at `first`, and then every `every` units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The first signal.
    pub first: u64,
    /// Time between the others.
    pub every: u64,
}

impl Setting {
    /// It does not signal.
    pub const OFF: Self = Self { first: u64::MAX, every: 0 };

    /// Returns when it signals next.
    pub const fn next(self, now: u64) -> u64 {
        if self.first > now { self.first } else { now + self.every - (now - self.first) % self.every }
    }
}

/// A clock and a timer by it.
pub trait Timer: std::fmt::Debug {
    /// Returns the time.
    fn now(&self) -> u64;

    /// Sets the timer anew.
    fn set(&mut self, setting: Setting);
}

/// The time-stamp counter, and a timer that signals the thread that made it.
#[derive(Debug)]
pub struct TscTimer {
    timer: ThreadTimer,
    /// Nanoseconds per tick.
    ns: Scale,
}

impl Timer for TscTimer {
    fn now(&self) -> u64 {
        sys::rdtsc()
    }

    fn set(&mut self, setting: Setting) {
        let left = setting.first.saturating_sub(sys::rdtsc());
        let [left, every] = [left, setting.every].map(|ticks| self.ns.to_guest(ticks).max(1));
        if setting == Setting::OFF { self.timer.arm(0, 0) } else { self.timer.arm(left, every) }
    }
}

/// Stages of the guest's work on an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None is under way.
    Idle,
    /// It was seen, and the next entry brings the PMI.
    Seen,
    /// The PMI is on its way to a handler, and the timer is set for the time after it.
    Coming,
    /// The counters are off: the handler runs.
    Handled,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// Time of its start.
    since: u64,
    /// Counts handed over since then.
    taken: u64,
    due: u64,
    /// The guest's period: from its start to its overflow, and by how much the overflow before was late.
    period: u64,
    /// Lateness of its last overflow; `None` once it was started again.
    late: Option<u64>,
}

impl Counter {
    /// Notes that it was armed for `period` after an overflow that was so `late`. A period that is late by a whole one begins anew, as
    /// in perf.
    const fn rearmed(&mut self, period: u64, late: u64) {
        self.period = if late < self.period { period.saturating_add(late) } else { period };
    }
}

/// Counts the time; signals by one timer per vCPU.
#[derive(Debug)]
pub struct Floor<T = TscTimer> {
    /// Clock and timer.
    pub timer: T,
    counters: [Counter; MAX_COUNTERS],
    running: CounterSet,
    /// Counts per unit of time.
    pace: Scale,
    entries: u64,
    stage: Stage,
    setting: Setting,
    /// Settings so far.
    calls: u64,
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
}

impl Floor {
    /// Creates a floor for the calling thread, the one that the timer signals, with so many counts per millisecond; `tsc_khz`: one
    /// count per TSC tick.
    pub fn new(tsc_khz: u64, counts_per_ms: u64) -> Result<Self, HostError> {
        let least = sys::cheapest_call_ns().saturating_mul(INTERVAL_CALLS).saturating_mul(tsc_khz / 1000) / 1000;
        let timer = TscTimer { timer: ThreadTimer::new()?, ns: Scale::new(1_000_000, tsc_khz) };
        let pace = if counts_per_ms == tsc_khz { Scale::ONE } else { Scale::new(counts_per_ms, tsc_khz) };
        Ok(Self::by(timer, pace, tsc_khz / 1000, least))
    }
}

impl<T: Timer> Floor<T> {
    /// Creates the counters of one vCPU by a clock of `per_us` units a microsecond, at so many counts per unit, on a host where signals
    /// that follow each other sooner than `least` would leave the thread no time between them.
    pub fn by(timer: T, pace: Scale, per_us: u64, least: u64) -> Self {
        let per_us = per_us.max(1);
        let least = least.clamp(SHORTEST_US * per_us, PATIENT_US * per_us);
        Self {
            timer,
            counters: [Counter::default(); MAX_COUNTERS],
            running: CounterSet::EMPTY,
            pace,
            entries: 0,
            stage: Stage::Idle,
            setting: Setting::OFF,
            calls: 0,
            restarted: false,
            seen: 0,
            found: 0,
            handler: [0; COUNTS],
            kind: 0,
            per_us,
            least,
            shortest: least,
            vain: 0,
            signals: 0,
            unlooked: 0,
        }
    }

    /// Decides on a new setting before a guest entry; `None`: the timer is well as it is.
    #[inline]
    fn wanted(&mut self) -> Option<Setting> {
        if self.running.is_empty() && self.stage != Stage::Idle {
            self.stage = Stage::Handled;
            if self.unlooked < LOOK {
                return None;
            }
            // A timer that is too fast for this host interrupts a handler at each of its entries, and would for good.
            let entries = std::mem::take(&mut self.unlooked);
            return self.starved(self.timer.now(), entries);
        }
        self.unlooked = 0;
        let now = self.timer.now();
        let wanted = match self.stage {
            // A guest that takes no PMI, or leaves its counters on meanwhile, may need the timer earlier.
            Stage::Coming => self.much_earlier(now),
            Stage::Seen => {
                self.stage = Stage::Coming;
                self.kind = self.found.min(COUNTS) - 1;
                Some(self.after_handler(now))
            }
            Stage::Handled => {
                self.stage = Stage::Idle;
                // The handler's last write: the timer is set already, unless the guest programmed something else meanwhile, or the
                // overflow was found with the counters switched off.
                if self.setting == Setting::OFF { self.idle(now) } else { self.much_earlier(now) }
            }
            Stage::Idle => self.idle(now),
        };
        let wanted = wanted.or_else(|| self.starved(now, 1))?;
        self.restarted = false;
        Some(wanted)
    }

    fn set(&mut self, setting: Setting) {
        (self.setting, self.calls, self.signals) = (setting, self.calls + 1, 0);
        self.timer.set(setting);
    }

    /// Returns the setting with a longer interval, where signals bring the guest back again and again and none finds an overflow.
    /// `entries`: those since the last call.
    fn starved(&mut self, now: u64, entries: u32) -> Option<Setting> {
        let Setting { first, every } = self.setting;
        let signals = if first <= now { (now - first) / every + 1 } else { 0 };
        let new = signals.saturating_sub(std::mem::replace(&mut self.signals, signals));
        // Several signals during one entry are one that is in vain.
        self.vain += entries.min(u32::try_from(new).unwrap_or(u32::MAX));
        let longest = PATIENT_US * self.per_us;
        if new == 0 || self.vain < STARVATION_LIMIT || every >= longest {
            return None;
        }
        (self.vain, self.shortest) = (0, (every * 2).min(longest));
        Some(Setting { first: now.saturating_add(self.shortest), every: self.shortest })
    }

    /// Returns the setting with counters that were not just found to have overflowed; `None`: the timer is well as it is.
    fn idle(&self, now: u64) -> Option<Setting> {
        let Setting { first, every } = self.setting;
        let due = self.running.into_iter().map(|counter| self.counters[counter.index()].due).min();
        // Counters that are off for a moment need no call.
        let Some(due) = due.map(|due| due.max(now)) else { return (first <= now).then_some(Setting::OFF) };
        let next = self.setting.next(now);
        // The guest started counters by itself, as after a task switch: that justifies a call.
        let (late_by, early_by) = if self.restarted { (every / 4, every) } else { (every, every * EARLY) };
        let (late, early) = (next > due.saturating_add(late_by), due > next.saturating_add(early_by));
        (late || early).then(|| self.at(due))
    }

    /// Returns the setting where a counter is due long before the timer signals; `None`: none is.
    fn much_earlier(&self, now: u64) -> Option<Setting> {
        let counters = self.running.into_iter().map(|counter| self.counters[counter.index()]);
        // An overflow that was seen waits for the guest.
        let ahead = counters.filter(|counter| counter.late.is_none() || counter.due > now);
        let due = ahead.map(|counter| counter.due).min()?.max(now);
        (self.setting.next(now) > due.saturating_add(LONGEST_US * self.per_us)).then(|| self.at(due))
    }

    /// Returns the setting for the time after the handler that is about to run.
    fn after_handler(&self, now: u64) -> Setting {
        let due_after = |counter: CounterId| {
            let Counter { due, period, late, .. } = self.counters[counter.index()];
            // A period that began late is as much shorter.
            late.map_or(due, |late| now.saturating_add(if late < period { period - late } else { period }))
        };
        let due = self.running.into_iter().map(due_after).min().unwrap_or(now);
        self.at(due.max(now).saturating_add(self.handler[self.kind]))
    }

    fn at(&self, first: u64) -> Setting {
        let periods = self.running.into_iter().map(|counter| self.counters[counter.index()].period);
        let longest = (LONGEST_US * self.per_us).max(self.shortest);
        let every = (periods.min().unwrap_or(0) / PART).clamp(self.shortest, longest);
        Setting { first, every }
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

impl<T: Timer> HostCounters for Floor<T> {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, counter: CounterId, _near: bool) -> AfterOverflow {
        let now = self.timer.now();
        let counter = &mut self.counters[counter.index()];
        counter.late = Some(now.saturating_sub(counter.due));
        if self.stage == Stage::Idle {
            (self.stage, self.seen, self.found) = (Stage::Seen, now, 0);
        }
        self.found += 1;
        self.vain = 0;
        AfterOverflow::Reprogram
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        if !self.running.contains(counter) {
            return 0;
        }
        let counter = &mut self.counters[counter.index()];
        let total = self.pace.to_guest(self.timer.now().saturating_sub(counter.since));
        total.saturating_sub(std::mem::replace(&mut counter.taken, total))
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        let gathered = self.take(counter);
        self.running.remove(counter);
        gathered
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, period: u64) {
        let (now, period) = (self.timer.now(), self.pace.to_host(period));
        self.running.insert(counter);
        let counter = &mut self.counters[counter.index()];
        (counter.since, counter.taken, counter.due) = (now, 0, now.saturating_add(period));
        // One that wrapped, and is not yet armed again, is started with all of its range.
        let wrapped = self.stage != Stage::Handled && counter.late.is_some();
        match counter.late.take_if(|_| !wrapped) {
            Some(late) => counter.rearmed(period, late),
            None if !wrapped && counter.period == 0 => counter.period = period,
            None => {}
        }
        self.restarted |= self.stage == Stage::Idle;
        if self.stage == Stage::Handled {
            self.handler_took(now.saturating_sub(self.seen));
        }
    }

    /// The guest wrote a running counter, or a signal was early and its period is set anew. A handler that leaves its counters
    /// on, as that of AMD's PERFCTR_CORE, arms them again by a write, and is over once it has done that with each that overflowed.
    fn set_period(&mut self, counter: CounterId, period: u64) {
        let (now, period) = (self.timer.now(), self.pace.to_host(period));
        let counter = &mut self.counters[counter.index()];
        let due = now.saturating_add(period);
        let before = std::mem::replace(&mut counter.due, due);
        // One that is due when it was due before was not written.
        let is_written = due.abs_diff(before) > SHORTEST_US * self.per_us;
        if !is_written || self.stage != Stage::Coming {
            return;
        }
        let Some(late) = counter.late.take() else { return };
        counter.rearmed(period, late);
        self.handler_took(now.saturating_sub(self.seen));
        if self.counters.iter().all(|counter| counter.late.is_none()) {
            self.stage = Stage::Idle;
        }
    }

    fn keeps_nothing_for(&self) -> CounterSet {
        self.running.complement()
    }

    fn on_entry(&mut self, _enabled: CounterSet) {
        self.entries += 1;
        if let Some(setting) = self.wanted() {
            self.set(setting);
        }
    }
}

impl<T: Timer> HostPmu for Floor<T> {
    /// With no counter running an entry has nothing to do while the handler runs, as at the entry before. Once in a while it has:
    /// signals may leave the handler no time.
    #[inline]
    fn passes_entry(&mut self) -> bool {
        let passes = self.running.is_empty() && self.stage == Stage::Handled && self.unlooked < LOOK;
        self.unlooked += u32::from(passes);
        self.entries += u64::from(passes);
        passes
    }

    fn held(&self) -> u64 {
        0
    }

    fn account(&mut self, counts: &mut Counts) -> HostSide {
        counts.entries += self.entries;
        counts.timer_calls += self.calls;
        HostSide::default()
    }

    fn restart_account(&mut self) {
        (self.entries, self.calls) = (0, 0);
    }

    fn rest(&mut self) {
        // The time of a handler excludes a rest, and an overflow that was found when the guest switched its counters
        // off has no handler.
        self.stage = Stage::Idle;
        self.counters.iter_mut().for_each(|counter| counter.late = None);
        if self.setting != Setting::OFF {
            self.set(Setting::OFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    const PERIOD: u64 = 1000;

    /// A clock that the tests set; its timer is what the floor says of it.
    #[derive(Debug)]
    struct Given(u64);

    impl Timer for Given {
        fn now(&self) -> u64 {
            self.0
        }

        fn set(&mut self, _: Setting) {}
    }

    fn counter() -> CounterId {
        CounterId::gp(0).unwrap()
    }

    fn running() -> CounterSet {
        let mut set = CounterSet::EMPTY;
        set.insert(counter());
        set
    }

    impl Floor<Given> {
        fn given(per_us: u64, least: u64) -> Self {
            Self::by(Given(0), Scale::ONE, per_us, least)
        }

        fn started(&mut self, now: u64, period: u64) {
            self.timer.0 = now;
            self.start(counter(), PerfEvtSel::from_bits(0).spec(), period);
        }

        fn moved(&mut self, now: u64, period: u64) {
            self.timer.0 = now;
            self.set_period(counter(), period);
        }

        fn found(&mut self, now: u64) {
            self.timer.0 = now;
            self.overflowed(counter(), false);
        }

        /// Enters the guest with these counters running; returns the setting that was made.
        fn enter(&mut self, running: CounterSet, now: u64) -> Option<Setting> {
            let before = self.calls;
            (self.running, self.timer.0) = (running, now);
            self.on_entry(CounterSet::EMPTY);
            (self.calls > before).then_some(self.setting)
        }
    }

    /// Lets the guest run until a signal finds its counter due. Returns when, and the number of signals.
    fn run_until(floor: &mut Floor<Given>, mut now: u64, due: u64) -> (u64, u64) {
        for signals in 1.. {
            now = floor.setting.next(now);
            assert_ne!(now, u64::MAX, "a signal");
            if now >= due {
                return (now, signals);
            }
            floor.enter(running(), now);
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
        let (mut floor, mut now, mut left) = (Floor::given(1, 0), 0, PERIOD);
        let (mut late, mut inside) = (Vec::new(), 0);
        floor.started(now, left);
        assert!(floor.enter(running(), 0).is_some());
        for n in 0..pmis {
            let due = now + left;
            (now, _) = run_until(&mut floor, now, due);
            late.push(now - due);
            floor.found(now);
            floor.started(now, 1 << 40);
            floor.enter(running(), now);
            let before = floor.calls;
            for step in 0..4 {
                now += took(n) / 4;
                floor.enter(if step == 3 { running() } else { CounterSet::EMPTY }, now);
                if step == 2 {
                    left = rest_of(late[late.len() - 1]);
                    floor.started(now + took(n) / 4, left);
                }
            }
            inside += floor.calls - before;
        }
        (late, floor.calls, inside)
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
        let (mut floor, mut now, mut left) = (Floor::given(1, 0), 0, PERIOD);
        floor.started(now, left);
        floor.enter(running(), 0);
        let mut signals = 0;
        for _ in 0..1000 {
            let due = now + left;
            let (at, more) = run_until(&mut floor, now, due);
            (now, signals) = (at, signals + more);
            let late = now - due;
            floor.found(now);
            floor.started(now, 1 << 40);
            floor.enter(running(), now);
            now += 40;
            // A signal while the handler runs finds no overflow, and the wrapped counter's period is set anew.
            floor.moved(now, (1 << 40) - 41);
            now += 40;
            left = rest_of(late);
            floor.moved(now, left);
            floor.enter(running(), now);
        }
        assert_eq!(floor.calls, 1001);
        assert!(signals < 2000, "{signals} signals for 1000 PMIs");
    }

    /// Enters a guest that needs 10 µs on a host whose exits take 60, until it had them: it runs for the time until a signal, less the
    /// way into it. Fewer than `most` entries do.
    fn gets_on(floor: &mut Floor<Given>, mut now: u64, most: u32, running: CounterSet) {
        const EXIT: u64 = 60;
        let mut left = 10;
        for _ in 0..most {
            (floor.running, floor.timer.0) = (running, now);
            if !floor.passes_entry() {
                floor.on_entry(CounterSet::EMPTY);
            }
            let next = floor.setting.next(now);
            left -= (next - now).saturating_sub(EXIT).min(left);
            now = next.max(now + EXIT);
            if left == 0 {
                return;
            }
        }
        panic!("it starves with {:?}", floor.setting);
    }

    #[test]
    fn a_guest_whose_exits_take_longer_than_the_interval_gets_on() {
        let mut floor = Floor::given(1, 0);
        floor.started(0, 10);
        floor.enter(running(), 0);
        floor.found(40);
        floor.started(40, 1 << 40);
        gets_on(&mut floor, 0, 200, running());
        assert!(floor.shortest > SHORTEST_US && floor.calls < 10);
        // Handlers that take place bring the interval down again.
        (0..20).for_each(|_| floor.handler_took(10));
        assert_eq!(floor.shortest, SHORTEST_US);
    }

    /// A handler that a busy host preempts for longer than the period has its counters off, and signals at each entry.
    #[test]
    fn a_handler_whose_exits_take_longer_than_the_interval_gets_on() {
        let mut floor = Floor::given(1, 0);
        floor.started(0, PERIOD);
        floor.enter(running(), 0);
        floor.found(PERIOD);
        floor.enter(running(), PERIOD);
        // The counters are off from here on, after ten periods in which the handler did not run.
        gets_on(&mut floor, 11 * PERIOD, 400, CounterSet::EMPTY);
        assert!(floor.calls < 10, "{}", floor.calls);
    }

    #[test]
    fn a_slow_host_has_no_signals_closer_than_it_needs() {
        let mut floor = Floor::given(1, 900);
        floor.started(0, PERIOD);
        assert_eq!(floor.enter(running(), 0), Some(Setting { first: PERIOD, every: 900 }));
        (0..20).for_each(|_| floor.handler_took(10));
        assert_eq!(floor.shortest, 900);
        let bounded = |least| Floor::given(2, least).shortest;
        assert_eq!((bounded(0), bounded(u64::MAX)), (2 * SHORTEST_US, 2 * PATIENT_US));
    }

    #[test]
    fn a_counter_that_is_due_sooner_or_much_later_is_worth_a_call_outside_of_handlers() {
        let mut floor = Floor::given(1, 0);
        let at = |setting: Option<Setting>| setting.map(|setting| setting.first);
        floor.started(0, PERIOD);
        assert_eq!(at(floor.enter(running(), 0)), Some(PERIOD));
        assert_eq!(floor.enter(running(), 10), None);
        floor.started(20, 100);
        assert_eq!(at(floor.enter(running(), 20)), Some(120));
        floor.moved(20, 9 * PERIOD - 20);
        assert_eq!(at(floor.enter(running(), 30)), Some(9 * PERIOD));
        // Off for a moment, and for good.
        assert_eq!(floor.enter(CounterSet::EMPTY, 40), None);
        assert_eq!(floor.enter(CounterSet::EMPTY, 20 * PERIOD), Some(Setting::OFF));
        assert_eq!(floor.enter(CounterSet::EMPTY, 21 * PERIOD), None);
        let calls = floor.calls;
        floor.rest();
        assert_eq!(floor.calls, calls);
        floor.started(0, PERIOD);
        floor.enter(running(), 0);
        floor.rest();
        assert_eq!((floor.setting, floor.calls), (Setting::OFF, calls + 2));
    }

    #[test]
    fn a_paced_counter_counts_by_the_millisecond() {
        let mut floor = Floor::new(2_000_000, 100).unwrap();
        let before = sys::rdtsc();
        floor.start(CounterId::gp(0).unwrap(), PerfEvtSel::from_bits(0).spec(), 50);
        floor.on_entry(CounterSet::EMPTY);
        let slack = sys::rdtsc() - before;
        let first = floor.setting.first - before;
        assert!((1_000_000..=1_000_000 + slack).contains(&first), "50 counts are half a millisecond");
    }
}
