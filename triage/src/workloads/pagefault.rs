//! Threads that map pages, touch each and unmap them: in one address space, or each in a process of its own.

use super::crew::{Worked, over, together};
use crate::child::Child;
use crate::job::Job;
use crate::sys::Pages;

/// Pages of a mapping.
const PAGES: usize = 128;

/// Operations are pages touched.
pub(super) fn run(job: &Job) -> std::io::Result<Worked> {
    if job.apart {
        return processes(job);
    }
    together(job.threads, job.duration, |_, stop| {
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

/// A process for each thread. They begin once all are there.
fn processes(job: &Job) -> std::io::Result<Worked> {
    let alone = Job { threads: 1, apart: false, ..job.clone() };
    let mut crew = (0..job.threads).map(|_| Child::start("pagefault", &alone)).collect::<std::io::Result<Vec<_>>>()?;
    for child in &mut crew {
        child.go()?;
    }
    let (mut touched, mut seconds) = (0, 0.0_f64);
    for child in crew {
        let done = child.finish(job.duration, || true)?;
        touched += done.operations;
        seconds = seconds.max(done.seconds);
    }
    Ok((touched, seconds))
}
