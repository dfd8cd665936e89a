//! The workloads of triage in a Linux guest, whose vPMU has hardware events.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::{UNPACKED, job, linux};
use super::parts::Parts;

/// Between two documents.
const MARK: &str = "== next\n";

/// `vpmu triage` in a guest counts hardware events, samples by them, and takes the clock that stands in their place for
/// what it is. Two rounds have no interval, so that each ends inconclusive.
pub(crate) fn in_a_guest(parts: &Parts) -> Result<()> {
    let line = "--threads 2 --rounds 2 -F 50 -q --json";
    let script = format!(
        "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; uname -r; echo '{mark}'; vpmu triage context-switch {line}; s=$?; echo '{mark}'; \
         vpmu triage rand {line}; t=$?; echo '{mark}'; echo status $s $t",
        mark = MARK.trim_end()
    );
    let options =
        ["--memory", "1G", "--append", "nmi_watchdog=0", "--backend", "cpu-clock:20MHz", "--with", "/vpmu:/bin/vpmu"];
    let report = job(parts)?.memory("3G").command(linux(UNPACKED, &options, &script)).run(parts)?;
    report.say("boot to power-off");
    let said = report.commands[0].said();
    let out = report.commands[0].succeeded()?;
    let parts_of: Vec<&str> = out.split(MARK).collect();
    let [release, switches, rand, status] = parts_of[..] else { anyhow::bail!("{out} {said}") };
    ensure!(status.trim() == "status 3 3", "{status}: {said}");
    let [switches, rand] = [switches, rand].map(serde_json::from_str::<Value>);
    let (switches, rand) = (switches.context("JSON")?, rand.context("JSON")?);
    for document in [&switches, &rand] {
        ensure!(document["host"]["kernel"].as_str() == Some(release.trim()), "{}", document["host"]);
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
        eprintln!("# {} in a guest: {}", arms[0]["strategy"], arms[5]["notes"]);
    }
    Ok(())
}
