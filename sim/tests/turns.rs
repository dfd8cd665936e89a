//! Simulated guests that take their samples in turns.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{FOUR, SINGLE, TEN, boot, plan};
use guest::abi::FLAG_TURNS;
use host_pmu::stats::OpKind;
use host_pmu::strategy::PRESETS;
use sim::guest::GuestOutcome;
use sim::host::{self, Plan};
use sim::model::Model;

fn in_turns(strategy: &str, events: &[(u64, u64, u64)], vcpus: u64) -> Plan {
    let mut boot = boot(events, 2_000_000, 25, 10_000);
    boot.flags |= FLAG_TURNS;
    boot.log_capacity = 1000;
    Plan { vcpus, ..plan(strategy, &boot) }
}

fn turns(model: &str, plan: &Plan, turns: &[u64]) -> (Vec<Vec<GuestOutcome>>, Vec<GuestOutcome>) {
    let (mut host, opening) = host::start(&Model::embedded(model).unwrap(), plan, 3);
    assert!(opening.iter().all(|guest| guest.report.baseline_units > 0 && guest.report.nmis == 0));
    (turns.iter().map(|&samples| host.turn(samples)).collect(), host.finish())
}

#[test]
fn every_turn_is_whole_and_has_its_own_figures() {
    for model in ["development-host", "clx-ap-watchdog-on"] {
        for strategy in PRESETS.into_iter().chain(["floor"]) {
            for (events, vcpus) in [(SINGLE, 1), (FOUR, 1), (TEN, 2)] {
                let who = format!("{model}, {strategy}, {} events", events.len());
                let (turns, end) = turns(model, &in_turns(strategy, events, vcpus), &[25, 5, 25, 25]);
                for (number, turn) in turns.iter().enumerate() {
                    assert_eq!(turn.len() as u64, vcpus);
                    for guest in turn {
                        let report = &guest.report;
                        let wanted = if number == 1 { 5 } else { 25 };
                        assert!((wanted..wanted + 8).contains(&report.nmis), "{who}: {}", report.nmis);
                        assert_eq!(
                            (report.nmis, report.nmis),
                            (guest.side.counts.nmis_injected, guest.deliveries.len() as u64),
                            "{who}"
                        );
                        assert_eq!(report.overflows.iter().sum::<u64>(), guest.side.counts.overflows, "{who}");
                        assert_eq!(report.baseline_units, 0, "{who}");
                        assert!(guest.log.iter().all(|entry| entry.tsc_entry >= report.measure_begin), "{who}");
                        assert!(!guest.timed_out && guest.held_at_tail_tick.is_empty());
                    }
                }
                assert!(end.iter().all(|guest| guest.report.nmis == 0 && guest.held_at_tail_tick.len() == 4), "{who}");
            }
        }
    }
}

/// A turn costs a stop and a start of the events, and no more: the cost of a PMI is that of one long run.
#[test]
fn operations_per_pmi_are_those_of_a_long_run() {
    for (strategy, kind, per_pmi) in
        [("recreate", OpKind::Open, 2.0), ("reuse", OpKind::Open, 0.0), ("reuse", OpKind::Pause, 3.0)]
    {
        let (turns, _) = turns("development-host", &in_turns(strategy, SINGLE, 1), &[25; 20]);
        let sum =
            |of: fn(&GuestOutcome, OpKind) -> u64| turns.iter().flatten().map(|guest| of(guest, kind)).sum::<u64>();
        let found =
            sum(|guest, kind| guest.side.host.ops.count(kind)) as f64 / sum(|guest, _| guest.report.nmis) as f64;
        // Five calls more in each turn of 25.
        assert!((per_pmi..per_pmi + 0.2).contains(&found), "{strategy}: {found} of {} per PMI", kind.key());
    }
}

#[test]
fn the_floors_timer_is_set_about_once_per_pmi() {
    let (turns, _) = turns("development-host", &in_turns("floor", SINGLE, 1), &[25; 20]);
    for guest in turns.iter().flatten() {
        let (calls, pmis) = (guest.side.counts.timer_calls, guest.report.nmis);
        // One at the start of the counters.
        assert!(calls <= pmis + 2 && calls >= pmis * 9 / 10, "{calls} calls for {pmis} PMIs");
    }
}

/// Other guests have their turns between two of a guest, so its ticks meet each turn elsewhere: guests are no copies of one.
#[test]
fn turns_begin_anywhere_between_two_ticks() {
    let first_nmis = |number: u64| -> Vec<u64> {
        let plan = in_turns("floor", SINGLE, 1);
        let (mut host, _) = host::start(&Model::embedded("development-host").unwrap(), &plan, number);
        (0..20).map(|_| host.turn(25)[0].log[0].tsc_entry).collect()
    };
    assert_eq!(first_nmis(3), first_nmis(3));
    assert_ne!(first_nmis(3), first_nmis(5));
}

/// With more events than counters, a guest begins anywhere in their rotation, and all arms of a number at one place.
#[test]
fn turns_begin_anywhere_in_the_rotation() {
    let events_of_first_turns = |strategy: &str| -> Vec<Vec<bool>> {
        let plan = in_turns(strategy, TEN, 1);
        let model = Model::embedded("clx-ap-watchdog-on").unwrap();
        let of = |number| host::start(&model, &plan, number).0.turn(1)[0].report.running.map(|ran| ran > 0).to_vec();
        (0..20).map(of).collect()
    };
    let mut places = events_of_first_turns("gate");
    assert_eq!(places, events_of_first_turns("floor"));
    places.sort();
    places.dedup();
    assert!(places.len() > 5, "{places:?}");
}
