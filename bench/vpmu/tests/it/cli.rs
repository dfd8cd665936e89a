//! The binary from the outside: exit codes, one-line errors, nothing half-written. None of this needs KVM.

use std::path::Path;
use std::process::{Command, Output};

fn vpmu(dir: &Path, args: &[&str]) -> Output {
    crate::binary::vpmu(dir, args).output().expect("the binary starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Exit 2, and one line that starts as promised and contains `needle`.
fn is_usage_error(output: &Output, needle: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("vpmu: error: "), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(text.contains(needle), "{text:?} lacks {needle:?}");
    assert!(output.stdout.is_empty());
}

/// No file may grow, as on a full disk: writes fail with EFBIG, since SIGXFSZ is ignored.
#[test]
fn a_full_disk_still_prints_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let full = |args: &[&str]| {
        Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_vpmu")])
            .args(["sim", "--rounds", "2", "--samples", "20", "-q", "-o", "out"])
            .args(args)
            .current_dir(dir.path())
            .output()
            .expect("a shell")
    };
    let output = full(&[]);
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(table.contains("recreate") && table.contains("2 of 2 rounds") && !table.contains("saved:"), "{table}");
    assert_eq!(errors.matches("cannot write results to out").count(), 2, "a warning, and the error: {errors}");
    let json = full(&["--json"]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).expect("the whole document");
    assert_eq!(document["status"], "complete");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "an empty folder goes away again");
}

#[test]
fn a_baseline_is_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "--rounds", "1", "--samples", "20", "-q", "--no-save", "--save-baseline", "v1"];
    assert_eq!(vpmu(dir.path(), &line).status.code(), Some(0));
    let file = dir.path().join("vpmu-results/baselines/v1/nmi-latency.json");
    let before = std::fs::read(&file).unwrap();
    is_usage_error(&vpmu(dir.path(), &line), "--force");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(vpmu(dir.path(), &[&line[..], &["--seed", "2", "--force"]].concat()).status.code(), Some(0));
    assert_ne!(std::fs::read(&file).unwrap(), before);
}

/// A reader that stops reading, then Ctrl-C: the document is larger than a pipe.
#[test]
fn ctrl_c_ends_a_run_whose_stdout_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_vpmu"))
        .args(["sim", "--rounds", "1000", "--samples", "5", "-q", "--no-save", "--json"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // In poll(2), once the pipe is full.
    let wchan = format!("/proc/{}/syscall", child.id());
    let blocked =
        || std::fs::read_to_string(&wchan).is_ok_and(|call| call.starts_with("7 ") || call.starts_with("271 "));
    if let Err(error) = std::fs::read_to_string(&wchan) {
        child.kill().unwrap();
        child.wait().unwrap();
        eprintln!("skipped: {wchan}: {error}");
        return;
    }
    let mut seen = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while seen < 20 {
        assert!(std::time::Instant::now() < until, "its stdout is not blocked after 120 s");
        assert_eq!(child.try_wait().unwrap(), None, "it ended without a reader");
        seen = if blocked() { seen + 1 } else { 0 };
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut errors = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut errors).unwrap();
    assert!(errors.contains("interrupted: nothing reads stdout"), "{errors}");
}

#[test]
fn an_arm_that_livelocks_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "clx-ap-watchdog-off", "--workload", "sampling10", "--rounds", "1", "-q", "--no-save"];
    let output = vpmu(dir.path(), &line);
    assert_eq!(output.status.code(), Some(3), "an arm without a figure answers nothing");
    assert!(stderr(&output).contains("recreate: livelock: "), "{}", stderr(&output));
}

#[test]
fn no_overflow_at_all_has_a_line_with_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "--period", "2000000000", "--time-limit", "100ms", "--rounds", "1", "-q", "--no-save"];
    let errors = stderr(&vpmu(dir.path(), &line));
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains("no overflow")).collect();
    assert!(matches!(lines[..], [line] if line.contains("--period 2000000000")), "{errors}");
}

#[test]
fn a_simulated_experiment_needs_no_host_and_repeats_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let figures = |seed: &str| {
        let line = ["sim", "clx-ap-watchdog-on", "--workload", "sampling10", "--samples", "200", "--rounds", "2"];
        let output = vpmu(dir.path(), &[&line[..], &["--seed", seed, "--no-save", "--quiet", "--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["host"]["class"], "simulated (model clx-ap-watchdog-on)");
        assert_eq!(json["parameters"]["backend"], "sim:clx-ap-watchdog-on");
        assert_eq!(json["arms"][0]["backend"], "sim:clx-ap-watchdog-on");
        assert!(json["started_unix"] == 0 && json["first_guest_instruction_ns"].is_null(), "no time of this machine");
        output.stdout
    };
    assert_eq!(figures("7"), figures("7"));
    let of = |seed| serde_json::from_slice::<serde_json::Value>(&figures(seed)).unwrap()["arms"].to_string();
    assert_ne!(of("7"), of("8"));
}

#[test]
fn a_mediated_pmu_is_simulated_beside_strategies() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "spr-2026", "--strategy", "reuse,mediated,mediated-filter", "--workload", "sampling10"];
    let rest = ["--samples", "50", "--rounds", "2", "--no-save", "--quiet", "--json"];
    let run = || vpmu(dir.path(), &[&line[..], &rest].concat());
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(output.stdout, run().stdout, "one seed, the same bytes");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let arm = |name: &str| json["arms"].as_array().unwrap().iter().find(|arm| arm["strategy"] == name).unwrap();
    let exits = |name: &str| arm(name)["msr_exits"].as_object().unwrap().len();
    assert_eq!((arm("mediated")["kind"].as_str(), exits("mediated")), (Some("strategy"), 0), "no access exits");
    assert!(exits("mediated-filter") > 0 && exits("reuse") > exits("mediated-filter"));
    for name in ["mediated", "mediated-filter"] {
        assert_eq!((&arm(name)["lost"], &arm(name)["backend"]), (&0.into(), &"sim:spr-2026".into()));
        assert_eq!((&arm(name)["host_ops"]["open"]["count"], &arm(name)["events_held"]["max"]), (&0.into(), &0.into()));
    }
}

