//! The runs: the payload once per guest and strategy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, FLAG_COUNTS_EVENTS, FLAG_COUNTS_EXACT, FLAG_PMU_V4};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{CounterSource, Cpu, Plan};

use super::tap::{Checked, Run};
use crate::arms::arm::real::refused;
use crate::setting::backend::open_kvm;
use results::document::kvm_arm;
use results::error::{Error, Exit};
use results::host::HostFs;
use vmm::kvm::Host;

/// Time after which a run is ended: seconds suffice where an exit costs microseconds.
const LIMIT: Duration = Duration::from_secs(120);
/// Time limit with KVM's own vPMU, in which fewer accesses are exits.
const KVM_LIMIT: Duration = Duration::from_secs(30);
/// Time limit with backend `step`, where every instruction is an exit.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// A case waits for an overflow for this part of its run's limit, so that several that wait for one in vain still reach
/// their verdict.
const PATIENCE: u32 = 16;
/// Longest time: stepping on an emulated host is slow.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// PMU that is checked.
#[derive(Clone, Debug)]
pub enum Target {
    /// The userspace vPMU.
    Vpmu {
        /// Its strategies, one run each.
        strategies: Vec<Strategy>,
        /// Hardware events count time in place of the selected event.
        counts_time: bool,
        /// Its backend.
        backend: BackendKey,
    },
    /// KVM's own.
    Kvm {
        /// The host's hardware events count the selected event.
        counts_events: bool,
    },
}

impl Target {
    /// Returns the name of each run.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Vpmu { strategies, .. } => strategies.iter().map(|strategy| strategy.name.as_str()).collect(),
            Self::Kvm { .. } => vec![kvm_arm(&HostFs::default())],
        }
    }

    /// Returns the backend, or KVM.
    pub fn backend(&self) -> String {
        match self {
            Self::Vpmu { backend, .. } => backend.to_string(),
            Self::Kvm { .. } => kvm_arm(&HostFs::default()).to_owned(),
        }
    }

    /// Returns the parameters of run `n`: the source of the counters, what these count (`FLAG_COUNTS_*`), and the time it may take.
    fn run(&self, n: usize) -> (CounterSource, u64, Duration) {
        match self {
            Self::Kvm { counts_events } => {
                (CounterSource::Kvm { module: None }, if *counts_events { FLAG_COUNTS_EVENTS } else { 0 }, KVM_LIMIT)
            }
            Self::Vpmu { backend: BackendKey::None, .. } => (CounterSource::Floor, 0, LIMIT),
            Self::Vpmu { strategies, counts_time, backend } => {
                let strategy = strategies[n].clone();
                let behind = CounterSource::Events { backend: backend.clone(), strategy };
                match backend {
                    BackendKey::Step => (behind, FLAG_COUNTS_EXACT, STEP_LIMIT),
                    BackendKey::Hardware if !counts_time => (behind, FLAG_COUNTS_EVENTS, LIMIT),
                    _ => (behind, 0, LIMIT),
                }
            }
        }
    }
}

/// Returns the guest of KVM's own vPMU: of the host's vendor, and with an Intel's PMU of version 2.
///
/// # Errors
/// Exit 4: this host's KVM has none.
pub fn of_kvm() -> Result<Checked, Error> {
    let host = open_kvm()?;
    host.kvm_pmu().map_err(|why| {
        Error::host(
            "KVM's own vPMU cannot be checked",
            why,
            "use a host with a PMU, or one made by `vpmu linux --nested`",
        )
    })?;
    let cpu = match host.vendor() {
        Some(Vendor::Amd) if host.shows_perfmon_v2() => Cpu::Genoa,
        Some(Vendor::Amd) => Cpu::Milan,
        _ => Cpu::CascadeLake,
    };
    fits(host.shown_counters(), cpu)?;
    Ok(Checked { cpu, version: 2 })
}

