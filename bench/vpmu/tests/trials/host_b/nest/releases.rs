//! KVM's vPMU by release: a boot for each kernel of .ci/host-b-kernels as the middle host. What docs/evidence.md
//! concludes is asserted.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::measure::{show, whole};
use super::super::parts::{Parts, further_kernels};
use super::super::{Boot, Trial};
use super::{MARK, Middle, PERIOD, contention, in_time, job, latency, middle_host, probed};

const STRATEGIES: &str = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate";
/// Guests of each arm.
const ROUNDS: u64 = 3;
/// A case that waits in vain waits a sixteenth of the limit. Failures are looked at in what it prints.
pub(super) const CONFORMANCE: &str = "vpmu conformance --on kvm --json || true";

/// Known figures of a release of KVM's vPMU on an AMD without PerfMonV2: the kernel's series, and cases of `conformance --on kvm` that
/// fail beside those of [`BITS`], without their `amd-`.
const KNOWN: [(&str, &str); 4] = [
    ("5.10", "overflow-with-int write-moves sampling not-masked next-without-unmask fixed-vector"),
    ("6.1", ""),
    ("6.12", ""),
    ("7", ""),
];

/// What each of them fails.
const BITS: [&str; 2] = ["amd-selector-bits", "amd-guest-host-only"];

/// A trial of a processor or a series, on a middle host.
type Part = fn(&str, &Parts, &Parts) -> Result<()>;

/// A trial for each kernel: every strategy on `hardware` and the vPMU of its KVM. And one of the mediated vPMU where there is one.
pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    for (series, root) in further_kernels() {
        let mut add = |name: String, of: &str, run: Part| {
            let (root, of) = (root.clone(), of.to_owned());
            let boot: Boot = Box::new(move |parts| run(&of, &Parts::of(&root)?, parts));
            trials.push((format!("nest::{name}"), true, None, boot));
        };
        if series == "7" {
            add("mediated".to_owned(), "genoa", mediated);
        }
        // Functions of perf in 5.10 cannot be probed.
        for cpu in ["milan", "genoa"].iter().filter(|_| series != "5.10") {
            add(format!("contention_{series}_{cpu}"), cpu, contention);
        }
        add(format!("kernel_{series}"), &series, release);
    }
    trials
}

fn release(series: &str, middle: &Parts, parts: &Parts) -> Result<()> {
    let known = KNOWN.iter().find(|(known, _)| *known == series);
    let (_, fails) = known.with_context(|| format!("nothing is known of {series}: add it to KNOWN"))?;
    // A counter that its handler writes while it runs does not overflow again: one PMI a guest. Nor can functions of its perf be probed.
    let is_first = series == "5.10";
    let run =
        |strategies| latency("milan", &format!("--strategy {strategies} --rounds {ROUNDS} --samples 50 {PERIOD}"));
    let [done, calls, order] = job(middle)?
        .command(middle_host("milan", "", &format!("{} echo '{MARK}'; {CONFORMANCE}", run(STRATEGIES))))
        // Probes cost the handler of arm `kvm` alone: the latencies are of runs without.
        .command(middle_host("milan", "", &(probed() + &run("reuse"))))
        .command(middle_host("milan", "", &when_events_are_reprogrammed()))
        .run(parts)?;
    let release = middle.release();
    let found = kept(&release, Middle::after(&done)?)?;
    // Strategies and floor lose nothing; arm `kvm` takes what its release lets it.
    whole(&release, &found.document, STRATEGIES.split(',').chain(["floor"]), 100)?;
    let nmis = show(&release, &found.document, "kvm")?;
    let is_right = if is_first { nmis == ROUNDS } else { nmis >= 100 };
    ensure!(is_right, "kvm: {nmis} NMIs of {ROUNDS} guests: {}", found.arm("kvm")?);
    // KVM creates an event per guest, and reuses it at every PMI.
    let found = Middle::after(&calls)?;
    let nmis = found.nmis("kvm")?;
    eprintln!("# {release}: in {ROUNDS} guests {nmis} PMIs, creates, pauses, periods, enables {:?}", found.calls);
    if let [Some(creates), Some(pauses), Some(periods), Some(enables)] = found.calls {
        let of = |calls: u64, each: u64| (each * nmis..=each * nmis + 2 * ROUNDS).contains(&calls);
        let is_reuse = creates == ROUNDS && of(pauses, 1) && of(periods, 2) && of(enables, 1);
        ensure!(is_reuse, "{:?} calls for {nmis} PMIs", found.calls);
    } else {
        ensure!(is_first, "a kernel whose functions of perf cannot be probed: {:?}", found.calls);
    }
    let document = done.text()?.split(MARK).last().unwrap_or_default();
    let fails = fails.split_whitespace().map(|case| format!("amd-{case}"));
    failures(&release, document, &BITS.map(str::to_owned).into_iter().chain(fails).collect::<Vec<_>>())?;
    // Since Linux 6.2 KVM reprograms once, before the next entry.
    let order = order.text()?;
    eprintln!("# {}", order.trim().replace('\n', "\n# "));
    let line = order.lines().find_map(|line| line.strip_prefix("reprograms of arm kvm: ")).context("no reprograms")?;
    let counts: Vec<u64> = line.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    let [access, entry, ..] = counts[..] else { anyhow::bail!("{line}") };
    ensure!((access > 0) == ["5.10", "6.1"].contains(&series) && entry > 0, "{line}");
    Ok(())
}

