//! The payload's guest as a model: its timer, its phases, its NMI handler and its log (`guest/payload/tick.c`, `nmi.c`).

mod driver;
mod events;
pub mod latency;
mod stat;

use guest::abi::{
    BootPage, FLAG_TASK_SWITCH, LOG_NMI, LOG_ROTATION, LogEntry, MAGIC, Report, WORKLOAD_IDLE, WORKLOAD_IO,
};

use driver::NOBODY;
use events::Events;
use latency::Latency;
use stat::StatSetup;

use crate::vcpu::{SimHost, Vcpu, VcpuSide};

/// LVTPC in NMI mode.
const LVT_NMI: u32 = 0x400;
const LVT_MASKED: u32 = 1 << 16;
/// Instructions of the interrupt stub before the handler, and after it with IRETQ.
const STUB_IN: u64 = 11;
const STUB_OUT: u64 = 13;
/// Instructions that account for an NMI and log it.
const ACCOUNT: u64 = 45;
/// Instructions that rotate and look for events that fit; for each that does; and for each that is given a counter anew.
const SCHEDULE: u64 = 35;
const COLLECT: u64 = 28;
const PLACE: u64 = 33;
/// Workload `io` works for this part of a unit between two port writes (256 of 1024 steps).
const IO_BURST: u64 = 4;

/// When the guest's timer expires again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timer {
    /// A periodic LAPIC timer, the payload's: an expiry during the tick is taken right after it.
    #[default]
    Periodic,
    /// At the first multiple of the interval after the tick's work, as `hrtimer_forward_now` leaves Linux's
    /// `perf_mux_hrtimer_handler`: a tick that takes longer than the interval still lets the guest run.
    Forwarded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Baseline,
    Measure,
    Tail,
    Done,
}

/// A guest on one vCPU.
#[derive(Debug)]
pub struct Guest<H> {
    cpu: Vcpu<H>,
    boot: BootPage,
    tsc_hz: u64,
    work_unit: u64,
    events: Events,
    map: [u8; 64],
    /// The driver counts: perf's `cpuc->enabled`.
    enabled: bool,
    freq: bool,
    in_nmi: bool,
    target_met: bool,
    lvtpc: u32,
    global_ctrl: u64,
    log_kind: u64,
    until_target: u64,
    /// When it is ended from outside, and whether it was.
    limit: u64,
    timed_out: bool,
    timer: Timer,
    next_tick: u64,
    last_tick: u64,
    tick_tsc: u64,
    sched_in: u64,
    phase: Phase,
    phase_ticks: u64,
    user_ns: u64,
    units_at_start: u64,
    stat: StatSetup,
    report: Box<Report>,
    log: Vec<LogEntry>,
    log_capacity: usize,
    deliveries: Vec<u64>,
    held_at_tail_tick: Vec<u64>,
    handler: Latency,
    delivery: Latency,
    rotation: Latency,
}

/// What a guest leaves.
#[derive(Clone, Debug)]
pub struct GuestOutcome {
    /// As the payload would have written it.
    pub report: Box<Report>,
    /// Its log, as far as it was kept.
    pub log: Vec<LogEntry>,
    /// TSC at which each NMI's overflow was seen, as far as the log was kept.
    pub deliveries: Vec<u64>,
    /// Events held at each tick of the tail.
    pub held_at_tail_tick: Vec<u64>,
    /// NMI handler, entry to exit, ns.
    pub handler: Latency,
    /// From the overflow being seen to the handler's entry, ns.
    pub delivery: Latency,
    /// Rotations and task switches, ns.
    pub rotation: Latency,
    /// Whether its time limit ended it.
    pub timed_out: bool,
    /// Virtual ns it took.
    pub ns: u64,
    /// What the vCPU leaves.
    pub side: VcpuSide,
}

impl<H: SimHost> Guest<H> {
    /// A guest that runs by its boot page, at most until `limit` ns. `tick_count` is in ns, as KVM's timer has it; addresses are not used.
    #[must_use]
    pub fn new(mut cpu: Vcpu<H>, boot: &BootPage, (timer, limit): (Timer, u64), tsc_khz: u64, work_unit: u64) -> Self {
        let events = Events::new(boot);
        let samples = events.all.iter().any(|event| boot.events[event.spec].period != 0);
        let freq = events.all.iter().any(|event| event.freq);
        let begin = cpu.now();
        Self {
            cpu,
            boot: *boot,
            tsc_hz: tsc_khz * 1000,
            work_unit: if boot.workload == WORKLOAD_IO { work_unit / IO_BURST } else { work_unit }.max(1),
            map: [NOBODY; 64],
            enabled: true,
            freq,
            in_nmi: false,
            target_met: false,
            lvtpc: LVT_NMI,
            global_ctrl: ((1 << boot.gp_counters) - 1) | ((1 << boot.fixed_counters) - 1) << 32,
            log_kind: if samples { LOG_NMI } else { LOG_ROTATION },
            until_target: boot.sample_target,
            limit,
            timed_out: false,
            timer,
            next_tick: begin + boot.tick_count.max(1),
            last_tick: 0,
            tick_tsc: 0,
            sched_in: 0,
            phase: Phase::WarmUp,
            phase_ticks: 0,
            user_ns: 0,
            units_at_start: 0,
            stat: StatSetup::default(),
            report: Box::new(Report { magic: MAGIC, ..Report::default() }),
            log: Vec::new(),
            log_capacity: boot.log_capacity as usize,
            deliveries: Vec::new(),
            held_at_tail_tick: Vec::new(),
            handler: Latency::default(),
            delivery: Latency::default(),
            rotation: Latency::default(),
            events,
        }
    }

