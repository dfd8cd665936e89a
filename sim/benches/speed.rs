//! How fast the simulator is: `cargo bench -p sim`.
//!
//! First the MSR accesses of a guest simulated per second on one core, by strategy; then 1 000 vCPUs that sample four events
//! for ten simulated seconds, with the time and the memory it takes.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{FOUR, SINGLE, boot, plan};
use sim::model::Model;
use sim::run;

const TARGET: f64 = 10e6;

/// Nanoseconds this thread spent on a CPU: other work on the machine does not count. Elapsed time where Linux does not tell.
fn cpu_ns(began: Instant) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    on_cpu.unwrap_or_else(|| began.elapsed().as_nanos() as u64)
}

/// Most memory this process ever held, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn main() {
    let model = Model::embedded("clx-ap-watchdog-on").expect("an embedded model");
    for (name, events) in [("1 event", SINGLE), ("4 events", FOUR)] {
        for strategy in ["floor", "recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool"] {
            let plan = plan(strategy, &boot(events, 2_000_000, 200_000, u64::MAX));
            let one = |number| sim::host::run(&model, &plan, number);
            one(0);
            let began = Instant::now();
            let before = cpu_ns(began);
            let left = one(1);
            let took = (cpu_ns(began) - before) as f64 / 1e9;
            let accesses: u64 = left[0].side.msrs.iter().map(|line| line.reads + line.writes).sum();
            let rate = accesses as f64 / took;
            println!(
                "{name}, {strategy:<12} {:6.2} million MSR accesses per second and core ({:.2} of the target)",
                rate / 1e6,
                rate / TARGET
            );
        }
    }
    let plan = plan("reuse-lazy", &boot(FOUR, 2_000_000, 0, 2500));
    let begin = Instant::now();
    let totals = run::run(&model, &plan, 1000);
    println!(
        "{} vCPUs, {:.1} simulated seconds each, {} PMIs, {} MSR accesses: {:.1} s on {} threads, {} MiB at most",
        totals.guests,
        totals.ns as f64 / totals.guests as f64 / 1e9,
        totals.nmis[1],
        totals.accesses,
        begin.elapsed().as_secs_f64(),
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        peak_kib() / 1024
    );
}
