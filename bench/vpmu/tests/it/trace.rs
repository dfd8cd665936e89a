//! Traces by the command line: recorded, replayed, imported, and what is refused.

use std::path::Path;
use std::process::{Command, Output};

use host_pmu::trace::{Kind, Row};
use serde_json::Value;
use tempfile::TempDir;
use trace::meta::Meta;
use trace::read::Trace;
use trace::write::Writer;

use crate::binary::{json, run, text};

fn vpmu(folder: &Path, line: &str) -> Output {
    run(folder, &line.split_whitespace().collect::<Vec<_>>())
}

fn done(folder: &Path, line: &str) -> Output {
    let output = vpmu(folder, line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    output
}

fn refused(folder: &Path, line: &str, needle: &str) {
    let output = vpmu(folder, line);
    let errors = text(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{line}: {errors}");
    assert!(errors.contains(needle), "{line}: {errors} lacks {needle}");
}

/// Values and counts that a replay reads otherwise than its trace, and PMIs that it lacks.
fn exact(arm: &Value) -> [u64; 3] {
    ["values_otherwise", "counters_otherwise", "pmis_absent"].map(|count| arm[count].as_u64().unwrap_or(0))
}

/// Replays a trace, and returns the one arm.
fn replayed(folder: &Path, line: &str) -> Value {
    json(&done(folder, line))["arms"][0].clone()
}

#[test]
fn a_trace_of_a_simulated_guest_is_replayed() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    done(at, "trace record -q -o t -- payload --workload sampling10 --samples 300 --backend sim:clx-ap-watchdog-on");
    let arm = replayed(at, "sim clx-ap-watchdog-on -q --trace t --strategy reuse-lazy --json");
    assert_eq!(exact(&arm), [0, 0, 0]);
    assert_eq!(&arm["pmis"], &300);
    // Rows lost at the end are in the JSON alone.
    let json = at.join("t/_trace.json");
    let meta = std::fs::read_to_string(&json).unwrap();
    std::fs::write(&json, meta.replace("\"lost\": 0", "\"lost\": 7")).unwrap();
    let errors = text(&done(at, "sim --trace t --strategy reuse-lazy --no-save").stderr);
    assert!(errors.contains("7 rows are missing"), "{errors}");
    let alone = vpmu(at, "sim --trace t --strategy virtual --no-save");
    let shown = text(&alone.stdout);
    assert!(alone.status.code() == Some(3) && shown.contains("virtual: not available because its events"), "{shown}");
    refused(at, "sim --trace t --workload single", "--workload");
    refused(at, "sim --trace nowhere", "cannot read the trace nowhere");
    refused(at, "trace record -o t -- payload --backend sim:clx-ap-watchdog-on", "exists");
    std::fs::write(&json, meta.replace("\"pmu_version\": 2", "\"pmu_version\": 3")).unwrap();
    refused(at, "sim --trace t", "version 3");
}

#[test]
fn a_trace_of_more_registers_than_a_pmu_has_is_refused() {
    let dir = TempDir::new().unwrap();
    let meta = || Meta { vcpus: 1, cpu: "clx".to_owned(), pmu_version: 2, ..Meta::default() };
    for (name, registers) in [("few", 4096), ("many", 4097)] {
        let mut writer = Writer::begin(&dir.path().join(name), meta()).unwrap();
        let reads = (0..registers).map(|register| (Kind::Read, register, 0));
        let pmis = std::iter::repeat_n((Kind::Pmi, 0, 0x400), 9);
        for (n, (kind, register, value)) in reads.chain(pmis).enumerate() {
            let row = Row { at: 1000 * n as u64, kind, register, value, ..Row::default() };
            writer.add(row).and_then(|()| writer.add(Row { kind: Kind::Entry, ..row })).unwrap();
        }
        writer.finish().unwrap();
    }
    let advise = "advise -q --backend sim:development-host --strategy reuse,recreate --trace";
    assert_ne!(vpmu(dir.path(), &format!("{advise} few")).status.code(), Some(2));
    refused(dir.path(), &format!("{advise} many"), "more than 4096 registers");
}

/// The counts of a clock are the trace's, so that a guest on KVM does the same again.
#[test]
fn a_trace_of_a_guest_on_kvm_gives_its_registers_and_pmis() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    let recorded = vpmu(at, "trace record -q -o t -- payload --workload sampling4 --samples 200 --backend cpu-clock");
    if recorded.status.code() == Some(4) {
        eprintln!("this host runs no guests: {}", text(&recorded.stderr));
        return;
    }
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let meta = Trace::open(&at.join("t")).unwrap().meta;
    let arm = replayed(at, "sim --trace t --strategy reuse-lazy --json");
    assert_eq!(exact(&arm), [0, 0, 0]);
    assert_eq!((&arm["pmis"], &arm["played"]), (&meta.pmis.into(), &meta.accesses.into()));
    let ops: u64 = arm["host_ops"].as_object().unwrap().values().filter_map(|op| op["count"].as_u64()).sum();
    let run: u64 = meta.ops.iter().sum();
    // A clock that signals early is read again, and the trace does not say how often.
    assert!(ops.abs_diff(run) * 100 <= run, "{ops} for {run}");
    played_back(at, arm["played"].as_u64().unwrap() / 200);
}

