//! The host side for a backend and a strategy, and what its events cost to create.

use std::time::{Duration, Instant};

use crate::backend::perf::{CYCLES, PerfBackend};
use crate::backend::step::StepBackend;
use crate::backend::{Backend as _, BackendKey, HostError};
use crate::bank::Bank;
use crate::cost::Cost;
use crate::side::HostPmu;
use crate::strategy::Strategy;

/// Work that is the same on each host side.
pub trait Work {
    /// Its result.
    type Out;

    /// Does the work with `host`, on the thread that made it.
    fn run<H: HostPmu>(self, host: H) -> Self::Out;
}

/// Does `work` with the events of backend `key`, kept by `strategy`. `tsc_khz` scales clocks to cycles. Host events belong to the
/// calling thread.
///
/// # Errors
/// The backend does not work here.
pub fn open<W: Work>(key: &BackendKey, strategy: &Strategy, tsc_khz: u64, work: W) -> Result<W::Out, HostError> {
    match key {
        BackendKey::Step => Ok(work.run(Bank::new(StepBackend::new(), strategy.clone()).reserved())),
        BackendKey::Hardware
        | BackendKey::CpuClock
        | BackendKey::CpuClockAt { .. }
        | BackendKey::TaskClock
        | BackendKey::Tracepoint { .. }
        | BackendKey::None => {
            Ok(work.run(Bank::new(PerfBackend::with(key, tsc_khz, strategy)?, strategy.clone()).reserved()))
        }
    }
}

/// Tries whether the events of backend `key` can be opened by the calling thread. A tracepoint's stays open until the next one is, for
/// its last close takes long.
///
/// # Errors
/// The reason why not.
pub fn probe(key: &BackendKey) -> Result<(), HostError> {
    // The scale of clocks does not matter to whether an event opens.
    if key.has_host_events() { PerfBackend::new(key, 1_000_000)?.probe() } else { Ok(()) }
}

/// Opens and closes an event of backend `key` on the calling thread `times` times, one at a time. None for a backend without host
/// events.
///
/// # Errors
/// The reason why it does not open.
pub fn costs(key: &BackendKey, times: usize) -> Result<Vec<Cost>, HostError> {
    if !key.has_host_events() {
        return Ok(Vec::new());
    }
    // The scale of clocks does not matter to the cost of a call.
    let mut backend = PerfBackend::new(key, 1_000_000)?;
    (0..times)
        .map(|_| {
            let begin = Instant::now();
            let event = backend.open(CYCLES, 1 << 40)?;
            let opened = Instant::now();
            backend.release(event);
            Ok(Cost { open: opened - begin, close: opened.elapsed() })
        })
        .collect()
}

/// Measures the counts of a hardware event a microsecond while no guest runs on the calling thread, over about `span`: 0 where the PMU
/// knows guest mode, as a processor's does. One that a VMM made of a clock may not.
///
/// # Errors
/// The reason why it does not open or count.
pub fn counts_outside_guests(span: Duration) -> Result<f64, HostError> {
    let mut backend = PerfBackend::new(&BackendKey::Hardware, 1_000_000)?;
    let mut event = backend.open(CYCLES, 1 << 40)?;
    let (before, begin) = (backend.read(&mut event)?, Instant::now());
    while begin.elapsed() < span {
        std::hint::spin_loop();
    }
    let (after, took) = (backend.read(&mut event)?, begin.elapsed());
    backend.release(event);
    Ok(after.saturating_sub(before) as f64 / (took.as_secs_f64() * 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_without_host_events_costs_none() {
        for key in [BackendKey::Step, BackendKey::None] {
            assert_eq!(costs(&key, 3).unwrap(), []);
        }
    }

    #[test]
    fn without_a_pmu_nothing_is_said_of_what_it_counts() {
        let counts = counts_outside_guests(Duration::from_micros(100));
        assert_eq!(counts.is_ok(), probe(&BackendKey::Hardware).is_ok(), "{counts:?}");
    }

    #[test]
    fn an_event_that_does_not_open_has_a_reason() {
        let missing = "tracepoint:kvm/no_such_event_at_all".parse().unwrap();
        assert!(costs(&missing, 1).is_err());
    }
}
