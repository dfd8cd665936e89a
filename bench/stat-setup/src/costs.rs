//! Calibration: call costs on this host, measured in some milliseconds with events of the kinds that are asked for.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::list::parse::parse;
use crate::list::resolve::resolve;
use crate::list::sysfs::Sysfs;
use crate::list::{Class, Event, EventList, Group};
use crate::method::{Job, Method, Order, Phase, Phases, Use};
use crate::run::{CrewTimes, Finished, Guard, crew_times, run};
use crate::sys::{self, Target};

/// Costs of single calls, ns; means over the kinds of the events that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// perf_event_open of a single event on the caller's CPU.
    pub open: f64,
    /// Extra cost of an open per event already in the group.
    pub open_member: f64,
    /// IOC_ENABLE without rescheduling.
    pub enable: f64,
    /// Extra cost of an ENABLE per event it reschedules on the CPU; makes a series of ENABLEs quadratic.
    pub reschedule: f64,
    /// read of a single event.
    pub read: f64,
    /// Extra cost of a read per member.
    pub read_member: f64,
    /// IOC_DISABLE of a single event.
    pub disable: f64,
    /// Extra cost of a disable per member.
    pub disable_member: f64,
    /// close of a single event.
    pub close: f64,
    /// Extra cost of a close per event in the group.
    pub close_member: f64,
    /// Extra cost of enable, read, disable and close from another CPU, near or far.
    pub ipi: f64,
    /// Move to another CPU, near or far, by sched_setaffinity.
    pub migrate: f64,
    /// Start, pinning and end of one worker.
    pub thread: f64,
    /// Request and reply, per worker.
    pub round: f64,
    /// Extra cost of a worker for each further one: the ends of threads flush one another's TLBs.
    pub shootdown: f64,
    /// Share by which an open and a close take longer for each further worker that does the same: 1 where a lock of the whole
    /// host serialises them, as `pmus_lock` those of software events that are no clocks.
    pub queue: f64,
    /// First open and last close of every kind: a static key of a software event is patched on all CPUs.
    pub flips: f64,
    /// Workers at the same time that the costs of workers are for, at most.
    pub workers: f64,
    /// Number of online CPUs: determines the share of calls that are remote.
    pub online: f64,
}

/// Costs, and the effort of their measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The least of each cost over the repetitions.
    pub costs: Costs,
    /// The most of each.
    #[serde(default)]
    pub most: Costs,
    /// Duration of the calibration, ns.
    pub took_ns: u64,
    /// Repetitions.
    pub repetitions: u64,
    /// Kinds of events that it was measured with.
    #[serde(default)]
    pub kinds: Vec<String>,
}

/// Number of events without and with a group.
const ALONE: usize = 14;
const GROUP: usize = 63;
/// Other CPUs that calls are made on and moves go to, at most: near, half-way, far.
const OTHERS: usize = 3;
/// Events of each worker.
const WORK: usize = 2 * ALONE;
/// System calls of the start and the end of a thread (some 26 by strace), and of its requests.
const THREAD_CALLS: usize = 34;
/// Kinds of events to measure with, at most.
const KINDS: usize = 32;

/// One open event of each kind that is asked for. While they are open no static key is patched by another of their kind.
#[derive(Debug)]
pub struct Anchors {
    fds: Vec<OwnedFd>,
    /// Time of their opens.
    took: Duration,
    events: Vec<Event>,
    kinds: Vec<String>,
}

impl Anchors {
    /// Opens them on `cpu`. Not of tracepoints, whose last closes take tens of ms, and not of events that count on some CPUs
    /// only; where nothing is left, `cpu-clock` stands in.
    fn open(list: &EventList, cpu: u32) -> Self {
        let mut found = Self { fds: Vec::new(), took: Duration::ZERO, events: Vec::new(), kinds: Vec::new() };
        let mut known: Vec<(u32, u64, bool)> = Vec::new();
        let clock = clock();
        let asked = list.events.iter().map(|event| (event, false));
        for (event, stand_in) in asked.chain(clock.events.iter().map(|event| (event, true))) {
            let Ok(open) = &event.open else { continue };
            let fit = !matches!(open.class, Class::Tracepoint | Class::Tool) && event.cpus.is_none();
            if !fit || stand_in && !found.events.is_empty() {
                continue;
            }
            let kind = (open.attr.type_, open.attr.config);
            let mut opens = known.iter().find(|known| (known.0, known.1) == kind).map(|known| known.2);
            if opens.is_none() && known.len() < KINDS {
                let mut attr = open.attr;
                attr.set_disabled(1);
                let began = Instant::now();
                let fd = sys::open(&attr, Target::Cpu(cpu), None);
                found.took += began.elapsed();
                opens = Some(fd.is_ok());
                known.push((kind.0, kind.1, fd.is_ok()));
                if let Ok(fd) = fd {
                    found.fds.push(fd);
                    let stand_in = if stand_in { " as a stand-in" } else { "" };
                    found.kinds.push(format!("{}{stand_in}", event.name));
                }
            }
            if opens == Some(true) {
                found.events.push(event.clone());
            }
        }
        found
    }

