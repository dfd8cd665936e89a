//! Starting one guest on this host's KVM.

use std::rc::Rc;
use std::time::Duration;

use vmm::kvm::Host;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{self, Behind, MachineError};
use vmm::outcome::{End, RunOutcome};

use super::guest::GuestPlan;
use super::runner::{LiveGuest, SliceOutcome};
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

/// A guest on this host's KVM that takes its samples slice by slice.
#[derive(Debug)]
pub(super) struct Live {
    host: Rc<Host>,
    guest: GuestPlan,
    behind: Behind,
}

impl Live {
    /// Starts it.
    pub(super) fn start(host: &Rc<Host>, guest: &GuestPlan, behind: Behind) -> Self {
        Self { host: Rc::clone(host), guest: guest.clone(), behind }
    }
}

impl LiveGuest for Live {
    fn slice(&mut self, samples: u64) -> Result<SliceOutcome, Error> {
        let run = launch(&self.host, &self.guest, self.behind.clone(), samples)?;
        Ok(SliceOutcome { run, probe_ns: None })
    }

    fn close(self: Box<Self>) -> Result<RunOutcome, Error> {
        Ok(RunOutcome { end: End::Done, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO })
    }
}
