//! Threads that map pages, touch each and unmap them: in one address space, or each in a process of its own.

use super::crew::{Set, Worked, over, together};
use crate::child::{Child, Job};
use crate::sys::Pages;

/// Pages of a mapping.
const PAGES: usize = 128;

/// Operations are pages touched.
pub(super) fn run(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    if job.apart {
        return processes(job, set);
    }
    together(job.threads, job.duration, set, |_, stop| {
        let mut touched = 0;
        loop {
            let mut pages = Pages::new(PAGES)?;
            pages.touch();
            touched += PAGES as u64;
            if over(stop) {
                break Ok(touched);
            }
        }
    })
}

/// Starts a process for each thread. They begin once all are there.
fn processes(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    let alone = Job { threads: 1, apart: false, ..job.clone() };
    let mut crew = (0..job.threads).map(|_| Child::start("pagefault", &alone)).collect::<std::io::Result<Vec<_>>>()?;
    crew.iter_mut().try_for_each(Child::prepare)?;
    set()?;
    crew.iter_mut().try_for_each(Child::go)?;
    let mut worked = Worked::default();
    for child in crew {
        let done = child.finish(job.duration, || true)?;
        worked.operations += done.operations;
        worked.seconds = worked.seconds.max(done.seconds);
        worked.switches_of_others += done.voluntary_switches;
    }
    Ok(worked)
}
