//! Boots of the nest that take minutes: nightly.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::machine::Clock;
use super::super::parts::Parts;
use super::{
    HOST_PERIOD, MARK, Middle, PERIOD, UNTHROTTLED, job, middle, middle_host, middle_host_with, probed, script,
};

/// `nmi-latency` on hardware events in the middle host, its document alone.
fn latency(options: &str) -> String {
    limited("300s", options)
}

fn limited(limit: &str, options: &str) -> String {
    format!(
        "vpmu nmi-latency --backend hardware --cpu milan --warmup 0 --rounds 1 --time-limit {limit} --no-save --quiet --json {options}"
    )
}

/// A document, whatever the exit code, which is returned beside it.
fn document(text: &str) -> Result<(Value, u8)> {
    let (document, status) = text.split_once(MARK).context("no status")?;
    let status = status.trim().strip_prefix("status ").context("no status")?;
    Ok((serde_json::from_str(document)?, status.parse()?))
}

fn warnings(document: &Value) -> String {
    let list = document["warnings"].as_array().into_iter().flatten();
    list.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Two boots of one RAM disk by the instruction clock give the same document, to the byte.
pub(crate) fn two_runs_are_equal(parts: &Parts) -> Result<()> {
    let job = job(parts)?.command(middle_host(&script(&probed(), "recreate,reuse", 1, 20, PERIOD, "")));
    let (first, second) = (job.run(parts)?, job.run(parts)?);
    first.say("power-on to power-off, first");
    second.say("power-on to power-off, second");
    middle(&first, 0)?;
    ensure!(first.commands[0].stdout == second.commands[0].stdout, "two boots gave different documents");
    Ok(())
}

/// Over 10 000 PMIs on hardware events, of every strategy, by the host's time: none is lost, and only `recreate` opens events.
pub(crate) fn ten_thousand(parts: &Parts) -> Result<()> {
    const SAMPLES: u64 = 1450;
    let mut all = 0;
    for strategy in ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate"] {
        let run = latency(&format!("--strategy {strategy} --samples {SAMPLES} --period {HOST_PERIOD}"));
        let report = job(parts)?
            .clock(Clock::Host)
            .command(middle_host(&format!("{UNTHROTTLED}; {run}; echo '{MARK}status' $?; echo '{MARK}calls'")))
            .run(parts)?;
        let found = middle(&report, 0)?;
        let arm = found.arm(strategy)?;
        let nmis = arm["nmis"].as_u64().context("NMIs")?;
        eprintln!("# {strategy}: {nmis} NMIs, {}", arm["host_ops"]);
        ensure!(nmis >= SAMPLES && arm["lost"] == 0 && arm["overflows_lost"] == 0, "{strategy}: {arm}");
        let opens = arm["host_ops"]["open"]["count"].as_u64().context("opens")?;
        let expected = if strategy == "recreate" { nmis..=nmis + 1 } else { 1..=1 };
        ensure!(expected.contains(&opens), "{strategy}: {opens} opens, {nmis} NMIs");
        all += nmis;
    }
    eprintln!("# {all} PMIs on hardware events");
    ensure!(all >= 10_000, "{all} PMIs");
    Ok(())
}

/// Losses by the host are in the document and on the screen: throttled events, and pinned ones that get no counter.
pub(crate) fn failures_are_said(parts: &Parts) -> Result<()> {
    // In this order: a kernel that may not lower the rate refuses to have it set.
    let throttle = format!("echo 100 >/proc/sys/kernel/perf_event_max_sample_rate; {UNTHROTTLED}");
    let script = |before: &str, run: &str| format!("{before}; {run}; echo '{MARK}status' $?");
    // Six events for all tasks of the CPU, pinned: they have all six counters.
    let all = ["cycles:D"; 6].join(",");
    let pinned = format!("perf stat -a -o /dev/null -e {all} sleep 1000 & sleep 1");
    let throttled = job(parts)?
        .command(middle_host(&script(&throttle, &limited("2s", "--strategy reuse,gate --samples 20 --period 1000000"))))
        .run(parts)?;
    throttled.say("power-on to power-off, throttled");
    let pinned = job(parts)?
        .clock(Clock::Host)
        .binary("/usr/bin/perf", Path::new("/usr/bin/perf"))
        .command(middle_host_with(
            "milan",
            &["--with", "/usr/bin/perf"],
            // Without a counter the guest waits until then.
            &script(&pinned, &limited("10s", "--strategy reuse --samples 20 --period 20000000")),
        ))
        .run(parts)?;
    pinned.say("power-on to power-off, pinned");
    let (throttled, code) = document(throttled.commands[0].text()?)?;
    ensure!(code == 3 && warnings(&throttled).contains("throttled"), "exit {code}: {}", warnings(&throttled));
    let (pinned, code) = document(pinned.commands[0].text()?)?;
    ensure!(code != 0 && warnings(&pinned).contains("pinned"), "exit {code}: {}", warnings(&pinned));
    Ok(())
}

