use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use vmm::outcome::End;

use super::*;
use crate::rounds::mock::{self, MockRunner, experiment, outcome, plan, vcpu};
use results::error::Exit;
use results::metric::NMI_HANDLER;

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

#[test]
fn every_available_arm_warms_up_and_then_runs_once_a_round_in_the_seeds_order() {
    let plan_of = |seed| plan(&["--rounds", "6", "--samples", "40", "--seed", seed]).unwrap();
    let order = |seed| {
        let mut runner = MockRunner::good();
        experiment(&plan_of(seed), &mut runner, &never(), &mut |_| Ok(())).unwrap();
        runner.runs
    };
    let runs = order("1");
    assert_eq!(runs, order("1"));
    assert_ne!(runs, order("2"));
    assert_eq!(runs.len(), 4 * 7);
    assert!(runs[..4].iter().all(|(_, turn)| turn.warmup && turn.samples == 10));
    let mut rounds = BTreeMap::<u64, Vec<(u64, String)>>::new();
    for (arm, round) in &runs[4..] {
        assert!(!round.warmup && round.samples == 40);
        rounds.entry(round.index).or_default().push((round.position, arm.clone()));
    }
    assert_eq!(rounds.len(), 6);
    for arms in rounds.values() {
        assert!(arms.iter().zip(0..).all(|((position, _), n)| *position == n));
        let mut names: Vec<&str> = arms.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["floor", "recreate", "reuse", "reuse-lazy"]);
    }
}

#[test]
fn the_warm_up_is_not_counted_and_the_absent_arm_says_why() {
    let document = mock::finished(&["--rounds", "3"]).document;
    assert_eq!(document.status, Status::Complete);
    let [recreate, _, _, floor, kvm] = &document.arms[..] else { panic!() };
    assert_eq!(recreate.own.nmis, 3 * 40);
    assert_eq!(recreate.metric(&NMI_HANDLER).unwrap().p50, 2000);
    assert_eq!(recreate.own.lost, Some(0));
    assert!(recreate.stand_in && !floor.stand_in);
    assert_eq!(kvm.not_available.as_deref(), Some("the mock has no vPMU of its own"));
    assert_eq!(kvm.rounds.len(), 0);
    assert_eq!(kvm.own.lost, None);
}

#[test]
fn the_document_is_saved_after_each_round_and_says_so_until_the_last() {
    let plan = plan(&["--rounds", "3", "--samples", "40"]).unwrap();
    let mut seen = Vec::new();
    let mut save = |document: &Document| {
        seen.push((document.status, document.arms[0].rounds.len()));
        Ok(())
    };
    experiment(&plan, &mut MockRunner::good(), &never(), &mut save).unwrap();
    assert_eq!(seen, [(Status::Running, 1), (Status::Running, 2), (Status::Complete, 3)]);
}

#[test]
fn an_interrupt_keeps_finished_rounds_and_drops_the_cut_one() {
    let plan = plan(&["--rounds", "5", "--samples", "40"]).unwrap();
    let stop = never();
    let mut count = 0;
    let mut runner = MockRunner::new(|_, round| {
        count += 1;
        let mut vcpu = vcpu(round.samples, 1000);
        // Four warm-up runs, one round, and two of the next.
        if count == 4 + 4 + 2 {
            stop.store(true, Ordering::Relaxed);
            vcpu.end = End::Stopped;
        }
        Ok(outcome(vec![vcpu]))
    });
    let finished = experiment(&plan, &mut runner, &stop, &mut |_| Ok(())).unwrap();
    drop(runner);
    assert_eq!(count, 10);
    assert_eq!(finished.document.status, Status::Interrupted);
    assert!(finished.error.is_none());
    let rounds: usize = finished.document.arms.iter().map(|arm| arm.rounds.len()).sum();
    assert_eq!(rounds, 5);
    assert!(finished.document.arms.iter().all(|arm| arm.incomplete.is_empty()));
}