/// Checks that the cases fit: those for an Intel know one number of counters, general-purpose and fixed; KVM shows
/// those of its host.
fn fits(shown: Option<(u32, u32)>, cpu: Cpu) -> Result<(), Error> {
    match (shown, cpu.pmu()) {
        (Some((gp, fixed)), PmuCaps::Intel(caps)) if (gp, fixed) != (u32::from(caps.gp), u32::from(caps.fixed)) => {
            Err(Error::host(
                "KVM's own vPMU cannot be checked",
                format!(
                    "it shows a guest {gp} general-purpose and {fixed} fixed counters, and the cases are for {} and {}",
                    caps.gp, caps.fixed
                ),
                "use a host whose KVM shows as many, such as a Cascade Lake with hyper-threading",
            ))
        }
        _ => Ok(()),
    }
}

/// The vPMUs to check.
#[derive(Clone, Debug)]
pub struct Checks {
    /// The guests.
    pub guests: Vec<Checked>,
    /// Source of their counters.
    pub target: Target,
}

/// Runs the payload for each guest and strategy, handing over each run when it is done.
///
/// # Errors
/// Exit 4 where no guest can run.
pub fn run(
    host: &Host,
    checks: &Checks,
    interrupted: &AtomicBool,
    mut done: impl FnMut(&Run) -> Result<(), Error>,
) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    for &guest in &checks.guests {
        for (n, name) in checks.target.names().into_iter().enumerate() {
            let plan = plan(guest, checks.target.run(n));
            let outcome = payload::run_conformance(host, &plan, interrupted).map_err(refused)?;
            let run = Run::new(guest, name, &outcome.end, outcome.report.as_deref());
            done(&run)?;
            runs.push(run);
            if interrupted.load(Ordering::Relaxed) {
                return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
            }
        }
    }
    Ok(runs)
}

fn plan(guest: Checked, (behind, counts, time_limit): (CounterSource, u64, Duration)) -> PayloadPlan {
    let v4 = if guest.version >= 4 { FLAG_PMU_V4 } else { 0 };
    let machine = Plan {
        behind,
        cpu: guest.cpu,
        pmu: guest.cpu.pmu_of_version(guest.version),
        vcpus: 1,
        pin: Vec::new(),
        time_limit,
        seccomp: true,
        register_cost_ns: None,
        sampling: None,
        trace: None,
    };
    let patience = (time_limit / PATIENCE).min(MOST_PATIENCE);
    let limit_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    let boot = BootPage { flags: counts | v4, limit_us, ..BootPage::default() };
    PayloadPlan { machine, log_entries: 1, boot, steps: Arc::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload must not expect real counts of a stand-in, nor the registers of another version.
    #[test]
    fn the_guest_knows_what_counts_and_which_version_it_has() {
        let strategies = vec![Strategy::preset("pool").unwrap()];
        for (backend, flags) in [
            (BackendKey::Step, FLAG_COUNTS_EXACT),
            (BackendKey::Hardware, FLAG_COUNTS_EVENTS),
            (BackendKey::CpuClock, 0),
            (BackendKey::None, 0),
        ] {
            let target = Target::Vpmu { strategies: strategies.clone(), counts_time: false, backend: backend.clone() };
            let v2 = plan(Checked { cpu: Cpu::default(), version: 2 }, target.run(0));
            let v4 = plan(Checked { cpu: Cpu::default(), version: 4 }, target.run(0));
            assert_eq!((v2.boot.flags, v4.boot.flags), (flags, flags | FLAG_PMU_V4));
            assert_eq!([v2.machine.pmu, v4.machine.pmu], [2, 4].map(|version| Cpu::default().pmu_of_version(version)));
            assert_eq!(v2.machine.behind == CounterSource::Floor, backend == BackendKey::None);
        }
        let clocked = Target::Vpmu { strategies, counts_time: true, backend: BackendKey::Hardware };
        assert_eq!([clocked.run(0).1, Target::Kvm { counts_events: false }.run(0).1], [0, 0], "a PMU that counts time");
        assert_eq!(Target::Kvm { counts_events: true }.run(0).0, CounterSource::Kvm { module: None });
    }
}
