//! The last lines of a guest's console, for the error of a guest that failed.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use results::shown::steers;

/// Bytes that are kept.
const KEPT: usize = 64 << 10;

/// Keeps the last bytes written to it, and passes them on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// The last `lines` lines, without characters that steer a terminal.
    #[must_use]
    pub(super) fn lines(&self, lines: usize) -> Vec<String> {
        let bytes: Vec<u8> = self.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let first = all.len().saturating_sub(lines);
        all[first..].iter().map(|line| line.chars().filter(|&c| !steers(c)).collect()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // Bytes are whole whatever their holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.lock();
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes everything to both.
#[derive(Debug)]
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

impl<A: Write, B: Write> Write for Both<A, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.write_all(&bytes[..written])?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.1.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_in_bounded_memory() {
        let mut tail = Tail::default();
        for line in 0..100_000 {
            writeln!(tail, "line {line}\r").unwrap();
        }
        tail.write_all(b"\x1b[31m\xe2\x80\xaethe end").unwrap();
        assert_eq!(tail.lines(2), ["line 99999", "[31mthe end"]);
        assert!(tail.lock().len() <= KEPT);
        assert!(Tail::default().lines(5).is_empty());
    }

    #[test]
    fn both_get_the_same() {
        let mut both = Both(Vec::new(), Vec::new());
        both.write_all(b"abc").unwrap();
        both.flush().unwrap();
        assert_eq!((both.0, both.1), (b"abc".to_vec(), b"abc".to_vec()));
    }
}
