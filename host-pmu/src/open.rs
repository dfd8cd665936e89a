//! The host side for a backend and a strategy.

use crate::backend::perf::{CYCLES, PerfBackend};
use crate::backend::step::StepCounts;
use crate::backend::{Backend as _, BackendKey, HostError};
use crate::bank::Bank;
use crate::side::HostPmu;
use crate::strategy::Strategy;

/// Code that is the same on each host side, of whatever type that is.
pub trait WithHost {
    /// Its result.
    type Out;

    /// Runs with `host`, on the thread that made it.
    fn run<H: HostPmu>(self, host: H) -> Self::Out;
}

/// Runs `job` with the events of backend `key`, kept by `strategy`. `tsc_khz` scales clocks to cycles. Host events belong to the
/// calling thread.
///
/// # Errors
/// The backend does not work here.
pub fn open<W: WithHost>(key: &BackendKey, strategy: &Strategy, tsc_khz: u64, job: W) -> Result<W::Out, HostError> {
    if *key == BackendKey::Step {
        return Ok(job.run(Bank::new(StepCounts::of_steps(), strategy.clone()).reserved()));
    }
    Ok(job.run(Bank::new(PerfBackend::new(key, tsc_khz, Some(strategy))?, strategy.clone()).reserved()))
}

/// Tries whether the events of backend `key` can be opened by the calling thread.
///
/// # Errors
/// The reason why not.
pub fn probe(key: &BackendKey) -> Result<(), HostError> {
    // The scale of clocks does not matter to whether an event opens.
    match key {
        BackendKey::Step | BackendKey::None => Ok(()),
        key => PerfBackend::new(key, 1_000_000, None)?.open(CYCLES, 1 << 40).map(drop),
    }
}
