//! Arm `kvm`: the payload on KVM's own vPMU, where the host's KVM has one.

use std::sync::Arc;

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
    // KVM shows a guest the PMU of the host's vendor.
    if cpu.vendor() == Vendor::Amd {
        let name = cpu.name();
        return Err(format!(
            "KVM's vPMU has not been tried with --cpu {name}: it shows the PMU of the host's own vendor"
        ));
    }
    Ok(())
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
