//! Starting one guest on this host's KVM.

use vmm::kvm::Host;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{self, Behind, MachineError};
use vmm::outcome::RunOutcome;

use super::guest::GuestPlan;
use crate::sys;
use results::error::Error;

/// Runs the payload with `behind` its counters.
pub(super) fn launch(host: &Host, guest: &GuestPlan, behind: Behind, samples: u64) -> Result<RunOutcome, Error> {
    let plan = PayloadPlan {
        machine: machine::Plan {
            behind,
            pmu: guest.pmu(),
            vcpus: guest.vcpus as usize,
            pin: guest.pin.iter().map(|&cpu| cpu as usize).collect(),
            time_limit: guest.hard_limit,
            seccomp: guest.seccomp,
        },
        log_entries: guest.log_entries(samples),
        boot: guest.boot_page(samples),
    };
    payload::run(host, guest::PMU_PAYLOAD, &plan, sys::interrupted()).map_err(|error| match error {
        MachineError::Kvm(error) => Error::host("cannot run a guest", error.to_string(), ""),
        other => Error::host("cannot run a guest", other.to_string(), "`vpmu doctor` says what is missing"),
    })
}
