//! One simulated vCPU and nothing else, to count instructions by: `valgrind --tool=callgrind accesses STRATEGY EVENTS
//! SAMPLES [MODEL]`.
//!
//! Prints the MSR accesses that exited. EVENTS is 1, 4 or 10. The instructions of an access are those that a run of
//! twice the samples has more, over the accesses that it has more; `.ci/sim-instructions` does that.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{FOUR, SINGLE, TEN, boot, plan};
use sim::model::Model;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [strategy, events, samples, model @ ..] = &arguments[..] else {
        panic!("usage: accesses STRATEGY EVENTS SAMPLES [MODEL]");
    };
    let events = match events.as_str() {
        "1" => SINGLE,
        "4" => FOUR,
        _ => TEN,
    };
    let model = model.first().map_or("clx-ap-watchdog-on", String::as_str);
    let model = Model::embedded(model).expect("an embedded model");
    let samples = samples.parse().expect("a number of samples");
    let guests = sim::host::run(&model, &plan(strategy, &boot(events, 2_000_000, samples, u64::MAX)), 0);
    let accesses: u64 = guests[0].side.msrs.iter().map(|line| line.reads + line.writes).sum();
    println!("{accesses}");
}
