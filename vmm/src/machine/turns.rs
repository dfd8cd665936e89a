//! Turns of a guest: its vCPUs wait at the end of each until the next begins.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Action of the vCPUs after a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A turn of so many samples.
    Turn {
        /// Samples per vCPU.
        samples: u64,
    },
    /// The guest ends by itself.
    Finish,
}

/// Rendezvous of a guest's vCPUs with their driver. `T`: the result of a vCPU's turn.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Rests that were ended.
    begun: u64,
    next: Next,
    /// Results of each resting vCPU.
    left: Vec<Option<T>>,
    stopped: bool,
    /// The guest's run is over: nobody comes to rest any more.
    over: bool,
}

impl<T> Turns<T> {
    /// Prepares turns of so many vCPUs.
    pub(crate) fn new(vcpus: usize) -> Self {
        let left = (0..vcpus).map(|_| None).collect();
        let state = State { begun: 0, next: Next::Finish, left, stopped: false, over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Rests vCPU `cpu`, which left this of its turn. Returns when a next turn begins; `None` if all were stopped.
    pub(crate) fn rest(&self, cpu: usize, left: T) -> Option<Next> {
        let mut state = self.lock();
        state.left[cpu] = Some(left);
        let begun = state.begun;
        self.changed.notify_all();
        while state.begun == begun && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.stopped).then_some(state.next)
    }

    /// Waits until all vCPUs rest, and returns their results. `None`: not within `time`, or never again as the run is over.
    pub(crate) fn all_rest(&self, time: Duration) -> Option<Vec<T>> {
        let waiting = |state: &mut State<T>| !state.over && state.left.iter().any(Option::is_none);
        let waited = self.changed.wait_timeout_while(self.lock(), time, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.left.iter().any(Option::is_none) {
            return None;
        }
        state.left.iter_mut().map(Option::take).collect()
    }

    /// Lets all go on. They must all rest.
    pub(crate) fn go(&self, next: Next) {
        let mut state = self.lock();
        state.next = next;
        state.begun += 1;
        self.changed.notify_all();
    }

    /// Ends every rest, now and later.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Ends the guest's run.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Returns whether the guest's run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No holder can panic between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_turn_begins_for_all_when_the_last_one_rests() {
        let turns = Turns::new(2);
        std::thread::scope(|scope| {
            let vcpus: Vec<_> = (0..2)
                .map(|cpu| {
                    let turns = &turns;
                    scope.spawn(move || {
                        let mut seen = Vec::new();
                        while let Some(Next::Turn { samples }) = turns.rest(cpu, (cpu, seen.len())) {
                            seen.push(samples);
                        }
                        seen
                    })
                })
                .collect();
            for turn in 0..3 {
                assert_eq!(turns.all_rest(LONG), Some(vec![(0, turn), (1, turn)]));
                turns.go(Next::Turn { samples: turn as u64 + 5 });
            }
            assert!(turns.all_rest(LONG).is_some());
            turns.go(Next::Finish);
            for vcpu in vcpus {
                assert_eq!(vcpu.join().unwrap(), [5, 6, 7]);
            }
        });
    }

    #[test]
    fn a_stop_ends_every_rest_and_an_end_every_wait() {
        let turns = Turns::new(2);
        assert_eq!(turns.all_rest(Duration::ZERO), None);
        turns.stop();
        assert_eq!((turns.rest(0, 1), turns.rest(0, 1)), (None, None));
        assert!(!turns.is_over());
        turns.end();
        assert_eq!(turns.all_rest(LONG), None, "vCPU 1 never came");
    }
}
