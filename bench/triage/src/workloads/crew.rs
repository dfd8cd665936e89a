//! Threads that begin together and work until the time is over.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Called once the crew is there, before it begins to work.
pub type Set<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Work of a crew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Worked {
    /// Operations of all.
    pub(super) operations: u64,
    /// Seconds from the common start to the end of the last.
    pub(super) seconds: f64,
    /// Voluntary switches of other processes of the crew.
    pub(super) switches_of_others: u64,
}

/// Runs `work(i, stop)` in `threads` threads. `stop` is set after `duration`; each returns its operations. It looks at
/// `stop` after an operation, so that a thread that the scheduler lets wait for all of that time has done one.
pub(super) fn together(
    threads: usize,
    duration: Duration,
    set: Set<'_>,
    work: impl Fn(usize, &AtomicBool) -> io::Result<u64> + Sync,
) -> io::Result<Worked> {
    let (stop, gate) = (AtomicBool::new(false), Gate::default());
    std::thread::scope(|scope| {
        let (stop, gate, work) = (&stop, &gate, &work);
        // Whatever goes wrong from here on, those that wait are sent home: the scope waits for them.
        let closing = Closing(gate);
        let spawn = |index: usize| {
            Builder::new().spawn_scoped(scope, move || if gate.pass() { work(index, stop) } else { Ok(0) })
        };
        let crew = (0..threads).map(spawn).collect::<io::Result<Vec<_>>>()?;
        gate.wait_for(threads);
        set()?;
        gate.decide(true);
        drop(closing);
        let began = Instant::now();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let mut operations = 0;
        for thread in crew {
            operations += thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        Ok(Worked { operations, seconds: began.elapsed().as_secs_f64(), switches_of_others: 0 })
    })
}

/// Gate at which the crew waits.
#[derive(Debug, Default)]
struct Gate {
    /// Number of threads that are there; the decision to work, once it is made.
    state: Mutex<(usize, Option<bool>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the decision; returns whether to work.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        self.changed.notify_all();
        let undecided = |state: &mut (usize, Option<bool>)| state.1.is_none();
        let state = self.changed.wait_while(state, undecided).unwrap_or_else(PoisonError::into_inner);
        state.1 == Some(true)
    }

    /// Waits until so many wait.
    fn wait_for(&self, threads: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.0 < threads));
    }

    /// Decides once: the first decision counts.
    fn decide(&self, work: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.get_or_insert(work);
        self.changed.notify_all();
    }
}

/// Sends those home that wait at a gate without a decision.
struct Closing<'a>(&'a Gate);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.decide(false);
    }
}

/// Returns whether the time is over.
pub(super) fn over(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_crew_begins_once_all_are_there() {
        let begun = AtomicUsize::new(0);
        let mut at_set = None;
        let mut set = || {
            at_set = Some(begun.load(Ordering::Relaxed));
            Ok(())
        };
        let worked = together(3, SHORT, &mut set, |index, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok(index as u64)
        });
        assert_eq!((worked.unwrap().operations, at_set), (3, Some(0)));
    }

    #[test]
    fn a_crew_that_cannot_begin_is_an_error_and_nobody_works() {
        let begun = AtomicUsize::new(0);
        let failed = together(2, SHORT, &mut || Err(io::ErrorKind::BrokenPipe.into()), |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok(1)
        });
        assert_eq!((failed.unwrap_err().kind(), begun.into_inner()), (io::ErrorKind::BrokenPipe, 0));
    }
}