    /// Returns the number of descriptors that it holds.
    pub fn descriptors(&self) -> u64 {
        self.fds.len() as u64
    }

    /// Returns `n` of the events that opened, spread over the list, each alone; of those that never compete if `free`.
    fn sample(&self, n: usize, free: bool) -> EventList {
        let fit = |event: &&Event| !free || event.class().is_some_and(Class::never_competes);
        let clock = clock();
        let mut all: Vec<&Event> = self.events.iter().filter(fit).collect();
        if all.is_empty() {
            all = clock.events.iter().collect();
        }
        // A list shorter than `n` is gone through again and again, a longer one in steps.
        let at = |i: usize| if all.len() < n { i % all.len() } else { i * all.len() / n };
        let events = (0..n).filter_map(|i| all.get(at(i)).map(|&event| event.clone())).collect();
        let groups = (0..n).map(|i| Group { members: vec![i], weak: false }).collect();
        EventList { events, groups, notes: Vec::new() }
    }
}

/// Returns a list of one event that every host can open.
fn clock() -> EventList {
    // It needs no look-up in sysfs.
    parse("cpu-clock")
        .map_or_else(|_| EventList::default(), |written| resolve(&written, &mut Sysfs::at("/nonexistent")))
}

fn mean(calls: &[u32]) -> f64 {
    if calls.is_empty() {
        return 0.0;
    }
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    // Drop the upper quarter: calls disturbed by an interrupt.
    let kept = &sorted[..(sorted.len() * 3).div_ceil(4)];
    kept.iter().map(|&ns| f64::from(ns)).sum::<f64>() / kept.len() as f64
}

fn calls(finished: &Finished, phase: Phase) -> &[u32] {
    finished.phases.iter().find(|cost| cost.phase == phase).map_or(&[], |cost| cost.calls_ns.as_slice())
}

fn job<'a>(list: &'a EventList, cpus: &'a [u32], method: Method) -> Job<'a> {
    Job { list, cpus, method, purpose: Use::Stat, ring_pages: 1, room: u64::MAX }
}

fn once(list: &EventList, cpus: &[u32], method: Method) -> Finished {
    run(&job(list, cpus, method), &mut |_, _| {})
}

/// Takes one measurement of calls for events on `cpus`, with two workers at most; binds the caller to the first CPU.
fn measure(anchors: &Anchors, cpus: &[u32]) -> Costs {
    let (alone, group) = (anchors.sample(ALONE, false), anchors.sample(GROUP, true));
    let here = &cpus[..cpus.len().min(1)];
    let stay = Method { order: Order::CpuMajor(Phases::NONE), ..Method::CPU_MAJOR };
    let packed = Method { pack: Some(GROUP), ..stay };
    let mut guard = Guard::new();
    if let Some(&cpu) = here.first() {
        guard.move_to(cpu);
    }
    let single = once(&alone, here, stay);
    let grouped = once(&group, here, packed);
    let enables = calls(&single, Phase::Enable);
    // The i-th ENABLE reschedules i events: the halves differ by half the number of events.
    let (first, second) = enables.split_at(enables.len() / 2);
    let slope = |calls: &[u32]| {
        let (first, second) = calls.split_at(calls.len() / 2);
        ((mean(second) - mean(first)) / (calls.len() / 2).max(1) as f64).max(0.0)
    };
    let mut costs = Costs {
        open: mean(calls(&single, Phase::Open)),
        open_member: slope(calls(&grouped, Phase::Open)),
        read: mean(calls(&single, Phase::Read)),
        disable: mean(calls(&single, Phase::Disable)),
        close: mean(calls(&single, Phase::Close)),
        // Members are closed from last to first: the group shrinks, so the first calls are the most expensive.
        close_member: {
            let reversed: Vec<u32> = calls(&grouped, Phase::Close).iter().rev().copied().collect();
            slope(&reversed)
        },
        online: Sysfs::host().online().len().max(cpus.len()) as f64,
        ..Costs::default()
    };
    let of_group = |phase, alone: f64| ((mean(calls(&grouped, phase)) - alone) / (GROUP - 1) as f64).max(0.0);
    costs.read_member = of_group(Phase::Read, costs.read);
    costs.disable_member = of_group(Phase::Disable, costs.disable);
    let by_halves = ((mean(second) - mean(first)) / (ALONE / 2) as f64).max(0.0);
    let by_group = of_group(Phase::Enable, mean(first));
    // Rescheduling costs less per event in a group. The choice is between packs, so prefer the group's figure.
    costs.reschedule = if by_group > 0.0 { by_group } else { by_halves };
    costs.enable = (mean(first) - costs.reschedule * (ALONE / 4) as f64).max(0.0);
    costs.flips = 2.0 * (anchors.took.as_nanos() as f64 - costs.open * anchors.kinds.len() as f64).max(0.0);
    // Its neighbour, and others as far away as the rest is on average.
    let others = spread(cpus.get(1..).unwrap_or_default(), OTHERS);
    if let (Some(&own), false) = (here.first(), others.is_empty()) {
        let n = others.len() as f64;
        let few = anchors.sample(ALONE.min(2 * ALONE / others.len()), false);
        let remote = |&other: &u32| mean(calls(&once(&few, &[other], stay), Phase::Read));
        costs.ipi = (others.iter().map(remote).sum::<f64>() / n - costs.read).max(0.0);
        let moves = Instant::now();
        // There and back, twice.
        for cpu in [&others, &others].into_iter().flatten().flat_map(|&other| [other, own]) {
            guard.move_to(cpu);
        }
        costs.migrate = moves.elapsed().as_nanos() as f64 / (4.0 * n);
        // A move is a reschedule interrupt and two switches of context: no more than ten interrupts. Calls on another CPU that
        // seem to cost less were disturbed where the CPU itself was measured.
        costs.ipi = costs.ipi.max(costs.migrate / 10.0);
    }
    drop(guard);
    costs.with_workers(anchors, &cpus[..cpus.len().min(2)])
}

