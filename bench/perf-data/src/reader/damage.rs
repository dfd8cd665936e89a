//! What is wrong with a recording.

use thiserror::Error;

/// Most bytes that the records of a file are decompressed to.
pub const MOST_INFLATED: u64 = 4 << 30;

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

/// What reading met that it could not use.
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
    /// Its header says no record: who recorded it was killed before he had said any.
    pub unfinished: bool,
    /// More was compressed than is decompressed ([`MOST_INFLATED`]).
    pub too_much: bool,
}

impl Damage {
    /// Whether there was any.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}
