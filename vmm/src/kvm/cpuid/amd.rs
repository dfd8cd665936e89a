//! Leaves of an AMD processor.

use arch_pmu::amd::AmdCaps;
use kvm_bindings::CpuId;

use super::leaf::{CpuidFull, PDCM, RTM_HLE, leaf};
use super::model::Cpu;

/// "AuthenticAMD" in EBX, EDX, ECX.
pub(super) const NAME: [u32; 3] = [0x6874_7541, 0x6974_6e65, 0x444d_4163];

const LARGEST_EXTENDED: u32 = 0x8000_0000;
const EXTENDED_FEATURES: u32 = 0x8000_0001;
const SIZES: u32 = 0x8000_0008;
const PERFMON_V2: u32 = 0x8000_0022;

/// 8000_0001:ECX: more than one core in the package, SVM, IBS, extended topology, the core's PMU with six counters, those of the north
/// bridge and of the last-level cache.
const CMP_LEGACY: u32 = 1 << 1;
const SVM: u32 = 1 << 2;
const IBS: u32 = 1 << 10;
const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;
pub(super) const PERFCTR_CORE: u32 = 1 << 23;
const PERFCTR_NB: u32 = 1 << 24;
const PERFCTR_LLC: u32 = 1 << 28;

/// SVM's own leaf: its revision, its address spaces, its features.
const SVM_FEATURES: u32 = 0x8000_000a;

/// Leaves that this guest has not: Intel's of caches, performance monitoring and trace, those of IBS, extended topology, encrypted memory.
const ABSENT: [u32; 8] = [2, 4, 0xa, 0x14, 0x8000_001b, 0x8000_001d, 0x8000_001e, 0x8000_001f];

/// Returns whether KVM offers SVM to a guest.
pub(super) fn has_svm(supported: &CpuId) -> bool {
    let leaf = |function| supported.as_slice().iter().find(|entry| entry.function == function);
    leaf(EXTENDED_FEATURES).is_some_and(|entry| entry.ecx & SVM != 0) && leaf(SVM_FEATURES).is_some()
}

/// Makes the processor AMD's `model` with `pmu` and `cpus` cores.
pub(super) fn adapt(cpuid: &mut CpuId, model: Cpu, pmu: AmdCaps, cpus: u32) -> Result<(), CpuidFull> {
    let absent =
        |function: u32| ABSENT.contains(&function) || function == PERFMON_V2 || function == SVM_FEATURES && !pmu.svm;
    cpuid.retain(|entry| !absent(entry.function));
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            0 => [entry.ebx, entry.edx, entry.ecx] = NAME,
            1 => entry.ecx &= !PDCM,
            7 if entry.index == 0 => entry.ebx &= !RTM_HLE,
            _ => {}
        }
    }
    let largest = leaf(cpuid, LARGEST_EXTENDED)?;
    let has = [SIZES, if pmu.svm { SVM_FEATURES } else { 0 }, if pmu.perfmon_v2 { PERFMON_V2 } else { 0 }];
    largest.eax = has.into_iter().fold(largest.eax, u32::max);
    [largest.ebx, largest.edx, largest.ecx] = NAME;
    let features = leaf(cpuid, EXTENDED_FEATURES)?;
    features.eax = model.signature();
    features.ecx &=
        !(CMP_LEGACY | if pmu.svm { 0 } else { SVM } | IBS | TOPOLOGY_EXTENSIONS | PERFCTR_NB | PERFCTR_LLC);
    features.ecx |= PERFCTR_CORE | if cpus > 1 { CMP_LEGACY } else { 0 };
    let sizes = leaf(cpuid, SIZES)?;
    // Bits of the APIC id that number the core, and cores but one.
    sizes.ecx = cpus.next_power_of_two().trailing_zeros() << 12 | cpus.saturating_sub(1) & 0xff;
    if pmu.perfmon_v2 {
        let entry = leaf(cpuid, PERFMON_V2)?;
        [entry.eax, entry.ebx, entry.ecx, entry.edx] = pmu.cpuid_8000_0022();
    }
    Ok(())
}
