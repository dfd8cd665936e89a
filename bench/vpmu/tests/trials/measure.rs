//! The binary measuring real guests: what it prints and leaves behind, also when it is interrupted or killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use trials::Case;

use crate::binary;
use crate::prerequisites::kvm;

/// Longest wait for a file or an end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let missing = prerequisite();
    let cases: [(&str, fn()); 7] = [
        ("a_short_run_leaves_a_whole_document", a_short_run),
        ("json_on_stdout_is_the_document_alone", json_on_stdout),
        ("an_interrupted_run_keeps_its_finished_rounds", an_interrupted_run),
        ("a_killed_run_leaves_whole_documents_or_none", killed_runs),
        ("two_vcpus_and_a_strategy_file", two_vcpus_and_a_strategy_file),
        ("the_published_series_is_predicted_measured_and_compared", the_published_series),
        ("an_interrupted_series_shows_what_was_measured", an_interrupted_series),
    ];
    let expected = kvm().is_ok();
    cases.into_iter().map(|(name, run)| Case::new(name, missing.clone(), run).expected(expected)).collect()
}

/// Why nothing can be measured here.
fn prerequisite() -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_vpmu")).arg("doctor").output().expect("the binary starts");
    (output.status.code() == Some(4)).then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn vpmu(dir: &Path, args: &[&str]) -> Command {
    let mut command = binary::vpmu(dir, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    vpmu(dir, args).output().expect("the binary starts")
}

fn documents(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("vpmu-results")) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

fn parse(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("a whole JSON document")
}

fn arm<'a>(document: &'a Value, strategy: &str) -> &'a Value {
    let arms = document["arms"].as_array().expect("arms");
    arms.iter().find(|arm| arm["strategy"] == strategy).expect("the arm")
}

fn a_short_run() {
    let dir = tempfile::tempdir().expect("a folder");
    // The warm-up's opens are discarded with it.
    let args = ["--rounds", "2", "--samples", "60", "--warmup", "0", "--backend", "cpu-clock"];
    let output = run(dir.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let table = String::from_utf8_lossy(&output.stdout);
    for word in ["recreate", "reuse-lazy", "floor", "stand-in", "2 of 2 rounds", "saved: "] {
        assert!(table.contains(word), "{word} in {table}");
    }
    let [path] = &documents(dir.path())[..] else { panic!("one document") };
    let document = parse(&std::fs::read(path).expect("the document"));
    assert_eq!((&document["schema"], &document["status"]), (&"vpmu-result/2".into(), &"complete".into()));
    for strategy in ["recreate", "reuse", "reuse-lazy", "floor"] {
        let arm = arm(&document, strategy);
        assert_eq!(arm["lost"], 0, "{strategy}");
        assert!(arm["metrics"]["nmi_handler_ns"]["count"].as_u64() >= Some(120), "{strategy}");
        assert!(
            arm["metrics"]["nmi_handler_ns"]["p50"].as_u64() > Some(0)
                && arm["metrics"]["exit_path_ns"]["p50"].as_u64() > Some(0)
        );
    }
    let opens = |strategy: &str| arm(&document, strategy)["host_ops"]["open"]["count"].as_u64().unwrap_or(0);
    assert_eq!((opens("reuse"), opens("floor")), (1, 0), "one open per guest");
    assert!(opens("recreate") >= 120);
}

fn json_on_stdout() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(dir.path(), &["--rounds", "1", "--samples", "20", "--json", "--no-save", "-q"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(parse(&output.stdout)["status"], "complete");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0);
}

/// A run of many rounds, once its first document is there.
fn started(dir: &Path) -> Child {
    let mut child = vpmu(dir, &["--rounds", "500", "--samples", "20", "-q"]).spawn().expect("the binary starts");
    let begin = Instant::now();
    while documents(dir).is_empty() {
        assert!(begin.elapsed() < PATIENCE && child.try_wait().expect("a child").is_none(), "no document");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn an_interrupted_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let child = started(dir.path());
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(interrupt.success());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let [path] = &documents(dir.path())[..] else { panic!("one document") };
    let document = parse(&std::fs::read(path).expect("the document"));
    assert_ne!(document["status"], "complete");
    assert!(arm(&document, "floor")["rounds"]["round"].as_array().is_some_and(|rounds| !rounds.is_empty()));
}

/// The command line that a user of the published processor types, cut short.
const SERIES: [&str; 8] = ["reproduce", "--run", "vpmu-reuse", "--rounds", "2", "--json", "-o", "vpmu-results"];

fn measured(found: &Value) -> usize {
    found["rows"].as_array().expect("rows").iter().filter(|row| row["measured"].is_object()).count()
}

fn the_published_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let watchdog = || std::fs::read_to_string("/proc/sys/kernel/nmi_watchdog").ok();
    let before = watchdog();
    let output = run(dir.path(), &SERIES);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(watchdog(), before, "as it was found");
    let found = parse(&output.stdout);
    let rows = found["rows"].as_array().expect("rows");
    let row = |figure: &str| rows.iter().find(|row| row["figure"] == figure);
    let on = row("vpmu-reuse.watchdog-on.mean").or_else(|| row("vpmu-reuse.cheap-create.mean")).expect("the figure");
    let judged = on["against_predicted"]["verdict"].is_string() && on["against_published"]["verdict"].is_string();
    assert!(judged && on["predicted"][0].as_f64() > Some(0.0) && on["published"] == 104_923.0, "{on}");
    assert!(row("vpmu-reuse.creates.fixed").expect("the figure")["measured"]["value"].as_f64() < Some(0.0));
    assert_eq!(found["here"]["whole"], true);
    assert!(found["here"]["conclusion"].as_str().is_some_and(|text| text.contains(" predicted numbers ")));
    // Each regime has two workloads.
    assert!(documents(dir.path()).len().is_multiple_of(2) && measured(&found) >= 8);
}

fn an_interrupted_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let args = SERIES.map(|word| if word == "2" { "8" } else { word });
    let mut child = vpmu(dir.path(), &args).spawn().expect("the binary starts");
    let begin = Instant::now();
    while documents(dir.path()).is_empty() {
        assert!(begin.elapsed() < 4 * PATIENCE && child.try_wait().expect("a child").is_none(), "no document");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let found = parse(&output.stdout);
    assert_eq!(found["here"]["whole"], false);
    assert!((1..20).contains(&measured(&found)), "{}", found["here"]["notes"]);
}

fn killed_runs() {
    for delay in [0, 30, 170, 400] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child = started(dir.path());
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().expect("its own child");
        child.wait().expect("an end");
        for path in documents(dir.path()) {
            let document = parse(&std::fs::read(&path).expect("the document"));
            assert_eq!(document["schema"], "vpmu-result/2");
        }
    }
}

fn two_vcpus_and_a_strategy_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "reuse = { pool = 4 }\nrelease = { slices = 3 }\napply = 'deferred'\nskip-paused = true\n";
    std::fs::write(dir.path().join("mine.toml"), text).expect("a file");
    let args =
        ["--strategy", "mine.toml", "--vcpus", "2", "--rounds", "1", "--samples", "50", "--workload", "sampling10"];
    let output = run(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let [path] = &documents(dir.path())[..] else { panic!("one document") };
    let document = parse(&std::fs::read(path).expect("the document"));
    let mine = arm(&document, "mine");
    assert!(mine["metrics"]["nmi_handler_ns"]["count"].as_u64() >= Some(50) && mine["lost"] == 0, "{mine}");
}
