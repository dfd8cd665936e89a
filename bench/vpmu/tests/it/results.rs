//! Results as files: compared, refused where they are bad, and never left half-written. Simulated, so
//! none of this needs KVM.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::{VPMU, ended_by, json as parsed, run as vpmu, text, vpmu as command};

/// Returns whether a value has the keys of a schema that was made of types, and no others.
fn fits(value: &Value, schema: &Value, all: &Value) -> bool {
    match (value, schema["$ref"].as_str(), schema["anyOf"].as_array()) {
        (_, Some(name), _) => fits(value, all.pointer(&name[1..]).unwrap(), all),
        (_, _, Some(any)) => any.iter().any(|one| fits(value, one, all)),
        (Value::Array(items), ..) => items.iter().all(|item| fits(item, &schema["items"], all)),
        (Value::Object(own), ..) if schema["properties"].is_object() => {
            let known = |key| schema["properties"].get(key).or(schema.get("additionalProperties"));
            own.iter().all(|(key, one)| known(key).is_some_and(|of| fits(one, of, all)))
                && schema["required"].as_array().unwrap().iter().all(|key| own.contains_key(key.as_str().unwrap()))
        }
        _ => true,
    }
}

/// Each command reads each experiment's document, which has its answer and its exit, and the keys of its schema.
#[test]
fn every_experiments_result_goes_through_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let sim = "--backend sim:development-host";
    for line in [
        "sim --rounds 5 --samples 30 --no-save -q --json".to_owned(),
        format!("guest-stat --rounds 5 --samples 3 --no-save -q --json {sim}"),
        format!("ab {VPMU} {VPMU} --pairs 5 -q --json -- --samples 5 {sim}"),
        "stat-setup --events 3 --rounds 5 --strategy event-major,auto --no-save -q --json".to_owned(),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let experiment = if words[0] == "sim" { "nmi-latency" } else { words[0] };
        let [base, new] = ["base", "new"].map(|side| {
            let output = vpmu(at, &words);
            assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{experiment}: {}", text(&output.stderr));
            let document = parsed(&output);
            assert_eq!(
                (&document["experiment"], &document["exit"]),
                (&json!(experiment), &json!(output.status.code()))
            );
            assert!(document["answer"].as_array().is_some_and(|all| all.len() > 1), "{experiment}");
            let name = if ["sim", "guest-stat"].contains(&words[0]) { "result" } else { "plain" };
            let schema = parsed(&vpmu(at, &["show", "schemas", name]));
            assert!(fits(&document, &schema, &schema), "{experiment}");
            let folder = format!("{experiment}-{side}");
            std::fs::create_dir(at.join(&folder)).unwrap();
            std::fs::write(at.join(&folder).join("x.json"), output.stdout).unwrap();
            folder
        });
        let compared = vpmu(at, &["compare", &base, &new, "--json"]);
        // Of two runs of a host that is not quiet any verdict may come.
        assert!(matches!(compared.status.code(), Some(0 | 1 | 3)), "{experiment}: {}", text(&compared.stderr));
        let rows = parsed(&compared)["groups"][0]["rows"].as_array().map_or(0, Vec::len);
        assert!(rows > 0, "{experiment} is compared by nothing");
        assert_eq!(vpmu(at, &["report", &base, "-o", "x.html"]).status.code(), Some(0), "{experiment}");
        let page = std::fs::read_to_string(at.join("x.html")).unwrap();
        assert!(page.contains("<table") && page.contains(experiment), "{experiment} is on no page");
        for format in ["csv", "benchstat"] {
            let exported = vpmu(at, &["export", &base, "-f", format]);
            assert!(exported.status.code() == Some(0) && exported.stdout.len() > 100, "{experiment} as {format}");
        }
        let history = vpmu(at, &["history", &base]);
        assert!(history.status.code() == Some(3) && text(&history.stdout).contains("too few runs"), "{experiment}");
    }
}

/// A reader that stops reading, then Ctrl-C: the document is larger than a pipe.
#[test]
fn ctrl_c_ends_a_run_whose_stdout_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), &["sim", "--rounds", "1000", "--samples", "5", "-q", "--no-save", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // In poll(2), once the pipe is full.
    let wchan = format!("/proc/{}/syscall", child.id());
    let blocked =
        || std::fs::read_to_string(&wchan).is_ok_and(|call| call.starts_with("7 ") || call.starts_with("271 "));
    if let Err(error) = std::fs::read_to_string(&wchan) {
        child.kill().unwrap();
        child.wait().unwrap();
        eprintln!("skipped: {wchan}: {error}");
        return;
    }
    let mut seen = 0;
    let until = Instant::now() + Duration::from_secs(120);
    while seen < 20 {
        assert!(Instant::now() < until, "its stdout is not blocked after 120 s");
        assert_eq!(child.try_wait().unwrap(), None, "it ended without a reader");
        seen = if blocked() { seen + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut errors = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut errors).unwrap();
    assert!(errors.contains("interrupted: nothing reads stdout"), "{errors}");
}

/// Every file of a folder, however hidden.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect()
}

/// Kills a run some time after its start, or after its first document, and counts the documents that it left and those of them
/// that say that it went on.
fn killed(at: &Path, after_a_document: bool, time: Duration) -> [usize; 2] {
    let line = ["sim", "--rounds", "20000", "--samples", "3", "--quiet", "--strategy", "reuse"];
    std::fs::create_dir(at).unwrap();
    ended_by("-KILL", &mut command(at, &line), |_| {
        let is_due = !after_a_document || !files(&at.join("vpmu-results")).is_empty();
        is_due.then(|| std::thread::sleep(time)).is_some()
    });
    let mut found = [0; 2];
    for file in files(at).into_iter().chain(files(&at.join("vpmu-results"))) {
        // The passing name that a rename takes away may have half a document: no reader takes it for one.
        if file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".vpmu-")) {
            continue;
        }
        let record: results::document::Record = results::read::document(&file).unwrap();
        found[0] += 1;
        found[1] += usize::from(record.status == results::document::Status::Running);
    }
    found
}

/// 200 runs are killed at moments drawn from a fixed sequence: half of them from their start on, the others once they
/// write, which they then do again and again. Two run at a time.
#[test]
fn killed_at_200_moments_every_file_is_whole_and_valid_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let moments: Vec<u64> = std::iter::successors(Some(0x9e37_79b9_7f4a_7c15_u64), next).skip(1).take(200).collect();
    let kill = |(number, state): (usize, &u64)| {
        // A run takes about as long: of later moments most would find it done.
        let time = Duration::from_micros((state >> 33) % 150_000);
        killed(&dir.path().join(format!("{state:x}")), number % 2 == 1, time)
    };
    let halves: Vec<[usize; 2]> = std::thread::scope(|scope| {
        let halves = moments.chunks(100).map(|half| {
            scope.spawn(move || {
                half.iter().enumerate().map(kill).fold([0; 2], |all, one| [0, 1].map(|at| all[at] + one[at]))
            })
        });
        halves.collect::<Vec<_>>().into_iter().map(|half| half.join().unwrap()).collect()
    });
    let [documents, unfinished] = [0, 1].map(|at| halves[0][at] + halves[1][at]);
    println!("{documents} documents, {unfinished} of them of runs that were killed while they went on");
    // Most moments must have hit a run that writes, or this shows nothing.
    assert!(unfinished >= 50, "{unfinished} of {documents}");
}
