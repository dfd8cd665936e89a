//! One arm of the result, made from the outcomes of its runs.

use guest::abi::{LOG_NMI, LOG_ROTATION, LogEntry, Report};
use hdrhistogram::Histogram;
use host_pmu::stats::{OpKind, OpStats, ns};
use vmm::outcome::{End, MsrExits, RunOutcome, VcpuOutcome};

use results::document::{
    self, ArmKind, BELOW_KVM, Counts, GuestArm, HostOp, LONGEST, Metrics, Summary, WorkloadCost, latency_histogram,
    merge,
};
use results::error::one_line;
use results::metric::{
    self, EXIT_PATH, HOST_WORK, Metric, NMI_DRIVER_OFF, NMI_HANDLER, PMI_DELIVERY, ROTATION, SET_UP, SIGNAL,
};
use results::paired::are_few;

use super::periods::Periods;
use super::phases::{self, Latencies, ticks_to_ns};
use crate::arms::arm::runner::{Arm, TurnOutcome};
use crate::engine::Turn;

/// Returns the histogram of a turn's metric, to record in: as an arm's, but only as long as its values need.
fn of<'a>(latencies: &'a mut Latencies, metric: &Metric) -> &'a mut Histogram<u64> {
    latencies.entry(metric.key).or_insert_with(|| Histogram::new(3).expect("few digits"))
}

/// Records a time in a turn's histogram. A guest whose clock jumps may report any: it is clamped, as by the arm's histogram.
fn record(into: &mut Histogram<u64>, ns: u64) {
    into.record(ns.min(LONGEST)).expect("it grows");
}

/// Adds what is known of both.
fn add(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    sum.zip(more).map(|(sum, more)| sum.saturating_add(more))
}

/// Returns a summary for each metric that has values.
fn metrics(latencies: &Latencies, summary: fn(&Histogram<u64>) -> Option<Summary>) -> Metrics {
    latencies.iter().filter_map(|(key, all)| Some(((*key).to_owned(), summary(all)?))).collect()
}

/// Units of work and the time they took.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    ns: u64,
    units: u64,
}

impl Work {
    /// Adds a guest's, from TSC `begin` to `end`.
    fn add(&mut self, begin: u64, end: u64, units: u64, khz: u64) {
        self.ns = self.ns.saturating_add(ticks_to_ns(end.saturating_sub(begin), khz));
        self.units = self.units.saturating_add(units);
    }

    /// Returns the time of a unit, if there is one.
    fn unit_ns(self) -> Option<f64> {
        (self.units > 0 && self.ns > 0).then(|| self.ns as f64 / self.units as f64)
    }
}

/// Checks that this kind of guest supports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks {
    /// Their driver counts overflows.
    pub overflows: bool,
    /// Their periods do not change: counts are checked against overflows.
    pub periods: bool,
    /// Their log has times of the host's clock: each delivery is paired with its handler.
    pub deliveries: bool,
}

/// Sums over turns.
#[derive(Clone, Debug, Default)]
struct Sums {
    kind: ArmKind,
    checks: Checks,
    own: GuestArm,
    latencies: Latencies,
    ops: OpStats,
    baseline: Work,
    measured: Work,
}

/// Collects one arm's rounds.
#[derive(Clone, Debug, Default)]
pub struct ArmFold {
    result: document::Arm,
    all: Sums,
    /// The sums without the turns that are not whole, from the first of them on.
    whole: Option<Sums>,
    /// A round is true if `whole` has it.
    are_whole: Vec<bool>,
    /// How turns ended that did not end as they should.
    broken: Vec<String>,
    periods: Option<Periods>,
}

impl ArmFold {
    /// Creates an arm without rounds. `stand_in`: whether its backend is a stand-in.
    pub fn new(arm: &Arm, stand_in: bool, checks: Checks) -> Self {
        let result = document::Arm {
            name: arm.strategy.clone(),
            kind: arm.kind,
            backend: arm.backend.clone(),
            stand_in,
            ..document::Arm::default()
        };
        // The floor's counters are the TSC, which advances while the vCPU thread has no CPU.
        let periods = (checks.periods && arm.kind != ArmKind::Floor).then(Periods::default);
        let all = Sums::new(arm.kind, checks);
        Self { result, all, periods, ..Self::default() }
    }

