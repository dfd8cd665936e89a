//! No method leaves descriptors or threads behind. Cases run one at a time: each counts the files of the process.

use std::process::ExitCode;

use stat_setup::list::parse::parse;
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{EventList, software_list, tracepoint_list};
use stat_setup::method::{Job, Method, Order, Phase, Phases, Use};
use stat_setup::run::run;
use stat_setup::unit::Outcome;
use trials::Case;

fn entries(dir: &str) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Descriptors and threads of this process.
fn held() -> (usize, usize) {
    (entries("/proc/self/fd"), entries("/proc/self/task"))
}

/// [`held`] once joined threads have left `/proc`; the kernel wakes the joiner earlier.
fn held_at_rest(threads: usize) -> (usize, usize) {
    for _ in 0..1000 {
        if held().1 <= threads {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    held()
}

fn list(text: &str, sysfs: &mut Sysfs) -> EventList {
    resolve(&parse(text).expect("a list"), sysfs)
}

/// The lists of the tests: mixed, empty, and tracepoints where there are any.
fn lists(sysfs: &mut Sysfs) -> Vec<EventList> {
    let mixed = format!("{},{{cs,nothing,dummy}}:W,{{cpu-clock,page-faults}}", software_list(45));
    let mut lists = vec![list(&mixed, sysfs), EventList::default()];
    if let Ok(text) = tracepoint_list(3, sysfs) {
        lists.push(list(&text, sysfs));
    }
    lists
}

fn nothing_is_left_open_and_all_methods_open_the_same() {
    let mut sysfs = Sysfs::host();
    let cpus = sysfs.online();
    let lists = lists(&mut sysfs);
    let packed = Method { pack: Some(16), close_ranges: true, keep_last: true, ..Method::CPU_MAJOR };
    let methods = [
        Method::EVENT_MAJOR,
        Method::CPU_MAJOR,
        Method::THREADS,
        packed,
        Method { order: Order::CpuMajor(Phases::NONE), pack: Some(1), ..packed },
        Method { order: Order::Threads, ..packed },
    ];
    let before = held();
    for list in &lists {
        let mut first: Option<Vec<std::mem::Discriminant<Outcome>>> = None;
        for purpose in [Use::Stat, Use::Mmap] {
            for method in methods {
                let job = Job { list, cpus: &cpus, method, purpose, ring_pages: 1, room: u64::MAX };
                let mut phases = Vec::new();
                let finished = run(&job, &mut |phase, _| phases.push(phase));
                assert_eq!(held_at_rest(before.1), before, "{method} {purpose:?}");
                assert!(phases.starts_with(&[Phase::Open]) && phases.len() == finished.phases.len());
                assert_eq!(finished.outcomes.len(), list.events.len());
                if purpose == Use::Stat {
                    let fates: Vec<_> = finished.outcomes.iter().map(std::mem::discriminant).collect();
                    assert_eq!(*first.get_or_insert_with(|| fates.clone()), fates, "{method}");
                    let whole = finished.outcomes.iter().filter(|outcome| outcome.is_whole()).count();
                    assert_eq!(finished.opened, whole * cpus.len(), "{method}: an event is open everywhere or nowhere");
                }
            }
        }
    }
}

fn main() -> ExitCode {
    let test = nothing_is_left_open_and_all_methods_open_the_same;
    trials::run(
        [Case::new("nothing_is_left_open_and_all_methods_open_the_same", None, test)],
        trials::expects_cpu_events(),
    )
}
