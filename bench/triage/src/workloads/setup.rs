//! Probing of simulated devices in two phases, as a kernel that boots does it: adapters, then the disks behind them. A
//! probe is a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::crew::{Set, Worked, over, together};
use crate::child::Job;

/// Disks behind each adapter.
pub const DISKS: usize = 3;
/// Time that a device takes to answer, adapter or disk. A round figure, fitted to nothing.
pub const ANSWER: Duration = Duration::from_millis(2);

/// Runs both phases serially, or parallel. Operations are devices that answered.
pub(super) fn run(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    passes(job, set, job.apart)
}

/// Adapters are parallel, disks serial; or parallel, too.
pub(super) fn run_disks(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    passes(job, set, true)
}

fn passes(job: &Job, set: Set<'_>, adapters_at_once: bool) -> std::io::Result<Worked> {
    together(1, job.duration, set, |_, stop| {
        let answered = AtomicU64::new(0);
        loop {
            phase(job.threads, adapters_at_once, stop, &answered);
            phase(job.threads * DISKS, job.apart, stop, &answered);
            if over(stop) {
                break Ok(answered.into_inner());
            }
        }
    })
}

/// Probes `devices`, one after the other or all at once.
fn phase(devices: usize, at_once: bool, stop: &AtomicBool, answered: &AtomicU64) {
    let probe = || {
        // The first one answers however little time there is.
        if !over(stop) || answered.load(Ordering::Relaxed) == 0 {
            probe_device();
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    if at_once {
        std::thread::scope(|scope| (0..devices).for_each(|_| drop(scope.spawn(probe))));
    } else {
        (0..devices).for_each(|_| probe());
    }
}

#[inline(never)]
fn probe_device() {
    std::thread::sleep(ANSWER);
}
