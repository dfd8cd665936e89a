//! `vpmu doctor` and `vpmu nmi-latency` on stock KVM, and counts that repeat where time is the count of instructions.

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
    report.say("boot to power-off");
    let [doctor, measured] = &report.commands[..] else {
        anyhow::bail!("{} commands came back", report.commands.len());
    };
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
        ensure!(arm["lost"] == 0 && arm["overflows_lost"] == 0, "{strategy}: lost {}", arm["lost"]);
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
