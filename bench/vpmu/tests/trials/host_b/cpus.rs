//! Many events on many emulated CPUs: calls of each strategy and phase against their formulas, perf's own calls against the model's,
//! and the fate of each event against perf's. Times mean nothing here: the CPUs are threads of few.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stat_setup::model::{MOVES, Shape};

use super::machine::Job;
use super::parts::{PERF, Parts};
use crate::binary::VPMU;

/// Ten events: four alone, and three weak groups of two.
const TEN: &str = "cs,faults,cpu-clock,dummy,{cs,dummy}:W,{faults,task-clock}:W,{cs,migrations}:W";
const SHAPE: Shape = Shape { leaders: 7, grouped: 6 };
/// An event of every kind above stays open: the kernel patches its code on every CPU where a kind's first event is opened and
/// its last one closed, which is in no formula, and which the emulator does not always survive.
const KINDS: &str = "cs,faults,cpu-clock,dummy,task-clock,migrations";
/// Events that there are and that there are not, alone and in groups.
const FATES: &str = "cs,cycles,cpu-clock,instructions,{dummy,task-clock}:W,faults:u,{cs,faults}:W,cache-misses";
const CALLS: [&str; 5] = ["perf_event_open", "ioctl", "read", "close", "sched_setaffinity"];

/// Options of one set-up.
const ONE: &str = "--no-save --rounds 1 --json";

/// Sets up `events` events in a machine of `cpus` CPUs.
pub(crate) fn trial(parts: &Parts, cpus: u64, events: u32) -> Result<()> {
    let list = vec![TEN; events as usize / 10].join(",");
    let names = CALLS.map(|call| format!("syscalls:sys_enter_{call}")).join(",");
    let counted = |what: &str| {
        format!("{PERF} stat -x, -o /run/calls -e {names} -- {PERF} stat {what} -- true 2>/dev/null; cat /run/calls")
    };
    let set_up = "/vpmu stat-setup --quiet --events";
    // Of one table for all CPUs a quarter fits; root may raise the hard limit, as perf does.
    let hard = cpus * u64::from(events) / 4;
    let job = Job {
        cpus,
        memory: if cpus > 16 { "6G" } else { "2G" },
        limit: 30 * cpus.max(20),
        silence: 10 * cpus.max(20),
        ..Job::new(VPMU)
    };
    let [held, set_up, own, nothing, once, fates, limited, against] = job
        .binary(PERF, PERF)
        .script(&format!("{PERF} stat -a -o /dev/null -e {KINDS} -- sleep 100000 </dev/null >/dev/null 2>&1 & sleep 5"))
        .script(&format!("{set_up} '{list}' --rounds 1 --no-save --json"))
        .script(&counted(&format!("-a -x, -o /dev/null -e '{list}'")))
        .script(&counted("-n"))
        .script(&format!("{set_up} '{FATES}' {ONE} --strategy auto"))
        .script(&format!("{PERF} stat -a -x, -o /run/fates -e '{FATES}' -- true; cat /run/fates"))
        .script(&format!("ulimit -Hn {hard}; {set_up} '{list}' {ONE} --strategy event-major"))
        .script(&format!(
            "PATH=/usr/bin:/bin:$PATH; export PATH; {set_up} {events} --rounds 5 --no-save --strategy auto --against perf"
        ))
        .run(parts)?;
    held.succeeded()?;
    strategies(&set_up.json()?, cpus, events.into())?;
    perf_makes_the_models_calls(calls(own.text()?)?, calls(nothing.text()?)?, cpus, events)?;
    let perfs = fate(fates.text()?);
    let counted = perfs.iter().filter(|fate| fate.1 == "counted").count();
    ensure!(perfs.len() == 10 && counted == 7, "{perfs:?}");
    let said = once.text()?;
    ensure!(said.contains("\"7 events counted on ") && once.status == 3, "exit {}: {said}", once.status);
    let said = limited.text()?;
    ensure!(said.contains(&format!("\"{events} events counted on ")), "exit {}: {said}", limited.status);
    let (said, against) = (against.said(), against.text()?);
    for line in against.lines().filter(|line| line.contains(" ÷ ") || line.contains("which counted")) {
        eprintln!("# {cpus} CPUs, {events} software events: {}", line.trim());
    }
    ensure!(against.contains(&format!("which counted {events} of {events} events")), "{against} {said}");
    Ok(())
}

/// All strategies agree, and make the calls of the formulas.
fn strategies(document: &Value, cpus: u64, events: u64) -> Result<()> {
    ensure!(document["status"] == "complete", "{}", document["status"]);
    let leaders = events * u64::from(SHAPE.leaders) / 10;
    let arms = document["arms"].as_array().context("arms")?;
    for arm in arms.iter().filter(|arm| arm["backend"] == "perf_event_open" && arm["arm"] != "bare calls") {
        let name = arm["arm"].as_str().context("a name")?;
        let notes = arm["notes"].to_string();
        let counted = format!("{events} events counted on {} descriptors", events * cpus);
        ensure!(notes.contains(&counted) && !notes.contains("WRONG"), "{name}: {notes}");
        let calls = ["open", "enable", "read", "disable", "close"]
            .map(|phase| arm["metrics"][format!("phases/{phase}/call_ns")]["count"].as_u64());
        eprintln!("# {cpus} CPUs, {events} events, {name}: calls {calls:?}");
        let of_groups = [events, leaders, leaders, leaders, events].map(|calls| Some(calls * cpus));
        let is_packed = matches!(name, "packed" | "auto");
        ensure!((calls == of_groups) != is_packed && calls[1] <= of_groups[1], "{name}: {calls:?}, {of_groups:?}");
    }
    Ok(())
}

/// Calls of perf, by kind.
fn calls(text: &str) -> Result<Vec<u64>> {
    let count = |call: &&str| {
        let line = text.lines().find(|line| line.contains(&format!("sys_enter_{call}")))?;
        line.split(',').next()?.parse().ok()
    };
    CALLS.iter().map(count).collect::<Option<_>>().with_context(|| text.to_owned())
}

fn perf_makes_the_models_calls(own: Vec<u64>, nothing: Vec<u64>, cpus: u64, events: u32) -> Result<()> {
    let moves = u64::from(MOVES) * (cpus + 1);
    ensure!(own[4] == moves, "{} affinity calls, {MOVES} to each CPU and back are {moves}", own[4]);
    let seen = own.into_iter().zip(nothing).map(|(own, nothing)| own.saturating_sub(nothing));
    for ((call, seen), of_a_cpu) in CALLS.iter().zip(seen).zip(SHAPE.calls(events)) {
        let expected = cpus * of_a_cpu;
        eprintln!("# perf on {cpus} CPUs, {events} events: {seen} {call}, by the model {expected}");
        // A probe of what the kernel can do, files, and opens again under a raised limit.
        ensure!(seen >= expected && seen <= expected + 2 * cpus, "{call}: {seen} of {expected}");
    }
    Ok(())
}

/// Name and fate of each event of `perf stat -x,`.
fn fate(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>()).filter(|fields| fields.len() > 4);
    lines.map(|fields| (fields[2], if fields[0].starts_with('<') { fields[0] } else { "counted" })).collect()
}
