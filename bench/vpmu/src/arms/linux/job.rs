//! From an experiment's plan to its Linux guests.

use std::path::PathBuf;
use std::time::Duration;

use results::document::SetUpParameters;
use results::error::Error;

use super::runner::LinuxRunner;
use super::spec::{GuestKind, LinuxGuestOptions};
use crate::arms::arm::real;
use crate::arms::arm::runner::ArmRunner;
use crate::arms::rounds::plan::Plan;
use crate::setting::workload::{EventSet, GuestWork, Workload};

pub use super::task::Kind;

/// An experiment's Linux guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxJob {
    /// The kernel.
    pub kernel: PathBuf,
    /// The guest.
    pub guest: LinuxGuestOptions,
    /// Job of the guest.
    pub kind: Kind,
}

impl LinuxJob {
    /// Returns the job of these options, if their guest is Linux.
    ///
    /// # Errors
    /// Exit 2 for a kernel of a guest that is not Linux.
    pub fn new(guest: &LinuxGuestOptions, kind: Kind) -> Result<Option<Self>, Error> {
        let Some(kernel) = guest.kernel.clone() else { return Ok(None) };
        if guest.guest == GuestKind::Payload {
            return Err(Error::usage("--kernel is for a Linux guest", "the guest is the payload", "add --guest linux"));
        }
        Ok(Some(Self { kernel, guest: guest.clone(), kind }))
    }

    /// Makes a plan for the payload one for Linux, but for what the kernel's file says.
    ///
    /// # Errors
    /// Exit 2 for what a Linux guest does not do.
    pub fn adapt(&self, plan: &mut Plan, workload: Workload) -> Result<(), Error> {
        if self.kind == Kind::Record {
            check(workload)?;
        }
        let interval = Duration::from_nanos(plan.parameters.mux_interval_ns);
        if !interval.as_nanos().is_multiple_of(1_000_000) {
            return Err(Error::usage(
                format!("--mux-interval {interval:?} is no whole number of milliseconds"),
                "Linux takes it so (perf_event_mux_interval_ms)",
                "give e.g. 4ms",
            ));
        }
        plan.parameters.rounds_per_guest = None;
        plan.parameters.workload = format!("linux:{}", plan.parameters.workload);
        (plan.parameters.baseline_ticks, plan.parameters.tail_ticks) = (0, 0);
        if self.kind == Kind::SetUp {
            let once = SetUpParameters { enable: "once".to_owned(), window_ticks: 0, gap_ticks: 0 };
            plan.parameters.set_up = Some(once);
        }
        Ok(())
    }

    /// The runner of a plan, to which it adds what the document says of the guest.
    ///
    /// # Errors
    /// Exit 2 for a kernel or a perf that cannot be used, 4 where this host cannot boot Linux.
    pub fn runner(&self, plan: &mut Plan) -> Result<Box<dyn ArmRunner>, Error> {
        real::ensure(plan.parameters.vcpus)?;
        Ok(Box::new(LinuxRunner::new((&self.kernel, &self.guest), self.kind, plan)?))
    }
}

fn check(workload: Workload) -> Result<(), Error> {
    if workload.events == EventSet::COUNTING1 {
        return Err(Error::usage(
            "a counting event takes no NMIs in a Linux guest",
            "perf gives it a period of half its counter's width, which no run reaches",
            "take sampling10, sampling4 or single; `vpmu guest-stat --guest linux` times perf stat",
        ));
    }
    if workload.work != GuestWork::FTEST {
        return Err(Error::usage(
            format!("a Linux guest does not do the work {}", workload.work.key),
            "",
            "its work is ftest",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::task::command;
    use super::*;
    use crate::arms::rounds::mock;
    use crate::setting::parse::defaults;

    fn job(kind: Kind) -> LinuxJob {
        LinuxJob { kernel: "vmlinuz".into(), guest: defaults(), kind }
    }

    fn adapted(kind: Kind, workload: &str) -> Result<Plan, Error> {
        let mut plan = mock::plan(&["--workload", workload])?;
        job(kind).adapt(&mut plan, workload.parse().unwrap())?;
        Ok(plan)
    }

    #[test]
    fn a_plan_for_linux_has_its_own_name_and_fresh_guests() {
        let plan = adapted(Kind::Record, "sampling10").unwrap();
        assert_eq!((plan.parameters.workload.as_str(), plan.keeps_guests()), ("linux:sampling10/ftest", false));
        assert_eq!(command(Kind::Record, &plan.parameters, 1).join(" ").matches("cpu/event=").count(), 10);
        let plan = adapted(Kind::SetUp, "single").unwrap();
        assert_eq!(plan.parameters.set_up.as_ref().unwrap().enable, "once");
    }

    #[test]
    fn what_linux_does_not_do_is_refused_with_a_remedy() {
        for (workload, needle) in [("counting1", "no NMIs"), ("single/io", "work io"), ("idle", "work idle")] {
            let error = adapted(Kind::Record, workload).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }
}
