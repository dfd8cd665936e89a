use std::time::Duration;

use arch_pmu::host::{HostCounters, Touch};
use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{CounterSet, Spec};

use super::Bank;
use super::fake::{A, B, Host, bank, pmc};
use crate::backend::HostError;
use crate::side::HostPmu;
use crate::stats::OpKind;
use crate::strategy::{Release, Reuse, Strategy};

#[test]
fn recreate_reads_and_closes_at_each_pause() {
    let (mut bank, host) = bank("recreate");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.start(pmc(0), A, 93);
    assert_eq!(host.log(), ["open 0 0x3c 100", "read 0", "release 0", "open 1 0x3c 93"]);
    assert_eq!((bank.held(), bank.stats().counts.reused), (1, 0));
}

#[test]
fn reuse_resumes_its_last_event_with_the_new_period() {
    let (mut bank, host) = bank("reuse");
    bank.start(pmc(0), A, 100);
    host.0.borrow_mut().counts[0] = 7;
    assert_eq!(bank.pause(pmc(0)), 7);
    bank.stop(pmc(0), true);
    assert_eq!(bank.pause(pmc(0)), 0, "the count is handed over once");
    bank.start(pmc(0), A, 93);
    host.0.borrow_mut().counts[0] = 10;
    assert_eq!(bank.take(pmc(0)), 3);
    let log = host.log();
    assert_eq!(log, ["open 0 0x3c 100", "pause 0", "pause 0", "period 0 93", "resume 0", "read 0"]);
}

#[test]
fn another_configuration_or_a_refused_period_is_a_miss() {
    let (mut bank, host) = bank("reuse");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.start(pmc(0), B, 100);
    assert_eq!(host.log(), ["open 0 0x3c 100", "pause 0", "release 0", "open 1 0xc5 100"]);
    bank.pause(pmc(0));
    host.0.borrow_mut().refuse_period = true;
    bank.start(pmc(0), B, 50);
    assert_eq!(host.log(), ["pause 1", "period 1 50", "release 1", "open 2 0xc5 50"]);
    assert_eq!(bank.stats().counts.refused_periods, 1);
}

#[test]
fn a_paused_event_is_not_paused_again_with_the_flag() {
    let (mut bank, host) = bank("paused-flag");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.pause(pmc(0));
    assert_eq!(host.log(), ["open 0 0x3c 100", "pause 0"]);
}

#[test]
fn an_event_dies_one_untouched_slice_after_its_counter_went_off() {
    let (mut bank, host) = bank("reuse-lazy");
    bank.touch(pmc(0), Touch::Write);
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 1, "touched in the slice that ended");
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 1, "no new slice");
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!((bank.held(), bank.stats().counts.sched_ins), (0, 2));
}

#[test]
fn own_enable_or_a_touch_keeps_an_event_global_ctrl_does_not() {
    let (mut bank, host) = bank("reuse-lazy");
    for n in 0..3 {
        bank.start(pmc(n), A, 100);
        bank.pause(pmc(n));
    }
    bank.touch(pmc(1), Touch::Write);
    bank.touch(pmc(2), Touch::GlobalCtrl);
    bank.touch(pmc(2), Touch::Read);
    host.slice();
    bank.on_entry([pmc(0)].into_iter().collect());
    assert_eq!(bank.held(), 2);
    assert_eq!(host.log().last().map(String::as_str), Some("release 2"));
}

#[test]
fn a_slice_that_began_before_the_first_event_is_not_its() {
    let (mut bank, host) = bank("reuse-lazy");
    host.slice();
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 1);
}

#[test]
fn the_pool_serves_rotation_and_migration_without_opens() {
    let (mut bank, host) = bank("pool");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.start(pmc(0), B, 100);
    assert_eq!(bank.stats().ops.count(OpKind::Open), 2);
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    bank.start(pmc(3), A, 50);
    bank.start(pmc(0), B, 60);
    assert_eq!((bank.stats().ops.count(OpKind::Open), bank.stats().counts.reused, bank.held()), (2, 2, 2));
    assert!(host.log().contains(&"period 0 50".to_owned()));
}

