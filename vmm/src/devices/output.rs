//! Output of a guest's serial port: at most [`OUTPUT_LIMIT`] bytes.

use std::io::{self, Write};

/// Most bytes of serial output passed on; a guest that floods must not fill the user's disk.
pub const OUTPUT_LIMIT: u64 = 64 << 20;

/// The state of the output at the end.
#[derive(Debug, Default)]
pub struct Output {
    /// Why output was lost.
    pub error: Option<io::Error>,
    /// Bytes beyond [`OUTPUT_LIMIT`].
    pub dropped: u64,
}

/// Lets a bounded number of bytes through.
#[derive(Debug)]
pub(super) struct Capped<W> {
    out: W,
    left: u64,
    dropped: u64,
}

impl<W> Capped<W> {
    pub(super) const fn new(out: W, left: u64) -> Self {
        Self { out, left, dropped: 0 }
    }

    /// Bytes that did not pass.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<W: Write> Write for Capped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if fits == 0 {
            self.dropped += bytes.len() as u64;
            return Ok(bytes.len());
        }
        let written = self.out.write(&bytes[..fits])?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut() {
        let mut out = Capped::new(Vec::new(), 10);
        (0..100).for_each(|_| out.write_all(b"ab\n").unwrap());
        assert_eq!((out.dropped(), &out.out[..]), (290, &b"ab\nab\nab\na"[..]));
    }
}
