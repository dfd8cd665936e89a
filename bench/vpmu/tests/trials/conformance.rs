//! `vpmu conformance` on this machine's KVM.

use std::process::Command;

use trials::Case;

use crate::prerequisites::kvm;

/// Every strategy over the stand-in, on each PMU; over exact counts every strategy on one PMU of a vendor and one strategy on the
/// other, as what is counted depends on no pair of them; the floor, which has no strategies. Intel's PMU, and AMD's.
const TRIALS: [(&str, &[&str]); 6] = [
    ("cpu_clock", &["--backend cpu-clock"]),
    ("step", &["--backend step --pmu-version 4", "--backend step --pmu-version 2 --strategy reuse-lazy"]),
    ("floor", &["--backend none"]),
    ("amd_cpu_clock", &["--cpu milan,genoa --backend cpu-clock"]),
    ("amd_step", &["--cpu genoa --backend step", "--cpu milan --backend step --strategy reuse-lazy"]),
    ("amd_floor", &["--cpu milan,genoa --backend none"]),
];

pub(crate) fn cases() -> Vec<Case> {
    let missing = kvm().err();
    let case = |(name, runs): (&str, &'static [&str])| {
        let run = move || runs.iter().try_for_each(|options| passes(options));
        Case::fallible(name, missing.clone(), run).expected(missing.is_none())
    };
    TRIALS.map(case).into()
}

fn passes(options: &str) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_vpmu")).arg("conformance").args(options.split(' ')).output();
    let output = output.map_err(|error| error.to_string())?;
    let tap = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
    if output.status.code() == Some(0) && failed.is_empty() && tap.lines().any(|line| line.starts_with("ok 1 - ")) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}\n{}", output.status, failed.join("\n")))
}
