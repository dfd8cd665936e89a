//! `vpmu doctor`, `vpmu nmi-latency` and `vpmu conformance` on stock KVM.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::frames::Finished;
use super::machine::Job;
use super::parts::Parts;
use crate::binary::VPMU;
use crate::conformance::judged;

/// 20 ms of cycles: an exit takes a quarter of a millisecond there.
pub(super) const SHORT: &str = "/vpmu nmi-latency --backend cpu-clock --rounds 1 --warmup 0 --samples 15 --time-limit 10s --no-save --json \
     --period 40000000 --quiet";

/// Returns an arm of a document.
pub(super) fn arm<'a>(document: &'a Value, name: &str) -> Result<&'a Value> {
    let arms = document["arms"].as_array().context("arms")?;
    let arm = arms.iter().find(|arm| arm["arm"] == name);
    arm.with_context(|| format!("no arm {name}: {}", document["warnings"]))
}

/// Returns the NMIs of an arm, and prints it.
pub(super) fn show(what: &str, document: &Value, name: &str) -> Result<u64> {
    let metrics = &arm(document, name)?["metrics"];
    let [handler, delivery] = ["nmi_handler_ns", "pmi_delivery_ns"].map(|key| &metrics[key]);
    let nmis = handler["count"].as_u64().with_context(|| format!("{name}: {handler}"))?;
    let (handler, delivery) = (&handler["p50"], &delivery["p50"]);
    eprintln!("# {what}, {name}: {nmis} NMIs, p50 {handler} ns, from overflow to handler {delivery} ns");
    Ok(nmis)
}

/// Looks whether each of these arms has so many NMIs, and lost nothing.
pub(super) fn whole<'a>(
    what: &str,
    document: &Value,
    names: impl IntoIterator<Item = &'a str>,
    least: u64,
) -> Result<()> {
    for name in names {
        let nmis = show(what, document, name)?;
        let arm = arm(document, name)?;
        ensure!(nmis >= least, "{name}: {arm}");
        lost_nothing(arm)?;
    }
    Ok(())
}

/// Looks whether an arm has all its rounds, PMIs and overflows.
pub(super) fn lost_nothing(arm: &Value) -> Result<()> {
    ensure!(arm["left_out"].is_null() && arm["lost"] == 0 && arm["overflows_lost"] == 0, "{arm}");
    Ok(())
}

/// Nothing here depends on the development host's KVM.
pub(crate) fn stock_kvm(parts: &Parts) -> Result<()> {
    let job = Job::new(VPMU).command(["/vpmu", "doctor", "--json"]).command(SHORT.split(' '));
    let [doctor, measured] = job.run(parts)?;
    doctor.succeeded().and(measured.succeeded())?;
    let (doctor, document) = (doctor.json()?, measured.json()?);
    ensure!(doctor.to_string().contains("kvm_amd"), "the doctor names the KVM it found: {doctor}");
    ensure!(document["status"] == "complete", "{}", document["warnings"]);
    whole("stock KVM", &document, ["recreate", "reuse", "reuse-lazy", "gate", "floor"], 15)?;
    ensure!(arm(&document, "reuse")?["host_ops"]["open"]["count"] == 1, "reuse opens once");
    ensure!(arm(&document, "recreate")?["host_ops"]["open"]["count"].as_u64() > Some(15), "recreate opens per PMI");
    Ok(())
}

/// `vpmu conformance` with these options on stock KVM.
pub(crate) fn conformance(parts: &Parts, options: &str) -> Result<()> {
    let [there] = Job::new(VPMU).command(format!("/vpmu conformance {options}").split(' ')).run(parts)?;
    for line in there.text()?.lines().filter(|line| !line.starts_with("    ")) {
        eprintln!("{line}");
    }
    passes(&there)
}

/// Checks the TAP of a run that is over.
pub(super) fn passes(done: &Finished) -> Result<()> {
    judged(Some(done.status), done.text()?, &done.said())
}
