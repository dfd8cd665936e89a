//! A thread per vCPU: started together, watched, stopped together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use host_pmu::kick;

use super::error::MachineError;
use crate::sys;

/// Interval at which the run looks at its time limit and at the user's interruption.
const POLL: Duration = Duration::from_millis(20);

/// The ends of a run from outside.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Set by the user.
    pub(crate) interrupted: &'a AtomicBool,
    /// When the run began.
    pub(crate) began: Instant,
    /// Longest time that it may take.
    pub(crate) time_limit: Duration,
    /// Called when all are stopped: vCPUs may wait where no kick reaches them.
    pub(crate) on_stop: &'a dyn Fn(),
}

/// Time after the order to stop until the process ends. It is longer than any thread takes to close its events, on an emulated host
/// as well.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// The threads of one run.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    /// Set to stop all; each is kicked then.
    pub(crate) stop: AtomicBool,
    tids: Mutex<Vec<libc::pid_t>>,
}

impl Crew {
    /// Runs `work(number, vcpu)` on a thread for each of `vcpus`, until all have ended; it returns whether the others go on without
    /// it, and its outcome. Stops all of them when the end of one
    /// ends the run, at the time limit, and on interruption.
    ///
    /// Returns their outcomes in order, or why there is none, and whether the time limit passed.
    pub(crate) fn run<V: Send, T: Send>(
        &self,
        vcpus: Vec<V>,
        limits: &Limits<'_>,
        work: impl Fn(usize, V) -> (bool, T) + Sync,
    ) -> (Vec<Result<T, MachineError>>, bool) {
        let (done, finished) = mpsc::channel();
        std::thread::scope(|scope| {
            let threads: Vec<_> = vcpus
                .into_iter()
                .enumerate()
                .map(|(cpu, vcpu)| {
                    let (done, work) = (Done { to: done.clone(), others_go_on: false }, &work);
                    // The name by which perf inject finds the threads of QEMU's vCPUs.
                    let named = std::thread::Builder::new().name(format!("CPU {cpu}/KVM"));
                    named.spawn_scoped(scope, move || {
                        // The thread takes all of it, because its drop says that the thread has ended.
                        let mut done = done;
                        lock(&self.tids).push(sys::gettid());
                        let outcome;
                        (done.others_go_on, outcome) = work(cpu, vcpu);
                        outcome
                    })
                })
                .collect();
            let timed_out = self.watch(&finished, threads.len(), limits);
            // One that could not be started has stopped the others.
            let not_started = |error| MachineError::Host(format!("a vCPU's thread cannot be started: {error}"));
            let panicked = |_| MachineError::Panicked("a vCPU's thread");
            let ended = threads.into_iter().map(|thread| thread.map_err(not_started)?.join().map_err(panicked));
            (ended.collect(), timed_out)
        })
    }

    /// Waits for every thread.
    fn watch(&self, finished: &mpsc::Receiver<bool>, mut running: usize, limits: &Limits<'_>) -> bool {
        let (mut timed_out, mut told) = (false, None);
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
                // The kick is repeated at every poll, because one that hits a thread before its loop begins has no effect.
                for &tid in &*lock(&self.tids) {
                    sys::signal_thread(tid, kick::signal());
                }
                (limits.on_stop)();
                let told_for = told.get_or_insert_with(Instant::now).elapsed();
                if running > 0 && told_for >= GIVE_UP_AFTER {
                    give_up();
                }
            }
        }
        timed_out
    }
}

/// Ends the process: whoever waits for the thread would wait for good.
fn give_up() {
    /// The exit code for what this host cannot do.
    const EXIT: i32 = 4;
    eprintln!(
        "vpmu: error: a vCPU's thread does not stop; the signals of its host events may keep it busy: longer periods, fewer counters, \
         another strategy"
    );
    std::process::exit(EXIT);
}

/// Says that a thread ended, also when it panics, and whether the others go on without it.
struct Done {
    to: mpsc::Sender<bool>,
    others_go_on: bool,
}

impl Drop for Done {
    fn drop(&mut self) {
        // The watch holds the receiver until every thread has spoken.
        let _ = self.to.send(self.others_go_on);
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
        let crew = Crew::default();
        crew.run(vec![(), ()], &limits(&interrupted, Duration::MAX), |_, ()| (true, ()));
        assert!(!crew.stop.load(Ordering::Relaxed), "without the ones that are done the others go on");
        for panics in [false, true] {
            let crew = Crew::default();
            let (left, timed_out) = crew.run(vec!['a', 'b', 'c'], &limits(&interrupted, Duration::MAX), |cpu, name| {
                if cpu == 1 {
                    assert!(!panics, "on purpose");
                    return (false, name);
                }
                patient(&crew);
                (true, name)
            });
            let [a, b, c] = &left[..] else { panic!("{left:?}") };
            assert!(matches!((a, c), (Ok('a'), Ok('c'))), "{left:?}");
            assert!(
                if panics { matches!(b, Err(MachineError::Panicked(_))) } else { matches!(b, Ok('b')) },
                "{left:?}"
            );
            assert!(!timed_out);
        }
    }
}
