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
