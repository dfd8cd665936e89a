//! Facts from the host's files.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{HostFacts, host_class};
use super::fs::HostFs;
use super::quota::Quota;
use super::tuning::{CpuTime, Tuning, smt_siblings};

/// Usual mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl HostFacts {
    /// Reads every fact.
    pub fn read(fs: &HostFs) -> Self {
        Self::begin(fs).complete(fs)
    }

    /// Reads the facts that [`Self::begin`] left out.
    fn complete(self, fs: &HostFs) -> Self {
        let cpuinfo = fs.text("proc/cpuinfo").unwrap_or_default();
        // The first CPU's block describes all.
        let block = cpuinfo.split("\n\n").next().unwrap_or_default();
        let field = |name: &str| {
            block.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let flags = field("flags").unwrap_or_default();
        let flag = |name: &str| flags.split_whitespace().any(|f| f == name);
        let number = |name: &str| field(name)?.parse().ok();
        let signature = || Some([number("cpu family")?, number("model")?, number("stepping")?]);
        let perf_pmus = fs.names("sys/bus/event_source/devices");
        let mounts = fs.text("proc/self/mounts").unwrap_or_default();
        // Below debugfs it is mounted by a look at it.
        let is_tracefs =
            |place: &&str| mounts.contains(&format!(" {place} tracefs ")) || fs.exists(&format!("{place}/events"));
        let mut facts = Self {
            name: fs.text("proc/sys/kernel/hostname"),
            boot: fs.text("proc/sys/kernel/random/boot_id"),
            cpu_vendor: field("vendor_id"),
            cpu_model: field("model name"),
            cpu_signature: signature(),
            microcode: field("microcode"),
            virtualized: flag("hypervisor"),
            invariant_tsc: flag("constant_tsc") && flag("nonstop_tsc"),
            cpus_online: fs.text("sys/devices/system/cpu/online"),
            cpus_isolated: fs.text("sys/devices/system/cpu/isolated"),
            kernel: fs.text("proc/sys/kernel/osrelease"),
            kvm: ["kvm_intel", "kvm_amd", "kvm_pvm"]
                .into_iter()
                .find(|module| fs.exists(&format!("sys/module/{module}")))
                .map(str::to_owned),
            kvm_mediated_pmu: mediated(fs),
            kvm_enable_pmu: fs.text("sys/module/kvm/parameters/enable_pmu"),
            governor: governor(fs),
            turbo: fs
                .number("sys/devices/system/cpu/intel_pstate/no_turbo")
                .map(|n| n == 0)
                .or_else(|| fs.number("sys/devices/system/cpu/cpufreq/boost").map(|n| n != 0)),
            smt: fs.text("sys/devices/system/cpu/smt/control"),
            nmi_watchdog: fs.number("proc/sys/kernel/nmi_watchdog").map(|n| n != 0),
            mitigations: mitigations(fs),
            perf_event_paranoid: fs.number("proc/sys/kernel/perf_event_paranoid"),
            perf_max_sample_rate: fs.number("proc/sys/kernel/perf_event_max_sample_rate"),
            // The PMU of a CPU's cores: `cpu`, or one per kind of core on hybrids.
            hardware_pmu: perf_pmus.iter().any(|name| matches!(&**name, "cpu" | "cpu_core" | "cpu_atom")),
            perf_pmus,
            tracefs: TRACEFS.into_iter().find(is_tracefs).map(str::to_owned),
            clocksource: fs.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            tuning: Tuning::read(fs, self.tuning),
            ..self
        };
        facts.class = host_class(&facts);
        facts
    }

    /// Reads the facts that must be known before a measurement: the CPUs, and how much of them others take.
    /// [`Self::finish`] reads the rest, some hundred files that do not change meanwhile and would delay the first guest.
    pub fn begin(fs: &HostFs) -> Self {
        Self {
            cpus_online: fs.text("sys/devices/system/cpu/online"),
            loadavg_1m: fs.text("proc/loadavg").and_then(|text| text.split_whitespace().next()?.parse().ok()),
            steal_before: cpu_time(fs),
            quota: Quota::read(fs),
            tuning: Tuning { smt_siblings: smt_siblings(fs), ..Tuning::default() },
            ..Self::default()
        }
    }

    /// Notes stolen and throttled time once more, after the measurement, and reads what [`Self::begin`] left out.
    pub fn finish(&mut self, fs: &HostFs) {
        if self.class.is_empty() {
            *self = std::mem::take(self).complete(fs);
        }
        if let Some(quota) = &mut self.quota {
            quota.stopped_us_after = Quota::read(fs).map(|now| now.stopped_us_before);
        }
        self.steal_after = cpu_time(fs);
    }

    /// Returns the share of CPU time stolen during the measurement, 0 to 1; `None` if no time passed.
    pub fn steal_share(&self) -> Option<f64> {
        let (after, before) = (self.steal_after?, self.steal_before?);
        let total = after.total.checked_sub(before.total).filter(|&n| n > 0)?;
        Some(after.steal.saturating_sub(before.steal) as f64 / total as f64)
    }

    /// Returns the online CPUs as numbers; `None` if the host does not tell.
    pub fn online(&self) -> Option<Vec<u32>> {
        let list: cpu_list::CpuList = self.cpus_online.as_deref()?.parse().ok()?;
        Some(list.0)
    }
}

