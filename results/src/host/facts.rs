//! Facts about the host, as documents hold them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quota::Quota;
use super::tuning::{CpuTime, Tuning};

/// Facts about the host that move a measurement. `None`: the host does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// One phrase that says what kind of host this is; see `host_class`.
    pub class: String,
    /// Its name (uname's nodename), which tells the hosts of a fleet apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Identity of its current boot (`/proc/sys/kernel/random/boot_id`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// CPU vendor, e.g. GenuineIntel.
    pub cpu_vendor: Option<String>,
    /// CPU model name.
    pub cpu_model: Option<String>,
    /// Family, model, stepping.
    pub cpu_signature: Option<[u32; 3]>,
    /// Microcode revision.
    pub microcode: Option<String>,
    /// True if the host is itself a guest (CPUID's hypervisor bit).
    pub virtualized: bool,
    /// True if the TSC ticks at one rate in every power state.
    pub invariant_tsc: bool,
    /// Online CPUs as Linux lists them, e.g. "0-3".
    pub cpus_online: Option<String>,
    /// Isolated CPUs, as Linux lists them.
    pub cpus_isolated: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// KVM's vendor module: kvm_intel, kvm_amd, kvm_pvm.
    pub kvm: Option<String>,
    /// `kvm.enable_pmu`: whether KVM offers its own vPMU.
    pub kvm_enable_pmu: Option<String>,
    /// `enable_mediated_pmu` of KVM's vendor module (Linux 7.0): whether its vPMU is the PMU itself, which the guest owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_mediated_pmu: Option<bool>,
    /// cpufreq governor; of several, each once.
    pub governor: Option<String>,
    /// True if turbo is on; `None` if unknown.
    pub turbo: Option<bool>,
    /// SMT control: on, off, notsupported …
    pub smt: Option<String>,
    /// The host's own NMI watchdog, which holds a hardware event.
    pub nmi_watchdog: Option<bool>,
    /// Vulnerabilities that are mitigated or open; those not affected are left out.
    pub mitigations: BTreeMap<String, String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `kernel.perf_event_max_sample_rate`: above it perf throttles.
    pub perf_max_sample_rate: Option<i64>,
    /// perf's event sources.
    pub perf_pmus: Vec<String>,
    /// True if one of them is a hardware PMU of the CPU.
    pub hardware_pmu: bool,
    /// Mount point of tracefs.
    pub tracefs: Option<String>,
    /// Current clock source.
    pub clocksource: Option<String>,
    /// Hashes of a simulated host's constants: of its costs, a dash, and of all others. One name may stand for other constants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The least and the greatest percent of measured times that a model takes which was calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_percent: Option<[u64; 2]>,
    /// Load average over one minute, before the measurement.
    pub loadavg_1m: Option<f64>,
    /// CPU time taken away by the hypervisor, before the measurement.
    pub steal_before: Option<CpuTime>,
    /// CPU time taken away by the hypervisor, after the measurement.
    pub steal_after: Option<CpuTime>,
    /// The CPU quota of the process's control groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Tuning of the host, and which of its CPUs share a core.
    #[serde(default, skip_serializing_if = "Tuning::is_unknown")]
    pub tuning: Tuning,
}

/// Describes the host in one phrase from facts alone: where it runs, its CPU generation if it is a Cascade Lake, its
/// KVM, and whether it has a hardware PMU.
///
/// "Development host" is a host whose figures say nothing about the hosts the published ones come from:
/// its KVM runs guest ring 0 in an emulator (`kvm_pvm`).
pub fn host_class(facts: &HostFacts) -> String {
    let place = match facts {
        HostFacts { kvm: Some(kvm), .. } if kvm == "kvm_pvm" => "development host",
        HostFacts { virtualized: true, .. } => "virtual machine",
        HostFacts { cpu_model: None, .. } => "unknown host",
        _ => "bare-metal host",
    };
    let mut parts = Vec::new();
    // A guest sees what its hypervisor chooses to show: name the CPU on bare metal only. Cascade Lake is
    // model 85 (Skylake-SP) from stepping 5 to 7; 10 and 11 are Cooper Lake.
    if !facts.virtualized && matches!(facts.cpu_signature, Some([6, 85, 5..=7])) {
        parts.push("Cascade Lake");
    }
    parts.push(facts.kvm.as_deref().unwrap_or("no KVM"));
    parts.push(if facts.hardware_pmu { "hardware PMU" } else { "no hardware PMU" });
    format!("{place} ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts;

    #[test]
    fn classes_come_from_facts() {
        let (_dir, fs) = hosts::tree(&hosts::PVM);
        assert_eq!(HostFacts::read(&fs).class, "development host (kvm_pvm, no hardware PMU)");
        let (_dir, fs) = hosts::tree(&hosts::CASCADE_LAKE);
        assert_eq!(HostFacts::read(&fs).class, "bare-metal host (Cascade Lake, kvm_intel, hardware PMU)");
        let (_dir, fs) = hosts::tree(&[]);
        assert_eq!(HostFacts::read(&fs).class, "unknown host (no KVM, no hardware PMU)");
    }
}
