//! Calibration: call costs on this host, measured in about a millisecond with software events.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::list::EventList;
use crate::list::parse::parse;
use crate::list::resolve::resolve;
use crate::list::sysfs::Sysfs;
use crate::method::{Job, Method, Order, Phase, Use};
use crate::run::{Finished, Guard, run};

/// Costs of single calls on software events, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// perf_event_open of a single event on the caller's CPU.
    pub open: f64,
    /// Extra cost of an open per event already in the group.
    pub open_member: f64,
    /// IOC_ENABLE without rescheduling.
    pub enable: f64,
    /// Extra cost of an ENABLE per event it reschedules on the CPU; makes a series of ENABLEs quadratic.
    pub reschedule: f64,
    /// read of a single event.
    pub read: f64,
    /// Extra cost of a read per member.
    pub read_member: f64,
    /// IOC_DISABLE of a single event.
    pub disable: f64,
    /// Extra cost of a disable per member.
    pub disable_member: f64,
    /// close of a single event.
    pub close: f64,
    /// Extra cost of a close per event in the group.
    pub close_member: f64,
    /// Extra cost of enable, read, disable and close from another CPU.
    pub ipi: f64,
    /// Move to another CPU by sched_setaffinity.
    pub migrate: f64,
    /// Start, pinning and end of one worker.
    pub thread: f64,
    /// Request and reply, per worker.
    pub round: f64,
    /// Slow-down factor of a call while every worker makes the same call.
    pub contention: f64,
    /// Number of online CPUs: determines the share of calls that are remote.
    pub online: f64,
}

/// Costs, and the effort of their measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The costs.
    pub costs: Costs,
    /// Duration of the calibration, ns.
    pub took_ns: u64,
    /// Repetitions; the minimum of each cost is kept.
    pub repetitions: u64,
}

/// Number of events without and with a group.
const ALONE: usize = 12;
const GROUP: usize = 64;

fn software(n: usize) -> EventList {
    let text = vec!["cpu-clock"; n].join(",");
    // cpu-clock needs no lookup in sysfs.
    parse(&text).map_or_else(|_| EventList::default(), |written| resolve(&written, &mut Sysfs::at("/nonexistent")))
}

fn mean(calls: &[u32]) -> f64 {
    if calls.is_empty() {
        return 0.0;
    }
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    // Drop the upper quarter: calls disturbed by an interrupt.
    let kept = &sorted[..(sorted.len() * 3).div_ceil(4)];
    kept.iter().map(|&ns| f64::from(ns)).sum::<f64>() / kept.len() as f64
}

fn calls(finished: &Finished, phase: Phase) -> &[u32] {
    finished.phases.iter().find(|cost| cost.phase == phase).map_or(&[], |cost| cost.calls_ns.as_slice())
}

fn wall(finished: &Finished, wanted: impl Fn(Phase) -> bool) -> f64 {
    let phases = finished.phases.iter().filter(|cost| wanted(cost.phase));
    phases.map(|cost| cost.wall.as_nanos() as f64).sum()
}

fn once(list: &EventList, cpus: &[u32], method: Method) -> Finished {
    run(&Job { list, cpus, method, purpose: Use::Stat, ring_pages: 1 }, &mut |_, _| {})
}

