//! State of a guest, and its register accesses.

use guest::abi::{
    BootPage, DB_MEASURE_END, DB_TURN_OVER, FLAG_TURNS, LOG_NMI, LOG_ROTATION, LogEntry, MAGIC, Report, WORKLOAD_IO,
};
use hdrhistogram::Histogram;
use host_pmu::stats::Recorder;

use super::events::{Driver, Events, Started};
use crate::side::{SimHost, VcpuSide};
use crate::stream::Stream;
use crate::vcpu::Vcpu;

/// LVTPC in NMI mode.
const LVT_NMI: u32 = 0x400;
/// Workload `io` writes a port this many times per unit (every 256 of 1024 steps).
const IO_BURST: u64 = 4;
/// Entry of [`Guest::map`] without an event.
pub(super) const NOBODY: u8 = u8::MAX;

/// Rearming of the guest's timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timer {
    /// A periodic LAPIC timer, as in the payload: an expiry during the tick is taken right after it.
    #[default]
    Periodic,
    /// Expires at the first multiple of the interval after the work of the tick, as Linux's `perf_mux_hrtimer_handler` does by
    /// `hrtimer_forward_now`: the guest makes progress even if a tick takes longer than the interval.
    Forwarded,
}

impl Timer {
    /// Returns its name as an option has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Forwarded => "forwarded",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WarmUp,
    Baseline,
    /// Waits for its first turn.
    Opened,
    Measure,
    /// Waits for its next turn.
    Rest,
    Tail,
    Done,
}

/// Progress through set-ups and tear-downs.
#[derive(Clone, Debug, Default)]
pub(super) struct StatSetup {
    /// True if events are set up.
    pub(super) counting: bool,
    /// Ticks since the last set-up or tear-down.
    pub(super) ticks: u64,
    pub(super) cycles: u64,
    /// TSC before and after each call of a phase.
    pub(super) stamps: Vec<u64>,
}

/// A guest on one vCPU.
#[derive(Debug)]
pub(crate) struct Guest<H> {
    pub(super) cpu: Vcpu<H>,
    /// Instructions since the last access.
    owed: u64,
    pub(super) boot: BootPage,
    pub(super) tsc_hz: u64,
    pub(super) work_unit: u64,
    pub(super) events: Events,
    /// Where its rotations begin.
    pub(super) places: Stream,
    pub(super) driver: Driver,
    pub(super) started: Started,
    pub(super) map: [u8; 64],
    /// perf's `cpuc->enabled`.
    pub(super) enabled: bool,
    pub(super) freq: bool,
    pub(super) in_nmi: bool,
    pub(super) target_met: bool,
    pub(super) lvtpc: u32,
    pub(super) global_ctrl: u64,
    pub(super) log_kind: u64,
    pub(super) until_target: u64,
    /// Hard limit, and whether it was reached.
    pub(super) limit: u64,
    /// Bound on a turn, ns.
    pub(super) time_limit: u64,
    /// Begin of the current turn, or of the guest.
    pub(super) began: u64,
    pub(super) timed_out: bool,
    pub(super) timer: Timer,
    pub(super) next_tick: u64,
    /// Interval of the timer, ns.
    pub(super) interval: u64,
    /// A tick of the timer as it was before it was set anew.
    pub(super) late_tick: bool,
    pub(super) last_tick: u64,
    pub(super) tick_tsc: u64,
    pub(super) sched_in: u64,
    pub(super) phase: Phase,
    pub(super) phase_ticks: u64,
    pub(super) user_ns: u64,
    /// A tick was taken since the last HLT.
    pub(super) woke: bool,
    /// Wake-ups of an idle guest.
    pub(super) wakes: u64,
    /// TSC at the begin of the rest.
    pub(super) stopped: u64,
    pub(super) units_at_start: u64,
    pub(super) stat: StatSetup,
    pub(super) report: Box<Report>,
    pub(super) log: Vec<LogEntry>,
    pub(super) log_capacity: usize,
    pub(super) deliveries: Vec<u64>,
    pub(super) held_at_tail_tick: Vec<u64>,
    pub(super) handler: Latency,
    pub(super) driver_off: Latency,
    pub(super) delivery: Latency,
    pub(super) rotation: Latency,
}

