//! `vpmu conformance` on stock KVM, and the same lines as on this machine's.

use anyhow::{Result, ensure};

use super::machine::Job;
use super::parts::Parts;

const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");

fn both_hosts(parts: &Parts, options: &[&str]) -> Result<()> {
    let words = [&["/vpmu", "conformance"], options].concat();
    let report = Job::new()
        .binary("/vpmu", VPMU.as_ref())
        .limit(std::time::Duration::from_secs(600))
        .command(words)
        .run(parts)?;
    eprintln!("# boot to power-off: {:.1} s", report.wall.as_secs_f64());
    let [there] = &report.commands[..] else {
        anyhow::bail!("{} commands came back", report.commands.len());
    };
    let tap = there.text()?;
    for line in tap.lines().filter(|line| !line.starts_with("    ")) {
        eprintln!("{line}");
    }
    let complaints: Vec<_> = tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
    let said = String::from_utf8_lossy(&there.stderr);
    ensure!(there.status == 0, "exit {}: {said}\n{}", there.status, complaints.join("\n"));
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    if !std::path::Path::new("/dev/kvm").exists() {
        eprintln!("# SKIP: no /dev/kvm here to compare with");
        return Ok(());
    }
    let here = std::process::Command::new(VPMU).arg("conformance").args(options).output()?;
    let here = String::from_utf8_lossy(&here.stdout).into_owned();
    let differing: Vec<_> = here.lines().zip(tap.lines()).filter(|(here, there)| here != there).collect();
    ensure!(here == tap, "this machine's KVM and stock KVM differ: {differing:#?}");
    Ok(())
}

/// Every strategy and version, by the stand-in any host has.
pub(crate) fn cpu_clock(parts: &Parts) -> Result<()> {
    both_hosts(parts, &["--backend", "cpu-clock"])
}

/// Exact counts. Each guest instruction is several exits there, a quarter of a millisecond each: two strategies have to do.
pub(crate) fn step(parts: &Parts) -> Result<()> {
    both_hosts(parts, &["--backend", "step", "--strategy", "recreate,deferred", "--pmu-version", "4"])
}
