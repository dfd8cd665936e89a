//! `vpmu top` on real guests, without a terminal: the form of its tables, totals that are exact, its ends.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use trials::Case;

use crate::binary::{text, vpmu};
use crate::prerequisites::{guests, kvm};

pub(crate) fn cases() -> Vec<Case> {
    let expected = kvm().is_ok();
    let here = guests().err();
    let case = |name: &str, run: fn() -> Result<()>| Case::fallible(name, here.clone(), run).expected(expected);
    vec![
        case("tables_add_up_to_the_summary", totals),
        case("a_guest_is_ended_after_the_tables_that_were_asked_for", iterations),
        case("a_reader_that_leaves_ends_the_guest", reader_leaves),
    ]
}

fn top(args: &[&str]) -> Command {
    vpmu(Path::new("."), &[&["top"], args].concat())
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
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
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
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
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
    let err = text(&output.stderr);
    ensure!(output.status.code() == Some(3) && err.contains("(stopped)"), "{}: {err}", output.status);
    Ok(())
}
