//! Measurements of the host's events outside of guests: their costs, and what they count there.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use host_pmu::backend::perf::{CYCLES, PerfBackend, os, shortest_clock_period};
use host_pmu::backend::{Backend as _, BackendKey, HostError};
use host_pmu::kick;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::ClockId;

use crate::sys;

/// Time in which a hardware event of guests alone shall count nothing.
const OUTSIDE: Duration = Duration::from_millis(2);

/// Measures the counts of a hardware event a microsecond while no guest runs on the calling thread: 0 where the PMU knows guest mode, as
/// a processor's does. One that a VMM made of a clock may not.
///
/// # Errors
/// The reason why it does not open or count.
pub fn counts_outside_guests() -> Result<f64, HostError> {
    let mut backend = PerfBackend::new(&BackendKey::Hardware, 1_000_000, None)?;
    let mut event = backend.open(CYCLES, 1 << 40)?;
    let (before, begin) = (backend.read(&mut event)?, Instant::now());
    while begin.elapsed() < OUTSIDE {
        std::hint::spin_loop();
    }
    let (after, took) = (backend.read(&mut event)?, begin.elapsed());
    Ok(after.saturating_sub(before) as f64 / (took.as_secs_f64() * 1e6))
}

/// Time between two expiries that are measured, at least: others must not be missed by them.
const EXPIRE_NS: u64 = 100_000;
/// Expiries of a measurement at least.
const EXPIRIES: u64 = 40;

/// Measures the time that an expiry of a `cpu-clock` event takes from its thread, ns: the additional time of the same
/// work while such an event runs, divided by the number of expiries. A value for each of `rounds`; chance may make one
/// negative. The event records and signals as those of a vCPU do.
///
/// # Errors
/// The host refuses the event.
pub fn clock_expiry_ns(rounds: usize) -> Result<Vec<f64>, HostError> {
    apart(|| {
        let period = EXPIRE_NS.max(2 * shortest_clock_period());
        kick::block().map_err(|error| os("pthread_sigmask", &error))?;
        let mut backend = PerfBackend::new(&BackendKey::CpuClock, 1_000_000, None)?;
        let mut event = backend.open(CYCLES, period)?;
        backend.pause(&mut event)?;
        let mut steps = 1 << 16;
        while work(steps) < EXPIRIES * period {
            steps *= 2;
        }
        let mut found = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let without = work(steps);
            backend.resume(&mut event)?;
            let with = work(steps);
            backend.pause(&mut event)?;
            backend.overflowed(&mut |_| ());
            found.push((with as f64 - without as f64) / (with as f64 / period as f64));
        }
        Ok(found)
    })
}

/// Measures on a thread of its own, with which its binding to a CPU and a signal that is pending at the end go.
fn apart<T: Send>(measure: impl FnOnce() -> Result<T, HostError> + Send) -> Result<T, HostError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, measure).map_err(|error| os("clone", &error))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Measures the thread time of `steps` steps.
fn work(steps: u64) -> u64 {
    let begin = sys::clock_ns(ClockId::ThreadCPUTime);
    for step in 0..steps {
        std::hint::black_box(step);
    }
    sys::clock_ns(ClockId::ThreadCPUTime) - begin
}

/// Context switches of a measurement, to and fro.
const TURNS: u32 = 50;
/// Events that a thread holds most meanwhile.
const HELD: usize = 4;

/// Measures how much more a context switch costs a thread that holds events of backend `key`, to and fro, ns: for the first one, for
/// each, and for each that counts. `rounds` values of each; chance may make one negative.
///
/// # Errors
/// The host refuses the events.
pub fn switch_ns(key: &BackendKey, rounds: usize) -> Result<[Vec<f64>; 3], HostError> {
    apart(|| {
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu());
        sched_setaffinity(None, &cpu).map_err(|error| os("sched_setaffinity", &error.into()))?;
        let (mut here, mut there) = UnixStream::pair().map_err(|error| os("socketpair", &error))?;
        // It inherits the CPU, and ends with the other side.
        let echo = move || while there.read_exact(&mut [0]).and_then(|()| there.write_all(&[0])).is_ok() {};
        thread::Builder::new().spawn(echo).map_err(|error| os("clone", &error))?;
        let mut turn = || {
            let begin = Instant::now();
            for _ in 0..TURNS {
                here.write_all(&[0]).and_then(|()| here.read_exact(&mut [0])).map_err(|error| os("a turn", &error))?;
            }
            Ok::<_, HostError>(begin.elapsed().as_nanos() as f64 / f64::from(TURNS))
        };
        let mut found = <[Vec<f64>; 3]>::default();
        for _ in 0..rounds {
            let mut backend = PerfBackend::new(key, 1_000_000, None)?;
            let none = turn()?;
            let (mut events, mut paused) = (Vec::with_capacity(HELD), Vec::with_capacity(HELD));
            for _ in 0..HELD {
                let mut event = backend.open(CYCLES, 1 << 40)?;
                backend.pause(&mut event)?;
                events.push(event);
                paused.push(turn()?);
            }
            for event in &mut events {
                backend.resume(event)?;
            }
            let held = (paused[HELD - 1] - paused[0]) / (HELD - 1) as f64;
            let counting = (turn()? - paused[HELD - 1]) / HELD as f64;
            [paused[0] - none - held, held, counting].iter().zip(&mut found).for_each(|(ns, all)| all.push(*ns));
        }
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use host_pmu::open::probe;

    use super::*;

    #[test]
    fn switches_and_expiries_are_measured_in_every_round() {
        if let Err(error) = probe(&BackendKey::CpuClock) {
            return println!("SKIP: this host refuses a cpu-clock event: {error}");
        }
        let (switches, expiries) = (switch_ns(&BackendKey::CpuClock, 3).unwrap(), clock_expiry_ns(3).unwrap());
        for of in switches.iter().chain([&expiries]) {
            assert!(of.len() == 3 && of.iter().all(|ns| ns.is_finite()), "{of:?}");
        }
    }
}
