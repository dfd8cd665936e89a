//! The report of a Linux guest, on stderr at its end.

use host_pmu::backend::BackendKey;
use vmm::machine::linux::LinuxOutcome;
use vmm::outcome::End;

use crate::summary::{self, Ran, Report};

/// The report of a guest that ended.
pub(super) fn of(outcome: &LinuxOutcome, backend: &BackendKey) -> Report {
    let ran = Ran {
        end: &outcome.end,
        wall: outcome.wall,
        vcpus: &outcome.vcpus,
        rewritten: Some(outcome.rewritten),
        absent: outcome.vcpus.iter().map(|vcpu| vcpu.left.absent).sum(),
        checked_addresses: false,
        output: &outcome.console,
    };
    let mut report = summary::of(&ran, backend);
    // What ends a guest otherwise is said even where the summary is not.
    if outcome.end != End::PowerOff {
        report.warnings.push(format!("the guest did not switch itself off: {}", outcome.end));
    }
    if outcome.rewritten == 0 {
        report.warnings.push(
            "the kernel has no RDPMC that was found and rewritten: its reads of counters will fault, or it has no PMU driver"
                .to_owned(),
        );
    }
    report.warnings.extend(outcome.complaints.lines());
    report
}
