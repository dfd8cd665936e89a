use serde_json::json;

use super::*;
use crate::document::Record;
use crate::fixture::{changed, record, value};

fn request() -> CompareSpec {
    CompareSpec {
        rules: Rules::default(),
        statistic: Statistic::P50,
        arms: Vec::new(),
        metrics: Vec::new(),
        seed: 1,
        resamples: 9999,
        allow_unlike_hosts: false,
    }
}

/// Rounds that differ by some per mille, an outlier among them.
fn ns(round: u64) -> u64 {
    if round % 7 == 3 { 120_000 } else { 70_000 + round * 37 % 11 * 20 }
}

fn of(base: &Record, new: &Record, request: &CompareSpec) -> Comparison {
    compare(("a", std::slice::from_ref(base)), ("b", std::slice::from_ref(new)), request).unwrap()
}

fn verdicts(comparison: &Comparison, arm: &str) -> Vec<Verdict> {
    comparison.rows().filter(|row| row.arm == arm).map(|row| row.verdict).collect()
}

#[test]
fn the_same_again_is_no_regression() {
    let found = of(&record(10, 5, |_, round| ns(round)), &record(10, 6, |_, round| ns(round + 3)), &request());
    assert_eq!((found.exit, found.groups[0].unit), (0, "round"), "{}", text(&found));
    assert!(found.rows().all(|row| row.verdict == Verdict::NoChange && row.exact));
    assert_eq!(found.rows().count(), 12);
    // The arm that could not run is named, not dropped.
    assert!(found.notes.iter().any(|note| note.starts_with("kvm: not compared: ")), "{:?}", found.notes);
}

#[test]
fn a_tenth_slower_in_one_arm_is_a_regression_there_alone_and_faster_the_other_way() {
    let base = record(20, 5, |_, round| ns(round));
    let slow = record(20, 6, |arm, round| if arm == "reuse" { ns(round) * 11 / 10 } else { ns(round + 3) });
    let found = of(&base, &slow, &request());
    assert_eq!(found.exit().code(), 1);
    assert_eq!(verdicts(&found, "reuse"), [Verdict::Regression; 3]);
    assert_eq!(verdicts(&found, "recreate"), [Verdict::NoChange; 3]);
    let row = found.rows().find(|row| row.arm == "reuse").unwrap();
    assert!((row.change.unwrap() - 0.1).abs() < 0.005 && row.cliffs_delta.unwrap() > 0.6);
    assert!(row.change_interval.unwrap().low > 0.05 && row.p_adjusted.unwrap() > row.p.unwrap());
    let back = of(&slow, &base, &request());
    assert_eq!((back.exit, verdicts(&back, "reuse")), (0, vec![Verdict::Improvement; 3]));
}

#[test]
fn significance_without_strength_is_no_regression_and_strength_without_significance_no_proof() {
    let base = record(10, 5, |_, round| 70_000 + round);
    let found = of(&base, &record(10, 6, |_, round| 72_000 + round), &request());
    assert!(found.rows().all(|row| row.verdict == Verdict::NoChange && row.p_adjusted.unwrap() < 0.01));
    let wild = |_: &str, round: u64| if round.is_multiple_of(2) { 70_000 } else { 140_000 };
    let found = of(&record(10, 5, wild), &record(10, 6, |arm, round| wild(arm, round) + 6_000), &request());
    assert_eq!(found.exit, 3);
    assert!(found.rows().all(|row| row.verdict == Verdict::TooNoisy && row.why.contains("up to")));
}

#[test]
fn few_nanoseconds_are_not_strong_whatever_their_share() {
    let found = of(&record(10, 5, |_, r| 100 + r % 3), &record(10, 6, |_, r| 120 + r % 3), &request());
    assert!(found.rows().all(|row| row.verdict == Verdict::NoChange));
    let found = of(&record(10, 5, |_, r| 100 + r % 3), &record(10, 6, |_, r| 160 + r % 3), &request());
    assert_eq!(found.exit, 1);
}

#[test]
fn too_few_rounds_cannot_be_judged() {
    let found = of(&record(4, 5, |_, _| 70_000), &record(4, 6, |_, _| 99_000), &request());
    assert_eq!(found.exit, 3);
    assert!(found.rows().all(|row| row.verdict == Verdict::TooFew && row.why.contains("more rounds")));
}

#[test]
fn unlike_hosts_are_not_judged_unless_allowed() {
    let base = record(10, 5, |_, round| ns(round));
    let mut other = value(10, 6, |_, round| ns(round) * 2);
    other["host"]["kernel"] = json!("7.0");
    let other = changed(other);
    let found = of(&base, &other, &request());
    assert_eq!((found.exit, found.unlike.len()), (3, 1));
    assert!(text(&found).contains("unlike: kernel: 7.0 / unknown"), "{}", text(&found));
    assert_eq!(of(&base, &other, &CompareSpec { allow_unlike_hosts: true, ..request() }).exit, 1);
}

#[test]
fn what_only_one_side_has_is_said_and_open() {
    let base = record(10, 5, |_, round| ns(round));
    let mut fewer = value(10, 6, |_, round| ns(round));
    fewer["arms"].as_array_mut().unwrap().remove(0);
    let found = of(&base, &changed(fewer), &request());
    assert_eq!((found.exit, verdicts(&found, "recreate")), (3, vec![Verdict::OneSided; 3]));
    assert!(found.notes.iter().any(|note| note.contains("only in BASE: arm recreate")));
    let only = CompareSpec { arms: vec!["reuse".to_owned()], ..request() };
    let found = of(&base, &record(10, 6, |_, round| ns(round)), &only);
    assert_eq!((found.exit, found.rows().count()), (0, 3));
}