#[test]
fn documents_of_a_simulation_are_the_same_bytes_in_every_run() {
    let dir = tempfile::tempdir().unwrap();
    let document = |name: &str| {
        let at = dir.path().join(name);
        std::fs::create_dir(&at).unwrap();
        let line = ["sim", "--workload", "sampling10/ftest", "--samples", "60", "--rounds", "2", "--vcpus", "2"];
        let output = vpmu(&at, &[&line[..], &["-o", "out", "--quiet"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let mut found = std::fs::read_dir(at.join("out")).unwrap().map(|entry| entry.unwrap().path());
        let document = std::fs::read(found.next().unwrap()).unwrap();
        assert_eq!(found.next(), None, "the document is all that a run leaves");
        document
    };
    assert!(document("a") == document("b"), "a figure of this machine is in a simulated result");
}

#[test]
fn equal_simulations_in_a_folder_are_one_result() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "--samples", "20", "--rounds", "2", "--strategy", "reuse", "-o", "out", "--quiet"];
    for _ in 0..2 {
        assert_eq!(vpmu(dir.path(), &line).status.code(), Some(0));
    }
    let shown = vpmu(dir.path(), &["history", "out"]);
    let text = String::from_utf8(shown.stdout.clone()).unwrap() + &stderr(&shown);
    assert!(text.contains("1 run,"), "{text}");
}

#[test]
fn a_duration_ends_a_run_with_whole_rounds_and_a_complete_result() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["sim", "--rounds", "999", "--warmup", "0", "--samples", "20", "--duration", "2s", "--no-save", "-q"];
    let shown = vpmu(dir.path(), &line);
    let table = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(0), "{table}");
    assert!(table.contains("of 999 rounds") && table.contains("ended by --duration of 2.00 s"), "{table}");
    let output = vpmu(dir.path(), &[&line[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["status"], &document["parameters"]["warmup_rounds"]), (&"complete".into(), &0.into()));
    let rounds = |at: usize| document["arms"][at]["rounds"]["round"].as_array().unwrap().len();
    assert!((2..99).contains(&rounds(0)) && (1..4).all(|at| rounds(at) == rounds(0)), "{}", rounds(0));
}

#[test]
fn reports_and_exports_are_whole_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let run = ["sim", "icx-2021", "--samples", "50", "--rounds", "2", "--quiet", "-o", "results"];
    assert_eq!(vpmu(dir.path(), &run).status.code(), Some(0));
    let output = vpmu(dir.path(), &["report", "results"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{}", &page[page.len() - 40..]);
    for format in ["hlog", "benchstat", "csv"] {
        let output = vpmu(dir.path(), &["export", "results", "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
        assert!(!output.stdout.is_empty());
        let file = vpmu(dir.path(), &["export", "results", "--format", format, "-o", "x"]);
        assert!(file.stdout.is_empty());
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), output.stdout);
    }
    // One bad document spoils the folder for an export, and a report leaves it out; what was written before stays.
    std::fs::write(dir.path().join("results/cut.json"), "{\"schema\": \"vpmu-result/2\", ").unwrap();
    std::fs::write(dir.path().join("results/ab.json"), "{\"schema\": \"vpmu-ab/1\"}").unwrap();
    let output = vpmu(dir.path(), &["report", "results", "-o", "rest.html"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("left out: results/cut.json (") && said.contains("left out: results/ab.json ("), "{said}");
    is_usage_error(&vpmu(dir.path(), &["export", "results", "--format", "csv", "-o", "x"]), "EOF");
    is_usage_error(&vpmu(dir.path(), &["report", "results/cut.json", "-o", "/dev/full"]), "EOF");
    assert_eq!(std::fs::read_to_string(dir.path().join("report.html")).unwrap(), page);
    std::fs::remove_file(dir.path().join("results/cut.json")).unwrap();
    let output = vpmu(dir.path(), &["report", "results", "-o", "rest.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("vpmu-ab/1"), "{}", stderr(&output));
    std::fs::remove_file(dir.path().join("results/ab.json")).unwrap();
    is_usage_error(&vpmu(dir.path(), &["report", "results", "-o", "/dev/full"]), "No space left");
    is_usage_error(&vpmu(dir.path(), &["report", "results", "-o", "no/such/folder.html"]), "-o");
}

#[test]
fn doctor_answers_on_any_host_in_text_and_json() {
    let dir = tempfile::tempdir().unwrap();
    let output = vpmu(dir.path(), &["doctor"]);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("/dev/kvm") && text.contains("host class"), "{text}");
    assert!(!text.contains('\x1b'));

    let output = vpmu(dir.path(), &["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let blocked = findings.iter().any(|f| f["vital"] == true && f["status"] == "missing");
    assert_eq!(output.status.code(), Some(if blocked { 4 } else { 0 }));
}
