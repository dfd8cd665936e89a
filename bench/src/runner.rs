//! Where the experiment meets the VMM: starting guests, asking KVM and perf.

use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::MAX_COUNTERS;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};
use host_pmu::backend::BackendKey;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::strategy::{MAX_POOL, Strategy};
use vmm::kvm::Host;
use vmm::machine::{self, Behind, MachineError};
use vmm::outcome::RunOutcome;

use crate::error::Error;
use crate::experiment::plan::{GuestPlan, Plan};
use crate::experiment::{Arm, ArmKind, ArmRunner, Round};
use crate::host::probe::{EventProbe, KvmCap, KvmProbe, KvmReport};
use crate::sys::{self, Limit};

/// Log entries for each sample asked for: the rotations share the log.
const LOG_PER_SAMPLE: u64 = 2;
/// And for whatever comes while the guest stops.
const LOG_SPARE: u64 = 4096;

/// Runs arms on this host's KVM.
#[derive(Debug)]
struct KvmRunner {
    host: Host,
    guest: GuestPlan,
    /// Counts per millisecond of the floor, where the arms beside it count no clock.
    paced: Option<u64>,
}

/// Makes the runner of `plan`'s arms.
///
/// # Errors
/// Exit 4 where this host cannot run guests.
pub fn make(plan: &Plan) -> Result<Box<dyn ArmRunner>, Error> {
    let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
    check_limits(plan.guest.vcpus)?;
    // A tracepoint's period is a few occurrences: at one count per TSC tick the floor would do nothing but overflow.
    let paced = matches!(plan.backend, BackendKey::Tracepoint { .. }).then_some(plan.parameters.period);
    Ok(Box::new(KvmRunner { host, guest: plan.guest.clone(), paced }))
}

/// Host events and signals are bounded by the process's limits: too low ones are raised, or refused before anything runs.
fn check_limits(vcpus: u64) -> Result<(), Error> {
    /// Files of a vCPU: its own, the monitor's two, an event per counter, a full pool.
    const FILES: u64 = 3 + MAX_COUNTERS as u64 + MAX_POOL as u64;
    /// Queued signals of a vCPU: a timer, and one per event until it is taken, some of them several times.
    const SIGNALS: u64 = 8 * MAX_COUNTERS as u64;
    for (limit, wanted, name, flag) in [
        (Limit::OpenFiles, 64 + vcpus * FILES, "RLIMIT_NOFILE", "-n"),
        (Limit::PendingSignals, 64 + vcpus * SIGNALS, "RLIMIT_SIGPENDING", "-i"),
    ] {
        sys::ensure_limit(limit, wanted).map_err(|now| {
            Error::host(
                format!("{name} is too low"),
                format!("it is {now}, and {vcpus} vCPUs may need {wanted}"),
                format!("raise it: ulimit {flag} {wanted}"),
            )
        })?;
    }
    Ok(())
}

impl ArmRunner for KvmRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        match arm.kind {
            ArmKind::Kvm => self.host.kvm_pmu(),
            ArmKind::Strategy if arm.backend == BackendKey::None.to_string() => {
                Err("backend none has no host events that a strategy could keep".to_owned())
            }
            ArmKind::Strategy if arm.backend == BackendKey::Step.to_string() => {
                Err("backend step sees ring 0 only, and this workload runs in ring 3; it serves `vpmu conformance`"
                    .to_owned())
            }
            ArmKind::Strategy | ArmKind::Floor => Ok(()),
        }
    }

    fn run(&mut self, arm: &Arm, round: Round) -> Result<RunOutcome, Error> {
        let plan = machine::Plan {
            behind: behind(arm, self.paced)?,
            pmu: PmuCaps {
                version: self.guest.pmu_version as u8,
                gp: self.guest.gp_counters as u8,
                fixed: self.guest.fixed_counters as u8,
                ..PmuCaps::default()
            },
            vcpus: self.guest.vcpus as usize,
            pin: self.guest.pin.iter().map(|&cpu| cpu as usize).collect(),
            log_entries: log_entries(&self.guest, round.samples),
            boot: boot_page(&self.guest, round.samples),
            time_limit: self.guest.hard_limit,
            seccomp: self.guest.seccomp,
        };
        machine::run(&self.host, guest::PMU_PAYLOAD, &plan, sys::interrupted()).map_err(|error| match error {
            MachineError::Kvm(error) => Error::host("cannot run a guest", error.to_string(), ""),
            other => Error::host("cannot run a guest", other.to_string(), "`vpmu doctor` says what is missing"),
        })
    }
}

