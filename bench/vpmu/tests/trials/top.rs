//! `vpmu top` on real guests, without a terminal: the form of its tables, totals that are exact, its ends.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use trials::Case;

use crate::prerequisites::{guests, kvm};

pub(crate) fn cases() -> Vec<Case> {
    let expected = kvm().is_ok();
    let here = guests().err();
    let case = |name: &str, missing: &Option<String>, run: fn() -> Result<()>| {
        Case::fallible(name, missing.clone(), run).expected(expected)
    };
    vec![
        case("tables_add_up_to_the_summary", &here, totals),
        case("a_guest_is_ended_after_the_tables_that_were_asked_for", &here, iterations),
        case("a_reader_that_leaves_ends_the_guest", &here, reader_leaves),
        case("what_cannot_be_shown_is_refused", &None, refusals),
    ]
}

fn top(args: &[&str]) -> Command {
    let mut top = Command::new(env!("CARGO_BIN_EXE_vpmu"));
    top.stdin(Stdio::null()).arg("top").args(args);
    top
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The number behind a word of a line.
fn behind(line: &str, word: &str) -> Result<u64> {
    let found = line.split_whitespace().skip_while(|part| *part != word).nth(1);
    found.and_then(|part| part.parse().ok()).with_context(|| format!("no number behind {word}: {line}"))
}

/// The line that begins so.
fn line<'a>(text: &'a str, begin: &str) -> Result<&'a str> {
    text.lines().find(|line| line.starts_with(begin)).with_context(|| format!("no line {begin}: {text}"))
}

fn totals() -> Result<()> {
    let options = ["--interval", "200ms", "--", "payload", "--samples", "300", "--vcpus", "2"];
    let output = top(&options).output()?;
    let (out, err) = texts(&output);
    ensure!(output.status.code() == Some(0), "{}: {err}", output.status);
    let (tables, summary) = out.split_once("\nsummary").with_context(|| format!("no summary: {out}"))?;
    let mut samples = 0;
    for (at, head) in tables.lines().filter(|line| line.starts_with("table ")).enumerate() {
        ensure!(behind(head, "table")? == at as u64 + 1, "{head}");
        samples += behind(head, "samples")?;
        ensure!(behind(head, "all")? == samples, "{head} is not the sum of those before");
    }
    ensure!(behind(&format!("summary{summary}"), "summary")? == samples, "{summary}");
    for begin in ["event    cpu-clock", "     now     all"] {
        line(tables, begin)?;
    }
    ensure!(summary.contains("  ring3_ftest\n"), "{summary}");
    Ok(())
}

fn iterations() -> Result<()> {
    let guest = ["--", "payload", "--samples", "1000000", "--time-limit", "60s"];
    let options = ["--interval", "100ms", "--iterations", "2", "-q"];
    let output = top(&[&options[..], &guest].concat()).output()?;
    let (out, err) = texts(&output);
    ensure!(output.status.code() == Some(0), "{}: {err}", output.status);
    ensure!(out.lines().filter(|line| line.starts_with("table ")).count() == 2, "{out}");
    line(&out, "summary")?;
    ensure!(!err.contains("ended"), "-q: {err}");
    Ok(())
}

fn reader_leaves() -> Result<()> {
    let guest = ["--interval", "100ms", "--", "payload", "--samples", "1000000", "--time-limit", "60s"];
    let mut child = top(&guest).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    let (_, err) = texts(&output);
    ensure!(output.status.code() == Some(3) && err.contains("(stopped)"), "{}: {err}", output.status);
    Ok(())
}

fn refusals() -> Result<()> {
    for (options, needle) in [
        (&["-e", "kvm:no_such_event", "--", "payload"][..], "kvm:no_such_event"),
        (&["--", "run", "no-such-image"], "no-such-image"),
        (&["--", "payload", "--backend", "sim:hots"], "simulated"),
        (&["--symbols", "list", "--", "payload"], "--symbols is for Linux"),
        (&["--", "linux", "no-such-kernel"], "--run"),
        (&["-c", "5", "--", "payload"], "longer --count"),
        (&["--interval", "1ms", "--", "payload"], "--interval"),
    ] {
        let output = top(options).output()?;
        let (out, err) = texts(&output);
        ensure!(matches!(output.status.code(), Some(2 | 4)), "{options:?}: {}: {err}", output.status);
        ensure!(err.contains(needle) && out.is_empty(), "{err} lacks {needle}");
    }
    Ok(())
}
