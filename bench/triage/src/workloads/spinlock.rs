//! Threads that take a spin lock of user space: one for all, or one each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::crew::{Set, Worked, over, together};
use crate::child::Job;

/// Sections between two looks at the clock.
const BATCH: u64 = 1000;

/// A lock and what it guards, apart from others by more than a line of the cache and its neighbour.
#[derive(Debug, Default)]
#[repr(align(256))]
struct Guarded {
    held: AtomicBool,
    value: AtomicU64,
}

pub(super) fn run(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    let locks: Vec<Guarded> = (0..job.threads).map(|_| Guarded::default()).collect();
    together(job.threads, job.duration, set, |index, stop| {
        let guarded = &locks[if job.apart { index } else { 0 }];
        let mut sections = 0;
        loop {
            for _ in 0..BATCH {
                spin_lock(guarded);
                // Under the lock a load and a store are one step.
                guarded.value.store(guarded.value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                guarded.held.store(false, Ordering::Release);
            }
            sections += BATCH;
            if over(stop) {
                break Ok(sections);
            }
        }
    })
}

#[inline(never)]
fn spin_lock(guarded: &Guarded) {
    while guarded.held.swap(true, Ordering::Acquire) {
        while guarded.held.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}
