//! Complaints of a Linux kernel: in its log, as `/dev/kmsg` gives it, or on its console.
//!
//! The log is the better witness. It has every level, and what a program writes into it has a facility of its own; the console has
//! warnings only, and whatever programs write to it. On the console a line counts if it has the kernel's time stamp
//! (`printk.time=1`) that is no older than the last one: a `dmesg` on the console repeats nothing.

use std::io::{self, Write};

/// Longest part of a line that is looked at.
const LINE_MAX: usize = 1024;
/// Longest reason of a panic that is kept.
const REASON_MAX: usize = 200;
const PANIC: &[u8] = b"Kernel panic - not syncing: ";
/// Messages of a kernel that ends as it was asked to: it did not panic.
const ENDS: [&str; 4] =
    ["reboot: Restarting system", "reboot: Power down", "reboot: System halted", "sysrq: Resetting"];
/// The bytes of an oops are printed with the one at RIP marked: RDPMC is `0f 33`.
const RDPMC_FAULT: &[u8] = b"<0f> 33";
/// CPUs take their stamps before a line has its place: so much older may a line be than the one before it.
const DISORDER_US: u64 = 1_000_000;
/// Levels of the facility "kernel" in a record's first number.
const KERNEL_LEVELS: u64 = 8;

/// Words by which a kernel complains, any of which counts, and their name in a report.
const KINDS: [(&[&str], &str); 5] = [
    (&["NMI received for unknown reason"], "\"NMI received for unknown reason\""),
    (&["Dazed and confused"], "\"Dazed and confused\""),
    (&["soft lockup", "hard LOCKUP"], "soft or hard lockups"),
    (&["perf: interrupt took too long"], "\"perf: interrupt took too long\""),
    (
        &[
            "Broken BIOS",
            "has corrupted hw-PMU",
            "Broken PMU",
            "no PMU driver",
            "irq loop stuck",
            "unchecked MSR access",
        ],
        "complaints about the PMU or its registers",
    ),
];
/// The kind that sound guests have, too.
const LONG_INTERRUPTS: usize = 3;

/// Complaints of a Linux kernel, by its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    counts: [u64; KINDS.len()],
    /// An oops at an RDPMC: one that was not rewritten.
    rdpmc_faults: u64,
    /// The reason of "Kernel panic - not syncing".
    pub panic: Option<String>,
}

impl Complaints {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Formats one line for each kind that there is.
    pub fn lines(&self) -> Vec<String> {
        let counted = self.counts.iter().zip(KINDS).filter(|(count, _)| **count > 0);
        let mut lines: Vec<_> =
            counted.map(|(count, (_, what))| format!("the guest's kernel said {what}: {count}")).collect();
        if self.rdpmc_faults > 0 {
            lines.push(format!(
                "the guest's kernel met #GP at an RDPMC that was not rewritten (in a module, or in code that it made): {}",
                self.rdpmc_faults
            ));
        }
        lines
    }

    /// Decides between the console's complaints and those of the log, which the guest gave when its kernel was alive.
    pub fn decided_by(self, log: Option<Log>) -> Self {
        let Some(log) = log else { return self };
        // A log that lost its begin may have lost complaints with it.
        let console = if log.first == Some(0) { Self::default() } else { self };
        let said = log.complaints;
        Self {
            counts: std::array::from_fn(|kind| said.counts[kind].max(console.counts[kind])),
            rdpmc_faults: said.rdpmc_faults.max(console.rdpmc_faults),
            panic: None,
        }
    }

    /// Counts those that no sound guest has.
    pub fn grave(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.counts[LONG_INTERRUPTS] + self.rdpmc_faults
    }

