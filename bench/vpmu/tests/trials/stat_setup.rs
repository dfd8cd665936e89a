//! `vpmu stat-setup` from the outside, with real perf events. What is missing is listed as ignored, with the reason.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not know as tests")]

use std::path::Path;
use std::process::{Command, Output};

use stat_setup::list::Event;
use stat_setup::list::parse::parse;
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::method::{Job, Method};
use stat_setup::run::run as set_up;
use trials::Case;

use crate::binary::{VPMU, json, run, text};
use crate::prerequisites::{is_root, program};

fn setup(args: &[&str]) -> Output {
    run(Path::new("."), &[&["stat-setup", "--no-save", "--quiet"], args].concat())
}

fn document(args: &[&str]) -> serde_json::Value {
    json(&setup(&[&["--json", "--rounds", "2"], args].concat()))
}

const STRATEGIES: [&str; 5] = ["event-major", "cpu-major", "threads", "packed", "auto"];

fn arms(document: &serde_json::Value) -> &[serde_json::Value] {
    document["arms"].as_array().unwrap()
}

/// Returns the names of the arms.
fn names(document: &serde_json::Value) -> Vec<&str> {
    arms(document).iter().map(|arm| arm["arm"].as_str().unwrap()).collect()
}

/// Returns what is said of an arm, a line each.
fn notes(arm: &serde_json::Value) -> String {
    arm["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned() + "\n").collect()
}

/// Every strategy opens the same events on every CPU, and its counts stand up to planted work.
fn strategies_agree() {
    let found = document(&["--events", "60"]);
    let cpus = found["parameters"]["cpus"].as_array().unwrap().len() as u64;
    assert_eq!(names(&found)[..5], STRATEGIES);
    assert_eq!(names(&found)[5..], ["bare calls"]);
    for arm in &arms(&found)[..5] {
        let said = notes(arm);
        assert!(said.contains(&format!("60 events counted on {} descriptors", 60 * cpus)), "{said}");
        assert!(!said.contains("WRONG"), "{said}");
        for phase in ["open", "enable", "read", "disable", "close"] {
            assert_eq!(arm["metrics"][format!("phases/{phase}/wall_ns")]["count"], 2, "{arm}");
        }
    }
    let calls = |arm: usize, phase: &str| {
        arms(&found)[arm]["metrics"][format!("phases/{phase}/call_ns")]["count"].as_u64().unwrap()
    };
    // Two rounds: a call per event and CPU, or per group of a CPU.
    assert_eq!((calls(0, "open"), calls(0, "enable")), (2 * 60 * cpus, 2 * 60 * cpus));
    assert!(calls(3, "enable") < calls(0, "enable") / 2, "packs are enabled with one call each");
}

/// Each of several numbers of events has a result of its own.
fn numbers_of_events_have_a_result_each() {
    let dir = tempfile::tempdir().unwrap();
    let args = "stat-setup --quiet --events 10,20 --rounds 2 --strategy auto --json";
    let output = run(dir.path(), &args.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    let events: Vec<_> = printed.map(|one| one.unwrap()["parameters"]["events"].clone()).collect();
    assert_eq!(events, [10, 20]);
    assert_eq!(std::fs::read_dir(dir.path().join("vpmu-results")).unwrap().count(), 2);
}

/// Groups as perf writes them, and events that this host cannot count: named, the rest measured.
fn events_that_cannot_be_counted_are_named() {
    let list = "cs,{page-faults,dummy}:W,nothing-of-the-kind,nmu/x/,cpu-clock:u";
    let output = setup(&["--events", list, "--strategy", "auto", "--rounds", "2", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let said = notes(&arms(&serde_json::from_slice(&output.stdout).unwrap())[0]);
    for needle in [
        "4 events counted",
        "nothing-of-the-kind: <not supported>",
        "nmu/x/: <not supported>: this host has no PMU nmu",
    ] {
        assert!(said.contains(needle), "no {needle} in\n{said}");
    }
}

/// A weak group whose member may not join it (pinned: only leaders may be) is broken up, not lost.
fn a_weak_group_is_broken_up() {
    let found =
        document(&["--events", "{page-faults,dummy:D}:W,cs", "--strategy", "event-major,cpu-major,threads,packed"]);
    for arm in &arms(&found)[..4] {
        let said = notes(arm);
        assert!(said.contains("broken up: 1\n") && said.contains("3 events counted"), "{said}");
    }
}

/// Runs `before; exec` the binary with `stat-setup` and `args` in a shell.
fn limited(before: &str, args: &str) -> Output {
    Command::new("sh").args(["-c", &format!("{before} {VPMU} stat-setup --quiet {args}")]).output().unwrap()
}

/// Returns the events that the first arm of a document counted.
fn counted(output: &Output) -> usize {
    let Ok(found) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else { return 0 };
    let said = notes(&arms(&found)[0]);
    let line = said.lines().find_map(|line| line.split_once(" events counted on "));
    line.and_then(|(events, _)| events.parse().ok()).unwrap_or(0)
}

/// Options of one set-up.
const ONE: &str = "--no-save --rounds 1 --json";

/// As perf, who has CAP_SYS_RESOURCE raises the hard limit of open files: with every strategy no event is lost. Who has it not
/// is refused: nothing partial is shown.
fn the_hard_limit_is_raised() {
    let raises = |limit: &str| Command::new("sh").args(["-c", limit]).output().unwrap().status.success();
    let may = raises("ulimit -n 300 && ulimit -n 400");
    for strategy in STRATEGIES {
        let args = format!("{ONE} --events 299 --strategy {strategy}");
        let output = limited("ulimit -n 300; exec", &args);
        let why = text(&output.stderr) + &text(&output.stdout);
        let said = if may { "was raised from 300 to" } else { "cannot set up by" };
        assert!(why.contains(said), "{strategy}: {why}");
        let expected = if may { (Some(0), 299) } else { (Some(4), 0) };
        assert_eq!((output.status.code(), counted(&output)), expected, "{strategy}: {why}");
    }
}

/// Who may not raise it gets threads, whose tables hold a CPU's events each, or a refusal: nothing partial is shown.
fn under_the_hard_limit_only_threads_fit() {
    let events = 150;
    let before = "ulimit -n 300; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource";
    let run = |args: &str| limited(before, args);
    let auto = run(&format!("{ONE} --events {events} --strategy auto"));
    assert_eq!((auto.status.code(), counted(&auto)), (Some(0), events), "{}", text(&auto.stderr));
    let packed = run(&format!("{ONE} --events {events} --strategy packed"));
    let why = text(&packed.stderr);
    assert!(why.contains("--strategy auto"), "{why}");
    assert_eq!(packed.status.code(), Some(4), "{why}");
    assert!(packed.stdout.is_empty() && why.contains("cannot set up by packed") && why.contains("ulimit -Hn"), "{why}");
    // What fits is not refused for files that are never opened.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let tight = before.replace("300", &(events * cpus + 10).to_string());
    let args = format!("{ONE} --events {events} --strategy packed");
    let packed = limited(&tight, &args);
    assert_eq!((packed.status.code(), counted(&packed)), (Some(0), events), "{}", text(&packed.stderr));
    let all = run(&format!("--no-save --events {events} --rounds 1 --json"));
    let why = text(&all.stderr);
    assert_eq!(all.status.code(), Some(0), "{why}");
    let found: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!(names(&found)[..2], ["threads", "auto"]);
    assert!(notes(&arms(&found)[0]).contains("event-major, cpu-major, packed left out"), "{found}");
    // Not one CPU's events fit.
    let none = run(&format!("{ONE} --events 400 --strategy auto"));
    assert!(
        none.status.code() == Some(4)
            && text(&none.stderr).contains("cannot set up by auto")
            && !text(&none.stderr).contains("--strategy"),
        "{}",
        text(&none.stderr)
    );
}

/// perf measures the same list in the same rounds, and both count all of it.
fn perf_stands_beside_it() {
    let output = setup(&["--events", "400", "--strategy", "auto", "--against", "perf", "--rounds", "5"]);
    let shown = text(&output.stdout);
    // One answer, first: of perf's its fastest grouping.
    let answer = shown.lines().nth(1).unwrap_or_default();
    assert!(answer.starts_with("answer: ") || answer.starts_with("inconclusive: "), "{shown}");
    assert!(shown.contains("÷ auto"), "{shown}");
    let found = document(&["--events", "400", "--strategy", "auto", "--against", "perf"]);
    let all = names(&found);
    assert_eq!(all, ["auto", "bare calls", "perf ungrouped", "perf best grouping"]);
    let said = notes(&arms(&found)[3]);
    assert!(said.contains("perf version") && said.contains("which counted 400 of 400 events"), "{found}");
    for metric in ["elapsed_ns", "start_up_ns"] {
        assert!(arms(&found)[2..].iter().all(|arm| arm["metrics"][metric]["count"] == 2), "{found}");
    }
}

/// perf and this tool read the same lists, with the same names, units and events without a count, and refuse the same.
fn lists_are_perf_s() {
    let list = "cs/name=foo/,cpu-clock/name=clk/u,cs:b,cs:,cs//,\
                l1d-loads,instructions:b,branch,Data-TLB-read-misses,LLC-misses-stores,faults/config=3,period=7/,\
                r1a8/name=raw/,dummy:ppp,{cs,cpu-clock}:W,1:1,1:1:hp,4:0x6530160/name=numpmu/,cs/name='a-b.c:d=e[1]'/";
    let lines = |output: &[u8]| -> Vec<(bool, String, String)> {
        let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let found = text(output).lines().map(fields).collect::<Vec<_>>();
        found.into_iter().map(|line| (line[0].starts_with('<'), line[1].clone(), line[2].clone())).collect()
    };
    let perf =
        |list: &str| Command::new("perf").args(["stat", "-a", "-x,", "-e", list, "--", "true"]).output().unwrap();
    let mut sysfs = Sysfs::host();
    let found = resolve(&parse(list).unwrap(), &mut sysfs);
    let (cpus, method) = (sysfs.online(), Method::CPU_MAJOR);
    let outcomes = set_up(&Job { list: &found, cpus: &cpus, method }, &mut |_, _| {}).unwrap().outcomes;
    // A name's comma is one of the line's to perf.
    let name = |event: &Event| event.name.split(',').next().unwrap_or_default().to_owned();
    let ours = found.events.iter().zip(&outcomes);
    let ours: Vec<_> = ours.map(|(event, outcome)| (!outcome.is_whole(), event.unit.clone(), name(event))).collect();
    let theirs = lines(&perf(list).stderr);
    assert_eq!((theirs.len(), &ours), (19, &theirs));
    for list in ["branch-stores", "branches-load", "cs/umask=1/", "cs/name/", "cs/u/", "1:1:1", "cs/name='1,b'/"] {
        let is_refused = parse(list).map_or(true, |list| resolve(&list, &mut sysfs).events[0].open.is_err());
        assert!(!perf(list).status.success() && is_refused, "{list}");
    }
}

/// Why events cannot be opened system-wide.
fn no_events() -> Option<String> {
    let output = setup(&["--rounds", "1", "--strategy", "auto", "--events", "dummy"]);
    (output.status.code() != Some(0)).then(|| "perf events do not open on a CPU here (root?)".to_owned())
}

fn one_cpu() -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus == 1).then(|| "one CPU's events need one table".to_owned())
}

pub(crate) fn cases() -> Vec<Case> {
    let no_events = no_events();
    // A host with CI=true on which events open must have perf, tracefs and setpriv, too.
    let expected = no_events.is_none();
    let events = || no_events.clone();
    let no_program = |name: &str| program(name, name).err();
    let not_root = || (!is_root()).then(|| "only root may become another user".to_owned());
    let case = |name: &str, missing: Option<String>, run: fn()| Case::new(name, missing, run).expected(expected);
    vec![
        case("strategies_agree", events(), strategies_agree),
        case("numbers_of_events_have_a_result_each", events(), numbers_of_events_have_a_result_each),
        case("events_that_cannot_be_counted_are_named", events(), events_that_cannot_be_counted_are_named),
        case("a_weak_group_is_broken_up", events(), a_weak_group_is_broken_up),
        case("the_hard_limit_is_raised", events(), the_hard_limit_is_raised),
        case(
            "under_the_hard_limit_only_threads_fit",
            events().or_else(not_root).or_else(|| no_program("setpriv")).or_else(one_cpu),
            under_the_hard_limit_only_threads_fit,
        ),
        case("lists_are_perf_s", events().or_else(|| no_program("perf")), lists_are_perf_s),
        case("perf_stands_beside_it", events().or_else(|| no_program("perf")), perf_stands_beside_it),
    ]
}
