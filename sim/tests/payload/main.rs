//! The simulated guest does what the payload does: the payload's own code is executed beside it, on CPUs that answer
//! both the same, and everything that they ask for has to be equal, with the instructions before each access, the log
//! and the report.

#![expect(clippy::unwrap_used, reason = "tests")]

mod guest;
mod machine;
mod scripted;
mod solve;

use std::collections::BTreeSet;

use ::guest::abi::{
    BootPage, EventSpec, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, FLAG_TASK_SWITCH, FLAG_TIME_LOOP, FLAG_TURNS, LogEntry,
    Report, WORKLOAD_FTEST, WORKLOAD_IDLE, WORKLOAD_IO,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use sim::guest::cpu::Cpu as _;
use sim::guest::paths::{COMPILER, Path};
use sim::guest::{Driver, Guest, Timer};

use guest::Payload;
use scripted::{Asked, Chances, Scripted, Step};
use solve::Measured;

const TSC_KHZ: u64 = 2_000_000;
/// Enough for every path to be gone.
const CASES: usize = 600;
const WORK_UNIT: u64 = 4000;

/// Report and log that a guest left at a rest or its end.
type Left = (Report, Vec<LogEntry>);

fn simulated(case: &Case) -> (Vec<Left>, Vec<Step>) {
    let cpu = Scripted::new(case.chances, TSC_KHZ);
    let mut guest = Guest::new(cpu, (case.driver, &case.boot), (Timer::Periodic, u64::MAX), TSC_KHZ, WORK_UNIT);
    let mut left = Vec::new();
    let mut next = case.turns.iter();
    loop {
        while !guest.step() {}
        let outcome = guest.take_outcome();
        left.push((*outcome.report, outcome.log));
        if !guest.rests() {
            return (left, std::mem::take(&mut guest.cpu_mut().steps));
        }
        let at = guest.now();
        match next.next() {
            Some(&(samples, wait)) => guest.begin_turn(at + wait, samples),
            None => guest.begin_end(at),
        }
    }
}

fn executed(case: &Case) -> (Vec<Left>, Vec<Step>) {
    let cpu = Scripted::new(case.chances, TSC_KHZ);
    let mut payload = Payload::new(cpu, (case.driver, &case.boot), TSC_KHZ, WORK_UNIT);
    let mut left = Vec::new();
    let mut next = case.turns.iter();
    loop {
        payload.run();
        left.push((payload.report(), payload.log()));
        if payload.is_done() {
            return (left, payload.cpu.steps);
        }
        let at = payload.cpu.now();
        match next.next() {
            Some(&(samples, wait)) => payload.begin_turn(at + wait, samples),
            None => payload.begin_end(at),
        }
    }
}

/// Compares what both asked, and adds the instructions before each access to `measured`.
fn compare(simulated: &[Step], executed: &[Step], clock_counts: bool, measured: &mut Measured) -> Result<(), String> {
    for (n, (ours, theirs)) in simulated.iter().zip(executed).enumerate() {
        // With other numbers of instructions the clocks differ, and so does all that comes after.
        let clocks_differ = clock_counts && ours.instructions != theirs.instructions;
        let same = if clocks_differ {
            std::mem::discriminant(&ours.asked) == std::mem::discriminant(&theirs.asked)
        } else {
            ours.asked == theirs.asked
        };
        if !same {
            let around = |steps: &[Step]| -> Vec<Asked> {
                steps[n.saturating_sub(6)..(n + 3).min(steps.len())].iter().map(|step| step.asked).collect()
            };
            let (ours, theirs) = (around(simulated), around(executed));
            return Err(format!("access {n}: the simulated guest {ours:x?}\nthe payload {theirs:x?}"));
        }
        measured.add(&ours.ways, theirs.instructions);
        if clocks_differ {
            return Ok(());
        }
    }
    let ends =
        |steps: &[Step]| format!("{} accesses, the last {:x?}", steps.len(), steps.last().map(|step| step.asked));
    if simulated.len() == executed.len() {
        return Ok(());
    }
    Err(format!("the simulated guest: {}, the payload: {}", ends(simulated), ends(executed)))
}

/// A boot page and chances for everything that the payload does.
#[derive(Clone, Debug)]
struct Case {
    driver: Driver,
    boot: BootPage,
    chances: Chances,
    /// The samples of each turn, and how long it waits before them.
    turns: Vec<(u64, u64)>,
}

impl Case {
    fn text(&self) -> String {
        let boot = BootPage { events: BootPage::default().events, ..self.boot };
        let text = format!("{boot:?}").split(", events:").next().map(str::to_owned).unwrap();
        let events = &self.boot.events[..self.boot.event_count as usize];
        format!("{:?} {text}\n{events:x?}\n{:?}, turns {:?}", self.driver, self.chances, self.turns)
    }
}

fn events() -> impl Strategy<Value = Vec<EventSpec>> {
    let period = prop_oneof![Just(0_u64), 1..4u64, 1000..1_000_000u64, 0x7fff_fff0..0x8000_0010u64];
    let event = (prop_oneof![Just(0_u64), Just(0x3c), Just(0xc0), 0..0xffffu64], 0..5u64, period, 0..4u64);
    let spec = event.prop_map(|(code, fixed, period, flags)| EventSpec {
        selector: code | 0x10_0000 | flags << 16,
        fixed,
        period,
    });
    proptest::collection::vec(spec, 0..14)
}

fn case() -> impl Strategy<Value = Case> {
    let flags = prop_oneof![
        4 => Just(0), 2 => Just(FLAG_TASK_SWITCH), 2 => Just(FLAG_TURNS), 1 => Just(FLAG_TIME_LOOP),
        1 => Just(FLAG_TURNS | FLAG_TASK_SWITCH), 2 => Just(FLAG_STAT_SETUP), 1 => Just(FLAG_STAT_SETUP | FLAG_ENABLE_ONCE)
    ];
    let workload = prop_oneof![4 => Just(WORKLOAD_FTEST), 1 => Just(WORKLOAD_IO), 1 => Just(WORKLOAD_IDLE)];
    let driver = prop_oneof![2 => Just(Driver::Intel), 1 => Just(Driver::AmdCore), 1 => Just(Driver::AmdV2)];
    let guest = (driver, flags, workload, 0..=8u64, 0..=4u64, prop_oneof![Just(0), Just(1000), Just(50_000_u64)]);
    let times = (
        prop_oneof![50_000..400_000u64, 1_000_000..4_000_000u64],
        0..3u64,
        prop_oneof![4 => 0..12u64, 1 => 20..40u64],
        0..4u64,
        0..20u64,
    );
    let more = (prop_oneof![Just(0), Just(3), Just(4000_u64)], 1..5u64, 0..3u64, 1..5000u64);
    let user = prop_oneof![4 => 300_000..9_000_000u64, 1 => 20_000..80_000u64];
    let chances = (
        any::<u64>(),
        0..40u64,
        prop_oneof![4 => 200..900u64, 1 => 985..1000u64],
        1..40u32,
        1..3000u64,
        user,
        prop_oneof![Just(0_u64), Just(400)],
    );
    let turns = proptest::collection::vec((0..8u64, 0..100_000u64), 0..4);
    (events(), guest, times, more, chances, turns).prop_map(|(events, guest, times, more, chances, turns)| {
        let (driver, flags, workload, gp_counters, fixed_counters, freq_hz) = guest;
        let fixed_counters = if driver == Driver::Intel { fixed_counters } else { 0 };
        let (tick_count, baseline_ticks, max_ticks, tail_ticks, sample_target) = times;
        let (log_capacity, window_ticks, gap_ticks, limit_us) = more;
        let mut boot = BootPage {
            flags,
            workload,
            gp_counters,
            fixed_counters,
            freq_hz,
            tick_count,
            baseline_ticks,
            max_ticks,
            tail_ticks,
            sample_target,
            log_capacity,
            window_ticks,
            gap_ticks,
            limit_us,
            event_count: events.len() as u64,
            ..BootPage::default()
        };
        boot.events[..events.len()].copy_from_slice(&events);
        let (seed, nmis, overflows, counts, exit_ns, user_ns, instruction_ps) = chances;
        let counters = ((1 << gp_counters) - 1) | ((1 << fixed_counters) - 1) << 32;
        Case {
            driver,
            boot,
            chances: Chances { seed, nmis, overflows, counters, counts, exit_ns, user_ns, instruction_ps },
            turns,
        }
    })
}

/// Many overflows of a rare event between two ticks, which shorten its period to less than an eighth of the rest.
fn shortened() -> Case {
    let mut boot = BootPage {
        gp_counters: 1,
        tick_count: 8_000_000,
        max_ticks: 40,
        tail_ticks: 1,
        freq_hz: 50_000,
        event_count: 1,
        ..BootPage::default()
    };
    boot.events[0] = EventSpec { selector: 0x13_00c0, fixed: 0, period: 0x7fff_0000 };
    let chances = Chances {
        seed: 1,
        nmis: 0,
        overflows: 600,
        counters: 1,
        counts: 1,
        exit_ns: 1000,
        user_ns: 300_000,
        instruction_ps: 400,
    };
    Case { driver: Driver::Intel, boot, chances, turns: Vec::new() }
}

/// Both guests on CPUs of chance.
fn check(case: &Case, measured: &mut Measured) -> Result<usize, String> {
    let ((their_left, theirs), (our_left, ours)) = (executed(case), simulated(case));
    compare(&ours, &theirs, case.chances.instruction_ps > 0, measured)?;
    let same_clock = ours.iter().zip(&theirs).all(|(a, b)| a.instructions == b.instructions);
    if same_clock && our_left != their_left {
        return Err(format!("the simulated guest left {our_left:?}\nthe payload {their_left:?}"));
    }
    Ok(theirs.len())
}

#[test]
fn the_simulated_guest_is_the_payload() {
    let mut measured = Measured::default();
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let (mut steps, mut cases) = (0, 0);
    let random = std::iter::repeat_with(|| case().new_tree(&mut runner).unwrap().current());
    for case in [shortened()].into_iter().chain(random.take(CASES)) {
        match check(&case, &mut measured) {
            Ok(n) => steps += n,
            Err(why) => panic!("{why}\n{}", case.text()),
        }
        cases += 1;
    }
    eprintln!("{cases} cases, {steps} accesses, {} ways", measured.ways.len());
    let gone: BTreeSet<Path> = measured.ways.keys().flat_map(|ways| ways.keys().copied()).collect();
    let never: Vec<_> = Path::ALL.iter().filter(|path| !gone.contains(path)).collect();
    assert!(never.is_empty(), "no case goes {never:?}");
    let Some(verdict) = measured.verdict() else { return };
    // Other compilers make other code of the same payload; results must not depend on them.
    assert!(::guest::COMPILER != COMPILER, "sim/src/guest/paths.rs is not of this payload. {verdict}");
    eprintln!("skipped: instructions are those of {COMPILER}, this payload was compiled by {}", ::guest::COMPILER);
}
