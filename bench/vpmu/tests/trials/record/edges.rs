//! Recordings at their edges: a full disk, the guest's last exit.

use anyhow::{Context as _, Result, ensure};

use super::rig::{RATE, leaves, perf_script, planted, record, said_samples, stacks};
use crate::binary::{VPMU, text};
use crate::prerequisites::alone;

/// A recording on a disk of 160 KiB, which goes with the shell's namespace.
pub(crate) fn full_disk() -> Result<()> {
    let folder = planted(50_000_000)?;
    std::fs::create_dir(folder.path().join("disk"))?;
    for options in ["", "-z --aio=4"] {
        let script = format!(
            "mount -t tmpfs -o size=160k tmpfs disk; $0 record -o disk/x -F {RATE} -g {options} -- run planted; \
             code=$?; perf script -i disk/x -F comm,ip,sym; echo perf $? >&2; exit $code"
        );
        let output = alone("sh").args(["-c", &script, VPMU]).current_dir(folder.path()).output()?;
        let (shown, said) = (stacks(&text(&output.stdout)).len(), text(&output.stderr));
        ensure!(output.status.code() == Some(4), "{options}: {}: {said}", output.status);
        ensure!(said.contains("ended early") && said.contains("No space left"), "{options}: {said}");
        // perf refuses a file without a single record, which a disk of this size may leave of one large write.
        ensure!(shown == 0 || said.ends_with("perf 0\n"), "{options}: {said}");
        let is_all = said_samples(&output)? == shown && said.contains(&format!("recorded {shown} of "));
        ensure!(is_all, "{options}: perf script shows {shown}: {said}");
    }
    Ok(())
}

/// Samples that fell into the handling of an exit are at the instruction that made it: a store to a place without
/// memory, alone in its symbol.
pub(crate) fn at_the_exit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::compile(&folder.path().join("planted"), "stores.S", 20_000, false)?;
    let output = record(folder.path(), &["-F", RATE])?;
    let said = text(&output.stderr);
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
    ensure!(returns >= 101, "{returns} returns from KVM_RUN: {}", text(&output.stderr));
    Ok(())
}
