//! A thread per vCPU: started together, watched, stopped together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use host_pmu::kick;

use crate::sys;

/// How often the run looks at its time limit and at the user's interruption.
const POLL: Duration = Duration::from_millis(20);

/// The ends of a run from outside.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Set by the user.
    pub(crate) interrupted: &'a AtomicBool,
    /// When the run began.
    pub(crate) began: Instant,
    /// How long it may take.
    pub(crate) time_limit: Duration,
    /// Called when all are stopped: vCPUs may wait where no kick reaches them.
    pub(crate) on_stop: &'a dyn Fn(),
}

/// The threads of one run.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    /// Set to stop all; each is kicked then.
    pub(crate) stop: AtomicBool,
    tids: Mutex<Vec<libc::pid_t>>,
}

/// The outcome of a thread's work, and whether the others go on without it.
#[derive(Debug)]
pub(crate) struct Left<T> {
    pub(crate) others_go_on: bool,
    pub(crate) outcome: T,
}

impl Crew {
    /// Runs `work(number, vcpu)` on a thread for each of `vcpus`, until all have ended. Stops all of them when the end of one
    /// ends the run, at the time limit, and on interruption.
    ///
    /// Returns their outcomes in order, `None` for one that panicked, and whether the time limit passed.
    pub(crate) fn run<V: Send, T: Send>(
        &self,
        vcpus: Vec<V>,
        limits: &Limits<'_>,
        work: impl Fn(usize, V) -> Left<T> + Sync,
    ) -> (Vec<Option<T>>, bool) {
        let (done, finished) = mpsc::channel();
        std::thread::scope(|scope| {
            let threads: Vec<_> = vcpus
                .into_iter()
                .enumerate()
                .map(|(cpu, vcpu)| {
                    let (done, work) = (Done(Some(done.clone())), &work);
                    // The name by which perf inject finds the threads of QEMU's vCPUs.
                    let named = std::thread::Builder::new().name(format!("CPU {cpu}/KVM"));
                    named.spawn_scoped(scope, move || {
                        lock(&self.tids).push(sys::gettid());
                        let left = work(cpu, vcpu);
                        done.say(left.others_go_on);
                        left.outcome
                    })
                })
                .collect();
            let timed_out = self.watch(&finished, threads.len(), limits);
            // A thread that could not be started counts as one that panicked; the others are stopped.
            (threads.into_iter().map(|thread| thread.ok()?.join().ok()).collect(), timed_out)
        })
    }

    /// Waits for every thread; returns whether the time limit passed.
    fn watch(&self, finished: &mpsc::Receiver<bool>, mut running: usize, limits: &Limits<'_>) -> bool {
        let mut timed_out = false;
        while running > 0 {
            match finished.recv_timeout(POLL) {
                Ok(others_go_on) => {
                    running -= 1;
                    if !others_go_on {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(_) if limits.interrupted.load(Ordering::Relaxed) => self.stop.store(true, Ordering::Relaxed),
                Err(_) if limits.began.elapsed() > limits.time_limit => {
                    timed_out = true;
                    self.stop.store(true, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                // Again at every poll: a kick that hits a thread before its loop begins is without effect.
                for &tid in &*lock(&self.tids) {
                    sys::signal_thread(tid, kick::signal());
                }
                (limits.on_stop)();
            }
        }
        timed_out
    }
}

/// Says that a thread ended, also when it panics.
struct Done(Option<mpsc::Sender<bool>>);

impl Done {
    fn say(mut self, others_go_on: bool) {
        if let Some(done) = self.0.take() {
            // The watch holds the receiver until every thread has spoken.
            let _ = done.send(others_go_on);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            let _ = done.send(false);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panicking holder leaves a list of thread ids, which is whole at any time.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(interrupted: &AtomicBool, time_limit: Duration) -> Limits<'_> {
        Limits { interrupted, began: Instant::now(), time_limit, on_stop: &|| () }
    }

    /// Waits for the stop.
    fn patient(crew: &Crew) {
        while !crew.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_that_fails_or_panics_stops_the_others() {
        // The kick's handler: without one the signal would end the test.
        sys::install_kick_handler(kick::signal()).unwrap();
        let interrupted = AtomicBool::new(false);
        for panics in [false, true] {
            let crew = Crew::default();
            let (left, timed_out) = crew.run(vec!['a', 'b', 'c'], &limits(&interrupted, Duration::MAX), |cpu, name| {
                if cpu == 1 {
                    assert!(!panics, "on purpose");
                    return Left { others_go_on: false, outcome: name };
                }
                patient(&crew);
                Left { others_go_on: true, outcome: name }
            });
            assert_eq!(left, [Some('a'), (!panics).then_some('b'), Some('c')]);
            assert!(!timed_out);
        }
    }

    #[test]
    fn the_time_limit_and_an_interruption_stop_all() {
        sys::install_kick_handler(kick::signal()).unwrap();
        for (interrupted, time_limit, timed_out) in [(false, Duration::ZERO, true), (true, Duration::MAX, false)] {
            let (crew, interrupted) = (Crew::default(), AtomicBool::new(interrupted));
            let (left, late) = crew.run(vec![(), ()], &limits(&interrupted, time_limit), |cpu, ()| {
                patient(&crew);
                Left { others_go_on: true, outcome: cpu }
            });
            assert_eq!((left, late), (vec![Some(0), Some(1)], timed_out));
        }
    }
}
