//! Delivery latency: deliveries of the VMM paired with handler entries of the guest's log.

use guest::abi::{LOG_NMI, LogEntry, Report};
use vmm::outcome::VcpuOutcome;

/// Returns the guest TSC ticks from each delivery to its handler's entry, or `None` if they cannot be paired.
///
/// The k-th NMI the guest logs answers the k-th delivery only if the guest took exactly as many as were delivered, and
/// if the log lacks none before its end: a full log drops its last entries, so it holds a prefix.
pub(super) fn deliveries(vcpu: &VcpuOutcome, report: &Report) -> Option<Vec<i64>> {
    let taken: Vec<&LogEntry> = vcpu.left.log.iter().filter(|entry| entry.kind == LOG_NMI).collect();
    let logged = u64::try_from(taken.len()).ok()?;
    let delivered = u64::try_from(vcpu.account.deliveries.len()).ok()?;
    let missing = report.nmis.checked_sub(logged)?;
    // `dropped` counts rotations too, so it bounds the missing NMIs from above.
    let consistent =
        report.nmis == delivered && vcpu.account.counts.nmis_injected == delivered && missing <= report.dropped;
    consistent.then(|| {
        taken
            .iter()
            .zip(&vcpu.account.deliveries)
            .map(|(entry, &host_tsc)| {
                let seen = host_tsc.wrapping_add_signed(vcpu.left.tsc.offset);
                entry.tsc_entry.wrapping_sub(seen).cast_signed()
            })
            .collect()
    })
}
