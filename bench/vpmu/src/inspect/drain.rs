//! Draining: a thread beside a guest takes what its vCPUs leave out of their queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use results::error::Error;

use crate::machine::linux::guest::Sets;

/// Runs `guest` beside a thread that takes out what its vCPUs leave, until the guest has ended; returns what is left of `state` and the
/// guest's end. `look` is called with whether the guest has ended. It returns `None` if there may be more to take out at once, or else
/// how long to wait before the next look.
///
/// # Errors
/// The host gives no thread; exit 70 for a panic of the thread.
pub(super) fn run_beside_drain<T: Send, R>(
    mut state: T,
    mut look: impl FnMut(&mut T, bool) -> Option<Duration> + Send,
    guest: impl FnOnce() -> R,
) -> Result<(T, R), Error> {
    let done = AtomicBool::new(false);
    let is_over = &done;
    let drain = move || loop {
        // The flag is read before the queues, because a guest that has ended adds nothing to them.
        let last = is_over.load(Ordering::Acquire);
        match look(&mut state, last) {
            Some(_) if last => return state,
            Some(pause) if !is_over.load(Ordering::Relaxed) => std::thread::park_timeout(pause),
            _ => {}
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let cannot = |error: std::io::Error| Error::host("cannot start the recorder", error.to_string(), "");
        let thread = thread.spawn_scoped(scope, drain).map_err(cannot)?;
        let told = Sets(&done);
        let ended = guest();
        drop(told);
        thread.thread().unpark();
        let drained = thread.join().map_err(|_| Error::internal("the recorder panicked", "see above"))?;
        Ok((drained, ended))
    })
}

/// Most samples of one vCPU that are taken out before the others have their turn: the guest decides how many it makes.
const MOST_AT_ONCE: usize = 2048;

/// Takes no more of a queue than a turn has; returns whether there may be more.
pub(super) fn take_some<T>(mut next: impl FnMut() -> Option<T>, mut take: impl FnMut(T)) -> bool {
    for _ in 0..MOST_AT_ONCE {
        let Some(one) = next() else { return false };
        take(one);
    }
    true
}