fn behind(arm: &Arm, paced: Option<u64>) -> Result<Behind, Error> {
    let wrong = |why: String| Error::usage(format!("strategy {}", arm.strategy), why, "");
    Ok(match arm.kind {
        ArmKind::Floor => paced.map_or(Behind::Floor, |counts_per_ms| Behind::PacedFloor { counts_per_ms }),
        ArmKind::Kvm => Behind::Kvm,
        ArmKind::Strategy => Behind::Events {
            backend: arm
                .backend
                .parse()
                .map_err(|error: host_pmu::backend::UnknownBackend| wrong(error.to_string()))?,
            strategy: Strategy::named(&arm.strategy, arm.definition.as_deref())
                .map_err(|error| wrong(error.to_string()))?,
        },
    })
}

/// Log entries for a run that shall take so many samples.
pub(crate) const fn log_entries(guest: &GuestPlan, samples: u64) -> u64 {
    // A set-up logs each call of its four phases, and the rotations after it.
    let set_up = 4 * guest.events.len() as u64 + guest.window_ticks;
    samples * (if guest.window_ticks > 0 { set_up } else { LOG_PER_SAMPLE }) + LOG_SPARE
}

/// What the guest is told, without addresses and frequencies.
pub(crate) fn boot_page(guest: &GuestPlan, samples: u64) -> BootPage {
    let mut events = [EventSpec::default(); MAX_EVENTS];
    for (slot, event) in events.iter_mut().zip(&guest.events) {
        *slot = *event;
    }
    BootPage {
        workload: guest.workload.work.abi(),
        flags: guest.flags,
        tick_count: lapic_ticks(guest.mux_interval),
        baseline_ticks: guest.baseline_ticks,
        max_ticks: guest.max_ticks,
        tail_ticks: guest.tail_ticks,
        sample_target: samples,
        window_ticks: guest.window_ticks,
        gap_ticks: guest.gap_ticks,
        limit_us: guest.limit_us,
        freq_hz: guest.freq_hz,
        event_count: guest.events.len().min(MAX_EVENTS) as u64,
        events,
        ..BootPage::default()
    }
}

/// KVM's LAPIC timer runs at 1 GHz.
fn lapic_ticks(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).min(u64::from(u32::MAX))
}

/// Asks KVM and perf of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisHost;

impl KvmProbe for ThisHost {
    fn probe(&self) -> Result<KvmReport, String> {
        let facts = vmm::kvm::Facts::read().map_err(|error| error.to_string())?;
        Ok(KvmReport {
            api_version: facts.api_version,
            max_vcpus: facts.max_vcpus as u64,
            capabilities: KvmCap::ALL.iter().map(|&cap| (cap, facts.capability(cap.number()))).collect(),
        })
    }
}

impl EventProbe for ThisHost {
    fn try_open(&self, backend: &BackendKey) -> Result<(), String> {
        if matches!(backend, BackendKey::None | BackendKey::Step) {
            return Ok(());
        }
        // The scale of clocks does not matter to whether an event opens.
        let mut backend = PerfBackend::new(backend, 1_000_000).map_err(|error| error.to_string())?;
        backend.probe().map_err(|error| error.to_string())
    }
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
        assert_eq!(behind(&arm("floor", ArmKind::Floor, None), None).unwrap(), Behind::Floor);
        let paced = Behind::PacedFloor { counts_per_ms: 100 };
        assert_eq!(behind(&arm("floor", ArmKind::Floor, None), Some(100)).unwrap(), paced);
        let reuse = behind(&arm("reuse", ArmKind::Strategy, None), None).unwrap();
        let strategy = Strategy::preset("reuse").unwrap();
        assert_eq!(reuse, Behind::Events { backend: BackendKey::CpuClock, strategy });
        let text = "name = 'mine'\nreuse = 'last'\nrelease = 'never'\napply = 'deferred'";
        assert!(matches!(behind(&arm("mine", ArmKind::Strategy, Some(text)), None), Ok(Behind::Events { .. })));
        assert!(behind(&arm("mine", ArmKind::Strategy, Some("reuse = 1")), None).is_err());
    }

    #[test]
    fn a_tick_never_exceeds_the_timers_32_bits() {
        assert_eq!(lapic_ticks(Duration::from_millis(4)), 4_000_000);
        assert_eq!(lapic_ticks(Duration::from_secs(10)), u64::from(u32::MAX));
    }
}