/// Returns `n` of the CPUs at most, from the first to the last at equal distances.
fn spread(cpus: &[u32], n: usize) -> Vec<u32> {
    let n = cpus.len().min(n);
    (0..n).map(|i| cpus[i * (cpus.len() - 1) / (n - 1).max(1)]).collect()
}

/// Returns the number of CPUs that workers are measured on, of so many.
fn sampled(cpus: usize) -> usize {
    (cpus / 4).clamp(4, 16).min(cpus)
}

/// Returns the share by which calls of `cpus` workers take longer for each further one, where `measured` of them took longer
/// by `longer`. What was not measured is not promised: all do no more in a time than those measured did.
pub(crate) fn share(longer: f64, measured: f64, cpus: f64) -> f64 {
    (longer / (measured - 1.0).max(1.0)).max((cpus / measured - 1.0) / (cpus - 1.0).max(1.0))
}

/// Returns how many of so many CPUs workers would be measured on, and the system calls that this takes.
pub(crate) fn measuring(cpus: usize) -> (usize, usize) {
    let workers = sampled(cpus);
    (workers, (workers + 1) * 2 * WORK + workers * THREAD_CALLS)
}

/// Measures `repetitions` times and returns the least of each cost, since disturbances only add, and the most. Workers are measured on two CPUs;
/// for all if `with_all`.
pub fn calibrate(list: &EventList, cpus: &[u32], repetitions: u64, with_all: bool) -> (Calibration, Anchors) {
    let began = Instant::now();
    let first = cpus.first().copied().unwrap_or(0);
    let mut known: Option<([Costs; 2], Anchors)> = None;
    for _ in 0..repetitions.max(1) {
        // The last of each kind must close before the first of the next repetition opens.
        let range = known.take().map(|(range, _)| range);
        let anchors = Anchors::open(list, first);
        let mut costs = measure(&anchors, cpus);
        if with_all && cpus.len() > 2 {
            costs = costs.with_workers(&anchors, cpus);
        }
        let [least, most] = range.unwrap_or([costs; 2]);
        known = Some(([least.zip(&costs, f64::min), most.zip(&costs, f64::max)], anchors));
    }
    let ([costs, most], anchors) = known.unwrap_or_else(|| ([Costs::default(); 2], Anchors::open(list, first)));
    let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let kinds = anchors.kinds.clone();
    (Calibration { costs, most, took_ns, repetitions: repetitions.max(1), kinds }, anchors)
}

impl Costs {
    /// Costs on the development host (2 CPUs, Linux 6.18, 25 November 2026, the host quiet), medians of three
    /// calibrations: where calibrating takes longer than it can save, these choose the method.
    pub const USUAL: Self = Self {
        open: 881.0,
        open_member: 5.9,
        enable: 707.0,
        reschedule: 49.8,
        read: 335.0,
        read_member: 48.9,
        disable: 330.0,
        disable_member: 51.3,
        close: 522.0,
        close_member: 5.1,
        ipi: 26_000.0,
        migrate: 34_000.0,
        thread: 43_500.0,
        round: 18_500.0,
        shootdown: 0.0,
        queue: 0.0,
        flips: 60_000.0,
        workers: 2.0,
        online: 2.0,
    };

