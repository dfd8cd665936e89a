//! `vpmu sweep` from the outside: what a kill, a full disk or another number of threads leaves behind.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::binary::{run as vpmu, text, vpmu as command};

/// 80 points.
const GRID: &[&str] = &["sweep", "strategy=recreate,pool", "seed=1-80", "samples=400", "-o", "out", "--quiet"];

fn file(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("out/sweep.jsonl")).unwrap_or_default()
}

fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Starts the grid on one thread and gives it `signal` as soon as a few points are done; its exit code.
fn end_in_the_middle(dir: &Path, signal: &str) -> Option<i32> {
    let mut sweep =
        command(dir, GRID).env("RAYON_NUM_THREADS", "1").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while file(dir).lines().count() < 3 {
        assert!(sweep.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill").args([signal, &sweep.id().to_string()]).status().unwrap();
    assert!(sent.success());
    sweep.wait().unwrap().code()
}

#[test]
fn a_killed_sweep_goes_on_and_ends_with_the_bytes_of_one_that_was_not() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    succeeds(&command(whole.path(), GRID).env("RAYON_NUM_THREADS", "3").output().unwrap());
    let expected = file(whole.path());
    assert_eq!(expected.lines().count(), 80);

    assert_eq!(end_in_the_middle(killed.path(), "-KILL"), None);
    let left = file(killed.path());
    let done = left.lines().filter(|line| expected.lines().any(|whole| whole == *line)).count();
    assert!((3..80).contains(&done), "{done} whole lines");
    // As if the kill had come in the middle of a write.
    std::fs::write(killed.path().join("out/sweep.jsonl"), format!("{left}{{\"schema\":\"vpm")).unwrap();
    let shown = vpmu(killed.path(), GRID);
    assert!(
        succeeds(&shown).contains(&format!("80 of 80 points, {done} of them from before")),
        "{}",
        text(&shown.stdout)
    );
    assert!(text(&shown.stderr).contains("was torn"), "{}", text(&shown.stderr));
    assert!(file(killed.path()) == expected, "the bytes differ");
}

#[test]
fn an_interrupted_sweep_is_inconclusive_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(end_in_the_middle(dir.path(), "-INT"), Some(3));
    assert!(file(dir.path()).ends_with("}\n"), "whole lines only");
    assert!(succeeds(&vpmu(dir.path(), GRID)).contains("80 of 80 points"));
}

#[test]
fn a_full_disk_keeps_finished_points_and_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    // A file that may not grow stands for a full disk.
    let script = format!("ulimit -f 32; exec '{}' {}", env!("CARGO_BIN_EXE_vpmu"), GRID.join(" "));
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let left = file(dir.path());
    let kept = left.lines().count();
    assert!((1..80).contains(&kept) && left.ends_with("}\n"), "{kept}");
    assert!(error.contains(&format!("{kept} of 80 points are kept")), "{error}");
    let shown = succeeds(&vpmu(dir.path(), GRID));
    assert!(shown.contains(&format!("80 of 80 points, {kept} of them from before")), "{shown}");
}
