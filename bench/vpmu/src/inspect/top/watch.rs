//! The thread that takes samples out of the vCPUs' queues, and shows them. No vCPU waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ratatui_crossterm::crossterm::event::{self, Event};
use results::error::{Error, Exit};
use vmm::sample::{LiveCounts, Sampling};

use super::model::{Model, Names, Snapshot};
use super::screen::Screen;
use super::text;
use super::view::{Asked, View};
use crate::inspect::sampled::take_turn;
use crate::sys;
use crate::terminal::console::offer;

/// Interval at which queues are emptied.
const POLL: Duration = Duration::from_millis(10);

/// Form in which it is shown.
#[derive(Debug)]
pub enum Show {
    /// Tables on stdout.
    Tables,
    /// Pictures.
    Picture(Box<Screen>, View),
}

/// Result of watching.
#[derive(Debug)]
pub struct Watched {
    /// Samples that were seen.
    pub model: Model,
    /// Names.
    pub names: Names,
    /// Times the kernel throttled an event.
    pub throttled: u64,
    /// The user ended it: by a key, or by the number of tables.
    pub by_request: bool,
    /// Why nothing more could be shown.
    pub failed: Option<Error>,
}

/// A thread that watches.
#[derive(Debug)]
pub struct Watcher {
    thread: Option<JoinHandle<Watched>>,
    done: Arc<AtomicBool>,
}

impl Watcher {
    /// Begins to watch `sampling`: a picture or a table each `interval`, and after `iterations` of them the guest is interrupted.
    ///
    /// # Errors
    /// Fails if the host gives no thread.
    pub fn start(
        sampling: Arc<Sampling>,
        model: Model,
        names: Names,
        show: Show,
        interval: Duration,
        iterations: Option<u64>,
    ) -> Result<Self, Error> {
        let done = Arc::new(AtomicBool::new(false));
        let work = Work {
            next_log: vec![0; sampling.channels.len()],
            sampling,
            model,
            names,
            shown: Snapshot::default(),
            interval,
            iterations,
            by_request: false,
            failed: None,
        };
        let until = Arc::clone(&done);
        let thread = std::thread::Builder::new().name("top".to_owned()).spawn(move || {
            let _ending = Ending;
            work.run(show, &until)
        });
        let thread = thread.map_err(|error| Error::host("cannot watch the guest", error.to_string(), ""))?;
        Ok(Self { thread: Some(thread), done })
    }

    /// Shows the rest, and ends.
    ///
    /// # Errors
    /// Exit 70 for a panic of its thread.
    pub fn finish(mut self) -> Result<Watched, Error> {
        self.done.store(true, Ordering::Relaxed);
        let joined = self.thread.take().and_then(|thread| thread.join().ok());
        joined.ok_or_else(|| Error::new(Exit::Internal, "this is a bug of vpmu: the view panicked", "", ""))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The guest's end is a panic's: the terminal is given back before it goes on.
            let _ = thread.join();
        }
    }
}

/// Ends the guest if the thread that watches it panics.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            interrupt();
        }
    }
}

fn interrupt() {
    sys::interrupted().store(true, Ordering::Relaxed);
}

struct Work {
    sampling: Arc<Sampling>,
    model: Model,
    names: Names,
    shown: Snapshot,
    /// The next entry of each vCPU's log.
    next_log: Vec<u64>,
    interval: Duration,
    iterations: Option<u64>,
    by_request: bool,
    failed: Option<Error>,
}

impl Work {
    fn run(mut self, show: Show, done: &AtomicBool) -> Watched {
        let mut show = Some(show);
        let (mut ticked, mut seen) = (Instant::now(), 0);
        loop {
            // Looked at before the queues: what is in them at the end is taken out.
            let last = done.load(Ordering::Relaxed);
            let mut more = self.drain();
            // The guest has ended by then: the queues do not grow.
            while last && more {
                more = self.drain();
            }
            let since = ticked.elapsed();
            if since >= self.interval || last {
                ticked += since;
                self.tick(since);
                let before = std::mem::replace(&mut seen, self.model.every_sample());
                // A guest that did not begin has nothing to show.
                if !last || seen > before {
                    show = show.and_then(|show| self.show(show));
                }
                if self.iterations.is_some_and(|most| self.model.ticks() >= most) && show.is_some() && !last {
                    show = self.end();
                }
            }
            if last {
                break;
            }
            let wait = if more { Duration::ZERO } else { POLL };
            show = match show {
                Some(Show::Picture(screen, view)) => self.keys(screen, view, wait),
                other => {
                    std::thread::sleep(wait);
                    other
                }
            };
        }
        drop(show);
        let throttled = self.sampling.channels.iter().map(|channel| channel.queue.lost().2).sum();
        let Self { model, names, by_request, failed, .. } = self;
        Watched { model, names, throttled, by_request, failed }
    }

