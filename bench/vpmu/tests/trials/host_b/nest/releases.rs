//! KVM's vPMU by release: a boot for each kernel of .ci/host-b-kernels as the middle host. What docs/evidence.md
//! concludes is asserted.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::machine::Clock;
use super::super::measure::{show, whole};
use super::super::parts::{Parts, further_kernels};
use super::{
    MARK, Middle, PERIOD, UNTHROTTLED, contention, job, middle, middle_host, middle_host_with, probed, script,
};

/// A boot of one kernel.
pub(crate) type Boot = Box<dyn FnOnce(&Parts) -> Result<()> + Send>;

const STRATEGIES: &str = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate";
/// Cost of an access to a PMU register on a processor, in nanoseconds, in the boot's modelled part.
const REGISTER_COST: &str = "100";
/// Guests of each arm without a modelled cost.
const ROUNDS: u32 = 3;
/// A case that waits in vain waits a sixteenth of the limit. Failures are looked at in what it prints.
pub(super) const CONFORMANCE: &str = "vpmu conformance --on kvm --json || true";

/// Known figures of a release of KVM's vPMU on an AMD without PerfMonV2.
#[derive(Clone, Copy)]
struct Known {
    /// The kernel's root.
    series: &'static str,
    /// Cases of `conformance --on kvm` that fail.
    fails: &'static [&'static str],
    /// A counter that its handler writes while it runs does not overflow again: one PMI a guest.
    one_pmi: bool,
    /// It reprograms in the guest's access (until Linux 6.1).
    in_the_access: bool,
}

/// What each of them fails.
const BITS: &[&str] = &["amd-selector-bits", "amd-guest-host-only"];

const KNOWN: [Known; 4] = [
    Known {
        series: "5.10",
        fails: &[
            "amd-selector-bits",
            "amd-guest-host-only",
            "amd-overflow-with-int",
            "amd-write-moves",
            "amd-sampling",
            "amd-not-masked",
            "amd-next-without-unmask",
            "amd-fixed-vector",
        ],
        one_pmi: true,
        in_the_access: true,
    },
    Known { series: "6.1", fails: BITS, one_pmi: false, in_the_access: true },
    Known { series: "6.12", fails: BITS, one_pmi: false, in_the_access: false },
    Known { series: "7", fails: BITS, one_pmi: false, in_the_access: false },
];

/// Returns whether KVM of this release passes this case in one run and fails it in the next: pitfall 8, which 6.6 mended, fails it in 7
/// of 20 runs on 6.1.0-50.
pub(super) fn is_chance(release: &str, case: &str) -> bool {
    release.starts_with("6.1.") && case == "amd-wakes-hlt"
}

/// A trial for each kernel: every strategy on `hardware` and the vPMU of its KVM. And one of the mediated vPMU where there is one.
pub(crate) fn trials() -> Vec<(String, Boot)> {
    let mut trials: Vec<(String, Boot)> = Vec::new();
    for (series, root) in further_kernels() {
        if series == "7" {
            let root = root.clone();
            let boot: Boot = Box::new(move |parts| mediated(&parts.with_kernel_of(&root)?, parts));
            trials.push(("nest::mediated".to_owned(), boot));
        }
        // Functions of perf in 5.10 cannot be probed.
        for cpu in ["milan", "genoa"].iter().filter(|_| series != "5.10") {
            let root = root.clone();
            let boot: Boot = Box::new(move |parts| contention(&parts.with_kernel_of(&root)?, parts, cpu, &[0, 1, 3]));
            trials.push((format!("nest::contention_{series}_{cpu}"), boot));
        }
        let name = format!("nest::kernel_{series}");
        let boot: Boot = Box::new(move |parts| release(&series, &parts.with_kernel_of(&root)?, parts));
        trials.push((name, boot));
    }
    trials
}

