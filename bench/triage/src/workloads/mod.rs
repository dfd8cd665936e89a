//! Programs with a known bottleneck. Each has a variant without it, `apart`.

mod context_switch;
mod pagefault;
mod rand;
pub mod setup;
mod spinlock;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::child::{Done, Job, MOST_THREADS};
use crate::sys::voluntary_switches;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// Description of its threads' work.
    pub about: &'static str,
    /// Description of the variant without the bottleneck.
    pub apart: &'static str,
    /// Description of one operation.
    pub operation: &'static str,
    /// Its threads come in pairs.
    pub pairs: bool,
    /// Ids of published figures of the same kind.
    pub figures: &'static [&'static str],
    run: fn(&Job, Set<'_>) -> io::Result<Worked>,
}

/// Name of the baseline, which is no workload to triage.
pub const IDLE: &str = "idle";

/// The baseline: threads that sleep.
const BASELINE: Workload = Workload {
    name: IDLE,
    about: "threads that sleep: the baseline of triage",
    apart: "the same",
    operation: "sleeps",
    pairs: false,
    figures: &[],
    run: |job, set| {
        together(job.threads, job.duration, set, |_, _| {
            std::thread::sleep(job.duration);
            Ok(1)
        })
    },
};

/// Those with a bottleneck.
pub const WITH_BOTTLENECK: [Workload; 6] = [
    Workload {
        name: "rand",
        about: "threads draw from the C library's one generator, rand()",
        apart: "one generator per thread, rand_r()",
        operation: "draws",
        pairs: false,
        figures: &["event-practice.rand", "rand-contention.2012"],
        run: rand::run,
    },
    Workload {
        name: "pagefault",
        about: "threads of one process map, touch and unmap pages",
        apart: "one process per thread",
        operation: "pages",
        pairs: false,
        figures: &["spinlock-share"],
        run: pagefault::run,
    },
    Workload {
        name: "spinlock",
        about: "threads take one spin lock of user space",
        apart: "one lock per thread",
        operation: "sections",
        pairs: false,
        figures: &[],
        run: spinlock::run,
    },
    Workload {
        name: "context-switch",
        about: "pairs of threads hand a byte to and fro through pipes",
        apart: "one thread of each pair does both sides",
        operation: "round trips",
        pairs: true,
        figures: &[],
        run: context_switch::run,
    },
    Workload {
        name: "setup",
        about: "simulated devices are probed one after the other: an adapter per thread, then 3 disks behind each",
        apart: "all adapters at once, then all disks at once",
        operation: "devices",
        pairs: false,
        figures: &["parallel-probing"],
        run: setup::run,
    },
    Workload {
        name: "setup-disks",
        about: "all simulated adapters are probed at once, then the disks one after the other",
        apart: "all adapters at once, then all disks at once",
        operation: "devices",
        pairs: false,
        figures: &["parallel-probing"],
        run: setup::run_disks,
    },
];

/// Every workload, the baseline last.
pub const ALL: [Workload; WITH_BOTTLENECK.len() + 1] = {
    let mut all = [BASELINE; WITH_BOTTLENECK.len() + 1];
    let mut row = 0;
    while row < WITH_BOTTLENECK.len() {
        all[row] = WITH_BOTTLENECK[row];
        row += 1;
    }
    all
};

