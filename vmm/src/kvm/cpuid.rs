//! The guest's CPUID: what KVM supports, with the PMU of [`PmuCaps`] and the family and model of an Intel processor.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use thiserror::Error;

use arch_pmu::caps::PmuCaps;

/// The guest's processor, by which an operating system chooses its PMU driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpu {
    /// Cascade Lake SP.
    #[default]
    CascadeLake,
    /// An Intel processor of family 6 with a model number that none has: Linux drives its PMU by CPUID leaf 0AH alone.
    Generic,
}

impl Cpu {
    /// CPUID.1:EAX: family 6, model 85, stepping 7, or model 255.
    const fn signature(self) -> u32 {
        match self {
            Self::CascadeLake => 0x0005_0657,
            Self::Generic => 0x000f_06f0,
        }
    }
}

/// "GenuineIntel" in EBX, EDX, ECX.
const INTEL: [u32; 3] = [0x756e_6547, 0x4965_6e69, 0x6c65_746e];
/// KVM's leaf of features.
const KVM_CPUID_FEATURES: u32 = 0x4000_0001;
const PDCM: u32 = 1 << 15;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const DEBUG_STORE: u32 = 1 << 21;
const MULTI_THREADING: u32 = 1 << 28;
const MONITOR: u32 = 1 << 3;
const RTM_HLE: u32 = 1 << 4 | 1 << 11;

/// No place for a leaf in the table that KVM takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this host's KVM supports {KVM_MAX_CPUID_ENTRIES} CPUID entries and no leaf 0AH, for which that leaves no place: the guest \
     would see no PMU"
)]
pub struct CpuidFull;

/// Adapts what KVM supports to the guest with `pmu`.
pub(crate) fn adapt(cpuid: &mut CpuId, model: Cpu, pmu: PmuCaps, cpu: u32, cpus: u32) -> Result<(), CpuidFull> {
    let mut has_leaf_a = false;
    let intel_host = is_intel(cpuid);
    cpuid.retain(|entry| !TOPOLOGY.contains(&entry.function));
    for level in topology(cpu, cpus) {
        cpuid.push(level).map_err(|_| CpuidFull)?;
    }
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            0 => {
                // "GenuineIntel": the Intel PMU driver looks for it, and this host may be AMD.
                entry.eax = entry.eax.max(0xd);
                [entry.ebx, entry.edx, entry.ecx] = INTEL;
            }
            1 => leaf_1(entry, model, pmu, cpu, cpus),
            7 if entry.index == 0 && !pmu.transactions => entry.ebx &= !RTM_HLE,
            0xa => {
                has_leaf_a = true;
                set_leaf_a(entry, pmu);
            }
            KVM_CPUID_FEATURES if !intel_host => entry.eax &= !BY_HYPERCALL,
            _ => {}
        }
    }
    if !has_leaf_a {
        let mut entry = kvm_cpuid_entry2 { function: 0xa, ..kvm_cpuid_entry2::default() };
        set_leaf_a(&mut entry, pmu);
        cpuid.push(entry).map_err(|_| CpuidFull)?;
    }
    Ok(())
}

/// Features of KVM that a guest uses by a hypercall: PV_UNHALT, PV_SEND_IPI, PV_SCHED_YIELD. An Intel's is VMCALL, which on another
/// host KVM would have to patch in the guest's code, and Linux's code is read-only.
const BY_HYPERCALL: u32 = 1 << 7 | 1 << 11 | 1 << 13;

/// Whether the host is an Intel.
fn is_intel(supported: &CpuId) -> bool {
    supported.as_slice().iter().any(|entry| entry.function == 0 && entry.ebx == INTEL[0])
}

/// Leaves that describe the topology.
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];

