//! Strategy `auto`: the method with the lowest predicted cost, from call costs measured on this host.

use serde::{Deserialize, Serialize};

use crate::costs::{Costs, measuring, share};
use perf_event_open_sys::bindings as perf;

use crate::list::{Class, EventList, Openable};
use crate::method::{MAX_PACK, Method, Order, Phase, Phases, Use, layout};
use crate::monitor::Traffic;

/// A method and its predicted duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Description.
    pub what: String,
    /// The method.
    pub method: Method,
    /// Sum over all phases, ns.
    pub predicted_ns: f64,
}

/// Choice of `auto`, with the alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// Reason: its prediction beside the best of the other kinds.
    pub why: String,
    /// The best method of each kind, the one chosen first.
    pub candidates: Vec<Candidate>,
    /// Predicted time of the method by the most that each cost was found to be, ns: what load adds is not in the least.
    #[serde(default)]
    pub most_ns: Option<f64>,
}

/// Pack sizes to try.
const PACKS: [usize; 15] = [2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, MAX_PACK];
const PHASES: [Phase; 5] = [Phase::Open, Phase::Enable, Phase::Read, Phase::Disable, Phase::Close];

/// Moves to each CPU in a phase: back no move is made, only the mask is restored.
const MOVES: u64 = 1;
/// Function calls of ten moves: each move is a reschedule, and four of five are a function call besides (perf 6.1 on 94 emulated CPUs).
const CALLS_OF_TEN_MOVES: u64 = 8;
/// Interrupts that CPUs receive of a move.
pub const INTERRUPTS_OF_A_MOVE: f64 = 1.0 + CALLS_OF_TEN_MOVES as f64 / 10.0;

/// Work of one phase on one CPU: duration of local calls, and number of calls that need an IPI from another CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    ns: f64,
    remote: f64,
}

/// Returns the work of each phase on one CPU for groups of the given sizes.
fn work(sizes: &[usize], costs: &Costs) -> [Work; 5] {
    let mut all = [Work::default(); 5];
    let [open, enable, read, disable, close] = &mut all;
    let mut active = 0.0;
    for &size in sizes {
        let n = size as f64;
        // Each open walks the members already in the group: 0 + 1 + ... + (n - 1).
        let meetings = n * (n - 1.0) / 2.0;
        open.ns += n * costs.open + meetings * costs.open_member;
        active += n;
        enable.ns += costs.enable + active * costs.reschedule;
        read.ns += costs.read + (n - 1.0) * costs.read_member;
        disable.ns += costs.disable + (n - 1.0) * costs.disable_member;
        close.ns += n * costs.close + meetings * costs.close_member;
        close.remote += n;
    }
    // The open of a disabled event needs no IPI since Linux 5.5 (db0503e4f675).
    for phase in [enable, read, disable] {
        phase.remote = sizes.len() as f64;
    }
    all
}

/// Returns the predicted duration for groups of the given sizes on each of `cpus` CPUs, ns, and the phases in which
/// moving is cheaper. Mapping and unmapping, which cost every method the same, are not in it.
fn predict(sizes: &[usize], cpus: usize, threads: bool, queue: f64, costs: &Costs, purpose: Use) -> (f64, Phases) {
    let work = work(sizes, costs);
    let work = || work.iter().zip(PHASES).filter(|(_, phase)| purpose.phases().contains(phase));
    let m = cpus as f64;
    let mut moving = Phases::NONE;
    let mut total = costs.flips;
    if threads {
        total += m * (costs.thread + (m - 1.0) * costs.shootdown);
        for (work, phase) in work() {
            let bulk = matches!(phase, Phase::Open | Phase::Close);
            total += work.ns * (1.0 + if bulk { queue * (m - 1.0) } else { 0.0 }) + m * costs.round;
        }
        return (total, moving);
    }
    for (work, phase) in work() {
        // The process runs on a random online CPU; calls for that CPU need no IPI.
        let away = m - m / costs.online.max(m).max(1.0);
        let interrupts = away * work.remote * costs.ipi;
        let moves = m * MOVES as f64 * costs.migrate;
        if moves < interrupts {
            moving = moving.with(phase);
        }
        total += m * work.ns + interrupts.min(moves);
    }
    (total, moving)
}

