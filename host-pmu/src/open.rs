//! The host side for a backend and a strategy, and what its events cost to create.

use std::time::Instant;

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
    // The scale of clocks does not matter to what a call costs.
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
    fn an_event_that_does_not_open_has_a_reason() {
        let missing = "tracepoint:kvm/no_such_event_at_all".parse().unwrap();
        assert!(costs(&missing, 1).is_err());
    }
}
