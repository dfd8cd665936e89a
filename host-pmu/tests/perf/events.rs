//! Counts, overflows and the gate of real events, and sched slices and sleeps of the calling thread. The signal of an
//! overflow is blocked throughout. The host may preempt a test between two looks: those at slices are repeated.

use std::time::{Duration, Instant};

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::Spec;
use host_pmu::backend::monitor::Monitor;
use host_pmu::backend::perf::{PerfBackend, PerfEvent};
use host_pmu::backend::{Backend as _, BackendKey};
use rustix::time::{ClockId, clock_gettime};

use crate::{clock, for_preset};

pub(crate) const CYCLES: Spec = PerfEvtSel::from_bits(0x51_003c).spec();
const MS: u64 = 1_000_000;

/// Runs for a time of the thread: another that takes its CPU does not shorten what the events count.
fn run_for(time: Duration) {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let began = now();
    while now().saturating_sub(began) < time {}
}

/// Runs the thread until an event overflows; returns its id and its count at the overflow.
fn run_to_overflow(backend: &mut PerfBackend) -> (u64, u64) {
    let began = Instant::now();
    let mut found = None;
    while found.is_none() && began.elapsed().as_secs() < 10 {
        backend.overflowed(&mut |it| found = Some((it.id, it.count)));
    }
    found.expect("an event of 1 ms overflows within 10 s")
}

pub(crate) fn counts_pauses_and_resumes() {
    pauses_and_resumes(clock("recreate"), CYCLES, || run_for(Duration::from_millis(1)), 0);
}

/// An event of `spec` counts more than `least` in each `work`, but while it is paused.
pub(crate) fn pauses_and_resumes(mut backend: PerfBackend, spec: Spec, work: fn(), least: u64) {
    let mut event = backend.open(spec, 1 << 40).unwrap();
    work();
    let first = backend.pause(&mut event).unwrap();
    assert!(first > least, "{first} counts");
    work();
    assert_eq!(backend.read(&mut event).unwrap(), first, "a paused event counts");
    backend.set_period(&mut event, 1 << 41).unwrap();
    backend.resume(&mut event).unwrap();
    work();
    assert!(backend.read(&mut event).unwrap() > first + least);
}

pub(crate) fn every_system_call() -> BackendKey {
    BackendKey::Tracepoint { group: "raw_syscalls".to_owned(), name: "sys_enter".to_owned() }
}

/// The calls that give an event its signal and its ring are not counted by it.
pub(crate) fn counts_when_all_is_set() {
    let mut backend = for_preset(&every_system_call(), "reuse").unwrap();
    let mut event = backend.open(CYCLES, 1 << 40).unwrap();
    let count = backend.read(&mut event).unwrap();
    assert!(count <= 1, "{count} system calls before its first read, which is one");
}

/// More overflows than the ring has room for, and none after them.
pub(crate) fn full_ring() {
    let mut backend = clock("reuse");
    let mut event = backend.open(CYCLES, 1).unwrap();
    let shortest = host_pmu::backend::perf::shortest_clock_period();
    while backend.read(&mut event).unwrap() < 2000 * shortest {}
    backend.pause(&mut event).unwrap();
    let mut records = 0;
    let complete = backend.overflowed(&mut |_| records += 1);
    assert!(records > 450 && !complete, "{records} records, complete: {complete}");
    assert!(backend.overflowed(&mut |_| ()), "nothing is lost while the event is paused");
    // The kernel's own report of that loss comes with the next record.
    backend.resume(&mut event).unwrap();
    let mut more = 0;
    while more == 0 {
        backend.overflowed(&mut |_| more += 1);
    }
    assert_eq!(backend.monitor.records.lost, 1);
}