    /// Records that the arm cannot run here.
    pub fn not_available(&mut self, why: &str) {
        self.result.not_available = Some(one_line(why));
    }

    /// Records a reason for incomplete figures beyond those of the rounds.
    pub fn incomplete(&mut self, why: &str) {
        self.result.incomplete.push(one_line(why));
    }

    /// Leaves a turn out of the sums of those that are whole, which is yet to be added.
    fn leave_out(&mut self, why: &[String]) {
        self.whole.get_or_insert_with(|| self.all.clone());
        self.result.left_out.push(one_line(&why.join("; ")));
    }

    /// Returns the sums of all turns, and of those that are whole if they are others.
    fn sums(&mut self, is_whole: bool) -> impl Iterator<Item = &mut Sums> {
        std::iter::once(&mut self.all).chain(self.whole.as_mut().filter(|_| is_whole))
    }

    /// Records how a discarded turn ended that did not end as it should: its counts are in no figure.
    pub fn warm_up_failed(&mut self, outcome: &RunOutcome) {
        let error = outcome.vcpus.iter().filter_map(|vcpu| vcpu.account.host.last_error.as_deref()).next_back();
        let error = error.map_or_else(String::new, |error| format!("; last error: {error}"));
        let why = format!("warm-up: {}{error}", outcome.end);
        self.leave_out(std::slice::from_ref(&why));
        self.broken.push(one_line(&why));
    }

    /// Adds a finished turn, with what is beside its outcome.
    pub fn add(&mut self, turn: Turn, left: &TurnOutcome) {
        let (outcome, own) = (&left.run, self.all.of_turn(&left.run));
        let broken = broken(turn.index, outcome);
        let doubts = own.doubts().map(|doubt| format!("round {}: {doubt}", turn.index));
        let why: Vec<String> = broken.iter().cloned().chain(doubts).collect();
        if !why.is_empty() {
            self.leave_out(&why);
        }
        self.broken.extend(broken.iter().map(|why| one_line(why)));
        if let Some(periods) = &mut self.periods {
            periods.begin(turn.session);
            outcome.vcpus.iter().enumerate().for_each(|(index, vcpu)| periods.add(index, vcpu));
        }
        let held = turn.session.is_none().then(|| held_at_tail(outcome));
        let of = |sums: &mut Sums| sums.add(left, &own, held.as_deref());
        let Some((counts, latencies)) = self.sums(why.is_empty()).map(of).last() else { return };
        let rounds = &mut self.result.rounds;
        rounds.index.push(turn.index);
        rounds.position.push(turn.position);
        rounds.complete.push(outcome.end.is_complete());
        self.are_whole.push(why.is_empty());
        rounds.started_us.push(ns(turn.started) / 1000);
        rounds.guest.push(turn.session);
        rounds.lost.push(own.lost);
        rounds.counts.push(&counts);
        let mut metrics = metrics(&latencies, Summary::brief);
        // Comparisons judge medians; `reproduce` and `calibrate` take means of these.
        let has_mean = |key: &str| metric::is_main(key) || key == NMI_DRIVER_OFF.key;
        metrics.iter_mut().filter(|(key, _)| !has_mean(key)).for_each(|(_, all)| all.mean = None);
        rounds.push_metrics(&metrics);
    }

    /// Adds the start and the baseline of a guest that is kept alive.
    pub fn open(&mut self, opening: &RunOutcome) {
        for vcpu in &opening.vcpus {
            if let Some(report) = vcpu.left.report.as_ref().filter(|_| vcpu.left.tsc.khz > 0) {
                self.sums(true).for_each(|sums| sums.add_baseline(report, vcpu.left.tsc.khz));
            }
        }
    }

