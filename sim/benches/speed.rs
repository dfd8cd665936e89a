//! MSR accesses of a guest simulated per second on one core, by strategy: `cargo bench -p sim --bench speed`.
//!
//! The column to read is `item/s`: an item is one access that exited, with all that follows from it. The machine is
//! rarely quiet, and whatever disturbs a run makes it slower: `fastest` shows the code's own speed.

#[path = "../tests/common/mod.rs"]
mod common;

use std::rc::Rc;

use arch_pmu::intel::IntelCaps;
use common::{FOUR, SINGLE, TEN, boot, plan, trace_of};
use divan::Bencher;
use divan::counter::ItemsCount;
use host_pmu::strategy::Strategy;
use sim::model::Model;
use sim::replay::Replay;

/// Every preset whose accesses exit: all but `mediated`.
const STRATEGIES: [&str; 9] =
    ["floor", "recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual"];
/// Presets that a trace can be replayed under.
const REPLAYED: [&str; 5] = ["reuse-lazy", "recreate", "deferred", "pool", "gate"];
/// NMIs of a run: some 400 000 accesses.
const SAMPLES: u64 = 40_000;

fn main() {
    divan::main();
}

fn accesses(bencher: Bencher<'_, '_>, strategy: &str, events: &[(u64, u64, u64)]) {
    let model = Model::embedded("clx-ap-watchdog-on").expect("an embedded model");
    let plan = plan(strategy, &boot(events, 2_000_000, SAMPLES, u64::MAX));
    let run = |number| sim::host::run(&model, &plan, number);
    // Costs are fixed in this model: each run has the same accesses.
    let accesses: u64 = run(0)[0].side.msrs.iter().map(|line| line.reads + line.writes).sum();
    bencher.counter(ItemsCount::new(accesses)).bench_local(|| run(divan::black_box(0)));
}

/// Replays a trace of ten sampling events, recorded under the first strategy.
#[divan::bench(args = REPLAYED, sample_count = 20, sample_size = 1)]
fn replay(bencher: Bencher<'_, '_>, strategy: &str) {
    let model = Model::embedded("clx-ap-watchdog-on").expect("an embedded model");
    let boot = boot(TEN, 2_000_000, SAMPLES, u64::MAX);
    let (_, rows) = trace_of(&model, &plan(REPLAYED[0], &boot));
    let (model, pmu) = (Rc::new(model), IntelCaps::default().into());
    let strategy = Strategy::preset(strategy).expect("a preset");
    let run = || {
        let mut replay = Replay::new(&model, pmu, &strategy, 1, 0);
        replay.feed(&rows);
        replay.finish()
    };
    bencher.counter(ItemsCount::new(run().accesses)).bench_local(|| divan::black_box(run()));
}

/// Runs one sampling event.
#[divan::bench(args = STRATEGIES, sample_count = 20, sample_size = 1)]
fn one_event(bencher: Bencher<'_, '_>, strategy: &str) {
    accesses(bencher, strategy, SINGLE);
}

/// Runs four sampling events on two fixed and two general-purpose counters, restarted at each tick.
#[divan::bench(args = STRATEGIES, sample_count = 20, sample_size = 1)]
fn four_events(bencher: Bencher<'_, '_>, strategy: &str) {
    accesses(bencher, strategy, FOUR);
}

/// Runs ten sampling events in turns on three fixed and four general-purpose counters.
#[divan::bench(args = STRATEGIES, sample_count = 20, sample_size = 1)]
fn ten_events(bencher: Bencher<'_, '_>, strategy: &str) {
    accesses(bencher, strategy, TEN);
}