/// Result of a guest.
#[derive(Clone, Debug)]
pub struct GuestOutcome {
    /// Report, as the payload writes it.
    pub report: Box<Report>,
    /// Log, up to its capacity.
    pub log: Vec<LogEntry>,
    /// TSC at which the overflow of each NMI was noticed, up to the capacity of the log.
    pub deliveries: Vec<u64>,
    /// Events held at each tick of the tail.
    pub held_at_tail_tick: Vec<u64>,
    /// NMI handler, entry to exit, ns, of NMIs that re-armed a counter.
    pub handler: Latency,
    /// NMI handler, entry to exit, of NMIs that re-armed none, as they met the driver switched off.
    pub driver_off: Latency,
    /// Time from the VMM's notice of the overflow to the entry of the handler, ns.
    pub delivery: Latency,
    /// Rotations and task switches, ns.
    pub rotation: Latency,
    /// True if the hard limit ended the guest.
    pub timed_out: bool,
    /// Virtual time, ns.
    pub ns: u64,
    /// Result of the vCPU.
    pub side: VcpuSide,
}

impl<H: SimHost> Guest<H> {
    /// Creates a guest with this boot page and a hard limit in ns. `tick_count` is in ns, as with KVM's timer;
    /// addresses are ignored.
    pub(crate) fn new(
        mut cpu: Vcpu<H>,
        (driver, boot, places): (Driver, &BootPage, Stream),
        (timer, limit): (Timer, u64),
        tsc_khz: u64,
        work_unit: u64,
    ) -> Self {
        let events = Events::new(driver, boot);
        let samples = events.all.iter().any(|event| boot.events[event.spec].period != 0);
        let freq = events.all.iter().any(|event| event.freq);
        let begin = cpu.now();
        Self {
            cpu,
            owed: 0,
            boot: *boot,
            tsc_hz: tsc_khz * 1000,
            work_unit: if boot.workload == WORKLOAD_IO { work_unit / IO_BURST } else { work_unit }.max(1),
            map: [NOBODY; 64],
            enabled: false,
            freq,
            in_nmi: false,
            target_met: false,
            lvtpc: LVT_NMI,
            global_ctrl: ((1 << boot.gp_counters) - 1) | ((1 << boot.fixed_counters) - 1) << 32,
            log_kind: if samples { LOG_NMI } else { LOG_ROTATION },
            until_target: boot.sample_target,
            limit,
            time_limit: limit,
            began: 0,
            timed_out: false,
            timer,
            next_tick: begin + boot.tick_count.max(1),
            interval: boot.tick_count.max(1),
            late_tick: false,
            last_tick: 0,
            tick_tsc: 0,
            sched_in: 0,
            phase: Phase::WarmUp,
            phase_ticks: 0,
            user_ns: 0,
            woke: false,
            wakes: 0,
            stopped: 0,
            units_at_start: 0,
            stat: StatSetup::default(),
            report: Box::new(Report { magic: MAGIC, ..Report::default() }),
            log: Vec::new(),
            log_capacity: boot.log_capacity as usize,
            deliveries: Vec::new(),
            held_at_tail_tick: Vec::new(),
            handler: Latency::default(),
            driver_off: Latency::default(),
            delivery: Latency::default(),
            rotation: Latency::default(),
            events,
            places,
            driver,
            started: Started::default(),
        }
    }

    /// Returns the ns since the start of the simulation.
    pub(crate) fn now(&mut self) -> u64 {
        self.cpu.now()
    }

    /// Goes on by so many instructions, which are executed before the next access.
    ///
    /// The numbers here and elsewhere are those of the payload's code between two accesses, without the accesses, compiled by GCC
    /// 12.2.0 of Debian 12. They are constants, as results must not depend on who compiles the payload.
    #[inline]
    pub(super) fn go(&mut self, instructions: u64) {
        self.owed += instructions;
    }

    /// Executes the instructions so far.
    #[inline]
    pub(super) fn spend(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        self.cpu.execute(owed);
    }

    /// Executes the instructions so far, and that of an access.
    #[inline]
    fn spend_for_access(&mut self) {
        self.go(1);
        self.spend();
    }

    #[inline]
    pub(super) fn wrmsr(&mut self, msr: u32, value: u64) {
        self.wrmsr_in_nmi(msr, value);
        self.take_nmis();
    }