/// Takes one measurement for events on `cpus`; binds the caller to the first of them.
fn measure(cpus: &[u32]) -> Costs {
    let (alone, group, few) = (software(ALONE), software(GROUP), software(2 * ALONE));
    let here = &cpus[..cpus.len().min(1)];
    let stay = Method { order: Order::CpuMajor(crate::method::Phases::NONE), ..Method::CPU_MAJOR };
    let packed = Method { pack: Some(GROUP), ..stay };
    let mut guard = Guard::new();
    if let Some(&cpu) = here.first() {
        guard.move_to(cpu);
    }
    let single = once(&alone, here, stay);
    let grouped = once(&group, here, packed);
    let enables = calls(&single, Phase::Enable);
    // The i-th ENABLE reschedules i events: the halves differ by half the number of events.
    let (first, second) = enables.split_at(enables.len() / 2);
    let slope = |calls: &[u32]| {
        let (first, second) = calls.split_at(calls.len() / 2);
        ((mean(second) - mean(first)) / (calls.len() / 2).max(1) as f64).max(0.0)
    };
    let mut costs = Costs {
        open: mean(calls(&single, Phase::Open)),
        open_member: slope(calls(&grouped, Phase::Open)),
        read: mean(calls(&single, Phase::Read)),
        disable: mean(calls(&single, Phase::Disable)),
        close: mean(calls(&single, Phase::Close)),
        // Members are closed from last to first: the group shrinks, so the first calls are the most expensive.
        close_member: {
            let reversed: Vec<u32> = calls(&grouped, Phase::Close).iter().rev().copied().collect();
            slope(&reversed)
        },
        online: Sysfs::host().online().len().max(cpus.len()) as f64,
        ..Costs::default()
    };
    let of_group = |phase, alone: f64| ((mean(calls(&grouped, phase)) - alone) / (GROUP - 1) as f64).max(0.0);
    costs.read_member = of_group(Phase::Read, costs.read);
    costs.disable_member = of_group(Phase::Disable, costs.disable);
    let by_halves = ((mean(second) - mean(first)) / (ALONE / 2) as f64).max(0.0);
    let by_group = of_group(Phase::Enable, mean(first));
    // Rescheduling costs less per event in a group. The choice is between packs, so prefer the group's figure.
    costs.reschedule = if by_group > 0.0 { by_group } else { by_halves };
    costs.enable = (mean(first) - costs.reschedule * (ALONE / 4) as f64).max(0.0);
    if let [_, other, ..] = cpus {
        let remote = once(&alone, &[*other], stay);
        costs.ipi = (mean(calls(&remote, Phase::Read)) - costs.read).max(0.0);
        let moves = Instant::now();
        for cpu in [*other, here[0], *other, here[0]] {
            guard.move_to(cpu);
        }
        costs.migrate = moves.elapsed().as_nanos() as f64 / 4.0;
    }
    drop(guard);
    let workers = cpus.len().max(1) as f64;
    let nothing = once(&EventList::default(), cpus, Method::THREADS);
    let all = once(&few, cpus, Method { pack: Some(few.events.len()), ..Method::THREADS });
    costs.round = wall(&nothing, |phase| phase != Phase::Open) / 4.0 / workers;
    costs.thread = wall(&nothing, |phase| phase == Phase::Open) / workers;
    let bulk = |phase| matches!(phase, Phase::Open | Phase::Close);
    let extra = wall(&all, bulk) - wall(&nothing, bulk);
    let local = (costs.open + costs.close) * few.events.len() as f64;
    costs.contention = if local > 0.0 { (extra / local).clamp(1.0, workers) } else { 1.0 };
    costs
}

/// Measures `repetitions` times and keeps the minimum of each cost: disturbances only add.
#[must_use]
pub fn calibrate(cpus: &[u32], repetitions: u64) -> Calibration {
    let began = Instant::now();
    let mut costs = measure(cpus);
    for _ in 1..repetitions {
        let more = measure(cpus);
        costs = costs.zip(&more, f64::min);
    }
    let took: Duration = began.elapsed();
    Calibration { costs, took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), repetitions: repetitions.max(1) }
}

impl Costs {
    /// Costs on the development host (2 CPUs, Linux 6.18, 25 November 2026, the host quiet), medians of three
    /// calibrations: where calibrating takes longer than it can save, these choose the method.
    pub const USUAL: Self = Self {
        open: 881.0,
        open_member: 5.9,
        enable: 707.0,
        reschedule: 49.8,
        read: 335.0,
        read_member: 48.9,
        disable: 330.0,
        disable_member: 51.3,
        close: 522.0,
        close_member: 5.1,
        ipi: 26_000.0,
        migrate: 34_000.0,
        thread: 43_500.0,
        round: 18_500.0,
        contention: 1.0,
        online: 2.0,
    };

    fn zip(&self, other: &Self, f: fn(f64, f64) -> f64) -> Self {
        Self {
            open: f(self.open, other.open),
            open_member: f(self.open_member, other.open_member),
            enable: f(self.enable, other.enable),
            reschedule: f(self.reschedule, other.reschedule),
            read: f(self.read, other.read),
            read_member: f(self.read_member, other.read_member),
            disable: f(self.disable, other.disable),
            disable_member: f(self.disable_member, other.disable_member),
            close: f(self.close, other.close),
            close_member: f(self.close_member, other.close_member),
            ipi: f(self.ipi, other.ipi),
            migrate: f(self.migrate, other.migrate),
            thread: f(self.thread, other.thread),
            round: f(self.round, other.round),
            contention: f(self.contention, other.contention),
            online: self.online,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_leaves_disturbed_calls_out() {
        assert!((mean(&[10, 10, 10, 4000]) - 10.0).abs() < f64::EPSILON);
        assert!(mean(&[]).abs() < f64::EPSILON);
        assert!((mean(&[7]) - 7.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_least_of_each_cost_is_kept() {
        let a = Costs { open: 1.0, ipi: 5.0, online: 4.0, ..Costs::default() };
        let b = Costs { open: 2.0, ipi: 3.0, ..Costs::default() };
        assert_eq!(a.zip(&b, f64::min), Costs { open: 1.0, ipi: 3.0, online: 4.0, ..Costs::default() });
    }
}
