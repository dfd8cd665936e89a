//! The guest's CPUID: what KVM supports, with the PMU of [`PmuCaps`], and the vendor, family and model of a processor that has it.

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;
use arch_pmu::spec::Vendor;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use thiserror::Error;

/// KVM's leaf of features.
const KVM_CPUID_FEATURES: u32 = 0x4000_0001;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const MULTI_THREADING: u32 = 1 << 28;
const MONITOR: u32 = 1 << 3;

/// Adapts what KVM supports to the guest with `pmu`.
pub(crate) fn adapt(cpuid: &mut CpuId, model: Cpu, pmu: PmuCaps, cpu: u32, cpus: u32) -> Result<(), CpuidFull> {
    let host = vendor(cpuid);
    cpuid.retain(|entry| !TOPOLOGY.contains(&entry.function));
    for level in topology(cpu, cpus) {
        cpuid.push(level).map_err(|_| CpuidFull)?;
    }
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            0 => entry.eax = entry.eax.max(0xd),
            1 => leaf_1(entry, model, cpu, cpus),
            KVM_CPUID_FEATURES if host != Some(model.vendor()) => entry.eax &= !BY_HYPERCALL,
            _ => {}
        }
    }
    match pmu {
        PmuCaps::Intel(pmu) => adapt_intel(cpuid, pmu),
        PmuCaps::Amd(pmu) => adapt_amd(cpuid, model, pmu, cpus),
    }
}

/// Features of KVM that a guest uses by a hypercall: PV_UNHALT, PV_SEND_IPI, PV_SCHED_YIELD. An Intel's is VMCALL and
/// an AMD's VMMCALL, which on a host of the other vendor KVM would have to patch in the guest's code, and Linux's code
/// is read-only.
const BY_HYPERCALL: u32 = 1 << 7 | 1 << 11 | 1 << 13;

/// Returns the host's vendor, if it is one of both.
pub(crate) fn vendor(supported: &CpuId) -> Option<Vendor> {
    match find(supported, 0)?.ebx {
        ebx if ebx == INTEL_NAME[0] => Some(Vendor::Intel),
        ebx if ebx == AMD_NAME[0] => Some(Vendor::Amd),
        _ => None,
    }
}

/// Leaves that describe the topology.
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];

/// Returns leaf 0BH: one package, a core of one thread per vCPU; the last word is the vCPU's own x2APIC id.
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

fn leaf_1(entry: &mut kvm_cpuid_entry2, model: Cpu, cpu: u32, cpus: u32) {
    entry.eax = model.signature();
    entry.ebx = entry.ebx & 0x0000_ffff | cpus.min(255) << 16 | (cpu & 0xff) << 24;
    entry.ecx = (entry.ecx | X2APIC | TSC_DEADLINE | HYPERVISOR) & !MONITOR;
    // The bit says that the package has more than one logical processor.
    if cpus > 1 {
        entry.edx |= MULTI_THREADING;
    } else {
        entry.edx &= !MULTI_THREADING;
    }
    entry.edx &= !DEBUG_STORE;
}

/// Hides what QEMU's software emulation gets wrong in a nested guest (host B, QEMU 7.2) and Linux uses.
///
/// - XSAVE, and the state that only it saves: AVX and its relatives, AMX, protection keys. Seen: CPUID leaf 0DH with
///   the size of the reset state, and kernels that crash behind XSAVE; the likely reason is that XSETBV does not exit.
/// - CMPXCHG16B. Seen: crashes soon after it with bits of an operand in RFLAGS, such as the direction flag; the reason
///   is not known.
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

/// Sets the APIC id alone, for a guest that keeps KVM's own PMU.
pub(crate) fn set_apic_id(cpuid: &mut CpuId, cpu: u32) {
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => entry.ebx = entry.ebx & 0x00ff_ffff | (cpu & 0xff) << 24,
            0xb | 0x1f => entry.edx = cpu,
            _ => {}
        }
    }
}

/// Returns whether KVM's own vPMU has counters for a guest, by the leaf it supports.
pub(crate) fn kvm_has_pmu(supported: &CpuId) -> bool {
    kvm_counters(supported).is_some_and(|(gp, _)| gp != 0)
}

