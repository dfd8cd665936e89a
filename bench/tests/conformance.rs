//! `vpmu conformance` on this machine's KVM; without one every trial is listed as ignored, with a `SKIP` line.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// Every strategy over the stand-in and over exact counts; the floor, which has no strategies.
const TRIALS: [(&str, &[&str]); 3] = [
    ("conformance::cpu_clock", &["--backend", "cpu-clock"]),
    ("conformance::step", &["--backend", "step"]),
    ("conformance::floor", &["--backend", "none"]),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Stand-ins count time: two guests at once only make both slow.
    arguments.test_threads = Some(1);
    let kvm = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if let Err(why) = &kvm {
        eprintln!("SKIP: no guest can run here: /dev/kvm: {why}");
    }
    let trial = |(name, options): (&'static str, &'static [&'static str])| {
        Trial::test(name, move || passes(options)).with_ignored_flag(kvm.is_err())
    };
    libtest_mimic::run(&arguments, TRIALS.into_iter().map(trial).collect()).exit_code()
}

fn passes(options: &[&str]) -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_vpmu")).arg("conformance").args(options).output()?;
    let tap = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
    if output.status.code() == Some(0) && failed.is_empty() && tap.lines().any(|line| line.starts_with("ok 1 - ")) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}\n{}", output.status, failed.join("\n")).into())
}
