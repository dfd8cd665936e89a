//! The corpus of traces: results/traces/record on host B.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux;
use super::machine::Clock;
use super::parts::Parts;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces/record");

/// Records one use on one processor. `VPMU_CORPUS=DIR`: all of them, which stay there.
pub(crate) fn recorded(parts: &Parts) -> Result<()> {
    let keep = std::env::var_os("VPMU_CORPUS").map(PathBuf::from);
    let dir = tempfile::tempdir()?;
    let to = keep.as_deref().unwrap_or(dir.path());
    let kernel = format!("/guest/vmlinuz-{}", parts.release());
    let what = if keep.is_some() { "" } else { "branches" };
    let cpus = if keep.is_some() { "" } else { "CPUS=clx" };
    let script = format!(
        "mkdir /out && PATH=$PATH:/usr/bin {cpus} VPMU=/vpmu OPTIONS='--modules /guest/lib/modules' /record -o /out {kernel} {what} && \
         tar c -C /out ."
    );
    let report = linux::job(parts)?
        .clock(Clock::Instructions)
        .limit(Duration::from_secs(4 * 3600))
        .file("/record", 0o755, &std::fs::read(SCRIPT)?)
        .file(&kernel, 0o644, &std::fs::read(&parts.kernel)?)
        .command(["sh", "-c", &script])
        .run(parts)?;
    let [recorded] = report.done()?;
    ensure!(recorded.status == 0, "{}", recorded.said());
    unpacked(&recorded.stdout, to)?;
    let traces: Vec<_> = std::fs::read_dir(to)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let traces: Vec<_> = traces.iter().filter(|path| path.join("_trace.json").is_file()).collect();
    ensure!(!traces.is_empty(), "nothing was recorded");
    traces.into_iter().try_for_each(|trace| replayed(trace))
}

fn unpacked(archive: &[u8], to: &Path) -> Result<()> {
    let mut tar = Command::new("tar").arg("x").arg("-C").arg(to).stdin(Stdio::piped()).spawn().context("tar")?;
    tar.stdin.take().context("tar's input")?.write_all(archive)?;
    ensure!(tar.wait()?.success(), "tar failed");
    Ok(())
}

/// Replayed under its own strategy, a trace gives the registers and PMIs of its run.
fn replayed(trace: &Path) -> Result<()> {
    let mut vpmu = Command::new(env!("CARGO_BIN_EXE_vpmu"));
    let output =
        vpmu.args(["sim", "--strategy", "reuse-lazy", "--json", "--no-save", "--trace"]).arg(trace).output()?;
    let found: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let arm = &found["arms"][0];
    let differ = ["values_otherwise", "counters_otherwise", "pmis_absent"].map(|key| arm[key].as_u64().unwrap_or(0));
    ensure!(arm["played"].as_u64() > Some(20) && differ == [0; 3], "{}: {arm}", trace.display());
    Ok(())
}
