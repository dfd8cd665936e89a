//! Threads that begin together and work until the time is over.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Operations of all threads, and the seconds from their common start to the end of the last.
pub(super) type Worked = (u64, f64);

/// Runs `work(i, stop)` in `threads` threads. `stop` is set after `duration`; each returns its operations. It looks at `stop` after an
/// operation, so that a thread that the scheduler lets wait for all of that time has done one.
pub(super) fn together(
    threads: usize,
    duration: Duration,
    work: impl Fn(usize, &AtomicBool) -> std::io::Result<u64> + Sync,
) -> std::io::Result<Worked> {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let (stop, start, work) = (&stop, &start, &work);
        let crew: Vec<_> = (0..threads)
            .map(|index| {
                scope.spawn(move || {
                    start.wait();
                    work(index, stop)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let mut operations = 0;
        for thread in crew {
            operations += thread.join().map_err(|_| std::io::Error::other("a thread panicked"))??;
        }
        Ok((operations, began.elapsed().as_secs_f64()))
    })
}

/// Whether the time is over.
pub(super) fn over(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}