    /// Adds how guest `number` ended after its last turn, and the events that it still held. Its operations, exits and other
    /// counts since then belong to no PMI of a round: they are in no figure.
    pub fn close(&mut self, number: u64, outcome: &RunOutcome) {
        if outcome.end == End::Stopped {
            return;
        }
        let ends = outcome.vcpus.iter().enumerate().filter(|(_, vcpu)| !vcpu.end.is_complete());
        let why: Vec<String> =
            ends.map(|(index, vcpu)| one_line(&format!("end of guest {number}, vCPU {index}: {}", vcpu.end))).collect();
        if !why.is_empty() {
            self.leave_out(&why);
            self.broken.extend(why);
        }
        let held = outcome.vcpus.iter().map(|vcpu| vcpu.account.counts.held_at_end).fold(0, u64::saturating_add);
        self.sums(true).for_each(|sums| sums.note_held(held, &held_at_tail(outcome)));
    }

    /// Returns the arm so far. A few turns that are not whole are left out of its figures.
    pub fn result(&self) -> document::Arm {
        let mut result = self.result.clone();
        let few = self.whole.as_ref().filter(|_| are_few(result.left_out.len(), result.rounds.len()));
        if few.is_some() {
            result.rounds.complete.clone_from(&self.are_whole);
        } else {
            result.left_out.clear();
            result.incomplete.splice(0..0, self.broken.iter().cloned());
        }
        few.unwrap_or(&self.all).conclude(&mut result);
        // Turns of a guest are judged together.
        result.own.counts.periods_missed = self.periods.as_ref().map_or(0, Periods::missed);
        result
    }
}

impl Sums {
    fn new(kind: ArmKind, checks: Checks) -> Self {
        let overflows_lost = (kind != ArmKind::Kvm && checks.overflows).then_some(0);
        let own = GuestArm { lost: Some(0), overflows_lost, ..GuestArm::default() };
        Self { kind, checks, own, ..Self::default() }
    }

    /// Returns a turn's counts of the host's side, and what was lost, which may make it doubtful.
    fn of_turn(&self, outcome: &RunOutcome) -> GuestArm {
        let mut own =
            GuestArm { lost: Some(0), overflows_lost: self.own.overflows_lost.and(Some(0)), ..<_>::default() };
        for VcpuOutcome { end, account, left, .. } in &outcome.vcpus {
            own.counts.merge(&account.counts);
            // KVM does not say how many it delivered.
            let report = left.report.as_ref().filter(|_| self.kind != ArmKind::Kvm);
            own.lost = add(own.lost, report.map(|report| account.counts.nmis_injected.abs_diff(report.nmis)));
            // A guest that was stopped has not handled its last ones.
            let whole = report.filter(|_| end.is_complete());
            let lost = whole.map_or(0, |report| account.counts.overflows_lost(overflows(report)));
            own.overflows_lost = add(own.overflows_lost, Some(lost));
        }
        own
    }

    /// Adds a turn, with what is its own and the events that were held at its tail's ticks unless its guest lives on. Returns its counts
    /// and its latencies.
    fn add(&mut self, left: &TurnOutcome, own: &GuestArm, held: Option<&[u64]>) -> (Counts, Latencies) {
        let mut latencies = Latencies::new();
        for ns in &left.host_work {
            record(of(&mut latencies, &HOST_WORK), (*ns).max(1));
        }
        if let Some(left) = &left.linux {
            self.own.linux.get_or_insert_default().add(left);
        }
        let mut counts = Counts::default();
        left.run.vcpus.iter().for_each(|vcpu| self.add_vcpu(vcpu, &mut counts, &mut latencies));
        self.own.counts.merge(&counts);
        self.own.lost = add(self.own.lost, own.lost);
        self.own.overflows_lost = add(self.own.overflows_lost, own.overflows_lost);
        if let Some(held) = held {
            self.note_held(counts.held_at_end, held);
        }
        for (key, histogram) in &latencies {
            merge(self.latencies.entry(key).or_insert_with(latency_histogram), histogram);
        }
        (counts, latencies)
    }

    fn add_baseline(&mut self, report: &Report, khz: u64) {
        self.baseline.add(report.baseline_begin, report.baseline_end, report.baseline_units, khz);
    }

    fn note_held(&mut self, at_end: u64, tail: &[u64]) {
        let held = &mut self.own.events_held;
        held.at_end = held.at_end.max(at_end);
        held.tail.resize(held.tail.len().max(tail.len()), 0);
        for (most, now) in held.tail.iter_mut().zip(tail) {
            *most = (*most).max(*now);
        }
    }

