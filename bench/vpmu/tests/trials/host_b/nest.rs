//! The nest: host B, in it a guest of this VMM that is a KVM host with an AMD's PMU, in that this tool: backend
//! `hardware`, and KVM's own vPMU, with the kernel's own code. Hardware events there count a clock.
//!
//! Trials that are to pass in every run have the host's time: with the instruction clock a boot that hangs hangs again at each try
//! (docs/evidence.md).

mod kernel_module;
mod releases;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Trial;
use super::frames::Finished;
use super::linux::{VIRTIO, linux};
use super::machine::Job;
use super::measure::{self, lost_nothing};
use super::parts::{PERF, Parts};

/// The presets but gate-pool, which is gate with parked events.
const STRATEGIES: &str = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate,virtual";
const KERNEL: &str = "/guest/vmlinuz";
/// Calls of KVM for its vPMU.
const CALLS: [&str; 4] =
    ["perf_event_create_kernel_counter", "perf_event_pause", "perf_event_period", "perf_event_enable"];
/// Options with the counts between two PMIs and a guest's limit, by the instruction clock and by the host's. A count is a nanosecond: by
/// the former a PMI takes a third of a millisecond there, by the latter up to ten. A guest whose vPMU loses its PMIs takes all of its
/// limit, as arm `kvm` on 5.10.
const PERIOD: &str = "--period 4000000 --time-limit 1s";
const HOST_PERIOD: &str = "--period 20000000 --time-limit 60s";
/// Separates what a script prints. No step of a conformance case has it.
const MARK: &str = "=== ";

pub(crate) fn trials(parts: Option<&Parts>) -> impl Iterator<Item = Trial> {
    kernel_module::trials(parts).into_iter().chain(releases::trials())
}

/// Counts the calls of its KVM from now on.
fn probed() -> String {
    let probes = CALLS.map(|call| format!("echo p:n/{call} {call} >>kprobe_events; ")).concat();
    format!("cd /sys/kernel/tracing && {probes} echo 1 >events/n/enable; cd /; ")
}

/// `nmi-latency` on hardware events in the middle host, one round of each arm unless `options` say otherwise: its document, exit code and
/// the calls of KVM that were counted.
fn latency(cpu: &str, options: &str) -> String {
    format!(
        "vpmu nmi-latency --backend hardware --cpu {cpu} --rounds 1 --warmup 0 --no-save --quiet --json {options}; \
         echo '{MARK}status' $?; echo '{MARK}calls'; cat /sys/kernel/tracing/kprobe_profile; "
    )
}

/// Host B, by the instruction clock, with the middle host's kernel and its modules for virtio and KVM. It has this tree's binary, or the
/// one that is named for boots of other kernels: a release build takes a third of the time.
fn job(middle: &Parts) -> Result<Job> {
    let named = std::env::var_os("VPMU_STATIC").map(PathBuf::from);
    let job =
        Job { by_instructions: true, memory: "3G", ..Job::new(named.unwrap_or_else(|| crate::binary::VPMU.into())) };
    Ok(job
        .file(KERNEL, 0o644, &std::fs::read(&middle.kernel)?)
        .modules(&middle.release(), &middle.needed(&VIRTIO)?)
        .modules(&middle.release(), &middle.modules))
}

/// The same by the host's time.
fn in_time(middle: &Parts) -> Result<Job> {
    Ok(Job { by_instructions: false, ..job(middle)? })
}

/// `vpmu linux` of the middle host, with options beside those that it needs. A slow host's kernel lowers its rate of samples, and
/// throttles what is above it: not here.
fn middle_host(cpu: &str, options: &str, script: &str) -> Vec<String> {
    let load = if options.contains("--load") { "" } else { "--load kvm-amd" };
    let options =
        format!("--nested --backend cpu-clock --memory 1G --with /vpmu:/bin/vpmu --cpu {cpu} {load} {options}");
    linux(KERNEL, &options, &format!("echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; {script}"))
}

/// Output of [`latency`].
struct Middle {
    document: Value,
    status: String,
    /// Counts of [`CALLS`]; `None` where the kernel lets none be probed (seen: Debian's 5.10).
    calls: [Option<u64>; CALLS.len()],
}

impl Middle {
    fn of(printed: &str) -> Result<Self> {
        let [document, status, profile, ..] = printed.split(MARK).collect::<Vec<_>>()[..] else {
            anyhow::bail!("{printed}")
        };
        let calls = CALLS.map(|call| {
            let line = profile.lines().find(|line| line.split_whitespace().next() == Some(call))?;
            line.split_whitespace().nth(1)?.parse().ok()
        });
        let document = serde_json::from_str(document).with_context(|| printed.to_owned())?;
        Ok(Self { document, status: status.trim().to_owned(), calls })
    }

