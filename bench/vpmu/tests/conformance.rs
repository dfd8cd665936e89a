//! `vpmu conformance` on this machine's KVM.

use std::process::{Command, ExitCode};

use trials::Case;

/// Every strategy over the stand-in and over exact counts; the floor, which has no strategies. Intel's PMU, and AMD's.
const TRIALS: [(&str, &[&str]); 6] = [
    ("conformance::cpu_clock", &["--backend", "cpu-clock"]),
    ("conformance::step", &["--backend", "step"]),
    ("conformance::floor", &["--backend", "none"]),
    ("conformance::amd_cpu_clock", &["--cpu", "milan,genoa", "--backend", "cpu-clock"]),
    ("conformance::amd_step", &["--cpu", "milan,genoa", "--backend", "step"]),
    ("conformance::amd_floor", &["--cpu", "milan,genoa", "--backend", "none"]),
];

fn main() -> ExitCode {
    let kvm = vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string());
    let cases = TRIALS.map(|(name, options)| Case::fallible(name, kvm.clone().err(), || passes(options)));
    trials::run(cases, kvm.is_ok())
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