/// Returns the numbers of general-purpose and fixed counters of leaf 0AH; `None` without an architectural PMU.
pub(crate) fn kvm_counters(supported: &CpuId) -> Option<(u32, u32)> {
    let leaf = find(supported, 0xa).filter(|leaf| leaf.eax & 0xff != 0)?;
    Some((leaf.eax >> 8 & 0xff, leaf.edx & 0x1f))
}

/// Returns whether KVM shows a guest an AMD's six counters at indices of their own.
pub(crate) fn kvm_has_perfctr_core(supported: &CpuId) -> bool {
    find(supported, EXTENDED_FEATURES).is_some_and(|entry| entry.ecx & PERFCTR_CORE != 0)
}

/// Returns whether KVM shows a guest an AMD's PerfMonV2 (Linux 6.5, on hosts that have it).
pub(crate) fn kvm_has_perfmon_v2(supported: &CpuId) -> bool {
    find(supported, PERFMON_V2).is_some_and(|entry| entry.eax & 1 != 0)
}

fn find(cpuid: &CpuId, function: u32) -> Option<&kvm_cpuid_entry2> {
    cpuid.as_slice().iter().find(|entry| entry.function == function)
}

/// 1:EDX: a debug store.
const DEBUG_STORE: u32 = 1 << 21;
/// 1:ECX: IA32_PERF_CAPABILITIES.
const PDCM: u32 = 1 << 15;
/// 7:EBX: RTM and HLE.
const RTM_HLE: u32 = 1 << 4 | 1 << 11;
/// 7:ECX: IA32_DEBUGCTL has a bit for bus locks.
const BUS_LOCK_DETECT: u32 = 1 << 24;

/// The table that KVM takes has no place for a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this host's KVM supports {KVM_MAX_CPUID_ENTRIES} CPUID entries and lacks one of the PMU's, for which that leaves no place: the \
     guest would see no PMU"
)]
pub struct CpuidFull;

/// Returns the leaf `function`, made if KVM has none.
fn leaf(cpuid: &mut CpuId, function: u32) -> Result<&mut kvm_cpuid_entry2, CpuidFull> {
    let at = match cpuid.as_slice().iter().position(|entry| entry.function == function) {
        Some(at) => at,
        None => {
            let entry = kvm_cpuid_entry2 { function, ..kvm_cpuid_entry2::default() };
            cpuid.push(entry).map_err(|_| CpuidFull)?;
            cpuid.as_slice().len() - 1
        }
    };
    Ok(&mut cpuid.as_mut_slice()[at])
}

/// The guest's processor, by which an operating system chooses its PMU driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpu {
    /// Cascade Lake SP.
    #[default]
    CascadeLake,
    /// An Intel processor of family 6 with a model number that none has: Linux drives its PMU by CPUID leaf 0AH alone.
    Generic,
    /// AMD EPYC 7003: six counters, each started by its own enable (PERFCTR_CORE).
    Milan,
    /// AMD EPYC 9004: PerfMonV2 with six counters.
    Genoa,
}

impl Cpu {
    /// Returns CPUID.1:EAX: family 6, model 85, stepping 7, or model 255; family 25, model 1 or 17, stepping 1.
    const fn signature(self) -> u32 {
        match self {
            Self::CascadeLake => 0x0005_0657,
            Self::Generic => 0x000f_06f0,
            Self::Milan => 0x00a0_0f11,
            Self::Genoa => 0x00a1_0f11,
        }
    }

    /// The processors by name.
    pub const ALL: [(&str, Self); 4] =
        [("clx", Self::CascadeLake), ("generic", Self::Generic), ("milan", Self::Milan), ("genoa", Self::Genoa)];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, cpu)| *cpu == self).map_or("", |(name, _)| name)
    }

    /// Returns its vendor.
    pub const fn vendor(self) -> Vendor {
        match self {
            Self::CascadeLake | Self::Generic => Vendor::Intel,
            Self::Milan | Self::Genoa => Vendor::Amd,
        }
    }

    /// Returns its PMU, as KVM shows it.
    pub fn pmu(self) -> PmuCaps {
        self.pmu_of_version(IntelCaps::default().version)
    }

    /// Returns its PMU; an Intel's has a `version`.
    pub fn pmu_of_version(self, version: u8) -> PmuCaps {
        match self {
            Self::CascadeLake | Self::Generic => PmuCaps::Intel(IntelCaps { version, ..IntelCaps::default() }),
            Self::Milan => PmuCaps::Amd(AmdCaps::default()),
            Self::Genoa => PmuCaps::Amd(AmdCaps::GENOA),
        }
    }
}