    /// Of a command that succeeded. Inconclusive is what a host may throttle; what was lost is looked at by arm.
    fn after(done: &Finished) -> Result<Self> {
        let found = Self::of(done.succeeded()?)?;
        ensure!(matches!(&*found.status, "status 0" | "status 3"), "{}: {}", found.status, found.document);
        Ok(found)
    }

    fn arm(&self, name: &str) -> Result<&Value> {
        measure::arm(&self.document, name)
    }

    /// NMIs of an arm.
    fn nmis(&self, name: &str) -> Result<u64> {
        measure::show("the middle host", &self.document, name)
    }
}

/// Backend `hardware` loses nothing, arm `kvm` is there, and its kernel reuses its event.
pub(crate) fn hardware_and_kvm(parts: &Parts) -> Result<()> {
    let run = latency("milan", &format!("--strategy recreate,reuse --samples 20 {HOST_PERIOD}"));
    let [refused, done] = in_time(parts)?
        .command(["/vpmu", "linux", KERNEL, "--cpu", "clx", "--nested", "--run", "true"])
        .command(middle_host("milan", "", &(probed() + &run)))
        .run(parts)?;
    let said = refused.said();
    ensure!(refused.status == 2 && said.contains("--cpu genoa") && said.lines().count() == 1, "{said}");
    let middle = Middle::after(&done)?;
    ensure!(middle.document["parameters"]["backend"] == "hardware", "{}", middle.document["parameters"]);
    measure::whole("hardware", &middle.document, ["recreate", "reuse", "floor"], 20)?;
    let nmis = middle.nmis("kvm")?;
    ensure!(nmis >= 20, "kvm: {}", middle.arm("kvm")?);
    let [Some(creates), Some(pauses), ..] = middle.calls else { anyhow::bail!("{:?}", middle.calls) };
    ensure!(creates < nmis / 4 && pauses >= nmis, "{:?} calls for {nmis} PMIs", middle.calls);
    Ok(())
}

/// A recording of stock KVM's own tracepoints is imported: of two guests it has as many accesses to each register as perf shows.
pub(crate) fn trace_import(parts: &Parts) -> Result<()> {
    let guest = |workload: &str| {
        format!(
            "vpmu nmi-latency --backend hardware --cpu milan --workload {workload} --strategy reuse --rounds 1 --warmup 0 \
             --samples 6 --period 20000000 --time-limit 12s --no-save --quiet"
        )
    };
    let run = format!(
        "cd /tmp; echo '{}; {}' >guests; \
         perf record -q -z -a -m 1024 -o perf.data -e kvm:kvm_msr,kvm:kvm_exit,kvm:kvm_entry,kvm:kvm_apic_accept_irq \
         -e sched:sched_switch -- sh guests >/dev/null; \
         perf script -i perf.data -F pid,event,trace | sed -n 's/ *\\([0-9]*\\) .*msr_\\([a-z]*\\) \\([0-9a-f]*\\) = .*/\\1 \\2 \\3/p' | sort | uniq -c",
        guest("single"),
        guest("sampling4")
    );
    let [done, recording] = in_time(parts)?
        .binary(PERF, PERF)
        .command(middle_host("milan", "--with /usr/bin/perf --get /tmp/perf.data --output /tmp/out", &run))
        .command(["cat", "/tmp/out/perf.data"])
        .run(parts)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("import");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("stock-kvm.data"), &recording.stdout)?;
    std::fs::write(folder.join("stock-kvm.counts"), done.succeeded()?)?;
    crate::imported::check(&folder, &folder)
}

/// Separates what a script prints of one scene and of the next.
const SCENE: &str = "## ";

/// More events than counters: the ten of `sampling10`, multiplexed on the guest's six counters, with none, one and three of the middle
/// host's six in the hands of a pinned `perf stat -a`. No strategy loses an interrupt or stands still, each says what it
/// could not count, and those that reuse events, as the KVM beside them, open what a rotation moves.
fn contention(cpu: &str, middle: &Parts, parts: &Parts) -> Result<()> {
    const SAMPLES: u64 = 30;
    const TAKEN: [usize; 3] = [0, 1, 3];
    let scenes = TAKEN.map(|taken| {
        let events = ["cycles:D"].repeat(taken).join(",");
        let hold = format!("perf stat -a -o /dev/null -e {events} sleep 1000 & held=$!; sleep 1; ");
        let (hold, free) = if taken > 0 { (&*hold, "kill $held; ") } else { ("", "") };
        let options = format!(
            "--workload sampling10 --strategy {STRATEGIES} --samples {SAMPLES} --period 4000000 --time-limit 3s"
        );
        format!(
            "{hold} echo 0 >/sys/kernel/tracing/events/enable; echo >/sys/kernel/tracing/kprobe_events; {} {} {free} echo '{SCENE}'; ",
            probed(),
            latency(cpu, &options)
        )
    });
    let [done] = Job { silence: 900, ..job(middle)? }
        .binary(PERF, PERF)
        .command(middle_host(cpu, "--with /usr/bin/perf", &scenes.concat()))
        .run(parts)?;
    for (taken, printed) in TAKEN.iter().zip(done.succeeded()?.split(SCENE)) {
        let name = format!("{}, {cpu}, {taken} counters taken", middle.release());
        contended(&name, &Middle::of(printed)?, *taken > 0, SAMPLES).with_context(|| name.clone())?;
    }
    Ok(())
}

