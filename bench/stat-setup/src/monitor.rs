//! Side effects of a set-up: system calls, IPIs and migrations, counted by trace events where the user may open them.
//!
//! Counting costs time, so a monitored round is never a timed round.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::PERF_TYPE_TRACEPOINT;
use serde::{Deserialize, Serialize};

use crate::list::names::Code;
use crate::list::resolve::attr;
use crate::list::sysfs::Sysfs;
use crate::run::worker_name;
use crate::sys::{self, Target};

/// Counts; `None` if the trace event could not be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// System calls of the process, with those for synchronisation (raw_syscalls:sys_enter).
    pub syscalls: Option<u64>,
    /// Function calls queued for another CPU (csd:csd_queue_cpu).
    pub remote_calls: Option<u64>,
    /// IPIs sent (ipi:ipi_send_cpu, ipi:ipi_send_cpumask). A CPU that polls while idle needs none.
    pub ipis: Option<u64>,
    /// Migrations of threads of the process (sched:sched_migrate_task).
    pub migrations: Option<u64>,
}

impl Traffic {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(f(a?, b?));
        Self {
            syscalls: both(self.syscalls, other.syscalls),
            remote_calls: both(self.remote_calls, other.remote_calls),
            ipis: both(self.ipis, other.ipis),
            migrations: both(self.migrations, other.migrations),
        }
    }

    /// Returns the difference to an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

/// Open trace events.
#[derive(Debug)]
pub struct Monitor {
    syscalls: Vec<OwnedFd>,
    remote_calls: Vec<OwnedFd>,
    ipis: Vec<OwnedFd>,
    migrations: Vec<OwnedFd>,
    /// Trace events that could not be opened, with the reason.
    pub missing: Vec<String>,
    /// Counts caused by one reading of the monitor.
    own: Traffic,
}

impl Monitor {
    /// Opens the trace events for the calling thread and the threads it starts later.
    #[must_use]
    pub fn open(sysfs: &mut Sysfs) -> Self {
        let mut missing = Vec::new();
        let task = |events: &[(&str, &str)], missing: &mut Vec<String>, sysfs: &mut Sysfs| {
            let opened: Result<Vec<OwnedFd>, String> =
                events.iter().map(|&(group, name)| of_task(group, name, sysfs)).collect();
            opened.unwrap_or_else(|why| {
                missing.push(why);
                Vec::new()
            })
        };
        let syscalls = task(&[("raw_syscalls", "sys_enter")], &mut missing, sysfs);
        let remote_calls = task(&[("csd", "csd_queue_cpu")], &mut missing, sysfs);
        let ipis = task(&[("ipi", "ipi_send_cpu"), ("ipi", "ipi_send_cpumask")], &mut missing, sysfs);
        let migrations = of_cpus(sysfs).unwrap_or_else(|why| {
            missing.push(why);
            Vec::new()
        });
        let mut monitor = Self { syscalls, remote_calls, ipis, migrations, missing, own: Traffic::default() };
        // The first look takes the page faults; the difference of the next two is the cost of a look.
        monitor.look();
        let before = monitor.look();
        monitor.own = monitor.look().since(before);
        monitor
    }

    fn look(&self) -> Traffic {
        let sum = |fds: &[OwnedFd]| {
            let mut word = [0_u64; 1];
            let read = |fd: &OwnedFd| -> Option<u64> { (sys::read(fd, &mut word).ok()? == 1).then_some(word[0]) };
            let counts: Option<Vec<u64>> = fds.iter().map(read).collect();
            counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
        };
        Traffic {
            migrations: sum(&self.migrations),
            ipis: sum(&self.ipis),
            remote_calls: sum(&self.remote_calls),
            syscalls: sum(&self.syscalls),
        }
    }

    /// Returns the counts so far, and the counts that the next reading itself will add.
    #[must_use]
    pub fn read(&self) -> (Traffic, Traffic) {
        (self.look(), self.own)
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
    fn unknown_stays_unknown() {
        let some = Traffic { syscalls: Some(5), ipis: Some(1), ..Traffic::default() };
        let more = Traffic { syscalls: Some(7), ..Traffic::default() };
        assert_eq!(more.since(some), Traffic { syscalls: Some(2), ..Traffic::default() });
        assert_eq!(more.plus(some).syscalls, Some(12));
        assert_eq!(more.plus(some).ipis, None);
    }

    #[test]
    fn without_tracefs_every_event_is_reported_missing() {
        let monitor = Monitor::open(&mut Sysfs::at("/nonexistent"));
        assert_eq!(monitor.missing.len(), 4);
        assert_eq!(monitor.read().0, Traffic::default());
    }
}