#[test]
fn the_pool_gives_back_the_least_recently_parked() {
    let host = Host::default();
    let strategy = Strategy { reuse: Reuse::Pool(2), ..Strategy::preset("pool").unwrap() };
    let mut bank = Bank::new(host.clone(), strategy);
    for (n, event) in [0x3c, 0xc0, 0xc5].into_iter().enumerate() {
        bank.start(pmc(n), PerfEvtSel::from_bits(event).spec(), 10);
        bank.pause(pmc(n));
        bank.stop(pmc(n), false);
    }
    assert_eq!(bank.held(), 2);
    assert_eq!(host.log().last().map(String::as_str), Some("release 0"));
}

/// Counter 0 rotates between two events, one for each sched slice.
fn rotate(bank: &mut Bank<Host>, host: &Host, slices: usize) {
    for spec in [A, B].into_iter().cycle().take(slices) {
        bank.touch(pmc(0), Touch::Write);
        bank.pause(pmc(0));
        bank.start(pmc(0), spec, 100);
        host.slice();
        bank.on_entry([pmc(0)].into_iter().collect());
    }
}

#[test]
fn a_pooled_event_lives_as_long_as_the_counter_that_it_served_is_in_use() {
    for preset in ["pool", "gate"] {
        let (mut bank, host) = bank(preset);
        rotate(&mut bank, &host, 20);
        assert_eq!((bank.stats().ops.count(OpKind::Open), bank.held()), (2, 2), "{preset}");
        bank.pause(pmc(0));
        bank.stop(pmc(0), false);
        // Others are in use, this one no more.
        for _ in 0..2 {
            bank.touch(pmc(1), Touch::Write);
            host.slice();
            bank.on_entry([pmc(1)].into_iter().collect());
        }
        assert_eq!(bank.held(), 0, "{preset}");
    }
}

#[test]
fn a_pooled_event_ages_with_the_counter_that_it_served_last() {
    let (mut bank, host) = bank("pool");
    bank.start(pmc(0), A, 100);
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    bank.start(pmc(1), A, 100);
    bank.pause(pmc(1));
    bank.stop(pmc(1), false);
    bank.touch(pmc(1), Touch::Write);
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 1);
    bank.touch(pmc(0), Touch::Write);
    host.slice();
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(bank.held(), 0);
}

#[test]
fn idle_time_releases_what_is_parked_and_spares_what_runs() {
    let host = Host::default();
    let strategy =
        Strategy { release: Release::IdleMs(Duration::from_millis(5)), ..Strategy::preset("reuse").unwrap() };
    let mut bank = Bank::new(host.clone(), strategy);
    for n in 0..2 {
        bank.start(pmc(n), A, 10);
    }
    bank.pause(pmc(0));
    bank.stop(pmc(0), false);
    bank.on_entry([pmc(1)].into_iter().collect());
    assert_eq!(bank.held(), 2);
    host.0.borrow_mut().now += 6_000_000;
    bank.on_entry([pmc(1)].into_iter().collect());
    assert_eq!(bank.held(), 1);
}

#[test]
fn a_rest_of_the_vcpu_ages_no_event() {
    let parked = |release: Release, rest: bool| {
        let host = Host::default();
        let mut bank = Bank::new(host.clone(), Strategy { release, ..Strategy::preset("reuse").unwrap() });
        bank.start(pmc(0), A, 10);
        bank.on_entry(CounterSet::EMPTY);
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
        if rest {
            bank.rest();
        }
        host.slice();
        let mut script = host.0.borrow_mut();
        (script.slept, script.now) = (true, script.now + 6_000_000);
        drop(script);
        if rest {
            bank.restart_account();
        }
        bank.on_entry(CounterSet::EMPTY);
        bank.held()
    };
    for release in [Release::Slices(1), Release::IdleMs(Duration::from_millis(5)), Release::Hlt] {
        assert_eq!([parked(release, true), parked(release, false)], [1, 0], "{release:?}");
    }
}

