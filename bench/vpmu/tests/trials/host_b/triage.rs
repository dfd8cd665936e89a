//! The workloads of triage in a Linux guest, whose vPMU has hardware events.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::{UNPACKED, job, linux};
use super::machine::Job;
use super::parts::Parts;

/// `vpmu triage` in a guest counts hardware events, samples by them, and takes the clock that stands in their place for
/// what it is. Two rounds have no interval, so that each ends inconclusive.
pub(crate) fn in_a_guest(parts: &Parts) -> Result<()> {
    let run = "--threads 2 --rounds 2 -F 50 -q --json; echo '==' $?";
    let script = format!(
        "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; \
         vpmu triage context-switch {run}; vpmu triage rand {run}; uname -r"
    );
    let options = "--memory 1G --append nmi_watchdog=0 --backend cpu-clock:20MHz --with /vpmu:/bin/vpmu";
    let [done] = Job { memory: "3G", ..job(parts)? }.command(linux(UNPACKED, options, &script)).run(parts)?;
    let [switches, rand, release] = done.succeeded()?.split("== ").collect::<Vec<_>>()[..] else {
        anyhow::bail!("{done:?}")
    };
    let rand = rand.strip_prefix("3\n").context("not inconclusive")?;
    let release = release.strip_prefix("3\n").context("not inconclusive")?.trim();
    for document in [switches, rand] {
        let document: Value = serde_json::from_str(document).with_context(|| done.said().into_owned())?;
        ensure!(document["host"]["kernel"].as_str() == Some(release), "{}", document["host"]);
        ensure!(document["status"] == "complete" && document["parameters"]["rounds"] == 2, "{document}");
        let arms = document["arms"].as_array().context("no arms")?;
        let rate = |event: &str| arms[3]["metrics"][format!("events/{event}/per_s")]["max"].as_u64();
        for event in ["cycles", "instructions", "branches", "branch-misses", "task-clock"] {
            ensure!(rate(event) > Some(0), "{event}: {}", arms[3]);
        }
        let notes = arms[0]["notes"].to_string();
        ensure!(notes.contains("in the place of hardware events"), "{notes}");
        // Which event it chooses depends on how often this machine lets the guest switch; it is one that was counted.
        let chosen = document["parameters"]["sampled_by"].as_str().context("no choice")?;
        ensure!(rate(chosen).is_some(), "{chosen}: {}", arms[3]);
        ensure!(arms[5]["metrics"]["samples"]["max"].as_u64() > Some(0), "{notes}");
    }
    Ok(())
}
