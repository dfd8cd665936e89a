//! Recordings at their edges: a full disk, what lies beside them, the guest's last exit, another recorder's files.

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
    // Writes that fail while the guest runs, and one that is begun at its end and fails only then.
    let ways: [(&[&str], &[&str]); 4] = [
        (&["-F", RATE, "-g", "--mmap-flush", "4K"], &["run", "planted"]),
        (&["-F", RATE, "-g", "--mmap-flush", "4K", "-z", "--aio=4"], &["run", "planted"]),
        (&["-g", "--mmap-flush", "1M", "--aio=2", "-e", "exit"], &["payload", "--samples", "400"]),
        (&["-g", "--mmap-flush", "1M", "-e", "exit"], &["payload", "--samples", "400"]),
    ];
    for (options, guest) in ways {
        let output = vpmu()
            .current_dir(folder.path())
            .args(["record", "-o", file])
            .args(options)
            .arg("--")
            .args(guest)
            .output()?;
        let shown = perf_script(folder.path(), file);
        for left in std::fs::read_dir(disk.0.path())? {
            std::fs::remove_file(left?.path())?;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // perf refuses a file without a single record, which a disk of this size may leave of one large write.
        let shown = if said_samples(&output)? == 0 { shown.map_or(0, |samples| samples.len()) } else { shown?.len() };
        ensure!(output.status.code() == Some(3), "{options:?}: {}: {said}", output.status);
        ensure!(said.contains("ended early") && said.contains("No space left"), "{options:?}: {said}");
        ensure!(said_samples(&output)? == shown, "{options:?}: perf script shows {shown}: {said}");
        ensure!(said.contains(&format!("recorded {shown} of ")), "{options:?}: all are there? {said}");
    }
    Ok(())
}

/// The earlier recording is kept once there is a new one; what cannot be written beside it hides nothing; another recording's list is not used.
pub(crate) fn beside() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::planted::build(&folder.path().join("planted"), 20, true)?;
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("perf.data"), "earlier")?;
    std::fs::write(at("perf.data.kallsyms"), "earlier")?;
    std::fs::write(at("perf.data.old"), "before it")?;
    record(folder.path(), &["-e", "exit:io"])?;
    let text = |name: &str| std::fs::read_to_string(at(name)).ok();
    ensure!(text("perf.data.old").as_deref() == Some("earlier"), "{:?}", text("perf.data.old"));
    ensure!(text("perf.data.old.kallsyms").as_deref() == Some("earlier") && text("perf.data.kallsyms").is_none());
    // A folder where the payload's NMIs are to be.
    std::fs::create_dir(at("x.data.nmis"))?;
    let options = ["record", "-e", "exit", "-o", "x.data", "--", "payload", "--samples", "20"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && said.contains("recorded ") && said.contains("x.data.nmis"), "{said}");
    // Cut at the end of a record: the last one of the data.
    let whole = std::fs::read(at("perf.data"))?;
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap_or_default()) as usize;
    let (data, mut end) = (word(40), word(40));
    while let Some(size) = whole.get(end + 6..end + 8).filter(|_| end < data + word(48) - 64) {
        end += usize::from(u16::from_le_bytes([size[0], size[1]]));
    }
    std::fs::write(at("cut"), &whole[..end])?;
    let cut = vpmu().current_dir(folder.path()).args(["report", "cut", "--format", "folded"]).output()?;
    let said = String::from_utf8_lossy(&cut.stderr);
    ensure!(cut.status.code() == Some(3) && said.contains("bytes of records are missing"), "{said}");
    Ok(())
}

/// Samples that fell into the handling of an exit are at the instruction that made it: a store to a place without memory, alone in its symbol.
pub(crate) fn at_the_exit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::planted::build_stores(&folder.path().join("planted"), 20_000)?;
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
    super::planted::build(&folder.path().join("planted"), 10, true)?;
    let options = ["record", "-c", "1", "-e", "exit,kvm:kvm_userspace_exit", "--", "run", "planted"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", output.status);
    let count = |name: &str| {
        let (_, rest) = said.split_once(&format!("{name} ("))?;
        rest.split(')').next()?.parse::<usize>().ok()
    };
    let (exits, returns) = (count("exit").context("exits")?, count("kvm:kvm_userspace_exit").context("returns")?);
    ensure!(exits == 101 && returns >= exits, "{exits} exits, {returns} returns from KVM_RUN: {said}");
    Ok(())
}

/// perf's recording of two programs at the same addresses, one of which begins as another: each sample has the name of its own program.
pub(crate) fn programs_of_perf() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, function) in [("one", "func_alpha"), ("two", "func_beta")] {
        let source = folder.path().join(format!("{name}.c"));
        let text = format!(
            "__attribute__((noipa)) void {function}(void) {{ for (volatile long i = 0; i < 200000000; i++); }}\n\
             int main(void) {{ {function}(); return 0; }}\n"
        );
        std::fs::write(&source, text)?;
        let built =
            Command::new("cc").current_dir(folder.path()).args(["-O1", "-no-pie", "-o", name]).arg(&source).output()?;
        ensure!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
    }
    let command =
        ["record", "-q", "-e", "cpu-clock:u", "-o", "x.data", "--", "sh", "-c", "./one & ./two; wait; exec ./two"];
    let recorded = Command::new("perf").current_dir(folder.path()).args(command).output()?;
    ensure!(recorded.status.success(), "perf record: {}", String::from_utf8_lossy(&recorded.stderr));
    // A list of another kernel lies there by chance.
    std::fs::write(folder.path().join("x.data.kallsyms"), "0000000000000001 T of_another\n")?;
    let report = vpmu().current_dir(folder.path()).args(["report", "x.data", "--format", "folded"]).output()?;
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    ensure!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    for (thread, function) in [("one", "func_alpha"), ("two", "func_beta")] {
        ensure!(text.lines().any(|line| line.starts_with(&format!("{thread};{function} "))), "{thread}: {text}");
    }
    ensure!(
        !text.contains("one;func_beta") && !text.contains("two;func_alpha") && !text.contains("of_another"),
        "{text}"
    );
    Ok(())
}
