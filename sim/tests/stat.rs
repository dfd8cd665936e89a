//! Simulated `perf stat` set-ups: their accesses, that counts are right, and that a seed means the same bytes everywhere.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::plan;
use guest::abi::{
    BootPage, CALLS, EventSpec, FLAG_STAT_SETUP, LOG_PHASE, PHASE_DISABLE, PHASE_ENABLE, PHASE_PROGRAM, PHASE_READ,
    PHASE_ROTATE,
};
use host_pmu::stats::OpKind;
use host_pmu::strategy::PRESETS;
use sim::guest::GuestOutcome;
use sim::host::{self, Plan};
use sim::model::Model;

const MODELS: [&str; 4] = ["development-host", "clx-ap-watchdog-on", "clx-ap-watchdog-off", "icx-2021"];

/// As many counting events of cycles, instructions and reference cycles, which have fixed counters, and others.
fn boot(events: usize, window_ticks: u64, cycles: u64) -> BootPage {
    let mut boot = BootPage {
        flags: FLAG_STAT_SETUP,
        tick_count: 1_000_000,
        baseline_ticks: 2,
        max_ticks: u64::MAX,
        tail_ticks: 4,
        sample_target: cycles,
        window_ticks,
        limit_us: u64::MAX >> 20,
        gap_ticks: 1,
        log_capacity: 1 << 20,
        event_count: events as u64,
        ..BootPage::default()
    };
    let first = [(0x3c, 2), (0xc0, 1), (0x300, 3)].into_iter();
    let codes = first.chain((0..).map(|n| (0xc4 + (n << 8), 0)));
    for (slot, (code, fixed)) in boot.events.iter_mut().zip(codes).take(events) {
        *slot = EventSpec { selector: code | 0x13_0000, fixed, period: 0 };
    }
    boot
}

fn guests(model: &str, strategy: &str, boot: &BootPage, vcpus: u64) -> Vec<GuestOutcome> {
    host::run(&Model::embedded(model).unwrap(), &Plan { vcpus, cpus: vcpus, ..plan(strategy, boot) }, 0)
}

fn guest(model: &str, strategy: &str, boot: &BootPage) -> GuestOutcome {
    guests(model, strategy, boot, 1).pop().unwrap()
}

/// The numbers are those of the payload on KVM (`vmm/tests/kvm/stat.rs`).
#[test]
fn accesses_of_a_phase_are_the_payloads() {
    let per_cycle = |events| {
        let guest = guest("clx-ap-watchdog-on", "floor", &boot(events, 2, 6));
        assert_eq!(guest.report.cycles, 6);
        guest.side.phases.map(|line| [line.msr_reads, line.msr_writes].map(|n| (n / 6, n % 6)))
    };
    let whole = |per_cycle: [u64; 2]| per_cycle.map(|n| (n, 0));
    assert_eq!(per_cycle(1)[1..], [[1, 2], [1, 4], [1, 0], [2, 3], [0, 0]].map(whole));
    let ten = per_cycle(10);
    assert_eq!(ten[PHASE_PROGRAM as usize], whole([3, 14]));
    assert_eq!(ten[PHASE_READ as usize], whole([6, 0]));
    assert_eq!(ten[PHASE_DISABLE as usize], whole([8, 26]));
    assert_eq!(ten[PHASE_ROTATE as usize], whole([12, 21]));
}

#[test]
fn every_strategy_opens_when_events_are_enabled_and_only_then() {
    for model in MODELS {
        for strategy in PRESETS {
            let guest = guest(model, strategy, &boot(1, 2, 20));
            let opens = guest.side.phases.map(|line| line.ops[OpKind::Open as usize]);
            assert_eq!(opens.iter().sum::<u64>(), opens[PHASE_ENABLE as usize], "{model}, {strategy}");
            match strategy {
                "recreate" => assert_eq!(opens[PHASE_ENABLE as usize], 20, "{model}"),
                "reuse" => assert_eq!(opens[PHASE_ENABLE as usize], 1, "{model}"),
                _ => assert!((1..=20).contains(&opens[PHASE_ENABLE as usize]), "{model}, {strategy}"),
            }
        }
    }
}

/// perf scales a count by enabled / running. The scaled count of an event must depend neither on the number of others
/// nor on the backend of the counters.
#[test]
fn scaled_counts_agree_whatever_is_multiplexed() {
    for strategy in PRESETS {
        // Rates by event: counts per million enabled TSC ticks. The model's default rate applies to all but a few.
        let rates = |events: usize| {
            // Whole turns of the rotation, so that each event has its share; with long ticks, of which rotating takes little.
            let boot = BootPage { tick_count: 10_000_000, ..boot(events, 4 * events as u64, 3) };
            let guest = guest("clx-ap-watchdog-on", strategy, &boot);
            let report = &guest.report;
            let scaled = |n: usize| {
                let [count, enabled, running] = [report.counts[n], report.enabled[n], report.running[n]];
                assert!(0 < running && running <= enabled, "{strategy}, event {n} of {events}");
                count as f64 * 1e6 / running as f64
            };
            (0..events).map(scaled).collect::<Vec<_>>()
        };
        let (few, many) = (rates(4), rates(20));
        for (event, (few, many)) in few.iter().zip(&many).enumerate() {
            let error = many / few - 1.0;
            assert!(error.abs() < 0.05, "{strategy}, event {event}: {few} alone, {many} multiplexed");
        }
    }
}

#[test]
fn every_call_is_logged_and_takes_time() {
    for guest in guests("icx-2021", "reuse-lazy", &boot(64, 3, 4), 2) {
        assert_eq!((guest.report.dropped, guest.report.rotations), (0, 4 * 2));
        for phase in [PHASE_PROGRAM, PHASE_ENABLE, PHASE_READ, PHASE_DISABLE] {
            let calls: Vec<_> = guest.log.iter().filter(|entry| entry.kind == LOG_PHASE + phase).collect();
            let numbers = calls.iter().map(|entry| (entry.status / CALLS, entry.status % CALLS));
            assert!(numbers.eq((0..4).flat_map(|cycle| (0..64).map(move |call| (cycle, call)))), "phase {phase}");
            assert!(calls.iter().all(|entry| entry.tsc_entry < entry.tsc_exit));
        }
    }
}

#[test]
fn a_seed_means_the_same_bytes() {
    let all = || guests("clx-ap-watchdog-off", "reuse-lazy", &boot(10, 4, 10), 3);
    assert_eq!(format!("{:?}", all()), format!("{:?}", all()));
}

/// An event that was closed is a new one when it is opened again: none gets so old that it overflows.
#[test]
fn every_set_up_begins_with_a_whole_period() {
    let guest = guest("clx-ap-watchdog-on", "reuse", &boot(20, 40, 600));
    assert!(guest.report.counts[..20].iter().all(|&count| count > 1 << 32), "{:?}", guest.report.counts);
    assert_eq!((guest.side.counts.overflows, guest.report.nmis), (0, 0));
}
