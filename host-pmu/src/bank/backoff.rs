//! Exponential back-off for refused opens of a counter's event.

use arch_pmu::spec::Spec;

/// Retries of one counter after 1, 2, 4 … entries, so that a guest is not stalled by a failing host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// The event that failed last.
    spec: Option<Spec>,
    failures: u32,
    entries_left: u32,
}

impl Backoff {
    /// Binary logarithm of the longest wait, in entries.
    const MOST: u32 = 10;

    /// Notes that the host refused an event for `spec`.
    pub(super) fn failed(&mut self, spec: Spec) {
        let failures = if self.spec == Some(spec) { self.failures } else { 0 };
        let entries_left = 1 << failures.min(Self::MOST);
        *self = Self { spec: Some(spec), failures: failures + 1, entries_left };
    }

    /// Returns whether this entry is one for a retry.
    pub(super) const fn due(&mut self) -> bool {
        self.entries_left = self.entries_left.saturating_sub(1);
        self.entries_left == 0
    }
}
