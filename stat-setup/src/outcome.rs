//! What became of each event: a whole count, or why there is none, as perf puts it.

use serde::{Deserialize, Serialize};

use crate::phase::Use;
use crate::run::{Job, Report};
use crate::unit::{Count, is_unsupported};

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Outcome {
    /// It counted on every CPU it was asked for.
    Counted {
        /// Sum over CPUs, unscaled.
        value: u64,
        /// Sum over CPUs of the time it was enabled, ns.
        enabled_ns: u64,
        /// Sum over CPUs of the time it was on a counter, ns; less than `enabled_ns`: it was multiplexed.
        running_ns: u64,
    },
    /// It was opened on every CPU, and not read.
    Opened,
    /// perf's `<not supported>`: this host cannot count it, or knows no such event.
    NotSupported {
        /// Why.
        why: String,
    },
    /// perf's `<not counted>`: it was not opened, enabled or read on every CPU, so there is no whole count.
    NotCounted {
        /// Why, and where.
        why: String,
    },
}

impl Outcome {
    /// Whether there is a figure, or would be if it had been read.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self, Self::Counted { .. } | Self::Opened)
    }
}

/// What an errno means for a user, as far as more can be said than its name.
fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match errno {
        libc::EACCES | libc::EPERM => {
            format!("{text}: counting on a CPU needs root, CAP_PERFMON, or kernel.perf_event_paranoid=0")
        }
        libc::ENOENT => format!("{text}: no PMU of this host counts it"),
        libc::EMFILE => format!("{text}: the hard limit of open files (ulimit -Hn) is used up"),
        libc::ENODEV => format!("{text}: the CPU or the PMU went away"),
        _ => text,
    }
}

/// Puts the units' reports together; also the number of open descriptors.
pub(crate) fn outcomes(job: &Job<'_>, reports: &[Report]) -> (Vec<Outcome>, usize) {
    let opened = reports.iter().map(|report| report.open.iter().filter(|&&open| open).count()).sum();
    let of_event = |event: usize| of_event(job, reports, event);
    ((0..job.list.events.len()).map(of_event).collect(), opened)
}

fn of_event(job: &Job<'_>, reports: &[Report], event: usize) -> Outcome {
    let described = &job.list.events[event];
    if let Err(why) = &described.open {
        return Outcome::NotSupported { why: why.clone() };
    }
    let failures = || reports.iter().flat_map(|report| &report.failures).filter(|failure| failure.event == event);
    let wanted: Vec<u32> = job.cpus.iter().copied().filter(|&cpu| described.counts_on(cpu)).collect();
    let mut sum = Count::default();
    let mut whole = 0;
    for report in reports.iter().filter(|report| wanted.contains(&report.cpu) && report.open[event]) {
        let count = match (job.purpose, report.counts[event]) {
            (Use::Mmap, _) => Count::default(),
            (Use::Stat, Some(count)) => count,
            (Use::Stat, None) => continue,
        };
        if failures().any(|failure| failure.cpu == report.cpu) {
            continue;
        }
        sum.value = sum.value.wrapping_add(count.value);
        sum.enabled += count.enabled;
        sum.running += count.running;
        whole += 1;
    }
    if whole == wanted.len() && whole > 0 {
        return match job.purpose {
            // A group that never fitted was enabled and never ran.
            Use::Stat if sum.running == 0 => {
                Outcome::NotCounted { why: "it never got a counter (running time 0)".to_owned() }
            }
            Use::Stat => Outcome::Counted { value: sum.value, enabled_ns: sum.enabled, running_ns: sum.running },
            Use::Mmap => Outcome::Opened,
        };
    }
    if wanted.is_empty() {
        return Outcome::NotCounted { why: "its PMU counts on none of these CPUs".to_owned() };
    }
    let Some(first) = failures().next() else {
        return Outcome::NotCounted { why: format!("counted on {whole} of {} CPUs only", wanted.len()) };
    };
    let why = errno_text(first.errno);
    if is_unsupported(first.errno) && whole == 0 {
        return Outcome::NotSupported { why };
    }
    let place = if wanted.len() == 1 || whole == 0 { String::new() } else { format!(" (CPU {} at first)", first.cpu) };
    match (whole, first.errno) {
        (0, libc::EACCES | libc::EPERM) => Outcome::NotSupported { why },
        (0, _) => Outcome::NotCounted { why },
        _ => Outcome::NotCounted { why: format!("whole on {whole} of {} CPUs only: {why}{place}", wanted.len()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{EventList, parse::parse, resolve::resolve, sysfs::Sysfs};
    use crate::method::Method;
    use crate::unit::Failure;

    fn list() -> EventList {
        resolve(&parse("cs,nothing").unwrap(), &mut Sysfs::at("/nonexistent"))
    }

    fn report(cpu: u32, count: Option<Count>, errno: Option<i32>) -> Report {
        let failures = errno.map(|errno| Failure { event: 0, cpu, errno }).into_iter().collect();
        let open = count.is_some() || matches!(errno, Some(libc::ENODEV));
        Report { cpu, open: vec![open, false], counts: vec![count, None], failures }
    }

    fn fate(reports: &[Report]) -> Outcome {
        let list = list();
        let job = Job { list: &list, cpus: &[0, 1], method: Method::CPU_MAJOR, purpose: Use::Stat, ring_pages: 1 };
        let (mut found, _) = outcomes(&job, reports);
        assert!(matches!(&found[1], Outcome::NotSupported { why } if why.contains("no event")));
        found.remove(0)
    }

    const COUNT: Option<Count> = Some(Count { value: 5, enabled: 100, running: 50 });

    #[test]
    fn a_sum_is_whole_or_there_is_none() {
        let whole = fate(&[report(0, COUNT, None), report(1, COUNT, None)]);
        assert_eq!(whole, Outcome::Counted { value: 10, enabled_ns: 200, running_ns: 100 });
        for (errno, needle) in [
            (libc::EMFILE, "hard limit"),
            // Opened, and gone when it was read: a PMU or a CPU that went away.
            (libc::ENODEV, "went away"),
            (libc::EINVAL, "whole on 1 of 2"),
        ] {
            let partial = fate(&[report(0, COUNT, None), report(1, None, Some(errno))]);
            assert!(matches!(&partial, Outcome::NotCounted { why } if why.contains(needle)), "{partial:?}");
        }
        let silent = fate(&[report(0, COUNT, None)]);
        assert!(matches!(&silent, Outcome::NotCounted { why } if why.contains("1 of 2")), "{silent:?}");
        let never = Some(Count { value: 0, enabled: 100, running: 0 });
        let starved = fate(&[report(0, never, None), report(1, never, None)]);
        assert!(matches!(&starved, Outcome::NotCounted { why } if why.contains("never got")), "{starved:?}");
    }

    #[test]
    fn what_fails_everywhere_is_not_supported_as_perf_has_it() {
        for (errno, needle) in
            [(libc::ENOENT, "No such"), (libc::EACCES, "perf_event_paranoid"), (libc::EOPNOTSUPP, "")]
        {
            let none = fate(&[report(0, None, Some(errno)), report(1, None, None)]);
            assert!(matches!(&none, Outcome::NotSupported { why } if why.contains(needle)), "{none:?}");
        }
        let full = fate(&[report(0, None, Some(libc::EMFILE)), report(1, None, Some(libc::EMFILE))]);
        assert!(matches!(full, Outcome::NotCounted { .. }));
    }
}
