use serde_json::json;

use super::*;
use crate::compare::Statistic;
use crate::document::Record;
use crate::fixture::{changed, value};
use crate::stats::change_points::Rules;

fn request() -> HistorySpec {
    HistorySpec {
        rules: Rules::default(),
        statistic: Statistic::P50,
        arms: Vec::new(),
        metrics: Vec::new(),
        times: false,
    }
}

/// 20 runs, a revision each; from the 13th on `reuse` is a fifth slower.
fn runs() -> Vec<Record> {
    (0..20_u64)
        .map(|n| {
            let slow = n >= 12;
            let mut value = value(3, 1_000_000 + n, |arm, round| {
                let ns = 70_000 + n * 37 % 8 * 100 + round;
                if slow && arm == "reuse" { ns * 6 / 5 } else { ns }
            });
            value["tool"]["git_revision"] = json!(format!("{n:040x}"));
            if slow {
                value["host"]["kernel"] = json!("7.0");
            }
            changed(value)
        })
        .collect()
}

#[test]
fn the_first_changed_revision_is_named_with_what_else_changed() {
    let found = history("dir", &runs(), &request()).unwrap();
    // Three strategies against the floor, by three metrics.
    assert_eq!((found.exit().code(), found.series.len()), (0, 9));
    assert!(found.series.iter().all(|series| series.against.as_deref() == Some("floor")));
    let times = history("dir", &runs(), &HistorySpec { times: true, ..request() }).unwrap();
    assert_eq!(times.series.len(), 12);
    for series in &found.series {
        let indices: Vec<usize> = series.changes.iter().map(|change| change.point.index).collect();
        assert_eq!(indices, if series.arm == "reuse" { vec![12] } else { vec![] }, "{} {}", series.arm, series.metric);
    }
    let change = found.series.iter().find_map(|series| series.changes.first()).unwrap();
    assert_eq!(change.last_good_revision, format!("{:040x}", 11));
    assert_eq!(change.first_changed_revision, format!("{:040x}", 12));
    assert!((change.change.unwrap() - 0.2).abs() < 0.01);
    assert_eq!(change.also_changed, ["kernel: unknown / 7.0"]);
    let text = report(&found).text(60);
    assert!(
        text.contains("+20.0 %") && text.contains("(run 13)") && text.contains("changed at the same time"),
        "{text}"
    );
}

#[test]
fn few_runs_are_inconclusive_and_slips_are_bad_input() {
    let runs = runs();
    let found = history("dir", &runs[..5], &request()).unwrap();
    assert_eq!(found.exit().code(), 3);
    assert!(report(&found).text(60).contains("too few runs"));
    let wrong = HistorySpec { arms: vec!["reues".to_owned()], ..request() };
    assert_eq!(history("dir", &runs, &wrong).unwrap_err().exit.code(), 2);
}