    #[inline]
    pub(super) fn rdmsr(&mut self, msr: u32) -> u64 {
        let value = self.rdmsr_in_nmi(msr);
        self.take_nmis();
        value
    }

    /// Executes WRMSR where no NMI is taken.
    #[inline]
    pub(super) fn wrmsr_in_nmi(&mut self, msr: u32, value: u64) {
        self.spend_for_access();
        self.cpu.wrmsr(msr, value);
    }

    /// Executes RDMSR where no NMI is taken.
    #[inline]
    pub(super) fn rdmsr_in_nmi(&mut self, msr: u32) -> u64 {
        self.spend_for_access();
        self.cpu.rdmsr(msr)
    }

    /// Executes RDTSC, with the ns since the start of the simulation.
    #[inline]
    pub(super) fn rdtsc(&mut self) -> (u64, u64) {
        self.spend();
        let read = self.cpu.rdtsc();
        self.go(1);
        read
    }

    pub(super) fn write_lvtpc(&mut self) {
        self.spend_for_access();
        self.cpu.write_lvtpc(self.lvtpc);
    }

    pub(super) fn write_eoi(&mut self) {
        self.spend_for_access();
        self.cpu.write_apic();
    }

    /// Sets the timer; 0 stops it. An expiry that was not taken yet stays pending.
    pub(super) fn write_timer(&mut self, count: u64) {
        self.spend_for_access();
        self.cpu.write_apic();
        let now = self.cpu.now();
        self.late_tick |= now >= self.next_tick;
        (self.interval, self.next_tick) = if count == 0 { (1, u64::MAX) } else { (count, now.saturating_add(count)) };
    }

    pub(super) fn doorbell(&mut self, code: u32) {
        self.ring(code);
        self.take_nmis();
    }

    /// Rings a doorbell from which the guest does not go on at once.
    pub(super) fn ring(&mut self, _code: u32) {
        self.spend_for_access();
        self.cpu.write_port();
    }

    pub(super) fn begin_phase(&mut self, phase: u64) {
        self.spend_for_access();
        self.cpu.begin_phase(phase);
        self.take_nmis();
    }

    /// Mirrors `sched_in`.
    pub(super) fn schedule(&mut self) {
        self.events.schedule(&mut |instructions| self.owed += instructions);
    }

    /// Mirrors `sched_rotate`.
    pub(super) fn rotate(&mut self) {
        self.events.rotate(&mut |instructions| self.owed += instructions);
    }
}

/// Latencies of many events, ns, in fixed space.
#[derive(Clone, Debug)]
pub struct Latency {
    count: u64,
    ns: Recorder,
    /// Exact sum.
    pub sum: u128,
    /// Minimum; `u64::MAX` without events.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { count: 0, ns: Recorder::default(), sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Latency {
    /// Adds an event.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        self.ns.record(ns);
        self.sum += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds the events of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.ns.merge(&other.ns);
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the number of events.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns a histogram with two significant digits.
    pub fn histogram(&self) -> Histogram<u64> {
        self.ns.histogram()
    }

    /// Returns the mean; `None` without events.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64)
    }
}

/// The payload's shortest timer, ns.
const SOON: u64 = 250_000;

impl<H: SimHost> Guest<H> {
    pub(super) fn takes_turns(&self) -> bool {
        self.boot.flags & FLAG_TURNS != 0
    }

    /// Returns whether it waits for its next turn.
    pub(crate) fn rests(&self) -> bool {
        matches!(self.phase, Phase::Opened | Phase::Rest)
    }

    /// Makes the tick that ends the turn come at once, because nothing is left to be sampled in it.
    pub(super) fn tick_soon(&mut self) {
        if self.boot.tick_count > SOON {
            self.go(6);
            self.write_timer(SOON);
            self.go(1);
        } else {
            self.go(4);
        }
    }

    pub(super) fn end_turn(&mut self) {
        self.go(8);
        if self.enabled {
            self.go(1);
            self.pmu_disable();
            self.report.measure_end = self.rdtsc().1;
            self.report.measure_units = self.units() - self.units_at_start;
            self.go(9);
        }
        let ran = self.report.measure_end.wrapping_sub(self.report.measure_begin);
        self.go(4);
        if self.events.enabled > 0 {
            self.go(7);
            self.go(4 * self.events.enabled as u64);
        }
        for event in self.events.all.iter_mut().take(self.events.enabled) {
            event.enabled_ticks = ran;
        }
        self.go(5);
        self.stop_active(self.report.measure_end);
    }

