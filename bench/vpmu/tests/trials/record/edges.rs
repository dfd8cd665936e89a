//! Recordings at their edges: a full disk, the guest's last exit.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::rig::{RATE, leaves, perf_script, planted, record, said_samples, vpmu};

/// A folder that is a small disk, as long as it is there.
pub(crate) struct SmallDisk(TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

pub(crate) fn small_disk() -> Result<SmallDisk, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=160k", "tmpfs"]).arg(folder.path()).output();
    if mount.is_ok_and(|done| done.status.success()) {
        Ok(SmallDisk(folder))
    } else {
        Err("it takes root to mount a small disk".to_owned())
    }
}

pub(crate) fn full_disk() -> Result<()> {
    let folder = planted(50_000_000)?;
    let disk = small_disk().map_err(anyhow::Error::msg)?;
    let file = disk.0.path().join("x.data");
    let file = file.to_str().context("a path")?;
    let ways: [&[&str]; 2] = [&["-F", RATE, "-g"], &["-F", RATE, "-g", "-z", "--aio=4"]];
    for options in ways {
        let output = vpmu()
            .current_dir(folder.path())
            .args(["record", "-o", file])
            .args(options)
            .args(["--", "run", "planted"])
            .output()?;
        let shown = perf_script(folder.path(), file);
        for left in std::fs::read_dir(disk.0.path())? {
            std::fs::remove_file(left?.path())?;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // perf refuses a file without a single record, which a disk of this size may leave of one large write.
        let shown = if said_samples(&output)? == 0 { shown.map_or(0, |samples| samples.len()) } else { shown?.len() };
        ensure!(output.status.code() == Some(4), "{options:?}: {}: {said}", output.status);
        ensure!(said.contains("ended early") && said.contains("No space left"), "{options:?}: {said}");
        ensure!(said_samples(&output)? == shown, "{options:?}: perf script shows {shown}: {said}");
        ensure!(said.contains(&format!("recorded {shown} of ")), "{options:?}: all are there? {said}");
    }
    Ok(())
}

/// Samples that fell into the handling of an exit are at the instruction that made it: a store to a place without
/// memory, alone in its symbol.
pub(crate) fn at_the_exit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::build_stores(&folder.path().join("planted"), 20_000)?;
    let output = record(folder.path(), &["-F", RATE])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let stacks = perf_script(folder.path(), "perf.data")?;
    let found = leaves(stacks.iter().filter_map(|stack| Some(stack.first()?.as_str())));
    let percent = said.lines().find(|line| line.contains("handling of an exit"));
    let percent = percent.and_then(|line| line.split(" %").next()?.split_whitespace().last()?.parse::<f64>().ok());
    let at_exit = percent.with_context(|| format!("no share of exits: {said}"))? / 100.0 * stacks.len() as f64;
    let others = (stacks.len() - found.get("store").copied().unwrap_or(0)) as f64;
    // The share has one digit behind the point.
    let most = stacks.len() as f64 - at_exit + 0.001 * stacks.len() as f64 + 1.0;
    ensure!(
        others <= most,
        "{others} samples beside the store, where {at_exit:.0} of {} are of its exits: {found:?}",
        stacks.len()
    );
    Ok(())
}

/// The overflow of the guest's last exit is a sample, although the guest is not entered again.
pub(crate) fn last_overflow() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::build_planted(&folder.path().join("planted"), 10, true)?;
    let output = record(folder.path(), &["-c", "1", "-e", "kvm:kvm_userspace_exit"])?;
    let returns = said_samples(&output)?;
    ensure!(returns >= 101, "{returns} returns from KVM_RUN: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
