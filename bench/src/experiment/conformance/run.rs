//! The runs: the payload once per guest and strategy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guest::abi::{BootPage, FLAG_COUNTS_EVENTS, FLAG_COUNTS_EXACT, FLAG_PMU_V4};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use vmm::kvm::Host;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{Behind, MachineError, Plan};

use super::tap::{Checked, Run};
use results::error::{Error, Exit};

/// Time after which a run is ended: seconds suffice where an exit costs microseconds.
const LIMIT: Duration = Duration::from_secs(120);
/// The same for backend `step`, where every instruction is an exit.
const STEP_LIMIT: Duration = Duration::from_secs(600);

/// The vPMUs to check.
#[derive(Clone, Debug)]
pub struct Checks {
    /// The guests.
    pub guests: Vec<Checked>,
    /// Strategies.
    pub strategies: Vec<Strategy>,
    /// The backend.
    pub backend: BackendKey,
    /// Whether vCPU threads are confined.
    pub seccomp: bool,
}

/// Runs the payload for each guest and strategy, handing over each run when it is done.
///
/// # Errors
/// Exit 4 where no guest can run.
pub fn run(
    checks: &Checks,
    interrupted: &AtomicBool,
    mut done: impl FnMut(&Run) -> Result<(), Error>,
) -> Result<Vec<Run>, Error> {
    let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
    let mut runs = Vec::new();
    for &guest in &checks.guests {
        for strategy in &checks.strategies {
            let plan = plan(guest, strategy, &checks.backend, checks.seccomp);
            let outcome = payload::run_conformance(&host, &plan, interrupted).map_err(|error| match error {
                MachineError::Kvm(error) => Error::host("cannot run a guest", error.to_string(), ""),
                other => Error::host("cannot run a guest", other.to_string(), "`vpmu doctor` says what is missing"),
            })?;
            let run = Run::new(guest, &strategy.name, &outcome.end, outcome.report.as_deref());
            done(&run)?;
            runs.push(run);
            if interrupted.load(Ordering::Relaxed) {
                return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
            }
        }
    }
    Ok(runs)
}

fn plan(guest: Checked, strategy: &Strategy, backend: &BackendKey, seccomp: bool) -> PayloadPlan {
    let counts = match backend {
        BackendKey::Step => FLAG_COUNTS_EXACT,
        BackendKey::Hardware => FLAG_COUNTS_EVENTS,
        _ => 0,
    };
    let v4 = if guest.version >= 4 { FLAG_PMU_V4 } else { 0 };
    let machine = Plan {
        behind: match backend {
            BackendKey::None => Behind::Floor,
            backend => Behind::Events { backend: backend.clone(), strategy: strategy.clone() },
        },
        cpu: guest.cpu,
        pmu: guest.cpu.pmu_of_version(guest.version),
        vcpus: 1,
        pin: Vec::new(),
        time_limit: if *backend == BackendKey::Step { STEP_LIMIT } else { LIMIT },
        seccomp,
    };
    PayloadPlan { machine, log_entries: 1, boot: BootPage { flags: counts | v4, ..BootPage::default() } }
}

#[cfg(test)]
mod tests {
    use vmm::machine::Cpu;

    use super::*;

    /// The payload must not expect of a stand-in what only real counts can show, nor of one version what the other has.
    #[test]
    fn the_guest_knows_what_counts_and_which_version_it_has() {
        let strategy = Strategy::preset("pool").unwrap();
        for (backend, flags) in [
            (BackendKey::Step, FLAG_COUNTS_EXACT),
            (BackendKey::Hardware, FLAG_COUNTS_EVENTS),
            (BackendKey::CpuClock, 0),
            (BackendKey::None, 0),
        ] {
            let v2 = plan(Checked { cpu: Cpu::default(), version: 2 }, &strategy, &backend, true);
            let v4 = plan(Checked { cpu: Cpu::default(), version: 4 }, &strategy, &backend, true);
            assert_eq!((v2.boot.flags, v4.boot.flags), (flags, flags | FLAG_PMU_V4));
            assert_eq!([v2.machine.pmu, v4.machine.pmu], [2, 4].map(|version| Cpu::default().pmu_of_version(version)));
            assert_eq!(v2.machine.behind == Behind::Floor, backend == BackendKey::None);
        }
    }
}
