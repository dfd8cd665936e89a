//! The source of an arm's counters on this host, and whether it can be had.

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use host_pmu::backend::{BackendKey, UnknownBackend};
use host_pmu::kernel::Module;
use results::document::{ArmKind, BELOW_KVM, KVM_ARMS, kvm_arm};
use results::error::Error;
use results::host::HostFs;
use vmm::kvm::Host;
use vmm::machine::{CounterSource, Cpu};

use super::runner::Arm;
use crate::terminal::console::internal;

/// Checks that an arm's counters can be had by a guest with `cpu`.
///
/// # Errors
/// Says why not, with the remedy.
pub fn available(arm: &Arm, host: &Host, cpu: Cpu) -> Result<(), String> {
    match arm.kind {
        ArmKind::Kvm => {
            host.kvm_pmu()?;
            fits(host.vendor(), host.shows_perfmon_v2(), cpu)?;
            takes(arm)
        }
        ArmKind::Strategy if arm.backend == BackendKey::None.to_string() => {
            Err("backend none has no host events that a strategy could keep".to_owned())
        }
        ArmKind::Strategy | ArmKind::Floor => Ok(()),
    }
}

/// Returns the source of an arm's counters.
///
/// # Errors
/// Exit 2 for a strategy that is none.
pub fn behind(arm: &Arm, paced: Option<u64>) -> Result<CounterSource, Error> {
    Ok(match arm.kind {
        ArmKind::Floor => {
            paced.map_or(CounterSource::Floor, |counts_per_ms| CounterSource::PacedFloor { counts_per_ms })
        }
        ArmKind::Kvm => CounterSource::Kvm { module: below_kvm(arm) },
        ArmKind::Strategy => CounterSource::Events {
            backend: arm.backend.parse().map_err(|error: UnknownBackend| internal("an arm has no backend", error))?,
            strategy: arm.strategy()?,
        },
    })
}

/// Returns the strategy of the kernel module that keeps the arm's host events; `None` of KVM's own vPMU as it is.
pub fn below_kvm(arm: &Arm) -> Option<String> {
    arm.strategy.strip_prefix(BELOW_KVM).map(str::to_owned)
}

/// Checks that KVM shows a guest the PMU of the host's processor, and that the guest's events and its driver are those
/// of `cpu`: beside the other arms it has to run the same handler.
fn fits(host: Option<Vendor>, perfmon_v2: bool, cpu: Cpu) -> Result<(), String> {
    let wants_v2 = matches!(cpu.pmu(), PmuCaps::Amd(caps) if caps.perfmon_v2);
    let (shown, remedy) = match host {
        Some(vendor) if vendor == cpu.vendor() && perfmon_v2 == wants_v2 => return Ok(()),
        Some(Vendor::Amd) if perfmon_v2 => ("an AMD's PerfMonV2", "--cpu genoa"),
        Some(Vendor::Amd) => ("an AMD's PMU without PerfMonV2", "--cpu milan"),
        Some(Vendor::Intel) => ("an Intel's PMU", "--cpu clx"),
        None => return Err("this host's processor is neither an Intel's nor an AMD's".to_owned()),
    };
    Err(format!(
        "KVM shows a guest {shown} here, and the guest's events and driver are for --cpu {}: give {remedy}",
        cpu.name()
    ))
}

/// Checks that the kernel module, if it is to keep the arm's host events, does so here.
///
/// # Errors
/// Says why not, with the remedy.
fn takes(arm: &Arm) -> Result<(), String> {
    let Some(name) = below_kvm(arm) else { return Ok(()) };
    if kvm_arm(&HostFs::default()) == KVM_ARMS[1] {
        return Err("this host's KVM gives guests a mediated vPMU, behind which there are no host events: reload kvm_intel or kvm_amd with \
                    enable_mediated_pmu=N"
            .to_owned());
    }
    Module::open(&name).map(drop)
}

#[cfg(test)]
mod tests {
    use host_pmu::strategy::Strategy;

    use super::*;

    fn arm(strategy: &str, kind: ArmKind, definition: Option<&str>) -> Arm {
        let definition = definition.map(str::to_owned);
        Arm { strategy: strategy.to_owned(), backend: "cpu-clock".to_owned(), kind, definition }
    }

    #[test]
    fn arms_become_what_stands_behind_the_counters() {
        assert_eq!(behind(&arm("floor", ArmKind::Floor, None), None).unwrap(), CounterSource::Floor);
        let paced = CounterSource::PacedFloor { counts_per_ms: 100 };
        assert_eq!(behind(&arm("floor", ArmKind::Floor, None), Some(100)).unwrap(), paced);
        let reuse = behind(&arm("reuse", ArmKind::Strategy, None), None).unwrap();
        let strategy = Strategy::preset("reuse").unwrap();
        assert_eq!(reuse, CounterSource::Events { backend: BackendKey::CpuClock, strategy });
        let text = "name = 'mine'\nreuse = 'last'\nrelease = 'never'\napply = 'deferred'";
        assert!(matches!(behind(&arm("mine", ArmKind::Strategy, Some(text)), None), Ok(CounterSource::Events { .. })));
        assert!(behind(&arm("mine", ArmKind::Strategy, Some("reuse = 1")), None).is_err());
        let kvm = |name| behind(&arm(name, ArmKind::Kvm, None), None).unwrap();
        assert_eq!(kvm("kvm"), CounterSource::Kvm { module: None });
        assert_eq!(kvm("kvm:direct"), CounterSource::Kvm { module: Some("direct".to_owned()) });
    }

    #[test]
    fn a_guest_of_kvms_vpmu_has_the_hosts_vendor() {
        for (host, perfmon_v2, cpu, needle) in [
            (Some(Vendor::Intel), false, Cpu::CascadeLake, ""),
            (Some(Vendor::Amd), true, Cpu::Genoa, ""),
            (Some(Vendor::Amd), false, Cpu::Milan, ""),
            (Some(Vendor::Amd), false, Cpu::Genoa, "--cpu milan"),
            (Some(Vendor::Amd), true, Cpu::Milan, "--cpu genoa"),
            (Some(Vendor::Amd), true, Cpu::CascadeLake, "give --cpu genoa"),
            (Some(Vendor::Amd), false, Cpu::CascadeLake, "give --cpu milan"),
            (Some(Vendor::Intel), false, Cpu::Milan, "--cpu clx"),
            (None, false, Cpu::Milan, "neither"),
        ] {
            let why = fits(host, perfmon_v2, cpu).err().unwrap_or_default();
            assert_eq!(why.is_empty(), needle.is_empty(), "{why}");
            assert!(why.contains(needle), "{why}");
        }
    }
}