    /// Ends the guest as the user asked for; nothing more is shown.
    fn end(&mut self) -> Option<Show> {
        self.by_request = true;
        interrupt();
        None
    }

    /// Takes samples and the guest's log out; returns whether there may be more samples.
    fn drain(&mut self) -> bool {
        let sampling = Arc::clone(&self.sampling);
        let mut more = false;
        for (cpu, channel) in sampling.channels.iter().enumerate() {
            more |= take_turn(|| channel.queue.pop(), |sample| self.model.sample(&sample));
            let khz = channel.tsc_khz.load(Ordering::Relaxed);
            let Some(log) = sampling.log.get().filter(|_| khz > 0) else { continue };
            let next = &mut self.next_log[cpu];
            loop {
                let before = *next;
                for ticks in log.handler_ticks(cpu, next) {
                    let ns = u128::from(ticks) * 1_000_000 / u128::from(khz);
                    self.model.handler(u64::try_from(ns).unwrap_or(u64::MAX));
                }
                // A log is finite.
                if *next == before {
                    break;
                }
            }
        }
        more
    }

    fn tick(&mut self, length: Duration) {
        let channels = &self.sampling.channels;
        let counts = channels.iter().fold(LiveCounts::default(), |sum, channel| sum.plus(&channel.live.read()));
        let lost = channels.iter().fold([0, 0], |[ours, kernels], channel| {
            let (queue, kernel, _) = channel.queue.lost();
            [ours + queue, kernels + kernel]
        });
        self.model.tick(length, counts, lost);
    }

    /// Shows what there is after a tick.
    fn show(&mut self, show: Show) -> Option<Show> {
        match show {
            Show::Tables => {
                self.shown = self.model.snapshot(&mut self.names, None);
                match offer(&text::table(&self.shown)) {
                    Ok(true) => return Some(Show::Tables),
                    // Nobody reads any more.
                    Ok(false) => {}
                    Err(error) => self.failed = Some(error),
                }
                interrupt();
                None
            }
            Show::Picture(screen, view) if view.paused() => Some(Show::Picture(screen, view)),
            Show::Picture(screen, view) => self.look(screen, view),
        }
    }

    /// Draws a picture of now.
    fn look(&mut self, screen: Box<Screen>, view: View) -> Option<Show> {
        self.shown = self.model.snapshot(&mut self.names, view.zoom());
        self.draw(screen, view)
    }

    fn draw(&mut self, mut screen: Box<Screen>, view: View) -> Option<Show> {
        let shown = &self.shown;
        match screen.terminal.draw(|frame| view.draw(frame, shown)) {
            Ok(_) => Some(Show::Picture(screen, view)),
            Err(error) => self.broken(&error),
        }
    }

    fn broken(&mut self, error: &io::Error) -> Option<Show> {
        let what = "cannot go on with the view";
        self.failed = Some(Error::new(Exit::Inconclusive, what, error.to_string(), "--stdio needs no terminal"));
        interrupt();
        None
    }

    /// Waits a while for a key, and does what it says. The terminal is given back as soon as the end is asked for: the
    /// guest may take a while to end.
    fn keys(&mut self, screen: Box<Screen>, mut view: View, wait: Duration) -> Option<Show> {
        if sys::interrupted().load(Ordering::Relaxed) {
            return None;
        }
        let read = event::poll(wait).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) });
        let asked = match read {
            Ok(Some(Event::Key(key))) => view.key(key, &self.shown),
            Ok(Some(Event::Resize(..))) => Asked::Draw,
            Ok(_) => Asked::Nothing,
            Err(error) => return self.broken(&error),
        };
        match asked {
            Asked::Nothing => Some(Show::Picture(screen, view)),
            Asked::Draw => self.draw(screen, view),
            Asked::Look => self.look(screen, view),
            Asked::Quit => self.end(),
            Asked::Interrupt => {
                interrupt();
                None
            }
        }
    }
}
