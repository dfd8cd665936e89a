//! Many events on many emulated CPUs: calls of each strategy and phase against their formulas, perf's own calls against the model's,
//! and the fate of each event against perf's. Times mean nothing here: the CPUs are threads of few.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stat_setup::model::{MOVES, Shape};

use super::machine::Job;
use super::parts::Parts;

const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");
const PERF: &str = "/usr/bin/perf";
/// Ten events: four alone, and three weak groups of two.
const TEN: &str = "cs,faults,cpu-clock,dummy,{cs,dummy}:W,{faults,task-clock}:W,{cs,migrations}:W";
const SHAPE: Shape = Shape { leaders: 7, grouped: 6 };
/// An event of every kind above stays open: the kernel patches its code on every CPU where a kind's first event is opened and
/// its last one closed, which is in no formula, and which the emulator does not always survive.
const KINDS: &str = "cs,faults,cpu-clock,dummy,task-clock,migrations";
/// Events that there are and that there are not, alone and in groups.
const FATES: &str = "cs,cycles,cpu-clock,instructions,{dummy,task-clock}:W,faults:u,{cs,faults}:W,cache-misses";
const KINDS_OF_CALLS: [&str; 5] = ["perf_event_open", "ioctl", "read", "close", "sched_setaffinity"];

pub(crate) fn sixteen(parts: &Parts) -> Result<()> {
    trial(parts, 16, "16", 40)
}

pub(crate) fn ninety_four(parts: &Parts) -> Result<()> {
    trial(parts, 94, "94", 70)
}

/// Options of one set-up.
const ONE: &str = "--no-save --rounds 1 --json";

/// Sets up `events` events in a machine of `cpus` CPUs.
fn trial(parts: &Parts, cpus: u64, smp: &str, events: u32) -> Result<()> {
    ensure!(Path::new(PERF).is_file(), "no perf at {PERF}; install linux-perf");
    let list = vec![TEN; events as usize / 10].join(",");
    let names: Vec<String> = KINDS_OF_CALLS.iter().map(|call| format!("syscalls:sys_enter_{call}")).collect();
    let counted = |what: &str| {
        format!(
            "{PERF} stat -x, -o /run/calls -e {} -- {PERF} stat {what} -- true 2>/dev/null; cat /run/calls",
            names.join(",")
        )
    };
    let (own, nothing) = (counted(&format!("-a -x, -o /dev/null -e '{list}'")), counted("-n"));
    let keep_keys =
        format!("{PERF} stat -a -o /dev/null -e {KINDS} -- sleep 100000 </dev/null >/dev/null 2>&1 & sleep 5");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let set_up = "/vpmu stat-setup --quiet --events";
    // Of one table for all CPUs a quarter fits; root may raise the hard limit, as perf does.
    let limited =
        format!("ulimit -Hn {}; {set_up} '{list}' {ONE} --strategy event-major", cpus * u64::from(events) / 4);
    let fates = format!("{PERF} stat -a -x, -o /run/fates -e '{FATES}' -- true; cat /run/fates");
    let against = format!(
        "PATH=/usr/bin:/bin:$PATH; export PATH; {set_up} {events} --rounds 5 --no-save --strategy auto --against perf"
    );
    let report = Job::new()
        .cpus(smp)
        .memory(if cpus > 16 { "6G" } else { "2G" })
        .limit(Duration::from_secs(30 * cpus.max(20)))
        .silence(Duration::from_secs(10 * cpus.max(20)))
        .binary("/vpmu", VPMU.as_ref())
        .binary(PERF, PERF.as_ref())
        .command(["sh", "-c", &keep_keys])
        .command(words(&format!("{set_up} {list} --rounds 1 --no-save --json")))
        .command(["sh", "-c", &own])
        .command(["sh", "-c", &nothing])
        .command(words(&format!("{set_up} {FATES} {ONE} --strategy auto")))
        .command(["sh", "-c", &fates])
        .command(["sh", "-c", &limited])
        .command(["sh", "-c", &against])
        .run(parts)?;
    let [held, set_up, own, nothing, once, fates, limited, against] = report.done()?;
    held.succeeded()?;
    strategies(&set_up.json()?, cpus, events.into())?;
    let [own, nothing] = [calls(own.text()?)?, calls(nothing.text()?)?];
    perf_makes_the_models_calls(own, nothing, cpus, events)?;
    let perfs = fate(fates.text()?);
    let is_counted = |fate: &&(String, String)| fate.1 == "counted";
    ensure!(perfs.len() == 10 && perfs.iter().filter(is_counted).count() == 7, "{perfs:?}");
    let said = once.text()?;
    ensure!(said.contains("\"7 events counted on ") && once.status == 3, "exit {}: {said}", once.status);
    let said = limited.text()?;
    ensure!(said.contains(&format!("\"{events} events counted on ")), "exit {}: {said}", limited.status);
    let said = against.said();
    let against = against.text()?;
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
    for arm in arms.iter().filter(|arm| arm["backend"] == "perf_event_open" && arm["strategy"] != "bare calls") {
        let name = arm["strategy"].as_str().context("a name")?;
        let notes = arm["notes"].to_string();
        ensure!(
            notes.contains(&format!("{events} events counted on {} descriptors", events * cpus)),
            "{name}: {notes}"
        );
        ensure!(!notes.contains("WRONG"), "{name}: {notes}");
        let calls = |phase: &str| arm["metrics"][format!("phases/{phase}/call_ns")]["count"].as_u64();
        let calls = ["open", "enable", "read", "disable", "close"].map(calls);
        eprintln!("# {cpus} CPUs, {events} events, {name}: calls {calls:?}");
        let of_groups = [events, leaders, leaders, leaders, events].map(|calls| Some(calls * cpus));
        let is_packed = matches!(name, "packed" | "auto");
        ensure!((calls == of_groups) != is_packed && calls[1] <= of_groups[1], "{name}: {calls:?}, {of_groups:?}");
    }
    Ok(())
}

