//! MSR accesses of a guest simulated per second on one core, by strategy: `cargo bench -p sim --bench speed`.
//!
//! The column to read is `item/s`: an item is one access that exited, with all that follows from it. The machine is
//! rarely quiet, and whatever disturbs a run makes it slower: `fastest` shows the code's own speed.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{FOUR, SINGLE, TEN, boot, plan};
use divan::Bencher;
use divan::counter::ItemsCount;
use sim::model::Model;

/// Every preset whose accesses exit: all but `mediated`.
const STRATEGIES: [&str; 9] =
    ["floor", "recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual"];
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