/// Returns the share by which an open and a close take longer for each further worker, over the events of a list. Those of
/// tracepoints wait for one another whatever was measured (`event_mutex`), and so do those of software events that are no clocks
/// (`pmus_lock`, held for a walk over all possible CPUs) with more workers than were measured.
fn queue(list: &EventList, cpus: usize, costs: &Costs) -> f64 {
    let clocks = [perf::PERF_COUNT_SW_CPU_CLOCK, perf::PERF_COUNT_SW_TASK_CLOCK].map(u64::from);
    let of = |open: &Openable| match open.class {
        Class::Tracepoint => 1.0,
        Class::Software if cpus as f64 > costs.workers && !clocks.contains(&open.attr.config) => costs.queue.max(1.0),
        _ => costs.queue,
    };
    let all: Vec<f64> = list.events.iter().filter_map(|event| event.open.as_ref().ok()).map(of).collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Returns what event-major and cpu-major (a move to each CPU in each of five phases) do to `events` events in `leaders`
/// groups, since Linux 5.5: system calls on events and about affinity, moves, and interrupts received, all as function calls
/// for event-major. Of a list whose events program no PMU and do not begin or end the use of their kind.
pub fn orders(events: u64, leaders: u64, cpus: u64) -> [Traffic; 2] {
    let calls = (2 * events + 3 * leaders) * cpus;
    let away = cpus.saturating_sub(1);
    // Each phase but perhaps the first begins on the CPU where the last one ended.
    let moves = if away > 0 { PHASES.len() as u64 * MOVES * cpus } else { 0 };
    [
        Traffic {
            syscalls: Some(calls),
            // A disabled event opens without an interrupt (db0503e4f675).
            function_calls: Some((events + 3 * leaders) * away),
            reschedules: Some(0),
            migrations: Some(0),
            ..Traffic::default()
        },
        Traffic {
            // The mask is saved, set for each CPU, and restored.
            syscalls: Some(calls + PHASES.len() as u64 * (MOVES * cpus + 2)),
            function_calls: Some(moves * CALLS_OF_TEN_MOVES / 10),
            reschedules: Some(moves),
            migrations: Some(moves),
            ..Traffic::default()
        },
    ]
}

/// Returns the predicted durations of these, ns.
pub fn predicted_orders(list: &EventList, cpus: usize, costs: &Costs) -> [f64; 2] {
    let sizes = sizes(list, None);
    let local: f64 = work(&sizes, costs).iter().map(|work| cpus as f64 * work.ns).sum();
    let [event_major, cpu_major] = orders(sizes.iter().sum::<usize>() as u64, sizes.len() as u64, cpus as u64);
    let of = |count: Option<u64>, ns: f64| local + count.unwrap_or_default() as f64 * ns;
    [of(event_major.function_calls, costs.ipi), of(cpu_major.migrations, costs.migrate)]
}

fn sizes(list: &EventList, pack: Option<usize>) -> Vec<usize> {
    layout(list, pack).iter().map(|pack| pack.members.len()).collect()
}

/// Returns by how much a method must be predicted to be faster: threads on more than two CPUs were measured on some of these for
/// a moment, and make more calls.
fn margin(order: Order, cpus: usize) -> f64 {
    if order == Order::Threads && cpus > 2 { 2.0 } else { 1.0 }
}

/// Chooses the best method for the phases of `purpose`, of a list on `cpus` CPUs: threads, with a table each, where
/// not all descriptors fit into `one_table`; else threads only on as many CPUs as their costs were measured on.
pub fn choose(list: &EventList, cpus: usize, costs: &Costs, purpose: Use, one_table: bool) -> Choice {
    let queue = queue(list, cpus, costs);
    let mut candidates = Vec::new();
    let known = cpus as f64 <= costs.workers;
    for threads in [false, true].into_iter().filter(|&threads| if threads { known || !one_table } else { one_table }) {
        for packed in [false, true] {
            let packs: Vec<Option<usize>> = if packed { PACKS.into_iter().map(Some).collect() } else { vec![None] };
            let best =
                packs.into_iter().map(|pack| (pack, predict(&sizes(list, pack), cpus, threads, queue, costs, purpose)));
            let best = best.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
            let Some((pack, (predicted_ns, moving))) = best else { continue };
            let order = if threads { Order::Threads } else { Order::CpuMajor(moving) };
            let method = Method { order, pack, close_ranges: true, keep_last: true };
            candidates.push(Candidate { what: method.to_string(), method, predicted_ns });
        }
    }
    let weighed = |one: &Candidate| one.predicted_ns * margin(one.method.order, cpus);
    candidates.sort_by(|a, b| weighed(a).total_cmp(&weighed(b)));
    let us = |candidate: &Candidate| format!("{} ({:.0} µs predicted)", candidate.what, candidate.predicted_ns / 1e3);
    let rest: Vec<String> = candidates[1..].iter().map(us).collect();
    let unknown = if known { "" } else { "; threads were not measured on so many CPUs" };
    Choice {
        method: candidates[0].method,
        why: format!("{}; rather than {}{unknown}", us(&candidates[0]), rest.join("; ")),
        candidates,
        most_ns: None,
    }
}

impl Choice {
    /// Adds the prediction by `most`, the most of each cost.
    pub fn with_most(self, list: &EventList, cpus: usize, most: &Costs, purpose: Use) -> Self {
        let (threads, sizes) = (self.method.order == Order::Threads, sizes(list, self.method.pack));
        let ns = predict(&sizes, cpus, threads, queue(list, cpus, most), most, purpose).0;
        Self { most_ns: Some(ns), ..self }
    }
}

/// Returns whether threads on `cpus` CPUs may save more than it takes to measure some of them there, in time, with no more than an
/// eighth of the calls of the opens. What they may save is too much by what more than two do to one another.
pub fn threads_may_pay(list: &EventList, cpus: usize, costs: &Costs, purpose: Use) -> bool {
    let m = cpus as f64;
    let (workers, calls) = measuring(cpus);
    // Of what two workers of this host do to one another: the others are not measured yet.
    let two = queue(list, cpus, &Costs { workers: m, ..*costs });
    let queue = two.max(share(0.0, workers as f64, m));
    let least = |threads: bool| {
        let packs = PACKS.into_iter().map(|pack| sizes(list, Some(pack)));
        packs.map(|sizes| predict(&sizes, cpus, threads, queue, costs, purpose).0).fold(f64::INFINITY, f64::min)
    };
    let measuring = workers as f64 * (costs.thread + 5.0 * costs.round + 28.0 * (costs.open + costs.close));
    8 * calls <= cpus * list.events.len() && least(false) - margin(Order::Threads, cpus) * least(true) > measuring
}

/// Chooses for strategy `packed` the best pack size with one thread for all CPUs, and the phases in which to move.
pub fn tuned_pack(list: &EventList, cpus: usize, costs: &Costs, purpose: Use) -> Method {
    let prediction = |pack| predict(&sizes(list, Some(pack)), cpus, false, 0.0, costs, purpose);
    let best = PACKS.into_iter().map(|pack| (pack, prediction(pack)));
    let best = best.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
    best.map_or(Method::CPU_MAJOR, |(pack, (_, moving))| Method::packed(pack, moving))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{parse::parse, resolve::resolve, software_list, sysfs::Sysfs};

    fn list(text: &str) -> EventList {
        resolve(&parse(text).unwrap(), &mut Sysfs::at("/nonexistent"))
    }

    /// Magnitudes of a virtual machine with two CPUs.
    const COSTS: Costs = Costs {
        open: 1200.0,
        open_member: 13.0,
        enable: 500.0,
        reschedule: 60.0,
        read: 500.0,
        read_member: 20.0,
        disable: 400.0,
        disable_member: 20.0,
        close: 800.0,
        close_member: 8.0,
        ipi: 3000.0,
        migrate: 7000.0,
        thread: 30_000.0,
        round: 5000.0,
        shootdown: 0.0,
        queue: 0.5,
        flips: 0.0,
        workers: 2.0,
        online: 2.0,
    };

    #[test]
    fn every_call_but_those_of_the_own_cpu_is_an_interrupt_and_a_move_is_none_the_less() {
        let [event_major, cpu_major] = orders(700, 700, 94);
        assert_eq!(event_major.interrupts(), Some(4 * 700 * 93));
        assert_eq!((cpu_major.reschedules, cpu_major.migrations), (Some(470), Some(470)));
        assert_eq!(orders(700, 700, 1).map(Traffic::interrupts), [Some(0), Some(0)]);
        // The times are of these interrupts and moves.
        let of = |costs: Costs| predicted_orders(&list(&software_list(700)), 94, &costs);
        let [stay, moved] = [of(COSTS), of(Costs { ipi: COSTS.ipi + 1.0, migrate: COSTS.migrate + 1.0, ..COSTS })];
        assert!((moved[0] - stay[0] - 260_400.0).abs() < 1.0 && (moved[1] - stay[1] - 470.0).abs() < 1.0, "{moved:?}");
    }

    #[test]
    fn few_events_stay_where_they_are_and_many_are_packed() {
        let one = choose(&list("cs"), 2, &COSTS, Use::Stat, true);
        assert_eq!(one.method.order, Order::CpuMajor(Phases::NONE), "{one:?}");
        let many = choose(&list(&software_list(700)), 2, &COSTS, Use::Stat, true);
        assert_eq!(many.method.order, Order::Threads);
        assert!(many.method.pack.is_some_and(|size| (16..=192).contains(&size)), "{many:?}");
        assert!(many.why.contains("rather than"));
        assert!(many.candidates.windows(2).all(|pair| pair[0].predicted_ns <= pair[1].predicted_ns));
        // One event is quickest where it is, but two descriptors need not fit into one table.
        assert_eq!(choose(&list("cs"), 2, &COSTS, Use::Stat, false).method.order, Order::Threads);
        // Hardware events compete for counters: their groups stay as written.
        let hardware = choose(&list(&vec!["cycles"; 700].join(",")), 2, &COSTS, Use::Stat, true);
        assert_eq!(layout(&list("cycles,instructions"), hardware.method.pack).len(), 2);
    }

    #[test]
    fn threads_are_chosen_only_where_their_costs_are_known_and_pay() {
        let many = list(&software_list(700));
        let on = |cpus: usize, costs: &Costs| choose(&many, cpus, costs, Use::Stat, true).method.order;
        let measured = Costs { workers: 94.0, queue: 0.02, online: 94.0, ..COSTS };
        assert_eq!(on(94, &measured), Order::Threads);
        assert_ne!(on(94, &Costs { workers: 2.0, ..measured }), Order::Threads, "another host's constants");
        // A lock of the host, and one thread's end that costs all others: the square of the CPUs.
        assert_ne!(on(94, &Costs { queue: 1.5, ..measured }), Order::Threads);
        // Nor where they are not much faster: of eight CPUs that do the work of three.
        let eight = |queue: f64| on(8, &Costs { queue, ..measured });
        assert_eq!([eight(0.14) == Order::Threads, eight(0.6) == Order::Threads], [true, false]);
        assert_ne!(on(94, &Costs { shootdown: 60_000.0, ..measured }), Order::Threads);
        assert_eq!(on(4, &Costs { shootdown: 60_000.0, ..measured }), Order::Threads);
        // Nor do two workers that did not meet say that 94 do not: calls of 27 µs there, most of them in the lock.
        let there = Costs { open: 27e3, close: 27e3, queue: 0.0, workers: 2.0, online: 94.0, ..COSTS };
        let predicted = |events, one_table| choose(events, 94, &there, Use::Stat, one_table).candidates[0].predicted_ns;
        let [dummies, clocks] = ["dummy", "cpu-clock"].map(|name| list(&[name; 700].join(",")));
        assert!(predicted(&dummies, false) > 0.9 * predicted(&dummies, true), "all but all of it is opens and closes");
        assert!(predicted(&clocks, false) < predicted(&clocks, true), "clocks take no lock");
        // To measure 94 threads pays for many events, not for few, nor for what queues on a lock anyway.
        let pays = |text: &str, costs: &Costs| threads_may_pay(&list(text), 94, costs, Use::Stat);
        assert!(pays(&software_list(700), &measured) && !pays("cs,dummy", &measured));
        assert!(!pays(&software_list(700), &Costs { queue: 1.5, ..measured }));
    }

    #[test]
    fn one_cpu_may_be_another_than_the_own() {
        let many = list(&software_list(700));
        let dear = Costs { thread: 1e6, ..COSTS };
        let Order::CpuMajor(moving) = choose(&many, 1, &dear, Use::Stat, true).method.order else { panic!() };
        assert!(moving.has(Phase::Close));
        let alone = Costs { online: 1.0, ..dear };
        assert_eq!(choose(&many, 1, &alone, Use::Stat, true).method.order, Order::CpuMajor(Phases::NONE));
    }

    #[test]
    fn moving_pays_where_interrupts_cost_more() {
        let method = tuned_pack(&list(&software_list(700)), 2, &COSTS, Use::Stat);
        let Order::CpuMajor(moving) = method.order else { panic!("{method:?}") };
        assert!(moving.has(Phase::Close) && !moving.has(Phase::Open), "{method}");
        let free = Costs { ipi: 0.0, ..COSTS };
        let Order::CpuMajor(moving) = tuned_pack(&list("cs,cs,cs"), 2, &free, Use::Stat).order else { panic!() };
        assert_eq!(moving, Phases::NONE);
    }
}