    /// Measures workers on some of `cpus`, on these at once, and returns the costs with those of workers on all: what each takes,
    /// and by how much each further one lengthens the others' time.
    pub fn with_workers(self, anchors: &Anchors, cpus: &[u32]) -> Self {
        let some = spread(cpus, sampled(cpus.len()));
        let (workers, all) = (some.len().max(1) as f64, cpus.len().max(1) as f64);
        let few = anchors.sample(WORK, true);
        let method = Method { pack: Some(WORK), ..Method::THREADS };
        let found = crew_times(&job(&few, &some, method));
        let in_group = (self.open_member + self.close_member) * (WORK - 1) as f64 / 2.0;
        let one = (self.open + self.close + in_group).max(1.0);
        // A phase lasts as long as the slowest of its workers, beside one alone at that moment. Of two it is mostly the request.
        let slowest =
            |times: &CrewTimes| times.slowest.saturating_sub(2 * times.request).as_nanos() as f64 / WORK as f64;
        let (both, one) = if some.len() > 2 {
            (slowest(&found), slowest(&crew_times(&job(&few, &some[..1], method))).clamp(1.0, one))
        } else {
            (found.calls_ns.iter().map(|calls| mean(calls)).sum(), one)
        };
        let longer = (both / one - 1.0).max(0.0);
        let thread = found.threads.as_nanos() as f64 / workers;
        let further = workers - self.workers;
        // Two workers come first: what more of them take beyond as many times the two is what they do to one another.
        let shootdown =
            if self.workers > 0.0 && further > 0.0 { ((thread - self.thread) / further).max(0.0) } else { 0.0 };
        let thread = if self.workers > 0.0 { self.thread } else { thread };
        let round = found.request.as_nanos() as f64 / workers;
        Self { thread, shootdown, round, queue: share(longer, workers, all), workers: all, ..self }
    }

    fn zip(&self, other: &Self, f: fn(f64, f64) -> f64) -> Self {
        Self {
            open: f(self.open, other.open),
            open_member: f(self.open_member, other.open_member),
            enable: f(self.enable, other.enable),
            reschedule: f(self.reschedule, other.reschedule),
            read: f(self.read, other.read),
            read_member: f(self.read_member, other.read_member),
            disable: f(self.disable, other.disable),
            disable_member: f(self.disable_member, other.disable_member),
            close: f(self.close, other.close),
            close_member: f(self.close_member, other.close_member),
            ipi: f(self.ipi, other.ipi),
            migrate: f(self.migrate, other.migrate),
            thread: f(self.thread, other.thread),
            round: f(self.round, other.round),
            shootdown: f(self.shootdown, other.shootdown),
            queue: f(self.queue, other.queue),
            flips: f(self.flips, other.flips),
            workers: self.workers,
            online: self.online,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_measured_with_the_kinds_that_are_asked_for() {
        let list = |text: &str| resolve(&parse(text).unwrap(), &mut Sysfs::at("/nonexistent"));
        let events = list("cs,cs,cs,page-faults,dummy,dummy,dummy,dummy").events;
        let anchors = Anchors { fds: Vec::new(), took: Duration::ZERO, events, kinds: Vec::new() };
        let names = |n: usize| anchors.sample(n, true).events.into_iter().map(|event| event.name).collect::<Vec<_>>();
        assert_eq!(names(4), ["cs", "cs", "dummy", "dummy"]);
        assert_eq!(names(9)[7..], ["dummy", "cs"], "again from the start");
        assert_eq!(anchors.sample(4, false).groups.len(), 4);
        // Nothing of these is measured: tracepoints close in tens of ms, the others do not open.
        let none = Anchors::open(&list("nothing,duration_time"), 0);
        assert!(none.kinds.is_empty() || none.kinds == ["cpu-clock as a stand-in"], "{:?}", none.kinds);
        assert_eq!(none.sample(3, true).events[2].name, "cpu-clock");
    }

    #[test]
    fn workers_that_were_not_measured_promise_nothing() {
        assert_eq!([2, 4, 8, 32, 94, 384].map(sampled), [2, 4, 4, 8, 16, 16]);
        assert!((share(0.5, 2.0, 2.0) - 0.5).abs() < 1e-9 && share(0.0, 2.0, 2.0).abs() < 1e-9);
        // Sixteen that did not meet: 94 take as long as if these did all the work.
        assert!((1.0 + 93.0 * share(0.0, 16.0, 94.0) - 94.0 / 16.0).abs() < 1e-9);
        // Sixteen that queued: each further one adds its part.
        assert!((share(15.0, 16.0, 94.0) - 1.0).abs() < 1e-9);
    }
}
