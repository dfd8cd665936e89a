//! Traces of simulated guests, replayed: under the strategy of the trace to the letter, under another with the operations of a run with that.

mod common;

use std::rc::Rc;

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;
use common::{FOUR, SINGLE, TEN, boot, plan, trace_of};
use counts::Counts;
use host_pmu::stats::{HostSide, OpKind};
use host_pmu::strategy::{PRESETS, Strategy};
use host_pmu::trace::{Kind, PENDING, Row};
use proptest::collection::vec;
use proptest::prelude::*;
use sim::host::Plan;
use sim::model::{CountBase, Model};
use sim::replay::{Divergence, Replay, Replayed};

fn replay(model: &Model, plan: &Plan, strategy: &str, rows: &[Row]) -> Replayed {
    let strategy = Strategy::preset(strategy).expect("a preset");
    let mut replay = Replay::new(&Rc::new(model.clone()), plan.pmu, &strategy, plan.seed, 0);
    // Batches end anywhere.
    for part in rows.chunks(1009) {
        replay.feed(part);
    }
    replay.finish()
}

fn ops(of: &HostSide) -> [u64; 6] {
    OpKind::ALL.map(|kind| of.ops.count(kind))
}

/// Those whose events run on while their counters are off count what no trace has.
fn replayed() -> impl Iterator<Item = &'static str> {
    PRESETS.into_iter().filter(|preset| *preset != "virtual")
}

#[test]
fn under_its_own_strategy_a_trace_gives_the_same_registers_pmis_and_operations() {
    for model in ["clx-ap-watchdog-on", "development-host", "development-host-tracepoint", "icx-2021"] {
        let model = Model::embedded(model).unwrap();
        for (name, events) in [("single", SINGLE), ("four", FOUR), ("ten", TEN)] {
            for preset in replayed() {
                let plan = plan(preset, &boot(events, 400_000, 300, 500));
                let (ran, rows) = trace_of(&model, &plan);
                let found = replay(&model, &plan, preset, &rows);
                let what = format!("{} {name} {preset}", model.name);
                assert_eq!((found.divergences, found.first, found.missing), (0, None, 0), "{what}");
                let exits: u64 = ran.side.msrs.iter().map(|line| line.reads + line.writes).sum();
                assert_eq!(found.accesses, exits, "{what}");
                let counts = |counts: &Counts| {
                    [
                        counts.overflows,
                        counts.pmi_requests,
                        counts.pmis,
                        counts.empty_kicks,
                        counts.sched_ins,
                        counts.opens,
                    ]
                };
                assert_eq!(counts(&found.counts), counts(&ran.side.counts), "{what}");
                let [mine, theirs] = [&found.handler, &found.recorded].map(|of| of.histogram().mean());
                // Clocks expire in the host's own time as well, and of those that no signal told no trace has any.
                let bound = if model.base == CountBase::ThreadTime { 0.05 } else { 0.0 };
                let is_near = found.handler.count() == 0 || (mine / theirs - 1.0).abs() <= bound;
                assert!(is_near && found.handler.count() == found.recorded.count(), "{what}: {mine} ns for {theirs}");
                let (mut mine, theirs) = (ops(&found.host), ops(&ran.side.host));
                let period = OpKind::Period as usize;
                if preset.starts_with("gate") && model.base == CountBase::ThreadTime {
                    // A clock behind a gate may expire again before the gate shuts, and no trace has that.
                    assert!(
                        mine[period].abs_diff(theirs[period]) * 100 <= theirs[period],
                        "{what}: {mine:?} {theirs:?}"
                    );
                    mine[period] = theirs[period];
                }
                assert_eq!(mine, theirs, "{what}");
            }
        }
    }
}

/// With hyper-threading each thread has half of the counters, and the watchdog holds one.
#[test]
fn a_gate_falls_apart_for_a_trace_where_it_does_for_its_guest() {
    let text = include_str!("../models/clx-ap-watchdog-on.toml").replace("cascade-lake-no-smt", "cascade-lake");
    let few = Model::from_toml("few", &text).unwrap();
    let many = Model::embedded("clx-ap-watchdog-on").unwrap();
    for (events, model, falls) in [(TEN, &few, true), (SINGLE, &few, false), (TEN, &many, false)] {
        let plan = plan("gate", &boot(events, 400_000, 50, 100));
        let (_, rows) = trace_of(&many, &plan);
        let (ran, _) = trace_of(model, &plan);
        for preset in ["gate", "gate-pool"] {
            let found = replay(model, &plan, preset, &rows);
            let fell = [&found.counts, &ran.side.counts].map(|counts| counts.ungated > 0);
            assert_eq!(fell, [falls; 2], "{} {preset}", model.name);
        }
        let lost = replay(model, &plan, "reuse", &rows).counts.pinned_errors > 0;
        assert_eq!(lost, falls, "{}: single events", model.name);
    }
}

