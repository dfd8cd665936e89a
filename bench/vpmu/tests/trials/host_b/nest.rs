//! The nest: host B, in it a guest of this VMM that is a KVM host with an AMD's PMU, in that this tool: backend
//! `hardware`, and KVM's own vPMU, with the kernel's own code. Hardware events there count a clock.
//!
//! Trials that are to pass in every run have the host's time: with the instruction clock a boot that hangs hangs again at each try
//! (docs/evidence.md).

pub(crate) mod kernel_module;
pub(crate) mod releases;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::linux;
use super::machine::{Clock, Job, Report};
use super::measure;
use super::parts::Parts;

/// This tree's binary, or the one that is named for boots of other kernels: a release build takes a third of the time.
fn vpmu() -> PathBuf {
    std::env::var_os("VPMU_STATIC").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_vpmu")), PathBuf::from)
}

/// Every strategy.
const STRATEGIES: &str = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate,virtual";
const KERNEL: &str = "/guest/vmlinuz";
/// Calls of KVM for its vPMU.
const CALLS: [&str; 4] =
    ["perf_event_create_kernel_counter", "perf_event_pause", "perf_event_period", "perf_event_enable"];
/// Counts between two PMIs by the instruction clock, and by the host's.
const PERIOD: u32 = 4_000_000;
const HOST_PERIOD: u32 = 20_000_000;
/// A slow host's kernel lowers its rate of samples, and throttles what is above it.
const UNTHROTTLED: &str = "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent";
/// Separates what a script prints.
const MARK: &str = "== ";

/// Counts the calls of its KVM from now on.
fn probed() -> String {
    let probes = CALLS.map(|call| format!("echo p:n/{call} {call} >>kprobe_events; ")).concat();
    format!("cd /sys/kernel/tracing && {probes} echo 1 >events/n/enable; cd /; ")
}

/// The middle host's script: `before`, `samples` PMIs of a counter of each of `strategies`, the floor and arm `kvm`,
/// then `more`. `period` is in counts of a nanosecond: by the instruction clock a PMI takes a third of a millisecond
/// there, by the host's up to ten.
fn script(before: &str, strategies: &str, rounds: u32, samples: u32, period: u32, more: &str) -> String {
    // A guest whose vPMU loses its PMIs takes all of it, as arm `kvm` on 5.10.
    let limit = if period == HOST_PERIOD { 60 } else { 1 };
    format!(
        "{UNTHROTTLED}; {before} \
         vpmu nmi-latency --backend hardware --cpu milan --strategy {strategies} --rounds {rounds} --warmup 0 --samples {samples} \
         --period {period} --time-limit {limit}s --no-save --quiet --json; echo '{MARK}status' $?; \
         echo '{MARK}calls'; cat /sys/kernel/tracing/kprobe_profile; {more}"
    )
}

/// Host B with the middle host's kernel and its modules for virtio and KVM.
fn job(middle: &Parts) -> Result<Job> {
    Ok(Job::new()
        .clock(Clock::Instructions)
        .binary("/vpmu", &vpmu())
        .file(KERNEL, 0o644, &std::fs::read(&middle.kernel)?)
        .memory("3G")
        .limit(Duration::from_secs(1800))
        .silence(Duration::from_secs(200))
        .modules(&middle.release(), &middle.virtio()?)
        .modules(&middle.release(), &middle.modules))
}

/// `vpmu linux` of the middle host.
fn middle_host(script: &str) -> Vec<String> {
    middle_host_with("milan", &[], script)
}

/// Starts the middle host with another processor, and options beside those.
fn middle_host_with(cpu: &str, options: &[&str], script: &str) -> Vec<String> {
    let fixed = "--nested --backend cpu-clock --memory 1G --with /vpmu:/bin/vpmu --cpu";
    let load = ["--load", "kvm-amd"].into_iter().filter(|_| !options.contains(&"--load"));
    let options = fixed.split(' ').chain([cpu]).chain(load).chain(options.iter().copied());
    linux(KERNEL, &options.collect::<Vec<_>>(), script)
}

/// Output of the script of [`script`].
struct Middle {
    document: Value,
    /// Counts of [`CALLS`]; `None` where the kernel lets none be probed (seen: Debian's 5.10).
    calls: [Option<u64>; CALLS.len()],
}

