//! `vpmu conformance` on stock KVM, and the same lines as on this machine's.

use std::sync::OnceLock;

use anyhow::{Result, ensure};

use super::machine::Job;
use super::parts::Parts;

const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");

/// A set of conformance options, and its TAP from stock KVM once it ran there.
struct Suite {
    options: &'static [&'static str],
    stock: OnceLock<Result<String, String>>,
}

/// Every strategy, by the stand-in that any host has. A boot per version: less is lost with one that hangs.
static VERSION_2: Suite = Suite::new(&["--backend", "cpu-clock", "--pmu-version", "2"]);
static VERSION_4: Suite = Suite::new(&["--backend", "cpu-clock", "--pmu-version", "4"]);

/// Exact counts. A guest instruction is several exits there, a quarter of a millisecond each: two strategies only.
static STEP: Suite = Suite::new(&["--backend", "step", "--strategy", "recreate,deferred", "--pmu-version", "4"]);

impl Suite {
    const fn new(options: &'static [&'static str]) -> Self {
        Self { options, stock: OnceLock::new() }
    }

    fn boot(&self, parts: &Parts) -> Result<String> {
        let words = [&["/vpmu", "conformance"], self.options].concat();
        let report = Job::new()
            .binary("/vpmu", VPMU.as_ref())
            .limit(std::time::Duration::from_secs(600))
            .command(words)
            .run(parts)?;
        report.say("boot to power-off");
        let [there] = &report.commands[..] else {
            anyhow::bail!("{} commands came back", report.commands.len());
        };
        let tap = there.text()?;
        for line in tap.lines().filter(|line| !line.starts_with("    ")) {
            eprintln!("{line}");
        }
        let complaints: Vec<_> =
            tap.lines().filter(|line| line.contains("not ok") || line.starts_with("      ")).collect();
        let said = String::from_utf8_lossy(&there.stderr);
        ensure!(there.status == 0, "exit {}: {said}\n{}", there.status, complaints.join("\n"));
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        Ok(tap.to_owned())
    }

    fn on_stock_kvm(&self, parts: &Parts) -> Result<&str> {
        let run = || self.boot(parts).map_err(|error| format!("{error:#}"));
        self.stock.get_or_init(run).as_deref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn is_the_same_here(&self, parts: &Parts) -> Result<()> {
        let tap = self.on_stock_kvm(parts)?;
        let here = std::process::Command::new(VPMU).arg("conformance").args(self.options).output()?;
        let here = String::from_utf8_lossy(&here.stdout).into_owned();
        let differing: Vec<_> = here.lines().zip(tap.lines()).filter(|(here, there)| here != there).collect();
        ensure!(here == tap, "this machine's KVM and stock KVM differ: {differing:#?}");
        Ok(())
    }
}

pub(crate) fn version_2(parts: &Parts) -> Result<()> {
    VERSION_2.on_stock_kvm(parts).map(drop)
}

pub(crate) fn version_2_here(parts: &Parts) -> Result<()> {
    VERSION_2.is_the_same_here(parts)
}

pub(crate) fn version_4(parts: &Parts) -> Result<()> {
    VERSION_4.on_stock_kvm(parts).map(drop)
}

pub(crate) fn version_4_here(parts: &Parts) -> Result<()> {
    VERSION_4.is_the_same_here(parts)
}

pub(crate) fn step(parts: &Parts) -> Result<()> {
    STEP.on_stock_kvm(parts).map(drop)
}

pub(crate) fn step_here(parts: &Parts) -> Result<()> {
    STEP.is_the_same_here(parts)
}
