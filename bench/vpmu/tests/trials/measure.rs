//! The binary measuring real guests: what it prints and leaves behind, also when it is interrupted or killed.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use trials::Case;

use crate::binary::{ended_by, json, run, text, vpmu};
use crate::prerequisites::{guests, kvm};

pub(crate) fn cases() -> Vec<Case> {
    let missing = guests().err();
    let cases: [(&str, fn()); 4] = [
        ("a_short_run_leaves_a_whole_document", a_short_run),
        ("an_interrupted_run_keeps_its_finished_rounds", an_interrupted_run),
        ("the_published_series_is_predicted_measured_and_compared", the_published_series),
        ("an_interrupted_series_shows_what_was_measured", an_interrupted_series),
    ];
    let expected = kvm().is_ok();
    cases.into_iter().map(|(name, run)| Case::new(name, missing.clone(), run).expected(expected)).collect()
}

fn documents(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("vpmu-results")) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

/// The document of this workload.
fn saved(dir: &Path, workload: &str) -> Value {
    let read = |path: PathBuf| std::fs::read(path).expect("the document");
    let all: Vec<Value> =
        documents(dir).into_iter().map(|path| serde_json::from_slice(&read(path)).expect("whole JSON")).collect();
    all.into_iter().find(|one| one["parameters"]["workload"] == workload).expect("a document of each workload")
}

fn arm<'a>(document: &'a Value, strategy: &str) -> &'a Value {
    let arms = document["arms"].as_array().expect("arms");
    arms.iter().find(|arm| arm["arm"] == strategy).expect("the arm")
}

fn a_short_run() {
    let dir = tempfile::tempdir().expect("a folder");
    // The warm-up's opens are discarded with it.
    let args = ["--rounds", "2", "--samples", "60", "--warmup", "0", "--backend", "cpu-clock"];
    let output = run(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(documents(dir.path()).len(), 2);
    assert!(text(&output.stderr).contains("vpmu: no interval of 2 rounds"), "the first workload's answer");
    let document = saved(dir.path(), "single/ftest");
    // Handlers of ten events may have no time for all samples before the limit of a turn.
    for (document, least) in [(&document, 120), (&saved(dir.path(), "sampling10/ftest"), 60)] {
        assert_eq!((&document["schema"], &document["status"]), (&"vpmu-result/4".into(), &"complete".into()));
        for strategy in ["recreate", "reuse", "reuse-lazy", "gate", "floor"] {
            let arm = arm(document, strategy);
            assert!(arm["lost"] == 0 && arm["left_out"].is_null(), "{strategy}");
            assert!(arm["metrics"]["nmi_handler_ns"]["count"].as_u64() >= Some(least), "{strategy}");
            assert!(
                arm["metrics"]["nmi_handler_ns"]["p50"].as_u64() > Some(0)
                    && arm["metrics"]["exit_path_ns"]["p50"].as_u64() > Some(0)
            );
        }
    }
    let opens = |strategy: &str| arm(&document, strategy)["host_ops"]["open"]["count"].as_u64().unwrap_or(0);
    assert_eq!((opens("reuse"), opens("floor")), (1, 0), "one open per guest");
    assert!(opens("recreate") >= 120);
}

/// Interrupts a run once its first document is there.
fn interrupted(dir: &Path, args: &[&str]) -> Output {
    let output = ended_by("-INT", &mut vpmu(dir, args), |_| !documents(dir).is_empty());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    output
}

fn an_interrupted_run() {
    let dir = tempfile::tempdir().expect("a folder");
    interrupted(dir.path(), &["--rounds", "500", "--samples", "20", "-q"]);
    let document = saved(dir.path(), "sampling10/ftest");
    assert_ne!(document["status"], "complete");
    assert!(arm(&document, "floor")["rounds"]["round"].as_array().is_some_and(|rounds| !rounds.is_empty()));
}

/// The command line that a user of the published processor types, cut short.
const SERIES: [&str; 8] = ["reproduce", "--run", "vpmu-reuse", "--rounds", "2", "--json", "-o", "vpmu-results"];

fn measured(found: &Value) -> usize {
    found["answer"].as_array().expect("rows").iter().filter(|row| row["measured"].is_object()).count()
}

fn the_published_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(dir.path(), &SERIES);
    let found = json(&output);
    let rows = found["answer"].as_array().expect("rows");
    // Two rounds have no intervals: nothing is judged.
    let judged = |row: &Value, against: &str| {
        ["slower", "faster", "no-change"].contains(&row[against]["verdict"].as_str().unwrap_or(""))
    };
    let answered = rows.iter().any(|row| judged(row, "against_published") || judged(row, "against_predicted"));
    assert_eq!(output.status.code(), Some(if answered { 0 } else { 3 }), "{}", text(&output.stderr));
    let row = |figure: &str| rows.iter().find(|row| row["figure"] == figure);
    let on = row("vpmu-reuse.watchdog-on.mean").expect("the figure");
    let judged = on["against_predicted"]["verdict"].is_string() && on["against_published"]["verdict"].is_string();
    assert!(judged && on["predicted"][0].as_f64() > Some(0.0) && on["published"] == 104_923.0, "{on}");
    assert!(row("vpmu-reuse.creates.fixed").expect("the figure")["measured"]["value"].as_f64() < Some(0.0));
    // On a busy host every comparison is left open: then that is missing, and nothing else.
    assert_eq!(found["here"]["whole"], answered);
    let conclusion = found["here"]["conclusion"].as_str().expect("a conclusion");
    assert!(conclusion.contains(" predicted numbers ") && conclusion.contains("Missing: a comparison, ") != answered);
    // Each regime has two workloads.
    assert!(documents(dir.path()).len().is_multiple_of(2) && measured(&found) >= 8);
}

fn an_interrupted_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let args = SERIES.map(|word| if word == "2" { "4" } else { word });
    let found = json(&interrupted(dir.path(), &args));
    assert_eq!(found["here"]["whole"], false);
    assert!((1..20).contains(&measured(&found)), "{}", found["here"]["notes"]);
}
