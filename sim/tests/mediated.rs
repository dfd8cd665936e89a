//! A PMU that the guest owns: its counts, what exits and what is switched.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use arch_pmu::intel::{IA32_FIXED_CTR_CTRL, IA32_PERFEVTSEL0};
use common::{FOUR, SINGLE, TEN, boot, plan, run};
use guest::abi::{BootPage, FLAG_TURNS};
use host_pmu::stats::OpKind;
use sim::guest::Timer;
use sim::host::{self, CounterSource, Plan};
use sim::mediated::{MEDIATED, Mediated};
use sim::model::Model;

const MODELS: [&str; 3] = ["spr-2026", "icx-2021", "clx-ap-watchdog-on"];

fn model(name: &str) -> Model {
    Model::embedded(name).unwrap()
}

fn of(kind: Mediated, boot: &BootPage) -> Plan {
    Plan {
        behind: CounterSource::Mediated(kind),
        timer: Timer::Forwarded,
        limit_ns: 60_000_000_000,
        ..plan("floor", boot)
    }
}

#[test]
fn nothing_is_lost_and_no_host_event_is_there() {
    for name in MODELS {
        for kind in MEDIATED {
            for events in [SINGLE, FOUR, TEN] {
                // Tiny periods: overflows fall into handlers and ticks.
                let totals = run(&model(name), &of(kind, &boot(events, 100_000, 0, 25)), 2);
                let who = format!("{name}, {}, {} events", kind.name, events.len());
                assert_eq!(totals.counts.nmis_injected, totals.counts.nmis, "{who}");
                assert_eq!(totals.counts.overflows, totals.counts.guest_overflows, "{who}");
                assert!(totals.counts.nmis > 0, "{who}");
                assert_eq!((totals.counts.opens, totals.counts.held_max), (0, 0), "{who}");
                let calls: u64 = OpKind::ALL.into_iter().map(|kind| totals.ops.count(kind)).sum();
                assert_eq!((calls, totals.counts.pinned_errors), (0, 0), "{who}");
            }
        }
    }
}

/// The PMU is switched at each exit and each entry, and at nothing else: the handler's exit is its write to LVTPC.
#[test]
fn each_exit_and_each_entry_switches_the_pmu_once() {
    let handler = |factor| {
        let mut model = model("spr-2026");
        model.scale("pmu-switch", factor).unwrap();
        run(&model, &of(MEDIATED[0], &boot(SINGLE, 10_000_000, 500, 100_000)), 1).handler.mean().unwrap()
    };
    let cost = model("spr-2026").costs.mediated.unwrap().pmu_switch.mean();
    let more = handler(2.0) - handler(1.0);
    assert!((more - 2.0 * cost).abs() < 0.1 * cost, "{more} ns more, {cost} ns a switch");
}

/// A PMI of one event: its interrupt and its LVTPC are the two exits, its seven register accesses none.
#[test]
fn accesses_do_not_exit_unless_a_filter_must_see_them() {
    let target = 1000;
    let boot = boot(SINGLE, 10_000_000, target, 1_000_000);
    let plain = run(&model("spr-2026"), &of(MEDIATED[0], &boot), 2);
    assert_eq!(plain.accesses, 0);
    let exits = plain.counts.entries as f64 / plain.counts.nmis as f64;
    // Ticks and preemptions add fewer than one exit a PMI.
    assert!((2.0..4.0).contains(&exits), "{exits} exits a PMI");

    let filtered = host::run(
        &model("spr-2026"),
        &of(Mediated::named("mediated-filter").unwrap(), &common::boot(TEN, 10_000_000, 200, 1000)),
        0,
    );
    let msrs: Vec<u32> = filtered[0].side.msrs.iter().map(|line| line.msr).collect();
    assert!(!msrs.is_empty());
    let selects = |msr: &u32| (IA32_PERFEVTSEL0..IA32_PERFEVTSEL0 + 4).contains(msr) || *msr == IA32_FIXED_CTR_CTRL;
    assert!(msrs.iter().all(selects), "{msrs:x?}");
}

/// A guest with mediated counters counts what hardware would: the time it was in guest mode, to a count, and no host time.
#[test]
fn counts_are_those_of_the_time_in_guest_mode() {
    let mut boot = boot(SINGLE, 1, 0, 50);
    // USR alone: ring 3's time is the guest's own measure of its work.
    boot.events[0].selector &= !0x2_0000;
    boot.events[0].period = 3_000_000;
    let model = model("spr-2026");
    let mediated = host::run(&model, &of(MEDIATED[0], &boot), 0);
    let report = &mediated[0].report;
    // per-us = 2000 is two counts a nanosecond of work; a unit of work is 4000 ns, and the last one may be cut short at both ends.
    let units = report.counts[0] / 8000;
    assert!(units.abs_diff(report.measure_units) <= 1, "{} counts, {} units", report.counts[0], report.measure_units);
    // Behind host events that also count guest time alone the same guest gets the same number for the same work.
    let events = host::run(&model, &Plan { timer: Timer::Forwarded, ..plan("reuse", &boot) }, 0);
    let other = &events[0].report;
    assert!(
        (other.counts[0] / 8000).abs_diff(other.measure_units) <= 1,
        "{} counts, {} units",
        other.counts[0],
        other.measure_units
    );
    // Each overflow is a period: none is doubled, none is left out.
    assert_eq!(report.overflows[0], report.counts[0] / 3_000_000);
}

/// Guests that live over several turns: each turn's account is balanced by itself.
#[test]
fn turns_have_accounts_of_their_own() {
    let mut boot = boot(FOUR, 1_000_000, 0, 1000);
    boot.flags |= FLAG_TURNS;
    let (mut live, _) = host::start(&model("spr-2026"), &Plan { limit_ns: u64::MAX, ..of(MEDIATED[0], &boot) }, 0);
    for _ in 0..3 {
        let left = live.turn(50);
        let side = &left[0].side;
        assert_eq!((left[0].report.nmis, side.counts.nmis_injected), (50, 50));
        assert_eq!(side.msrs.len(), 0);
    }
    live.finish();
}

#[test]
fn the_costs_come_both_or_not_at_all() {
    let text = sim::model::EMBEDDED.iter().find(|(name, _)| *name == "spr-2026").unwrap().1;
    let without = |key: &str| text.split_inclusive('\n').filter(|line| !line.starts_with(key)).collect::<String>();
    let error = Model::from_toml("x", &without("register =")).unwrap_err().to_string();
    assert!(error.contains("missing field `register`"), "{error}");
    assert!(model("development-host").costs.mediated.is_none(), "a host without a PMU has none to give away");
}
