//! Tables of functions while real guests are recorded: their form, totals that are exact, their ends.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::binary::{text, vpmu};

fn tables(args: &[&str]) -> Result<(TempDir, Command)> {
    let folder = tempfile::tempdir()?;
    let command = vpmu(folder.path(), &[&["record", "--interval"], args].concat());
    Ok((folder, command))
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

pub(crate) fn totals() -> Result<()> {
    let (_folder, mut command) = tables(&["200ms", "--", "payload", "--samples", "300", "--vcpus", "2"])?;
    let output = command.output()?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
    ensure!(output.status.code() == Some(0), "{}: {err}", output.status);
    let mut samples = 0;
    for (at, head) in out.lines().filter(|line| line.starts_with("table ")).enumerate() {
        ensure!(behind(head, "table")? == at as u64 + 1, "{head}");
        samples += behind(head, "samples")?;
        ensure!(behind(head, "all")? == samples, "{head} is not the sum of those before");
    }
    for begin in ["event    cpu-clock", "   share  ring"] {
        line(&out, begin)?;
    }
    ensure!(samples > 0 && out.contains("  ring3_ftest\n"), "{out}");
    Ok(())
}

pub(crate) fn table_reader_leaves() -> Result<()> {
    let guest = ["100ms", "--", "payload", "--samples", "1000000", "--time-limit", "60s"];
    let (_folder, mut command) = tables(&guest)?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    let err = text(&output.stderr);
    ensure!(output.status.code() == Some(3) && err.contains("(stopped)"), "{}: {err}", output.status);
    Ok(())
}