/// Calls of perf, by kind.
fn calls(text: &str) -> Result<[u64; 5]> {
    let mut found = [0; 5];
    for (at, call) in KINDS_OF_CALLS.iter().enumerate() {
        let line = text.lines().find(|line| line.contains(&format!("sys_enter_{call}")));
        let count = line.and_then(|line| line.split(',').next()?.parse().ok());
        found[at] = count.with_context(|| format!("no {call} in {text}"))?;
    }
    Ok(found)
}

fn perf_makes_the_models_calls(own: [u64; 5], nothing: [u64; 5], cpus: u64, events: u32) -> Result<()> {
    let of_a_cpu = SHAPE.calls(events);
    for (at, of_a_cpu) in of_a_cpu.into_iter().enumerate() {
        let (seen, expected) = (own[at].saturating_sub(nothing[at]), cpus * of_a_cpu);
        eprintln!("# perf on {cpus} CPUs, {events} events: {seen} {}, by the model {expected}", KINDS_OF_CALLS[at]);
        // A probe of what the kernel can do, files, and opens again under a raised limit.
        ensure!(seen >= expected && seen <= expected + 2 * cpus, "{}: {seen} of {expected}", KINDS_OF_CALLS[at]);
    }
    let moves = u64::from(MOVES) * (cpus + 1);
    ensure!(own[4] == moves, "{} affinity calls, {MOVES} to each CPU and back are {moves}", own[4]);
    Ok(())
}

/// Name and fate of each event of `perf stat -x,`.
fn fate(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>()).filter(|fields| fields.len() > 4);
    let fate = |count: &str| if count.starts_with('<') { count.to_owned() } else { "counted".to_owned() };
    lines.map(|fields| (fields[2].to_owned(), fate(fields[0]))).collect()
}
