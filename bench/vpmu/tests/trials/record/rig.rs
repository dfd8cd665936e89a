//! Parts that the tests of recordings share.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::binary::text;

/// Prime, so that samples do not keep step with the guest's rounds.
pub(crate) const RATE: &str = "3989";

pub(crate) fn vpmu() -> Command {
    crate::binary::vpmu(Path::new("."), &[])
}

/// A folder with the planted guest in it.
pub(crate) fn planted(rounds: u32) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    build_planted(&folder.path().join("planted"), rounds, false)?;
    Ok(folder)
}

pub(crate) fn record(folder: &Path, options: &[&str]) -> Result<Output> {
    let output = vpmu().current_dir(folder).arg("record").args(options).args(["--", "run", "planted"]).output()?;
    ensure!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Ok(output)
}

/// The number of samples that the summary says.
pub(crate) fn said_samples(output: &Output) -> Result<usize> {
    let said = text(&output.stderr);
    let words = said.split_whitespace().skip_while(|word| *word != "recorded").nth(1);
    words.and_then(|word| word.parse().ok()).with_context(|| format!("no number of samples: {said}"))
}

/// The functions of each sample by perf script, innermost first.
pub(crate) fn perf_script(folder: &Path, file: &str) -> Result<Vec<Vec<String>>> {
    let mut perf = Command::new("perf");
    perf.current_dir(folder).args(["script", "-i", file, "-F", "comm,ip,sym"]);
    let output = perf.output()?;
    ensure!(output.status.success(), "perf script: {}", text(&output.stderr));
    Ok(stacks(&text(&output.stdout)))
}

/// A sample is a line with the thread's name, and lines of frames behind it or the frame itself.
pub(crate) fn stacks(text: &str) -> Vec<Vec<String>> {
    let mut stacks: Vec<Vec<String>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let frame = match line.split_once("/KVM") {
            Some((_, rest)) => {
                stacks.push(Vec::new());
                rest
            }
            None => line,
        };
        if let (Some(symbol), Some(stack)) = (frame.split_whitespace().nth(1), stacks.last_mut()) {
            stack.push(symbol.to_owned());
        }
    }
    stacks
}

/// Counts the innermost functions, by planted function.
pub(crate) fn leaves<'a>(leaves: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    leaves.for_each(|leaf| *counts.entry(leaf).or_insert(0) += 1);
    counts
}

/// Compiles the planted guest with so many rounds of 100 units of work, some 0.1 ms each; `exits`: with ten exits a round, too.
pub(crate) fn build_planted(to: &Path, rounds: u32, exits: bool) -> Result<()> {
    compile(to, "planted.c", rounds, exits)
}

/// Compiles a guest of this folder, with the way into ring 3 and out of the guest.
pub(crate) fn compile(to: &Path, source: &str, rounds: u32, exits: bool) -> Result<()> {
    let output = Command::new("cc")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trials/record"))
        .args(["-O2", "-mgeneral-regs-only", "-ffreestanding", "-nostdlib", "-static", "-fno-pie", "-no-pie"])
        .args(["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-asynchronous-unwind-tables"])
        .args(["-fcf-protection=none", "-mno-red-zone", "-fno-stack-protector"])
        .arg("-Wl,-Ttext-segment=0x200000,--build-id=sha1,-z,noexecstack,-z,max-page-size=4096")
        // A loop across two cache lines runs slower than the others, where the processor's other thread is busy: shares
        // would differ.
        .args(["-falign-functions=64", "-falign-loops=64"])
        .arg(format!("-DROUNDS={rounds}"))
        .args(exits.then_some("-DEXITS"))
        .args(["-Du64=unsigned long", source, "../../../../../guest/image/ring_3.c", "-o"])
        .arg(to)
        .output()?;
    ensure!(output.status.success(), "cc: {}", text(&output.stderr));
    Ok(())
}
