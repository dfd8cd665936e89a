//! Arms on the userspace vPMU: strategies and the floor, on this host's KVM.

use std::sync::Arc;

use host_pmu::backend::{BackendKey, UnknownBackend};
use host_pmu::kernel;
use host_pmu::strategy::Strategy;
use vmm::kvm::Host;
use vmm::machine::CounterSource;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::RunOutcome;

use super::launch::{launch, start};
use super::runner::{Arm, ArmRunner, Opened, Turn};
use results::document::ArmKind;
use results::error::Error;

/// Runs guests on the userspace vPMU.
#[derive(Debug)]
pub struct HostRunner {
    host: Arc<Host>,
    guest: PayloadPlan,
    /// Counts per millisecond of the floor, where the arms beside it do not count at the TSC's rate.
    paced: Option<u64>,
}

impl HostRunner {
    /// Creates a runner of guests of this configuration. `period` is that of the strategies' `backend`.
    pub fn new(host: Arc<Host>, guest: PayloadPlan, backend: &BackendKey, period: u64) -> Self {
        // A replay waits for its PMIs: a clock's counts are ns.
        let of_replay = (!guest.steps.is_empty() && *backend == BackendKey::CpuClock).then_some(1_000_000);
        Self { host, guest, paced: backend.pace(period).or(of_replay) }
    }
}

impl ArmRunner for HostRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        match arm.kind {
            ArmKind::Kvm => Err("the userspace vPMU is not KVM's".to_owned()),
            ArmKind::Strategy if arm.backend == BackendKey::None.to_string() => {
                Err("backend none has no host events that a strategy could keep".to_owned())
            }
            ArmKind::Strategy if arm.backend == BackendKey::Step.to_string() => {
                Err("backend step makes every instruction an exit, so that latencies would be those of the steps; it serves `vpmu conformance` \
                     and `vpmu run`"
                    .to_owned())
            }
            ArmKind::Strategy | ArmKind::Floor => Ok(()),
        }
    }

    fn run(&mut self, arm: &Arm, turn: Turn) -> Result<RunOutcome, Error> {
        Ok(launch(&self.host, &self.guest, behind(arm, self.paced)?, turn.samples)?)
    }

    fn open(&mut self, arm: &Arm, _number: u64, samples: u64) -> Result<Opened, Error> {
        Ok(start(&self.host, &self.guest, behind(arm, self.paced)?, samples)?)
    }
}

/// Returns the source of an arm's counters.
///
/// # Errors
/// Exit 2 for a strategy that is none.
pub fn behind(arm: &Arm, paced: Option<u64>) -> Result<CounterSource, Error> {
    let wrong = |why: String| Error::usage(format!("strategy {}", arm.strategy), why, "");
    Ok(match arm.kind {
        ArmKind::Floor => {
            paced.map_or(CounterSource::Floor, |counts_per_ms| CounterSource::PacedFloor { counts_per_ms })
        }
        ArmKind::Kvm => CounterSource::Kvm { module: below_kvm(arm).map_err(wrong)? },
        ArmKind::Strategy => CounterSource::Events {
            backend: arm.backend.parse().map_err(|error: UnknownBackend| wrong(error.to_string()))?,
            strategy: Strategy::named(&arm.strategy, arm.definition.as_deref())
                .map_err(|error| wrong(error.to_string()))?,
        },
    })
}

/// Returns the words for the kernel module that keeps the arm's host events; `None` of KVM's own vPMU as it is.
///
/// # Errors
/// One line, of a strategy that is none, or cannot be had there.
pub fn below_kvm(arm: &Arm) -> Result<Option<String>, String> {
    let Some(text) = &arm.definition else { return Ok(None) };
    let strategy = Strategy::below_kvm(text).map_err(|error| error.to_string())?;
    // Whether this host's KVM reprograms then was checked where the definition was made.
    kernel::words(&strategy, strategy.apply).map(Some)
}

#[cfg(test)]
mod tests {
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
        let kvm = |definition| behind(&arm("kvm", ArmKind::Kvm, definition), None).map_err(|error| error.to_string());
        assert_eq!(kvm(None), Ok(CounterSource::Kvm { module: None }));
        let direct = text.replace("'never'", "'never'\npause = 'direct'\noverflow = 'keep'");
        assert_eq!(kvm(Some(&direct)), Ok(CounterSource::Kvm { module: Some("last pause=direct".to_owned()) }));
        assert!(kvm(Some(&format!("{direct}\ngate = true"))).is_err());
    }
}
