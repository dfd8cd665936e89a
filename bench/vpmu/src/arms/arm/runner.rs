//! An arm, what stands behind its counters, one run of it, and the interface of everything that runs arms.

use std::time::Duration;

use arch_pmu::spec::Vendor;
use host_pmu::backend::UnknownBackend;
use host_pmu::kernel::Module;
use host_pmu::strategy::Strategy;
use results::document::{ArmKind, BELOW_KVM, KVM_ARMS, LinuxArm, kvm_arm};
use results::error::Error;
use results::host::HostFs;
use vmm::kvm::Host;
use vmm::machine::{CounterSource, Cpu};
use vmm::outcome::{End, RunOutcome};

use crate::engine::Turn;
use crate::setting::backend::shown_by;
use crate::setting::strategy::named;

/// One arm of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Strategy name, "floor" or "kvm".
    pub strategy: String,
    /// Backend key; "none" for the floor, "kvm" for KVM's own vPMU.
    pub backend: String,
    /// Kind of the arm.
    pub kind: ArmKind,
    /// The strategy's TOML text, if it came from a file.
    pub definition: Option<String>,
}

impl Arm {
    /// Returns its strategy, ready for use.
    ///
    /// # Errors
    /// Exit 2 for one that cannot be read.
    pub fn strategy(&self) -> Result<Strategy, Error> {
        named(&self.strategy, self.definition.as_deref())
    }

    /// Checks that its counters can be had by a guest with `cpu` on this host.
    ///
    /// # Errors
    /// Says why not, with the remedy.
    pub fn available(&self, host: &Host, cpu: Cpu) -> Result<(), String> {
        match (self.kind, self.below_kvm()) {
            (ArmKind::Kvm, below) => {
                host.kvm_pmu()?;
                fits(shown_by(host.vendor(), host.shows_perfmon_v2()), cpu)?;
                if below.is_some() && kvm_arm(&HostFs::default()) == KVM_ARMS[1] {
                    return Err("this host's KVM gives guests a mediated vPMU, behind which there are no host events: reload kvm_intel \
                                or kvm_amd with enable_mediated_pmu=N"
                        .to_owned());
                }
                below.map_or(Ok(()), |name| Module::open(&name).map(drop))
            }
            (ArmKind::Strategy | ArmKind::Floor, _) => Ok(()),
        }
    }

    /// Returns the source of its counters, which is known of the floor.
    ///
    /// # Errors
    /// Exit 2 for a strategy that is none.
    pub fn source(&self, floor: &CounterSource) -> Result<CounterSource, Error> {
        Ok(match self.kind {
            ArmKind::Floor => floor.clone(),
            ArmKind::Kvm => CounterSource::Kvm { module: self.below_kvm() },
            ArmKind::Strategy => CounterSource::Events {
                backend: self
                    .backend
                    .parse()
                    .map_err(|error: UnknownBackend| Error::internal("an arm has no backend", error))?,
                strategy: self.strategy()?,
            },
        })
    }

    /// Returns the strategy of the kernel module that keeps its host events; `None` of KVM's own vPMU as it is.
    fn below_kvm(&self) -> Option<String> {
        self.strategy.strip_prefix(BELOW_KVM).map(str::to_owned)
    }
}

/// Checks that KVM shows a guest the PMU of the host's processor, and that the guest's events and its driver are those
/// of `cpu`: beside the other arms it has to run the same handler.
fn fits(shown: Option<Cpu>, cpu: Cpu) -> Result<(), String> {
    let shown = shown.ok_or("this host's processor is neither an Intel's nor an AMD's")?;
    if cpu == shown || (cpu.vendor(), shown.vendor()) == (Vendor::Intel, Vendor::Intel) {
        return Ok(());
    }
    let [cpu, shown] = [cpu, shown].map(Cpu::name);
    Err(format!(
        "the guest's events and driver are for --cpu {cpu}, and KVM shows it the PMU of {shown}: give --cpu {shown}"
    ))
}

/// One turn of a guest: of one that is kept alive, or the whole life of another.
#[derive(Clone, Debug)]
pub struct TurnOutcome {
    /// Every figure is of this turn alone.
    pub run: RunOutcome,
    /// Figures of the kernel and programs of a Linux guest.
    pub linux: Option<LinuxArm>,
    /// The host's work by the model where a trace is replayed, ns, of each sample.
    pub host_work: Vec<u64>,
}

impl From<RunOutcome> for TurnOutcome {
    fn from(run: RunOutcome) -> Self {
        Self { run, linux: None, host_work: Vec::new() }
    }
}

