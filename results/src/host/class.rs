//! The host class: the phrase that stands beside every result.

use super::facts::HostFacts;

/// Describes the host in one phrase from facts alone: where it runs, its CPU generation if it is a Cascade Lake, its KVM, and whether it
/// has a hardware PMU.
///
/// "Development host" is a host whose figures say nothing about the hosts the published ones come from:
/// its KVM runs guest ring 0 in an emulator (`kvm_pvm`).
#[must_use]
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
    let modelled = facts.register_cost_ns.map(|ns| format!("modelled register cost of {ns} ns"));
    parts.extend(modelled.as_deref());
    format!("{place} ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn classes_come_from_facts() {
        let (_dir, fs) = fixture::tree(fixture::PVM);
        assert_eq!(HostFacts::read(&fs).class, "development host (kvm_pvm, no hardware PMU)");
        let (_dir, fs) = fixture::tree(fixture::CASCADE_LAKE);
        assert_eq!(HostFacts::read(&fs).class, "bare-metal host (Cascade Lake, kvm_intel, hardware PMU)");
        let (_dir, fs) = fixture::tree(&[]);
        assert_eq!(HostFacts::read(&fs).class, "unknown host (no KVM, no hardware PMU)");
    }

    #[test]
    fn a_modelled_register_cost_is_said() {
        let (_dir, fs) = fixture::tree(&[("proc/cmdline", "quiet vpmu.msr_cost=100 x=1\n")]);
        assert_eq!(
            HostFacts::read(&fs).class,
            "unknown host (no KVM, no hardware PMU, modelled register cost of 100 ns)"
        );
        for line in ["vpmu.msr_cost=", "vpmu.msr_cost=x", "xvpmu.msr_cost=1"] {
            let (_dir, fs) = fixture::tree(&[("proc/cmdline", line)]);
            assert_eq!(HostFacts::read(&fs).register_cost_ns, None, "{line}");
        }
    }

    #[test]
    fn a_mediated_vpmu_has_a_name_of_its_own() {
        let parameter = "sys/module/kvm_amd/parameters/enable_mediated_pmu";
        for (files, fact, arm) in [
            (&[][..], None, "kvm"),
            (&[(parameter, "N\n")], Some(false), "kvm"),
            (&[(parameter, "Y\n")], Some(true), "kvm-mediated"),
        ] {
            let (_dir, fs) = fixture::tree(files);
            assert_eq!((HostFacts::read(&fs).kvm_mediated_pmu, super::super::kvm_arm(&fs)), (fact, arm));
        }
    }

    #[test]
    fn a_virtual_machine_is_not_called_bare_metal() {
        let facts = HostFacts {
            cpu_model: Some("x".into()),
            virtualized: true,
            kvm: Some("kvm_amd".into()),
            cpu_signature: Some([6, 85, 7]),
            ..HostFacts::default()
        };
        assert_eq!(host_class(&facts), "virtual machine (kvm_amd, no hardware PMU)");
    }
}
