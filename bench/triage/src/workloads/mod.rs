//! Programs with a known bottleneck. Each has a variant without it, `apart`.

mod context_switch;
mod crew;
mod pagefault;
mod rand;
pub mod setup;
mod spinlock;

use std::io;

pub use crew::Set;

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
    run: fn(&Job, Set<'_>) -> io::Result<crew::Worked>,
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
    run: |job, set| {
        crew::together(job.threads, job.duration, set, |_, _| {
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
        run: rand::run,
    },
    Workload {
        name: "pagefault",
        about: "threads of one process map, touch and unmap pages",
        apart: "one process per thread",
        operation: "pages",
        pairs: false,
        run: pagefault::run,
    },
    Workload {
        name: "spinlock",
        about: "threads take one spin lock of user space",
        apart: "one lock per thread",
        operation: "sections",
        pairs: false,
        run: spinlock::run,
    },
    Workload {
        name: "context-switch",
        about: "pairs of threads hand a byte to and fro through pipes",
        apart: "one thread of each pair does both sides",
        operation: "round trips",
        pairs: true,
        run: context_switch::run,
    },
    Workload {
        name: "setup",
        about: "simulated devices are probed one after the other: an adapter per thread, then 3 disks behind each",
        apart: "all adapters at once, then all disks at once",
        operation: "devices",
        pairs: false,
        run: setup::run,
    },
    Workload {
        name: "setup-disks",
        about: "all simulated adapters are probed at once, then the disks one after the other",
        apart: "all adapters at once, then all disks at once",
        operation: "devices",
        pairs: false,
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
    /// Finds the one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|workload| workload.name == name)
    }

    /// Threads where none are asked for: as many as CPUs, at least two, whole pairs.
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

    /// Runs it in this process. `set` is called when its threads and processes are there, before they begin: nothing
    /// that was before is in the figures.
    ///
    /// # Errors
    /// Returns the errors of the system calls it is made of, and of `set`.
    pub fn run(&self, job: &Job, set: Set<'_>) -> io::Result<Done> {
        let mut before = 0;
        let worked = (self.run)(job, &mut || {
            let done = set();
            before = voluntary_switches();
            done
        })?;
        let voluntary_switches = voluntary_switches() - before + worked.switches_of_others;
        let crew::Worked { operations, seconds, .. } = worked;
        let (workload, threads) = (self.name.to_owned(), job.threads);
        Ok(Done { workload, apart: job.apart, threads, operations, seconds, voluntary_switches })
    }
}