/// Keeps a document for `vpmu report target/tmp/nest`.
fn kept(name: &str, found: Middle) -> Result<Middle> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nest");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{name}.json")), serde_json::to_vec(&found.document)?)?;
    Ok(found)
}

/// Cases of what instructions count: events of the middle host count a clock, in guest mode alone, so that the tool takes them for a
/// processor's.
const COUNTS: [&str; 3] = ["amd-instructions", "amd-branches", "amd-rings"];

/// Returns the outcome of each case of a document of conformance but [`COUNTS`], and but for one that KVM of this release passes in one
/// run and fails in the next: pitfall 8, which 6.6 mended, fails it in 7 of 20 runs on 6.1.0-50.
pub(super) fn outcomes(release: &str, document: &str) -> Result<Vec<(String, String)>> {
    let document: Value = serde_json::from_str(document).with_context(|| document.to_owned())?;
    let cases = document["runs"][0]["cases"].as_array().context("cases")?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cases = cases.iter().map(|case| (word(&case["case"]), word(&case["outcome"])));
    let is_told = |case: &str| !COUNTS.contains(&case) && (!release.starts_with("6.1.") || case != "amd-wakes-hlt");
    Ok(cases.filter(|(case, _)| is_told(case)).collect())
}

/// Exactly the cases that are known fail, but for chance, and all are reached.
fn failures(release: &str, document: &str, known: &[String]) -> Result<()> {
    let cases = outcomes(release, document)?;
    let of = |outcome: &str| cases.iter().filter(|case| case.1 == outcome).map(|case| &*case.0).collect::<Vec<_>>();
    let (failed, not_run) = (of("fail"), of("not-run"));
    let (passed, skipped) = (of("pass").len(), of("skip").len());
    eprintln!("# {release}: conformance of KVM's vPMU: {passed} ok, {skipped} skipped, failed: {}", failed.join(", "));
    ensure!(not_run.is_empty(), "{release}: not reached: {not_run:?}");
    ensure!(failed == known, "{release} fails {failed:?}, and {known:?} was known: {document}");
    Ok(())
}

/// The mediated vPMU takes its PMIs, by the instruction clock, and passes conformance: by the host's time, for each exit of its guest
/// switches the PMU by some twenty accesses, and the case of a halted vCPU waits through thousands.
fn mediated(cpu: &str, middle: &Parts, parts: &Parts) -> Result<()> {
    const PMIS: u64 = 50;
    let load = "--append kvm_amd.enable_mediated_pmu=1";
    let run = latency(cpu, &format!("--strategy reuse,deferred --samples {PMIS} {PERIOD}"));
    let [done] = job(middle)?.command(middle_host(cpu, load, &run)).run(parts)?;
    let name = format!("{}-mediated", middle.release());
    let found = kept(&name, Middle::after(&done)?)?;
    whole(&name, &found.document, ["reuse", "deferred", "floor"], PMIS)?;
    ensure!(show(&name, &found.document, "kvm-mediated")? >= PMIS, "{}", found.arm("kvm-mediated")?);
    let [passes] = in_time(middle)?.command(middle_host(cpu, load, CONFORMANCE)).run(parts)?;
    failures(&name, passes.text()?, &[])
}

/// A script that counts when KVM reprograms its events: in the guest's access, once before the next entry, or at an
/// instruction that it emulated and counts itself (Linux 5.17). With four counters, instructions among them, whose
/// driver stops and starts them at each tick. Linux 5.10 lets no function of perf be probed, so there KVM's own is.
fn when_events_are_reprogrammed() -> String {
    format!(
        "cd /sys/kernel/tracing && echo 32768 >buffer_size_kb && \
         for probe in 'p:n/access amd_pmu_set_msr' 'r:n/accessed amd_pmu_set_msr' 'p:n/entry kvm_pmu_handle_event' \
           'r:n/entered kvm_pmu_handle_event' 'p:n/retire kvm_pmu_trigger_event' 'r:n/retired kvm_pmu_trigger_event'; do echo \"$probe\" >>kprobe_events || echo \"not probed: $probe\"; done; \
         echo p:n/work perf_event_pause >>kprobe_events || echo p:n/work reprogram_gp_counter >>kprobe_events; \
         grep work kprobe_events; echo 1 >events/n/enable; cd /; \
         vpmu nmi-latency --backend hardware --cpu milan --strategy reuse --workload sampling4 --rounds 1 --warmup 0 --samples 100 \
           {PERIOD} --no-save --quiet --json | grep -c nmi_handler_ns; \
         awk '/: access: /{{a=1}} /: accessed: /{{a=0}} /: entry: /{{e=1}} /: entered: /{{e=0}} \
           /: retire: /{{t=1}} /: retired: /{{t=0}} \
           /: work: /{{if (a) x++; else if (e) y++; else if (t) i++; else z++}} \
           END {{printf \"reprograms of arm kvm: %d in the access, %d at the entry, %d for emulated instructions, %d elsewhere\\n\", \
             x, y, i, z}}' \
           /sys/kernel/tracing/trace"
    )
}
