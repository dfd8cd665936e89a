//! Side effects of a set-up: system calls and migrations, counted by trace events where the user may open them, and the
//! interrupts that CPUs received.
//!
//! Counting costs time, so a monitored round is never a timed round.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use perf_event_open_sys::bindings::PERF_TYPE_TRACEPOINT;

use crate::list::names::Code;
use crate::list::resolve::attr;
use crate::list::sysfs::Sysfs;
use crate::run::worker_name;
use crate::sys::{self, Target};

/// Names of the counts of a [`Traffic`].
pub const COUNTS: [&str; 6] = ["syscalls", "remote", "RES", "CAL", "TLB", "moves"];

/// Counts in the order of [`COUNTS`]; `None` if the trace event could not be opened, or the kernel shows no such interrupts: system
/// calls of the process, with those for synchronisation (raw_syscalls:sys_enter); functions queued for another CPU
/// (csd:csd_queue_cpu), of which one interrupt may carry several; reschedule and function-call interrupts and TLB shootdowns, which
/// are among the latter, that all CPUs received, a broadcast to 93 CPUs as 93, with those of other programs (/proc/interrupts); and
/// migrations of threads of the process (sched:sched_migrate_task).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic(pub [Option<u64>; 6]);

impl Traffic {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> Option<u64>) -> Self {
        Self(std::array::from_fn(|at| f(self.0[at]?, other.0[at]?)))
    }

    /// Returns the difference to an earlier reading; `None` of a count that went back, as the kernel's 32-bit ones may.
    fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::checked_sub)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::checked_add)
    }

    /// Returns the interrupts that CPUs received from others: reschedules and function calls.
    pub fn interrupts(self) -> Option<u64> {
        Some(self.0[2]? + self.0[3]?)
    }
}

/// Maximum size of /proc/interrupts: some hundred rows of eleven bytes a CPU.
const MAX_INTERRUPTS: usize = 64 << 20;

