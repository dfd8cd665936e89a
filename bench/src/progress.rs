//! Progress on stderr.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use results::shown;

/// Least time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows how far an experiment is.
pub trait Progress {
    /// What is ahead, in a sentence; before anything else.
    fn expect(&mut self, _what: &str) {}
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

/// A bar on a terminal, lines elsewhere, or nothing.
#[must_use]
pub fn shown(shown: bool) -> Box<dyn Progress + Send> {
    match (shown, std::io::stderr().is_terminal()) {
        (false, _) => Box::new(Silent),
        (true, true) => Box::new(Bar::new()),
        (true, false) => Box::new(Lines::new(std::io::stderr(), BETWEEN_LINES)),
    }
}

/// A line every few seconds, for logs.
#[derive(Debug)]
pub struct Lines<W> {
    out: W,
    between: Duration,
    began: Instant,
    last: Instant,
    what: String,
    done: u64,
    total: u64,
}

impl<W: Write> Lines<W> {
    /// Lines to `out`, with at least the time `between` them.
    #[must_use]
    pub fn new(out: W, between: Duration) -> Self {
        let now = Instant::now();
        Self { out, between, began: now, last: now, what: String::new(), done: 0, total: 0 }
    }

    fn line(&mut self, text: &str) {
        // A log that cannot be written is no reason to end the run.
        let _ = writeln!(self.out, "{}", shown::line(text));
    }
}

impl<W: Write> Progress for Lines<W> {
    fn expect(&mut self, what: &str) {
        self.line(what);
    }

    fn begin(&mut self, total: u64) {
        (self.done, self.total) = (0, total);
        self.began = Instant::now();
        self.last = self.began;
    }

    fn run(&mut self, what: &str) {
        what.clone_into(&mut self.what);
    }

    fn step(&mut self) {
        self.done += 1;
        if self.last.elapsed() >= self.between {
            self.last = Instant::now();
            let what = if self.what.is_empty() { String::new() } else { format!(", {}", self.what) };
            let percent = 100 * self.done / self.total.max(1);
            let text = format!(
                "{} s: {percent} % ({} of {} steps){what}",
                self.began.elapsed().as_secs(),
                self.done,
                self.total
            );
            self.line(&text);
        }
    }

    fn end(&mut self) {}
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
    fn expect(&mut self, what: &str) {
        self.bar.println(shown::line(what));
    }

    fn begin(&mut self, total: u64) {
        self.bar.set_length(total);
        let template = "{bar:30} {pos}/{len} {elapsed} (about {eta} left)  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    // Drawn between runs only: a ticking thread would take its time from the vCPUs.
    fn run(&mut self, what: &str) {
        self.bar.set_message(shown::line(what).into_owned());
        self.bar.tick();
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_intervals_and_say_where_it_is() {
        let lines = |between| {
            let mut out = Vec::new();
            let mut lines = Lines::new(&mut out, between);
            lines.expect("this takes about 3 s");
            lines.begin(2);
            for round in 1..3 {
                lines.run(&format!("round {round}, reuse"));
                lines.step();
            }
            lines.end();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            lines(Duration::ZERO),
            "this takes about 3 s\n0 s: 50 % (1 of 2 steps), round 1, reuse\n0 s: 100 % (2 of 2 steps), round 2, reuse\n"
        );
        assert_eq!(lines(Duration::from_secs(3600)), "this takes about 3 s\n");
    }
}