fn middle(report: &Report, command: usize) -> Result<Middle> {
    middle_of(printed(report, command)?)
}

/// Returns what a command that succeeded printed.
fn printed(report: &Report, command: usize) -> Result<&str> {
    report.commands.get(command).context("no such command")?.succeeded()
}

fn middle_of(printed: &str) -> Result<Middle> {
    let mut parts = printed.split(MARK);
    let document = parts.next().context("no document")?;
    let status = parts.next().context("no status")?;
    // Inconclusive is what a host may throttle; what was lost is looked at by arm.
    ensure!(matches!(status.trim(), "status 0" | "status 3"), "{status}: {document}");
    let profile = parts.next().context("no calls")?;
    let calls = CALLS.map(|call| {
        let line = profile.lines().find(|line| line.split_whitespace().next() == Some(call))?;
        line.split_whitespace().nth(1)?.parse().ok()
    });
    Ok(Middle { document: serde_json::from_str(document)?, calls })
}

impl Middle {
    fn arm(&self, name: &str) -> Result<&Value> {
        measure::arm(&self.document, name)
    }

    /// Returns whether the monitor's ring takes the records of an arm's events.
    fn records_seen(&self, name: &str) -> Result<bool> {
        Ok(self.arm(name)?["blind"].as_u64().unwrap_or(0) == 0)
    }

    /// NMIs of an arm.
    fn nmis(&self, name: &str) -> Result<u64> {
        measure::show("the middle host", &self.document, name)
    }

    /// KVM's calls per PMI, for people.
    fn per_pmi(&self, nmis: u64) -> String {
        let each = CALLS.iter().zip(self.calls).map(|(call, hits)| match hits {
            Some(hits) => format!("{call} {hits}, {:.2} each", hits as f64 / nmis as f64),
            None => format!("{call} not probed"),
        });
        format!("{nmis} PMIs: {}", each.collect::<Vec<_>>().join("; "))
    }
}

/// Backend `hardware` loses nothing, arm `kvm` is there, and its kernel reuses its event.
pub(crate) fn hardware_and_kvm(parts: &Parts) -> Result<()> {
    let report = job(parts)?
        .clock(Clock::Host)
        .command(["/vpmu", "linux", KERNEL, "--cpu", "clx", "--nested", "--run", "true"])
        .command(middle_host(&script(&probed(), "recreate,reuse", 1, 20, HOST_PERIOD, "")))
        .run(parts)?;
    report.say("power-on to power-off");
    let refused = &report.commands[0];
    let said = refused.said();
    ensure!(refused.status == 2 && said.contains("--cpu genoa") && said.lines().count() == 1, "{said}");
    let middle = middle(&report, 1)?;
    ensure!(middle.document["parameters"]["backend"] == "hardware", "{}", middle.document["parameters"]);
    for name in ["recreate", "reuse", "floor"] {
        measure::whole("hardware", &middle.document, name, 20)?;
    }
    let nmis = middle.nmis("kvm")?;
    ensure!(nmis >= 20, "kvm: {}", middle.arm("kvm")?);
    eprintln!("# {}: KVM's calls for {}", parts.release(), middle.per_pmi(nmis));
    eprintln!("# records of hardware events reach the VMM: {}", middle.records_seen("reuse")?);
    let [Some(creates), Some(pauses), ..] = middle.calls else { anyhow::bail!("{:?}", middle.calls) };
    ensure!(creates < nmis / 4 && pauses >= nmis, "{:?} calls for {nmis} PMIs", middle.calls);
    Ok(())
}

