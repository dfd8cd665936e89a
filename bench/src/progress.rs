//! Progress on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far an experiment is.
pub trait Progress {
    /// Before the first of `total` runs.
    fn begin(&mut self, total: u64);
    /// Before a run.
    fn run(&mut self, what: &str);
    /// After a run.
    fn step(&mut self);
    /// After the last run.
    fn end(&mut self);
}

/// No progress shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _total: u64) {}
    fn run(&mut self, _what: &str) {}
    fn step(&mut self) {}
    fn end(&mut self) {}
}

/// A bar, or none.
#[must_use]
pub fn shown(shown: bool) -> Box<dyn Progress + Send> {
    if shown { Box::new(Bar::new()) } else { Box::new(Silent) }
}

/// A bar on stderr. indicatif hides it where stderr is no terminal, and obeys NO_COLOR.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that is not yet shown.
    #[must_use]
    pub fn new() -> Self {
        Self { bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()) }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Bar {
    fn begin(&mut self, total: u64) {
        self.bar.set_length(total);
        let template = "{bar:30} {pos}/{len} {elapsed} (about {eta} left)  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    // Drawn between runs only: a ticking thread would take its time from the vCPUs.
    fn run(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