/// Counts events that come to another counter in so many rotations, the first ones included: of the payload's ten on six counters, by
/// guest/payload/c/sched.c. It is from 3.4 to 4.0 a rotation, by their number.
fn moved(rotations: u64) -> u64 {
    let (mut places, mut counters, mut moved) = ([usize::MAX; 10], [usize::MAX; 6], 0);
    for first in 0..=rotations as usize {
        let active: [usize; 6] = std::array::from_fn(|i| (first + i) % 10);
        let mut taken = active.map(|event| places[event]);
        taken.sort_unstable();
        // Each has its last counter if all can.
        if taken != [0, 1, 2, 3, 4, 5] {
            active.iter().enumerate().for_each(|(counter, &event)| places[event] = counter);
        }
        for event in active {
            moved += u64::from(counters[places[event]] != event);
            counters[places[event]] = event;
        }
    }
    moved
}

fn contended(name: &str, found: &Middle, is_taken: bool, samples: u64) -> Result<()> {
    let count = |arm: &Value, key: &str| arm.pointer(key).and_then(Value::as_u64).unwrap_or(0);
    let [Some(creates), ..] = found.calls else { anyhow::bail!("{:?}", found.calls) };
    let kvm = found.arm("kvm")?;
    let is_there = kvm["not_available"].is_null();
    // A KVM before Linux 6.5 has no PerfMonV2 for its guests.
    ensure!(is_there || (name.starts_with("6.1") && name.contains("genoa")), "{name}: {}", kvm["not_available"]);
    for strategy in is_there.then_some("kvm").into_iter().chain(STRATEGIES.split(',')).chain(["floor"]) {
        let arm = found.arm(strategy)?;
        let (nmis, pinned) = (count(arm, "/nmis"), count(arm, "/pinned_errors"));
        let rotations = count(arm, "/metrics/rotation_ns/count");
        let opens = if strategy == "kvm" { creates } else { count(arm, "/host_ops/open/count") };
        let (each, per_rotation) = (opens as f64 / nmis as f64, opens as f64 / rotations as f64);
        eprintln!(
            "# {name}, {strategy}: {nmis} NMIs, {each:.2} opens each, {per_rotation:.2} a rotation, {pinned} pinned errors"
        );
        ensure!(nmis >= samples && count(arm, "/throttled") == 0, "{strategy}: {arm}");
        // The slices of reuse-lazy, and KVM's thread that is scheduled in, release what did not count just then.
        let moved = moved(rotations);
        let more = match strategy {
            "reuse" => Some(0),
            "reuse-lazy" => Some(10),
            "kvm" => Some(20),
            _ => None,
        };
        let is_moved = more.is_none_or(|percent| (moved..=moved + moved * percent / 100).contains(&opens));
        ensure!(is_moved, "{strategy}: {opens} opens in {rotations} rotations, which move {moved} events: {arm}");
        if strategy == "kvm" {
            continue;
        }
        lost_nothing(arm)?;
        ensure!((pinned > 0) == (is_taken && strategy != "floor"), "{strategy}: {arm}");
        let is_behind = arm["last_error"].as_str().is_some_and(|why| why.contains("behind the gate"));
        ensure!(is_behind || strategy != "gate" || !is_taken, "{arm}");
    }
    Ok(())
}

