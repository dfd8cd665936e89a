//! The event of a trial, kept until one for use is open.
//!
//! The last close of a tracepoint waits for grace periods, some 40 ms. A trial's close is not the last while another event is open.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static KEPT: Mutex<Option<OwnedFd>> = Mutex::new(None);
/// Flag that each opening looks at, so that it takes no lock when there is nothing to release.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

fn swap(event: Option<OwnedFd>) {
    IS_KEPT.store(event.is_some(), Ordering::Relaxed);
    let before = std::mem::replace(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner), event);
    drop(before);
}

/// Keeps the event of a trial, if need be until the end of the process.
pub(super) fn keep(event: OwnedFd) {
    swap(Some(event));
}

/// Releases the trial's event once an event for use is open.
#[inline]
pub(super) fn give_back() {
    if IS_KEPT.load(Ordering::Relaxed) {
        swap(None);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_trial_is_closed_with_the_first_event_for_use() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        keep(writer.into());
        assert!(IS_KEPT.load(Ordering::Relaxed));
        give_back();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the other end is closed");
        give_back();
        assert!(!IS_KEPT.load(Ordering::Relaxed));
    }
}