fn release(series: &str, middle_parts: &Parts, parts: &Parts) -> Result<()> {
    let known = KNOWN.iter().find(|known| known.series == series);
    let known = known.with_context(|| format!("nothing is known of {series}: add it to KNOWN"))?;
    let conformance = format!("echo '{MARK}'; {CONFORMANCE}");
    let modelled = &["--msr-cost", REGISTER_COST][..];
    let report = job(middle_parts)?
        .command(middle_host(&script("", STRATEGIES, ROUNDS, 50, PERIOD, &conformance)))
        // Probes cost the handler of arm `kvm` alone: the latencies are of runs without.
        .command(middle_host(&script(&probed(), "reuse", ROUNDS, 50, PERIOD, "")))
        .command(middle_host(&when_events_are_reprogrammed()))
        .command(middle_host_with("milan", modelled, &script("", STRATEGIES, 1, 100, PERIOD, "")))
        .run(parts)?;
    report.say("power-on to power-off");
    let release = middle_parts.release();
    for (command, name, guests) in [(0, release.clone(), ROUNDS), (3, format!("{release}-modelled"), 1)] {
        let found = middle(&report, command).with_context(|| name.clone())?;
        keep(&name, &found)?;
        arms(&name, &found, known, guests)?;
    }
    calls(&release, &middle(&report, 1)?, known)?;
    failures(&release, report.commands[0].text()?, known.fails)?;
    deferral(report.commands[2].text()?, known)
}

/// For `vpmu report target/tmp/nest`.
fn keep(name: &str, found: &Middle) -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nest");
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::write(folder.join(format!("{name}.json")), serde_json::to_vec(&found.document)?)?)
}

/// Strategies and floor lose nothing; arm `kvm` takes what its release lets it.
fn arms(name: &str, found: &Middle, known: &Known, guests: u32) -> Result<()> {
    for arm_name in STRATEGIES.split(',').chain(["floor"]) {
        whole(name, &found.document, arm_name, 100)?;
    }
    let nmis = show(name, &found.document, "kvm")?;
    let right = if known.one_pmi { nmis == u64::from(guests) } else { nmis >= 100 };
    ensure!(right, "kvm: {nmis} NMIs of {guests} guests: {}", found.arm("kvm")?);
    eprintln!("# {name}: records of hardware events reach the VMM: {}", found.records_seen("reuse")?);
    Ok(())
}

/// KVM creates an event per guest, and reuses it at every PMI.
fn calls(release: &str, found: &Middle, known: &Known) -> Result<()> {
    let (nmis, guests) = (found.nmis("kvm")?, u64::from(ROUNDS));
    eprintln!("# {release}: KVM's calls in {guests} guests for {}", found.per_pmi(nmis));
    if let [Some(creates), Some(pauses), Some(periods), Some(enables)] = found.calls {
        ensure!(creates == guests, "{creates} creations in {guests} guests, {nmis} PMIs");
        let of = |calls: u64, each: u64| (each * nmis..=each * nmis + 2 * guests).contains(&calls);
        ensure!(of(pauses, 1) && of(periods, 2) && of(enables, 1), "{:?} calls for {nmis} PMIs", found.calls);
    } else {
        ensure!(known.one_pmi, "a kernel whose functions of perf cannot be probed: {:?}", found.calls);
    }
    Ok(())
}

/// Exactly the cases that are known fail, but for chance, and all are reached. The document is what `printed` ends with.
fn failures(release: &str, printed: &str, known: &[&str]) -> Result<()> {
    let document: Value = serde_json::from_str(printed.split(MARK).last().unwrap_or_default())?;
    let cases = document["runs"][0]["cases"].as_array().context("cases")?;
    let of = |outcome: &str| -> Vec<&str> {
        cases.iter().filter(|case| case["outcome"] == outcome).filter_map(|case| case["case"].as_str()).collect()
    };
    let (failed, not_run) = (of("fail"), of("not-run"));
    eprintln!(
        "# {release}: conformance of KVM's vPMU: {} ok, {} skipped, {} failed: {}",
        of("pass").len(),
        of("skip").len(),
        failed.len(),
        failed.join(", ")
    );
    ensure!(not_run.is_empty(), "{release}: not reached: {not_run:?}");
    let failed: Vec<_> = failed.into_iter().filter(|case| !is_chance(release, case)).collect();
    ensure!(failed == known, "{release} fails {failed:?}, and {known:?} was known: {cases:#?}");
    Ok(())
}

