//! `vpmu workload` and `vpmu triage` from the outside: what they print and how they end; never what was measured.

#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use triage::workloads::ALL;
use trials::Case;

use crate::binary::{ended_by, json, run, text, vpmu};
use crate::prerequisites::events;

pub(crate) fn cases() -> Vec<Case> {
    let events = events().err();
    let listed = Path::new(&format!("/proc/self/task/{}/children", std::process::id())).exists();
    let children = (!listed).then(|| "this kernel does not list children (CONFIG_PROC_CHILDREN)".to_owned());
    let children = events.clone().or(children);
    let case = |name: &str, missing: &Option<String>, run: fn()| Case::new(name, missing.clone(), run).expected(false);
    vec![
        case("each_workload_runs_in_both_variants", &None, each_workload_runs_in_both_variants_and_says_what_it_did),
        case("a_gated_workload_waits_for_its_starter", &None, a_gated_workload_without_its_starter_does_not_begin),
        case("a_short_triage_leaves_a_whole_account", &events, a_short_triage_leaves_a_whole_account),
        case("no_workload_outlives_its_triage", &children, no_workload_outlives_its_triage),
    ]
}

fn each_workload_runs_in_both_variants_and_says_what_it_did() {
    for name in ALL.map(|workload| workload.name) {
        for variant in [&[][..], &["--apart"]] {
            let line = ["workload", name, "2", "20ms"];
            let output = run(Path::new("."), &[&line[..], variant].concat());
            assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
            let done = json(&output);
            assert!(done["operations"].as_u64().unwrap() > 0, "{done}");
            assert_eq!((done["workload"].as_str(), done["threads"].as_u64()), (Some(name), Some(2)));
            assert_eq!(done["apart"], Value::Bool(!variant.is_empty()));
        }
    }
}

/// A workload whose starter went away does not begin.
fn a_gated_workload_without_its_starter_does_not_begin() {
    let output = run(Path::new("."), &["workload", "rand", "2", "600s", "--gated"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout), "ready\n");
}

/// Two rounds: the account is whole, whatever is in it, and the end is inconclusive as two rounds have no interval.
fn a_short_triage_leaves_a_whole_account() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["triage", "rand", "--threads", "2", "--rounds", "2", "-q", "--json", "-o", "out"];
    let output = run(dir.path(), &line);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let document = json(&output);
    let saved: Vec<_> = std::fs::read_dir(dir.path().join("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(std::fs::read(&saved[0]).unwrap(), output.stdout);
    assert_eq!((document["experiment"].as_str(), document["status"].as_str()), (Some("triage"), Some("complete")));
    let arms = document["arms"].as_array().unwrap();
    let times = |arm: &Value| arm["metrics"]["thousand_operations_ns"]["count"].as_u64();
    assert_eq!((times(&arms[0]), times(&arms[1]), times(&arms[2])), (Some(2), Some(2), None));
    let notes = arms[0]["notes"].to_string();
    // It is sampled, or says why not.
    assert_eq!(arms.len() == 6, !notes.contains("there is no sample"), "{notes}");
    assert_eq!(document["parameters"]["sampled_by"].is_string(), notes.contains("sampled by "), "{notes}");
    // Other commands take it.
    for line in ["compare out out", "report out", "history out"] {
        let output = run(dir.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}: {}", text(&output.stderr));
    }
}

/// The processes whose parent is `pid`.
fn children(pid: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody waits for in this container is as good as gone.
    stat.is_empty() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

/// Ctrl-C, and a kill that leaves no time to clean up: no workload outlives the triage.
fn no_workload_outlives_its_triage() {
    for signal in ["-INT", "-KILL"] {
        // A child that works: it has its threads.
        let works = |pid: &i32| std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() >= 3);
        let mut child = None;
        let line = ["triage", "rand", "--threads", "2", "-q", "--no-save"];
        let output = ended_by(signal, &mut vpmu(Path::new("."), &line), |triage| {
            child = children(triage).into_iter().find(works);
            child.is_some()
        });
        if signal == "-INT" {
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), ""), "no round was whole");
        }
        let until = Instant::now() + Duration::from_secs(120);
        while !child.is_none_or(gone) {
            assert!(Instant::now() < until, "process {child:?} outlives its triage");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
