//! Arm `kvm`: the payload on KVM's own vPMU, where the host's KVM has one.

use std::sync::Arc;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use vmm::kvm::Host;
use vmm::machine::{Behind, Cpu};
use vmm::outcome::RunOutcome;

use super::guest::GuestPlan;
use super::launch::{launch, start};
use super::runner::{Arm, ArmRunner, Opened, Turn};
use results::error::Error;

/// Whether KVM's own vPMU can stand behind the counters of a guest with `cpu`.
///
/// # Errors
/// Why not.
pub fn available(host: &Host, cpu: Cpu) -> Result<(), String> {
    host.kvm_pmu()?;
    fits(host.vendor(), host.shows_perfmon_v2(), cpu)
}

/// KVM shows a guest the PMU of the host's processor, and the guest's events and its driver are those of `cpu`: beside the other arms it has to run the same
/// handler.
fn fits(host: Option<Vendor>, perfmon_v2: bool, cpu: Cpu) -> Result<(), String> {
    let wants_v2 = matches!(cpu.pmu(), PmuCaps::Amd(caps) if caps.perfmon_v2);
    let (shown, remedy) = match host {
        Some(vendor) if vendor == cpu.vendor() && perfmon_v2 == wants_v2 => return Ok(()),
        Some(Vendor::Amd) if cpu.vendor() == Vendor::Amd && perfmon_v2 => ("an AMD's PerfMonV2", "--cpu genoa"),
        Some(Vendor::Amd) if cpu.vendor() == Vendor::Amd => ("an AMD's PMU without PerfMonV2", "--cpu milan"),
        Some(Vendor::Amd) => ("an AMD's PMU", "--cpu milan or genoa"),
        Some(Vendor::Intel) => ("an Intel's PMU", "--cpu clx"),
        None => return Err("this host's processor is neither an Intel's nor an AMD's".to_owned()),
    };
    Err(format!(
        "KVM shows a guest {shown} here, and the guest's events and driver are for --cpu {}: give {remedy}",
        cpu.name()
    ))
}

/// Runs guests on KVM's own vPMU.
#[derive(Debug)]
pub struct KvmRunner {
    host: Arc<Host>,
    guest: GuestPlan,
}

impl KvmRunner {
    /// For guests of this configuration.
    #[must_use]
    pub const fn new(host: Arc<Host>, guest: GuestPlan) -> Self {
        Self { host, guest }
    }
}

impl ArmRunner for KvmRunner {
    fn available(&mut self, _arm: &Arm) -> Result<(), String> {
        available(&self.host, self.guest.cpu)
    }

    fn run(&mut self, _arm: &Arm, turn: Turn) -> Result<RunOutcome, Error> {
        launch(&self.host, &self.guest, Behind::Kvm, turn.samples)
    }

    fn open(&mut self, _arm: &Arm, _number: u64, samples: u64) -> Result<Opened, Error> {
        start(&self.host, &self.guest, Behind::Kvm, samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_kvms_vpmu_has_the_hosts_vendor() {
        for (host, perfmon_v2, cpu, needle) in [
            (Some(Vendor::Intel), false, Cpu::CascadeLake, ""),
            (Some(Vendor::Amd), true, Cpu::Genoa, ""),
            (Some(Vendor::Amd), false, Cpu::Milan, ""),
            (Some(Vendor::Amd), false, Cpu::Genoa, "--cpu milan"),
            (Some(Vendor::Amd), true, Cpu::Milan, "--cpu genoa"),
            (Some(Vendor::Amd), true, Cpu::CascadeLake, "--cpu milan"),
            (Some(Vendor::Intel), false, Cpu::Milan, "--cpu clx"),
            (None, false, Cpu::Milan, "neither"),
        ] {
            let why = fits(host, perfmon_v2, cpu).err().unwrap_or_default();
            assert_eq!(why.is_empty(), needle.is_empty(), "{why}");
            assert!(why.contains(needle), "{why}");
        }
    }
}
