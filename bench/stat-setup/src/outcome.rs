//! Outcome of each event: a count, or the reason for its absence in perf's terms.

use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::phase::Use;
use crate::unit::{Count, Report, is_unsupported};

/// Outcome of an event over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Outcome {
    /// Counted on every CPU of the job.
    Counted {
        /// Sum over CPUs, unscaled.
        value: u64,
        /// Time enabled, summed over CPUs, ns.
        enabled_ns: u64,
        /// Time on a counter, summed over CPUs, ns; less than `enabled_ns` if the event was multiplexed.
        running_ns: u64,
    },
    /// Opened on every CPU, not read.
    Opened,
    /// perf's `<not supported>`: the host cannot count the event or does not know it.
    NotSupported {
        /// Reason.
        why: String,
    },
    /// perf's `<not counted>`: open, enable or read failed on at least one CPU, so the sum is incomplete.
    NotCounted {
        /// Reason and place.
        why: String,
    },
}

impl Outcome {
    /// Returns whether the event is open, and counted where it was read, on every CPU.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self, Self::Counted { .. } | Self::Opened)
    }
}

/// Returns the text of an errno, with the remedy where one is known.
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

/// Combines the reports of all CPUs; also returns the number of open descriptors.
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
            // A group that never fits on the PMU is enabled but never runs.
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
        assert!(matches!(&found[1], Outcome::NotSupported { why } if why.contains("unknown event")));
        found.remove(0)
    }

    const COUNT: Option<Count> = Some(Count { value: 5, enabled: 100, running: 50 });

    #[test]
    fn an_incomplete_sum_is_not_shown_as_a_count() {
        let whole = fate(&[report(0, COUNT, None), report(1, COUNT, None)]);
        assert_eq!(whole, Outcome::Counted { value: 10, enabled_ns: 200, running_ns: 100 });
        for (errno, needle) in [
            (libc::EMFILE, "hard limit"),
            // Opened, and failing at the read: the PMU or the CPU went away.
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
    fn a_failure_on_every_cpu_is_not_supported() {
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