/// A recording of stock KVM's own tracepoints is imported: of two guests it has as many accesses to each register as perf shows.
pub(crate) fn trace_import(parts: &Parts) -> Result<()> {
    let guest = |workload: &str| {
        format!(
            "vpmu nmi-latency --backend hardware --cpu milan --workload {workload} --strategy reuse --rounds 1 --warmup 0 \
             --samples 6 --period {HOST_PERIOD} --time-limit 12s --no-save --quiet"
        )
    };
    let run = format!(
        "{UNTHROTTLED}; cd /tmp; echo '{}; {}' >guests; \
         perf record -q -z -a -m 1024 -o perf.data -e kvm:kvm_msr,kvm:kvm_exit,kvm:kvm_entry,kvm:kvm_apic_accept_irq \
         -e sched:sched_switch -- sh guests >/dev/null; \
         perf script -i perf.data -F pid,event,trace | sed -n 's/ *\\([0-9]*\\) .*msr_\\([a-z]*\\) \\([0-9a-f]*\\) = .*/\\1 \\2 \\3/p' | sort | uniq -c",
        guest("single"),
        guest("sampling4")
    );
    let options = ["--with", "/usr/bin/perf", "--get", "/tmp/perf.data", "--output", "/tmp/out"];
    // By the instruction clock a boot that hangs would hang at each try.
    let report = job(parts)?
        .clock(Clock::Host)
        .binary("/usr/bin/perf", Path::new("/usr/bin/perf"))
        .command(middle_host_with("milan", &options, &run))
        .command(["cat", "/tmp/out/perf.data"])
        .run(parts)?;
    report.say("power-on to power-off");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("import");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("stock-kvm.data"), &report.commands[1].stdout)?;
    std::fs::write(folder.join("stock-kvm.counts"), printed(&report, 0)?)?;
    crate::imported::check(&folder, &folder)
}

/// Separates what a script prints of one scene and of the next.
const SCENE: &str = "## ";

/// More events than counters: the ten of `sampling10`, multiplexed on the guest's six counters, with `taken` of the middle
/// host's six in the hands of a pinned `perf stat -a`. No strategy loses an interrupt or stands still, each says what it
/// could not count, and those that reuse events open as many at a rotation as the KVM beside them.
fn contention(middle_parts: &Parts, parts: &Parts, cpu: &str, taken: &[usize]) -> Result<()> {
    const SAMPLES: u64 = 30;
    let scenes = taken.iter().map(|&taken| {
        let events = ["cycles:D"].repeat(taken).join(",");
        let hold = format!("perf stat -a -o /dev/null -e {events} sleep 1000 & held=$!; sleep 1; ");
        let (hold, free) = if taken > 0 { (&*hold, "kill $held; ") } else { ("", "") };
        format!(
            "{hold} echo 0 >/sys/kernel/tracing/events/enable; echo >/sys/kernel/tracing/kprobe_events; {} \
             vpmu nmi-latency --backend hardware --cpu {cpu} --workload sampling10 --strategy {STRATEGIES} --rounds 1 --warmup 0 \
             --samples {SAMPLES} --period {PERIOD} --time-limit 3s --no-save --quiet --json; echo '{MARK}status' $?; \
             echo '{MARK}calls'; cat /sys/kernel/tracing/kprobe_profile; {free} echo '{SCENE}'; ",
            probed()
        )
    });
    let script = format!("{UNTHROTTLED}; {}", scenes.collect::<String>());
    let report = job(middle_parts)?
        .silence(Duration::from_secs(900))
        .binary("/usr/bin/perf", Path::new("/usr/bin/perf"))
        .command(middle_host_with(cpu, &["--with", "/usr/bin/perf"], &script))
        .run(parts)?;
    report.say("power-on to power-off");
    for (taken, printed) in taken.iter().zip(printed(&report, 0)?.split(SCENE)) {
        let name = format!("{}, {cpu}, {taken} counters taken", middle_parts.release());
        contended(&name, &middle_of(printed)?, *taken > 0, SAMPLES).with_context(|| name.clone())?;
    }
    Ok(())
}