#[test]
fn under_another_strategy_a_trace_gives_the_operations_of_a_run_with_that() {
    let model = Model::embedded("clx-ap-watchdog-on").unwrap();
    for (name, events) in [("single", SINGLE), ("four", FOUR), ("ten", TEN)] {
        let runs: Vec<_> = replayed()
            .map(|preset| (preset, trace_of(&model, &plan(preset, &boot(events, 2_000_000, 500, 5000)))))
            .collect();
        for (from, (_, rows)) in runs.iter().filter(|(from, _)| ["recreate", "reuse-lazy", "gate"].contains(from)) {
            for (to, (ran, _)) in &runs {
                let found = replay(&model, &plan(to, &boot(events, 0, 0, 0)), to, rows);
                let per_pmi =
                    |side: &HostSide, counts: &Counts| ops(side).iter().sum::<u64>() as f64 / counts.pmis as f64;
                let ratio = per_pmi(&found.host, &found.counts) / per_pmi(&ran.side.host, &ran.side.counts);
                // A long handler has more overflows in it, and the gate sets a period for each of them and does little else.
                let bound = if *from == "recreate" && to.starts_with("gate") { 0.05 } else { 0.03 };
                assert!((ratio - 1.0).abs() <= bound, "{name} {from} to {to}: {ratio}");
                assert_eq!(found.divergences, 0, "{name} {from} to {to}: {:?}", found.first);
            }
        }
    }
}

#[test]
fn parts_of_a_replay_add_up_to_the_whole() {
    let model = Model::embedded("clx-ap-watchdog-on").unwrap();
    let (_, rows) = trace_of(&model, &plan("reuse-lazy", &boot(TEN, 400_000, 300, 500)));
    for preset in replayed() {
        let plan = plan(preset, &boot(TEN, 0, 0, 0));
        let whole = replay(&model, &plan, preset, &rows);
        let strategy = Strategy::preset(preset).unwrap();
        let mut parts = Replay::new(&Rc::new(model.clone()), plan.pmu, &strategy, plan.seed, 0);
        let (mut sum, mut before) = (Replayed::default(), 0);
        for part in rows.chunks(97) {
            parts.feed(part);
            sum.merge(&parts.take());
            assert!(parts.host_ns() >= before, "{preset}");
            before = parts.host_ns();
        }
        let operations = OpKind::ALL.map(|kind| whole.host.ops.total_ns(kind)).iter().sum::<u64>();
        assert!(before >= operations, "{preset}: {before} ns, of it {operations} in operations");
        sum.merge(&parts.finish());
        let all = |of: &Replayed| {
            let counts = [of.counts.pmis, of.counts.opens, of.counts.held_ns, of.counts.time_ns, of.counts.signals];
            (ops(&of.host), counts, [of.accesses, of.divergences, of.pmis, of.pmis_missing, of.handler.count()])
        };
        assert_eq!((all(&sum), sum.first), (all(&whole), whole.first), "{preset}");
    }
}

#[test]
fn a_switch_between_an_access_and_its_entry_takes_no_counts_from_it() {
    let model = Model::embedded("clx-ap-watchdog-on").unwrap();
    let plan = plan("paused-flag", &boot(TEN, 400_000, 50, 100));
    let (_, rows) = trace_of(&model, &plan);
    let is_count = |row: &Row| row.kind.is_count();
    // As a strategy has it that hands counts over at the access, and as one that does at the entry.
    for before in [false, true] {
        let mut switched = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let neighbour = if before { at.checked_sub(1) } else { Some(at + 1) };
            let neighbour = neighbour.and_then(|at| rows.get(at));
            let first = is_count(row) && neighbour.is_some_and(|row| matches!(row.kind, Kind::Write | Kind::Entry));
            let slice = Row { kind: Kind::Slice, register: 0, value: 0, ..*row };
            let both = if before { [slice, *row] } else { [*row, slice] };
            switched.extend(if first { &both[..] } else { std::slice::from_ref(row) });
        }
        assert!(switched.len() > rows.len() + 50);
        for preset in ["recreate", "paused-flag", "gate"] {
            let found = replay(&model, &plan, preset, &switched);
            assert_eq!((found.divergences, found.first), (0, None), "{preset} {before}");
        }
    }
}

