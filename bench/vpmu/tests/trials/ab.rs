//! `vpmu ab` interrupted, and of real guests; what simulated sides print is in `golden/ab.txt`.

use std::path::Path;

use trials::Case;

use crate::binary::{VPMU, ended_by, json, run, text, vpmu};
use crate::prerequisites::guests;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("ctrl_c_ends_it_with_whole_pairs_and_no_child", None, ctrl_c),
        Case::new("real_guests_of_two_builds_take_turns", guests().err(), real_guests).expected(false),
    ]
}

fn ctrl_c() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = ["ab", "-q", VPMU, VPMU, "--json", "--", "--backend", "sim:development-host", "--samples", "5"];
    let mut left = String::new();
    let output = ended_by("-INT", &mut vpmu(dir.path(), &line), |id| {
        std::thread::sleep(std::time::Duration::from_secs(2));
        left = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        true
    });
    assert_eq!(output.status.code(), Some(3));
    for child in left.split_whitespace() {
        assert!(!Path::new(&format!("/proc/{child}")).exists(), "{child} is left");
    }
    // Killed before the first pair there is no document.
    if !output.stdout.is_empty() {
        let document = json(&output);
        assert_eq!(document["status"], "interrupted");
        let pairs = |at: usize| document["arms"][at]["rounds"]["round"].as_array().map_or(0, Vec::len);
        assert!(pairs(0) > 0 && pairs(1) == pairs(0));
    }
}

fn real_guests() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = ["ab", "-q", VPMU, VPMU, "--pairs", "6", "--json", "--duration", "2m", "--"];
    let output = run(dir.path(), &[&line[..], &["--strategy", "reuse", "--samples", "10"]].concat());
    let error = text(&output.stderr);
    // No verdict on six pairs of this noisy host is asserted.
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{error}");
    let document = json(&output);
    assert_eq!(
        (&document["status"], &document["parameters"]["backend"]),
        (&"complete".into(), &"cpu-clock".into()),
        "{error}"
    );
    let rounds = &document["arms"][1]["rounds"]["round"];
    assert_eq!(rounds.as_array().map(Vec::len), Some(6), "{error}");
}
