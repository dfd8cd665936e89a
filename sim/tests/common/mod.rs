//! Guests for tests and benchmarks.
#![allow(dead_code, reason = "each binary takes what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arch_pmu::intel::IntelCaps;
use counts::Counts;
use guest::abi::{BootPage, EventSpec, FLAG_TASK_SWITCH};
use host_pmu::stats::OpStats;
use host_pmu::strategy::Strategy;
use host_pmu::trace::{Row, Tracing};
use sim::guest::{GuestOutcome, Latency, Timer};
use sim::host::{self, CounterSource, Plan};
use sim::model::Model;

/// USR, OS and INT of a selector.
const SAMPLES: u64 = 0x13_0000;

/// One sampling event on a general-purpose counter.
pub(crate) const SINGLE: &[(u64, u64, u64)] = &[(0x3c, 0, 1)];
/// Four sampling events on two fixed and two general-purpose counters, one of them rare.
pub(crate) const FOUR: &[(u64, u64, u64)] = &[(0x3c, 2, 1), (0xc0, 1, 1), (0x4f2e, 0, 1), (0xc5, 0, 6)];
/// The first ten hardware events of `perf list`.
pub(crate) const TEN: &[(u64, u64, u64)] = &[
    (0xc4, 0, 1),
    (0xc5, 0, 1),
    (0x013c, 0, 1),
    (0x412e, 0, 1),
    (0x4f2e, 0, 1),
    (0x3c, 2, 1),
    (0xc0, 1, 1),
    (0x0300, 3, 1),
    (0x0151, 0, 1),
    (0x81d0, 0, 1),
];

/// A guest that samples `events` (code, fixed counter + 1, factor of the period) until it took `target` samples, or for
/// `max_ticks` ticks of 4 ms. Periods are spread as the tool's workloads are.
pub(crate) fn boot(events: &[(u64, u64, u64)], period: u64, target: u64, max_ticks: u64) -> BootPage {
    let mut boot = BootPage {
        flags: if events.len() == FOUR.len() { FLAG_TASK_SWITCH } else { 0 },
        tick_count: 4_000_000,
        baseline_ticks: 1,
        max_ticks,
        tail_ticks: 4,
        sample_target: target,
        event_count: events.len() as u64,
        ..BootPage::default()
    };
    for (i, (slot, &(code, fixed, factor))) in (0..).zip(boot.events.iter_mut().zip(events)) {
        *slot = EventSpec { selector: code | SAMPLES, fixed, period: period * factor * (16 + 3 * i) / 16 };
    }
    boot
}

/// One vCPU of its own host.
pub(crate) fn plan(strategy: &str, boot: &BootPage) -> Plan {
    let behind = match strategy {
        "floor" => CounterSource::Floor { counts_per_ms: None },
        name => CounterSource::Events(Strategy::preset(name).expect("a preset")),
    };
    Plan {
        behind,
        pmu: IntelCaps::default().into(),
        vcpus: 1,
        cpus: 1,
        boot: *boot,
        timer: Timer::Periodic,
        limit_ns: u64::MAX,
        seed: 1,
        trace: None,
    }
}

/// Sums over guests.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Handlers of NMIs that re-armed a counter, and of those that met the driver switched off.
    pub(crate) handler: Latency,
    pub(crate) driver_off: Latency,
    pub(crate) delivery: Latency,
    pub(crate) ops: OpStats,
    /// MSR accesses that exited.
    pub(crate) accesses: u64,
    pub(crate) counts: Counts,
    pub(crate) ns: u64,
}

/// Simulates `hosts` hosts, one after the other.
pub(crate) fn run(model: &Model, plan: &Plan, hosts: u64) -> Totals {
    let mut totals = Totals::default();
    for guest in (0..hosts).flat_map(|number| host::run(model, plan, number)) {
        let (side, report) = (&guest.side, &guest.report);
        totals.handler.merge(&guest.handler);
        totals.driver_off.merge(&guest.driver_off);
        totals.delivery.merge(&guest.delivery);
        totals.ops.merge(&side.host.ops);
        totals.accesses += side.msrs.iter().map(|line| line.reads + line.writes).sum::<u64>();
        let (nmis_driver_off, guest_overflows) = (guest.driver_off.count(), report.overflows.iter().sum());
        totals.counts.merge(&Counts { nmis: report.nmis, nmis_driver_off, guest_overflows, ..side.counts });
        totals.ns += guest.ns;
    }
    totals
}

/// Runs a guest of one vCPU, and takes its trace.
pub(crate) fn trace_of(model: &Model, plan: &Plan) -> (GuestOutcome, Vec<Row>) {
    let tracing = Tracing::new(1);
    let plan = Plan { trace: Some(Arc::clone(&tracing)), ..plan.clone() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rows = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                rows.extend(std::iter::from_fn(|| tracing.pop()));
                if last {
                    return rows;
                }
            }
        });
        let outcome = host::run(model, &plan, 0).remove(0);
        done.store(true, Ordering::Release);
        (outcome, reader.join().expect("the reader"))
    })
}
