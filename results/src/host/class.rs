//! The host class: the phrase that stands beside every result.

use super::facts::HostFacts;

/// One phrase from facts alone: where the host runs, its CPU generation if it is a Cascade Lake, its KVM,
/// and whether it has a hardware PMU.
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
