//! This host's KVM: opening it, its capabilities, one VM and its vCPUs.

use std::io;
use std::path::Path;

use arch_pmu::amd::PERF_CTL0;
use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use kvm_bindings::{
    CpuId, KVM_CAP_GET_TSC_KHZ, KVM_CAP_IMMEDIATE_EXIT, KVM_CAP_IRQCHIP, KVM_CAP_MP_STATE, KVM_CAP_PMU_CAPABILITY,
    KVM_CAP_USER_NMI, KVM_CAP_X86_MSR_FILTER, KVM_CAP_X86_USER_SPACE_MSR, KVM_MSR_EXIT_REASON_FILTER,
    KVM_PIT_SPEAKER_DUMMY, KVM_PMU_CAP_DISABLE, kvm_enable_cap, kvm_pit_config,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use thiserror::Error;
use vm_memory::GuestMemoryMmap;

use super::cpuid::{self, Cpu};
use super::msr_filter::{self, Also};
use super::other_msrs::OneMsr;
use crate::outcome::End;
use crate::sys;

/// Reason why KVM cannot be used, with the remedy.
#[derive(Debug, Error)]
pub enum KvmError {
    /// `/dev/kvm` does not open.
    #[error("/dev/kvm: {error}{remedy}")]
    Open {
        /// The system's error.
        error: io::Error,
        /// Remedy to be shown.
        remedy: &'static str,
    },
    /// A capability is missing.
    #[error("this host's KVM lacks {0}; Linux 5.10 or later has it")]
    Lacks(&'static str),
    /// More vCPUs than KVM allows.
    #[error("{asked} vCPUs: this host's KVM and the payload allow 1 to {allowed}; give another number with --vcpus")]
    TooManyVcpus {
        /// Number asked for.
        asked: usize,
        /// Allowed.
        allowed: usize,
    },
    /// The guest's PMU would have to be KVM's own, and it has none.
    #[error("{0}")]
    NoKvmPmu(String),
    /// Host events hold the PMU that a mediated vPMU takes as a whole.
    #[error(
        "KVM_CREATE_VCPU: EBUSY: a mediated vPMU takes the whole PMU, and host events that count in guests have it; end them (perf without \
         exclude_guest, guests on backend hardware)"
    )]
    PmuTaken,
    /// The guest's PMU does not fit into CPUID.
    #[error(transparent)]
    CpuidFull(#[from] cpuid::CpuidFull),
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// The ioctl.
        call: &'static str,
        /// The system's error.
        error: kvm_ioctls::Error,
    },
}

impl From<KvmError> for End {
    fn from(error: KvmError) -> Self {
        Self::Host(error.to_string())
    }
}