/// Returns the sum over the CPUs of a row of /proc/interrupts: `RES:  12  7  Rescheduling interrupts`.
fn received(interrupts: &str, row: &str) -> Option<u64> {
    let line = interrupts.lines().find_map(|line| line.trim_start().strip_prefix(row)?.strip_prefix(':'))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

/// Open trace events, and the kernel's table of interrupts.
#[derive(Debug)]
pub struct Monitor {
    syscalls: Vec<OwnedFd>,
    remote_calls: Vec<OwnedFd>,
    migrations: Vec<OwnedFd>,
    interrupts: Option<File>,
    /// Names what could not be opened, with the reason.
    pub missing: Vec<String>,
    /// System calls of the monitor itself from the beginning of a phase to its end.
    own: u64,
}

impl Monitor {
    /// Opens the trace events for the calling thread and the threads it starts later.
    pub fn open(sysfs: &mut Sysfs) -> Self {
        let mut missing = Vec::new();
        let task = |(group, name): (&str, &str), missing: &mut Vec<String>, sysfs: &mut Sysfs| {
            let opened = of_task(group, name, sysfs);
            opened.map_or_else(|why| (missing.push(why), Vec::new()).1, |fd| vec![fd])
        };
        let syscalls = task(("raw_syscalls", "sys_enter"), &mut missing, sysfs);
        let remote_calls = task(("csd", "csd_queue_cpu"), &mut missing, sysfs);
        let migrations = of_cpus(sysfs).unwrap_or_else(|why| {
            missing.push(why);
            Vec::new()
        });
        let interrupts = File::open(sysfs.path("proc/interrupts"));
        let interrupts = interrupts.map_err(|error| missing.push(format!("/proc/interrupts: {error}"))).ok();
        let mut monitor = Self { syscalls, remote_calls, migrations, interrupts, missing, own: 0 };
        // The first look takes the page faults; the next has the monitor's own calls alone.
        for _ in 0..2 {
            monitor.own = 0;
            monitor.own = monitor.end(monitor.begin()).0[0].unwrap_or_default();
        }
        monitor
    }

    fn sum(fds: &[OwnedFd]) -> Option<u64> {
        let mut word = [0_u64; 1];
        let read = |fd: &OwnedFd| -> Option<u64> { (sys::read(fd, &mut word).ok()? == 1).then_some(word[0]) };
        let counts: Option<Vec<u64>> = fds.iter().map(read).collect();
        counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
    }

    /// Reads the table of interrupts, by calls whose number does not change: its columns have a fixed width.
    fn table(&self) -> Option<String> {
        let file = self.interrupts.as_ref()?;
        let mut table = Vec::new();
        let mut part = [0; 8 << 10];
        loop {
            let got = file.read_at(&mut part, table.len() as u64).ok()?;
            table.extend_from_slice(&part[..got]);
            if got == 0 {
                return String::from_utf8(table).ok();
            }
            if table.len() > MAX_INTERRUPTS {
                return None;
            }
        }
    }

    /// Returns the counts, and those of the table of interrupts.
    fn with_interrupts([syscalls, remote, moves]: [Option<u64>; 3], table: Option<&str>) -> Traffic {
        let [res, cal, tlb] = ["RES", "CAL", "TLB"].map(|row| received(table?, row));
        Traffic([syscalls, remote, res, cal, tlb, moves])
    }

    /// Begins a phase. A look at the migrations interrupts every CPU, and one at the calls those that threads run on: the
    /// interrupts are looked at last here, and first at the end.
    pub fn begin(&self) -> Traffic {
        let moves = Self::sum(&self.migrations);
        let syscalls = Self::sum(&self.syscalls);
        let remote = Self::sum(&self.remote_calls);
        Self::with_interrupts([syscalls, remote, moves], self.table().as_deref())
    }

    /// Ends a phase: returns its counts, without those of the monitor.
    pub fn end(&self, began: Traffic) -> Traffic {
        let table = self.table();
        let remote = Self::sum(&self.remote_calls);
        let syscalls = Self::sum(&self.syscalls);
        let moves = Self::sum(&self.migrations);
        let mut found = Self::with_interrupts([syscalls, remote, moves], table.as_deref()).since(began);
        found.0[0] = found.0[0].map(|all| all.saturating_sub(self.own));
        found
    }
}

fn id(group: &str, name: &str, sysfs: &mut Sysfs) -> Result<u64, String> {
    sysfs.tracepoint(group, name).map_err(|why| format!("{group}:{name}: {why}"))
}

/// Opens a trace event of this thread and its future children.
fn of_task(group: &str, name: &str, sysfs: &mut Sysfs) -> Result<OwnedFd, String> {
    let mut attr = attr(Code { kind: PERF_TYPE_TRACEPOINT, config: id(group, name, sysfs)? });
    attr.set_inherit(1);
    sys::open(&attr, Target::ThisThread, None).map_err(|error| format!("{group}:{name}: {error}"))
}

/// Migrations of this thread and the workers. Opened on every CPU: the event fires in the context of the migrating thread.
fn of_cpus(sysfs: &mut Sysfs) -> Result<Vec<OwnedFd>, String> {
    let attr = attr(Code { kind: PERF_TYPE_TRACEPOINT, config: id("sched", "sched_migrate_task", sysfs)? });
    let text = format!("pid=={}||comm==\"{}\"", std::process::id(), worker_name());
    let filter = CString::new(text).map_err(|error| error.to_string())?;
    let open = |cpu: u32| -> std::io::Result<OwnedFd> {
        let fd = sys::open(&attr, Target::Cpu(cpu), None)?;
        sys::set_filter(&fd, &filter)?;
        Ok(fd)
    };
    let online = sysfs.online();
    let fds: std::io::Result<Vec<OwnedFd>> = online.into_iter().map(open).collect();
    fds.map_err(|error| format!("sched:sched_migrate_task: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_is_as_many_interrupts_as_cpus_that_received_it() {
        let before = "           CPU0       CPU1       CPU2\n RES:          1          2          3   Rescheduling interrupts\n \
                      CAL:         10         20         30   Function call interrupts\n TLB:          0          0          0   TLB shootdowns\n";
        let after =
            before.replace("        20         30", "        21         31").replace(" 3   Resch", " 9   Resch");
        let of = |table: &str| Monitor::with_interrupts([None; 3], Some(table));
        let found = of(&after).since(of(before));
        assert_eq!(found.0, [None, None, Some(6), Some(2), Some(0), None]);
        assert_eq!(found.interrupts(), Some(8));
        // A kernel without SMP has no such rows.
        assert_eq!(of(" NMI:          0   Non-maskable interrupts\n").interrupts(), None);
    }
}