/// Over 10 000 PMIs on hardware events, of every strategy, by the host's time: none is lost, and only `recreate` opens events.
pub(crate) fn ten_thousand(parts: &Parts) -> Result<()> {
    const SAMPLES: u64 = 1450;
    for strategy in ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate"] {
        let options = format!("--strategy {strategy} --samples {SAMPLES} --period 20000000 --time-limit 300s");
        let [done] = in_time(parts)?.command(middle_host("milan", "", &latency("milan", &options))).run(parts)?;
        let found = Middle::after(&done)?;
        measure::whole("hardware", &found.document, [strategy], SAMPLES)?;
        let (nmis, opens) = (found.nmis(strategy)?, &found.arm(strategy)?["host_ops"]["open"]["count"]);
        let expected = if strategy == "recreate" { nmis..=nmis + 1 } else { 1..=1 };
        ensure!(
            opens.as_u64().is_some_and(|opens| expected.contains(&opens)),
            "{strategy}: {opens} opens, {nmis} NMIs"
        );
    }
    Ok(())
}

/// Throttled events are in the document and on the screen.
pub(crate) fn throttling_is_said(parts: &Parts) -> Result<()> {
    // A kernel that may not lower the rate refuses to have it set.
    let throttle = "cd /proc/sys/kernel; echo 25 >perf_cpu_time_max_percent; echo 100 >perf_event_max_sample_rate; \
                    echo 0 >perf_cpu_time_max_percent; cd /; ";
    let run = latency("milan", "--strategy reuse,gate --samples 20 --period 1000000 --time-limit 2s");
    let [done] = job(parts)?.command(middle_host("milan", "", &format!("{throttle}{run}"))).run(parts)?;
    let Middle { document, status, .. } = Middle::of(done.text()?)?;
    let warnings = document["warnings"].to_string();
    ensure!(status == "status 3" && warnings.contains("throttled"), "{status}: {warnings}");
    Ok(())
}

/// The middle host's events of guests alone and of itself alone share what its events of both count, in a group on three
/// counters, while it runs a guest.
pub(crate) fn modes_are_told_apart(parts: &Parts) -> Result<()> {
    let run = "perf stat -x, -o /tmp/counts -e '{cycles:G,cycles:H,cycles:GH}' \
         vpmu nmi-latency --backend cpu-clock --cpu milan --strategy reuse --rounds 1 --warmup 0 --samples 20 --time-limit 2s --no-save --quiet; \
         sed -n 's/^\\([0-9]*\\),.*cycles:.*/counts \\1/p' /tmp/counts";
    let [done] =
        job(parts)?.binary(PERF, PERF).command(middle_host("milan", "--with /usr/bin/perf", run)).run(parts)?;
    let text = done.succeeded()?;
    let counts = text.lines().filter_map(|line| line.strip_prefix("counts ")?.parse::<f64>().ok());
    let [guest, host, both] = counts.collect::<Vec<_>>()[..] else { anyhow::bail!("{text}") };
    eprintln!("# of {both} counts {guest} of guests, {host} of the host");
    ensure!(guest > 0.1 * both && host > 0.1 * both && guest + host < 1.01 * both, "{text}");
    Ok(())
}

/// The series of 2019 as a whole: calibrated on hardware events, predicted with AMD guests, measured with the middle host's watchdog off and on.
pub(crate) fn series(parts: &Parts) -> Result<()> {
    let watchdog = "cat /proc/sys/kernel/nmi_watchdog";
    let run = format!(
        "mkdir -p /run; {watchdog}; echo '{MARK}'; vpmu reproduce --run vpmu-reuse --rounds 5 --duration 3m --json; \
         echo '{MARK}'; {watchdog}"
    );
    let [done] = Job { silence: 1500, ..job(parts)? }.command(middle_host("milan", "", &run)).run(parts)?;
    let [before, json, after] = done.succeeded()?.split(MARK).collect::<Vec<_>>()[..] else {
        anyhow::bail!("{done:?}")
    };
    ensure!(before.trim() == after.trim(), "the watchdog was {before}and is {after}");
    let found: Value = serde_json::from_str(json).with_context(|| json.to_owned())?;
    let here = &found["here"];
    eprintln!("# {}\n# {}", here["notes"], here["conclusion"]);
    for figure in ["on.mean", "off.mean", "on.stat", "off.stat"].map(|name| format!("vpmu-reuse.watchdog-{name}")) {
        for number in ["before", "after"] {
            let mut rows = found["answer"].as_array().into_iter().flatten();
            let row = rows.find(|row| row["figure"] == *figure && row["number"] == number);
            let row = row.with_context(|| format!("no {figure} {number}: {here}"))?;
            eprintln!("# {row}");
            let measured = &row["measured"];
            ensure!(measured["backend"] == "hardware" && measured["stand_in"] == false, "{row}");
            ensure!(measured["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
            // A simulated guest that gets nowhere at a 4 ms tick has no number.
            let is_predicted = row["predicted"][0].as_f64().is_some_and(|ns| ns > 0.0);
            ensure!(is_predicted || (number == "after" && figure.ends_with("on.mean")), "{row}: {here}");
        }
    }
    Ok(())
}