fn contended(name: &str, found: &Middle, taken: bool, samples: u64) -> Result<()> {
    let count = |arm: &Value, key: &str| arm.pointer(key).and_then(Value::as_u64).unwrap_or(0);
    let each = |opens: u64, arm: &Value, key: &str| opens as f64 / count(arm, key) as f64;
    let (pmi, rotation) = ("/nmis", "/metrics/rotation_ns/count");
    let [Some(creates), ..] = found.calls else { anyhow::bail!("{:?}", found.calls) };
    let kvm = Some(found.arm("kvm")?).filter(|arm| arm["not_available"].is_null());
    if let Some(arm) = kvm {
        eprintln!("# {name}: KVM's calls for {}", found.per_pmi(count(arm, pmi)));
    } else {
        // A KVM before Linux 6.5 has no PerfMonV2 for its guests.
        ensure!(name.starts_with("6.1") && name.contains("genoa"), "{name}: {}", found.arm("kvm")?["not_available"]);
        eprintln!("# {name}: KVM's own vPMU: {}", found.arm("kvm")?["not_available"]);
    }
    let kvm = kvm.map(|arm| each(creates, arm, rotation));
    for strategy in STRATEGIES.split(',').chain(["floor", "kvm"]).filter(|name| kvm.is_some() || *name != "kvm") {
        let arm = found.arm(strategy)?;
        let (nmis, pinned) = (count(arm, pmi), count(arm, "/pinned_errors"));
        let opens = if strategy == "kvm" { creates } else { count(arm, "/host_ops/open/count") };
        let [per_pmi, per_rotation] = [pmi, rotation].map(|key| each(opens, arm, key));
        eprintln!(
            "# {name}, {strategy}: {nmis} NMIs, {per_pmi:.2} opens each, {per_rotation:.2} a rotation, {pinned} pinned errors"
        );
        ensure!(nmis >= samples && count(arm, "/throttled") == 0, "{strategy}: {arm}");
        if strategy == "kvm" {
            continue;
        }
        measure::lost_nothing(arm)?;
        ensure!((pinned > 0) == (taken && strategy != "floor"), "{strategy}: {arm}");
        if let Some(kvm) = kvm.filter(|_| strategy.starts_with("reuse")) {
            // A slower handler leaves more rotations between two PMIs.
            ensure!((per_rotation - kvm).abs() <= 0.1 * kvm, "{strategy}: {per_rotation} opens a rotation, KVM {kvm}");
        }
        if strategy == "gate" && taken {
            ensure!(arm["last_error"].as_str().is_some_and(|why| why.contains("behind the gate")), "{arm}");
        }
    }
    Ok(())
}

// Boots of the nest that take minutes: nightly.

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
        ensure!(nmis >= SAMPLES, "{strategy}: {arm}");
        measure::lost_nothing(arm)?;
        let opens = arm["host_ops"]["open"]["count"].as_u64().context("opens")?;
        let expected = if strategy == "recreate" { nmis..=nmis + 1 } else { 1..=1 };
        ensure!(expected.contains(&opens), "{strategy}: {opens} opens, {nmis} NMIs");
        all += nmis;
    }
    eprintln!("# {all} PMIs on hardware events");
    ensure!(all >= 10_000, "{all} PMIs");
    Ok(())
}

/// Throttled events are in the document and on the screen.
pub(crate) fn throttling_is_said(parts: &Parts) -> Result<()> {
    // In this order: a kernel that may not lower the rate refuses to have it set.
    let throttle = format!("echo 100 >/proc/sys/kernel/perf_event_max_sample_rate; {UNTHROTTLED}");
    let run = limited("2s", "--strategy reuse,gate --samples 20 --period 1000000");
    let throttled =
        job(parts)?.command(middle_host(&format!("{throttle}; {run}; echo '{MARK}status' $?"))).run(parts)?;
    throttled.say("power-on to power-off");
    let (throttled, code) = document(throttled.commands[0].text()?)?;
    ensure!(code == 3 && warnings(&throttled).contains("throttled"), "exit {code}: {}", warnings(&throttled));
    Ok(())
}

/// The middle host's events of guests alone and of itself alone share what its events of both count, in a group on three
/// counters, while it runs a guest.
pub(crate) fn modes_are_told_apart(parts: &Parts) -> Result<()> {
    let run = "perf stat -x, -o /tmp/counts -e '{cycles:G,cycles:H,cycles:GH}' \
         vpmu nmi-latency --backend cpu-clock --cpu milan --strategy reuse --rounds 1 --warmup 0 --samples 20 --time-limit 2s --no-save --quiet; \
         cat /tmp/counts";
    let report = job(parts)?
        .binary("/usr/bin/perf", Path::new("/usr/bin/perf"))
        .command(middle_host_with("milan", &["--with", "/usr/bin/perf"], run))
        .run(parts)?;
    report.say("power-on to power-off");
    let text = printed(&report, 0)?;
    let count = |event: &str| -> Result<f64> {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(event)).with_context(|| text.to_owned())?;
        Ok(line.split(',').next().unwrap_or_default().parse()?)
    };
    let [guest, host, both] = [count("cycles:G")?, count("cycles:H")?, count("cycles:GH")?];
    eprintln!("# of {both} counts {guest} of guests, {host} of the host");
    ensure!(guest > 0.1 * both && host > 0.1 * both && guest + host < 1.01 * both, "{text}");
    Ok(())
}

