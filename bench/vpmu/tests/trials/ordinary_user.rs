//! The tool as an ordinary user, who may open neither /dev/kvm nor perf events: without a word it simulates, with one notice,
//! and whatever is named exits 4 with the ways on.
//!
//! The binary runs as user 65534 without groups and capabilities, which takes root to arrange.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use trials::Case;

use crate::binary::VPMU;
use crate::prerequisites::is_root;

pub(crate) fn cases() -> Vec<Case> {
    let root = is_root();
    let missing = (!root).then(|| "only root can become another user".to_owned());
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let open = paranoid.trim().parse::<i64>().is_ok_and(|level| level < 2);
    let missing = missing.or_else(|| open.then(|| "perf_event_paranoid is below 2".to_owned()));
    let cases: [(&str, fn()); 5] = [
        ("the_main_job_simulates_with_one_notice", the_main_job_simulates),
        ("without_kvm_alone_it_simulates", without_kvm),
        ("without_perf_events_alone_it_simulates", without_perf_events),
        ("what_is_named_exits_4_and_simulates_nothing", named),
        ("a_thread_that_does_not_start_is_refused", no_thread),
    ];
    let expected = root && !open;
    let case = |(name, run)| Case::new(name, missing.clone(), run).expected(expected).beside(4);
    cases.into_iter().map(case).collect()
}

/// Runs a copy of the binary, in a folder of `user`, behind `before`, a command that executes its arguments.
fn vpmu(user: u32, before: &str, line: &str) -> Output {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::copy(VPMU, dir.path().join("vpmu")).expect("a copy");
    for path in [dir.path(), &dir.path().join("vpmu")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    std::os::unix::fs::chown(dir.path(), Some(user), Some(user)).expect("its owner");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {before} ./vpmu {line}")]).current_dir(dir.path());
    let output = command.env_remove("RUST_BACKTRACE").stdin(Stdio::null()).output().expect("it starts");
    let results = std::fs::read_dir(dir.path().join("vpmu-results")).into_iter().flatten();
    let documents = results.filter(|file| file.as_ref().expect("a file").path().extension() == Some("json".as_ref()));
    assert_eq!(documents.count(), 2 * usize::from(output.status.success()), "a document of each workload");
    output
}

const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all";
/// With it a user may open perf events.
const PERFMON: &str = "--clear-groups --inh-caps=+perfmon --ambient-caps=+perfmon";

/// Exit 0, a simulated result on stdout, and one line on stderr with the reason and the remedy.
fn simulates(output: &Output, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let notices: Vec<_> = stderr.lines().filter(|line| line.starts_with("vpmu: notice: ")).collect();
    let [notice] = notices[..] else { panic!("one notice: {stderr}") };
    for needle in ["nothing is measured", "simulation", reason, "; "] {
        assert!(notice.contains(needle), "{notice} lacks {needle:?}");
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("SIMULATED: ") && stdout.contains("sim:development-host") && stdout.contains("recreate"),
        "{stdout}"
    );
}

fn the_main_job_simulates() {
    let output = vpmu(65534, NOBODY, "");
    simulates(&output, "/dev/kvm");
    simulates(&output, "perf_event_open");
}

/// A user who may open perf events.
fn without_kvm() {
    simulates(&vpmu(65534, &format!("setpriv --reuid=65534 --regid=65534 {PERFMON}"), ""), "/dev/kvm");
}

/// Root without capabilities owns /dev/kvm, but may not open perf events.
fn without_perf_events() {
    simulates(&vpmu(0, "setpriv --bounding-set=-all --inh-caps=-all", ""), "perf_event_open");
}

/// Where a thread of `stat-setup` does not start, nothing partial is shown.
fn no_thread() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        eprintln!("SKIP: one CPU's events need no other thread");
        return;
    }
    // A user of nobody else's, or other processes would count.
    let user = format!("prlimit --nproc=1 setpriv --reuid=61234 --regid=61234 {PERFMON}");
    for more in ["--json --strategy threads", "--strategy threads,auto"] {
        let output = vpmu(61234, &user, &format!("stat-setup --no-save -q --events 100 {more}"));
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{more}: {why}");
        assert!(why.contains("threads: no thread started for CPU") && why.contains("pids.max"), "{why}");
    }
}

fn named() {
    let nothing: [(&str, &str); 11] = [
        ("nmi-latency", "; --backend sim:development-host simulates"),
        ("--quick --json", "; --backend sim:development-host simulates"),
        ("--save-baseline main", "; --backend sim:development-host simulates"),
        ("guest-stat --rounds 1", "; --backend sim:development-host simulates"),
        ("nmi-latency --backend cpu-clock", "take --backend auto"),
        ("advise", "; --backend sim:development-host simulates"),
        ("ab ./vpmu --new-args=--samples=9", "; --backend sim:development-host simulates"),
        ("conformance", "run as root or with CAP_PERFMON"),
        ("stat-setup --events cs,dummy", "perf_event_paranoid=0"),
        ("record payload", "run as root or with CAP_PERFMON"),
        ("reproduce --run vpmu-reuse", "add this user to the group"),
    ];
    for (line, way) in nothing {
        let output = vpmu(65534, NOBODY, line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{line}: {stderr}");
        let [error] = stderr.lines().collect::<Vec<_>>()[..] else { panic!("{line}: {stderr}") };
        assert!(error.starts_with("vpmu: error: ") && error.contains(way), "{line}: {error}");
    }
}
