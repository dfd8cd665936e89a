//! Many hosts on all cores, summed to totals.
//!
//! Totals are sums of integers, so the result depends neither on the number of threads nor on their order.

use host_pmu::stats::OpStats;
use rayon::prelude::*;

use crate::backend::Creates;
use crate::guest::GuestOutcome;
use crate::guest::latency::Latency;
use crate::host::{self, Plan};
use crate::mediated::Switches;
use crate::model::Model;

/// Sums over guests.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of guests.
    pub guests: u64,
    /// NMI handler, entry to exit.
    pub handler: Latency,
    /// Time from the VMM's notice of the overflow to the entry of the handler.
    pub delivery: Latency,
    /// Rotations and task switches.
    pub rotation: Latency,
    /// Host operations.
    pub ops: OpStats,
    /// Events created.
    pub creates: Creates,
    /// MSR accesses that exited.
    pub accesses: u64,
    /// Overflows of the vPMU.
    pub overflows: u64,
    /// Overflows handled by the guests' drivers.
    pub guest_overflows: u64,
    /// NMIs injected, and NMIs taken.
    pub nmis: [u64; 2],
    /// NMIs injected and not taken, or the reverse: the difference of each vCPU, without its sign, summed.
    pub lost: u64,
    /// Overflows of the vPMU that the driver did not handle, or the reverse, of guests that the hard limit did not end.
    pub overflows_lost: u64,
    /// Maximum of events held by a vCPU.
    pub held_max: u64,
    /// Time events were held, summed over events, ns.
    pub held_ns: u128,
    /// Guest entries.
    pub entries: u64,
    /// Sched-ins while events were held.
    pub sched_ins: u64,
    /// Guests ended by the hard limit.
    pub timed_out: u64,
    /// Pinned events that lost their counter.
    pub pinned_errors: u64,
    /// Opens that failed.
    pub failed_opens: u64,
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
        self.delivery.merge(&guest.delivery);
        self.rotation.merge(&guest.rotation);
        self.ops.merge(&side.host.ops);
        self.creates.gp += side.creates.gp;
        self.creates.fixed += side.creates.fixed;
        self.accesses += side.msrs.iter().map(|line| line.reads + line.writes).sum::<u64>();
        let handled = guest.report.overflows.iter().sum::<u64>();
        self.overflows += side.pmi.overflows;
        self.guest_overflows += handled;
        self.overflows_lost += if guest.timed_out { 0 } else { side.pmi.overflows_lost(handled) };
        self.lost += side.pmi.nmis.abs_diff(guest.report.nmis);
        self.nmis[0] += side.pmi.nmis;
        self.nmis[1] += guest.report.nmis;
        self.held_max = self.held_max.max(side.host.held_max);
        self.held_ns += u128::from(side.host.held_ns);
        self.entries += side.host.entries;
        self.sched_ins += side.host.sched_ins;
        self.timed_out += u64::from(guest.timed_out);
        self.pinned_errors += side.host.pinned_errors;
        self.failed_opens += side.host.failed_opens;
        self.ns += guest.ns;
        self.switches.merge(&side.switches);
        let report = &guest.report;
        self.baseline.add(report.baseline_units, report.baseline_end.saturating_sub(report.baseline_begin));
        self.measured.add(report.measure_units, report.measure_end.saturating_sub(report.measure_begin));
    }

    fn merge(mut self, other: &Self) -> Self {
        self.guests += other.guests;
        self.handler.merge(&other.handler);
        self.delivery.merge(&other.delivery);
        self.rotation.merge(&other.rotation);
        self.ops.merge(&other.ops);
        self.creates.gp += other.creates.gp;
        self.creates.fixed += other.creates.fixed;
        self.accesses += other.accesses;
        self.overflows += other.overflows;
        self.guest_overflows += other.guest_overflows;
        self.nmis = [self.nmis[0] + other.nmis[0], self.nmis[1] + other.nmis[1]];
        self.lost += other.lost;
        self.overflows_lost += other.overflows_lost;
        self.held_max = self.held_max.max(other.held_max);
        self.held_ns += other.held_ns;
        self.entries += other.entries;
        self.sched_ins += other.sched_ins;
        self.timed_out += other.timed_out;
        self.pinned_errors += other.pinned_errors;
        self.failed_opens += other.failed_opens;
        self.ns += other.ns;
        self.switches.merge(&other.switches);
        self.baseline.add(other.baseline.units, other.baseline.ticks);
        self.measured.add(other.measured.units, other.measured.ticks);
        self
    }

    /// Returns `n` per NMI taken; 0 without NMIs.
    #[must_use]
    pub fn per_nmi(&self, n: u64) -> f64 {
        if self.nmis[1] == 0 { 0.0 } else { n as f64 / self.nmis[1] as f64 }
    }

    /// Returns the share by which the guests' work took longer while it was measured, 0.1 for a tenth; `None` where none was done.
    #[must_use]
    pub fn slow_down(&self) -> Option<f64> {
        let (without, with) = self.baseline.per_unit().zip(self.measured.per_unit())?;
        Some(with / without - 1.0)
    }

    /// Returns the events held by a vCPU, mean over time.
    #[must_use]
    pub fn held_mean(&self) -> f64 {
        if self.ns == 0 { 0.0 } else { self.held_ns as f64 / self.ns as f64 }
    }
}

/// Simulates `hosts` hosts of the same plan on rayon's threads: the hosts side by side, and the vCPUs of a host where none has to do with
/// another. These leave nothing behind but their part of the totals, so memory does not grow with their number.
#[must_use]
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