#[test]
fn a_halt_releases_what_is_parked_and_opening_is_no_halt() {
    let host = Host::default();
    let mut bank = Bank::new(host.clone(), Strategy { release: Release::Hlt, ..Strategy::preset("reuse").unwrap() });
    let enabled: CounterSet = [pmc(1)].into_iter().collect();
    for n in 0..2 {
        bank.start(pmc(n), A, 10);
    }
    bank.pause(pmc(0));
    bank.stop(pmc(0), true);
    // perf_event_open may sleep.
    host.0.borrow_mut().slept = true;
    bank.on_entry(enabled);
    assert_eq!(bank.held(), 2);
    // A slice is no halt.
    host.slice();
    bank.on_entry(enabled);
    assert_eq!(bank.held(), 2);
    host.0.borrow_mut().slept = true;
    bank.on_entry(enabled);
    assert_eq!((bank.held(), bank.take(pmc(1))), (1, 0), "what runs stays");
}

#[test]
fn a_failed_open_is_retried_and_a_lost_pinned_event_is_reported() {
    let (mut bank, host) = bank("reuse");
    host.0.borrow_mut().refuse_open = true;
    bank.start(pmc(0), A, 100);
    assert_eq!((bank.stats().counts.failed_opens, bank.held()), (1, 0));
    assert!(bank.stats().last_error.is_some());
    host.0.borrow_mut().refuse_open = false;
    for counter in bank.take_retries() {
        bank.start(counter, A, 100);
    }
    assert_eq!(bank.held(), 1);
    host.0.borrow_mut().lost = true;
    assert_eq!(bank.take(pmc(0)), 0);
    assert_eq!((bank.stats().counts.pinned_errors, bank.held()), (1, 0));
    assert!(bank.take_retries().contains(pmc(0)));
}

#[test]
fn nothing_is_left_open() {
    for preset in crate::strategy::PRESETS {
        let (mut bank, host) = bank(preset);
        for n in 0..4 {
            bank.start(pmc(n), A, 10);
            bank.pause(pmc(n));
            bank.stop(pmc(n), n % 2 == 0);
        }
        drop(bank);
        assert!(host.0.borrow().open.is_empty(), "{preset}");
    }
}

#[test]
fn pitfall_12_a_host_that_keeps_refusing_is_asked_ever_more_rarely() {
    let (mut bank, host) = bank("deferred");
    host.0.borrow_mut().refuse_open = true;
    bank.start(pmc(0), A, 100);
    let mut asked_at = Vec::new();
    for entry in 1..=5000 {
        for counter in bank.take_retries() {
            asked_at.push(entry);
            bank.start(counter, A, 100);
        }
    }
    assert_eq!(asked_at[..5], [1, 3, 7, 15, 31], "after 1, 2, 4, 8, 16 entries");
    assert!(asked_at.len() < 16, "{asked_at:?}");
    host.0.borrow_mut().refuse_open = false;
    let entries = (0..2000).take_while(|_| bank.take_retries().is_empty()).count();
    assert!(entries <= 1024, "never given up: asked again after {entries} entries");
}

#[test]
fn pitfall_12_a_refused_counter_is_not_hurried_by_the_success_of_another() {
    let (mut bank, host) = bank("deferred");
    let mut asked_at = Vec::new();
    host.0.borrow_mut().refuse = Some(B);
    bank.start(pmc(0), B, 100);
    for entry in 1..=200 {
        // Another counter gets an event at every entry.
        bank.start(pmc(1), if entry % 2 == 0 { A } else { PerfEvtSel::from_bits(0x53_00c0).spec() }, 100);
        for counter in bank.take_retries() {
            asked_at.push(entry);
            bank.start(counter, B, 100);
        }
        bank.pause(pmc(1));
    }
    assert_eq!(asked_at, [1, 3, 7, 15, 31, 63, 127]);
}