    /// Adds one vCPU, its counts to `counts`.
    fn add_vcpu(&mut self, vcpu: &VcpuOutcome, counts: &mut Counts, into: &mut Latencies) {
        let account = &vcpu.account;
        counts.merge(&account.counts);
        if let Some(error) = &account.host.last_error {
            self.own.last_error = Some(one_line(error));
        }
        self.ops.merge(&account.host.ops);
        for &MsrExits { msr, reads, writes, faults } in &account.msr_exits {
            let count = self.own.msr_exits.entry(format!("{msr:#x}")).or_default();
            for (sum, n) in [(&mut count.reads, reads), (&mut count.writes, writes), (&mut count.faults, faults)] {
                *sum = sum.saturating_add(n);
            }
        }
        merge(of(into, &EXIT_PATH), &account.exit_path_ns);
        merge(of(into, &SIGNAL), &account.host.signal_ns.histogram());
        let Some(report) = &vcpu.left.report else { return };
        counts.merge(&Counts {
            nmis: report.nmis,
            nmis_without_status: report.nmis_without_status,
            guest_overflows: overflows(report),
            log_dropped: report.dropped,
            played: report.played,
            pmis_absent: report.absent,
            counters_otherwise: report.otherwise[0],
            values_otherwise: report.otherwise[1],
            ..Counts::default()
        });
        if vcpu.left.tsc.khz > 0 {
            self.add_times(vcpu, report, counts, into);
        }
        if self.kind != ArmKind::Kvm {
            counts.surplus = counts.surplus.saturating_add(report.nmis.saturating_sub(account.counts.nmis_injected));
        }
    }

    fn add_times(&mut self, vcpu: &VcpuOutcome, report: &Report, counts: &mut Counts, into: &mut Latencies) {
        let khz = vcpu.left.tsc.khz;
        let time = |ticks| ticks_to_ns(ticks, khz).max(1);
        counts.tsc_uncertainty_ns = counts.tsc_uncertainty_ns.max(ticks_to_ns(vcpu.left.tsc.uncertainty, khz));
        counts.log_invalid +=
            phases::add((&mut self.own, &mut self.latencies), vcpu, report, |ns| record(of(into, &SET_UP), ns));
        for entry in vcpu.left.log.iter().filter(|entry| !phases::takes(entry)) {
            let metric = match entry.kind {
                LOG_NMI if entry.rearmed == 0 => Some(&NMI_DRIVER_OFF),
                LOG_NMI => Some(&NMI_HANDLER),
                LOG_ROTATION => Some(&ROTATION),
                _ => None,
            };
            counts.nmis_driver_off += u64::from(entry.kind == LOG_NMI && entry.rearmed == 0);
            match metric.zip(entry.tsc_exit.checked_sub(entry.tsc_entry)) {
                Some((metric, ticks)) => record(of(into, metric), time(ticks)),
                None => counts.log_invalid += 1,
            }
        }
        match deliveries(vcpu, report) {
            _ if !self.checks.deliveries => {}
            Some(delays) => {
                let allowed = i64::try_from(vcpu.left.tsc.uncertainty).unwrap_or(i64::MAX);
                let delivered = of(into, &PMI_DELIVERY);
                for ticks in delays {
                    match u64::try_from(ticks) {
                        Ok(ticks) => record(delivered, time(ticks)),
                        Err(_) if ticks >= -allowed => record(delivered, 1),
                        Err(_) => counts.delivery_negative += 1,
                    }
                }
            }
            None => counts.delivery_unmatched += 1,
        }
        self.add_baseline(report, khz);
        self.measured.add(report.measure_begin, report.measure_end, report.measure_units, khz);
    }