#[test]
fn incomplete_rounds_are_left_out_and_counted() {
    let mut broken = value(10, 6, |_, round| if round == 2 { 1 } else { ns(round) });
    broken["arms"][0]["rounds"][2]["complete"] = json!(false);
    let found = of(&record(10, 5, |_, round| ns(round)), &changed(broken), &request());
    assert!(found.notes.iter().any(|note| note.contains("1 incomplete rounds of NEW")));
    assert_eq!(found.rows().next().unwrap().new.as_ref().unwrap().n, 9);
}

#[test]
fn different_experiments_names_and_slips_are_bad_input() {
    let base = record(10, 5, |_, round| ns(round));
    let mut other = value(10, 6, |_, round| ns(round));
    other["parameters"]["workload"] = json!("sampling10/ftest");
    let other = changed(other);
    let slices = |record| std::slice::from_ref(record);
    let error = compare(("a", slices(&base)), ("b", slices(&other)), &request()).unwrap_err();
    assert!(
        error.exit.code() == 2 && error.to_string().contains("workload is \"single/ftest\" and \"sampling10/ftest\"")
    );
    for wrong in [
        CompareSpec { arms: vec!["reues".to_owned()], ..request() },
        CompareSpec { metrics: vec!["nmi_handler".to_owned()], ..request() },
    ] {
        let error = compare(("a", slices(&base)), ("b", slices(&base)), &wrong).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("there are"), "{error}");
    }
    // Two experiments in a folder are compared each with its own kind; one without a counterpart is said.
    let both = [base.clone(), other.clone()];
    let found = compare(("a", &both), ("b", slices(&base)), &request()).unwrap();
    assert_eq!((found.exit, found.groups.len()), (3, 1));
    assert!(found.notes[0].starts_with("only in BASE: nmi-latency, sampling10/ftest"));
}

#[test]
fn with_many_documents_the_run_is_the_unit() {
    // Runs differ by more than their rounds do: by rounds this would be "significant", by runs it is not.
    let runs = |first: u64, shift: u64| -> Vec<Record> {
        (first..first + 8).map(|n| record(6, n, |_, round| 70_000 + n * 37 % 8 * 2_000 + round + shift)).collect()
    };
    let found = compare(("a", &runs(10, 0)), ("b", &runs(18, 500)), &request()).unwrap();
    assert_eq!(found.groups[0].unit, "run");
    assert!(found.rows().all(|row| row.base.as_ref().unwrap().n == 8 && row.p.unwrap() > 0.1));
}

#[test]
fn a_metric_that_is_only_reported_does_not_fail_the_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limits.toml");
    std::fs::write(&file, "[metric.nmi_handler_ns]\nreport-only = true\n").unwrap();
    let rules = Rules::read(&file, None, None).unwrap();
    let only = CompareSpec { rules, metrics: vec!["nmi_handler_ns".to_owned()], ..request() };
    let found = of(&record(10, 5, |_, _| 70_000), &record(10, 6, |_, _| 90_000), &only);
    assert!(found.rows().all(|row| row.verdict == Verdict::ReportOnly));
    assert_eq!(found.exit, 3, "nothing was judged");
}

#[test]
fn markdown_and_junit_escape_and_carry_the_verdict() {
    let mut base = value(10, 5, |_, round| ns(round));
    base["arms"][0]["strategy"] = json!("mine|<b>&`x");
    let base = changed(base);
    let mut slow = value(10, 6, |_, round| ns(round) * 2);
    slow["arms"][0]["strategy"] = json!("mine|<b>&`x");
    let found = of(&base, &changed(slow), &request());
    let markdown = markdown(&found);
    assert!(markdown.starts_with("### ❌ vpmu: regression: 12 slower"), "{markdown}");
    assert!(markdown.contains("| mine\\|&lt;b>&\\`x |") && markdown.contains("**SLOWER**"));
    let xml = junit(&found).unwrap();
    assert!(xml.contains("failures=\"12\"") && xml.contains("mine|&lt;b&gt;&amp;`x nmi_handler_ns"), "{xml}");
    assert!(!xml.contains("<b>"));
}

#[test]
fn ratios_to_the_floor_are_bounded_whatever_the_host() {
    let base = record(2, 5, |arm, _| if arm == "floor" { 1000 } else { 1100 });
    let mut other = value(2, 6, |arm, _| match arm {
        "floor" => 50_000,
        "reuse" => 180_000,
        _ => 60_000,
    });
    other["host"]["kernel"] = json!("7.0");
    let other = changed(other);
    let slices = |record| std::slice::from_ref(record);
    let of = |factor| ratios(("a", slices(&base)), ("b", slices(&other)), factor, &request()).unwrap();
    assert_eq!(of(4.0).exit().code(), 0);
    let found = of(3.0);
    assert_eq!(found.exit().code(), 1);
    assert_eq!(
        found.rows.iter().filter(|row| !row.within).map(|row| row.arm.as_str()).collect::<Vec<_>>(),
        ["reuse"; 3]
    );
    assert!(ratios_text(&found).contains("TOO HIGH") && ratios_text(&found).contains("3 of 9"));
    let mut floorless = value(2, 7, |_, _| 1000);
    floorless["arms"].as_array_mut().unwrap().remove(3);
    let floorless = changed(floorless);
    let found = ratios(("a", slices(&base)), ("b", slices(&floorless)), 3.0, &request()).unwrap();
    assert_eq!(found.exit().code(), 3);
}