#[test]
fn pitfall_12_a_lost_event_does_not_wait_for_a_refused_one() {
    let (mut bank, host) = bank("deferred");
    bank.start(pmc(1), A, 100);
    host.0.borrow_mut().refuse = Some(B);
    for _ in 0..5 {
        bank.start(pmc(0), B, 100);
    }
    host.0.borrow_mut().lost = true;
    bank.pause(pmc(1));
    assert_eq!(bank.take_retries(), [pmc(1)].into_iter().collect());
}

#[test]
fn pitfall_12_another_event_of_a_refused_counter_begins_anew() {
    let (mut bank, host) = bank("deferred");
    host.0.borrow_mut().refuse_open = true;
    for _ in 0..5 {
        bank.start(pmc(0), A, 100);
    }
    bank.start(pmc(0), B, 100);
    assert!(bank.take_retries().contains(pmc(0)), "after one entry");
}

#[test]
fn pitfall_18_no_period_is_set_for_an_event_that_does_not_sample() {
    let (mut bank, host) = bank("reuse");
    let txcp = PerfEvtSel::from_bits(0x2_0053_003c).spec();
    bank.start(pmc(2), txcp, 100);
    bank.set_period(pmc(2), 50);
    bank.pause(pmc(2));
    bank.start(pmc(2), txcp, 40);
    assert!(host.log().iter().all(|line| !line.starts_with("period")));
    assert_eq!(bank.stats().counts.reused, 1);
}

#[test]
fn pitfall_22_a_lost_pinned_event_is_reported_and_opened_again() {
    let (mut bank, host) = bank("deferred");
    let pinned_errors = |bank: &mut Bank<_>| {
        let mut counts = counts::Counts::default();
        bank.account(&mut counts);
        counts.pinned_errors
    };
    bank.start(pmc(0), A, 100);
    assert_eq!(pinned_errors(&mut bank), 0);
    host.0.borrow_mut().lost = true;
    // A guest that waits for its overflow looks at nothing.
    assert_eq!(pinned_errors(&mut bank), 1);
    host.0.borrow_mut().gated = true;
    assert_eq!(pinned_errors(&mut bank), 2, "of a gate its leader");
    host.0.borrow_mut().gated = false;
    bank.restart_account();
    assert_eq!((bank.pause(pmc(0)), bank.held()), (0, 0), "a count that is gone is not made up");
    assert_eq!((bank.stats().counts.pinned_errors, &bank.stats().last_error), (1, &Some(HostError::PinnedLost)));
    assert!(bank.take_retries().contains(pmc(0)), "and the counter is looked at again");
}

/// A guest turns all its counters off and on again.
fn off_and_on(bank: &mut Bank<Host>, counters: &[(usize, Spec, u64)]) {
    for &(n, ..) in counters {
        bank.pause(pmc(n));
        bank.stop(pmc(n), true);
    }
    bank.on_entry(CounterSet::EMPTY);
    for &(n, spec, period) in counters {
        bank.start(pmc(n), spec, period);
    }
    bank.on_entry(CounterSet::EMPTY);
}

#[test]
fn behind_a_gate_off_and_on_are_two_calls_whatever_the_number_of_counters() {
    let (mut bank, host) = bank("gate");
    host.0.borrow_mut().gated = true;
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    bank.on_entry(CounterSet::EMPTY);
    host.log();
    host.0.borrow_mut().counts = vec![30, 100];
    off_and_on(&mut bank, &[(0, A, 70), (1, B, 55)]);
    assert_eq!(host.log(), ["shut gate", "period 1 55", "open gate"], "only what overflowed has a new period");
    assert_eq!((bank.stats().ops.count(OpKind::Pause), bank.stats().ops.count(OpKind::Resume)), (1, 2));
    // One counter goes off by itself: its event is taken out while the gate is shut for it.
    assert_eq!(bank.pause(pmc(0)), 0, "what was counted before was handed over");
    bank.stop(pmc(0), true);
    bank.on_entry(CounterSet::EMPTY);
    assert_eq!(host.log(), ["shut gate", "pause 0", "open gate"]);
}

