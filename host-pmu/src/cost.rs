//! Measures the cost of creating an event, and of a system call.

use std::time::{Duration, Instant};

use crate::sys;

/// Returns the nanoseconds of a cheap system call on this host, the fastest of eight: the measure of a signal's cost, which is some tens of
/// it. It grows on nested and emulated hosts, and under a tracer.
pub(crate) fn cheapest_call_ns() -> u64 {
    let call = || {
        let begin = Instant::now();
        std::hint::black_box(sys::context_switches());
        u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    (0..8).map(|_| call()).min().unwrap_or(0)
}

/// Time it took to create an event and to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Time to open it.
    pub open: Duration,
    /// Time to close it.
    pub close: Duration,
}

impl Cost {
    /// Measures one event that `open` opens and `close` closes.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn of<E, F>(open: impl FnOnce() -> Result<E, F>, close: impl FnOnce(E)) -> Result<Self, F> {
        let begin = Instant::now();
        let event = open()?;
        let opened = Instant::now();
        close(event);
        Ok(Self { open: opened - begin, close: opened.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_does_not_open_is_not_closed() {
        assert_eq!(Cost::of(|| Err::<(), _>("no"), |()| panic!("closed")), Err("no"));
        let mut closed = 0;
        assert!(Cost::of(|| Ok::<_, ()>(7), |event| closed = event).is_ok());
        assert_eq!(closed, 7);
    }
}
