use std::time::Duration;

use guest::abi::{LOG_NMI, LOG_ROTATION, LogEntry};
use vmm::outcome::{Counts, End, RunOutcome, VcpuOutcome};

use super::*;
use crate::arms::rounds::mock::{outcome, vcpu};

fn arm(kind: ArmKind) -> Arm {
    Arm { strategy: "reuse".into(), backend: "cpu-clock".into(), kind, definition: None }
}

fn place(index: u64) -> Place {
    Place {
        turn: Turn { index, position: 0, warmup: false, samples: 10 },
        started: Duration::from_secs(index),
        guest: None,
        probe_ns: None,
    }
}

fn fold(outcomes: &[RunOutcome]) -> document::Arm {
    let mut fold = ArmFold::new(&arm(ArmKind::Strategy), true);
    for (outcome, index) in outcomes.iter().zip(0..) {
        fold.add(place(index), outcome);
    }
    fold.result()
}

fn one(change: impl FnOnce(&mut VcpuOutcome)) -> document::Arm {
    let mut vcpu = vcpu(10, 1000);
    change(&mut vcpu);
    fold(&[outcome(vec![vcpu])])
}

#[test]
fn rounds_and_vcpus_add_up() {
    let run = || outcome(vec![vcpu(10, 1000), vcpu(5, 3000)]);
    let arm = fold(&[run(), run()]);
    assert_eq!(
        (arm.own.counts.overflows, arm.own.counts.guest_overflows, arm.own.counts.pmis, arm.own.counts.nmis),
        (30, 30, 30, 30)
    );
    assert_eq!((arm.own.nmis_delivered, arm.own.lost), (Some(30), Some(0)));
    let handler = arm.metric(&NMI_HANDLER).unwrap();
    assert_eq!((handler.count, handler.p50), (30, 1000));
    assert!(handler.max.unwrap().abs_diff(3000) <= 3);
    // Entry 1000 ticks of 0.5 ns after delivery, in spite of the offset.
    let delivery = arm.metric(&PMI_DELIVERY).unwrap();
    assert_eq!((delivery.count, delivery.min, delivery.max), (30, Some(500), Some(500)));
    assert_eq!(arm.own.host_ops["open"].count, 4);
    assert_eq!(arm.own.host_ops["open"].total_ns, 4 * 30_000);
    assert_eq!(arm.own.host_ops["period"], HostOp::default());
    assert_eq!(arm.own.msr_exits["0x38f"].writes, 60);
    assert_eq!(arm.metric(&EXIT_PATH).unwrap().count, 4);
    assert_eq!((arm.own.events_held.max, arm.own.events_held.at_end), (7, 2));
    assert_eq!(arm.own.events_held.tail, [6, 0]);
    assert!(arm.own.events_held.time_mean.is_some_and(|mean| (mean - 3.0).abs() < 1e-9));
    // Baseline 40 ms / 40 000 units, measured 100 ms / 50 000 units.
    let work = arm.own.workload.unwrap();
    assert!((work.unit_ns_without - 1000.0).abs() < 1e-6);
    assert!((work.slowdown - 2.0).abs() < 1e-9);
    assert_eq!(arm.own.workload_ns, 4 * 100_000_000);
    let rounds = &arm.rounds;
    assert_eq!(
        (rounds.counts.nmis[1], rounds.counts.overflows[1], rounds.counts.opens[1], rounds.lost[1]),
        (15, 15, 2, Some(0))
    );
    assert!(rounds.complete[1] && arm.incomplete.is_empty());
}

#[test]
fn signal_latencies_are_those_of_all_vcpus_by_round() {
    let with = |ns: &[u64]| {
        let mut vcpu = vcpu(10, 1000);
        for &ns in ns {
            vcpu.account.host.signal_ns.record(ns);
        }
        vcpu
    };
    let arm = fold(&[outcome(vec![with(&[10, 20]), with(&[30])]), outcome(vec![with(&[]), with(&[90])])]);
    let all = arm.metric(&SIGNAL).unwrap();
    assert_eq!((all.count, all.min, all.max), (4, Some(10), Some(90)));
    let round = |at: usize| arm.rounds.metric(&SIGNAL, at).unwrap();
    assert_eq!((round(0).count, round(0).p50, round(1).count, round(1).p50), (3, 20, 1, 90));
    assert_eq!(one(|_| ()).metric(&SIGNAL), None, "no host event recorded a time");
}

