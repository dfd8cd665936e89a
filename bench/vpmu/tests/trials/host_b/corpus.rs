//! The corpus of traces: results/traces/record on host B.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::linux;
use super::machine::Job;
use super::parts::Parts;
use crate::binary::{json, run};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces/record");

/// Records one use on one processor. `VPMU_CORPUS=DIR`: all of them, which stay there.
pub(crate) fn recorded(parts: &Parts) -> Result<()> {
    let keep = std::env::var_os("VPMU_CORPUS").map(PathBuf::from);
    let dir = tempfile::tempdir()?;
    let to = keep.as_deref().unwrap_or(dir.path());
    let kernel = format!("/guest/vmlinuz-{}", parts.release());
    let (cpus, what) = if keep.is_some() { ("", "") } else { ("CPUS=clx", "branches") };
    let script = format!(
        "mkdir /out && PATH=$PATH:/usr/bin {cpus} VPMU=/vpmu OPTIONS='--modules /guest/lib/modules' /record -o /out {kernel} {what} && \
         tar c -C /out ."
    );
    let [recorded] = Job { by_instructions: true, limit: 4 * 3600, ..linux::job(parts)? }
        .file("/record", 0o755, &std::fs::read(SCRIPT)?)
        .file(&kernel, 0o644, &std::fs::read(&parts.kernel)?)
        .script(&script)
        .run(parts)?;
    ensure!(recorded.status == 0, "{}", recorded.said());
    let archive = tempfile::NamedTempFile::new()?;
    std::fs::write(archive.path(), &recorded.stdout)?;
    let tar = Command::new("tar").arg("-xf").arg(archive.path()).arg("-C").arg(to).status().context("tar")?;
    ensure!(tar.success(), "tar failed");
    let traces = std::fs::read_dir(to)?.flatten().map(|entry| entry.path());
    let traces: Vec<_> = traces.filter(|path| path.join("_trace.json").is_file()).collect();
    ensure!(!traces.is_empty(), "nothing was recorded");
    traces.iter().try_for_each(|trace| replayed(trace))
}

/// Replayed under its own strategy, a trace gives the registers and PMIs of its run.
fn replayed(trace: &Path) -> Result<()> {
    let found = json(&run(trace, &["sim", "--strategy", "reuse-lazy", "--json", "--no-save", "--trace", "."]));
    let arm = &found["arms"][0];
    let differ = ["values_otherwise", "counters_otherwise", "pmis_absent"].map(|key| arm[key].as_u64().unwrap_or(0));
    ensure!(arm["played"].as_u64() > Some(20) && differ == [0; 3], "{}: {arm}", trace.display());
    Ok(())
}