#[test]
fn what_a_trace_says_otherwise_is_a_divergence_with_its_place() {
    let model = Model::embedded("clx-ap-watchdog-on").unwrap();
    let plan = plan("reuse", &boot(TEN, 400_000, 50, 100));
    let (_, mut rows) = trace_of(&model, &plan);
    let at = rows.iter().position(|row| row.kind == Kind::Read && row.register == 0x38e && row.value != 0).unwrap();
    let replayed = rows[at].value;
    rows[at].value ^= 1 << 40;
    let found = replay(&model, &plan, "reuse", &rows);
    let first = Divergence { row: at as u64, recorded: rows[at], replayed: Some(replayed) };
    assert_eq!((found.divergences, found.first), (1, Some(first)));
    // A PMI that the replay lacks differs, and one that no guest sees is apart; of merged ones the guest sees the first.
    rows[at].value = replayed;
    let pmi = rows.iter().position(|row| row.kind == Kind::Pmi).unwrap();
    let pmis =
        |found: &Replayed| [found.pmis, found.counts.pmis, found.pmis_missing, found.pmis_differ, found.masked_differ];
    let all = found.counts.pmis;
    for (value, expected) in [
        (rows[pmi].value, [all + 1, all, 1, 1, 0]),
        (0x1_0000, [all, all, 0, 0, 1]),
        (rows[pmi].value | PENDING, [all, all, 0, 0, 1]),
    ] {
        let mut rows = rows.clone();
        rows.insert(pmi + 1, Row { value, ..rows[pmi] });
        let found = replay(&model, &plan, "reuse", &rows);
        assert_eq!(
            (pmis(&found), found.divergences, found.first.is_some()),
            (expected, 0, expected[3] > 0),
            "{value:#x}"
        );
    }
    // RDPMC of no counter is #GP, though an MSR of this number can be read.
    let mut faults = rows.clone();
    faults.insert(at, Row { kind: Kind::RdpmcFault, register: 0x186, ..rows[at] });
    assert_eq!(replay(&model, &plan, "reuse", &faults).divergences, 0);
    // One that comes at a later entry is no other one.
    let mut early = rows.clone();
    let entry = rows[..pmi].iter().rposition(|row| row.kind == Kind::Entry).unwrap();
    early[entry..=pmi].rotate_right(1);
    assert_eq!(pmis(&replay(&model, &plan, "reuse", &early)), [all, all, 0, 1, 0]);
    // A row that is missing is said; what follows from it is counted.
    rows[at] = Row { kind: Kind::Lost, value: 3, ..rows[at] };
    assert_eq!(replay(&model, &plan, "reuse", &rows).missing, 3);
    // Rows in any order and of any content end nothing but the replay's likeness.
    rows.reverse();
    rows.iter_mut().zip(0u32..).for_each(|(row, n)| {
        row.register = row.register.rotate_left(n);
        row.kind = Kind::ALL[(row.kind as usize + n as usize / 7) % Kind::ALL.len()];
    });
    assert!(replay(&model, &plan, "gate", &rows).divergences > 0);
}

/// Registers that a row is likely to be about.
const REGISTERS: [u32; 12] = [0, 1, 8, 0xc1, 0xc4, 0x186, 0x189, 0x309, 0x38d, 0x38f, 0x390, 0x4c1];

proptest! {
    /// Whatever a trace says, a replay ends, and nothing in it panics.
    #[test]
    fn a_hostile_trace_is_replayed_to_its_end(
        rows in vec((any::<u64>(), 0..Kind::ALL.len(), 0..14usize, any::<u64>(), 0..4u32), 0..400),
        preset in 0..PRESETS.len() - 1, amd: bool,
    ) {
        let model = Model::embedded("clx-ap-watchdog-on").unwrap();
        let pmu: PmuCaps = if amd { AmdCaps::GENOA.into() } else { IntelCaps::default().into() };
        let strategy = Strategy::preset(replayed().nth(preset).unwrap()).unwrap();
        let mut replay = Replay::new(&Rc::new(model), pmu, &strategy, 1, 0);
        for &(at, kind, register, value, small) in &rows {
            let register = REGISTERS.get(register).copied().unwrap_or(value as u32);
            replay.feed(&[Row { at, kind: Kind::ALL[kind], register, value: value >> (16 * small), ..Row::default() }]);
        }
        prop_assert!(replay.finish().accesses <= rows.len() as u64);
    }
}
