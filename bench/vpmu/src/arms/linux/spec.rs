//! The choice between the payload and Linux as the guest of an experiment: which kernel, which perf, and what a plan becomes by it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::error::Error;

use crate::arms::rounds::plan::Plan;
use crate::machine::linux::spec::BootOptions;
use crate::setting::workload::{EventSet, GuestWork, Workload};

/// The guest of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuestKind {
    /// The bare-metal payload of this tool
    Payload,
    /// A distribution's kernel with its own perf: a fresh guest for each arm and round
    Linux,
}

/// Which guest, and which Linux with which perf.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Linux guest")]
pub struct LinuxGuestOptions {
    /// The guest: this tool's payload, or Linux with stock perf
    #[arg(long, value_enum, default_value = "payload")]
    pub guest: GuestKind,

    /// A distribution's kernel: bzImage or vmlinux
    #[arg(long, value_name = "FILE", required_if_eq("guest", "linux"))]
    pub kernel: Option<PathBuf>,

    /// The guest's perf: a file, or a program of PATH [default: perf]
    #[arg(long, value_name = "FILE", requires = "kernel", default_value = "perf", hide_default_value = true)]
    pub perf: PathBuf,

    /// Its modules, command line and memory.
    #[command(flatten)]
    pub boot: BootOptions,
}

impl LinuxGuestOptions {
    /// Returns itself, if the guest is Linux.
    ///
    /// # Errors
    /// Exit 2 for a kernel of a guest that is not Linux.
    pub fn chosen(&self) -> Result<Option<&Self>, Error> {
        match (self.guest, &self.kernel) {
            (GuestKind::Payload, None) => Ok(None),
            (GuestKind::Payload, Some(_)) => {
                Err(Error::usage("--kernel is for a Linux guest", "the guest is the payload", "add --guest linux"))
            }
            (GuestKind::Linux, _) => Ok(Some(self)),
        }
    }
}

/// Makes a plan for the payload one for Linux, but for what the kernel's file says.
///
/// # Errors
/// Exit 2 for what a Linux guest does not do.
pub fn adapt(plan: &mut Plan, workload: Workload) -> Result<(), Error> {
    if workload.events == EventSet::COUNTING1 {
        return Err(Error::usage(
            "a counting event takes no NMIs in a Linux guest",
            "perf gives it a period of half its counter's width, which no run reaches",
            "take sampling10, sampling4 or single",
        ));
    }
    if workload.work != GuestWork::FTEST {
        let what = format!("a Linux guest does not do the work {}", workload.work.key);
        return Err(Error::usage(what, "", "its work is ftest"));
    }
    let parameters = &mut plan.parameters;
    let interval = Duration::from_nanos(parameters.mux_interval_ns);
    if !interval.as_nanos().is_multiple_of(1_000_000) {
        return Err(Error::usage(
            format!("--mux-interval {interval:?} is no whole number of milliseconds"),
            "Linux takes it so (perf_event_mux_interval_ms)",
            "give e.g. 4ms",
        ));
    }
    parameters.rounds_per_guest = None;
    parameters.workload = format!("linux:{}", parameters.workload);
    (parameters.baseline_ticks, parameters.tail_ticks) = (0, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::session::command;
    use super::*;
    use crate::arms::rounds::mock;

    #[test]
    fn a_plan_for_linux_has_its_own_name_and_fresh_guests() {
        let mut plan = mock::plan(&["--workload", "sampling10"]).unwrap();
        adapt(&mut plan, "sampling10".parse().unwrap()).unwrap();
        assert_eq!(
            (plan.parameters.workload.as_str(), plan.parameters.rounds_per_guest),
            ("linux:sampling10/ftest", None)
        );
        assert_eq!(command(&plan.parameters, 1).join(" ").matches("cpu/event=").count(), 10);
    }
}