/// "AuthenticAMD" in EBX, EDX, ECX.
const AMD_NAME: [u32; 3] = [0x6874_7541, 0x6974_6e65, 0x444d_4163];

const LARGEST_EXTENDED: u32 = 0x8000_0000;
const EXTENDED_FEATURES: u32 = 0x8000_0001;
const SIZES: u32 = 0x8000_0008;
const PERFMON_V2: u32 = 0x8000_0022;

/// 8000_0001:ECX: more than one core in the package, SVM, IBS, extended topology, the core's PMU with six counters,
/// those of the north bridge and of the last-level cache.
const CMP_LEGACY: u32 = 1 << 1;
const SVM: u32 = 1 << 2;
const IBS: u32 = 1 << 10;
const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;
const PERFCTR_CORE: u32 = 1 << 23;
const PERFCTR_NB: u32 = 1 << 24;
const PERFCTR_LLC: u32 = 1 << 28;

/// SVM's own leaf: its revision, its address spaces, its features.
const SVM_FEATURES: u32 = 0x8000_000a;

/// Leaves that this guest has not: Intel's of caches, performance monitoring, enclaves, trace, keys and tiles, those of IBS,
/// extended topology, encrypted memory.
const ABSENT: [u32; 12] = [2, 4, 0xa, 0x12, 0x14, 0x19, 0x1d, 0x1e, 0x8000_001b, 0x8000_001d, 0x8000_001e, 0x8000_001f];

/// 1:ECX and 1:EDX of Intel's alone.
const VMX: u32 = 1 << 5;
const SELF_SNOOP: u32 = 1 << 27;
/// 7:EBX and 7:ECX of Intel's alone: SGX, MPX, trace, AVX512PF and AVX512ER; WAITPKG, key locker, ENQCMD, SGX's launch.
const INTELS_7_EBX: u32 = 1 << 2 | 1 << 14 | 3 << 25 | 1 << 27;
const INTELS_7_ECX: u32 = 1 << 5 | 1 << 23 | 1 << 29 | 1 << 30;
/// 7:EDX that an AMD's processor has, fast short REP MOVS and L1D_FLUSH: it announces its control of speculation elsewhere.
const AMDS_7_EDX: u32 = 1 << 4 | 1 << 28;

/// Returns whether KVM offers SVM to a guest.
pub(crate) fn has_svm(supported: &CpuId) -> bool {
    find(supported, EXTENDED_FEATURES).is_some_and(|entry| entry.ecx & SVM != 0)
        && find(supported, SVM_FEATURES).is_some()
}

/// Makes the processor AMD's `model` with `pmu` and `cpus` cores.
fn adapt_amd(cpuid: &mut CpuId, model: Cpu, pmu: AmdCaps, cpus: u32) -> Result<(), CpuidFull> {
    let absent =
        |function: u32| ABSENT.contains(&function) || function == PERFMON_V2 || function == SVM_FEATURES && !pmu.svm;
    cpuid.retain(|entry| !absent(entry.function));
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            0 => [entry.ebx, entry.edx, entry.ecx] = AMD_NAME,
            1 => {
                entry.ecx &= !(PDCM | VMX);
                entry.edx &= !SELF_SNOOP;
            }
            7 if entry.index == 0 => {
                entry.ebx &= !(RTM_HLE | INTELS_7_EBX);
                entry.ecx &= !(BUS_LOCK_DETECT | INTELS_7_ECX);
                entry.edx &= AMDS_7_EDX;
            }
            _ => {}
        }
    }
    let largest = leaf(cpuid, LARGEST_EXTENDED)?;
    let has = [SIZES, if pmu.svm { SVM_FEATURES } else { 0 }, if pmu.perfmon_v2 { PERFMON_V2 } else { 0 }];
    largest.eax = has.into_iter().fold(largest.eax, u32::max);
    [largest.ebx, largest.edx, largest.ecx] = AMD_NAME;
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