    /// Takes a line of the kernel, without its stamp.
    fn line(&mut self, line: &[u8]) {
        let has = |words: &str| find(line, words.as_bytes()).is_some();
        for (count, (words, _)) in self.counts.iter_mut().zip(KINDS) {
            *count += u64::from(words.iter().any(|words| has(words)));
        }
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

/// Text in pieces as lines, each cut to [`LINE_MAX`].
#[derive(Debug)]
struct Lines(Vec<u8>);

impl Default for Lines {
    fn default() -> Self {
        Self(Vec::with_capacity(LINE_MAX))
    }
}

impl Lines {
    fn read(&mut self, text: &[u8], mut line: impl FnMut(&[u8])) {
        for &byte in text {
            if byte == b'\n' {
                line(&self.0);
                self.0.clear();
            } else if self.0.len() < LINE_MAX {
                self.0.push(byte);
            }
        }
    }
}

/// Reads a console's text, of which the lines with a stamp are the kernel's.
#[derive(Debug, Default)]
pub struct Watch {
    lines: Lines,
    /// The latest stamp, in microseconds.
    latest: u64,
    complaints: Complaints,
}

impl Watch {
    /// Takes the next piece of text.
    pub fn read(&mut self, text: &[u8]) {
        let Self { lines, latest, complaints } = self;
        lines.read(text, |line| {
            let mut stamps = line.iter().enumerate().filter(|&(_, &byte)| byte == b'[');
            let Some((time, rest)) = stamps.find_map(|(at, _)| stamp(&line[at + 1..])) else { return };
            if ENDS.into_iter().any(|words| find(rest, words.as_bytes()).is_some()) {
                complaints.panic = None;
            }
            if time.saturating_add(DISORDER_US) >= *latest {
                *latest = time.max(*latest);
                complaints.line(rest);
            }
        });
    }

    /// Returns the complaints.
    pub fn finish(mut self) -> Complaints {
        self.read(b"\n");
        self.complaints
    }
}

/// Splits `   12.345678] text` into the time in microseconds, and the text.
fn stamp(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().take(24).position(|&byte| byte == b']')?;
    let (seconds, micros) = str::from_utf8(&text[..end]).ok()?.trim_start().split_once('.')?;
    let digits =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok()).flatten();
    let time = digits(seconds)?.checked_mul(1_000_000)?.checked_add(digits(micros).filter(|_| micros.len() == 6)?)?;
    Some((time, &text[end + 1..]))
}

/// Reads the records of `/dev/kmsg`.
#[derive(Debug, Default)]
pub struct Log {
    lines: Lines,
    /// The number of the first record; 0 is the kernel's first.
    first: Option<u64>,
    complaints: Complaints,
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let Self { lines, first, complaints } = self;
        lines.read(text, |line| {
            // Lines of a record's dictionary begin with a space.
            let Some((level, number, said)) = record(line) else { return };
            first.get_or_insert(number);
            if level < KERNEL_LEVELS {
                complaints.line(said);
            }
        });
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Splits `6,339,5140900,-;text` into facility and level, the number, the text.
fn record(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let end = line.iter().position(|&byte| byte == b';')?;
    let mut numbers = str::from_utf8(&line[..end]).ok()?.split(',').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, &line[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, piece: usize) -> Complaints {
        let mut watch = Watch::default();
        text.as_bytes().chunks(piece).for_each(|piece| watch.read(piece));
        watch.finish()
    }

    const TEXT: &str = "\
[    1.000000] Uhhuh. NMI received for unknown reason 2c on CPU 0.\r
[    1.100000] Dazed and confused, but trying to continue\r
[    2.000000] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!\r
# [    3.000000][    T1] Code: 48 c1 e2 20 89 f9 <0f> 33 48 09 d0\r
[    3.999999] unchecked MSR access error: RDMSR from 0x1c9\r
[    4.000000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\r
[    4.100000] ---[ end Kernel panic - not syncing: Attempted to kill init! ]---";

    #[test]
    fn a_kernels_words_are_counted_whatever_the_pieces() {
        for piece in [1, 7, 1000] {
            let found = of(TEXT, piece);
            assert_eq!((found.counts, found.rdpmc_faults, found.grave()), ([1, 1, 1, 0, 1], 1, 5));
            assert_eq!(found.panic.as_deref(), Some("Attempted to kill init! exitcode=0x0000000b"));
            assert_eq!((found.lines().len(), found.is_empty()), (5, false));
        }
        assert!(of("[    1.000000] Linux version 6.1\r\n# ", 3).is_empty());
    }

    #[test]
    fn words_that_a_program_writes_are_none_of_the_kernels_and_take_no_memory() {
        let mut watch = Watch::default();
        watch.read(&[b'x'; 4 * LINE_MAX]);
        assert_eq!(watch.lines.0.capacity(), LINE_MAX);
        for text in ["", "[x] ", "[1] ", "[  1.5] "] {
            let text = format!("{text}Kernel panic - not syncing: no\n{text}Dazed and confused\n");
            assert!(of(&text, 100).is_empty(), "{text}");
        }
        let again = format!("{}[   99.000000] x\n{TEXT}", TEXT.replace("[    4", "[    3"));
        assert_eq!(of(&again, 100).counts[1], 1, "dmesg on the console");
        let restarted = format!("{TEXT}\n[    1.000000] reboot: Restarting system\n");
        assert_eq!(of(&restarted, 100).panic, None);
    }

    fn log(text: &str) -> Log {
        let mut log = Log::default();
        text.as_bytes().chunks(5).for_each(|piece| log.write_all(piece).unwrap());
        log
    }

    #[test]
    fn the_log_decides_as_far_as_it_goes_back() {
        let records = "\
5,0,0,-;Linux version 6.1
0,1,100,-;Dazed and confused, but trying to continue
 SUBSYSTEM=Dazed and confused
6,2,100,-;perf: interrupt took too long (2501 > 2500), lowering
12,3,200,-;Dazed and confused, but by a program
0,4,300,-;Kernel panic - not syncing: not now
";
        let whole = of(TEXT, 100).decided_by(Some(log(records)));
        let expected = Complaints { counts: [0, 1, 0, 1, 0], ..Complaints::default() };
        assert_eq!(whole, expected, "a kernel that gives its log has not panicked");
        let cut = of(TEXT, 100).decided_by(Some(log(&records[records.find("0,1").unwrap()..])));
        assert_eq!((cut.counts, cut.panic), ([1, 1, 1, 1, 1], None));
        assert_eq!(of(TEXT, 100).decided_by(None), of(TEXT, 100));
    }
}
