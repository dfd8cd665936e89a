//! Output of a guest's serial port: at most [`OUTPUT_LIMIT`] bytes.

use std::io;

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
