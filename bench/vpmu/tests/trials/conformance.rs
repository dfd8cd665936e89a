//! `vpmu conformance` on this machine's KVM.

use std::process::Command;

use trials::Case;

use crate::prerequisites::kvm;

/// Every strategy over the stand-in and over exact counts; the floor, which has no strategies. Intel's PMU, and AMD's.
const TRIALS: [(&str, &[&str]); 6] = [
    ("cpu_clock", &["--backend", "cpu-clock"]),
    ("step", &["--backend", "step"]),
    ("floor", &["--backend", "none"]),
    ("amd_cpu_clock", &["--cpu", "milan,genoa", "--backend", "cpu-clock"]),
    ("amd_step", &["--cpu", "milan,genoa", "--backend", "step"]),
    ("amd_floor", &["--cpu", "milan,genoa", "--backend", "none"]),
];

pub(crate) fn cases() -> Vec<Case> {
    let missing = kvm().err();
    let case = |&(name, options): &(&str, &'static [&str])| Case::fallible(name, missing.clone(), || passes(options));
    TRIALS.iter().map(|trial| case(trial).expected(missing.is_none())).collect()
}

fn passes(options: &[&str]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_vpmu")).arg("conformance").args(options).output();
    let output = output.map_err(|error| error.to_string())?;
    let tap = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
    if output.status.code() == Some(0) && failed.is_empty() && tap.lines().any(|line| line.starts_with("ok 1 - ")) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}\n{}", output.status, failed.join("\n")))
}
