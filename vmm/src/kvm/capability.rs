//! KVM's capabilities that a guest here needs, or that this tool reports.

use kvm_bindings::{
    KVM_CAP_GET_TSC_KHZ, KVM_CAP_IMMEDIATE_EXIT, KVM_CAP_IRQCHIP, KVM_CAP_MP_STATE, KVM_CAP_PMU_CAPABILITY,
    KVM_CAP_USER_NMI, KVM_CAP_X86_MSR_FILTER, KVM_CAP_X86_USER_SPACE_MSR,
};

/// KVM_GET_API_VERSION since 2007.
pub const API_VERSION: i32 = 12;

/// A capability of KVM (KVM_CHECK_EXTENSION).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The number in the kernel's interface.
    pub number: u32,
    /// The name in the KVM API document.
    pub name: &'static str,
    /// True if the userspace vPMU needs it.
    pub needed: bool,
    /// Its use here.
    pub purpose: &'static str,
}

const fn needed(number: u32, name: &'static str, purpose: &'static str) -> Capability {
    Capability { number, name, needed: true, purpose }
}

/// KVM's own vPMU; the userspace vPMU does without.
pub const PMU_CAPABILITY: Capability = Capability {
    number: KVM_CAP_PMU_CAPABILITY,
    name: "KVM_CAP_PMU_CAPABILITY",
    needed: false,
    purpose: "arm `kvm`: KVM's own vPMU with the same payload",
};

/// Every capability that is checked, one row each.
pub const CAPABILITIES: [Capability; 8] = [
    needed(KVM_CAP_X86_USER_SPACE_MSR, "KVM_CAP_X86_USER_SPACE_MSR", "hands the guest's MSR accesses to this tool"),
    needed(KVM_CAP_X86_MSR_FILTER, "KVM_CAP_X86_MSR_FILTER", "selects the PMU's MSRs for that"),
    needed(KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP", "the guest's LAPIC, whose LVTPC and timer the guest driver uses"),
    needed(KVM_CAP_USER_NMI, "KVM_CAP_USER_NMI", "delivers the PMI"),
    needed(KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE", "starts and halts vCPUs"),
    needed(KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT", "no overflow signal between two guest entries is missed"),
    needed(KVM_CAP_GET_TSC_KHZ, "KVM_CAP_GET_TSC_KHZ", "turns guest TSC ticks into nanoseconds"),
    PMU_CAPABILITY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_capability_has_a_number_of_its_own() {
        for (row, capability) in CAPABILITIES.iter().enumerate() {
            assert!(CAPABILITIES[..row].iter().all(|other| other.number != capability.number), "{capability:?}");
            assert!(capability.name.starts_with("KVM_CAP_") && !capability.purpose.is_empty(), "{capability:?}");
        }
    }
}