/// Leaf 0BH: one package, a core of one thread per vCPU; the last word is the vCPU's own x2APIC id.
fn topology(cpu: u32, cpus: u32) -> [kvm_cpuid_entry2; 3] {
    // The level, its type (1 = thread, 2 = core), the bits of an x2APIC id below the next level, CPUs at it.
    let cores = cpus.next_power_of_two().trailing_zeros();
    [(0, 1, 0, 1), (1, 2, cores, cpus), (2, 0, 0, 0)].map(|(level, kind, shift, count)| kvm_cpuid_entry2 {
        function: 0xb,
        index: level,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | level,
        edx: cpu,
        ..kvm_cpuid_entry2::default()
    })
}

fn set_leaf_a(entry: &mut kvm_cpuid_entry2, pmu: PmuCaps) {
    [entry.eax, entry.ebx, entry.ecx, entry.edx] = pmu.cpuid_0a();
}

fn leaf_1(entry: &mut kvm_cpuid_entry2, model: Cpu, pmu: PmuCaps, cpu: u32, cpus: u32) {
    entry.eax = model.signature();
    entry.ebx = entry.ebx & 0x0000_ffff | cpus.min(255) << 16 | (cpu & 0xff) << 24;
    entry.ecx = (entry.ecx | PDCM | X2APIC | TSC_DEADLINE | HYPERVISOR) & !MONITOR;
    // More than one logical processor in the package.
    if cpus > 1 {
        entry.edx |= MULTI_THREADING;
    } else {
        entry.edx &= !MULTI_THREADING;
    }
    if pmu.debug_store {
        entry.edx |= DEBUG_STORE;
    } else {
        entry.edx &= !DEBUG_STORE;
    }
}

/// Hides what QEMU's software emulation gets wrong in a nested guest (host B, QEMU 7.2) and Linux uses.
///
/// - XSAVE, and the state that only it saves: AVX and its relatives, AMX, protection keys. Seen: CPUID leaf 0DH with
///   the size of the reset state, and kernels that crash behind XSAVE; the likely reason is that XSETBV does not exit.
/// - CMPXCHG16B. Seen: crashes soon after it with bits of an operand in RFLAGS, such as the direction flag; the reason is not known.
pub(crate) fn hide_misemulated(cpuid: &mut CpuId) {
    cpuid.retain(|entry| entry.function != 0xd);
    for entry in cpuid.as_mut_slice() {
        match (entry.function, entry.index) {
            // FMA, CMPXCHG16B; XSAVE, OSXSAVE, AVX, F16C.
            (1, _) => entry.ecx &= !(1 << 12 | 1 << 13 | 0xf << 26),
            (7, 0) => {
                // AVX2, AVX-512; PKU, OSPKE, VAES, VPCLMULQDQ; AMX.
                entry.ebx &= !(1 << 5 | 1 << 16 | 1 << 17 | 1 << 21 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31);
                entry.ecx &= !(1 << 1 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14);
                entry.edx &= !(1 << 2 | 1 << 3 | 1 << 8 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 25);
            }
            // AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA.
            (7, 1) => entry.eax &= !(1 << 4 | 1 << 5 | 1 << 21 | 1 << 23),
            // XOP, FMA4.
            (0x8000_0001, _) => entry.ecx &= !(1 << 11 | 1 << 16),
            _ => {}
        }
    }
}

/// The APIC id alone, for a guest that keeps KVM's own PMU.
pub(crate) fn set_apic_id(cpuid: &mut CpuId, cpu: u32) {
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => entry.ebx = entry.ebx & 0x00ff_ffff | (cpu & 0xff) << 24,
            0xb | 0x1f => entry.edx = cpu,
            _ => {}
        }
    }
}