/// The payload makes the accesses of the trace on KVM, under any strategy, and says where it read something else.
fn played_back(at: &Path, accesses_per_pmi: u64) {
    let line = "nmi-latency --trace t --strategy recreate,gate --backend cpu-clock --rounds 2 --warmup 0 --samples 60 --time-limit 60s --json -q";
    let output = vpmu(at, line);
    let document = json(&output);
    assert_eq!(document["parameters"]["workload"], "trace:t");
    for arm in document["arms"].as_array().expect("arms").iter().filter(|arm| arm["not_available"].is_null()) {
        let count = |of: &str| arm[of].as_u64().unwrap_or(0);
        assert_eq!((&arm["incomplete"], &arm["lost"]), (&Value::Array(Vec::new()), &0.into()), "{arm}");
        assert!(arm["left_out"].is_null(), "{arm}");
        // Two turns of 60 PMIs, some of which the host may not have brought in time, and the way to them.
        let played = count("played");
        assert!(played / 120 >= accesses_per_pmi / 2 && count("pmis_absent") < 60, "{arm}");
        let exits = arm["msr_exits"].as_object().expect("exits").values();
        let exits: u64 = exits.flat_map(|msr| [&msr["reads"], &msr["writes"]]).filter_map(Value::as_u64).sum();
        assert!(exits >= played && exits < played + 40, "{exits} exits for {played}");
        assert!(count("counters_otherwise") > 0, "no clock counts the same twice");
    }
    refused(at, "nmi-latency --trace t --cpu milan", "--cpu");
    refused(at, "nmi-latency --trace t --backend sim:clx-ap-watchdog-on", "vpmu sim --trace");
}

/// Recorded by host B's trial `nest::trace_import`.
#[test]
fn an_imported_recording_has_the_accesses_that_perf_counts() {
    let dir = TempDir::new().unwrap();
    crate::imported::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imported"), dir.path()).unwrap();
}

const RECORDING: &[u8] = include_bytes!("../imported/stock-kvm.data");

/// Replaces bytes of the recording by as many others.
fn replaced(from: &str, to: &str) -> Vec<u8> {
    let mut bytes = RECORDING.to_vec();
    let at = bytes.windows(from.len()).position(|found| found == from.as_bytes()).expect("such bytes");
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    bytes
}

#[test]
fn a_bad_recording_is_refused_in_a_line() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    for (bytes, needle) in [
        (RECORDING.to_vec(), "it has VMs of other processes; give --pid one of 86, 95"),
        (replaced("name: kvm_msr", "name: kvm_mss"), "it has no kvm:kvm_msr; record it by: perf record -a"),
        (replaced("field:u32 ecx", "field:u32 eax"), "kvm:kvm_msr has no field ecx"),
        (RECORDING[..RECORDING.len() / 2].to_vec(), "cut short"),
        (b"PERFILE2".to_vec(), "header is damaged"),
        (b"no recording".to_vec(), "no perf.data"),
    ] {
        std::fs::write(at.join("bad"), bytes).unwrap();
        refused(at, "trace import bad --pid 1 -o t", needle);
        assert!(!at.join("t").exists());
    }
}

#[test]
fn an_interrupt_and_a_full_disk_leave_what_was_finished() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    let guest = "-- payload --workload sampling10 --backend sim:clx-ap-watchdog-on --samples";
    let record = format!("trace record -q -o t {guest} 1000000");
    let mut running = Command::new(env!("CARGO_BIN_EXE_vpmu"));
    let mut running = running.current_dir(at).args(record.split_whitespace()).spawn().unwrap();
    while !at.join("t/000000.csv.zst").exists() {
        assert_eq!(running.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
    assert_eq!(running.wait_with_output().unwrap().status.code(), Some(3));
    let trace = Trace::open(&at.join("t")).unwrap();
    assert!(trace.meta.finished && trace.meta.rows > 1 << 18, "{:?}", trace.meta);
    // A disk of one segment and a half; it goes with the shell's namespace.
    let script = format!(
        "mount -t tmpfs -o size=380k tmpfs . && cd $PWD || exit 77; $0 trace record -q -o t {guest} 15000; echo exit $?; cat t/_trace.json"
    );
    let mut full = Command::new("unshare");
    let output = full.current_dir(at).args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_vpmu")]).output().unwrap();
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    if output.status.code() == Some(77) || errors.contains("unshare failed") {
        eprintln!("SKIP: it takes root to mount a small disk: {errors}");
        return;
    }
    assert!(said.starts_with("exit 4\n") && said.contains("\"finished\": false"), "{said}{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("its 1 segments so far are whole"), "{errors}");
}
