//! The runs: the payload once per guest and strategy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, FLAG_COUNTS_EVENTS, FLAG_COUNTS_EXACT, FLAG_PMU_V4};
use host_pmu::backend::BackendKey;
use host_pmu::open::counts_outside_guests;
use host_pmu::strategy::Strategy;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{CounterSource, Cpu, Plan};

use super::tap::{Checked, Run};
use crate::arms::arm::real::refused;
use crate::setting::backend::open_kvm;
use results::document::kvm_arm;
use results::error::Error;
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

/// What stands behind a guest's counters.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of its runs: that of the strategy, or KVM's.
    pub name: String,
    behind: CounterSource,
    /// What the counters count (`FLAG_COUNTS_*`).
    counts: u64,
    time_limit: Duration,
}

impl Target {
    /// The userspace vPMU by this strategy.
    pub fn vpmu(strategy: Strategy, backend: &BackendKey) -> Self {
        Self::where_hardware(strategy, backend, counts_time)
    }

    fn where_hardware(strategy: Strategy, backend: &BackendKey, counts_time: fn() -> bool) -> Self {
        let name = strategy.name.clone();
        let events = CounterSource::Events { backend: backend.clone(), strategy };
        let (behind, counts, time_limit) = match backend {
            BackendKey::None => (CounterSource::Floor, 0, LIMIT),
            BackendKey::Step => (events, FLAG_COUNTS_EXACT, STEP_LIMIT),
            BackendKey::Hardware if !counts_time() => (events, FLAG_COUNTS_EVENTS, LIMIT),
            _ => (events, 0, LIMIT),
        };
        Self { name, behind, counts, time_limit }
    }

    /// KVM's own vPMU.
    pub fn kvm() -> Self {
        let counts = if counts_time() { 0 } else { FLAG_COUNTS_EVENTS };
        let name = kvm_arm(&HostFs::default()).to_owned();
        Self { name, behind: CounterSource::Kvm { module: None }, counts, time_limit: KVM_LIMIT }
    }
}

/// Returns whether this host's hardware events count time in place of the selected event, as in a guest of `vpmu linux`: its PMU knows
/// no guest mode, in which they alone are to count.
fn counts_time() -> bool {
    counts_outside_guests(Duration::from_millis(2)).is_ok_and(|rate| rate > 0.0)
}

/// Returns the guest of KVM's own vPMU: of the host's vendor, and with an Intel's PMU of version 2.
///
/// # Errors
/// Exit 4: this host's KVM has none, or one that the cases do not fit.
pub fn of_kvm() -> Result<Checked, Error> {
    let cannot = |why: String, remedy| Error::host("KVM's own vPMU cannot be checked", why, remedy);
    let host = open_kvm()?;
    host.kvm_pmu().map_err(|why| cannot(why, "use a host with a PMU, or one made by `vpmu linux --nested`"))?;
    let cpu = match host.vendor() {
        Some(Vendor::Amd) if host.shows_perfmon_v2() => Cpu::Genoa,
        Some(Vendor::Amd) => Cpu::Milan,
        _ => Cpu::CascadeLake,
    };
    // The cases for an Intel know one number of counters; KVM shows those of its host.
    if let (Some((gp, fixed)), PmuCaps::Intel(caps)) = (host.shown_counters(), cpu.pmu())
        && (gp, fixed) != (caps.gp.into(), caps.fixed.into())
    {
        let cases = format!("the cases are for {} and {}", caps.gp, caps.fixed);
        let why = format!("it shows a guest {gp} general-purpose and {fixed} fixed counters, and {cases}");
        return Err(cannot(why, "use a host whose KVM shows as many, such as a Cascade Lake with hyper-threading"));
    }
    Ok(Checked { cpu, version: 2 })
}

/// Runs the payload in a guest.
///
/// # Errors
/// Exit 4 where no guest can run.
pub fn run(host: &Host, guest: Checked, target: &Target, interrupted: &AtomicBool) -> Result<Run, Error> {
    let outcome = payload::run_conformance(host, &plan(guest, target), interrupted).map_err(refused)?;
    Ok(Run::new(guest, &target.name, &outcome.end, outcome.report.as_deref()))
}

fn plan(guest: Checked, target: &Target) -> PayloadPlan {
    let Target { behind, counts, time_limit, .. } = target.clone();
    let v4 = if guest.version >= 4 { FLAG_PMU_V4 } else { 0 };
    let machine = Plan {
        behind,
        cpu: guest.cpu,
        pmu: guest.cpu.pmu_of_version(guest.version),
        vcpus: 1,
        pin: Vec::new(),
        time_limit,
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
        let of_host = |backend: &BackendKey, counts_time, version| {
            let target = Target::where_hardware(Strategy::preset("pool").unwrap(), backend, counts_time);
            plan(Checked { cpu: Cpu::default(), version }, &target)
        };
        let of = |backend: &BackendKey, version| of_host(backend, || false, version);
        for (backend, flags) in [
            (BackendKey::Step, FLAG_COUNTS_EXACT),
            (BackendKey::Hardware, FLAG_COUNTS_EVENTS),
            (BackendKey::CpuClock, 0),
            (BackendKey::None, 0),
        ] {
            let [v2, v4] = [2, 4].map(|version| of(&backend, version));
            assert_eq!((v2.boot.flags, v4.boot.flags), (flags, flags | FLAG_PMU_V4));
            assert_eq!([v2.machine.pmu, v4.machine.pmu], [2, 4].map(|version| Cpu::default().pmu_of_version(version)));
            assert_eq!(v2.machine.behind == CounterSource::Floor, backend == BackendKey::None);
        }
        assert_eq!(of_host(&BackendKey::Hardware, || true, 2).boot.flags, 0, "a PMU that counts time");
    }
}
