//! No method leaves descriptors or threads behind. Cases run one at a time: each counts the files of the process.

use std::path::Path;
use std::process::{Command, ExitCode};

use stat_setup::list::parse::parse;
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{EventList, software_list, tracepoint_list};
use stat_setup::method::{Job, Method, Order, Phase, Phases};
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
    let packed = Method { pack: Some(16), close_ranges: true, ..Method::CPU_MAJOR };
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
        for method in methods {
            let job = Job { list, cpus: &cpus, method };
            let mut phases = Vec::new();
            let finished = run(&job, &mut |phase, _| phases.push(phase)).expect("threads");
            assert_eq!(held_at_rest(before.1), before, "{method}");
            assert!(phases == Phase::ALL && phases.len() == finished.phases.len());
            let fates: Vec<_> = finished.outcomes.iter().map(std::mem::discriminant).collect();
            assert_eq!(*first.get_or_insert_with(|| fates.clone()), fates, "{method}");
            let whole = finished.outcomes.iter().filter(|outcome| outcome.is_whole()).count();
            assert_eq!(finished.opened, whole * cpus.len(), "{method}: an event is open everywhere or nowhere");
        }
    }
}

/// A Cascade Lake with two memory controllers.
fn cascade_lake(root: &Path) -> Sysfs {
    let devices = root.join("sys/bus/event_source/devices");
    let write = |path: String, text: &str| {
        let path = devices.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    for (pmu, kind) in [("cpu", 4), ("uncore_imc_0", 20), ("uncore_imc_1", 21)] {
        write(format!("{pmu}/type"), &kind.to_string());
        for (term, bits) in [("event", "config:0-7"), ("umask", "config:8-15"), ("offcore_rsp", "config1:0-63")] {
            write(format!("{pmu}/format/{term}"), bits);
        }
        if kind > 4 {
            write(format!("{pmu}/cpumask"), "0");
        }
    }
    let sys = root.join("sys");
    let environment = [("SYSFS_PATH", sys.to_str().expect("a path")), ("PERF_CPUID", "GenuineIntel-6-55-7")];
    Sysfs::at(root).asking_perf(&environment)
}

fn vendor_names_are_asked_of_perf() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut sysfs = cascade_lake(dir.path());
    let text = "inst_retired.prec_dist:u,unc_m_cas_count.rd,offcore_response.demand_data_rd.any_response,cpu/longest_lat_cache.miss/k,\
                no_such.event,x.c";
    let found = list(text, &mut sysfs);
    let codes: Vec<_> = found
        .events
        .iter()
        .map(|event| {
            let attr = event.open.as_ref().ok()?.attr;
            Some((event.name.as_str(), event.written.as_str(), attr.type_, attr.config, attr.exclude_kernel()))
        })
        .collect();
    let read = "unc_m_cas_count.rd";
    let response = "offcore_response.demand_data_rd.any_response";
    let miss = "cpu/config=0x412e/k";
    assert_eq!(
        codes,
        [
            Some(("inst_retired.prec_dist", "cpu/config=0x1c0,name=inst_retired.prec_dist/u", 4, 0x1c0, 1)),
            Some((read, "uncore_imc_0/config=0x304,name=unc_m_cas_count.rd/", 20, 0x304, 0)),
            Some((read, "uncore_imc_1/config=0x304,name=unc_m_cas_count.rd/", 21, 0x304, 0)),
            Some((response, &*format!("cpu/config=0x1b7,config1=0x10001,name={response}/"), 4, 0x1b7, 0)),
            Some((miss, miss, 4, 0x412e, 0)),
            None,
            None,
        ]
    );
    assert_eq!(found.events[1].cpus, Some(vec![0]));
    // What this writes for perf reads back.
    assert_eq!(list(&found.to_perf(None), &mut sysfs).events.len(), 7);
}

fn main() -> ExitCode {
    let open: fn() = nothing_is_left_open_and_all_methods_open_the_same;
    let ask: fn() = vendor_names_are_asked_of_perf;
    let no_perf = Command::new("perf").arg("version").output().is_err();
    trials::run([
        Case::new("nothing_is_left_open_and_all_methods_open_the_same", None, open),
        Case::new("vendor_names_are_asked_of_perf", no_perf.then(|| "no perf in PATH".to_owned()), ask),
    ])
}
