//! Many hosts on all cores, summed to totals.
//!
//! Totals are sums of integers, so the result depends neither on the number of threads nor on their order.

use counts::Counts;
use host_pmu::stats::OpStats;
use rayon::prelude::*;

use super::guest::Latency;
use crate::guest::GuestOutcome;
use crate::host::{self, Plan};
use crate::mediated::Switches;
use crate::model::Model;

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
    const fn add(&mut self, units: u64, ticks: u64) {
        self.units += units;
        self.ticks += ticks;
    }

    /// Returns the TSC ticks of a unit; `None` where nothing was done.
    fn per_unit(self) -> Option<f64> {
        (self.units > 0 && self.ticks > 0).then(|| self.ticks as f64 / self.units as f64)
    }
}

impl Totals {
    /// Adds a guest.
    pub fn add(&mut self, guest: &GuestOutcome) {
        let side = &guest.side;
        self.guests += 1;
        self.handler.merge(&guest.handler);
        self.driver_off.merge(&guest.driver_off);
        self.delivery.merge(&guest.delivery);
        self.rotation.merge(&guest.rotation);
        self.ops.merge(&side.host.ops);
        self.accesses += side.msrs.iter().map(|line| line.reads + line.writes).sum::<u64>();
        let handled = guest.report.overflows.iter().sum::<u64>();
        self.counts.merge(&Counts {
            nmis: guest.report.nmis,
            nmis_driver_off: guest.driver_off.count(),
            guest_overflows: handled,
            ..side.counts
        });
        self.overflows_lost += if guest.timed_out { 0 } else { side.counts.overflows_lost(handled) };
        self.lost += side.counts.nmis_injected.abs_diff(guest.report.nmis);
        self.timed_out += u64::from(guest.timed_out);
        self.ns += guest.ns;
        self.switches.merge(&side.switches);
        let report = &guest.report;
        self.baseline.add(report.baseline_units, report.baseline_end.saturating_sub(report.baseline_begin));
        self.measured.add(report.measure_units, report.measure_end.saturating_sub(report.measure_begin));
    }

    fn merge(mut self, other: &Self) -> Self {
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
        self.baseline.add(other.baseline.units, other.baseline.ticks);
        self.measured.add(other.measured.units, other.measured.ticks);
        self
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
    parts.fold(Totals::default, add).reduce(Totals::default, |a, b| a.merge(&b))
}
