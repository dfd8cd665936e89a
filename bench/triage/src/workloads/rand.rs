//! Threads that draw random numbers: from the C library's one generator, whose lock they contend for, or each from its own.

use std::hint::black_box;

use super::crew::{Set, Worked, over, together};
use crate::child::Job;
use crate::sys;

/// Draws between two looks at the clock.
const BATCH: u64 = 1000;

pub(super) fn run(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    together(job.threads, job.duration, set, |index, stop| {
        let (mut draws, mut seed) = (0, index as u32 + 1);
        loop {
            if job.apart {
                draw_own(&mut seed);
            } else {
                draw_shared();
            }
            draws += BATCH;
            if over(stop) {
                break Ok(draws);
            }
        }
    })
}

#[inline(never)]
fn draw_shared() {
    for _ in 0..BATCH {
        black_box(sys::shared_random());
    }
}

#[inline(never)]
fn draw_own(seed: &mut u32) {
    for _ in 0..BATCH {
        black_box(sys::own_random(seed));
    }
}
