//! Remarks about the host that its figures need.

use results::host::HostFacts;

use crate::account::EventRow;
use crate::choice::stand_in;

/// A load average of this share of the CPUs is somebody else's.
const BUSY: f64 = 0.5;

/// Notes on a run on so many CPUs. The load is that from before the run.
#[must_use]
pub fn notes(host: &HostFacts, cpus: usize, threads: usize, events: &[EventRow]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(load) = host.loadavg_1m.filter(|load| *load >= BUSY * cpus as f64) {
        let clock = events.iter().find(|row| row.event == "task-clock");
        let used = |rate: Option<crate::account::Rate>| rate.map_or(0.0, |rate| rate.per_second / 1e9);
        let (own, apart) = clock.map_or((0.0, 0.0), |row| (used(row.workload), used(row.apart)));
        notes.push(format!(
            "the load was {load:.2} on {cpus} CPUs before it began: the threads had {own:.2} CPUs, the variant's {apart:.2}; threads that \
             do not run at the same time contend less, and the ratio may be lower than on an idle host"
        ));
    }
    if let Some(missed) = stand_in(events) {
        notes.push(format!(
            "branch-misses are {:.0} % of branches, as of no program: something else is counted in the place of hardware events (behind a guest of \
             vpmu a clock), and they say no more than time does",
            100.0 * missed
        ));
    }
    if threads > cpus {
        notes.push(format!("{threads} threads share {cpus} CPUs: a part of the switches is the scheduler's"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_and_too_many_threads_are_noted() {
        let host = |load| HostFacts { loadavg_1m: load, ..HostFacts::default() };
        assert!(notes(&host(Some(0.9)), 2, 2, &[]).is_empty() && notes(&host(None), 2, 2, &[]).is_empty());
        assert!(notes(&host(Some(3.0)), 2, 2, &[])[0].contains("load was 3.00 on 2 CPUs"));
        assert!(notes(&host(None), 2, 8, &[])[0].starts_with("8 threads share 2 CPUs"));
    }
}