#[test]
fn a_lost_nmi_is_counted_and_spoils_the_pairing_of_its_vcpu_only() {
    let mut unlucky = vcpu(10, 1000);
    unlucky.account.counts.nmis_injected = 11;
    unlucky.account.deliveries.insert(4, 1);
    let arm = fold(&[outcome(vec![unlucky, vcpu(10, 1000)])]);
    assert_eq!(arm.own.lost, Some(1));
    assert_eq!(arm.own.counts.delivery_unmatched, 1);
    assert_eq!(arm.metric(&PMI_DELIVERY).unwrap().count, 10);
    assert_eq!(arm.metric(&NMI_HANDLER).unwrap().count, 20);
}

#[test]
fn a_full_log_keeps_the_pairing_of_what_it_holds() {
    let arm = one(|vcpu| {
        vcpu.left.log.truncate(6);
        let report = vcpu.left.report.as_mut().unwrap();
        report.logged = 6;
        report.dropped = 4;
    });
    assert_eq!((arm.own.counts.log_dropped, arm.own.counts.delivery_unmatched), (4, 0));
    assert_eq!(arm.metric(&PMI_DELIVERY).unwrap().count, 6);
    // Entries that are missing without having been dropped: something else is wrong.
    let arm = one(|vcpu| vcpu.left.log.truncate(6));
    assert_eq!(arm.own.counts.delivery_unmatched, 1);
}

#[test]
fn entries_before_their_delivery_are_forgiven_within_the_uncertainty_only() {
    // 1000 ticks lie between delivery and entry; the uncertainty is 100.
    let within = one(|vcpu| vcpu.left.tsc.offset += 1050);
    assert_eq!(within.own.counts.delivery_negative, 0);
    assert_eq!(within.metric(&PMI_DELIVERY).unwrap().max, Some(1));
    let beyond = one(|vcpu| vcpu.left.tsc.offset += 1200);
    assert_eq!(beyond.own.counts.delivery_negative, 10);
    assert_eq!(beyond.metric(&PMI_DELIVERY), None);
}

#[test]
fn rotations_have_their_own_figures() {
    let arm = one(|vcpu| {
        vcpu.left
            .log
            .insert(3, LogEntry { kind: LOG_ROTATION, tsc_entry: 100, tsc_exit: 10_100, ..LogEntry::default() });
    });
    assert!(arm.metric(&ROTATION).unwrap().p50.abs_diff(5000) <= 5);
    assert_eq!(arm.metric(&NMI_HANDLER).unwrap().count, 10);
    // A rotation between NMIs does not shift their pairing.
    assert_eq!(arm.metric(&PMI_DELIVERY).unwrap().max, Some(500));
}

#[test]
fn nonsense_from_the_guest_is_counted_and_left_out() {
    let arm = one(|vcpu| {
        vcpu.left.log[0].tsc_exit = 0;
        vcpu.left.log.push(LogEntry { kind: 77, ..LogEntry::default() });
        let report = vcpu.left.report.as_mut().unwrap();
        report.overflows = [u64::MAX; guest::abi::MAX_EVENTS];
        report.measure_end = 0;
        report.measure_units = u64::MAX;
        report.baseline_end = u64::MAX;
    });
    assert_eq!(arm.own.counts.log_invalid, 2);
    assert_eq!(arm.metric(&NMI_HANDLER).unwrap().count, 9);
    assert_eq!(arm.own.counts.guest_overflows, u64::MAX);
    assert_eq!(arm.own.workload, None);
    let arm = one(|vcpu| vcpu.left.report.as_mut().unwrap().nmis = u64::MAX);
    assert_eq!(arm.own.counts.nmis, u64::MAX);
    assert_eq!((arm.own.lost, arm.own.counts.surplus), (Some(1 << 63), u64::MAX - 10));
    assert_eq!(arm.own.counts.delivery_unmatched, 1);
}

#[test]
fn a_guest_that_left_nothing_is_incomplete_not_a_panic() {
    let arm = one(|vcpu| {
        vcpu.end = End::TripleFault;
        vcpu.left.report = None;
        vcpu.left.log.clear();
        vcpu.left.tsc.khz = 0;
    });
    assert_eq!(arm.incomplete.len(), 2);
    assert!(arm.incomplete[0].contains("triple-faulted"));
    assert_eq!(arm.own.lost, None);
    assert_eq!(arm.metric(&NMI_HANDLER), None);
    let arm = one(|vcpu| vcpu.left.tsc.khz = 0);
    assert!(arm.incomplete[0].contains("TSC frequency"));
    assert_eq!((arm.own.counts.nmis, arm.own.lost), (10, Some(0)));
}