/// Returns the outcome of a run without vCPUs.
pub(super) const fn nothing(end: End) -> RunOutcome {
    RunOutcome { end, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO }
}

/// The guests of an arm, one after the other. Once [`crate::sys::interrupted`] is set, a guest is ended, and the outcome so far has
/// [`End::Stopped`].
pub trait ArmGuests {
    /// Starts a guest that lives over several turns, up to the end of its baseline, and returns the outcome of that; none if it went
    /// wrong: its first turn says how. `number` counts the arm's guests from 0: all arms' guests of one number are alive at the same
    /// time, and take turns, of `samples` at most. Between two of them its vCPUs wait, with its counters and its timer off.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn open(&mut self, _number: u64, _samples: u64) -> Result<Option<RunOutcome>, Error> {
        Ok(None)
    }

    /// Lets the guest that was started, or without a session a fresh one, take `samples` samples per vCPU, and waits for the end of
    /// that. A guest that failed, hung or was interrupted is an outcome whose end says so; it is gone then.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn turn(&mut self, turn: Turn, samples: u64) -> Result<TurnOutcome, Error>;

    /// Ends the guest that was started, if it still lives. The outcome has the rest after the last turn: the tail's ticks, and host
    /// operations since then.
    ///
    /// # Errors
    /// Conditions that make further runs pointless.
    fn close(&mut self) -> Result<Option<RunOutcome>, Error> {
        Ok(None)
    }
}

/// The guests of an arm, or why it cannot run here at all, e.g. "KVM has no vPMU of its own here".
pub type Guests<'a> = Result<Box<dyn ArmGuests + 'a>, String>;

/// Makes the guests of an arm; called once per arm, before anything runs.
pub type Runner = Box<dyn Fn(&Arm) -> Guests<'_>>;

#[cfg(test)]
mod tests {
    use host_pmu::backend::BackendKey;

    use super::*;

    fn arm(strategy: &str, kind: ArmKind, definition: Option<&str>) -> Arm {
        let definition = definition.map(str::to_owned);
        Arm { strategy: strategy.to_owned(), backend: "cpu-clock".to_owned(), kind, definition }
    }

    #[test]
    fn arms_become_what_stands_behind_the_counters() {
        let floor = &CounterSource::PacedFloor { counts_per_ms: 100 };
        assert_eq!(arm("floor", ArmKind::Floor, None).source(floor).unwrap(), *floor);
        let reuse = arm("reuse", ArmKind::Strategy, None).source(floor).unwrap();
        let strategy = Strategy::preset("reuse").unwrap();
        assert_eq!(reuse, CounterSource::Events { backend: BackendKey::CpuClock, strategy });
        let text = "name = 'mine'\nreuse = 'last'\nrelease = 'never'\napply = 'deferred'";
        assert!(matches!(arm("mine", ArmKind::Strategy, Some(text)).source(floor), Ok(CounterSource::Events { .. })));
        assert!(arm("mine", ArmKind::Strategy, Some("reuse = 1")).source(floor).is_err());
        let kvm = |name| arm(name, ArmKind::Kvm, None).source(floor).unwrap();
        assert_eq!(kvm("kvm"), CounterSource::Kvm { module: None });
        assert_eq!(kvm("kvm:direct"), CounterSource::Kvm { module: Some("direct".to_owned()) });
    }

    #[test]
    fn a_guest_of_kvms_vpmu_has_the_hosts_vendor() {
        for (host, perfmon_v2, cpu, needle) in [
            (Some(Vendor::Intel), false, Cpu::CascadeLake, ""),
            (Some(Vendor::Amd), true, Cpu::Genoa, ""),
            (Some(Vendor::Amd), false, Cpu::Milan, ""),
            (Some(Vendor::Amd), false, Cpu::Genoa, "--cpu milan"),
            (Some(Vendor::Amd), true, Cpu::Milan, "--cpu genoa"),
            (Some(Vendor::Amd), true, Cpu::CascadeLake, "give --cpu genoa"),
            (Some(Vendor::Amd), false, Cpu::CascadeLake, "give --cpu milan"),
            (Some(Vendor::Intel), false, Cpu::Milan, "--cpu clx"),
            (None, false, Cpu::Milan, "neither"),
        ] {
            let why = fits(shown_by(host, perfmon_v2), cpu).err().unwrap_or_default();
            assert_eq!(why.is_empty(), needle.is_empty(), "{why}");
            assert!(why.contains(needle), "{why}");
        }
    }
}
