//! The nest: host B, in it a guest of this VMM that is a KVM host with an AMD's PMU, in that this tool: backend `hardware`, and KVM's own
//! vPMU, with the kernel's own code. Hardware events there count a clock.
//!
//! The boot of every run has the host's time: with the instruction clock one boot in two hung here (docs/kvm-releases.md).

pub(crate) mod long;
pub(crate) mod releases;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::virtio_modules;
use super::machine::{Clock, Job, Report};
use super::parts::Parts;

/// This tree's binary, or the one that is named for boots of other kernels: a release build takes a third of the time.
fn vpmu() -> PathBuf {
    std::env::var_os("VPMU_STATIC").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_vpmu")), PathBuf::from)
}

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

/// The middle host's script: `before`, `samples` PMIs of a counter of each of `strategies`, the floor and arm `kvm`, then `more`. `period` is in counts
/// of a nanosecond: by the instruction clock a PMI takes a third of a millisecond there, by the host's up to ten.
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
    let mut job = Job::new()
        .clock(Clock::Instructions)
        .binary("/vpmu", &vpmu())
        .file(KERNEL, 0o644, &std::fs::read(&middle.kernel)?)
        .memory("3G")
        .limit(Duration::from_secs(1800))
        .silence(Duration::from_secs(200));
    for module in virtio_modules(middle)?.iter().chain(&middle.modules) {
        let name = module.file_name().context("a name")?.to_string_lossy().into_owned();
        job =
            job.file(&format!("/guest/lib/modules/{}/kernel/{name}", middle.release()), 0o644, &std::fs::read(module)?);
    }
    Ok(job)
}

/// `vpmu linux` of the middle host.
fn middle_host(script: &str) -> Vec<String> {
    middle_host_with("milan", &[], script)
}

/// Starts the middle host with another processor, and options beside those.
fn middle_host_with(cpu: &str, options: &[&str], script: &str) -> Vec<String> {
    let words = [
        "/vpmu",
        "linux",
        KERNEL,
        "--modules",
        "/guest/lib/modules",
        "--cpu",
        cpu,
        "--nested",
        "--backend",
        "cpu-clock",
        "--memory",
        "1G",
        "--with",
        "/vpmu:/bin/vpmu",
        "--run",
        script,
    ];
    let load = ["--load", "kvm-amd"];
    let load = load.iter().filter(|_| !options.contains(&"--load"));
    words.iter().chain(load).chain(options).map(|word| (*word).to_owned()).collect()
}

/// Output of the script of [`script`].
struct Middle {
    document: Value,
    /// Counts of [`CALLS`]; `None` where the kernel lets none be probed (seen: Debian's 5.10).
    calls: [Option<u64>; CALLS.len()],
}

fn middle(report: &Report, command: usize) -> Result<Middle> {
    let done = report.commands.get(command).context("no such command")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status == 0, "exit {}: {said}", done.status);
    let mut parts = done.text()?.split(MARK);
    let document = parts.next().context("no document")?;
    let status = parts.next().context("no status")?;
    // Inconclusive is what a host may throttle; what was lost is looked at by arm.
    ensure!(matches!(status.trim(), "status 0" | "status 3"), "{status}: {document} {said}");
    let profile = parts.next().context("no calls")?;
    let calls = CALLS.map(|call| {
        let line = profile.lines().find(|line| line.split_whitespace().next() == Some(call))?;
        line.split_whitespace().nth(1)?.parse().ok()
    });
    Ok(Middle { document: serde_json::from_str(document)?, calls })
}

impl Middle {
    fn arm(&self, name: &str) -> Result<&Value> {
        let arms = self.document["arms"].as_array().context("arms")?;
        arms.iter()
            .find(|arm| arm["strategy"] == name)
            .with_context(|| format!("no arm {name}: {}", self.document["warnings"]))
    }

    /// Returns whether the monitor's ring takes the records of an arm's events.
    fn records_seen(&self, name: &str) -> Result<bool> {
        Ok(self.arm(name)?["blind"].as_u64().unwrap_or(0) == 0)
    }

    /// NMIs of an arm.
    fn nmis(&self, name: &str) -> Result<u64> {
        let arm = self.arm(name)?;
        arm["metrics"]["nmi_handler_ns"]["count"]
            .as_u64()
            .with_context(|| format!("{name}: {}", arm["metrics"]["nmi_handler_ns"]))
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
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status == 2 && said.contains("--cpu genoa") && said.lines().count() == 1, "{said}");
    let middle = middle(&report, 1)?;
    ensure!(middle.document["parameters"]["backend"] == "hardware", "{}", middle.document["parameters"]);
    for name in ["recreate", "reuse", "floor"] {
        let arm = middle.arm(name)?;
        ensure!(middle.nmis(name)? >= 20 && arm["lost"] == 0 && arm["overflows_lost"] == 0, "{name}: {arm}");
    }
    let nmis = middle.nmis("kvm")?;
    ensure!(nmis >= 20, "kvm: {}", middle.arm("kvm")?);
    eprintln!("# {}: KVM's calls for {}", parts.release(), middle.per_pmi(nmis));
    eprintln!("# records of hardware events reach the VMM: {}", middle.records_seen("reuse")?);
    let [Some(creates), Some(pauses), ..] = middle.calls else { anyhow::bail!("{:?}", middle.calls) };
    ensure!(creates < nmis / 4 && pauses >= nmis, "{:?} calls for {nmis} PMIs", middle.calls);
    Ok(())
}
