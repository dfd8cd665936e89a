//! Making the host side of a vCPU's counters.

use host_pmu::backend::BackendKey;
use host_pmu::floor::Floor;
use host_pmu::open::{self, Work};

use super::error::MachineError;
use super::plan::{CounterSource, Plan};
use crate::kvm::{GuestPmu, Host, KvmError};

/// Returns the PMU that `plan`'s guest sees.
pub(super) fn guest_pmu(plan: &Plan, host: &Host) -> Result<GuestPmu, MachineError> {
    match &plan.behind {
        CounterSource::Kvm => {
            host.kvm_pmu().map_err(KvmError::NoKvmPmu)?;
            Ok(GuestPmu::Kvm)
        }
        CounterSource::Events { backend: BackendKey::Step, .. } if plan.vcpus > 1 => Err(MachineError::Host(format!(
            "backend step counts one vCPU, and this guest has {}: while one is stepped its traps lie in memory that the \
             others execute; use --vcpus 1",
            plan.vcpus
        ))),
        _ => Ok(GuestPmu::Userspace(plan.pmu.bounded())),
    }
}

/// Makes the host side and does `work` with it. Host events belong to the thread that opens them, so this is called on
/// the vCPU's thread.
pub(super) fn open<W: Work>(behind: &CounterSource, tsc_khz: u64, work: W) -> Result<W::Out, MachineError> {
    match behind {
        CounterSource::Floor | CounterSource::Kvm => Ok(work.run(Floor::new(tsc_khz)?)),
        CounterSource::PacedFloor { counts_per_ms } => Ok(work.run(Floor::counting_per_ms(tsc_khz, *counts_per_ms)?)),
        CounterSource::Events { backend, strategy } => {
            open::open(backend, strategy, tsc_khz, work).map_err(|error| MachineError::Host(error.to_string()))
        }
    }
}
