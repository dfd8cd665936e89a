//! Progress on stderr.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use results::shown;

/// Least time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// Least time between two lines in one place of a terminal.
const BETWEEN_PICTURES: Duration = Duration::from_millis(50);

/// Shows how far an experiment is.
pub trait Progress {
    /// Announces the work ahead, in a sentence; before anything else.
    fn expect(&mut self, _what: &str) {}
    /// Begins `total` runs.
    fn begin(&mut self, _total: u64) {}
    /// Bounds the time of all runs, once they have begun.
    fn within(&mut self, _bound: Duration) {}
    /// Begins a run.
    fn run(&mut self, _what: &str) {}
    /// Ends a run.
    fn step(&mut self) {}
    /// Ends the last run.
    fn end(&mut self) {}
}

/// No progress shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// Returns one line on a terminal, lines elsewhere, or nothing.
pub fn shown(shown: bool) -> Box<dyn Progress + Send> {
    if !shown {
        return Box::new(Silent);
    }
    // A dumb terminal obeys no escape; NO_COLOR is about colours, of which there are none.
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Box::new(Stderr { is_terminal: std::io::stderr().is_terminal() && !is_dumb, ..Stderr::default() })
}

/// On a terminal a line that is written over and over, without colour; in a log a line every few seconds.
#[derive(Debug, Default)]
struct Stderr {
    is_terminal: bool,
    began: Option<Instant>,
    /// Time of the last line.
    last: Option<Instant>,
    what: String,
    done: u64,
    total: u64,
    bound: Option<Duration>,
}

impl Stderr {
    // Shown between runs only: a ticking thread would take its time from the vCPUs.
    fn show(&mut self) {
        let between = if self.is_terminal { BETWEEN_PICTURES } else { BETWEEN_LINES };
        if self.last.is_some_and(|last| last.elapsed() < between) {
            return;
        }
        self.last = Some(Instant::now());
        let spent = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        // Of the runs, or of the time that they may take.
        let time = self.bound.map_or(0.0, |bound| spent / bound.as_secs_f64());
        let share = (self.done as f64 / self.total.max(1) as f64).max(time).min(1.0);
        let what = if self.what.is_empty() { String::new() } else { format!(", {}", self.what) };
        let line = format!("{spent:.0} s: {:.0} %{what}", 100.0 * share);
        if self.is_terminal {
            let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col));
            write(&format!("{OVER}{}", line.chars().take(columns.saturating_sub(1)).collect::<String>()));
        } else {
            write(&format!("{line}\n"));
        }
    }
}

/// Begin of the line, which is cleared.
const OVER: &str = "\r\x1b[K";

/// A log or a terminal that cannot be written to is no reason to end the run.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Progress for Stderr {
    fn expect(&mut self, what: &str) {
        write(&format!("{}{}\n", if self.is_terminal { OVER } else { "" }, shown::line(what)));
    }

    fn begin(&mut self, total: u64) {
        let now = Some(Instant::now());
        // The first line of a log comes after a while, that of a terminal at once.
        (self.done, self.total, self.began, self.last) = (0, total, now, now.filter(|_| !self.is_terminal));
        self.bound = None;
    }

    fn within(&mut self, bound: Duration) {
        self.bound = Some(bound);
    }

    fn run(&mut self, what: &str) {
        self.what = shown::line(what);
        if self.is_terminal {
            self.show();
        }
    }

    fn step(&mut self) {
        self.done += 1;
        self.show();
    }

    fn end(&mut self) {
        if self.is_terminal {
            write(OVER);
        }
    }
}
