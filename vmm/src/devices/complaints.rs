//! What a Linux guest complains about on its console.

/// Longest part of a line that is looked at.
const LINE_MAX: usize = 1024;
/// Longest reason of a panic that is kept.
const REASON_MAX: usize = 200;
const PANIC: &[u8] = b"Kernel panic - not syncing: ";
/// The bytes of an oops are printed with the one at RIP marked: RDPMC is `0f 33`.
const RDPMC_FAULT: &[u8] = b"<0f> 33";

/// Complaints of a Linux kernel, by its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// "NMI received for unknown reason".
    pub unknown_nmis: u64,
    /// "Dazed and confused".
    pub dazed: u64,
    /// "BUG: soft lockup", "watchdog: … hard LOCKUP".
    pub lockups: u64,
    /// "perf: interrupt took too long".
    pub long_interrupts: u64,
    /// "Broken BIOS", "Broken PMU", "no PMU driver", "irq loop stuck", "unchecked MSR access": the PMU and its registers.
    pub pmu: u64,
    /// An oops at an RDPMC: one that was not rewritten.
    pub rdpmc_faults: u64,
    /// The reason of "Kernel panic - not syncing".
    pub panic: Option<String>,
}

impl Complaints {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One line for each kind that there is.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let counts = [
            (self.unknown_nmis, "\"NMI received for unknown reason\""),
            (self.dazed, "\"Dazed and confused\""),
            (self.lockups, "soft or hard lockups"),
            (self.long_interrupts, "\"perf: interrupt took too long\""),
            (self.pmu, "complaints about the PMU or its registers"),
        ];
        let mut lines: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("the guest's console has {what}: {count}"))
            .collect();
        if self.rdpmc_faults > 0 {
            lines.push(
                "the guest's kernel met #GP at an RDPMC that was not rewritten (in a module, or in code that it made or copied)"
                    .to_owned(),
            );
        }
        lines
    }

    fn line(&mut self, line: &[u8]) {
        let has = |words: &str| find(line, words.as_bytes()).is_some();
        self.unknown_nmis += u64::from(has("NMI received for unknown reason"));
        self.dazed += u64::from(has("Dazed and confused"));
        self.lockups += u64::from(has("soft lockup") || has("hard LOCKUP"));
        self.long_interrupts += u64::from(has("perf: interrupt took too long"));
        let pmu = [
            "Broken BIOS",
            "has corrupted hw-PMU",
            "Broken PMU",
            "no PMU driver",
            "irq loop stuck",
            "unchecked MSR access",
        ];
        self.pmu += u64::from(pmu.into_iter().any(has));
        self.rdpmc_faults += u64::from(has("Code: ") && find(line, RDPMC_FAULT).is_some());
        if let (None, Some(at)) = (&self.panic, find(line, PANIC)) {
            let reason = String::from_utf8_lossy(&line[at + PANIC.len()..]);
            self.panic = Some(reason.trim().chars().filter(|c| !c.is_control()).take(REASON_MAX).collect());
        }
    }
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

/// Reads a console's text.
#[derive(Debug)]
pub struct Watch {
    line: Vec<u8>,
    complaints: Complaints,
}

impl Default for Watch {
    fn default() -> Self {
        Self { line: Vec::with_capacity(LINE_MAX), complaints: Complaints::default() }
    }
}

impl Watch {
    /// The next piece of text.
    pub fn read(&mut self, text: &[u8]) {
        for &byte in text {
            if byte == b'\n' {
                self.complaints.line(&self.line);
                self.line.clear();
            } else if self.line.len() < LINE_MAX {
                self.line.push(byte);
            }
        }
    }

    /// What was complained about.
    #[must_use]
    pub fn finish(mut self) -> Complaints {
        self.complaints.line(&self.line);
        self.complaints
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str, piece: usize) -> Complaints {
        let mut watch = Watch::default();
        text.as_bytes().chunks(piece).for_each(|piece| watch.read(piece));
        watch.finish()
    }

    const TEXT: &str = "\
[    1.0] Uhhuh. NMI received for unknown reason 2c on CPU 0.\r
[    1.1] Dazed and confused, but trying to continue\r
[    2.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!\r
[    3.0] Code: 48 c1 e2 20 89 f9 <0f> 33 48 09 d0\r
[    4.0] unchecked MSR access error: RDMSR from 0x1c9\r
[    5.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\r
[    5.1] ---[ end Kernel panic - not syncing: Attempted to kill init! ]---";

    #[test]
    fn a_kernels_words_are_counted_whatever_the_pieces() {
        for piece in [1, 7, 1000] {
            let found = of(TEXT, piece);
            let counts = (found.unknown_nmis, found.dazed, found.lockups, found.rdpmc_faults, found.pmu);
            assert_eq!(counts, (1, 1, 1, 1, 1));
            assert_eq!(found.panic.as_deref(), Some("Attempted to kill init! exitcode=0x0000000b"));
            assert_eq!((found.lines().len(), found.is_empty()), (5, false));
        }
        assert!(of("[    1.0] Linux version 6.1\r\n# ", 3).is_empty());
    }

    proptest! {
        #[test]
        fn memory_is_bounded(text in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut watch = Watch::default();
            watch.read(&text);
            prop_assert_eq!(watch.line.capacity(), LINE_MAX);
            prop_assert!(watch.finish().dazed <= 4096);
        }
    }
}
