//! KVM's vPMU by release: a boot for each kernel of .ci/host-b-kernels as the middle host.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::parts::Parts;
use super::{MARK, Middle, PERIOD, UNTHROTTLED, job, middle, middle_host, middle_host_with, script};

/// A boot of one kernel.
pub(crate) type Boot = Box<dyn FnOnce(&Parts) -> Result<()> + Send>;

const STRATEGIES: &str = "recreate,reuse,reuse-lazy,paused-flag,deferred,pool,gate";
/// What an access to a PMU register costs on a processor, in nanoseconds, in the boot's modelled part.
const REGISTER_COST: &str = "100";

/// A trial for each kernel: every strategy on `hardware` and the vPMU of its KVM.
pub(crate) fn trials() -> Vec<(String, Boot)> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let folder = std::env::var_os("VPMU_HOST_B_KERNELS").map_or_else(|| target.join("host-b-kernels"), PathBuf::from);
    let roots = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut roots: Vec<_> = roots.map(|entry| entry.path()).filter(|root| root.join("boot").is_dir()).collect();
    roots.sort();
    let trial = |root: PathBuf| {
        let name = format!("nest::kernel_{}", root.file_name().unwrap_or_default().to_string_lossy());
        let boot: Boot = Box::new(move |parts| release(&parts.with_kernel_of(&root)?, parts));
        (name, boot)
    };
    roots.into_iter().map(trial).collect()
}

fn release(middle_parts: &Parts, parts: &Parts) -> Result<()> {
    let conformance = format!("echo '{MARK}conformance'; vpmu conformance --on kvm --counts-time --time-limit 20s");
    let more = format!("{conformance} | grep -v -E '^ *(ok|1\\.\\.|TAP)'");
    let modelled = script(STRATEGIES, 1, 100, PERIOD, "");
    let report = job(middle_parts)?
        .command(middle_host(&script(STRATEGIES, 3, 50, PERIOD, &more)))
        .command(middle_host_with("milan", &["--msr-cost", REGISTER_COST], &modelled))
        .command(middle_host(&when_events_are_reprogrammed()))
        .run(parts)?;
    report.say("power-on to power-off");
    let release = middle_parts.release();
    for (command, name) in [(0, release.clone()), (1, format!("{release}-modelled"))] {
        let found = middle(&report, command).with_context(|| name.clone())?;
        keep(&name, &found)?;
        arms(&name, &found)?;
    }
    let rest = report.commands[0].text()?.split(MARK).last().unwrap_or_default();
    let order = report.commands[2].text()?;
    for line in rest.lines().chain(order.lines()) {
        eprintln!("# {line}");
    }
    ensure!(order.contains("in the access"), "{order}");
    Ok(())
}

/// For `vpmu report target/tmp/nest`.
fn keep(name: &str, found: &Middle) -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nest");
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::write(folder.join(format!("{name}.json")), serde_json::to_vec(&found.document)?)?)
}

fn arms(name: &str, found: &Middle) -> Result<()> {
    let nmis = found.nmis("kvm")?;
    for arm_name in STRATEGIES.split(',').chain(["floor", "kvm"]) {
        let arm = found.arm(arm_name)?;
        eprintln!(
            "# {name}, {arm_name}: {} NMIs, p50 {} ns, from overflow to handler {} ns",
            found.nmis(arm_name)?,
            arm["nmi_handler_ns"]["p50"],
            arm["pmi_delivery_ns"]["p50"]
        );
        // What its vPMU loses is no failure of this tree.
        let whole = found.nmis(arm_name)? >= 100 && arm["lost"] == 0 && arm["overflows_lost"] == 0;
        ensure!(arm_name == "kvm" || whole, "{arm_name}: {arm}");
    }
    eprintln!("# {name}: KVM's calls per PMI: {}", found.per_pmi(nmis));
    Ok(())
}

/// A script that counts when KVM reprograms its events: in the guest's access, once before the next entry, or at an instruction that it emulated and counts
/// itself (Linux 5.17). With four counters, instructions among them, whose driver stops and starts them at each tick. Linux 5.10 lets no function of
/// perf be probed, so there KVM's own is.
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
