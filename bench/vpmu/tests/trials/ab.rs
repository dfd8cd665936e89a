//! `vpmu ab` from the outside: simulated sides anywhere, real guests where there is KVM, and builds that are none.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use trials::Case;

use crate::binary::{VPMU, json, run, text, vpmu};
use crate::prerequisites::guests;

/// Short simulated rounds of both sides, in every case but that of KVM.
const SIM: [&str; 5] = ["--", "--backend", "sim:development-host", "--samples", "5"];

pub(crate) fn cases() -> Vec<Case> {
    let always: [(&str, fn()); 6] = [
        ("the_same_build_twice_is_no_change", the_same_build_twice),
        ("an_arm_that_is_slower_by_its_options_is_found", slower_by_options),
        ("the_document_has_every_pair_and_is_read_by_every_command", the_document),
        ("a_side_that_dies_leaves_its_pairs_and_exit_3", a_side_that_dies),
        ("ctrl_c_ends_it_with_whole_pairs_and_no_child", ctrl_c),
        ("turns_that_are_not_whole_are_left_out_and_hide_no_slow_down", not_whole),
    ];
    let cases = always.into_iter().map(|(name, run)| Case::new(name, None, run));
    let of_kvm = Case::new("real_guests_of_two_builds_take_turns", guests().err(), real_guests);
    cases.chain([of_kvm.expected(false)]).collect()
}

fn ab(dir: &Path, args: &[&str]) -> Output {
    vpmu(dir, &["ab", "--quiet"]).args(args).output().expect("the binary starts")
}

fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

fn the_same_build_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = ab(dir.path(), &[&[VPMU, VPMU, "--pairs", "6"], &SIM[..]].concat());
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    assert!(table.contains("no change"), "{table}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0, "nothing is written unasked");
}

fn slower_by_options() {
    let dir = tempfile::tempdir().expect("a folder");
    let sides = ["--base-args", "--strategy gate", "--new-args", "--strategy recreate", "--pairs", "8"];
    let output = ab(dir.path(), &[&sides[..], &SIM].concat());
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}{}", text(&output.stderr));
    assert!(table.contains("gate → recreate") && table.contains("regression: 2 slower"), "{table}");
    let floor = table.lines().find(|line| line.starts_with("floor")).expect("a row of the floor");
    assert!(floor.contains("no change"), "{table}");
}

fn the_document() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = [&[VPMU, VPMU, "--pairs", "5", "-o", "ab.json", "--json"], &SIM[..], &["--strategy", "reuse"]].concat();
    let output = ab(dir.path(), &line);
    let document = json(&output);
    assert_eq!((&document["experiment"], &document["status"]), (&"ab".into(), &"complete".into()));
    let arms = document["arms"].as_array().expect("arms");
    assert_eq!(arms.iter().map(|arm| arm["strategy"].as_str().expect("a name")).collect::<Vec<_>>(), ["BASE", "NEW"]);
    for arm in arms {
        for name in ["reuse", "floor"] {
            let values = arm["metrics"][format!("{name}/nmi_handler_ns")]["count"].as_u64();
            assert_eq!(values, Some(5), "{name}");
        }
    }
    let rows = document["answer"].as_array().expect("an answer");
    assert!(rows.len() > 3 && rows.iter().all(|row| row["verdict"] == "no-change"), "{rows:?}");
    let saved = std::fs::read(dir.path().join("ab.json")).expect("the file");
    assert_eq!(saved, output.stdout);
    for (words, exit) in [
        (&["report", "ab.json", "-o", "ab.html"][..], 0),
        (&["export", "ab.json", "--format", "csv"], 0),
        (&["history", "ab.json"], 3),
        (&["compare", "ab.json", "ab.json"], 3),
    ] {
        let found = run(dir.path(), words);
        assert_eq!(found.status.code(), Some(exit), "{words:?}: {}", text(&found.stderr));
    }
}

/// NEW is tried, takes three turns, then it dies.
fn a_side_that_dies() {
    let dir = tempfile::tempdir().expect("a folder");
    let body = format!("echo >> turns; [ $(wc -l < turns) -gt 4 ] && kill -9 $$; exec {VPMU} \"$@\"");
    script(dir.path(), "dying", &body);
    let report = dir.path().join("x.xml");
    std::fs::write(&report, "the last good run").expect("a file");
    // A bare name is a file of this folder.
    let line = [VPMU, "dying", "--pairs", "9", "--junit", "x.xml"];
    let output = ab(dir.path(), &[&line, &SIM[..], &["--strategy", "reuse"]].concat());
    let written = std::fs::read_to_string(&report).expect("the report");
    assert!(written.contains("<testsuite name=\"verdict\""), "{written}");
    let (table, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{table}{error}");
    assert!(table.contains("incomplete: a side failed") && table.contains("3 pairs of turns"), "{table}");
    assert!(error.contains("NEW (dying): it ended with signal: 9"), "{error}");
}

/// Every second turn of NEW says that an arm is not whole: the other arm's slow-down is found all the same.
fn not_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let body = format!(
        "echo >> turns; [ $(($(wc -l < turns) % 2)) = 0 ] && exec {VPMU} \"$@\"\n{VPMU} \"$@\" | \
         sed 's/\"incomplete\":\\[\\]/\"incomplete\":[\"a guest failed\"]/2'"
    );
    let doubtful = script(dir.path(), "doubtful", &body);
    let doubtful = doubtful.to_str().expect("UTF-8");
    let sides = ["--base-args", "--strategy gate,reuse", "--new-args", "--strategy recreate,reuse", "--pairs", "8"];
    let output = ab(dir.path(), &[&[VPMU, doubtful], &sides[..], &SIM].concat());
    let (table, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{error}");
    let doubt = "doubt: 4 of 8 pairs are left out: NEW: reuse: a guest failed";
    assert!(table.contains("SLOWER") && table.contains(doubt), "{table}{error}");
    let same = ["--strategy", "gate,reuse"];
    let output = ab(dir.path(), &[&[VPMU, doubtful, "--pairs", "8"], &SIM[..], &same].concat());
    assert_eq!(output.status.code(), Some(3), "no change, and not whole: {}", text(&output.stdout));
    // Nor is it a pass if an arm has nothing beside it.
    let sides = ["--base-args", "--strategy gate,reuse", "--new-args", "--strategy reuse --vcpus 2", "--pairs", "6"];
    let output = ab(dir.path(), &[&[VPMU, VPMU], &sides[..], &SIM].concat());
    let table = text(&output.stdout);
    assert!(table.contains("doubt: gate runs on BASE alone"), "{table}");
    assert_ne!(output.status.code(), Some(0), "{table}");
}

fn ctrl_c() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(VPMU);
    command.args(["ab", "-q", VPMU, VPMU, "--json"]).args(SIM).current_dir(dir.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let id = child.id();
    let children = || {
        let path = format!("/proc/{id}/task/{id}/children");
        std::fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(child.try_wait().expect("its state"), None, "it ended before its minute");
    let left = children();
    assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().expect("kill").success());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(3));
    for child in left {
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
    let line = ["--pairs", "6", "--json", "--duration", "2m", "--", "--strategy", "reuse", "--samples", "10"];
    let output = ab(dir.path(), &[&[VPMU, VPMU], &line[..]].concat());
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
