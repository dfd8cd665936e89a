//! Progress and interruption.

use std::sync::atomic::Ordering;

use crate::sys;
use crate::terminal::progress::Progress;
use results::error::{Error, Exit};

/// Progress of the experiment; Ctrl-C ends it between two steps.
pub(super) struct Steps<'a> {
    pub(super) progress: &'a mut dyn Progress,
}

impl Steps<'_> {
    pub(super) fn step(&mut self, what: impl FnOnce() -> String) -> Result<(), Error> {
        if sys::interrupted().load(Ordering::Relaxed) {
            return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
        }
        self.progress.run(&what());
        self.progress.step();
        Ok(())
    }
}
