//! Damage of a recording.

use thiserror::Error;

/// Most bytes that the records of a file are decompressed to.
pub const MOST_INFLATED: u64 = 4 << 30;
/// Bytes that may be decompressed whatever is compressed, and the bytes for each compressed one beyond them. Samples that are alike but for
/// their time, with chains of 1024 frames, are compressed by nearly as much; zstd's format could make 32768 of one.
const FREE: u64 = 64 << 20;
const RATIO: u64 = 2048;

/// Returns the most bytes that so many compressed ones are decompressed to.
#[must_use]
pub fn allowed(compressed: u64) -> u64 {
    FREE.saturating_add(compressed.saturating_mul(RATIO)).min(MOST_INFLATED)
}

/// Why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It does not begin as one.
    #[error("it is no perf.data: it does not begin with PERFILE2")]
    NotARecording,
    /// Its header makes no sense.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
}

/// Parts of a recording that the reader could not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Records that were cut short or made no sense.
    pub records: u64,
    /// Compressed records that could not be decompressed.
    pub frames: u64,
    /// Bytes at the end that are no record.
    pub rest: u64,
    /// Bytes of records that its header says, and the file lacks.
    pub missing: u64,
    /// Its recorder did not end it: it was killed.
    pub unfinished: bool,
    /// More was compressed than is decompressed ([`allowed`]).
    pub too_much: bool,
}

impl Damage {
    /// Returns whether there was any.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}
