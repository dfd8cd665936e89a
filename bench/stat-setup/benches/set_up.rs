//! Splits the time of a set-up of 700 software events into its parts: `cargo bench -p stat-setup --bench set_up`.
//!
//! Setting up needs permission to count on CPUs; without it these two say so and time nothing.
#![allow(missing_docs, reason = "functions of a benchmark")]

use divan::{Bencher, black_box};
use stat_setup::bare::{self, Place};
use stat_setup::choose::choose;
use stat_setup::costs::Costs;
use stat_setup::list::parse::parse;
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{EventList, software_list};
use stat_setup::method::{Job, Use};
use stat_setup::run;
use stat_setup::unit::Outcome;

const EVENTS: usize = 700;

fn main() {
    divan::main();
}

fn list() -> EventList {
    let written = parse(&software_list(EVENTS)).expect("the list is sound");
    resolve(&written, &mut Sysfs::host())
}

/// Returns the CPUs, if events can be opened on them.
fn cpus(list: &EventList) -> Option<Vec<u32>> {
    let cpus = Sysfs::host().online();
    run::raise_file_limit((EVENTS * cpus.len()) as u64).ok()?;
    let able = bare::run(list, &cpus, Some(64), Place::Threads).is_some();
    if !able {
        eprintln!("skipped: no permission to count on CPUs: run as root, or set kernel.perf_event_paranoid=0");
    }
    able.then_some(cpus)
}

#[divan::bench]
fn parse_and_resolve() -> EventList {
    list()
}

#[divan::bench]
fn choice(bencher: Bencher<'_, '_>) {
    let list = list();
    bencher.bench_local(|| choose(black_box(&list), 2, &Costs::USUAL, Use::Stat, true));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn auto(bencher: Bencher<'_, '_>) {
    let list = list();
    let Some(cpus) = cpus(&list) else { return };
    let method = choose(&list, cpus.len(), &Costs::USUAL, Use::Stat, true).method;
    let job = Job { list: &list, cpus: &cpus, method, purpose: Use::Stat, ring_pages: 1, room: u64::MAX };
    bencher.bench_local(|| {
        let finished = run::run(&job, &mut |_, _| {});
        assert!(finished.outcomes.iter().all(Outcome::is_whole), "an event has no count");
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn bare_calls(bencher: Bencher<'_, '_>) {
    let list = list();
    let Some(cpus) = cpus(&list) else { return };
    let pack = choose(&list, cpus.len(), &Costs::USUAL, Use::Stat, true).method.pack;
    bencher.bench_local(|| bare::run(&list, &cpus, pack, Place::Threads));
}
