//! All arms that run on this host: each goes to the runner of its kind.

use std::sync::Arc;

use host_pmu::backend::BackendKey;
use vmm::kvm::Host;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::RunOutcome;

use super::host::HostRunner;
use super::kvm::KvmRunner;
use super::limits;
use super::runner::{Arm, ArmRunner, Opened, Turn};
use results::document::ArmKind;
use results::error::Error;

/// Runs arms on this host's KVM.
#[derive(Debug)]
pub struct RealRunner {
    host: HostRunner,
    kvm: KvmRunner,
}

impl RealRunner {
    /// Creates it for such guests behind `backend`, which sample with `period`. `guests_stay`: those of all arms are there at the same
    /// time.
    ///
    /// # Errors
    /// Exit 4 where this host cannot run guests.
    pub fn new(guest: &PayloadPlan, backend: &BackendKey, period: u64, guests_stay: bool) -> Result<Self, Error> {
        let host = Arc::new(Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?);
        limits::ensure(guest.machine.vcpus as u64)?;
        Ok(Self {
            host: HostRunner::new(Arc::clone(&host), guest.clone(), backend, period),
            kvm: KvmRunner::new(host, guest.clone(), guests_stay && *backend == BackendKey::Hardware),
        })
    }

    fn of(&mut self, arm: &Arm) -> &mut dyn ArmRunner {
        match arm.kind {
            ArmKind::Kvm => &mut self.kvm,
            ArmKind::Strategy | ArmKind::Floor => &mut self.host,
        }
    }
}

impl ArmRunner for RealRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        self.of(arm).available(arm)
    }

    fn run(&mut self, arm: &Arm, turn: Turn) -> Result<RunOutcome, Error> {
        self.of(arm).run(arm, turn)
    }

    fn open(&mut self, arm: &Arm, number: u64, samples: u64) -> Result<Opened, Error> {
        self.of(arm).open(arm, number, samples)
    }
}
