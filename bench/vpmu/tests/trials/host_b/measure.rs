//! `vpmu doctor` and `vpmu nmi-latency` on stock KVM, and counts that repeat where time is the count of instructions.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::machine::{Clock, Job};
use super::parts::Parts;

const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");
const SHORT: [&str; 14] = [
    "/vpmu",
    "nmi-latency",
    "--backend",
    "cpu-clock",
    "--rounds",
    "1",
    "--warmup",
    "0",
    "--samples",
    "15",
    "--time-limit",
    "10s",
    "--no-save",
    "--json",
];
/// 20 ms of cycles: an exit takes a quarter of a millisecond there.
const PERIOD: [&str; 3] = ["--period", "40000000", "--quiet"];

fn run(parts: &Parts, clock: Clock) -> Result<(Value, Value)> {
    let report = Job::new()
        .binary("/vpmu", VPMU.as_ref())
        .clock(clock)
        .limit(std::time::Duration::from_secs(400))
        .command(["/vpmu", "doctor", "--json"])
        .command([&SHORT[..], &PERIOD].concat())
        .run(parts)?;
    let [doctor, measured] = report.done()?;
    for command in [doctor, measured] {
        ensure!(command.status == 0, "exit {}: {}", command.status, String::from_utf8_lossy(&command.stderr));
    }
    let json = |text: &str| serde_json::from_str(text).context("a JSON document");
    Ok((json(doctor.text()?)?, json(measured.text()?)?))
}

fn arm<'a>(document: &'a Value, strategy: &str) -> Result<&'a Value> {
    let arms = document["arms"].as_array().context("arms")?;
    arms.iter().find(|arm| arm["strategy"] == strategy).with_context(|| format!("no arm {strategy}"))
}

/// Nothing here depends on the development host's KVM.
pub(crate) fn stock_kvm(parts: &Parts) -> Result<()> {
    let (doctor, document) = run(parts, Clock::Host)?;
    ensure!(doctor.to_string().contains("kvm_amd"), "the doctor names the KVM it found: {doctor}");
    ensure!(document["status"] == "complete", "{}", document["warnings"]);
    for strategy in ["recreate", "reuse", "reuse-lazy", "floor"] {
        let arm = arm(&document, strategy)?;
        let handler = &arm["metrics"]["nmi_handler_ns"];
        eprintln!("# {strategy}: {} NMIs, handler p50 {} ns", handler["count"], handler["p50"]);
        ensure!(handler["count"].as_u64() >= Some(15), "{strategy}: {handler}");
        ensure!(
            arm["left_out"].is_null() && arm["lost"] == 0 && arm["overflows_lost"] == 0,
            "{strategy}: lost {}",
            arm["lost"]
        );
    }
    ensure!(arm(&document, "reuse")?["host_ops"]["open"]["count"] == 1, "reuse opens once");
    ensure!(arm(&document, "recreate")?["host_ops"]["open"]["count"].as_u64() > Some(15), "recreate opens per PMI");
    Ok(())
}

/// Two boots under the instruction clock agree to the last operation.
pub(crate) fn counts_repeat(parts: &Parts) -> Result<()> {
    let counts = |document: &Value| -> Result<Vec<String>> {
        ["recreate", "reuse", "reuse-lazy", "floor"]
            .iter()
            .map(|strategy| {
                let arm = arm(document, strategy)?;
                let opens = &arm["host_ops"]["open"]["count"];
                let (nmis, overflows, exits) = (&arm["nmis"], &arm["overflows"], &arm["msr_exits"]);
                let (entries, handler) = (&arm["entries"], &arm["metrics"]["nmi_handler_ns"]);
                let times = format!("{} {} {}", handler["min"], handler["p50"], handler["max"]);
                Ok(format!(
                    "{strategy}: {nmis} NMIs of {times} ns, {overflows} overflows, {opens} opens, {entries} entries, \
                     exits {exits}"
                ))
            })
            .collect()
    };
    let (first, second) = (counts(&run(parts, Clock::Instructions)?.1)?, counts(&run(parts, Clock::Instructions)?.1)?);
    for line in &first {
        eprintln!("# {line}");
    }
    ensure!(first == second, "counts differ between two boots: {first:#?} {second:#?}");
    Ok(())
}

// `vpmu conformance` on stock KVM, and the same lines as on this machine's.

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
        let [there] = report.done()?;
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