/// Since Linux 6.2 KVM reprograms once, before the next entry.
fn deferral(order: &str, known: &Known) -> Result<()> {
    for line in order.lines() {
        eprintln!("# {line}");
    }
    let line = order.lines().find_map(|line| line.strip_prefix("reprograms of arm kvm: ")).context("no reprograms")?;
    let counts: Vec<u64> = line.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    let [access, entry, ..] = counts[..] else { anyhow::bail!("{line}") };
    ensure!((access > 0) == known.in_the_access && entry > 0, "{line}");
    Ok(())
}

/// The mediated vPMU takes its PMIs, by the instruction clock and with a modelled register cost, and passes
/// conformance: by the host's time, for each exit of its guest switches the PMU by some twenty accesses, and the case
/// of a halted vCPU waits through thousands.
fn mediated(middle_parts: &Parts, parts: &Parts) -> Result<()> {
    const PMIS: u32 = 50;
    let load = ["--load", "kvm-amd enable_mediated_pmu=1"];
    let modelled = [&load[..], &["--msr-cost", REGISTER_COST]].concat();
    let run = |more: &str| script("", "reuse,deferred", 1, PMIS, PERIOD, more).replace("milan", "genoa");
    let report = job(middle_parts)?
        .command(middle_host_with("genoa", &load, &run("")))
        .command(middle_host_with("genoa", &modelled, &run("")))
        .run(parts)?;
    report.say("power-on to power-off");
    let release = middle_parts.release();
    for (command, name) in [(0, format!("{release}-mediated")), (1, format!("{release}-mediated-modelled"))] {
        let found = middle(&report, command).with_context(|| name.clone())?;
        keep(&name, &found)?;
        for arm_name in ["reuse", "deferred", "floor"] {
            whole(&name, &found.document, arm_name, PMIS.into())?;
        }
        let nmis = show(&name, &found.document, "kvm-mediated")?;
        ensure!(nmis >= PMIS.into(), "{}", found.arm("kvm-mediated")?);
    }
    let passes = job(middle_parts)?
        .clock(Clock::Host)
        .command(middle_host_with("genoa", &load, &CONFORMANCE.replace("24s", "240s")))
        .run(parts)?;
    passes.say("power-on to power-off, conformance");
    failures(&release, passes.commands[0].text()?, &[])
}

/// A script that counts when KVM reprograms its events: in the guest's access, once before the next entry, or at an
/// instruction that it emulated and counts itself (Linux 5.17). With four counters, instructions among them, whose
/// driver stops and starts them at each tick. Linux 5.10 lets no function of perf be probed, so there KVM's own is.
fn when_events_are_reprogrammed() -> String {
    format!(
        "{UNTHROTTLED}; cd /sys/kernel/tracing && echo 32768 >buffer_size_kb && \
         for probe in 'p:n/access amd_pmu_set_msr' 'r:n/accessed amd_pmu_set_msr' 'p:n/entry kvm_pmu_handle_event' \
           'r:n/entered kvm_pmu_handle_event' 'p:n/retire kvm_pmu_trigger_event' 'r:n/retired kvm_pmu_trigger_event'; do echo \"$probe\" >>kprobe_events || echo \"not probed: $probe\"; done; \
         echo p:n/work perf_event_pause >>kprobe_events || echo p:n/work reprogram_gp_counter >>kprobe_events; \
         grep work kprobe_events; echo 1 >events/n/enable; cd /; \
         vpmu nmi-latency --backend hardware --cpu milan --strategy reuse --workload sampling4 --rounds 1 --warmup 0 --samples 100 \
           --period {PERIOD} --time-limit 1s --no-save --quiet --json | grep -c nmi_handler_ns; \
         awk '/: access: /{{a=1}} /: accessed: /{{a=0}} /: entry: /{{e=1}} /: entered: /{{e=0}} \
           /: retire: /{{t=1}} /: retired: /{{t=0}} \
           /: work: /{{if (a) x++; else if (e) y++; else if (t) i++; else z++}} \
           END {{printf \"reprograms of arm kvm: %d in the access, %d at the entry, %d for emulated instructions, %d elsewhere\\n\", \
             x, y, i, z}}' \
           /sys/kernel/tracing/trace"
    )
}
