//! Simulated `perf stat` set-ups: their counts are right, by which alone they are compared with the payload's.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::plan;
use guest::abi::{BootPage, EventSpec, FLAG_STAT_SETUP};
use host_pmu::strategy::PRESETS;
use sim::guest::GuestOutcome;
use sim::host;
use sim::model::Model;

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

fn guest(strategy: &str, boot: &BootPage) -> GuestOutcome {
    host::run(&Model::embedded("clx-ap-watchdog-on").unwrap(), &plan(strategy, boot), 0).pop().unwrap()
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
            let guest = guest(strategy, &boot);
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

/// An event that was closed is a new one when it is opened again: none gets so old that it overflows.
#[test]
fn every_set_up_begins_with_a_whole_period() {
    let guest = guest("reuse", &boot(20, 40, 600));
    assert!(guest.report.counts[..20].iter().all(|&count| count > 1 << 32), "{:?}", guest.report.counts);
    assert_eq!((guest.side.counts.overflows, guest.report.nmis), (0, 0));
}
