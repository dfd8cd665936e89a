//! The exact text of a planted account.

use results::error::Exit;
use results::host::HostFacts;

use super::*;
use crate::account::{Account, SCHEMA, Speedup, Subject};
use crate::choice::choose;
use crate::counting::{ALL, Class};
use crate::sampling::{Chain, Ended, Losses};
use crate::stacks::fold;
use crate::symbols::{Frame, KERNEL};
use crate::verdict::sentences;

fn rate(per_second: f64) -> Rate {
    Rate { per_second, interval: None }
}

/// Two threads, a host without PMU and tracefs, and chains as rand's.
fn planted() -> Account {
    let row = |event: &Event| {
        let known = |idle, busy, apart| (Some(rate(idle)), Some(rate(busy)), Some(rate(apart)), None);
        let (idle, workload, apart, not_counted) = match (event.name, event.class) {
            ("context-switches", _) => known(10.0, 240_000.0, 12.0),
            ("task-clock" | "cpu-clock", _) => known(1e6, 1.8e9, 2e9),
            (_, Class::Hardware) => (None, None, None, Some("this host has no PMU".to_owned())),
            (name, _) if name.contains(':') => (None, None, None, Some("no tracefs".to_owned())),
            _ => known(0.0, 0.0, 0.0),
        };
        let rose = workload.is_some_and(|rate| rate.per_second > 10.0);
        EventRow {
            event: event.name.into(),
            class: event.class,
            not_counted,
            user_mode_only: false,
            idle,
            workload,
            apart,
            rose,
        }
    };
    let frame = |symbol: &str, module: &str| Frame { symbol: symbol.into(), module: module.into() };
    let waits = vec![
        frame("schedule", KERNEL),
        frame("futex_wait", KERNEL),
        frame("rand", "libc.so.6"),
        frame("draw_shared", "vpmu"),
    ];
    let mut chains = vec![Chain { frames: waits, ended: Ended::Bottom }; 9];
    chains.push(Chain { frames: vec![frame("f", "x.so")], ended: Ended::Broken(frame("f", "x.so")) });
    let events: Vec<EventRow> = ALL.iter().map(row).collect();
    let subject = Subject {
        workload: "rand".into(),
        about: "threads draw".into(),
        apart: "one generator per thread".into(),
        operation: "draws".into(),
        threads: 2,
        cpus: 2,
        kernel: "6.1.0".into(),
        turn_ms: 200,
    };
    let speedup = Speedup {
        workload: Rate { per_second: 3e6, interval: None },
        apart: Rate { per_second: 24e6, interval: None },
        ratio: 8.0,
        interval: Some(Interval { low: 7.5, high: 8.5 }),
        rounds: 10,
    };
    let published = Published { id: "a".into(), source: "b".into(), what: "c".into(), figures: "ratio 9 (s)".into() };
    let mut account = Account {
        schema: SCHEMA,
        tool: "0".into(),
        status: Status::Complete,
        subject,
        host: HostFacts { class: "planted".into(), ..HostFacts::default() },
        rounds: 10,
        choice: choose(&events),
        events,
        sampling: Some(fold("context-switches", 120, &chains, Losses::default(), "vpmu")),
        no_samples: None,
        ratio: Some(speedup),
        verdict: Vec::new(),
        notes: vec!["planted".into()],
        published: vec![published],
    };
    account.verdict = sentences(&account);
    account
}

#[test]
fn the_account_reads_from_events_to_verdict() {
    let expected = "\
triage of rand: threads draw
threads 2, CPUs 2, Linux 6.1.0, rounds 10, turns of 200 ms
host: planted

events per second                   idle                      rand      apart
  context-switches                    10                      240k         12  rose
  cpu-migrations                       0                         0          0
  page-faults                          0                         0          0
  alignment-faults                     0                         0          0
  emulation-faults                     0                         0          0
  minor-faults                         0                         0          0
  major-faults                         0                         0          0
  cgroup-switches                      0                         0          0
  task-clock                   0.00 CPUs                 1.80 CPUs  2.00 CPUs  rose
  cpu-clock                    0.00 CPUs                 1.80 CPUs  2.00 CPUs  rose
not counted here: sched:sched_switch, sched:sched_wakeup, sched:sched_migrate_task, exceptions:page_fault_user, \
exceptions:page_fault_kernel, kvm:kvm_exit: no tracefs
not counted here: cycles, instructions, branches, branch-misses, cache-references, cache-misses: this host has no PMU
sample by context-switches: 240k/s against 10/s idle, one in 7.50 µs of CPU time; no other event that happens to a program is as frequent

samples: 10 by context-switches, one in 120, 0 lost; 90.0 % of the chains are complete
  1 chains broken at f (x.so)
heaviest stack: 9 samples (90.0 %)
  schedule ([kernel])
  futex_wait ([kernel])
  rand (libc.so.6)
  draw_shared (vpmu)
next stack: 1 samples (10.0 %)
  f (x.so)

apart: one generator per thread
draws per second, nothing counted: 24M against 3M, ratio 8 [7.50, 8.50], 10 rounds

verdict
  Under rand with 2 threads on 2 CPUs context-switches rose from 10/s to 240k/s, and is the event to sample by.
  On Linux 6.1.0 90.0 % of 10 samples are in rand (libc.so.6), called by draw_shared (vpmu); in the kernel they are most often in \
futex_wait (100.0 % of these).
  The variant (one generator per thread) does 8 times the operations (95 % interval 7.50 to 8.50, 10 rounds, 2 threads on 2 CPUs).
note: planted
published, not measured here: a [b]: c: ratio 9 (s)
";
    assert_eq!(text(&planted()), expected);
    assert_eq!(planted().exit(), Exit::Done);
}

type Change = fn(&mut Account);

#[test]
fn what_is_missing_is_said_and_is_inconclusive() {
    let with = |change: Change| {
        let mut account = planted();
        change(&mut account);
        account.verdict = sentences(&account);
        account
    };
    let cases: [(Change, &str); 7] = [
        (
            |account| (account.sampling, account.no_samples) = (None, Some("no ring".into())),
            "There is no sample on Linux 6.1.0: no ring.",
        ),
        (
            |account| account.sampling = Some(fold("cpu-clock", 1, &[], Losses::default(), "vpmu")),
            "the event did not happen while it sampled",
        ),
        (|account| account.ratio = None, "Without a whole round there is no figure"),
        (|account| account.ratio.as_mut().unwrap().interval = None, "too few for an interval"),
        (
            |account| account.ratio.as_mut().unwrap().interval = Some(Interval { low: 0.9, high: 1.2 }),
            "does more is open: 8 times the operations (95 % interval 0.900 to 1.20",
        ),
        (|account| account.status = Status::Interrupted, "turns of 200 ms, interrupted"),
        (|account| (account.choice, account.sampling) = (None, None), "No event can be counted here under rand"),
    ];
    for (change, needle) in cases {
        let account = with(change);
        assert!(text(&account).contains(needle), "{} lacks {needle:?}", text(&account));
        assert_eq!((account.exit(), account.verdict.len()), (Exit::Inconclusive, 3));
    }
}

#[test]
fn chains_that_are_mostly_broken_are_part_of_the_verdict() {
    let mut account = planted();
    account.sampling.as_mut().unwrap().complete = 3;
    let verdict = sentences(&account);
    assert!(
        verdict[1].contains("only 30.0 % of the chains are complete (most others end at f (x.so))"),
        "{}",
        verdict[1]
    );
}
