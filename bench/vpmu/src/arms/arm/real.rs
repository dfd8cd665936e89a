//! All arms that run on this host: each goes to the runner of its kind.

use std::sync::Arc;

use arch_pmu::spec::MAX_COUNTERS;
use host_pmu::backend::BackendKey;
use host_pmu::strategy::MAX_POOL;
use results::document::ArmKind;
use results::error::Error;
use results::table::layout::plural;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::RunOutcome;

use super::host::HostRunner;
use super::kvm::KvmRunner;
use super::runner::{Arm, ArmRunner, Opened, Turn};
use crate::setting::backend::open_kvm;
use crate::setting::process::{self, Limit};

/// Runs arms on this host's KVM.
#[derive(Debug)]
pub struct RealRunner {
    host: HostRunner,
    kvm: KvmRunner,
}

impl RealRunner {
    /// Creates a runner of such guests behind `backend`, which sample with `period`. `guests_stay`: those of all arms
    /// are there at the same time.
    ///
    /// # Errors
    /// Exit 4 where this host cannot run guests.
    pub fn new(guest: &PayloadPlan, backend: &BackendKey, period: u64, guests_stay: bool) -> Result<Self, Error> {
        let host = Arc::new(open_kvm()?);
        ensure(guest.machine.vcpus as u64)?;
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

/// Files of a vCPU: its own, the monitor's two, an event per counter, a full pool.
const FILES: u64 = 3 + MAX_COUNTERS as u64 + MAX_POOL as u64;
/// Queued signals of a vCPU: those of its two timers.
const SIGNALS: u64 = 2;
/// Both, for the rest of the process.
const SPARE: u64 = 64;

/// Returns the number of files that `vcpus` may have open.
pub const fn files(vcpus: u64) -> u64 {
    SPARE + vcpus * FILES
}

/// Returns the number of signals that `vcpus` may have queued.
pub const fn signals(vcpus: u64) -> u64 {
    SPARE + vcpus * SIGNALS
}

/// Raises the limits of open files and queued signals to what `vcpus` need.
///
/// # Errors
/// Exit 4 where a hard limit is too low.
pub fn ensure(vcpus: u64) -> Result<(), Error> {
    // Signals that this user's other processes have queued count, too. If the hard limit has no room for that, the run
    // is tried without.
    let _ = process::ensure_limit(Limit::PendingSignals, signals(vcpus).saturating_add(process::queued_signals()));
    for (limit, wanted, name, flag) in [
        (Limit::OpenFiles, files(vcpus), "RLIMIT_NOFILE", "-n"),
        (Limit::PendingSignals, signals(vcpus), "RLIMIT_SIGPENDING", "-i"),
    ] {
        process::ensure_limit(limit, wanted).map_err(|now| {
            Error::host(
                format!("{name} is too low"),
                format!(
                    "{name} is {now}, and {} may need {wanted}",
                    plural(usize::try_from(vcpus).unwrap_or(usize::MAX), "vCPU")
                ),
                format!("raise it: ulimit {flag} {wanted}"),
            )
        })?;
    }
    Ok(())
}