/// Returns whether KVM's vPMU is mediated; `None` where the vendor module has no such parameter.
pub fn mediated(fs: &HostFs) -> Option<bool> {
    let parameter = |module| fs.text(&format!("sys/module/{module}/parameters/enable_mediated_pmu"));
    ["kvm_intel", "kvm_amd"].into_iter().find_map(parameter).map(|text| matches!(&*text, "Y" | "1"))
}

/// Returns the governors of all CPUs, each once.
fn governor(fs: &HostFs) -> Option<String> {
    let governors = fs.each("sys/devices/system/cpu", "/cpufreq/scaling_governor");
    let governors: BTreeSet<String> = governors.map(|(_, governor)| governor).collect();
    (!governors.is_empty()).then(|| governors.into_iter().collect::<Vec<_>>().join(", "))
}

fn mitigations(fs: &HostFs) -> BTreeMap<String, String> {
    fs.each("sys/devices/system/cpu/vulnerabilities", "").filter(|(_, state)| state != "Not affected").collect()
}

/// Reads the first line of /proc/stat, of all CPUs together: user nice system idle iowait irq softirq steal, then guest time, which is
/// contained in user and nice already.
fn cpu_time(fs: &HostFs) -> Option<CpuTime> {
    let stat = fs.text("proc/stat")?;
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let times: Vec<u64> = times.map_while(|word| word.parse().ok()).collect();
    Some(CpuTime { steal: *times.get(7)?, total: times.iter().fold(0, |sum, n| n.saturating_add(sum)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts;

    #[test]
    fn facts_of_a_bare_metal_host() {
        let (_dir, fs) = hosts::tree(&hosts::CASCADE_LAKE);
        let facts = HostFacts::read(&fs);
        assert_eq!([facts.microcode.as_deref(), facts.kvm.as_deref()], [Some("0x5003604"), Some("kvm_intel")]);
        assert_eq!((facts.turbo, facts.nmi_watchdog), (Some(false), Some(true)));
        assert_eq!((facts.cpu_signature, facts.tracefs.as_deref()), (Some([6, 85, 7]), Some("/sys/kernel/tracing")));
        assert_eq!((facts.mitigations.len(), facts.online().unwrap().len()), (1, 80));
        assert!(facts.hardware_pmu && facts.invariant_tsc && !facts.virtualized);
    }

    #[test]
    fn steal_is_a_share_of_all_time_without_counting_guest_time_twice() {
        let (_dir, fs) = hosts::tree(&hosts::CASCADE_LAKE);
        let mut facts = HostFacts::read(&fs);
        assert_eq!(facts.steal_before, Some(CpuTime { steal: 0, total: 100 }));
        std::fs::write(fs.path("proc/stat"), "cpu  20 0 20 150 0 0 0 10 50 0\n").unwrap();
        facts.finish(&fs);
        assert_eq!(facts.steal_share(), Some(0.1));
    }

    #[test]
    fn facts_that_were_begun_are_whole_at_the_end() {
        let (_dir, fs) = hosts::tree(&hosts::CASCADE_LAKE);
        let (mut read, mut begun) = (HostFacts::read(&fs), HostFacts::begin(&fs));
        assert_eq!((begun.online(), &begun.cpu_model), (read.online(), &None));
        for facts in [&mut read, &mut begun] {
            facts.finish(&fs);
        }
        assert_eq!(begun, read);
        begun.finish(&fs);
        assert_eq!(begun, read);
    }
}
