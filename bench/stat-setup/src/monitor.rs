//! Side effects of a set-up: migrations, counted by a trace event where the user may open it, and the interrupts that CPUs received.
//!
//! Counting costs time, so a monitored round is never a timed round.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::PERF_TYPE_TRACEPOINT;

use crate::list::names::Code;
use crate::list::resolve::attr;
use crate::list::sysfs::Sysfs;
use crate::run::worker_name;
use crate::sys;

/// Names of the counts of a [`Traffic`].
pub const COUNTS: [&str; 4] = ["RES", "CAL", "TLB", "moves"];

/// Counts in the order of [`COUNTS`]; `None` if the trace event could not be opened, or the kernel shows no such interrupts:
/// reschedule and function-call interrupts and TLB shootdowns, which are among the latter, that all CPUs received, a broadcast to 93
/// CPUs as 93, with those of other programs (/proc/interrupts); and migrations of threads of the process (sched:sched_migrate_task).
pub type Traffic = [Option<u64>; 4];

/// Returns the difference to an earlier reading; `None` of a count that went back, as the kernel's 32-bit ones may.
fn since(now: Traffic, earlier: Traffic) -> Traffic {
    std::array::from_fn(|at| now[at]?.checked_sub(earlier[at]?))
}

/// Returns the sum over the CPUs of a row of /proc/interrupts: `RES:  12  7  Rescheduling interrupts`.
fn received(interrupts: &str, row: &str) -> Option<u64> {
    let line = interrupts.lines().find_map(|line| line.trim_start().strip_prefix(row)?.strip_prefix(':'))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

/// The trace event on every CPU, and the kernel's table of interrupts.
#[derive(Debug)]
pub struct Monitor {
    migrations: Vec<OwnedFd>,
    interrupts: Option<File>,
    /// Names what could not be opened, with the reason.
    pub missing: Vec<String>,
}

impl Monitor {
    /// Opens both.
    pub fn open(sysfs: &mut Sysfs) -> Self {
        let mut missing = Vec::new();
        let migrations = of_cpus(sysfs).map_err(|why| missing.push(why)).unwrap_or_default();
        let interrupts = File::open(sysfs.path("proc/interrupts"));
        let interrupts = interrupts.map_err(|error| missing.push(format!("/proc/interrupts: {error}"))).ok();
        Self { migrations, interrupts, missing }
    }

    fn moves(&self) -> Option<u64> {
        let mut word = [0_u64; 1];
        let read = |fd: &OwnedFd| -> Option<u64> { (sys::read(fd, &mut word).ok()? == 1).then_some(word[0]) };
        let counts: Option<Vec<u64>> = self.migrations.iter().map(read).collect();
        counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
    }

    /// Reads the table of interrupts.
    fn table(&self) -> Option<String> {
        let (mut file, mut table) = (self.interrupts.as_ref()?, String::new());
        file.rewind().and_then(|()| file.read_to_string(&mut table)).ok()?;
        Some(table)
    }

    fn with_interrupts(moves: Option<u64>, table: Option<&str>) -> Traffic {
        let [res, cal, tlb] = ["RES", "CAL", "TLB"].map(|row| received(table?, row));
        [res, cal, tlb, moves]
    }

    /// Begins a phase. A look at the migrations interrupts every CPU: the interrupts are looked at last here, and first at the end.
    pub fn begin(&self) -> Traffic {
        let moves = self.moves();
        Self::with_interrupts(moves, self.table().as_deref())
    }

    /// Ends a phase: returns its counts.
    pub fn end(&self, began: Traffic) -> Traffic {
        let table = self.table();
        since(Self::with_interrupts(self.moves(), table.as_deref()), began)
    }
}

/// Migrations of this thread and the workers. Opened on every CPU: the event fires in the context of the migrating thread.
fn of_cpus(sysfs: &mut Sysfs) -> Result<Vec<OwnedFd>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("sched:sched_migrate_task: {why}");
    let config = sysfs.tracepoint("sched", "sched_migrate_task").map_err(|why| failed(&why))?;
    let attr = attr(Code { kind: PERF_TYPE_TRACEPOINT, config });
    let text = format!("pid=={}||comm==\"{}\"", std::process::id(), worker_name());
    let filter = CString::new(text).map_err(|error| error.to_string())?;
    let open = |cpu: u32| -> std::io::Result<OwnedFd> {
        let fd = sys::open(&attr, cpu, None)?;
        sys::set_filter(&fd, &filter)?;
        Ok(fd)
    };
    let online = sysfs.online();
    let fds: std::io::Result<Vec<OwnedFd>> = online.into_iter().map(open).collect();
    fds.map_err(|error| failed(&error))
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
        let of = |table: &str| Monitor::with_interrupts(None, Some(table));
        assert_eq!(since(of(&after), of(before)), [Some(6), Some(2), Some(0), None]);
        // A kernel without SMP has no such rows.
        assert_eq!(of(" NMI:          0   Non-maskable interrupts\n"), [None; 4]);
    }
}