/// A model of hardware events: of a PMU, with its counters, labelled as what it was measured on, and the simulator takes it.
pub(crate) fn hardware_is_calibrated(parts: &Parts) -> Result<()> {
    let run = format!(
        "{UNTHROTTLED}; vpmu calibrate --backend hardware --rounds 2 --quiet -o /tmp/model.toml >/tmp/said && cat /tmp/model.toml; \
         echo '{MARK}'; vpmu sim /tmp/model.toml --strategy reuse --rounds 1 --no-save --quiet --json"
    );
    let report = job(parts)?.command(middle_host_with("milan", &["--msr-cost", "100"], &run)).run(parts)?;
    report.say("power-on to power-off");
    let (model, simulated) = printed(&report, 0)?.split_once(MARK).context("no model")?;
    for line in model.lines().filter(|line| line.contains("measured") || line.contains("solved")) {
        eprintln!("# {line}");
    }
    for needle in ["modelled register cost", "events by hardware"] {
        ensure!(model.contains(needle), "no {needle:?} in {model}");
    }
    let document: Value = serde_json::from_str(simulated)?;
    ensure!(measure::arm(&document, "reuse")?["lost"] == 0, "{document}");
    Ok(())
}

/// The series of 2019 as a whole: calibrated, predicted with AMD guests, measured with the middle host's watchdog off and on.
pub(crate) fn series(parts: &Parts) -> Result<()> {
    let run = format!(
        "{UNTHROTTLED}; mkdir -p /run; for on in 0 1; do echo $on >/proc/sys/kernel/nmi_watchdog; \
         vpmu reproduce --run vpmu-reuse --rounds 5 --json; echo '{MARK}'; done"
    );
    let report = job(parts)?.silence(Duration::from_secs(1500)).command(middle_host(&run)).run(parts)?;
    report.say("power-on to power-off");
    let [off, on, _] = printed(&report, 0)?.split(MARK).collect::<Vec<_>>()[..] else {
        anyhow::bail!("{}", printed(&report, 0)?)
    };
    for (regime, json) in [("off", off), ("on", on)] {
        let found: Value = serde_json::from_str(json.trim()).with_context(|| json.to_owned())?;
        let rows = found["rows"].as_array().context("rows")?;
        for row in rows {
            let interval = &row["measured"]["interval"];
            eprintln!(
                "# {} {}: published {}, predicted {}, measured {} {interval}, to predicted {}",
                row["figure"],
                row["number"],
                row["published"],
                row["predicted"],
                row["measured"]["value"],
                row["against_predicted"]
            );
        }
        let here = &found["here"];
        eprintln!("# {}\n# {}", here["notes"], here["conclusion"]);
        for figure in ["mean", "stat"].map(|name| format!("vpmu-reuse.watchdog-{regime}.{name}")) {
            for number in ["before", "after"] {
                let row = rows.iter().find(|row| row["figure"] == *figure && row["number"] == number);
                let row = row.with_context(|| format!("no {figure} {number}: {here}"))?;
                let measured = &row["measured"];
                ensure!(measured["backend"] == "hardware" && measured["stand_in"] == false, "{row}");
                ensure!(measured["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
                // A simulated guest that gets nowhere at a 4 ms tick has no number.
                let predicted = row["predicted"][0].as_f64().is_some_and(|ns| ns > 0.0);
                ensure!(predicted || (number == "after" && figure.ends_with("on.mean")), "{row}: {here}");
            }
        }
    }
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
    let said = report.commands[1].said();
    ensure!(said.contains("the guest's TSC was held back"), "{said}");
    let two = &report.commands[2];
    ensure!(two.status == 2 && two.said().contains("--vcpus 1"), "{two:?}");
    Ok(())
}
