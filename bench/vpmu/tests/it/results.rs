//! Results as files: compared, refused where they are bad, and never left half-written. Simulated, so
//! none of this needs KVM.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::{VPMU, json as parsed, run as vpmu, text, vpmu as command};

/// Simulates short rounds, 10 unless `more` says otherwise, into `file`.
fn simulate(dir: &Path, file: &str, more: &[&str]) {
    let line = ["sim", "--samples", "30", "--no-save", "--quiet", "--json"];
    let output = vpmu(dir, &[&line[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::write(dir.join(file), output.stdout).expect("a file");
}

/// Makes the handler's latency of every round and arm half as long again.
fn slow_down(path: &Path) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    for arm in value["arms"].as_array_mut().expect("arms") {
        if let Some(Value::Array(rounds)) = arm.pointer_mut("/rounds/metrics/nmi_handler_ns/p50") {
            for ns in rounds {
                *ns = json!(ns.as_u64().expect("a time") * 3 / 2);
            }
        }
    }
    std::fs::write(path, value.to_string()).expect("a file");
}

#[test]
fn no_output_destroys_its_input() {
    let dir = tempfile::tempdir().unwrap();
    simulate(dir.path(), "a.json", &["--rounds", "2"]);
    simulate(dir.path(), "b.json", &["--rounds", "2", "--seed", "2"]);
    let before = std::fs::read(dir.path().join("a.json")).unwrap();
    for line in [
        "export a.json -f csv -o a.json",
        "export . -f csv -o ./a.json",
        "report a.json -o a.json",
        "compare a.json b.json --junit a.json",
        "compare a.json --arms reuse,recreate --junit a.json",
        "compare --by-host . . --junit a.json",
    ] {
        let output = vpmu(dir.path(), &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("a.json is also an input"), "{line}: {said}");
        assert_eq!(std::fs::read(dir.path().join("a.json")).unwrap(), before, "{line}");
    }
}

#[test]
fn a_baseline_by_name_a_regression_and_every_output() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let saved = vpmu(at, &["sim", "--rounds", "10", "--samples", "30", "-q", "--no-save", "--save-baseline", "v1"]);
    assert_eq!(saved.status.code(), Some(0), "{}", text(&saved.stderr));
    simulate(at, "same.json", &[]);
    simulate(at, "slow.json", &[]);
    slow_down(&at.join("slow.json"));

    let same = vpmu(at, &["compare", "v1", "same.json"]);
    assert_eq!(same.status.code(), Some(0), "{}{}", text(&same.stdout), text(&same.stderr));
    let slow = vpmu(at, &["compare", "v1", "slow.json", "--json", "--junit", "report.xml"]);
    assert_eq!(slow.status.code(), Some(1), "{}", text(&slow.stderr));
    let found = parsed(&slow);
    assert_eq!((&found["schema"], &found["exit"]), (&json!("vpmu-compare/3"), &json!(1)));
    // Every arm, the floor included, takes half as long again: the ratios are as before, the times of all arms are not.
    let rows = found["groups"][0]["rows"].as_array().unwrap();
    let ratios = rows.iter().filter(|row| row["question"] == "one-arm" && row["metric"] == "nmi_handler_ns");
    assert!(ratios.into_iter().all(|row| row["verdict"] == "no-change"));
    let row = rows.iter().find(|row| row["arm"] == "all arms" && row["metric"] == "nmi_handler_ns").unwrap();
    assert_eq!(row["verdict"], "slower");
    assert!(std::fs::read_to_string(at.join("report.xml")).unwrap().contains("<failure"));
}

/// Eight commits, of which the sixth and later ones are slow and the fourth says nothing.
#[test]
fn a_bisection_finds_the_first_slow_commit() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let git = |words: &str| {
        let names = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"];
        let output = Command::new("git").args(names).args(words.split(' ')).current_dir(at).output().expect("git");
        assert!(output.status.success(), "git {words}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("SKIP: there is no git to bisect with");
        return;
    }
    for (file, more) in [("base", "10"), ("same", "10"), ("slow", "10"), ("few", "3")] {
        simulate(at, &format!("{file}.json"), &["--rounds", more]);
    }
    slow_down(&at.join("slow.json"));
    let judge = format!("exec {VPMU} compare --bisect base.json $(cat which).json");
    std::fs::write(at.join("judge"), judge).unwrap();
    git("init -q");
    let commit = |number: usize| {
        let which = ["same", "same", "same", "few", "same", "slow", "slow", "slow"][number];
        std::fs::write(at.join("which"), which).unwrap();
        std::fs::write(at.join("number"), number.to_string()).unwrap();
        git("add which number");
        git("commit -qm x");
        git("rev-parse HEAD")
    };
    let commits: Vec<String> = (0..8).map(commit).collect();
    git(&format!("bisect start {} {}", commits[7], commits[0]));
    let found = git("bisect run sh judge");
    assert!(found.contains(&format!("{} is the first bad commit", commits[5])), "{found}");
}

/// Each command reads each experiment's document, which has its answer and its exit.
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

/// Whatever the command, its JSON has a schema and the exit code, and an answer where something is compared or found.
#[test]
fn every_json_has_a_schema_and_the_exit_and_comparisons_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    simulate(dir.path(), "a.json", &[]);
    simulate(dir.path(), "b.json", &["--seed", "2"]);
    let plan =
        "name = 'x'\nexperiment = [{ run = 'sim', options = { rounds = 5, samples = 5, strategy = 'reuse' } }]\n";
    std::fs::write(dir.path().join("plan.toml"), plan).unwrap();
    assert_eq!(vpmu(dir.path(), &["fleet", "submit", "plan.toml", "-q", "-o", "camp"]).status.code(), Some(0));
    for (line, has_answer) in [
        ("compare a.json b.json", true),
        ("compare a.json --arms recreate,reuse", true),
        ("compare --by-host a.json b.json", true),
        ("history .", true),
        ("advise a.json", true),
        ("reproduce", false),
        ("sweep strategy=reuse,gate samples=20", false),
        ("conformance", false),
        ("doctor", false),
        ("show strategies", false),
        ("show strategies gate", false),
        ("fleet plan plan.toml", false),
        ("fleet status camp", false),
        ("fleet report camp", false),
    ] {
        let output = vpmu(dir.path(), &line.split(' ').chain(["--json"]).collect::<Vec<_>>());
        let found: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {}", text(&output.stderr)));
        let exit = output.status.code();
        assert!(
            found["exit"] == json!(exit) && found["schema"].as_str().is_some_and(|name| name.starts_with("vpmu-")),
            "{line}: {exit:?}"
        );
        assert!(!has_answer || found["answer"].is_array(), "{line}");
    }
}