    /// Gives an arm its figures.
    fn conclude(&self, result: &mut document::Arm) {
        result.own = self.own.clone();
        result.metrics = metrics(&self.latencies, Summary::of);
        phases::conclude(result);
        let own = &mut result.own;
        own.lost = own.lost.filter(|_| !result.rounds.is_empty());
        // Those of KVM's own vPMU are counted where the kernel module does it.
        let counted = result.kind != ArmKind::Kvm || result.name.starts_with(BELOW_KVM);
        let op = |kind: OpKind| {
            let count = self.ops.count(kind);
            let p50_ns = if count == 0 { 0 } else { self.ops.histogram(kind).value_at_quantile(0.5) };
            (kind.key().to_owned(), HostOp { count, p50_ns, total_ns: self.ops.total_ns(kind) })
        };
        own.host_ops = OpKind::ALL.into_iter().filter(|_| counted).map(op).collect();
        let Counts { nmis_injected, held_max, held_ns, time_ns, .. } = own.counts;
        own.counts = own.counts.written();
        own.nmis_delivered = (result.kind != ArmKind::Kvm).then_some(nmis_injected);
        own.events_held.max = held_max;
        own.events_held.time_mean = match result.kind {
            ArmKind::Floor => Some(0.0),
            _ => (time_ns > 0).then(|| held_ns as f64 / time_ns as f64),
        };
        own.workload_ns = self.measured.ns;
        own.workload = self.baseline.unit_ns().zip(self.measured.unit_ns()).map(|(without, with)| WorkloadCost {
            unit_ns_without: without,
            unit_ns_with: with,
            slowdown: with / without,
        });
    }
}

/// Says what keeps a round from being complete.
fn broken(round: u64, outcome: &RunOutcome) -> Vec<String> {
    let mut why = Vec::new();
    for (index, vcpu) in outcome.vcpus.iter().enumerate() {
        let who = format!("round {round}, vCPU {index}");
        if !vcpu.end.is_complete() {
            why.push(format!("{who}: {}", vcpu.end));
        }
        if vcpu.left.report.is_none() {
            why.push(format!("{who}: the guest left no report"));
        } else if vcpu.left.tsc.khz == 0 {
            why.push(format!("{who}: the guest's TSC frequency is unknown"));
        }
    }
    if !outcome.end.is_complete() && outcome.vcpus.iter().all(|vcpu| vcpu.end.is_complete()) {
        why.push(format!("round {round}: {}", outcome.end));
    }
    why
}

/// Counts the overflows that the guest's driver saw.
fn overflows(report: &Report) -> u64 {
    report.overflows.iter().fold(0, |sum, &n| sum.saturating_add(n))
}

/// Returns the host events that all vCPUs held at each tick of the tail.
fn held_at_tail(outcome: &RunOutcome) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for held in outcome.vcpus.iter().map(|vcpu| &vcpu.left.held_at_tail_tick) {
        sums.resize(sums.len().max(held.len()), 0);
        sums.iter_mut().zip(held).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
    }
    sums
}

/// Returns the guest TSC ticks from each delivery to its handler's entry, or `None` if they cannot be paired.
///
/// The k-th NMI the guest logs answers the k-th delivery only if the guest took exactly as many as were delivered, and
/// if the log lacks none before its end: a full log drops its last entries, so it holds a prefix.
fn deliveries<'a>(vcpu: &'a VcpuOutcome, report: &Report) -> Option<impl Iterator<Item = i64> + use<'a>> {
    let taken = || vcpu.left.log.iter().filter(|entry| entry.kind == LOG_NMI);
    let delivered = vcpu.account.deliveries.len() as u64;
    let missing = report.nmis.checked_sub(taken().count() as u64)?;
    // `dropped` counts rotations too, so it bounds the missing NMIs from above.
    let consistent =
        report.nmis == delivered && vcpu.account.counts.nmis_injected == delivered && missing <= report.dropped;
    let delay = move |(entry, &host_tsc): (&LogEntry, &u64)| {
        entry.tsc_entry.wrapping_sub(host_tsc.wrapping_add_signed(vcpu.left.tsc.offset)).cast_signed()
    };
    consistent.then(|| taken().zip(&vcpu.account.deliveries).map(delay))
}