impl Workload {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|workload| workload.name == name)
    }

    /// Threads where none are asked for: as many as CPUs, at least two, whole pairs.
    #[must_use]
    pub fn default_threads(&self, cpus: usize) -> usize {
        let threads = cpus.clamp(2, MOST_THREADS);
        if self.pairs { threads.next_multiple_of(2) } else { threads }
    }

    /// Checks that it can run with so many threads.
    ///
    /// # Errors
    /// The reason, with what can.
    pub fn check_threads(&self, threads: usize) -> Result<(), String> {
        if self.pairs && !threads.is_multiple_of(2) {
            return Err(format!("{threads} is odd, and its threads come in pairs; give an even number"));
        }
        Ok(())
    }

    /// Runs it in this process. `set` is called when its threads and processes are there, before they begin: nothing that was before is in
    /// the figures.
    ///
    /// # Errors
    /// Those of the system calls it is made of, and of `set`.
    pub fn run(&self, job: &Job, set: Set<'_>) -> io::Result<Done> {
        let mut before = 0;
        let worked = (self.run)(job, &mut || {
            let done = set();
            before = voluntary_switches();
            done
        })?;
        let voluntary_switches = voluntary_switches() - before + worked.switches_of_others;
        let Worked { operations, seconds, .. } = worked;
        let (workload, threads) = (self.name.to_owned(), job.threads);
        Ok(Done { workload, apart: job.apart, threads, operations, seconds, voluntary_switches })
    }
}

// Threads that begin together and work until the time is over.

/// Called once the crew is there, before it begins to work.
pub type Set<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Work of a crew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Worked {
    /// Operations of all.
    operations: u64,
    /// Seconds from the common start to the end of the last.
    seconds: f64,
    /// Voluntary switches of other processes of the crew.
    switches_of_others: u64,
}

/// Runs `work(i, stop)` in `threads` threads. `stop` is set after `duration`; each returns its operations. It looks at `stop` after an
/// operation, so that a thread that the scheduler lets wait for all of that time has done one.
fn together(
    threads: usize,
    duration: Duration,
    set: Set<'_>,
    work: impl Fn(usize, &AtomicBool) -> io::Result<u64> + Sync,
) -> io::Result<Worked> {
    together_in(|_| Builder::new(), threads, duration, set, work)
}

fn together_in(
    builder: impl Fn(usize) -> Builder,
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
            builder(index).spawn_scoped(scope, move || if gate.pass() { work(index, stop) } else { Ok(0) })
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
    /// Waits for the decision.
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

    /// The first decision counts.
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
fn over(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_does_something_in_both_variants_and_ends() {
        for workload in ALL {
            for apart in [false, true] {
                // Processes of pagefault need the tool.
                if apart && workload.name == "pagefault" {
                    continue;
                }
                let job = Job { threads: 2, duration: Duration::from_millis(5), apart, program: PathBuf::new() };
                let done = workload.run(&job, &mut || Ok(())).unwrap();
                assert!(done.operations > 0 && done.seconds > 0.0, "{done:?}");
                assert_eq!((done.workload.as_str(), done.threads, done.apart), (workload.name, 2, apart));
            }
        }
    }

    #[test]
    fn names_are_unique_and_pairs_are_whole() {
        let names = ALL.map(|workload| workload.name);
        assert!(names.iter().all(|name| Workload::named(name).is_some_and(|found| found.name == *name)));
        assert_eq!(names.last(), Some(&IDLE));
        assert_eq!(names.len(), names.iter().collect::<std::collections::BTreeSet<_>>().len());
        assert!(Workload::named("spin").is_none());
        let pairs = Workload::named("context-switch").unwrap();
        assert_eq!((pairs.default_threads(1), pairs.default_threads(3), pairs.default_threads(4)), (2, 4, 4));
        assert!(pairs.check_threads(3).is_err() && pairs.check_threads(4).is_ok());
        assert_eq!(Workload::named("rand").unwrap().default_threads(3), 3);
    }

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
    fn a_thread_that_cannot_be_created_is_an_error_and_nobody_works() {
        let begun = AtomicUsize::new(0);
        let work = |_: usize, _: &AtomicBool| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok(1)
        };
        // More stack than there are addresses.
        let builder = |index| if index == 2 { Builder::new().stack_size(1 << 50) } else { Builder::new() };
        let mut set = || panic!("the crew is not whole");
        assert!(together_in(builder, 4, SHORT, &mut set, work).is_err());
        let error = together(2, SHORT, &mut || Err(io::ErrorKind::BrokenPipe.into()), work).unwrap_err();
        assert_eq!((error.kind(), begun.into_inner()), (io::ErrorKind::BrokenPipe, 0));
    }
}