    /// ns since the begin of the simulation.
    pub fn now(&mut self) -> u64 {
        self.cpu.now()
    }

    /// Runs until something happened; whether the guest is done.
    pub fn step(&mut self) -> bool {
        if self.over_limit() {
            return true;
        }
        match self.phase {
            Phase::Done => return true,
            Phase::Tail => self.cpu.halt_until(self.next_tick),
            _ if self.boot.workload == WORKLOAD_IDLE => self.cpu.halt_until(self.next_tick),
            _ if self.boot.workload == WORKLOAD_IO => self.work_and_write(),
            _ => self.user_ns += self.cpu.run_user(self.next_tick, u64::MAX),
        }
        self.take_nmis();
        if self.phase != Phase::Done && self.cpu.now() >= self.next_tick {
            self.tick();
        }
        self.phase == Phase::Done || self.over_limit()
    }

    /// A unit of workload `io`, or what of it fits before the next interrupt.
    fn work_and_write(&mut self) {
        let left = self.work_unit - self.user_ns % self.work_unit;
        let spent = self.cpu.run_user(self.next_tick, left);
        self.user_ns += spent;
        if spent == left {
            self.cpu.port_write();
        }
    }

    /// What it leaves.
    #[must_use]
    pub fn finish(mut self) -> GuestOutcome {
        GuestOutcome {
            ns: self.cpu.now(),
            timed_out: self.timed_out,
            report: self.report,
            log: self.log,
            deliveries: self.deliveries,
            held_at_tail_tick: self.held_at_tail_tick,
            handler: self.handler,
            delivery: self.delivery,
            rotation: self.rotation,
            side: self.cpu.finish(),
        }
    }

    fn wrmsr(&mut self, msr: u32, value: u64) {
        self.cpu.wrmsr(msr, value);
        self.take_nmis();
    }

    fn rdmsr(&mut self, msr: u32) -> u64 {
        let value = self.cpu.rdmsr(msr);
        self.take_nmis();
        value
    }

    /// NMIs interrupt the tick between two instructions, but not the NMI handler.
    fn take_nmis(&mut self) {
        while !self.in_nmi
            && !self.over_limit()
            && let Some(seen_at) = self.cpu.take_nmi()
        {
            self.nmi(seen_at);
        }
    }

    /// A guest that does nothing but take NMIs would never end.
    fn over_limit(&mut self) -> bool {
        self.timed_out |= self.cpu.now() > self.limit;
        self.timed_out
    }

    fn nmi(&mut self, seen_at: u64) {
        self.in_nmi = true;
        let from_tick = self.cpu.in_tick();
        self.cpu.interrupted(false);
        self.cpu.execute(2);
        let (entry, entry_tsc) = (self.cpu.now(), self.cpu.tsc());
        self.cpu.execute(STUB_IN);
        let (status, rearmed) = self.handle_pmi();
        let (exit, exit_tsc) = (self.cpu.now(), self.cpu.tsc());
        self.handler.record(exit - entry);
        self.delivery.record(entry - seen_at);
        if self.deliveries.len() < self.log_capacity {
            let khz = u128::from(self.tsc_hz / 1000);
            self.deliveries.push((u128::from(seen_at) * khz / 1_000_000) as u64);
        }
        self.cpu.execute(ACCOUNT);
        self.report.nmis += 1;
        self.report.nmis_without_status += u64::from(status == 0);
        self.log(LOG_NMI, [entry_tsc, exit_tsc], status, rearmed);
        if self.target_met && self.enabled {
            // Nothing more is to be sampled; the next tick ends the phase.
            self.stop_measuring();
        }
        self.cpu.execute(STUB_OUT);
        self.cpu.returns(from_tick);
        self.in_nmi = false;
    }

    fn log(&mut self, kind: u64, [tsc_entry, tsc_exit]: [u64; 2], status: u64, rearmed: u64) {
        if self.log.len() < self.log_capacity {
            self.log.push(LogEntry { kind, tsc_entry, tsc_exit, status, rip: 0, rearmed });
            self.report.logged += 1;
        } else {
            self.report.dropped += 1;
        }
        if kind == self.log_kind && self.until_target > 0 {
            self.until_target -= 1;
            self.target_met = self.until_target == 0;
        }
    }

    fn units(&self) -> u64 {
        self.user_ns / self.work_unit
    }

    fn stop_measuring(&mut self) {
        self.pmu_disable();
        self.report.measure_end = self.cpu.tsc();
        self.report.measure_units = self.units() - self.units_at_start;
    }

