//! Hardware events: what has no stand-in. They count this thread itself, as there is no guest here.
//!
//! A kernel before 6.2 keeps hardware events in a context of their own and gives no records of them: the tests read counts.

use std::time::{Duration, Instant};

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::Spec;
use host_pmu::backend::perf::{PerfBackend, PerfEvent};
use host_pmu::backend::{Backend as _, BackendKey, HostError};

use crate::events::{pauses_and_resumes, shuts};
use crate::for_preset;

/// EN, INT, OS, USR: instructions retired.
const INSTRUCTIONS: Spec = PerfEvtSel::from_bits(0x53_00c0).spec();
/// More events than any PMU has counters for.
const MANY: usize = 40;
const NEVER: u64 = 1 << 40;

/// Opens a backend of hardware events that count this thread, for `preset`.
fn hardware(preset: &str) -> PerfBackend {
    let mut backend = for_preset(&BackendKey::Hardware, preset).expect("the prerequisite is a PMU");
    backend.counts_host = true;
    backend
}

/// Returns why there are no hardware events.
pub(crate) fn no_pmu() -> Option<String> {
    let opened = for_preset(&BackendKey::Hardware, "recreate").and_then(|mut backend| {
        backend.counts_host = true;
        let mut event = backend.open(INSTRUCTIONS, NEVER)?;
        work(100_000);
        let count = backend.read(&mut event);
        backend.release(event);
        count
    });
    match opened {
        Ok(0) => Some("a hardware event opens, and counts nothing".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Executes at least this many instructions.
fn work(instructions: u64) {
    std::hint::black_box((0..instructions).fold(0, |a, b| a ^ std::hint::black_box(b)));
}

/// Counts while `event` is read again and again, until it has `count` more.
fn run_to(backend: &mut PerfBackend, event: &mut PerfEvent, count: u64) {
    let (first, began) = (backend.read(event).unwrap(), Instant::now());
    while backend.read(event).unwrap() < first + count {
        work(10_000);
        assert!(began.elapsed() < Duration::from_secs(60), "it does not count");
    }
}

pub(crate) fn counts_pauses_and_resumes() {
    pauses_and_resumes(hardware("recreate"), INSTRUCTIONS, || work(100_000), 100_000);
}

/// In guest mode only, as every event behind a vPMC is: without a guest it counts nothing.
pub(crate) fn guest_only_counts_no_host() {
    let mut backend = for_preset(&BackendKey::Hardware, "recreate").unwrap();
    let mut event = backend.open(INSTRUCTIONS, NEVER).unwrap();
    work(1_000_000);
    assert_eq!(backend.read(&mut event).unwrap(), 0);
}

/// An event that does not fit goes to the error state, which its reader learns.
pub(crate) fn pinned_without_a_counter() {
    let mut backend = hardware("recreate");
    let mut events: Vec<_> = (0..MANY).map(|_| backend.open(INSTRUCTIONS, NEVER).unwrap()).collect();
    work(100_000);
    let reads: Vec<_> = events.iter_mut().map(|event| backend.read(event)).collect();
    let counting = reads.iter().filter(|read| matches!(read, Ok(count) if *count > 0)).count();
    let lost = reads.iter().filter(|read| matches!(read, Err(HostError::PinnedLost))).count();
    assert!(
        counting > 0 && lost > 0 && counting + lost == MANY,
        "{counting} count, {lost} are lost of {MANY}: {reads:?}"
    );
    // One that is lost stays so, and a counter that is given back serves a new event.
    while let Some(event) = events.pop() {
        backend.release(event);
    }
    let mut event = backend.open(INSTRUCTIONS, NEVER).unwrap();
    work(100_000);
    assert!(backend.read(&mut event).unwrap() > 100_000);
}

/// Takes what pends of the signal, and returns how many there were.
fn take_kicks() -> usize {
    std::iter::from_fn(|| host_pmu::kick::take().unwrap().then_some(())).count()
}

/// An event overflows at each period, and at the new one after IOC_PERIOD, with a record of each and a signal.
pub(crate) fn overflows_by_period() {
    let mut backend = hardware("reuse");
    let mut event = backend.open(INSTRUCTIONS, 1_000_000).unwrap();
    let overflows = |backend: &mut PerfBackend, event: &mut PerfEvent, count| {
        take_kicks();
        backend.overflowed(&mut |_| ());
        let before = backend.read(event).unwrap();
        run_to(backend, event, count);
        let counted = backend.pause(event).unwrap() - before;
        let mut records = 0u64;
        let complete = backend.overflowed(&mut |_| records += 1);
        backend.resume(event).unwrap();
        assert_eq!(take_kicks(), 1, "one pends at most");
        (complete.then_some(records), counted)
    };
    for period in [1_000_000, 250_000] {
        backend.set_period(&mut event, period).unwrap();
        let (records, counted) = overflows(&mut backend, &mut event, 20_000_000);
        let expected = counted / period;
        // Each pause starts no period anew: at most one is cut at either end.
        let fits = records.is_none_or(|records| records.abs_diff(expected) <= 2);
        assert!(fits, "{records:?} records in {counted} counts of period {period}");
    }
}

/// A gate over hardware events: a pinned leader that counts nothing, and a group that counts as one.
pub(crate) fn gate() {
    let mut backend = hardware("gate");
    let (_, counts) = shuts(&mut backend, INSTRUCTIONS, || work(100_000), 100_000);
    // A stand-in behind the PMU of a guest counts each by itself.
    assert!(counts[0].abs_diff(counts[1]) < counts[0] / 20, "events of one group count alike: {counts:?}");
}

/// An event counts its thread alone: what others do while it sleeps does not count.
pub(crate) fn counts_its_thread_alone() {
    let mut backend = hardware("recreate");
    let mut event = backend.open(INSTRUCTIONS, NEVER).unwrap();
    let before = backend.read(&mut event).unwrap();
    // The other's work is done while this thread waits.
    std::thread::scope(|scope| {
        scope.spawn(|| work(5_000_000));
    });
    let counted = backend.read(&mut event).unwrap() - before;
    assert!(counted < 2_500_000, "{counted} instructions of a thread that waited");
}
