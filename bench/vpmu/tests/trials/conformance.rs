//! `vpmu conformance` on this machine's KVM.

use std::path::Path;

use anyhow::{Result, ensure};
use trials::Case;

use crate::binary::{run, text};
use crate::prerequisites::kvm;

/// Every strategy over the stand-in, on each PMU; over exact counts every strategy on one PMU of a vendor and one strategy on the
/// other, as what is counted depends on no pair of them; the floor, which has no strategies. Intel's PMU, and AMD's. What may run
/// beside others: exact counts are the same on a busy host.
const TRIALS: [(&str, bool, &[&str]); 6] = [
    ("cpu_clock", false, &["--backend cpu-clock"]),
    ("step", true, &["--backend step --pmu-version 4", "--backend step --pmu-version 2 --strategy reuse-lazy"]),
    ("floor", false, &["--backend none"]),
    ("amd_cpu_clock", false, &["--cpu milan,genoa --backend cpu-clock"]),
    ("amd_step", true, &["--cpu genoa --backend step", "--cpu milan --backend step --strategy reuse-lazy"]),
    ("amd_floor", false, &["--cpu milan,genoa --backend none"]),
];

pub(crate) fn cases() -> Vec<Case> {
    let missing = kvm().err();
    let case = |(name, is_exact, runs): (&str, bool, &'static [&str])| {
        let run = move || runs.iter().try_for_each(|options| passes(options));
        let case = Case::fallible(name, missing.clone(), run).expected(missing.is_none());
        if is_exact { case.beside(4) } else { case }
    };
    TRIALS.map(case).into()
}

fn passes(options: &str) -> Result<()> {
    let words: Vec<&str> = ["conformance"].into_iter().chain(options.split(' ')).collect();
    let output = run(Path::new("."), &words);
    judged(output.status.code(), &text(&output.stdout), &text(&output.stderr))
}

/// Every case of a run of conformance is there and passes, or is skipped.
pub(crate) fn judged(code: Option<i32>, tap: &str, said: &str) -> Result<()> {
    let failed: Vec<_> = tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
    let has_ended_well = code == Some(0) && failed.is_empty() && tap.lines().any(|line| line.starts_with("ok 1 - "));
    ensure!(has_ended_well, "exit {code:?}: {said}\n{}", failed.join("\n"));
    Ok(())
}
