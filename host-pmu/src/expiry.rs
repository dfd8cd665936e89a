//! Measures the cost of an expiry of a clock.

use std::io;

use arch_pmu::intel::PerfEvtSel;

use crate::backend::attr::{EventKind, event_attr};
use crate::backend::perf::shortest_clock_period;
use crate::sys;

/// Time between two expiries that are measured, at least: others must not be missed by them.
const EXPIRE_NS: u64 = 100_000;
/// Expiries of a measurement at least.
const EXPIRIES: u64 = 40;
/// Size of the ring for the events' records.
const RING_PAGES: usize = 4;

/// Measures the time that an expiry of a `cpu-clock` event takes from its thread, ns: the additional time of the same work while such an
/// event runs, divided by the number of expiries. A value for each of `rounds`; chance may make one negative. The event records and signals
/// as those of a vCPU do.
///
/// # Errors
/// The host refuses the event.
pub fn clock_expiry_ns(rounds: usize) -> io::Result<Vec<f64>> {
    // A signal that is pending at the end goes with its thread.
    let measured = std::thread::Builder::new().name("expiries".to_owned()).spawn(move || measure_expiries(rounds))?;
    measured.join().unwrap_or_else(|_| Err(io::Error::other("the measurement panicked")))
}

fn measure_expiries(rounds: usize) -> io::Result<Vec<f64>> {
    let period = EXPIRE_NS.max(2 * shortest_clock_period());
    let spec = PerfEvtSel::from_bits(0x53_003c).spec();
    sys::block_signal()?;
    let event = sys::open_on_this_thread(event_attr(EventKind::CpuClock, spec, period), None)?;
    sys::disable(&event)?;
    sys::signal_this_thread(&event)?;
    // A user who may lock no memory has no ring, and the event no records.
    let mut ring = sys::Ring::map(&event, RING_PAGES).ok();
    let mut steps = 1 << 16;
    while work(steps) < EXPIRIES * period {
        steps *= 2;
    }
    let mut found = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let without = work(steps);
        sys::enable(&event)?;
        let with = work(steps);
        sys::disable(&event)?;
        if let Some(ring) = &mut ring {
            ring.skip();
        }
        found.push((with as f64 - without as f64) / (with as f64 / period as f64));
    }
    Ok(found)
}

/// Measures the thread time of `steps` steps.
fn work(steps: u64) -> u64 {
    let begin = sys::thread_ns();
    for step in 0..steps {
        std::hint::black_box(step);
    }
    sys::thread_ns() - begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_takes_time_from_its_thread() {
        match clock_expiry_ns(5) {
            Ok(mut found) => {
                found.sort_by(f64::total_cmp);
                assert!(found.len() == 5 && found[2] > 0.0, "{found:?}");
            }
            Err(error) => println!("SKIP: this host refuses a cpu-clock event: {error}"),
        }
    }
}
