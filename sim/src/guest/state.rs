//! State of a guest, and its register accesses.

use guest::abi::{BootPage, LOG_NMI, LOG_ROTATION, LogEntry, MAGIC, Report, WORKLOAD_IO};

use super::events::Events;
use super::latency::Latency;
use crate::vcpu::{SimHost, Vcpu, VcpuSide};

/// LVTPC in NMI mode.
const LVT_NMI: u32 = 0x400;
/// Workload `io` works for this part of a unit between two port writes (256 of 1024 steps).
const IO_BURST: u64 = 4;
/// Entry of [`Guest::map`] without an event.
pub(super) const NOBODY: u8 = u8::MAX;

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
pub(super) enum Phase {
    WarmUp,
    Baseline,
    Measure,
    Tail,
    Done,
}

/// Where a guest is between its set-ups and tear-downs.
#[derive(Clone, Debug, Default)]
pub(super) struct StatSetup {
    /// Between a set-up and its tear-down.
    pub(super) counting: bool,
    /// Ticks since either.
    pub(super) ticks: u64,
    pub(super) cycles: u64,
    /// TSC before and after each call of a phase.
    pub(super) stamps: Vec<u64>,
}

/// A guest on one vCPU.
#[derive(Debug)]
pub struct Guest<H> {
    pub(super) cpu: Vcpu<H>,
    pub(super) boot: BootPage,
    pub(super) tsc_hz: u64,
    pub(super) work_unit: u64,
    pub(super) events: Events,
    pub(super) map: [u8; 64],
    /// The driver counts: perf's `cpuc->enabled`.
    pub(super) enabled: bool,
    pub(super) freq: bool,
    pub(super) in_nmi: bool,
    pub(super) target_met: bool,
    pub(super) lvtpc: u32,
    pub(super) global_ctrl: u64,
    pub(super) log_kind: u64,
    pub(super) until_target: u64,
    /// When it is ended from outside, and whether it was.
    pub(super) limit: u64,
    pub(super) timed_out: bool,
    pub(super) timer: Timer,
    pub(super) next_tick: u64,
    pub(super) last_tick: u64,
    pub(super) tick_tsc: u64,
    pub(super) sched_in: u64,
    pub(super) phase: Phase,
    pub(super) phase_ticks: u64,
    pub(super) user_ns: u64,
    pub(super) units_at_start: u64,
    pub(super) stat: StatSetup,
    pub(super) report: Box<Report>,
    pub(super) log: Vec<LogEntry>,
    pub(super) log_capacity: usize,
    pub(super) deliveries: Vec<u64>,
    pub(super) held_at_tail_tick: Vec<u64>,
    pub(super) handler: Latency,
    pub(super) delivery: Latency,
    pub(super) rotation: Latency,
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

    pub(super) fn wrmsr(&mut self, msr: u32, value: u64) {
        self.cpu.wrmsr(msr, value);
        self.take_nmis();
    }

    pub(super) fn rdmsr(&mut self, msr: u32) -> u64 {
        let value = self.cpu.rdmsr(msr);
        self.take_nmis();
        value
    }
}
