//! Time and memory of many vCPUs: `cargo bench -p sim --bench scale`.
//!
//! First one host with ever more vCPUs and simulated time, and the most memory the process held until then; then the promise of
//! 1 000 vCPUs that sample four events for ten simulated seconds.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{FOUR, boot, plan, run};
use sim::host::Plan;
use sim::model::Model;

/// Ticks of a simulated second.
const TICKS: u64 = 250;

/// Returns the most memory this process ever held, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn main() {
    let model = Model::embedded("clx-ap-watchdog-on").expect("an embedded model");
    let simulate = |hosts: u64, vcpus: u64, seconds: u64| {
        let one = plan("reuse-lazy", &boot(FOUR, 2_000_000, 0, seconds * TICKS));
        let plan = Plan { vcpus, cpus: vcpus, ..one };
        let begin = Instant::now();
        let totals = run(&model, &plan, hosts);
        println!(
            "{hosts:>4} hosts × {vcpus:>4} vCPUs × {seconds:>2} s: {:>8} PMIs, {:>9} MSR accesses, {:>5.1} s on {} threads, {:>4} MiB \
             at most so far",
            totals.counts.nmis,
            totals.accesses,
            begin.elapsed().as_secs_f64(),
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            peak_kib() / 1024
        );
    };
    for (vcpus, seconds) in [(100, 1), (100, 4), (400, 1), (1000, 1)] {
        simulate(1, vcpus, seconds);
    }
    simulate(1000, 1, 10);
}