#[cfg(test)]
#[expect(clippy::format_push_string, reason = "a transcript grows line by line")]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use guest::abi::{CALLS, LOG_PHASE, PHASE_ROTATE};
    use results::paired;
    use serde_json::{Map, Value};

    use super::*;
    use crate::arms::rounds::mock::{outcome, vcpu};

    fn arm(kind: ArmKind) -> Arm {
        Arm { strategy: "reuse".into(), backend: "cpu-clock".into(), kind, definition: None }
    }

    const CHECKS: Checks = Checks { overflows: true, periods: false, deliveries: true };

    fn turn(index: u64) -> Turn {
        Turn { index, started: Duration::from_secs(index), ..Turn::default() }
    }

    /// Writes each figure of an arm that is not as in `usual`.
    fn differences(path: &str, value: &Value, usual: &Value, into: &mut String) {
        let is_none = |value: &Value| value.is_null() || *value == 0;
        match (value.as_object(), usual.as_object()) {
            (None, _) if value == usual || is_none(value) && is_none(usual) => {}
            (None, _) => into.push_str(&format!("{path}: {value}\n")),
            (Some(all), usual) => {
                let others = usual.into_iter().flat_map(|usual| usual.keys());
                let keys: BTreeSet<&String> = all.keys().chain(others).filter(|key| *key != "histogram").collect();
                for key in keys {
                    let of = |all: Option<&Map<String, Value>>| {
                        all.and_then(|all| all.get(key)).cloned().unwrap_or_default()
                    };
                    differences(&format!("{path} {key}"), &of(Some(all)), &of(usual), into);
                }
            }
        }
    }

    type Change = fn(&mut Vec<VcpuOutcome>);

    fn report(vcpus: &mut [VcpuOutcome]) -> &mut Report {
        vcpus[0].left.report.as_mut().unwrap()
    }

    /// Makes the log one of set-ups' calls: phase, cycle, TSC ticks of begin and end; two ticks are a ns.
    fn set_up(vcpus: &mut [VcpuOutcome], cycles: u64, calls: &[(u64, u64, u64, u64)]) {
        let call = |&(phase, cycle, tsc_entry, tsc_exit)| LogEntry {
            kind: LOG_PHASE + phase,
            status: cycle * CALLS,
            tsc_entry,
            tsc_exit,
            ..LogEntry::default()
        };
        vcpus[0] = vcpu(0, 0);
        vcpus[0].left.log = calls.iter().map(call).collect();
        let report = report(vcpus);
        (report.cycles, report.counts[1], report.enabled[1], report.running[1]) = (cycles, 30, 1000, 500);
        (report.enabled[0], report.enabled[2]) = (400, 400);
    }

    fn two_more(vcpus: &mut [VcpuOutcome]) {
        vcpus[0].account.counts.overflows += 2;
        vcpus[0].account.counts.pmi_requests += 2;
    }

    #[test]
    fn any_time_is_recorded_alike_in_a_turn_and_its_arm() {
        let (mut turn, mut all) = (Latencies::new(), latency_histogram());
        for ns in [1, 1 << 40, u64::MAX >> 1, u64::MAX] {
            record(of(&mut turn, &NMI_HANDLER), ns);
        }
        let turn = &turn[NMI_HANDLER.key];
        merge(&mut all, turn);
        assert_eq!((all.len(), all.min(), all.max()), (turn.len(), turn.min(), turn.max()));
    }

    /// Rounds of a vCPU that took ten NMIs, 1 µs each, with what is changed. The file has the figures of the first, and of the others
    /// what differs from it.
    #[test]
    fn figures_follow_from_what_guests_leave() {
        let strategy = ArmKind::Strategy;
        let cases: [(&str, ArmKind, Change); 24] = [
            ("ten NMIs", strategy, |_| {}),
            ("a second vCPU with five longer ones, and a signal", strategy, |vcpus| {
                vcpus[0].account.host.signal_ns.record(10);
                vcpus.push(vcpu(5, 3000));
            }),
            ("an NMI lost: only that vCPU's deliveries are not paired", strategy, |vcpus| {
                vcpus[0].account.counts.nmis_injected = 11;
                vcpus[0].account.deliveries.insert(4, 1);
                vcpus.push(vcpu(10, 1000));
            }),
            ("a full log: what it holds is paired", strategy, |vcpus| {
                vcpus[0].left.log.truncate(6);
                (report(vcpus).logged, report(vcpus).dropped) = (6, 4);
            }),
            ("a log that lacks entries", strategy, |vcpus| vcpus[0].left.log.truncate(6)),
            ("entries before their deliveries, within the uncertainty", strategy, |vcpus| {
                vcpus[0].left.tsc.offset += 1050;
            }),
            ("entries before their deliveries, beyond it", strategy, |vcpus| vcpus[0].left.tsc.offset += 1200),
            ("a rotation between NMIs", strategy, |vcpus| {
                let entry = LogEntry { kind: LOG_ROTATION, tsc_entry: 100, tsc_exit: 10_100, ..LogEntry::default() };
                vcpus[0].left.log.insert(3, entry);
            }),
            ("nonsense", strategy, |vcpus| {
                vcpus[0].left.log[0].tsc_exit = 0;
                vcpus[0].left.log.push(LogEntry { kind: 77, ..LogEntry::default() });
                report(vcpus).overflows = [u64::MAX; guest::abi::MAX_EVENTS];
                (report(vcpus).measure_end, report(vcpus).measure_units) = (0, u64::MAX);
                report(vcpus).baseline_end = u64::MAX;
            }),
            ("more NMIs than there can be", strategy, |vcpus| report(vcpus).nmis = u64::MAX),
            ("nothing left", strategy, |vcpus| {
                vcpus[0].end = End::TripleFault;
                (vcpus[0].left.report, vcpus[0].left.tsc.khz) = (None, 0);
                vcpus[0].left.log.clear();
            }),
            ("a TSC of no known frequency", strategy, |vcpus| vcpus[0].left.tsc.khz = 0),
            ("KVM's own vPMU, of which nothing is counted", ArmKind::Kvm, |vcpus| {
                vcpus[0].account.deliveries.clear();
                vcpus[0].account.counts = Counts::default();
            }),
            ("an NMI that met the driver off", strategy, |vcpus| {
                let met_off = &mut vcpus[0].left.log[3];
                (met_off.rearmed, met_off.tsc_exit) = (0, met_off.tsc_entry + 200);
            }),
            ("two overflows more than the guest saw", strategy, |vcpus| two_more(vcpus)),
            ("two more in one STATUS bit, one to a driver", strategy, |vcpus| {
                two_more(vcpus);
                vcpus[0].account.counts.status_shared = 1;
            }),
            ("two more without a PMI", strategy, |vcpus| vcpus[0].account.counts.overflows += 2),
            ("two more that a stopped guest has not handled", strategy, |vcpus| {
                two_more(vcpus);
                vcpus[0].end = End::TimedOut;
            }),
            ("differences of two vCPUs that would cancel", strategy, |vcpus| {
                vcpus.push(vcpu(10, 1000));
                for (vcpu, [injected, overflows]) in vcpus.iter_mut().zip([[11, 12], [9, 8]]) {
                    let counts = &mut vcpu.account.counts;
                    (counts.nmis_injected, counts.overflows, counts.pmi_requests) = (injected, overflows, overflows);
                }
            }),
            ("periods that the host never reported", strategy, |vcpus| {
                (report(vcpus).counts[0], report(vcpus).periods[0]) = (12 * 1000 + 7, 1000);
                vcpus.push(vcpu(10, 1000));
            }),
            ("the floor", ArmKind::Floor, |_| {}),
            ("a set-up with a rotation, and one that was cut short", strategy, |vcpus| {
                let first = [(1, 0, 0, 20), (1, 0, 20, 60), (2, 0, 100, 300), (PHASE_ROTATE, 0, 400, 440)];
                set_up(vcpus, 1, &[&first[..], &[(3, 0, 500, 510), (4, 0, 510, 530), (1, 1, 600, 610)]].concat());
            }),
            ("set-ups that make no sense", strategy, |vcpus| {
                let wrong = [(1, 0, 9, 3), (2, u64::MAX / CALLS, 0, u64::MAX), (3, 0, 0, u64::MAX), (77, 0, 1, 2)];
                set_up(vcpus, 1, &[&wrong[..], &[(4, 0, 0, u64::MAX), (2, 0, 0, u64::MAX)]].concat());
            }),
            ("no whole set-up", strategy, |vcpus| set_up(vcpus, 0, &[(1, 0, 0, 20)])),
        ];
        let (mut text, mut usual) = (String::new(), Value::Null);
        for (what, kind, change) in cases {
            let mut vcpus = vec![vcpu(10, 1000)];
            change(&mut vcpus);
            let mut fold = ArmFold::new(&arm(kind), true, Checks { periods: what.starts_with("periods"), ..CHECKS });
            (0..2).for_each(|index| fold.add(turn(index), &outcome(vcpus.clone()).into()));
            let found = serde_json::to_value(fold.result()).unwrap();
            text += &format!("# {what}\n");
            differences("", &found, &usual, &mut text);
            usual = if usual.is_null() { found } else { usual };
        }
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arms/fold/figures.txt"), &text);
    }

    #[test]
    fn a_few_turns_that_are_not_whole_are_in_no_figure() {
        type Change = fn(&mut VcpuOutcome);
        let ways: [(&str, Change); 4] = [
            ("1 NMIs delivered and not taken", |vcpu| vcpu.account.counts.nmis_injected += 1),
            ("7 times that the host throttled", |vcpu| vcpu.account.counts.throttled = 7),
            ("the time limit passed", |vcpu| vcpu.end = End::TimedOut),
            ("left no report", |vcpu| vcpu.left.report = None),
        ];
        for (what, change) in ways {
            let mut bad = vcpu(10, 9_000);
            change(&mut bad);
            let rounds = |all: u64, bad: &[VcpuOutcome]| {
                let mut fold = ArmFold::new(&arm(ArmKind::Strategy), true, CHECKS);
                for index in 0..all {
                    let bad = bad.get(usize::try_from(index).unwrap());
                    fold.add(turn(index), &outcome(vec![bad.cloned().unwrap_or_else(|| vcpu(10, 1000))]).into());
                }
                fold.result()
            };
            let (few, without) = (rounds(21, std::slice::from_ref(&bad)), rounds(20, &[]));
            assert!(few.own == without.own && few.metrics == without.metrics, "{what}: {few:?}");
            assert!(few.left_out.len() == 1 && few.left_out[0].contains("round 0"), "{:?}", few.left_out);
            assert!(few.left_out[0].contains(what) && few.incomplete.is_empty(), "{:?}", few.left_out);
            let counting = paired::counting(&few, NMI_HANDLER.key).map(|(round, _)| round.index);
            assert_eq!(counting.collect::<Vec<_>>(), (1..21).collect::<Vec<_>>());
            // From 5 % on all rounds are kept, with the doubt.
            let more = rounds(20, &[bad]);
            assert!(
                more.left_out.is_empty() && (!more.incomplete.is_empty() || more.own.doubts().next().is_some()),
                "{what}"
            );
        }
    }

    #[test]
    fn the_tail_of_a_guest_is_in_no_figure_of_its_rounds() {
        let fold = |tails: bool| {
            let mut fold = ArmFold::new(&arm(ArmKind::Strategy), true, CHECKS);
            for index in 0..4 {
                fold.add(Turn { session: Some(0), ..turn(index) }, &outcome(vec![vcpu(10, 1000)]).into());
            }
            let mut last = vcpu(0, 0);
            last.account.host.ops.record(OpKind::Release, 30_000);
            (last.account.counts.blind, last.account.counts.held_max, last.account.counts.held_at_end) = (1, 9, 2);
            last.left.held_at_tail_tick = vec![2, 1];
            if tails {
                fold.close(0, &outcome(vec![last]));
            }
            fold.result()
        };
        let (with, without) = (fold(true), fold(false));
        assert_eq!(with.own.host_ops, without.own.host_ops, "the only release is the tail's");
        assert_eq!((with.own.counts, &with.own.msr_exits), (without.own.counts, &without.own.msr_exits));
        assert_eq!((with.own.events_held.tail, with.own.events_held.at_end), (vec![2, 1], 2));
        assert_eq!((with.own.workload_ns, with.own.events_held.max), (without.own.workload_ns, 7));
    }
}