#[test]
fn with_a_bound_events_are_opened_after_every_counter_took_what_is_parked() {
    let host = Host::default();
    let strategy = Strategy { reuse: Reuse::Pool(2), hold_max: 2, ..Strategy::preset("pool").unwrap() };
    let mut bank = Bank::new(host.clone(), strategy);
    let c = PerfEvtSel::from_bits(0x53_00c0).spec();
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    bank.on_entry(CounterSet::EMPTY);
    for n in 0..2 {
        bank.pause(pmc(n));
        bank.stop(pmc(n), false);
    }
    host.log();
    // The first counter wants an event that is not there; the second the one that the first once had.
    bank.start(pmc(0), c, 100);
    bank.start(pmc(1), A, 100);
    bank.on_entry(CounterSet::EMPTY);
    let log = host.log();
    assert_eq!(log, ["period 0 100", "resume 0", "release 1", "open 2 0xc0 100"], "the event nobody wanted gave way");
    assert_eq!((bank.held(), bank.stats().counts.held_max), (2, 2));
}

/// A bank with events that stop themselves, two of them running.
fn one_shot() -> (Bank<Host>, Host) {
    let (mut bank, host) = bank("deferred");
    host.0.borrow_mut().records = Some(Vec::new());
    for (n, spec) in [(0, A), (1, B)] {
        bank.start(pmc(n), spec, 100);
    }
    host.log();
    (bank, host)
}

#[test]
fn a_pause_hands_over_the_count_of_a_record_that_no_kick_has_looked_at() {
    let (mut bank, host) = one_shot();
    bank.pause(pmc(0));
    host.0.borrow_mut().records = Some(vec![(1, 100)]);
    // The start takes the records of all.
    bank.start(pmc(0), A, 100);
    host.log();
    assert_eq!((bank.pause(pmc(1)), host.log()), (100, vec![]), "without a host call: it stopped itself");
    bank.start(pmc(1), B, 50);
    assert_eq!(host.log(), ["period 1 50", "resume 1"]);
}

#[test]
fn after_lost_records_every_running_counter_is_started_again_with_another_event() {
    let (mut bank, host) = one_shot();
    host.0.borrow_mut().counts = vec![60, 100];
    host.0.borrow_mut().records_lost = true;
    let signalled = bank.signalled();
    assert_eq!((signalled.counters, signalled.certain), (CounterSet::ALL, true));
    assert_eq!((bank.take(pmc(0)), bank.take(pmc(1))), (60, 100), "the events are read");
    let due = bank.due(true);
    assert_eq!(due, [pmc(0), pmc(1)].into_iter().collect(), "a PMI does not defer it");
    host.log();
    bank.pause(pmc(1));
    bank.start(pmc(1), B, 100);
    assert_eq!(host.log(), ["pause 1", "release 1", "open 2 0xc5 100"]);
}

#[test]
fn among_lost_records_the_last_one_left_is_not_taken_for_the_count() {
    let (mut bank, host) = bank("gate");
    bank.start(pmc(0), A, 100);
    bank.on_entry(CounterSet::EMPTY);
    host.0.borrow_mut().counts = vec![230];
    host.0.borrow_mut().unreliable = vec![(0, 110)];
    assert!(bank.signalled().certain, "an event that goes on is aimed anew");
    assert_eq!(bank.take(pmc(0)), 230, "read, not from the record");
}

#[test]
fn after_an_early_signal_of_a_counter_that_is_off_its_period_is_set_anew() {
    for complete in [true, false] {
        let (mut bank, host) = bank("gate");
        bank.start(pmc(0), A, 100);
        bank.on_entry(CounterSet::EMPTY);
        host.0.borrow_mut().counts = vec![98];
        host.0.borrow_mut().complete = complete;
        if complete {
            host.0.borrow_mut().unreliable = vec![(0, 98)];
        }
        // Off before the kick: perf began the period anew at 98.
        bank.pause(pmc(0));
        bank.stop(pmc(0), true);
        bank.signalled();
        host.log();
        bank.start(pmc(0), A, 2);
        assert!(host.log().contains(&"period 0 2".to_owned()), "the same aim is not the same period");
    }
}