/// Names the ioctl that failed.
pub(crate) fn ioctl_failed(call: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> KvmError {
    move |error| KvmError::Call { call, error }
}

/// Returns the reason why a vCPU cannot be made.
fn no_vcpu(error: kvm_ioctls::Error) -> KvmError {
    // `perf_create_mediated_pmu` fails so (Linux 7.0).
    if error.errno() == libc::EBUSY { KvmError::PmuTaken } else { ioctl_failed("KVM_CREATE_VCPU")(error) }
}

/// This host's KVM.
#[derive(Debug)]
pub struct Host(Kvm);

impl Host {
    /// Opens `/dev/kvm` and checks that it has the abilities that a guest here needs.
    pub fn open() -> Result<Self, KvmError> {
        let host = Self::open_any()?;
        match CAPABILITIES.iter().find(|capability| capability.needed && host.capability(capability.number) <= 0) {
            Some(capability) => Err(KvmError::Lacks(capability.name)),
            None => Ok(host),
        }
    }

    /// Opens `/dev/kvm`, whether or not a guest can run here.
    pub fn open_any() -> Result<Self, KvmError> {
        let kvm = Kvm::new().map_err(|error| {
            let error = io::Error::from_raw_os_error(error.errno());
            let remedy = match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => "; add this user to the group that owns it (usually kvm), or run as root",
                Some(libc::ENOENT) if Path::new("/sys/module/kvm").exists() => {
                    "; KVM is in the kernel but has no device: is virtualization enabled in the firmware, or nested on the outer host?"
                }
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "; load it with: modprobe kvm_intel (or kvm_amd)",
                _ => "",
            };
            KvmError::Open { error, remedy }
        })?;
        if kvm.get_api_version() != API_VERSION {
            return Err(KvmError::Open { error: io::Error::other("it is not KVM's device"), remedy: "" });
        }
        Ok(Self(kvm))
    }

    /// Calls KVM_CHECK_EXTENSION; 0 = absent.
    pub fn capability(&self, number: u32) -> i32 {
        self.0.check_extension_raw(number.into())
    }

    fn supported(&self) -> Result<CpuId, KvmError> {
        self.0.get_supported_cpuid(sys::MAX_CPUID).map_err(ioctl_failed("KVM_GET_SUPPORTED_CPUID"))
    }

    /// Returns the most vCPUs of one VM.
    pub fn max_vcpus(&self) -> usize {
        self.0.get_max_vcpus()
    }

    /// Checks that a VM may have that many vCPUs, by KVM and by `most`.
    pub(crate) fn check_vcpus(&self, asked: usize, most: usize) -> Result<(), KvmError> {
        let allowed = self.max_vcpus().min(most);
        if (1..=allowed).contains(&asked) { Ok(()) } else { Err(KvmError::TooManyVcpus { asked, allowed }) }
    }

    /// Checks that KVM's own vPMU can serve a guest; the error says why not.
    pub fn kvm_pmu(&self) -> Result<(), String> {
        let capability = self.capability(KVM_CAP_PMU_CAPABILITY) > 0;
        // Kernels before 5.18 have no such capability, and those before 5.17 no such parameter. On an AMD they keep a
        // guest's selectors even if the host itself has no PMU.
        let disabled =
            std::fs::read_to_string("/sys/module/kvm/parameters/enable_pmu").is_ok_and(|value| value.trim() == "N");
        let pmu = Path::new("/sys/bus/event_source/devices/cpu").exists();
        if !capability && (disabled || !pmu) {
            let why = if pmu { "kvm.enable_pmu=N" } else { "the host has no hardware PMU" };
            return Err(format!("this host's KVM has no vPMU: {why}"));
        }
        let supported = self.supported().map_err(|error| error.to_string())?;
        match cpuid::vendor(&supported) {
            Some(Vendor::Amd) => self.answers_perf_ctl(&supported),
            _ if cpuid::kvm_has_pmu(&supported) => Ok(()),
            _ => Err("this host's KVM shows no performance counters in CPUID leaf 0AH".to_owned()),
        }
    }

    /// Returns the vendor of the PMU that KVM shows a guest: the host's.
    pub fn vendor(&self) -> Option<Vendor> {
        cpuid::vendor(&self.supported().ok()?)
    }

    /// Returns the numbers of general-purpose and fixed counters of the architectural PMU that KVM shows a guest (CPUID
    /// leaf 0AH); `None` without one.
    pub fn shown_counters(&self) -> Option<(u32, u32)> {
        cpuid::kvm_counters(&self.supported().ok()?)
    }

    /// Returns the number of counters of the PMU that KVM shows a guest, which are the host's: all of an Intel's, or an AMD's six
    /// (PERFCTR_CORE).
    pub fn counters(&self) -> Option<u32> {
        let supported = self.supported().ok()?;
        match cpuid::vendor(&supported)? {
            Vendor::Intel => cpuid::kvm_counters(&supported).map(|(gp, fixed)| gp + fixed),
            Vendor::Amd => cpuid::kvm_has_perfctr_core(&supported).then_some(6),
        }
    }

    /// Returns whether KVM shows a guest an AMD's PerfMonV2, for which its driver has another handler.
    pub fn shows_perfmon_v2(&self) -> bool {
        self.supported().is_ok_and(|supported| cpuid::kvm_has_perfmon_v2(&supported))
    }

    /// Checks that a vCPU has the six counters that the guests' driver takes (PERFCTR_CORE), by the last one's
    /// selector: without a vPMU it reads 0 whatever is written.
    fn answers_perf_ctl(&self, supported: &CpuId) -> Result<(), String> {
        // Cycles in ring 3, without EN: nothing is opened.
        const SELECTOR: u64 = 0x1_0076;
        const LAST: u32 = PERF_CTL0 + 2 * 5;
        // Four counters at the old indices are there without this bit, and the others fault.
        if !cpuid::kvm_has_perfctr_core(supported) {
            return Err("this host's KVM shows a guest no PERFCTR_CORE (CPUID 80000001H, ECX bit 23), and a guest's driver here uses its six \
                        counters"
                .to_owned());
        }
        let tried = || -> Result<bool, KvmError> {
            let vm = self.0.create_vm().map_err(ioctl_failed("KVM_CREATE_VM"))?;
            // A mediated vPMU needs KVM's local APIC.
            vm.create_irq_chip().map_err(ioctl_failed("KVM_CREATE_IRQCHIP"))?;
            self.set_pmu(&vm, 0).map_err(ioctl_failed("KVM_ENABLE_CAP(PMU_CAPABILITY)"))?;
            let vcpu = vm.create_vcpu(0).map_err(no_vcpu)?;
            vcpu.set_cpuid2(supported).map_err(ioctl_failed("KVM_SET_CPUID2"))?;
            let mut one = OneMsr::new();
            let written = one.write(&vcpu, LAST, SELECTOR);
            Ok(written && one.read(&vcpu, LAST) == Some(SELECTOR))
        };
        match tried() {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err("this host's KVM keeps no selector of an AMD's PMU (kvm.enable_pmu=N, or no hardware PMU)"
                    .to_owned())
            }
            Err(error) => Err(format!("this host's KVM cannot be tried for a vPMU: {error}")),
        }
    }

    /// Checks that a guest may have guests of its own, by SVM.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn nested_svm(&self) -> Result<(), String> {
        if cpuid::has_svm(&self.supported().map_err(|error| error.to_string())?) {
            return Ok(());
        }
        Err("this host's KVM offers its guests no SVM, by which alone a guest with an AMD processor is a host; load kvm_amd with nested=1, \
             on a host with SVM (QEMU with -cpu max,+svm will do)"
            .to_owned())
    }

    /// Creates a VM with `memory`, an in-kernel interrupt controller, with `pit` KVM's timer and its port 0x61, and,
    /// unless KVM keeps the PMU, exits at the PMU's MSRs and those of `also`.
    pub(crate) fn create_vm(
        &self,
        memory: &GuestMemoryMmap,
        pmu: GuestPmu,
        also: Also,
        pit: bool,
    ) -> Result<VmFd, KvmError> {
        let vm = self.0.create_vm().map_err(ioctl_failed("KVM_CREATE_VM"))?;
        if let GuestPmu::Userspace(caps) = pmu {
            let mut cap = kvm_enable_cap { cap: KVM_CAP_X86_USER_SPACE_MSR, ..kvm_enable_cap::default() };
            cap.args[0] = u64::from(KVM_MSR_EXIT_REASON_FILTER);
            vm.enable_cap(&cap).map_err(ioctl_failed("KVM_ENABLE_CAP(X86_USER_SPACE_MSR)"))?;
            // The filter comes first: its installation waits for a grace period of the VM's SRCU, which is over at once in a
            // VM where there was none yet, and takes some 15 ms after the one of a memory slot or interrupt controller
            // (srcu_should_expedite).
            msr_filter::install(&vm, caps.vendor(), also).map_err(ioctl_failed("KVM_X86_SET_MSR_FILTER"))?;
        }
        // Intel hosts need three pages below 4 GiB for real mode; others do not use them.
        vm.set_tss_address(0xfffb_d000).map_err(ioctl_failed("KVM_SET_TSS_ADDR"))?;
        sys::map_guest_memory(&vm, memory).map_err(ioctl_failed("KVM_SET_USER_MEMORY_REGION"))?;
        vm.create_irq_chip().map_err(ioctl_failed("KVM_CREATE_IRQCHIP"))?;
        // KVM's own vPMU would otherwise come alive by the guest's CPUID leaf 0AH and answer RDPMC behind our back. A
        // mediated vPMU (Linux 7.0) is there only for a VM that asks.
        let disabled = if matches!(pmu, GuestPmu::Userspace(_)) { KVM_PMU_CAP_DISABLE } else { 0 };
        self.set_pmu(&vm, disabled).map_err(ioctl_failed("KVM_ENABLE_CAP(PMU_CAPABILITY)"))?;
        if pit {
            let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..kvm_pit_config::default() };
            vm.create_pit2(pit).map_err(ioctl_failed("KVM_CREATE_PIT2"))?;
        }
        Ok(vm)
    }

    /// Says whether a VM without vCPUs has KVM's own vPMU, where KVM can be told (Linux 5.18).
    fn set_pmu(&self, vm: &VmFd, disabled: u32) -> Result<(), kvm_ioctls::Error> {
        if self.capability(KVM_CAP_PMU_CAPABILITY) & KVM_PMU_CAP_DISABLE.cast_signed() == 0 {
            return Ok(());
        }
        let mut cap = kvm_enable_cap { cap: KVM_CAP_PMU_CAPABILITY, ..kvm_enable_cap::default() };
        cap.args[0] = u64::from(disabled);
        vm.enable_cap(&cap)
    }

    /// Creates vCPU `cpu` of `cpus` with the guest's CPUID: that of `model`, if need be `without_misemulated` features. All
    /// but the first wait for a start-up IPI.
    pub(crate) fn create_vcpu(
        &self,
        vm: &VmFd,
        (cpu, cpus): (usize, usize),
        pmu: GuestPmu,
        model: Cpu,
        without_misemulated: bool,
    ) -> Result<VcpuFd, KvmError> {
        let vcpu = vm.create_vcpu(cpu as u64).map_err(no_vcpu)?;
        let mut cpuid = self.supported()?;
        match pmu {
            GuestPmu::Userspace(caps) => cpuid::adapt(&mut cpuid, model, caps, cpu as u32, cpus as u32)?,
            GuestPmu::Kvm => cpuid::set_apic_id(&mut cpuid, cpu as u32),
        }
        if without_misemulated {
            cpuid::hide_misemulated(&mut cpuid);
        }
        vcpu.set_cpuid2(&cpuid).map_err(ioctl_failed("KVM_SET_CPUID2"))?;
        Ok(vcpu)
    }
}

/// Checks that this host's KVM can run Linux as a guest; the error says why not.
///
/// # Errors
/// The reason, with the remedy.
pub fn linux_refusal() -> Result<(), String> {
    let emulates = if Path::new("/sys/module/kvm_pvm").exists() {
        "its KVM is kvm_pvm, which emulates ring 0 instruction by instruction"
    } else if !sys::hardware_virtualization() {
        "its processor shows neither VMX nor SVM, so its KVM emulates ring 0"
    } else {
        return Ok(());
    };
    Err(format!(
        "this host cannot run Linux as a guest: {emulates}, and lacks instructions that Linux needs; use a host with VMX or SVM, nested ones \
         included (QEMU with -cpu max,+svm will do)"
    ))
}

/// PMU exposed to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestPmu {
    /// Ours.
    Userspace(PmuCaps),
    /// KVM's own.
    Kvm,
}

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
