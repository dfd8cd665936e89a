//! The report of a run, on stderr at its end.

use vmm::image_machine::{ImageOutcome, ImageVcpu, Rdpmc};

/// The report, a line each.
pub(super) fn lines(outcome: &ImageOutcome, rdpmc: Rdpmc) -> Vec<String> {
    let sum = |of: fn(&ImageVcpu) -> u64| outcome.vcpus.iter().map(of).sum::<u64>();
    let mut lines = vec![format!("{}, after {:.1} s", outcome.end, outcome.wall.as_secs_f64())];
    if rdpmc == Rdpmc::Rewrite {
        let answered = sum(|vcpu| vcpu.rdpmcs);
        lines.push(format!("RDPMC: {} rewritten to RDMSR, {answered} answered", outcome.rewritten));
    }
    let faults = sum(|vcpu| vcpu.msr_exits.iter().map(|line| line.faults).sum());
    let accesses = sum(|vcpu| vcpu.msr_exits.iter().map(|line| line.reads + line.writes).sum());
    lines.push(format!(
        "PMU: {accesses} register accesses ({faults} #GP), {} overflows, PMIs: {} NMI, {} fixed, {} masked",
        sum(|vcpu| vcpu.pmi.overflows),
        sum(|vcpu| vcpu.pmi.nmis),
        sum(|vcpu| vcpu.pmi.fixed),
        sum(|vcpu| vcpu.pmi.masked),
    ));
    let absent = sum(|vcpu| vcpu.absent);
    if absent != 0 {
        lines.push(format!("{absent} accesses to ports or memory that this machine does not have"));
    }
    if outcome.checked_addresses {
        lines.push(
            "this host's processor is emulated: addresses written to MSRs are checked for being canonical here"
                .to_owned(),
        );
    }
    let undelivered = sum(|vcpu| vcpu.pmi.undeliverable);
    if undelivered != 0 {
        lines.push(format!("warning: {undelivered} PMIs had a delivery mode that cannot be delivered"));
    }
    let lost = sum(|vcpu| vcpu.host.failed_opens + vcpu.host.pinned_errors + vcpu.host.throttled);
    if lost != 0 {
        let why = outcome.vcpus.iter().find_map(|vcpu| vcpu.host.last_error.clone()).unwrap_or_default();
        lines.push(format!(
            "warning: counts may be wrong: {lost} host events failed, lost their counter or were throttled {why}"
        ));
    }
    if let Some(error) = &outcome.output.error {
        lines.push(format!("warning: serial output was lost: {error}"));
    }
    if outcome.output.dropped != 0 {
        lines.push(format!("warning: {} bytes of serial output beyond the limit were dropped", outcome.output.dropped));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vmm::devices::board::Output;
    use vmm::outcome::{End, HostSide, MsrExits, PmiStats};

    use super::*;

    fn outcome() -> ImageOutcome {
        let vcpu = ImageVcpu {
            end: End::GuestExit { status: 3 },
            pmi: PmiStats { overflows: 5, nmis: 2, ..PmiStats::default() },
            msr_exits: vec![MsrExits { msr: 0x38f, reads: 1, writes: 2, faults: 1 }],
            rdpmcs: 7,
            absent: 0,
            host: HostSide::default(),
        };
        ImageOutcome {
            end: vcpu.end.clone(),
            vcpus: vec![vcpu.clone(), vcpu],
            rewritten: 4,
            checked_addresses: false,
            output: Output { error: None, dropped: 0 },
            wall: Duration::from_millis(1500),
        }
    }

    #[test]
    fn vcpus_are_added_up() {
        let lines = lines(&outcome(), Rdpmc::Rewrite);
        assert_eq!(
            lines,
            [
                "the guest ended with status 3 (code 1), after 1.5 s",
                "RDPMC: 4 rewritten to RDMSR, 14 answered",
                "PMU: 6 register accesses (2 #GP), 10 overflows, PMIs: 4 NMI, 0 fixed, 0 masked",
            ]
        );
    }

    #[test]
    fn what_spoils_a_run_is_said() {
        let mut outcome = outcome();
        outcome.vcpus[0].absent = 3;
        outcome.vcpus[1].host.throttled = 2;
        outcome.vcpus[1].pmi.undeliverable = 1;
        outcome.output = Output { error: Some(std::io::ErrorKind::BrokenPipe.into()), dropped: 9 };
        let text = lines(&outcome, Rdpmc::Fault).join("\n");
        for needle in ["3 accesses", "throttled", "delivery mode", "output was lost", "9 bytes"] {
            assert!(text.contains(needle), "{text} lacks {needle}");
        }
        assert!(!text.contains("RDPMC"));
    }
}