#[test]
fn bad_input_is_one_line_and_exit_2() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    simulate(at, "good.json", &[]);
    simulate(at, "next.json", &["--seed", "2"]);
    std::fs::write(at.join("foreign.json"), "{\"schema\": \"vpmu-ab/2\", \"rows\": []}").unwrap();
    assert!(Command::new("mkfifo").arg(at.join("fifo")).status().unwrap().success());
    let good = std::fs::read_to_string(at.join("good.json")).unwrap();
    std::fs::write(at.join("cut.json"), &good[..good.len() / 3]).unwrap();
    let foreign = "cannot use foreign.json: missing field `";
    for (line, needle) in [
        ("compare cut.json good.json", "EOF"),
        ("compare good.json foreign.json", foreign),
        ("history foreign.json", foreign),
        ("report foreign.json", foreign),
        ("export foreign.json -f csv", foreign),
        ("export good.json -f csv -o fifo", "it is a FIFO"),
        ("compare good.json next.json --alpha 0.6", "at most 0.5"),
        ("compare good.json next.json --junit no/such/x.xml", "--junit"),
        ("compare good.json none", "neither it nor vpmu-results/baselines/none; give the path"),
        ("sim --save-baseline ../x", "baseline's name"),
    ] {
        let output = vpmu(at, &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.trim_end().lines().count()), (Some(2), 1), "{line}: {said}");
        assert!(said.starts_with("vpmu: error: ") && said.contains(needle), "{said} lacks {needle}");
        assert!(output.stdout.is_empty());
    }
    // In a folder it is left out by name, and a damaged result of ours keeps every command from passing.
    let left_out = |line: &str| {
        let output = vpmu(at, &line.split(' ').collect::<Vec<_>>());
        assert!(text(&output.stderr).contains(foreign.trim_start_matches("cannot use ")), "{line}");
        output
    };
    for line in ["compare good.json . --json", "report . -o x.html", "export . -f csv", "advise . --json"] {
        let output = left_out(line);
        assert_eq!(output.status.code(), Some(3), "{line}: {}", text(&output.stderr));
        if line.ends_with("--json") {
            assert_eq!(parsed(&output)["exit"], 3, "{line}");
        }
    }
    std::fs::remove_file(at.join("cut.json")).unwrap();
    assert_eq!(left_out("export . -f csv").status.code(), Some(0));
}

/// Every file of a folder, however hidden.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect()
}

/// Time that a run may take to its first document on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a run's first document.
fn wait_for_document(at: &Path) {
    let began = Instant::now();
    while files(&at.join("vpmu-results")).is_empty() {
        assert!(began.elapsed() < PATIENCE, "no document in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a run some time after its start, or after its first document, and counts the documents that it left and those of them
/// that say that it went on.
fn killed(at: &Path, after_a_document: bool, time: Duration) -> [usize; 2] {
    let line = ["sim", "--rounds", "20000", "--samples", "3", "--quiet", "--strategy", "reuse"];
    std::fs::create_dir(at).unwrap();
    let mut child = command(at, &line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if after_a_document {
        wait_for_document(at);
    }
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut found = [0; 2];
    for file in files(at).into_iter().chain(files(&at.join("vpmu-results"))) {
        // The passing name that a rename takes away may have half a document: no reader takes it for one.
        if file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".vpmu-")) {
            continue;
        }
        let record = results::read::record(&file).unwrap();
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
        let time = Duration::from_micros((state >> 33) % 300_000);
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