/// A model of hardware events: of a PMU, with its counters, labelled as what it was measured on, and the simulator takes it.
pub(crate) fn hardware_is_calibrated(parts: &Parts) -> Result<()> {
    let run = format!(
        "{UNTHROTTLED}; vpmu calibrate --backend hardware --rounds 2 --samples 10 --quiet -o /tmp/model.toml >/tmp/said && cat /tmp/model.toml; \
         echo '{MARK}'; vpmu sim /tmp/model.toml --strategy reuse --rounds 1 --no-save --quiet --json"
    );
    // Genoa counts reference cycles.
    let report = job(parts)?.command(middle_host_with("genoa", &["--msr-cost", "100"], &run)).run(parts)?;
    report.say("power-on to power-off");
    let done = &report.commands[0];
    ensure!(done.status == 0, "exit {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let (model, simulated) = done.text()?.split_once(MARK).context("no model")?;
    for line in model.lines().filter(|line| line.contains("measured") || line.contains("solved")) {
        eprintln!("# {line}");
    }
    for needle in
        ["modelled register cost", "events by hardware", "counters = { value = 6,", "follow = \"thread-time\""]
    {
        ensure!(model.contains(needle), "no {needle:?} in {model}");
    }
    let document: Value = serde_json::from_str(simulated)?;
    let arms = document["arms"].as_array().context("arms")?;
    ensure!(arms.iter().any(|arm| arm["strategy"] == "reuse" && arm["lost"] == 0), "{document}");
    Ok(())
}

/// A register access that costs what a processor's does: the handler takes less than with the exits' own cost.
pub(crate) fn registers_cost_what_is_modelled(parts: &Parts) -> Result<()> {
    let run = format!(
        "{}; echo '{MARK}status' $?; echo '{MARK}calls'",
        latency("--strategy reuse --samples 30 --period 4000000")
    );
    let report = job(parts)?
        .command(middle_host(&run))
        .command(middle_host_with("milan", &["--msr-cost", "100"], &run))
        .command(middle_host_with("milan", &["--msr-cost", "100", "--vcpus", "2"], "true"))
        .run(parts)?;
    report.say("power-on to power-off");
    let p50 = |found: &Middle| found.arm("kvm")?["metrics"]["nmi_handler_ns"]["p50"].as_f64().context("p50");
    let (plain, modelled) = (middle(&report, 0)?, middle(&report, 1)?);
    eprintln!(
        "# handler of arm kvm: {} ns, with a modelled register cost of 100 ns {} ns",
        p50(&plain)?,
        p50(&modelled)?
    );
    ensure!(p50(&modelled)? < p50(&plain)?, "{} against {} ns", p50(&modelled)?, p50(&plain)?);
    let class = modelled.document["host"]["class"].as_str().context("class")?;
    ensure!(class.contains("modelled register cost of 100 ns"), "{class}");
    let said = String::from_utf8_lossy(&report.commands[1].stderr);
    ensure!(said.contains("the guest's TSC was held back"), "{said}");
    let two = &report.commands[2];
    ensure!(two.status == 2 && String::from_utf8_lossy(&two.stderr).contains("--vcpus 1"), "{two:?}");
    Ok(())
}