/// "GenuineIntel" in EBX, EDX, ECX.
const INTEL_NAME: [u32; 3] = [0x756e_6547, 0x4965_6e69, 0x6c65_746e];

/// 8000_0001:ECX, EDX that an Intel processor has: LAHF, LZCNT, PREFETCHW; SYSCALL, NX, 1 GiB pages, RDTSCP, 64-bit mode.
const INTELS_EXTENDED: [u32; 2] = [1 << 0 | 1 << 5 | 1 << 8, 1 << 11 | 1 << 20 | 1 << 26 | 1 << 27 | 1 << 29];
/// 8000_0008:EBX that it has: WBNOINVD.
const WBNOINVD: u32 = 1 << 9;

/// Makes the processor an Intel's with `pmu`.
fn adapt_intel(cpuid: &mut CpuId, pmu: IntelCaps) -> Result<(), CpuidFull> {
    cpuid.retain(|entry| !(SIZES < entry.function && entry.function >> 16 == LARGEST_EXTENDED >> 16));
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            // The Intel PMU driver looks for it, and this host may be AMD.
            0 => [entry.ebx, entry.edx, entry.ecx] = INTEL_NAME,
            1 => {
                entry.ecx |= PDCM;
                if pmu.debug_store {
                    entry.edx |= DEBUG_STORE;
                }
            }
            7 if entry.index == 0 => {
                // Linux sets that bit where CPUID offers it (`bus_lock_init`), and this vPMU's IA32_DEBUGCTL has none.
                entry.ecx &= !BUS_LOCK_DETECT;
                if !pmu.transactions {
                    entry.ebx &= !RTM_HLE;
                }
            }
            LARGEST_EXTENDED => {
                [entry.eax, entry.ebx, entry.ecx, entry.edx] = [entry.eax.min(SIZES), 0, 0, 0];
            }
            EXTENDED_FEATURES => {
                let [ecx, edx] = INTELS_EXTENDED;
                [entry.eax, entry.ebx, entry.ecx, entry.edx] = [0, 0, entry.ecx & ecx, entry.edx & edx];
            }
            // Intel's processors do not describe AMD's caches.
            0x8000_0005 => [entry.eax, entry.ebx, entry.ecx, entry.edx] = [0; 4],
            SIZES => [entry.ebx, entry.ecx, entry.edx] = [entry.ebx & WBNOINVD, 0, 0],
            _ => {}
        }
    }
    let entry = leaf(cpuid, 0xa)?;
    [entry.eax, entry.ebx, entry.ecx, entry.edx] = pmu.cpuid_0a();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use kvm_bindings::KVM_MAX_CPUID_ENTRIES;

    use super::*;

    fn entry(function: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 { function, eax: !0, ebx: !0, ecx: !0, edx: !0, ..kvm_cpuid_entry2::default() }
    }

    /// Returns which bits a register has.
    fn bits(of: u32) -> String {
        let clear: Vec<_> = (0..32).filter(|bit| of >> bit & 1 == 0).map(|bit: u32| bit.to_string()).collect();
        match clear.len() {
            0 => "all".to_owned(),
            1..=12 => format!("all but {}", clear.join(" ")),
            _ => format!("{of:#x}"),
        }
    }

    /// `cpuid.txt` has what each guest sees on vCPU 3 of 4, where a KVM of either vendor's host supports all bits of all leaves: the
    /// leaves that are gone, and those that are not as KVM's. Last, what is left where an emulation gets things wrong.
    #[test]
    fn each_guest_sees_its_processor() {
        let leaves = (0..=0x1d).chain([KVM_CPUID_FEATURES]).chain(0x8000_0000..=0x8000_0022);
        let mut all: Vec<_> = leaves.map(entry).chain([kvm_cpuid_entry2 { index: 1, ..entry(7) }]).collect();
        let mut text = String::new();
        let mut show = |what: &str, all: &[kvm_cpuid_entry2], change: &dyn Fn(&mut CpuId)| {
            let mut cpuid = CpuId::from_entries(all).unwrap();
            change(&mut cpuid);
            let gone = all.iter().map(|entry| entry.function).filter(|function| find(&cpuid, *function).is_none());
            let gone: Vec<_> = gone.map(|function| format!("{function:x}")).collect();
            writeln!(text, "# {what}\ngone: {}", gone.join(" ")).unwrap();
            for entry in cpuid.as_slice().iter().filter(|entry| !all.contains(entry)) {
                let registers = [entry.eax, entry.ebx, entry.ecx, entry.edx].map(bits).join(", ");
                writeln!(text, "{:x}.{}: {registers}", entry.function, entry.index).unwrap();
            }
        };
        for (name, cpu) in Cpu::ALL {
            for (host, of_host) in [("Intel's", INTEL_NAME), ("AMD's", AMD_NAME)] {
                [all[0].ebx, all[0].edx, all[0].ecx] = of_host;
                show(&format!("{name}, {host} host"), &all, &|cpuid| adapt(cpuid, cpu, cpu.pmu(), 3, 4).unwrap());
            }
        }
        show("what is misemulated is hidden", &all, &hide_misemulated);
        trials::golden(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kvm/cpuid.txt"), &text);
    }

    #[test]
    fn a_guest_without_a_pmu_in_cpuid_is_refused() {
        let mut full: Vec<_> = (0..KVM_MAX_CPUID_ENTRIES as u32 - 3).map(|n| entry(0x100 + n)).collect();
        let adapt = |entries: &[kvm_cpuid_entry2]| {
            let mut cpuid = CpuId::from_entries(entries).unwrap();
            adapt(&mut cpuid, Cpu::CascadeLake, PmuCaps::default(), 0, 1).map(|()| find(&cpuid, 0xa).unwrap().eax)
        };
        assert_eq!(adapt(&full), Err(CpuidFull), "three levels of the topology take the rest");
        full[3].function = 0xa;
        assert_eq!(adapt(&full), Ok(0x0730_0402), "there is one to adapt");
        assert_eq!(adapt(&[0, 1, 7].map(entry)), Ok(0x0730_0402), "added where KVM has no PMU leaf");
    }

    #[test]
    fn a_guest_that_is_a_host_has_svm_and_its_leaf() {
        let svm = kvm_cpuid_entry2 { eax: 1, ebx: 8, ecx: 0, edx: 0x9, ..entry(0x8000_000a) };
        let supported = [entry(0), entry(1), entry(0x8000_0000), entry(0x8000_0001), entry(0x8000_0008), svm];
        let mut cpuid = CpuId::from_entries(&supported).unwrap();
        assert!(has_svm(&cpuid));
        let pmu = PmuCaps::Amd(arch_pmu::amd::AmdCaps { svm: true, ..arch_pmu::amd::AmdCaps::GENOA });
        adapt(&mut cpuid, Cpu::Genoa, pmu, 0, 1).unwrap();
        let leaf = |function| find(&cpuid, function).copied();
        assert_eq!(leaf(0x8000_0001).unwrap().ecx >> 2 & 1, 1);
        assert_eq!(leaf(0x8000_000a), Some(svm), "KVM's own");
        assert!(has_svm(&cpuid));
        adapt(&mut cpuid, Cpu::Genoa, Cpu::Genoa.pmu(), 0, 1).unwrap();
        assert!(!has_svm(&cpuid) && find(&cpuid, 0x8000_000a).is_none());
        let without = CpuId::from_entries(&[kvm_cpuid_entry2 { ecx: 0, ..entry(0x8000_0001) }, svm]).unwrap();
        assert!(!has_svm(&without));
    }

    #[test]
    fn kvms_own_pmu_is_distinguished_from_its_absence() {
        let with = |eax| {
            CpuId::from_entries(&[kvm_cpuid_entry2 { function: 0xa, eax, ..kvm_cpuid_entry2::default() }]).unwrap()
        };
        assert!(kvm_has_pmu(&with(0x0730_0802)));
        assert!(!kvm_has_pmu(&with(0)) && !kvm_has_pmu(&CpuId::from_entries(&[]).unwrap()));
        let six = |ecx| CpuId::from_entries(&[kvm_cpuid_entry2 { ecx, ..entry(0x8000_0001) }]).unwrap();
        assert!(kvm_has_perfctr_core(&six(1 << 23)) && !kvm_has_perfctr_core(&six(!(1 << 23))));
        assert!(!kvm_has_perfctr_core(&with(!0)));
    }
}
