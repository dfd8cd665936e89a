//! Arm `kvm`: the payload on KVM's own vPMU, where the host's KVM has one.

use std::sync::Arc;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use host_pmu::kernel::Module;
use vmm::kvm::Host;
use vmm::machine::Cpu;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::{End, RunOutcome};

use super::host::{behind, below_kvm};
use super::launch::{Failure, launch, start};
use super::runner::{Arm, ArmRunner, LiveGuest, Opened, Turn, TurnOutcome};
use results::document::{KVM_ARMS, kvm_arm};
use results::error::Error;
use results::host::HostFs;

/// Checks that KVM's own vPMU can stand behind the counters of a guest with `cpu`.
///
/// # Errors
/// Says why not.
pub fn available(host: &Host, cpu: Cpu) -> Result<(), String> {
    host.kvm_pmu()?;
    fits(host.vendor(), host.shows_perfmon_v2(), cpu)
}

/// Checks that KVM shows a guest the PMU of the host's processor, and that the guest's events and its driver are those
/// of `cpu`: beside the other arms it has to run the same handler.
fn fits(host: Option<Vendor>, perfmon_v2: bool, cpu: Cpu) -> Result<(), String> {
    let wants_v2 = matches!(cpu.pmu(), PmuCaps::Amd(caps) if caps.perfmon_v2);
    let (shown, remedy) = match host {
        Some(vendor) if vendor == cpu.vendor() && perfmon_v2 == wants_v2 => return Ok(()),
        Some(Vendor::Amd) if perfmon_v2 => ("an AMD's PerfMonV2", "--cpu genoa"),
        Some(Vendor::Amd) => ("an AMD's PMU without PerfMonV2", "--cpu milan"),
        Some(Vendor::Intel) => ("an Intel's PMU", "--cpu clx"),
        None => return Err("this host's processor is neither an Intel's nor an AMD's".to_owned()),
    };
    Err(format!(
        "KVM shows a guest {shown} here, and the guest's events and driver are for --cpu {}: give {remedy}",
        cpu.name()
    ))
}

/// Checks that the kernel module, if it is to keep the arm's host events, takes its words.
///
/// # Errors
/// Says why not, with the remedy.
pub fn takes(arm: &Arm) -> Result<(), String> {
    let Some(words) = below_kvm(arm)? else { return Ok(()) };
    if kvm_arm(&HostFs::default()) == KVM_ARMS[1] {
        return Err("this host's KVM gives guests a mediated vPMU, behind which there are no host events: reload kvm_intel or kvm_amd with \
                    enable_mediated_pmu=N"
            .to_owned());
    }
    Module::open(&words).map(drop)
}

/// Runs guests on KVM's own vPMU.
#[derive(Debug)]
pub struct KvmRunner {
    host: Arc<Host>,
    guest: PayloadPlan,
    /// Guests of other arms live at the same time, on hardware events.
    beside_hardware: bool,
}

impl KvmRunner {
    /// Creates a runner of guests of this configuration, alive beside those of the other arms, whose events are hardware's, or not.
    pub const fn new(host: Arc<Host>, guest: PayloadPlan, beside_hardware: bool) -> Self {
        Self { host, guest, beside_hardware }
    }
}

/// Checks that the guest can share the PMU: a mediated vPMU has the whole PMU while its VM lives, and no event that
/// counts in guests opens meanwhile, nor is such a VM made while there is one.
fn shares(arm: &str, beside_hardware: bool) -> Result<(), String> {
    if arm == KVM_ARMS[1] && beside_hardware {
        return Err("a guest with a mediated vPMU has the whole PMU, and guests of the other arms, which live at the same time, would get no \
                    hardware event: give --guest-rounds 1"
            .to_owned());
    }
    Ok(())
}

/// Turns a PMU that others hold now into the end of this arm's turn, not of the other arms'.
fn of_this_arm<T>(done: Result<T, Failure>, instead: impl FnOnce(RunOutcome) -> T) -> Result<T, Error> {
    match done {
        Err(Failure::PmuTaken(why)) => {
            let (vcpus, wall, start) = (Vec::new(), Duration::ZERO, Duration::ZERO);
            Ok(instead(RunOutcome { end: End::Host(why), vcpus, wall, start }))
        }
        Err(Failure::Other(error)) => Err(error),
        Ok(done) => Ok(done),
    }
}

/// A guest that could not be made.
#[derive(Debug)]
struct Absent(RunOutcome);

impl LiveGuest for Absent {
    fn turn(&mut self, _samples: u64) -> Result<TurnOutcome, Error> {
        Ok(self.0.clone().into())
    }

    fn close(self: Box<Self>) -> Result<RunOutcome, Error> {
        Ok(self.0)
    }
}

impl ArmRunner for KvmRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        shares(&arm.strategy, self.beside_hardware)?;
        available(&self.host, self.guest.machine.cpu)?;
        takes(arm)
    }

    fn run(&mut self, arm: &Arm, turn: Turn) -> Result<RunOutcome, Error> {
        of_this_arm(launch(&self.host, &self.guest, behind(arm, None)?, turn.samples), |outcome| outcome)
    }

    fn open(&mut self, arm: &Arm, _number: u64, samples: u64) -> Result<Opened, Error> {
        of_this_arm(start(&self.host, &self.guest, behind(arm, None)?, samples), |outcome| Opened {
            guest: Box::new(Absent(outcome)),
            opening: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mediated_vpmu_has_no_hardware_events_beside_it() {
        assert!(shares("kvm-mediated", true).unwrap_err().contains("--guest-rounds 1"));
        for (arm, beside_hardware) in [("kvm-mediated", false), ("kvm", true), ("kvm", false)] {
            assert_eq!(shares(arm, beside_hardware), Ok(()));
        }
    }

    #[test]
    fn a_pmu_that_others_hold_ends_the_turn_alone() {
        let taken = of_this_arm(Err(Failure::PmuTaken("others have it".to_owned())), |outcome| outcome).unwrap();
        assert_eq!(taken.end, End::Host("others have it".to_owned()));
        let mut guest = Absent(taken.clone());
        assert_eq!(guest.turn(5).unwrap().run.end, taken.end);
        let broken = Failure::Other(Error::host("cannot run a guest", "no memory", ""));
        assert!(of_this_arm(Err(broken), |outcome| outcome).is_err());
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
            let why = fits(host, perfmon_v2, cpu).err().unwrap_or_default();
            assert_eq!(why.is_empty(), needle.is_empty(), "{why}");
            assert!(why.contains(needle), "{why}");
        }
    }
}