    fn tick(&mut self) {
        self.cpu.interrupted(true);
        self.cpu.execute(2);
        let (entry, now) = (self.cpu.now(), self.cpu.tsc());
        // Expiries while one is pending are one.
        self.forward_timer(entry);
        self.cpu.execute(STUB_IN + 15);
        self.tick_tsc = now - self.last_tick;
        self.last_tick = now;
        self.report.ticks += 1;
        self.phase_ticks += 1;
        match self.phase {
            Phase::Measure => self.measure_tick([entry, now]),
            Phase::Tail => self.tail_tick(),
            Phase::WarmUp | Phase::Baseline => self.baseline_tick(now),
            Phase::Done => {}
        }
        if self.stat_setup() {
            // As the payload, which arms its timer again.
            self.cpu.write_timer();
            self.next_tick = self.cpu.now() + self.boot.tick_count.max(1);
        } else if self.timer == Timer::Forwarded {
            let now = self.cpu.now();
            self.forward_timer(now);
        }
        self.cpu.write_eoi();
        self.cpu.execute(STUB_OUT);
        self.cpu.returns(false);
    }

    /// The next expiry is the first after `now`.
    fn forward_timer(&mut self, now: u64) {
        if let Some(late) = now.checked_sub(self.next_tick) {
            let interval = self.boot.tick_count.max(1);
            self.next_tick += (late / interval + 1) * interval;
        }
    }

    fn baseline_tick(&mut self, now: u64) {
        if self.phase == Phase::WarmUp {
            self.phase = Phase::Baseline;
            self.phase_ticks = 0;
            self.units_at_start = self.units();
            self.report.baseline_begin = now;
        }
        if self.phase_ticks >= self.boot.baseline_ticks {
            self.report.baseline_end = now;
            self.report.baseline_units = self.units() - self.units_at_start;
            self.begin_measuring();
        }
    }

    fn begin_measuring(&mut self) {
        self.cpu.doorbell();
        self.phase = Phase::Measure;
        self.phase_ticks = 0;
        self.units_at_start = self.units();
        self.cpu.write_lvtpc(self.lvtpc);
        // Linux's driver holds the PMU for enabled at boot: the counters that GLOBAL_CTRL enables at RESET stop here.
        self.pmu_disable();
        self.report.measure_begin = self.cpu.tsc();
        if self.stat_setup() {
            self.stat_begin();
            return;
        }
        self.events.schedule();
        self.start_active();
        self.pmu_enable();
    }

    fn measure_tick(&mut self, entry: [u64; 2]) {
        if self.stat_setup() {
            if self.stat_tick() {
                return;
            }
        } else if !self.target_met && self.phase_ticks < self.boot.max_ticks {
            if self.freq {
                self.adjust_at_tick();
            }
            if self.events.rotation_needed() {
                self.reschedule(entry, true);
            } else if self.boot.flags & FLAG_TASK_SWITCH != 0 {
                self.reschedule(entry, false);
            }
            if !self.target_met {
                return;
            }
        }
        self.end_measuring();
    }

    /// `perf_rotate_context`, or the task's sched-out and sched-in: all events are stopped, and what fits is started.
    fn reschedule(&mut self, [entry, entry_tsc]: [u64; 2], rotate: bool) {
        self.pmu_disable();
        let now = self.cpu.tsc();
        self.stop_active(now);
        if rotate {
            self.events.rotate();
            let placed = self.events.schedule();
            self.cpu.execute(SCHEDULE + (COLLECT + if placed { PLACE } else { 0 }) * self.events.active_count as u64);
        }
        let started = self.start_active();
        self.pmu_enable();
        self.report.rotations += 1;
        let (exit, exit_tsc) = (self.cpu.now(), self.cpu.tsc());
        self.rotation.record(exit - entry);
        self.log(LOG_ROTATION, [entry_tsc, exit_tsc], 0, started);
    }

    fn end_measuring(&mut self) {
        if self.enabled {
            self.stop_measuring();
        }
        let end = self.report.measure_end;
        self.stop_active(end.max(self.sched_in));
        self.lvtpc |= LVT_MASKED;
        self.cpu.write_lvtpc(self.lvtpc);
        for event in self.events.all.iter_mut().take(self.events.enabled) {
            event.enabled_ticks = end - self.report.measure_begin;
        }
        self.cpu.doorbell();
        self.phase = Phase::Tail;
        self.phase_ticks = 0;
        self.end_if_over();
    }

    fn tail_tick(&mut self) {
        self.cpu.doorbell();
        let held = self.cpu.held();
        self.held_at_tail_tick.push(held);
        self.end_if_over();
    }

    fn end_if_over(&mut self) {
        if self.phase_ticks < self.boot.tail_ticks {
            return;
        }
        for event in &self.events.all {
            self.report.overflows[event.spec] = event.overflows;
            self.report.counts[event.spec] = event.count;
            self.report.enabled[event.spec] = event.enabled_ticks;
            self.report.running[event.spec] = event.running;
            self.report.periods[event.spec] = event.period.cast_unsigned();
        }
        self.phase = Phase::Done;
    }
}
