//! Many hosts on all cores, summed to totals.
//!
//! Totals are sums of integers, so the result depends neither on the number of threads nor on their order.

use counts::Counts;
use host_pmu::stats::OpStats;
use rayon::prelude::*;

use super::guest::Latency;
use crate::guest::GuestOutcome;
use crate::host::{self, Plan};
use crate::model::Model;
use crate::side::Switches;

/// Sums over guests.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of guests.
    pub guests: u64,
    /// NMI handler, entry to exit, of NMIs that re-armed a counter, as documents have it.
    pub handler: Latency,
    /// NMI handler, entry to exit, of NMIs that re-armed none, as they met the driver switched off.
    pub driver_off: Latency,
    /// Time from the VMM's notice of the overflow to the entry of the handler.
    pub delivery: Latency,
    /// Rotations and task switches.
    pub rotation: Latency,
    /// Host operations.
    pub ops: OpStats,
    /// MSR accesses that exited.
    pub accesses: u64,
    /// Counts of the vCPUs, NMIs taken and overflows handled among them.
    pub counts: Counts,
    /// NMIs injected and not taken, or the reverse: the difference of each vCPU, without its sign, summed.
    pub lost: u64,
    /// Overflows of the vPMU that the driver did not handle, or the reverse, of guests that the hard limit did not end.
    pub overflows_lost: u64,
    /// Guests ended by the hard limit.
    pub timed_out: u64,
    /// Virtual time, summed over guests, ns.
    pub ns: u64,
    /// Switches of a mediated PMU.
    pub switches: Switches,
    /// The guests' work before anything was measured.
    pub baseline: Work,
    /// The guests' work while it was.
    pub measured: Work,
}

/// Work of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Units done.
    pub units: u64,
    /// TSC ticks meanwhile.
    pub ticks: u64,
}

impl Work {
    /// Returns the TSC ticks of a unit; `None` where nothing was done.
    fn per_unit(self) -> Option<f64> {
        (self.units > 0 && self.ticks > 0).then(|| self.ticks as f64 / self.units as f64)
    }
}

impl Totals {
    /// The figures of one guest.
    fn of(guest: &GuestOutcome) -> Self {
        let (side, report) = (&guest.side, &guest.report);
        let handled = report.overflows.iter().sum::<u64>();
        let work = |units, begin, end: u64| Work { units, ticks: end.saturating_sub(begin) };
        Self {
            guests: 1,
            handler: guest.handler.clone(),
            driver_off: guest.driver_off.clone(),
            delivery: guest.delivery.clone(),
            rotation: guest.rotation.clone(),
            ops: side.host.ops.clone(),
            accesses: side.msrs.iter().map(|line| line.reads + line.writes).sum(),
            counts: Counts {
                nmis: report.nmis,
                nmis_driver_off: guest.driver_off.count(),
                guest_overflows: handled,
                ..side.counts
            },
            lost: side.counts.nmis_injected.abs_diff(report.nmis),
            overflows_lost: if guest.timed_out { 0 } else { side.counts.overflows_lost(handled) },
            timed_out: u64::from(guest.timed_out),
            ns: guest.ns,
            switches: side.switches,
            baseline: work(report.baseline_units, report.baseline_begin, report.baseline_end),
            measured: work(report.measure_units, report.measure_begin, report.measure_end),
        }
    }

    /// Adds a guest.
    pub fn add(&mut self, guest: &GuestOutcome) {
        self.merge(&Self::of(guest));
    }

    fn merge(&mut self, other: &Self) {
        self.guests += other.guests;
        self.handler.merge(&other.handler);
        self.driver_off.merge(&other.driver_off);
        self.delivery.merge(&other.delivery);
        self.rotation.merge(&other.rotation);
        self.ops.merge(&other.ops);
        self.accesses += other.accesses;
        self.counts.merge(&other.counts);
        self.lost += other.lost;
        self.overflows_lost += other.overflows_lost;
        self.timed_out += other.timed_out;
        self.ns += other.ns;
        self.switches.merge(&other.switches);
        for (work, other) in [(&mut self.baseline, other.baseline), (&mut self.measured, other.measured)] {
            work.units += other.units;
            work.ticks += other.ticks;
        }
    }

    /// Returns the share by which the guests' work took longer while it was measured, 0.1 for a tenth; `None` where none was done.
    pub fn slow_down(&self) -> Option<f64> {
        let (without, with) = self.baseline.per_unit().zip(self.measured.per_unit())?;
        Some(with / without - 1.0)
    }

    /// Returns the events held by a vCPU, mean over time.
    pub fn held_mean(&self) -> f64 {
        if self.ns == 0 { 0.0 } else { self.counts.held_ns as f64 / self.ns as f64 }
    }
}

/// Simulates `hosts` hosts of the same plan on rayon's threads: the hosts side by side, and the vCPUs of a host where
/// none has to do with another. These leave nothing behind but their part of the totals, so memory does not grow with
/// their number.
pub fn run(model: &Model, plan: &Plan, hosts: u64) -> Totals {
    let coupled = plan.is_coupled(model);
    let vcpus = if coupled { 1 } else { plan.vcpus };
    let add = |mut totals: Totals, part: u64| {
        let guests =
            if coupled { host::run(model, plan, part) } else { host::run_one(model, plan, part / vcpus, part % vcpus) };
        for guest in &guests {
            totals.add(guest);
        }
        totals
    };
    let parts = (0..hosts.saturating_mul(vcpus)).into_par_iter();
    parts.fold(Totals::default, add).reduce(Totals::default, |mut a, b| {
        a.merge(&b);
        a
    })
}