/// A count that is found without a call lies between two reads; a switch, a pause or a resume of any event ends that.
pub(crate) fn peek() {
    let mut backend = clock("virtual");
    assert!(backend.facts().virtual_pauses && !backend.facts().gate);
    let mut events = [backend.open(CYCLES, 1 << 40).unwrap(), backend.open(CYCLES, 1 << 40).unwrap()];
    assert_eq!(backend.peek(&events[0]), None, "nothing is known of it yet");
    // The host may switch the thread out at any time, or stop its events for a moment where other users open theirs.
    let found = (0..1000).find_map(|_| {
        let before = backend.read(&mut events[0]).unwrap();
        let others = backend.peek(&events[1]);
        let found = backend.peek(&events[0])?;
        let after = backend.read(&mut events[0]).unwrap();
        // NTP may slew the clock that is read here against that of the event, by less than a ns in such a time.
        others.filter(|_| (before.max(1)..=after + 1).contains(&found))
    });
    assert!(
        found.is_some_and(|others| others > 0),
        "what is found lies between two reads, and one read tells the counts of all"
    );
    let known = |backend: &mut PerfBackend, events: &mut [_; 2]| {
        (0..1000).any(|_| {
            backend.read(&mut events[0]).unwrap();
            backend.peek(&events[0]).is_some()
        })
    };
    assert!(known(&mut backend, &mut events));
    backend.pause(&mut events[1]).unwrap();
    assert_eq!(backend.peek(&events[1]), None, "it was stopped");
    backend.resume(&mut events[1]).unwrap();
    assert_eq!(backend.peek(&events[0]), None, "others stop while one is enabled");
    assert!(known(&mut backend, &mut events));
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(backend.peek(&events[0]), None, "the thread slept");
    // An overflow's record is an anchor as well.
    backend.set_period(&mut events[0], MS).unwrap();
    let from_record = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_micros(10));
        assert_eq!(backend.peek(&events[0]), None);
        let (_, count) = run_to_overflow(&mut backend);
        backend.peek(&events[0]).is_some_and(|found| found >= count)
    });
    assert!(from_record);
}

/// A gate stops and starts two events of `spec`, which count more than `least` in each `work` while it is open. Returns them, and
/// their counts when it was shut.
pub(crate) fn shuts(backend: &mut PerfBackend, spec: Spec, work: fn(), least: u64) -> ([PerfEvent; 2], [u64; 2]) {
    let mut events = [backend.open(spec, 1 << 40).unwrap(), backend.open(spec, 1 << 40).unwrap()];
    work();
    assert_eq!(backend.read(&mut events[0]).unwrap(), 0, "the gate is shut at first");
    backend.open_gate().unwrap();
    work();
    backend.shut_gate().unwrap();
    let counts = events.each_mut().map(|event| {
        let count = backend.read(event).unwrap();
        assert!(count > least, "{count} counts");
        assert_eq!(backend.shut_at(event), Some(count));
        count
    });
    backend.pause(&mut events[1]).unwrap();
    let paused = backend.read(&mut events[1]).unwrap();
    backend.open_gate().unwrap();
    work();
    assert_eq!(backend.read(&mut events[1]).unwrap(), paused, "a paused event counts while the gate is open");
    assert!(backend.read(&mut events[0]).unwrap() > counts[0]);
    (events, counts)
}

pub(crate) fn gate() {
    let mut backend = clock("gate");
    let (mut events, _) = shuts(&mut backend, CYCLES, || run_for(Duration::from_millis(2)), MS);
    // One that is resumed or opened while the gate is open counts at once, not from the next slice on.
    let mut late = 0;
    for _ in 0..20 {
        let before = backend.pause(&mut events[1]).unwrap();
        backend.resume(&mut events[1]).unwrap();
        let mut opened = backend.open(CYCLES, 1 << 40).unwrap();
        run_for(Duration::from_micros(200));
        let counts = [backend.read(&mut events[1]).unwrap() - before, backend.read(&mut opened).unwrap()];
        late += u32::from(counts.into_iter().any(|count| count < MS / 10));
        backend.release(opened);
    }
    assert!(late < 10, "{late} of 20 did not count");
}

fn notices_a_sleep(mut monitor: Monitor) {
    monitor.sched_in();
    assert!((0..100).any(|_| !monitor.sched_in()), "every look claims a new slice");
    std::thread::sleep(Duration::from_millis(2));
    assert!(monitor.sched_in(), "the thread slept and was switched in again");
}

pub(crate) fn counts_notice_a_sleep() {
    notices_a_sleep(Monitor::without_ring());
}

pub(crate) fn ring_notices_a_sleep() {
    let monitor = Monitor::open();
    assert!(monitor.sees_records());
    notices_a_sleep(monitor);
}

/// Each resume adds the event to the CPU anew, which moves the sequence count of the page it shares.
pub(crate) fn a_resume_is_no_slice() {
    let mut backend = clock("recreate");
    backend.attend();
    assert!(backend.monitor.sees_records());
    let mut event = backend.open(CYCLES, 1 << 40).unwrap();
    let mut slices = || {
        backend.sched_in();
        backend.pause(&mut event).unwrap();
        backend.resume(&mut event).unwrap();
        backend.sched_in()
    };
    assert!((0..100).any(|_| !slices()), "every resume claims a slice");
}
