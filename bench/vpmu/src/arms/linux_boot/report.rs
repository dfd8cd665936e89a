//! The report of a Linux guest, on stderr at its end.

use host_pmu::backend::BackendKey;
use vmm::machine::linux::{Faults, LinuxOutcome};
use vmm::outcome::End;

use crate::arms::summary::{self, Ran, Report};

/// The report of a guest that ended. `failed`: an error that names its end follows.
pub(super) fn of(outcome: &LinuxOutcome, backend: &BackendKey, failed: bool) -> Report {
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
    // An unusual end of a guest is reported even without a summary.
    if outcome.end != End::PowerOff && !failed {
        report.warnings.push(format!("the guest did not switch itself off: {}", outcome.end));
    }
    if outcome.rewritten == 0 {
        report.warnings.push(
            "the kernel has no RDPMC that was found and rewritten: its reads of counters will fault, or it has no PMU driver"
                .to_owned(),
        );
    }
    report.warnings.extend(outcome.complaints.lines());
    report.warnings.extend(of_channel(&outcome.channel));
    report
}

/// Lists the faults that broke the agent's port.
fn of_channel(faults: &Faults) -> Vec<String> {
    let mut warnings = Vec::new();
    if faults.broken > 0 {
        let times = if faults.broken == 1 { "once" } else { &format!("{} times", faults.broken) };
        warnings.push(format!(
            "the guest's virtio driver broke the rules of its queues {times}: the agent's port was closed"
        ));
    }
    if let Some(why) = &faults.error {
        warnings.push(format!("the virtio console for the agent failed on the host: {why}"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_port_is_a_warning() {
        assert_eq!(of_channel(&Faults::default()), Vec::<String>::new());
        let warnings = of_channel(&Faults { broken: 2, error: Some("no memory".to_owned()) });
        assert!(warnings[0].contains("2 times") && warnings[1].ends_with("no memory"), "{warnings:?}");
        assert!(of_channel(&Faults { broken: 1, error: None })[0].contains("once"));
    }
}
