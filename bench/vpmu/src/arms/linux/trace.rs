//! The guest's trace of its NMI handlers, as the text of `/sys/kernel/tracing/trace`.
//!
//! Linux writes an entry of `nmi:nmi_handler` behind each handler of each NMI, with the time it took by `sched_clock()`
//! and the number of counters that it handled.

use guest::abi::{LOG_NMI, LogEntry};

/// Contents of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// Runs of `perf_event_nmi_handler` with their CPUs, as they come in the text: in order of time, as a payload logs them, in ns since
    /// the guest's boot. A run rearms the counters that it handled.
    pub(super) handlers: Vec<(usize, LogEntry)>,
    /// Entries that did not fit the buffer.
    pub(super) lost: u64,
}

const ENTRY: &str = ": nmi_handler: perf_event_nmi_handler() delta_ns: ";
const HANDLED: &str = " handled: ";
const TOTALS: &str = "# entries-in-buffer/entries-written: ";

impl Trace {
    /// Reads the text. Entries of other handlers are left out.
    ///
    /// # Errors
    /// A line that looks like an entry and is none, or no totals: the text is not that of a trace.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut trace = Self::default();
        let mut totals = false;
        for line in text.lines() {
            let wrong = || format!("unexpected line in the guest's trace: {}", line.trim());
            if let Some(rest) = line.strip_prefix(TOTALS) {
                let (held, written) = two_numbers(rest).ok_or_else(wrong)?;
                trace.lost = trace.lost.saturating_add(written.saturating_sub(held));
                totals = true;
            } else if let Some((head, tail)) = line.split_once(ENTRY) {
                trace.handlers.push(handler(head, tail).ok_or_else(wrong)?);
            }
        }
        if totals { Ok(trace) } else { Err("the guest's trace has no totals".to_owned()) }
    }
}

/// Reads `held/written   #P:1`.
fn two_numbers(text: &str) -> Option<(u64, u64)> {
    let (held, rest) = text.split_once('/')?;
    Some((held.parse().ok()?, rest.split_whitespace().next()?.parse().ok()?))
}

/// Reads `  TASK-PID   [CPU] FLAGS  SECONDS.MICROSECONDS` and `TOOK handled: HANDLED`.
fn handler(head: &str, tail: &str) -> Option<(usize, LogEntry)> {
    let (took, handled) = tail.split_once(HANDLED)?;
    let (seconds, fraction) = head.split_whitespace().next_back()?.split_once('.')?;
    // A task's name may have brackets.
    let (_, cpu) = head[..head.rfind(']')?].rsplit_once('[')?;
    let end_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)?;
    let (end, took): (u64, u64) = (end_us.checked_mul(1000)?, took.parse().ok()?);
    let rearmed = handled.trim().parse().ok()?;
    let (tsc_entry, tsc_exit) = (end.saturating_sub(took), end.max(took));
    let entry = LogEntry { kind: LOG_NMI, tsc_entry, tsc_exit, status: u64::from(rearmed > 0), rip: 0, rearmed };
    Some((cpu.parse().ok()?, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1 prints it.
    const TEXT: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 6/9   #P:2
#
#                                _-----=> irqs-off/BH-disabled
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
           ftest-78      [000] d.Z1.    12.345678: nmi_handler: perf_event_nmi_handler() delta_ns: 4321 handled: 2
           ftest-78      [000] d.Z1.    12.345679: nmi_handler: nmi_cpu_backtrace_handler() delta_ns: 21 handled: 0
 odd [1] na-me-79      [001] dNZ..    12.400000: nmi_handler: perf_event_nmi_handler() delta_ns: 99 handled: 0
CPU:1 [LOST 3 EVENTS]
          <idle>-0       [001] d.Z..    13.000001: nmi_handler: perf_event_nmi_handler() delta_ns: 7000 handled: 1
";

    #[test]
    fn perfs_handlers_are_read_and_lost_entries_counted() {
        let trace = Trace::parse(TEXT).unwrap();
        let of = |(cpu, entry): &(usize, LogEntry)| (*cpu, entry.tsc_entry, entry.tsc_exit, entry.rearmed);
        let found: Vec<_> = trace.handlers.iter().map(of).collect();
        let end = [12_345_678_000, 12_400_000_000, 13_000_001_000];
        let expected = [(0, end[0] - 4321, end[0], 2), (1, end[1] - 99, end[1], 0), (1, end[2] - 7000, end[2], 1)];
        assert_eq!(found, expected);
        assert_eq!(trace.lost, 3);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(Trace::parse("").unwrap_err().contains("no totals"));
        for (whole, broken) in
            [("delta_ns: 4321", "delta_ns: x"), ("6/9", "6"), ("12.345678:", "12:"), ("[000]", "000")]
        {
            let error = Trace::parse(&TEXT.replacen(whole, broken, 1)).unwrap_err();
            assert!(error.contains("unexpected line"), "{error}");
        }
    }
}
