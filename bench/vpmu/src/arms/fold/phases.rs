//! Set-ups in a guest's log, added up phase by phase.
//!
//! The guest logs every call. Calls that end before they begin are counted and left out, and a set-up counts only if all its
//! phases are present.

use std::collections::BTreeMap;

use guest::abi::{CALLS, LOG_PHASE, LogEntry, PHASE_NONE, PHASE_ROTATE, PHASES, Report};
use hdrhistogram::Histogram;
use host_pmu::stats::{OpKind, PhaseTally};
use results::document::{EventCount, Metrics, PhaseResult, SET_UP, Summary, latency_histogram};
use vmm::outcome::VcpuOutcome;

/// The keys, by `PHASE_*`.
const KEYS: [&str; PHASES] = ["none", "program", "enable", "read", "disable", "rotate"];

/// Collects one arm's set-ups.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseFold {
    /// Times of calls, and of all calls of a set-up, by phase: 3 MB, of arms with set-ups only.
    times: Option<Box<[[Histogram<u64>; PHASES]; 2]>>,
    tallies: [PhaseTally; PHASES],
    counts: Vec<EventCount>,
    cycles: u64,
}

/// Returns the phase a line of the log is about.
fn phase_of(entry: &LogEntry) -> Option<usize> {
    let phase = usize::try_from(entry.kind.checked_sub(LOG_PHASE)?).ok()?;
    (PHASE_NONE as usize + 1..PHASES).contains(&phase).then_some(phase)
}

/// Adds another part's exits and operations.
fn add(sum: &mut PhaseTally, part: &PhaseTally) {
    sum.msr_reads += part.msr_reads;
    sum.msr_writes += part.msr_writes;
    sum.ops_ns += part.ops_ns;
    for (sum, n) in sum.ops.iter_mut().zip(&part.ops) {
        *sum += n;
    }
}

impl PhaseFold {
    /// Returns whether a line of the log is about a set-up.
    pub(super) fn takes(entry: &LogEntry) -> bool {
        phase_of(entry).is_some()
    }

    /// Adds one vCPU's part, whole set-ups to `set_ups`. Returns the number of lines that make no sense.
    pub(super) fn add(&mut self, vcpu: &VcpuOutcome, report: &Report, set_ups: &mut Histogram<u64>) -> u64 {
        if report.cycles == 0 && !vcpu.left.log.iter().any(Self::takes) {
            return 0;
        }
        let khz = vcpu.left.tsc.khz;
        let ns = |ticks| ticks_to_ns(ticks, khz).max(1);
        let new = || Box::new([(); 2].map(|()| std::array::from_fn(|_| latency_histogram())));
        let [calls, totals] = &mut **self.times.get_or_insert_with(new);
        let mut invalid = 0;
        // TSC ticks of each phase, if it is there, by cycle.
        let mut cycles: BTreeMap<u64, [Option<u64>; PHASES]> = BTreeMap::new();
        for entry in &vcpu.left.log {
            let Some(phase) = phase_of(entry) else { continue };
            let Some(ticks) = entry.tsc_exit.checked_sub(entry.tsc_entry) else {
                invalid += 1;
                continue;
            };
            calls[phase].saturating_record(ns(ticks));
            if phase as u64 == PHASE_ROTATE {
                totals[phase].saturating_record(ns(ticks));
            } else {
                let sum = cycles.entry(entry.status / CALLS).or_default()[phase].get_or_insert(0);
                *sum = sum.saturating_add(ticks);
            }
        }
        // A cycle that was not finished has no last phase.
        for phases in cycles.into_values() {
            let parts: Option<Vec<u64>> = phases[1..PHASE_ROTATE as usize].iter().copied().collect();
            let Some(parts) = parts else { continue };
            for (total, &ticks) in totals[1..].iter_mut().zip(&parts) {
                total.saturating_record(ns(ticks));
            }
            set_ups.saturating_record(ns(parts.into_iter().fold(0, u64::saturating_add)));
        }
        self.cycles = self.cycles.saturating_add(report.cycles);
        for (mine, theirs) in self.tallies.iter_mut().zip(&vcpu.account.phases) {
            mine.begun += theirs.begun;
            add(mine, theirs);
        }
        let wanted = report.enabled.iter().rposition(|&ticks| ticks > 0).map_or(0, |last| last + 1);
        self.counts.resize(self.counts.len().max(wanted), EventCount::default());
        for (event, sum) in self.counts.iter_mut().enumerate() {
            sum.count = sum.count.saturating_add(report.counts[event]);
            sum.enabled_ns = sum.enabled_ns.saturating_add(ticks_to_ns(report.enabled[event], khz));
            sum.running_ns = sum.running_ns.saturating_add(ticks_to_ns(report.running[event], khz));
        }
        invalid
    }

    /// The times by phase, once there are set-ups.
    fn times(&self) -> Option<&[[Histogram<u64>; PHASES]; 2]> {
        self.times.as_deref().filter(|[_, totals]| self.cycles > 0 || !totals[1].is_empty())
    }

    /// The times of each phase: of a call, and of all calls of one set-up.
    pub(super) fn metrics(&self) -> Metrics {
        let times = self.times().into_iter().flat_map(|times| ["call_ns", "total_ns"].into_iter().zip(times.iter()));
        let of = |(time, phases): (&str, &[Histogram<u64>; PHASES])| {
            let all = KEYS.iter().zip(phases);
            let found = all.filter_map(|(key, times)| Some((format!("phases/{key}/{time}"), Summary::of(times)?)));
            found.collect::<Vec<_>>()
        };
        times.flat_map(of).collect()
    }

    /// Cycles, phases by key, and counts, as they stand now.
    pub(super) fn result(&self) -> (u64, BTreeMap<String, PhaseResult>, Vec<EventCount>) {
        if self.times().is_none() {
            return (0, BTreeMap::new(), Vec::new());
        }
        let mut all = PhaseTally::default();
        for part in &self.tallies[1..PHASE_ROTATE as usize] {
            all.begun = all.begun.max(part.begun);
            add(&mut all, part);
        }
        let phases = KEYS.into_iter().zip(&self.tallies).skip(1).chain([(SET_UP, &all)]);
        let scaled = |event: &EventCount| EventCount {
            scaled: (event.running_ns > 0).then(|| {
                let wide = u128::from(event.count) * u128::from(event.enabled_ns) / u128::from(event.running_ns);
                u64::try_from(wide).unwrap_or(u64::MAX)
            }),
            ..event.clone()
        };
        let phases = phases.map(|(key, line)| (key.to_owned(), tally(line))).collect();
        (self.cycles, phases, self.counts.iter().map(scaled).collect())
    }
}

fn tally(line: &PhaseTally) -> PhaseResult {
    let ops = OpKind::ALL.into_iter().zip(line.ops).map(|(kind, n)| (kind.key().to_owned(), n));
    PhaseResult {
        begun: line.begun,
        msr_reads: line.msr_reads,
        msr_writes: line.msr_writes,
        host_ops: ops.collect(),
        host_ops_ns: line.ops_ns,
    }
}

/// Converts TSC ticks to ns; saturates.
pub(super) fn ticks_to_ns(ticks: u64, khz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