/// Whether KVM's own vPMU has counters for a guest, by the leaf it supports.
pub(crate) fn kvm_has_pmu(supported: &CpuId) -> bool {
    supported
        .as_slice()
        .iter()
        .any(|entry| entry.function == 0xa && entry.eax & 0xff != 0 && entry.eax >> 8 & 0xff != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 { function, eax: !0, ebx: !0, ecx: !0, edx: !0, ..kvm_cpuid_entry2::default() }
    }

    #[test]
    fn the_guest_is_an_intel_with_the_pmu_that_was_asked_for() {
        let mut cpuid = CpuId::from_entries(&[entry(0), entry(1), entry(7)]).unwrap();
        adapt(&mut cpuid, Cpu::CascadeLake, PmuCaps::default(), 3, 4).unwrap();
        let leaf = |function| *cpuid.as_slice().iter().find(|e| e.function == function).unwrap();
        assert_eq!((leaf(0).ebx, leaf(0).edx, leaf(0).ecx), (0x756e_6547, 0x4965_6e69, 0x6c65_746e));
        assert_eq!((leaf(1).eax, leaf(1).ebx >> 16, leaf(1).edx & DEBUG_STORE), (0x0005_0657, 0x0304, 0));
        assert_eq!(leaf(1).ecx & (PDCM | X2APIC | MONITOR), PDCM | X2APIC);
        assert_eq!(leaf(7).ebx & RTM_HLE, 0);
        assert_eq!(leaf(0xa).eax, 0x0730_0402, "added where KVM has no PMU leaf");
    }

    #[test]
    fn a_guest_without_a_pmu_in_cpuid_is_refused() {
        let full: Vec<_> = (0..KVM_MAX_CPUID_ENTRIES as u32).map(|n| entry(0x100 + n)).collect();
        let mut cpuid = CpuId::from_entries(&full).unwrap();
        assert_eq!(adapt(&mut cpuid, Cpu::CascadeLake, PmuCaps::default(), 0, 1), Err(CpuidFull));
        let mut full = full;
        full.truncate(full.len() - 3);
        full[3].function = 0xa;
        let mut cpuid = CpuId::from_entries(&full).unwrap();
        assert_eq!(adapt(&mut cpuid, Cpu::CascadeLake, PmuCaps::default(), 0, 1), Ok(()), "there is one to adapt");
        assert_eq!(cpuid.as_slice()[3].eax, 0x0730_0402);
    }

    #[test]
    fn hypercalls_are_offered_where_the_instruction_is_the_hosts() {
        for (vendor, features) in [(INTEL[0], !0), (0x6874_7541, !BY_HYPERCALL)] {
            let zero = kvm_cpuid_entry2 { ebx: vendor, ..entry(0) };
            let mut cpuid = CpuId::from_entries(&[zero, entry(1), entry(KVM_CPUID_FEATURES)]).unwrap();
            adapt(&mut cpuid, Cpu::Generic, PmuCaps::default(), 0, 1).unwrap();
            assert_eq!(cpuid.as_slice()[2].eax, features);
        }
    }

    #[test]
    fn what_is_misemulated_is_hidden() {
        let mut cpuid = CpuId::from_entries(&[entry(1), entry(7), entry(0xd), entry(0x8000_0001)]).unwrap();
        hide_misemulated(&mut cpuid);
        let leaves: Vec<_> = cpuid.as_slice().iter().map(|entry| entry.function).collect();
        assert_eq!(leaves, [1, 7, 0x8000_0001]);
        assert_eq!(cpuid.as_slice()[0].ecx >> 26 & 0xf, 0, "XSAVE, OSXSAVE, AVX, F16C");
        assert_eq!(cpuid.as_slice()[0].ecx >> 20 & 1, 1, "SSE4.2 stays");
        assert_eq!(cpuid.as_slice()[1].ebx >> 5 & 1, 0, "AVX2");
    }

    #[test]
    fn kvms_own_pmu_is_distinguished_from_its_absence() {
        let with = |eax| {
            CpuId::from_entries(&[kvm_cpuid_entry2 { function: 0xa, eax, ..kvm_cpuid_entry2::default() }]).unwrap()
        };
        assert!(kvm_has_pmu(&with(0x0730_0802)));
        assert!(!kvm_has_pmu(&with(0)) && !kvm_has_pmu(&CpuId::from_entries(&[]).unwrap()));
    }
}
