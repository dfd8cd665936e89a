//! Ever rarer retries of a host that keeps failing.

/// Retries after 1, 2, 4 … entries, so that a guest is not stalled by a failing host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    entries_left: u32,
}

impl Backoff {
    /// Binary logarithm of the longest wait, in entries.
    const MOST: u32 = 10;

    /// A host operation failed.
    pub(super) fn failed(&mut self) {
        self.entries_left = 1 << self.failures.min(Self::MOST);
        self.failures += 1;
    }

    /// Whether this entry is one for a retry.
    pub(super) const fn due(&mut self) -> bool {
        self.entries_left = self.entries_left.saturating_sub(1);
        self.entries_left == 0
    }
}
