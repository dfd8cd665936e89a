//! `vpmu guest-stat`: real guests beside simulated ones, and what a run leaves. No time is asserted.

use results::document::{Arm, Document, Status};
use trials::Case;

use crate::binary::{run, text};
use crate::prerequisites::{guests, kvm};

pub(crate) fn cases() -> Vec<Case> {
    let (expected, missing) = (kvm().is_ok(), guests().err());
    let real: [(&str, fn()); 3] = [
        ("real_and_simulated_guests_do_the_same_in_each_phase", real_and_simulated),
        ("events_enabled_once_take_one_call", enabled_once),
        ("two_vcpus_set_up_for_themselves", two_vcpus),
    ];
    real.into_iter().map(|(name, run)| Case::new(name, missing.clone(), run).expected(expected)).collect()
}

/// The document of a run that succeeds, regardless of the host's load.
fn document(args: &[&str]) -> Document {
    let dir = tempfile::tempdir().expect("a folder");
    let line = [&["guest-stat", "--quiet"], args, &["--json", "--no-save", "--time-limit", "60s"]].concat();
    let output = run(dir.path(), &line);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0, "nothing is saved");
    let document: Document = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!((document.experiment.as_str(), document.place.as_deref()), ("guest-stat", Some("guest")));
    assert_eq!(document.status, Status::Complete);
    document
}

fn measured(document: &Document) -> impl Iterator<Item = &Arm> {
    document.arms.iter().filter(|arm| arm.not_available.is_none())
}

/// Exits by phase; and host operations by phase and kind, where they depend on no slice of the host's scheduler.
fn work(arm: &Arm) -> Vec<(String, u64, u64, u64, Vec<u64>)> {
    let phases = arm.own.phases.iter();
    phases
        .map(|(key, phase)| {
            let ops = phase.host_ops.values().copied().collect();
            (key.clone(), phase.begun, phase.msr_reads, phase.msr_writes, ops)
        })
        .collect()
}

fn real_and_simulated() {
    for (events, enable) in
        [("1", "each"), ("4", "each"), ("7", "each"), ("10", "each"), ("10", "once"), ("20", "each")]
    {
        let of = |backend| {
            let line = ["--events", events, "--enable", enable, "--strategy", "recreate,reuse", "--rounds", "1"];
            document(&[&line[..], &["--samples", "6", "--backend", backend]].concat())
        };
        let (real, simulated) = (of("cpu-clock"), of("sim:clx-ap-watchdog-on"));
        let mut arms = 0;
        for (real, simulated) in measured(&real).zip(measured(&simulated)) {
            assert_eq!((&real.name, real.own.cycles), (&simulated.name, 6));
            assert_eq!(work(real), work(simulated), "{events} events, {enable}: {}", real.name);
            arms += 1;
        }
        assert_eq!(arms, 3, "recreate, reuse and the floor");
    }
}

fn enabled_once() {
    for backend in ["cpu-clock", "sim:development-host"] {
        let line = ["--events", "7", "--strategy", "reuse", "--rounds", "1", "--samples", "10", "--enable", "once"];
        let document = document(&[&line[..], &["--backend", backend]].concat());
        for arm in measured(&document) {
            let calls =
                |phase: &str| arm.metrics.get(&format!("phases/{phase}/call_ns")).map_or(0, |summary| summary.count);
            assert_eq!((calls("enable"), calls("program"), calls("disable")), (10, 70, 70), "{backend}");
        }
    }
}

fn two_vcpus() {
    let document = document(&["--vcpus", "2", "--strategy", "deferred", "--rounds", "1", "--samples", "8"]);
    for arm in measured(&document) {
        assert_eq!((arm.own.cycles, arm.own.event_counts.len()), (16, 10), "{}", arm.name);
        assert!(arm.own.event_counts.iter().all(|event| event.scaled > Some(0) && event.running_ns < event.enabled_ns));
        let set_ups = arm.metric(&results::metric::SET_UP).map_or(0, |summary| summary.count);
        assert_eq!(set_ups, 16);
    }
}
