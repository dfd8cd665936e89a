//! Serial output on its way to stdout.
//!
//! A thread of its own writes, so that a reader that stops reading blocks no vCPU: time limit and Ctrl-C end the run as usual.
//! Waiting output is bounded by the device (`vmm::devices::output::OUTPUT_LIMIT`). A terminal gets it through a `Filter`.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::sys;
use crate::terminal::console::Filter;
use crate::terminal::console::{CHUNK, PATIENCE, POLL};

/// The time limit of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) began: Instant,
    pub(crate) time_limit: Duration,
}

impl Limits {
    fn over(&self) -> bool {
        self.began.elapsed() > self.time_limit || sys::interrupted().load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Bytes handed to the stream so far.
    written: u64,
    /// No more bytes follow.
    closed: bool,
    /// The writer has ended.
    done: bool,
    error: Option<io::Error>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Whatever its holder did, the bytes are there or not.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that never blocks.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    shared: Arc<Shared>,
    limits: Limits,
}

impl Output {
    /// To stdout.
    pub(crate) fn to_stdout(limits: Limits) -> Self {
        Self::stdout(limits, io::stdout().is_terminal())
    }

    /// To stdout as it comes, for a terminal that is the guest's.
    pub(crate) fn raw_stdout(limits: Limits) -> Self {
        Self::stdout(limits, false)
    }

    fn stdout(limits: Limits, terminal: bool) -> Self {
        // Without a descriptor for one more stream the bytes go the usual way.
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(fd) => Self::to(File::from(fd), terminal, limits),
            Err(_) => Self::to(io::stdout(), terminal, limits),
        }
    }

    fn to(stream: impl Write + Send + 'static, terminal: bool, limits: Limits) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || send(&of_thread, stream, terminal.then(Filter::default)));
        Self { shared, limits }
    }

    /// Waits until everything is written, only as long as the reader reads.
    ///
    /// # Errors
    /// As of [`Output::finish`].
    pub(crate) fn finish_soon(mut self) -> io::Result<()> {
        self.limits.time_limit = Duration::ZERO;
        self.finish()
    }

    /// Waits until everything is written; once the run's time is over, only as long as the reader reads.
    ///
    /// # Errors
    /// The stream's, or how many bytes a blocked reader left.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut waiting = self.shared.lock();
        waiting.closed = true;
        self.shared.changed.notify_all();
        let (mut seen, mut since) = (waiting.written, Instant::now());
        while !waiting.done {
            let woken = self.shared.changed.wait_timeout(waiting, POLL);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            if waiting.written != seen || !self.limits.over() {
                (seen, since) = (waiting.written, Instant::now());
            } else if !waiting.done && since.elapsed() > PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "nothing reads stdout"));
            }
        }
        waiting.error.take().map_or(Ok(()), Err)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.shared.lock();
        if let Some(error) = &waiting.error {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        waiting.bytes.extend_from_slice(bytes);
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that may block.
fn send(shared: &Shared, mut stream: impl Write, mut filter: Option<Filter>) {
    loop {
        let mut waiting = shared.lock();
        while waiting.bytes.is_empty() && !waiting.closed {
            waiting = shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = std::mem::take(&mut waiting.bytes);
        let last = waiting.closed;
        drop(waiting);
        let bytes = match &mut filter {
            Some(filter) => filter.shown(&bytes, last),
            None => bytes,
        };
        let mut sent = Ok(());
        for chunk in bytes.chunks(CHUNK) {
            sent = stream.write_all(chunk);
            if sent.is_err() {
                break;
            }
            shared.lock().written += chunk.len() as u64;
        }
        let sent = sent.and_then(|()| stream.flush());
        let mut waiting = shared.lock();
        if sent.is_err() || (waiting.closed && waiting.bytes.is_empty()) {
            waiting.error = sent.err();
            waiting.done = true;
            shared.changed.notify_all();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(time_limit: Duration) -> Limits {
        Limits { began: Instant::now(), time_limit }
    }

    #[test]
    fn everything_arrives_in_order() {
        let (reader, writer) = io::pipe().unwrap();
        let mut output = Output::to(writer, false, limits(Duration::from_secs(600)));
        let expected: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let read = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut { reader }, &mut bytes).map(|_| bytes)
        });
        for part in expected.chunks(777) {
            output.write_all(part).unwrap();
        }
        output.finish().unwrap();
        assert!(read.join().unwrap().unwrap() == expected);
    }

    #[test]
    fn a_reader_that_stops_reading_blocks_neither_the_guest_nor_the_end() {
        let (reader, writer) = io::pipe().unwrap();
        let mut output = Output::to(writer, false, limits(Duration::ZERO));
        output.write_all(&vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(output.finish().unwrap_err().kind(), ErrorKind::TimedOut);
        drop(reader);
    }

    #[test]
    fn an_error_of_the_stream_is_reported_at_the_end() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Output::to(full, false, limits(Duration::from_secs(600)));
        let mut writer = output;
        let _ = writer.write(b"x");
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
