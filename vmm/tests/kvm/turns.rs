//! Guests that live over several turns. None asserts a time that a busy host could stretch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guest::abi::{FLAG_TURNS, LOG_NMI, LOG_ROTATION};
use host_pmu::stats::OpKind;
use vmm::machine::CounterSource;
use vmm::machine::payload::LiveGuest;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::{End, RunOutcome};

use crate::guests::{JULY_2021, PERIOD, SINGLE, balanced, clock, gp, host, plan, report};

/// Much longer than a turn.
const PAUSE: Duration = Duration::from_millis(300);

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

/// A guest at rest. One that is dropped between two turns is stopped, or its trial would never end.
fn start(plan: PayloadPlan) -> LiveGuest {
    open(plan).0
}

fn open(mut plan: PayloadPlan) -> (LiveGuest, RunOutcome) {
    plan.boot.flags |= FLAG_TURNS;
    let (guest, opening) =
        LiveGuest::start(&Arc::new(host()), guest::PMU_PAYLOAD, plan, &never()).expect("a guest that begins");
    (guest, opening.expect("a guest that comes to rest"))
}

fn turn(guest: &mut LiveGuest, samples: u64) -> RunOutcome {
    let outcome = guest.turn(samples, &never()).expect("a turn");
    assert_eq!(outcome.end, End::Done);
    outcome
}

pub(crate) fn whole() {
    for (behind, events, vcpus) in [
        (clock("recreate"), SINGLE, 1),
        (clock("reuse-lazy"), JULY_2021, 1),
        (CounterSource::Floor, JULY_2021, 1),
        (clock("reuse"), SINGLE, 2),
    ] {
        let recreates = behind == clock("recreate");
        let mut plan = plan(behind, events, 40);
        plan.machine.vcpus = vcpus;
        let (mut guest, opening) = open(plan);
        assert!(report(&opening.vcpus[0]).baseline_units > 0 && opening.start > Duration::ZERO);
        for samples in [20, 5, 40] {
            let outcome = turn(&mut guest, samples);
            assert_eq!(outcome.vcpus.len(), vcpus);
            for vcpu in &outcome.vcpus {
                balanced(vcpu);
                let report = report(vcpu);
                // No entry is of an earlier turn.
                assert!(vcpu.left.log.iter().all(|entry| entry.tsc_entry >= report.measure_begin));
                // One of several goes on until the others have theirs.
                let most = if vcpus == 1 { samples + 8 } else { u64::MAX };
                assert!((samples..most).contains(&report.nmis), "{} of {samples} samples", report.nmis);
                assert_eq!(report.baseline_units, 0, "the baseline was before the first turn");
                assert!(report.measure_end > report.measure_begin);
                assert!(vcpu.left.held_at_tail_tick.is_empty());
                let exits = vcpu.account.msr_exits.iter().find(|line| line.msr == 0x38e).expect("GLOBAL_STATUS");
                assert!(exits.reads <= 2 * report.nmis + 2, "{exits:?} of {} NMIs", report.nmis);
                if recreates {
                    let opens = vcpu.account.host.ops.count(OpKind::Open);
                    assert!(opens > report.nmis && opens <= 4 * (report.nmis + 2), "{opens} of {} NMIs", report.nmis);
                }
            }
        }
        let last = guest.finish(&never()).expect("an end");
        assert_eq!((&last.end, last.vcpus[0].left.held_at_tail_tick.len()), (&End::Done, 6));
        assert_eq!(report(&last.vcpus[0]).nmis, 0);
    }
}

/// No figure has the pauses between turns, and a tick is due a whole interval after a turn begins: a task switch is at each.
pub(crate) fn time_between() {
    let plan = plan(CounterSource::Floor, JULY_2021, 40);
    let tick = plan.boot.tick_count;
    let mut guest = start(plan);
    let mut end = None;
    for _ in 0..4 {
        let outcome = turn(&mut guest, 40);
        let vcpu = &outcome.vcpus[0];
        let (report, khz) = (report(vcpu), vcpu.left.tsc.khz);
        let pause = u64::try_from(PAUSE.as_millis()).expect("short") * khz;
        assert!(end.is_none_or(|end| report.measure_begin - end >= pause), "the pause is between the turns");
        end = Some(report.measure_end);
        let longest = report.measure_end - report.measure_begin;
        let all = report.enabled.iter().chain(&report.running).all(|&ticks| ticks <= longest);
        assert!(all, "no event is longer than its turn: {longest}, {:?}", &report.running[..4]);
        assert!(vcpu.left.log.iter().all(|entry| entry.tsc_exit - entry.tsc_entry <= longest));
        let rotations = vcpu.left.log.iter().filter(|entry| entry.kind == LOG_ROTATION).count() as u64;
        assert_eq!(rotations, report.rotations);
        // A tick that was pending, and the one that ends the turn, come beside those of whole intervals.
        let intervals = longest * 1_000_000 / khz / tick;
        assert!(rotations <= intervals + 1, "{rotations} rotations in {intervals} intervals");
        assert!(vcpu.left.log.iter().any(|entry| entry.kind == LOG_NMI));
        std::thread::sleep(PAUSE);
    }
}

pub(crate) fn time_limit() {
    let mut plan = plan(CounterSource::Floor, SINGLE, 1_000_000);
    plan.log_entries = 10_000;
    // Long enough for the first turn on a fraction of a CPU.
    plan.machine.time_limit = Duration::from_secs(5);
    let mut guest = start(plan);
    turn(&mut guest, 10);
    let outcome = guest.turn(1_000_000, &never()).expect("an outcome");
    assert_eq!((&outcome.end, &outcome.vcpus[0].end), (&End::TimedOut, &End::TimedOut));
    assert!(report(&outcome.vcpus[0]).nmis > 0, "what was measured so far");
    assert_eq!(guest.turn(10, &never()).expect("an outcome").end, End::Stopped, "it is gone");
    assert!(!guest.finish(&never()).expect("an outcome").end.is_complete());
}

pub(crate) fn interruption() {
    let interrupted = never();
    let mut plan = plan(CounterSource::Floor, SINGLE, 1_000_000);
    plan.log_entries = 10_000;
    let mut guest = start(plan);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            interrupted.store(true, Ordering::Relaxed);
        });
        guest.turn(1_000_000, &interrupted).expect("an outcome")
    });
    assert_eq!(outcome.end, End::Stopped);
    assert!(report(&outcome.vcpus[0]).nmis > 0, "what was measured so far");
}

/// An overflow may be found as the last handler of a turn switches the counters off; with a period as short as a handler the counter
/// overflows again before the driver stops it, in most turns.
pub(crate) fn every_turn_samples() {
    for (period, turns, samples) in [(PERIOD / 16, 100, 1), (20_000, 6, 3)] {
        let mut plan = plan(CounterSource::Floor, &[gp(0x3c, period)], samples);
        plan.boot.max_ticks = 100;
        let mut guest = start(plan);
        for number in 0..turns {
            let outcome = turn(&mut guest, samples);
            balanced(&outcome.vcpus[0]);
            assert!(report(&outcome.vcpus[0]).nmis >= samples, "turn {number}, period {period}");
        }
    }
}
