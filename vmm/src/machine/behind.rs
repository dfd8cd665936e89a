//! Making the host side of a vCPU's counters, and its account of a run.

use host_pmu::backend::BackendKey;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::backend::step::StepBackend;
use host_pmu::bank::Bank;
use host_pmu::floor::Floor;
use host_pmu::side::HostPmu;
use host_pmu::stats::HostSide;

use super::error::MachineError;
use super::plan::{Behind, Plan};
use crate::kvm::{GuestPmu, Host, KvmError};

/// Work that is the same for each host side.
pub(super) trait OnHost {
    type Out;

    /// Does the work with `host`, on the thread that made it.
    fn run<H: HostPmu + Account>(self, host: H) -> Self::Out;
}

/// The PMU that `plan`'s guest sees.
pub(super) fn guest_pmu(plan: &Plan, host: &Host) -> Result<GuestPmu, MachineError> {
    match &plan.behind {
        Behind::Kvm => {
            host.kvm_pmu().map_err(KvmError::NoKvmPmu)?;
            Ok(GuestPmu::Kvm)
        }
        Behind::Events { backend: BackendKey::Step, .. } if plan.vcpus > 1 => Err(MachineError::Host(format!(
            "backend step counts one vCPU, and this guest has {}: while one is stepped its traps lie in memory that the \
             others execute; use --vcpus 1",
            plan.vcpus
        ))),
        _ => Ok(GuestPmu::Userspace(plan.pmu.bounded())),
    }
}

/// Makes the host side and does `work` with it. Host events belong to the thread that opens them, so this is called on
/// the vCPU's thread.
pub(super) fn open<W: OnHost>(behind: &Behind, tsc_khz: u64, work: W) -> Result<W::Out, MachineError> {
    match behind {
        Behind::Floor | Behind::Kvm => Ok(work.run(Floor::new(tsc_khz).map_err(no_timer)?)),
        Behind::PacedFloor { counts_per_ms } => {
            Ok(work.run(Floor::counting_per_ms(tsc_khz, *counts_per_ms).map_err(no_timer)?))
        }
        Behind::Events { backend: BackendKey::Step, strategy } => {
            Ok(work.run(Bank::new(StepBackend::new(), strategy.clone())))
        }
        Behind::Events { backend, strategy } => {
            let backend =
                PerfBackend::with(backend, tsc_khz, strategy).map_err(|error| MachineError::Host(error.to_string()))?;
            Ok(work.run(Bank::new(backend, strategy.clone())))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn no_timer(error: std::io::Error) -> MachineError {
    MachineError::Host(format!("timer_create: {error}"))
}

/// A host side's account of a run.
pub(super) trait Account {
    fn account(&mut self) -> HostSide;
}

impl Account for Floor {
    fn account(&mut self) -> HostSide {
        HostSide { entries: self.entries(), ..HostSide::default() }
    }
}

impl Account for Bank<PerfBackend> {
    fn account(&mut self) -> HostSide {
        let records = self.backend().monitor().records();
        HostSide { throttled: records.throttled, ..self.stats().into() }
    }
}

impl Account for Bank<StepBackend> {
    fn account(&mut self) -> HostSide {
        self.stats().into()
    }
}
