//! Traces by the command line: recorded, replayed, cut, merged, and what is refused.

mod imported;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn vpmu(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vpmu"));
    command.current_dir(folder).args(line.split_whitespace()).output().expect("vpmu")
}

fn done(folder: &Path, line: &str) -> String {
    let output = vpmu(folder, line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(folder: &Path, line: &str, needle: &str) {
    let output = vpmu(folder, line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{line}: {errors}");
    assert!(errors.contains(needle), "{line}: {errors} lacks {needle}");
}

/// Replays a trace, and returns the one arm.
fn replayed(folder: &Path, line: &str) -> Value {
    let document: Value = serde_json::from_str(&done(folder, line)).expect("JSON");
    document["arms"][0].clone()
}

#[test]
fn a_trace_of_a_simulated_guest_is_replayed_cut_and_merged() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    done(at, "trace record -q -o t -- payload --workload sampling10 --samples 300 --backend sim:clx-ap-watchdog-on");
    let document: Value =
        serde_json::from_str(&done(at, "sim clx-ap-watchdog-on -q --trace t --strategy reuse-lazy --json")).unwrap();
    assert_eq!(document["schema"], "vpmu-replay/1");
    let arm = &document["arms"][0];
    assert_eq!((&arm["divergences"], &arm["pmis"], &arm["recorded_under"]), (&0.into(), &300.into(), &true.into()));
    let text = done(at, "sim clx-ap-watchdog-on --trace t --strategy reuse-lazy");
    assert!(text.contains("the same registers, 300 PMIs"), "{text}");
    let stat = done(at, "trace stat t");
    assert!(stat.contains("IA32_PERF_GLOBAL_STATUS") && stat.contains("300 PMIs"), "{stat}");
    assert!(done(at, "trace show t --rows 3").contains("write  IA32_PERF_GLOBAL_CTRL"));
    // A part begins with the registers as they were; two are vCPUs of one.
    done(at, "trace cut t --from 40ms --to 80ms -o part");
    let part = replayed(at, "sim --trace part --strategy reuse-lazy --json");
    assert_eq!(part["divergences"], 0);
    let pmis = part["pmis"].as_u64().unwrap();
    assert!(pmis > 50 && pmis < 250, "{pmis}");
    done(at, "trace merge t part -o both");
    let both = replayed(at, "sim --trace both --strategy reuse-lazy --json");
    assert_eq!((&both["divergences"], &both["pmis"]), (&0.into(), &(300 + pmis).into()));
    done(at, "trace anonymize t -o given");
    let given: Value = serde_json::from_str(&done(at, "trace stat given --json")).unwrap();
    assert_eq!((&given["trace"]["guest"], &given["trace"]["host"]), (&"".into(), &"".into()));
    // Rows lost at the end are in the JSON alone.
    let json = at.join("given/_trace.json");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::write(&json, text.replace("\"lost\": 0", "\"lost\": 7")).unwrap();
    assert_eq!(replayed(at, "sim --trace given --strategy reuse-lazy --json")["missing_rows"], 7);
    refused(at, "sim --trace t --strategy virtual", "virtual");
    refused(at, "sim --trace t --workload single", "--workload");
    refused(at, "sim --trace nowhere", "_trace.json");
    refused(at, "trace anonymize t -o given", "exists");
}

/// The counts of a clock are the trace's, so that a guest on KVM does the same again.
#[test]
fn a_trace_of_a_guest_on_kvm_gives_its_registers_and_pmis() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    let recorded = vpmu(at, "trace record -q -o t -- payload --workload sampling4 --samples 200 --backend cpu-clock");
    if recorded.status.code() == Some(4) {
        eprintln!("this host runs no guests: {}", String::from_utf8_lossy(&recorded.stderr));
        return;
    }
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let stat: Value = serde_json::from_str(&done(at, "trace stat t --json")).unwrap();
    let arm = replayed(at, "sim --trace t --strategy reuse-lazy --json");
    assert_eq!((&arm["divergences"], &arm["missing_rows"]), (&0.into(), &0.into()));
    assert_eq!((&arm["pmis"], &arm["accesses"]), (&stat["trace"]["pmis"], &stat["trace"]["accesses"]));
    assert_eq!((&arm["pmi_divergences"], &arm["masked_divergences"]), (&0.into(), &0.into()));
    // Under another strategy the PMIs that the replay lacks are beside those that it had.
    let other = replayed(at, "sim --trace t --strategy deferred --json");
    let pmis = |of: &str| other[of].as_u64().unwrap();
    assert_eq!(other["trace_pmis"], arm["pmis"]);
    assert!(pmis("pmis") + pmis("pmis_missing") >= pmis("trace_pmis"), "{other}");
    assert!(pmis("pmi_divergences") >= pmis("pmis_missing"), "{other}");
    let ops: u64 = arm["ops"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let run: u64 = stat["trace"]["ops"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    // A clock that signals early is read again, and the trace does not say how often.
    assert!(ops.abs_diff(run) * 100 <= run, "{ops} for {run}");
    played_back(at, arm["accesses"].as_u64().unwrap() / 200);
}

/// The payload makes the accesses of the trace on KVM, under any strategy, and says where it read something else.
fn played_back(at: &Path, accesses_per_pmi: u64) {
    let line = "nmi-latency --trace t --strategy recreate,gate --backend cpu-clock --rounds 2 --warmup 0 --samples 60 --time-limit 9s --json -q";
    let output = vpmu(at, line);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["parameters"]["workload"], "trace:t");
    for arm in document["arms"].as_array().expect("arms").iter().filter(|arm| arm["not_available"].is_null()) {
        let count = |of: &str| arm[of].as_u64().unwrap_or(0);
        assert_eq!((&arm["incomplete"], &arm["lost"]), (&Value::Array(Vec::new()), &0.into()), "{arm}");
        // Two turns of 60 PMIs, some of which the host may not have brought in time, and the way to them.
        let played = count("played");
        assert!(played / 120 >= accesses_per_pmi / 2 && count("pmis_absent") < 60, "{arm}");
        let exits = arm["msr_exits"].as_object().expect("exits").values();
        let exits: u64 = exits.flat_map(|msr| [&msr["reads"], &msr["writes"]]).filter_map(Value::as_u64).sum();
        assert!(exits >= played && exits < played + 40, "{exits} exits for {played}");
        assert!(count("counters_otherwise") > 0, "no clock counts the same twice");
        assert!(arm["first_otherwise"].as_str().expect("the first").contains("of the trace's vCPU 0 is"), "{arm}");
    }
    refused(at, "nmi-latency --trace t --cpu milan", "--cpu");
    refused(at, "nmi-latency --trace t --backend sim:clx-ap-watchdog-on", "vpmu sim --trace");
}

/// Recorded by host B's trial `nest::trace_import`.
#[test]
fn an_imported_recording_has_the_accesses_that_perf_counts() {
    let dir = TempDir::new().unwrap();
    imported::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imported"), dir.path()).unwrap();
}