#[test]
fn an_incomplete_round_is_kept_and_marked_and_an_arm_that_hangs_is_given_up() {
    let plan = plan(&["--rounds", "6", "--samples", "40"]).unwrap();
    let mut runner = MockRunner::new(|arm, round| {
        let mut vcpu = vcpu(round.samples, 1000);
        if arm.strategy == "reuse" && !round.warmup && round.index >= 1 {
            vcpu.end = End::TimedOut;
        }
        Ok(outcome(vec![vcpu]))
    });
    let finished = experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap();
    let document = finished.document;
    assert_eq!(document.status, Status::Incomplete);
    let reuse = &document.arms[1];
    assert_eq!(reuse.rounds.len(), 3);
    assert!(reuse.rounds[0].complete && !reuse.rounds[1].complete);
    assert!(reuse.incomplete[0].contains("round 1, vCPU 0: the time limit passed"));
    assert!(reuse.incomplete.last().unwrap().contains("given up"));
    assert_eq!(document.arms[0].rounds.len(), 6);
    assert!(document.warnings.iter().any(|w| w.code == "incomplete"));
}

#[test]
fn an_error_keeps_what_was_measured_before_and_one_at_the_start_leaves_nothing() {
    let plan = plan(&["--rounds", "4", "--samples", "40"]).unwrap();
    let fail_at = |n: usize| {
        let mut count = 0;
        let mut runner = MockRunner::new(move |_, round| {
            count += 1;
            if count == n {
                return Err(Error::host("no more files", "EMFILE", "raise ulimit -n"));
            }
            Ok(outcome(vec![vcpu(round.samples, 1000)]))
        });
        let mut saves = 0;
        let mut save = |_: &Document| {
            saves += 1;
            Ok(())
        };
        let finished = experiment(&plan, &mut runner, &never(), &mut save);
        (finished, saves)
    };
    let (finished, saves) = fail_at(11);
    let finished = finished.unwrap();
    assert_eq!(saves, 2);
    assert_eq!(finished.error.unwrap().exit, Exit::Host);
    assert_eq!(finished.document.status, Status::Incomplete);
    assert!(finished.document.arms[0].incomplete[0].contains("EMFILE"));
    let (finished, saves) = fail_at(2);
    assert_eq!((finished.unwrap_err().exit, saves), (Exit::Host, 0));
}

#[test]
fn a_host_without_any_arm_is_exit_4() {
    let plan = plan(&[]).unwrap();
    let mut runner = MockRunner::good();
    runner.absent = vec![ArmKind::Strategy, ArmKind::Floor, ArmKind::Kvm];
    let error = experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.exit, Exit::Host);
    assert!(runner.runs.is_empty());
}

#[test]
fn a_failing_save_ends_the_experiment() {
    let plan = plan(&["--rounds", "9", "--samples", "40"]).unwrap();
    let mut runner = MockRunner::good();
    let mut save = |_: &Document| Err(Error::usage("disk full", "", ""));
    let error = experiment(&plan, &mut runner, &never(), &mut save).unwrap_err();
    assert_eq!(error.what, "disk full");
    assert_eq!(runner.runs.len(), 8);
}

#[test]
fn rounds_that_the_time_limit_cut_short_are_a_warning() {
    let plan = plan(&["--rounds", "2", "--samples", "40"]).unwrap();
    let mut runner = MockRunner::new(|_, _| Ok(outcome(vec![vcpu(7, 1000)])));
    let finished = experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap();
    let warnings = finished.document.warnings.iter().filter(|w| w.code == "fewer-samples").count();
    assert_eq!(warnings, 4);
}

#[test]
fn a_duration_ends_the_experiment_after_the_round_in_which_it_passes() {
    let mut plan = plan(&["--rounds", "9", "--samples", "40"]).unwrap();
    // A mock's guest takes 5 ms: 5 rounds of 4 arms, the first of them the warm-up, are 100 ms.
    plan.simulated = true;
    for (ms, rounds) in [(1, 1), (81, 4), (79, 3), (10_000, 9)] {
        plan.duration = Some(Duration::from_millis(ms));
        let document = experiment(&plan, &mut MockRunner::good(), &never(), &mut |_| Ok(())).unwrap().document;
        assert_eq!(document.status, Status::Complete);
        assert!(document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm).all(|arm| arm.rounds.len() == rounds));
    }
}

#[test]
fn as_many_warm_up_rounds_run_as_the_plan_has() {
    for (warmup, runs) in [(0, 4), (3, 16)] {
        let plan = Plan { warmup, ..plan(&["--rounds", "1", "--samples", "40"]).unwrap() };
        let mut runner = MockRunner::good();
        let document = experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap().document;
        assert_eq!((runner.runs.len(), document.arms[0].rounds.len()), (runs, 1));
        assert_eq!(document.arms[0].own.nmis, 40);
    }
}
