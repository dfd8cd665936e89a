//! `vpmu sweep` from the outside: what a kill or another number of threads leaves behind.

use std::path::Path;
use std::process::Output;

use crate::binary::{ended_by, run as vpmu, text, vpmu as command};

/// 80 points.
const GRID: &[&str] = &["sweep", "strategy=recreate,pool", "seed=1-80", "samples=400", "-o", "out", "--quiet"];

fn file(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("out/sweep.jsonl")).unwrap_or_default()
}

fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_killed_or_interrupted_sweep_goes_on_and_ends_with_the_bytes_of_one_that_was_not() {
    let whole = tempfile::tempdir().unwrap();
    succeeds(&command(whole.path(), GRID).env("RAYON_NUM_THREADS", "3").output().unwrap());
    let expected = file(whole.path());
    assert_eq!(expected.lines().count(), 80);
    for (signal, code) in [("-KILL", None), ("-INT", Some(3))] {
        let killed = tempfile::tempdir().unwrap();
        let mut sweep = command(killed.path(), GRID);
        let ended = ended_by(signal, sweep.env("RAYON_NUM_THREADS", "1"), |_| file(killed.path()).lines().count() >= 3);
        assert_eq!(ended.status.code(), code);
        let left = file(killed.path());
        let done = left.lines().filter(|line| expected.lines().any(|whole| whole == *line)).count();
        assert!((3..80).contains(&done), "{done} whole lines");
        assert!(code.is_none() || left.ends_with("}\n"), "whole lines only");
        // As if the kill had come in the middle of a write.
        std::fs::write(killed.path().join("out/sweep.jsonl"), format!("{left}{{\"schema\":\"vpm")).unwrap();
        let shown = vpmu(killed.path(), GRID);
        let said = succeeds(&shown);
        assert!(said.contains(&format!("80 of 80 points, {done} of them from before")), "{said}");
        assert!(text(&shown.stderr).contains("was torn"), "{}", text(&shown.stderr));
        assert!(file(killed.path()) == expected, "the bytes differ");
    }
}
