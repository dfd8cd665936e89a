use super::{by_fact, by_variant, compare};
use crate::run::Run;
use crate::statistics::{FleetSpec, Kind};
use crate::synthetic::{Change, Fleet, runs};
use results::verdict::Verdict;

fn small() -> Fleet {
    let change = Some(Change { day: 6, by: 0.05, roll_out: 3, kernel: true });
    Fleet { hosts: 30, days: 16, classes: 1, slow_share: 0.1, change, ..Fleet::default() }
}

#[test]
fn a_kernel_that_is_slower_is_a_regression_of_times_and_not_of_ratios() {
    let (old, new) = by_fact(&runs(&small()), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
    let found = compare(&old, &new, &FleetSpec::default()).unwrap();
    assert_eq!((found.exit, found.hosts), (1, 30), "{}", found.verdict);
    for row in &found.rows {
        let wanted = if row.kind == Kind::AllArms { Verdict::Slower } else { Verdict::NoChange };
        assert_eq!(row.verdict, wanted, "{row:?}");
        let interval = row.interval.unwrap();
        let truth = if row.kind == Kind::AllArms { 0.05 } else { 0.0 };
        assert!(interval.low - 0.003 < truth && truth < interval.high + 0.003, "{row:?}");
        assert!(!row.by_repetition);
    }
    assert!(found.unlike.iter().any(|line| line.contains("kernel: 6.1.0-31-amd64 / 6.1.0-32-amd64 on 30 hosts")));
    assert!(found.notes.iter().any(|note| note.contains("different times")));
}

/// Each run twice, as two variants one after the other; the second is slower in one arm.
fn variants(fleet: &Fleet, slower: f64) -> Vec<Run> {
    let mut all = Vec::new();
    for run in runs(fleet) {
        for (name, by) in [("a", 0.0), ("b", slower)] {
            let mut run = run.clone();
            run.labels.variant = Some(name.to_owned());
            for figure in run.figures.iter_mut().filter(|figure| &*figure.arm == "reuse") {
                figure.time.log += by;
                figure.ratio.as_mut().unwrap().log += by + 0.001 * (run.started_unix % 7) as f64 * by.signum();
            }
            all.push(run);
        }
    }
    all
}

#[test]
fn variants_of_a_campaign_are_paired_by_repetition() {
    let all = variants(&small(), 0.06);
    let (a, b) = by_variant(&all, "a", "b");
    let found = compare(&a, &b, &FleetSpec::default()).unwrap();
    let slower: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Slower).collect();
    assert!(slower.iter().all(|row| row.arm == "reuse" && row.by_repetition) && slower.len() == 3, "{slower:?}");
    assert_eq!(found.exit, 1);
    let same = compare(&a, &a, &FleetSpec::default()).unwrap();
    assert!(same.rows.iter().all(|row| row.verdict == Verdict::NoChange), "{}", same.verdict);
}

#[test]
fn a_host_on_one_side_is_named_and_left_out() {
    let all = variants(&small(), 0.0);
    let (a, mut b) = by_variant(&all, "a", "b");
    b.retain(|run| &*run.host != "node0003");
    let found = compare(&a, &b, &FleetSpec::default()).unwrap();
    assert_eq!((found.only_base, found.hosts), (vec!["node0003".to_owned()], 29));
    assert!(found.rows.iter().all(|row| row.hosts == 29));
}

#[test]
fn few_hosts_and_much_noise_are_inconclusive_with_what_would_do() {
    let (old, new) = by_fact(&runs(&Fleet { hosts: 4, ..small() }), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
    let found = compare(&old, &new, &FleetSpec::default()).unwrap();
    assert_eq!(found.exit, 3, "{}", found.verdict);
    assert!(found.rows.iter().all(|row| row.why == "4 hosts on both sides: a verdict takes 5"), "{:?}", found.rows[0]);
    let noisy = Fleet { hosts: 6, between_runs: 0.2, between_boots: 0.1, ..small() };
    let (old, new) = by_fact(&runs(&noisy), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
    let found = compare(&old, &new, &FleetSpec::default()).unwrap();
    let why: Vec<_> = found.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive).collect();
    assert!(!why.is_empty() && why.iter().all(|row| row.why.contains("hosts would do")), "{why:?}");
}

#[test]
fn nothing_in_common_is_refused() {
    let all = runs(&small());
    let (a, b): (Vec<Run>, Vec<Run>) = all.into_iter().partition(|run| &*run.host < "node0010");
    let error = compare(&a, &b, &FleetSpec::default()).unwrap_err();
    assert_eq!(error.exit.code(), 2);
    assert!(error.to_string().contains("no host has runs on both sides"), "{error}");
}

#[test]
fn every_format_has_the_verdicts() {
    let (old, new) = by_fact(&runs(&small()), "kernel", "6.1.0-31-amd64", "6.1.0-32-amd64");
    let found = compare(&old, &new, &FleetSpec::default()).unwrap();
    let text = found.text(80);
    assert!(text.contains("SLOWER") && text.contains("regression:"), "{text}");
    assert!(found.markdown().starts_with("### ❌ vpmu fleet: regression"), "{}", found.markdown());
    assert!(found.junit().contains("<failure message=\"SLOWER +"));
    assert!(serde_json::to_string(&found).unwrap().contains("\"verdict\":\"no-change\""));
}

#[test]
fn an_arm_that_is_whole_on_one_side_only_leaves_the_verdict_open() {
    let all = variants(&small(), 0.0);
    let (a, mut b) = by_variant(&all, "a", "b");
    for figure in b.iter_mut().flat_map(|run| &mut run.figures).filter(|figure| &*figure.arm == "reuse") {
        figure.doubt = Some("7 events were throttled".into());
        figure.time.log += 1.0;
    }
    let found = compare(&a, &b, &FleetSpec::default()).unwrap();
    assert_eq!(found.exit, 3, "{}", found.verdict);
    assert!(found.notes.iter().any(|note| note.contains("reuse nmi_handler_ns")), "{:?}", found.notes);
    assert!(found.rows.iter().all(|row| row.arm != "reuse" && row.change.abs() < 0.01), "{:?}", found.rows);
}
