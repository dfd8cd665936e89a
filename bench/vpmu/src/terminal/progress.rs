//! Progress on stderr.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use results::shown;

/// Least time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// Least time between two pictures of a bar.
const BETWEEN_PICTURES: Duration = Duration::from_millis(50);
/// Characters of a bar.
const BAR: u64 = 30;

/// Shows how far an experiment is.
pub trait Progress {
    /// Announces the work ahead, in a sentence; before anything else.
    fn expect(&mut self, _what: &str) {}
    /// Begins `total` runs.
    fn begin(&mut self, total: u64);
    /// Begins a run.
    fn run(&mut self, what: &str);
    /// Ends a run.
    fn step(&mut self);
    /// Ends the last run.
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

/// Returns a bar on a terminal, lines elsewhere, or nothing.
pub fn shown(shown: bool) -> Box<dyn Progress + Send> {
    match (shown, std::io::stderr().is_terminal()) {
        (false, _) => Box::new(Silent),
        (true, true) => Box::new(Bar::new(std::io::stderr(), BETWEEN_PICTURES)),
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
            // A duration may have room for more rounds than were expected.
            let total = self.total.max(self.done);
            let percent = 100 * self.done / total.max(1);
            let text =
                format!("{} s: {percent} % ({} of {} steps){what}", self.began.elapsed().as_secs(), self.done, total);
            self.line(&text);
        }
    }

    fn end(&mut self) {}
}

/// A line that is written over and over, for a terminal; without colour.
#[derive(Debug)]
pub struct Bar<W> {
    out: W,
    between: Duration,
    began: Instant,
    drawn: Option<Instant>,
    what: String,
    done: u64,
    total: u64,
}

impl<W: Write> Bar<W> {
    /// Returns a bar on `out`, drawn with at least the time `between` two pictures.
    pub fn new(out: W, between: Duration) -> Self {
        Self { out, between, began: Instant::now(), drawn: None, what: String::new(), done: 0, total: 0 }
    }

    // Drawn between runs only: a ticking thread would take its time from the vCPUs.
    fn draw(&mut self) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < self.between) {
            return;
        }
        self.drawn = Some(Instant::now());
        let total = self.total.max(1);
        let done = (BAR * self.done / total).min(BAR) as usize;
        let spent = self.began.elapsed().as_secs_f64();
        let left = match self.done {
            0 => String::new(),
            done => format!(" (about {:.0} s left)", spent / done as f64 * total.saturating_sub(done) as f64),
        };
        let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR as usize - done));
        let text = format!("{bar} {}/{} {spent:.0} s{left}  {}", self.done, self.total, self.what);
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        let text: String = text.chars().take(columns.saturating_sub(1)).collect();
        self.write(&text);
    }

    /// Writes over the line. A terminal that is gone is no reason to end the run.
    fn write(&mut self, text: &str) {
        let _ = write!(self.out, "\r\x1b[K{text}").and_then(|()| self.out.flush());
    }
}

impl<W: Write> Progress for Bar<W> {
    fn expect(&mut self, what: &str) {
        self.write(&shown::line(what));
        self.write("\n");
    }

    fn begin(&mut self, total: u64) {
        (self.done, self.total) = (0, total);
        self.began = Instant::now();
        self.drawn = None;
    }

    fn run(&mut self, what: &str) {
        self.what = shown::line(what).into_owned();
        self.draw();
    }

    fn step(&mut self) {
        self.done += 1;
        self.draw();
    }

    fn end(&mut self) {
        self.write("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
}