#[test]
fn kvms_own_vpmu_has_no_deliveries_to_compare() {
    let mut fold = ArmFold::new(&arm(ArmKind::Kvm), false);
    let mut vcpu = vcpu(10, 1000);
    vcpu.account.deliveries.clear();
    vcpu.account.counts = Counts::default();
    fold.add(place(0), &outcome(vec![vcpu]));
    let arm = fold.result();
    assert_eq!((arm.own.lost, arm.own.nmis_delivered, arm.own.counts.nmis), (None, None, 10));
    assert_eq!(arm.metric(&NMI_HANDLER).unwrap().count, 10);
    assert_eq!(arm.metric(&PMI_DELIVERY), None);
}

#[test]
fn saturated_sums_do_not_break_the_next_round() {
    let huge = || {
        let mut vcpu = vcpu(1, 1000);
        vcpu.account.counts.overflows = u64::MAX;
        vcpu.left.report.as_mut().unwrap().nmis = u64::MAX;
        vcpu.left.log.push(LogEntry { kind: LOG_NMI, tsc_exit: u64::MAX, ..LogEntry::default() });
        outcome(vec![vcpu])
    };
    let arm = fold(&[huge(), huge()]);
    assert_eq!(arm.own.counts.overflows, u64::MAX);
    assert_eq!(arm.rounds.counts.overflows, [u64::MAX; 2]);
}

#[test]
fn an_nmi_that_met_the_driver_off_is_no_sample_of_the_handler() {
    let arm = one(|vcpu| vcpu.left.log[3].rearmed = 0);
    assert_eq!(
        (arm.metric(&NMI_HANDLER).unwrap().count, arm.own.counts.nmis_driver_off, arm.own.counts.nmis),
        (9, 1, 10)
    );
}

#[test]
fn overflows_are_compared_between_host_and_guest() {
    assert_eq!(one(|_| {}).own.overflows_lost, Some(0));
    let more = |vmm: &mut Counts| (vmm.overflows, vmm.pmi_requests) = (vmm.overflows + 2, vmm.pmi_requests + 2);
    assert_eq!(one(|vcpu| more(&mut vcpu.account.counts)).own.overflows_lost, Some(2));
    let shared = one(|vcpu| {
        more(&mut vcpu.account.counts);
        vcpu.account.counts.status_shared = 1;
    });
    assert_eq!(
        (shared.own.counts.status_shared, shared.own.overflows_lost),
        (1, Some(1)),
        "two in one STATUS bit are one to a driver"
    );
    let without_int = one(|vcpu| vcpu.account.counts.overflows += 2);
    assert_eq!(without_int.own.overflows_lost, Some(0), "no PMI says so to the driver");
    let cut_short = one(|vcpu| {
        more(&mut vcpu.account.counts);
        vcpu.end = End::TimedOut;
    });
    assert_eq!(cut_short.own.overflows_lost, Some(0), "a guest that was stopped has not handled what was under way");
}

#[test]
fn differences_of_vcpus_and_rounds_do_not_cancel() {
    let run = || {
        let (mut more, mut less) = (vcpu(10, 1000), vcpu(10, 1000));
        (more.account.counts.nmis_injected, more.account.counts.overflows, more.account.counts.pmi_requests) =
            (11, 12, 12);
        (less.account.counts.nmis_injected, less.account.counts.overflows, less.account.counts.pmi_requests) =
            (9, 8, 8);
        outcome(vec![more, less])
    };
    let arm = fold(&[run(), run()]);
    assert_eq!((arm.own.lost, arm.own.counts.surplus, arm.own.overflows_lost), (Some(4), 2, Some(8)));
    assert_eq!((arm.rounds.lost[0], arm.own.counts.delivery_unmatched), (Some(2), 4));
}

#[test]
fn an_overflow_that_the_host_never_reported_shows() {
    let mut fold = ArmFold::new(&arm(ArmKind::Strategy), true).with_fixed_periods(true);
    let mut late = vcpu(10, 1000);
    let report = late.left.report.as_mut().unwrap();
    (report.counts[0], report.periods[0]) = (12 * 1000 + 7, 1000);
    assert_eq!(report.overflows[0], 10);
    fold.add(place(0), &outcome(vec![late, vcpu(10, 1000)]));
    assert_eq!(fold.result().own.counts.periods_missed, 2);
}

#[test]
fn a_guest_without_nmis_has_nothing_unmatched() {
    let arm = one(|vcpu| {
        vcpu.left.log.clear();
        vcpu.account.deliveries.clear();
        vcpu.account.counts = Counts::default();
        if let Some(report) = &mut vcpu.left.report {
            (report.nmis, report.overflows) = (0, [0; guest::abi::MAX_EVENTS]);
        }
    });
    assert_eq!((arm.own.counts.delivery_unmatched, arm.own.lost, arm.own.overflows_lost), (0, Some(0), Some(0)));
}
