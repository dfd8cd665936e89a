//! The binary from the outside: exit codes, one-line errors, nothing half-written. None of this needs KVM.

use std::process::{Command, Output};

use crate::binary::{json, run as vpmu, text};

fn stderr(output: &Output) -> String {
    text(&output.stderr)
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

/// No file may grow, as on a full disk: writes fail with EFBIG, and SIGXFSZ kills nobody.
#[test]
fn a_full_disk_still_prints_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let full = |blocks: u32, rounds: &str, args: &[&str]| {
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_vpmu")])
            .args(["sim", "--rounds", rounds, "--samples", "20", "-q", "-o", "out"])
            .args(args)
            .current_dir(dir.path())
            .output()
            .expect("a shell")
    };
    let output = full(0, "2", &[]);
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(table.contains("recreate") && table.contains("2 of 2 rounds") && !table.contains("saved:"), "{table}");
    assert_eq!(errors.matches("cannot write results to out").count(), 2, "a warning, and the error: {errors}");
    assert!(errors.contains("cannot write results to out: File too large"), "the user's path alone: {errors}");
    assert_eq!(json(&full(0, "2", &["--json"]))["status"], "complete");
    // There is room for the first rounds, and none for all of them; or for a result, and not for its baseline.
    for (blocks, rounds, args) in [(48, "100", &[][..]), (0, "2", &["--no-save", "--save-baseline", "b"])] {
        assert_eq!(full(blocks, rounds, args).status.code(), Some(4));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "neither half a run nor an empty folder stays");
    }
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
        let line = format!(
            "sim clx-ap-watchdog-on --workload sampling10/ftest --samples 60 --rounds 2 --vcpus 2 --seed {seed} --no-save -q --json"
        );
        let output = vpmu(dir.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let found = json(&output);
        assert!(found["started_unix"] == 0 && found["first_guest_instruction_ns"].is_null(), "no time of this machine");
        output.stdout
    };
    assert_eq!(figures("7"), figures("7"));
    let of = |seed| serde_json::from_slice::<serde_json::Value>(&figures(seed)).unwrap()["arms"].to_string();
    assert_ne!(of("7"), of("8"));
}

#[test]
fn reports_and_exports_are_whole_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let run = ["sim", "icx-2021", "--samples", "50", "--rounds", "2", "--quiet", "-o", "results"];
    // Equal simulations in a folder are one result.
    for _ in 0..2 {
        assert_eq!(vpmu(dir.path(), &run).status.code(), Some(0));
    }
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
    // A bad document of a folder is left out by name, and one that was named is refused; what was written before stays.
    std::fs::write(dir.path().join("results/cut.json"), "{\"schema\": \"vpmu-result/3\", ").unwrap();
    for line in [&["report", "results", "-o", "rest.html"][..], &["export", "results", "-f", "csv", "-o", "x"]] {
        let output = vpmu(dir.path(), line);
        let said = stderr(&output);
        assert!(output.status.code() == Some(3) && said.contains("left out: cannot use results/cut.json: "), "{said}");
    }
    is_usage_error(&vpmu(dir.path(), &["report", "results/cut.json", "-o", "/dev/full"]), "EOF");
    assert_eq!(std::fs::read_to_string(dir.path().join("report.html")).unwrap(), page);
    std::fs::remove_file(dir.path().join("results/cut.json")).unwrap();
    let output = vpmu(dir.path(), &["report", "results", "-o", "/dev/full"]);
    assert!(output.status.code() == Some(4) && stderr(&output).contains("No space left"), "{}", stderr(&output));
    is_usage_error(&vpmu(dir.path(), &["report", "results", "-o", "no/such/folder.html"]), "-o");
}

#[test]
fn doctor_answers_on_any_host() {
    let dir = tempfile::tempdir().unwrap();
    let output = vpmu(dir.path(), &["doctor", "--json"]);
    let found = json(&output);
    let findings = found["findings"].as_array().unwrap();
    let blocked = findings.iter().any(|f| f["status"] == "missing");
    assert_eq!(output.status.code(), Some(if blocked { 4 } else { 0 }));
}