    /// Mirrors `wait_for_turn`, up to the wait.
    pub(super) fn rest(&mut self, phase: Phase) {
        self.go(3);
        self.write_timer(0);
        self.go(2);
        self.doorbell(DB_MEASURE_END);
        self.go(1);
        self.publish();
        self.go(12);
        self.go_for_all(5, 8);
        self.stopped = self.rdtsc().1;
        self.go(6);
        self.ring(DB_TURN_OVER);
        self.phase = phase;
    }

    /// Executes a loop over all events.
    fn go_for_all(&mut self, some: u64, each: u64) {
        if !self.events.all.is_empty() {
            self.go(some);
            self.go(each * self.events.all.len() as u64);
        }
    }

    /// Begins a turn of `samples` at `at`, or as soon as the vCPU's thread runs.
    pub(crate) fn begin_turn(&mut self, at: u64, samples: u64) {
        self.boot.sample_target = samples;
        let phase = self.wake(at);
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        self.phase = Phase::Measure;
        if phase == Phase::Opened {
            self.go(3);
            self.begin_measuring();
        } else {
            self.next_turn();
        }
        self.over_limit();
    }

    fn next_turn(&mut self) {
        self.units_at_start = self.units();
        self.go(8);
        self.report.measure_begin = self.rdtsc().1;
        self.go(5);
        self.events.begin_anywhere(&mut self.places);
        self.start_active();
        self.go(2);
        self.pmu_enable();
        self.go(1);
        self.leave_tick();
    }

    /// Ends the guest, from its rest.
    pub(crate) fn begin_end(&mut self, at: u64) {
        let phase = self.wake(at);
        self.limit = self.cpu.now().saturating_add(self.time_limit);
        if phase == Phase::Opened {
            self.go(3);
            self.tail();
        } else {
            (self.report.measure_begin, self.report.measure_end) = (self.sched_in, self.sched_in);
            self.go(5);
            self.end_measuring();
        }
        self.over_limit();
    }

    /// Goes on at `at`, with figures and log at 0 and the timer on. Returns the phase it waited in.
    fn wake(&mut self, at: u64) -> Phase {
        self.cpu.rest_until(at);
        *self.report = Report { magic: self.report.magic, ..Report::default() };
        self.log.clear();
        self.target_met = false;
        self.phase_ticks = 0;
        for event in &mut self.events.all {
            (event.overflows, event.count, event.running, event.enabled_ticks, event.freq_count) = (0, 0, 0, 0, 0);
        }
        self.began = self.cpu.now();
        self.take_nmis();
        let now = self.rdtsc().1;
        self.until_target = self.boot.sample_target;
        (self.sched_in, self.last_tick) = (now, now);
        for event in &mut self.events.all {
            event.freq_tsc = event.freq_tsc.wrapping_add(now - self.stopped);
        }
        self.go(12);
        self.go_for_all(6, 4);
        self.go(3);
        self.write_timer(self.boot.tick_count.max(1));
        self.go(4);
        std::mem::replace(&mut self.phase, Phase::Measure)
    }

    /// Returns the outcome since its last turn began.
    pub(crate) fn take_outcome(&mut self) -> GuestOutcome {
        GuestOutcome {
            ns: self.cpu.now().saturating_sub(self.began),
            timed_out: self.timed_out,
            report: self.report.clone(),
            log: self.log.clone(),
            deliveries: std::mem::take(&mut self.deliveries),
            held_at_tail_tick: std::mem::take(&mut self.held_at_tail_tick),
            handler: std::mem::take(&mut self.handler),
            driver_off: std::mem::take(&mut self.driver_off),
            delivery: std::mem::take(&mut self.delivery),
            rotation: std::mem::take(&mut self.rotation),
            side: self.cpu.take_side(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_latencies_are_those_of_both() {
        let (mut a, mut b) = (Latency::default(), Latency::default());
        assert_eq!(a.mean(), None);
        a.record(10);
        b.record(1001);
        a.merge(&b);
        assert_eq!((a.count(), a.min, a.max, a.mean()), (2, 10, 1001, Some(505.5)));
    }
}
