//! The workloads of triage in a Linux guest, whose vPMU has hardware events.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::{UNPACKED, job, linux, text};
use super::parts::Parts;

/// Between two accounts.
const MARK: &str = "== next\n";

/// `vpmu triage` in a guest counts hardware events, samples by them, and takes the clock that stands in their place for what it is. Two rounds have no interval,
/// so that each ends inconclusive.
pub(crate) fn in_a_guest(parts: &Parts) -> Result<()> {
    let line = "--threads 2 --rounds 2 --turn 500ms -F 20 -q --json";
    let script = format!(
        "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; uname -r; echo '{mark}'; vpmu triage context-switch {line}; s=$?; echo '{mark}'; \
         vpmu triage rand --event cycles {line}; t=$?; echo '{mark}'; echo status $s $t",
        mark = MARK.trim_end()
    );
    let options =
        ["--memory", "1G", "--append", "nmi_watchdog=0", "--backend", "cpu-clock:20MHz", "--with", "/vpmu:/bin/vpmu"];
    let report = job(parts)?.memory("3G").command(linux(UNPACKED, &options, &script)).run(parts)?;
    report.say("boot to power-off");
    let said = String::from_utf8_lossy(&report.commands[0].stderr);
    let out = text(&report.commands[0])?;
    let parts_of: Vec<&str> = out.split(MARK).collect();
    let [release, switches, rand, status] = parts_of[..] else { anyhow::bail!("{out} {said}") };
    ensure!(status.trim() == "status 3 3", "{status}: {said}");
    let [switches, rand] = [switches, rand].map(serde_json::from_str::<Value>);
    let (switches, rand) = (switches.context("JSON")?, rand.context("JSON")?);
    for account in [&switches, &rand] {
        ensure!(account["subject"]["kernel"].as_str() == Some(release.trim()), "{}", account["subject"]);
        ensure!(account["status"] == "complete" && account["rounds"] == 2, "{account}");
        let rate = |name: &str| {
            let rows = account["events"].as_array()?;
            rows.iter().find(|row| row["event"] == name)?["workload"]["per_second"].as_f64()
        };
        for event in ["cycles", "instructions", "branches", "branch-misses", "task-clock"] {
            ensure!(rate(event).is_some_and(|rate| rate > 0.0), "{event}: {}", account["events"]);
        }
        let notes = account["notes"].to_string();
        ensure!(notes.contains("in the place of hardware events"), "{notes}");
        ensure!(account["verdict"].as_array().is_some_and(|verdict| verdict.len() == 3), "{account}");
    }
    // Which event it chooses depends on how often this machine lets the guest switch; it is one that was counted.
    let chosen = switches["choice"]["event"].as_str().context("no choice")?;
    let rows = switches["events"].as_array().context("no events")?;
    ensure!(rows.iter().any(|row| row["event"] == chosen && row["not_counted"].is_null()), "{}", switches["choice"]);
    let sampling = &rand["sampling"];
    ensure!(rand["choice"]["event"] == "cycles" && sampling["samples"].as_u64() > Some(0), "{rand}");
    eprintln!(
        "# rand in a guest: {} samples by cycles, {} complete; {}",
        sampling["samples"], sampling["complete"], rand["verdict"][1]
    );
    Ok(())
}
