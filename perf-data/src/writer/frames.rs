//! Compression: a complete zstd frame in each PERF_RECORD_COMPRESSED.

use std::io;

use crate::bytes::Put as _;
use crate::record::{HEADER, kind};

/// Most bytes of records in a frame.
pub(super) const CHUNK: usize = 128 << 10;
/// Most bytes of a frame: a record's size has 16 bits.
const MOST: usize = u16::MAX as usize - HEADER;

/// Compresses chunks of whole records.
#[derive(Debug)]
pub(super) struct Frames {
    level: i32,
    raw: u64,
    compressed: u64,
}

impl Frames {
    pub(super) const fn new(level: u32) -> Self {
        Self { level: level.cast_signed(), raw: 0, compressed: 0 }
    }

    /// Appends `records` to `to` as compressed records.
    pub(super) fn put(&mut self, records: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let frame = zstd::bulk::compress(records, self.level)?;
        if frame.len() > MOST {
            // Two halves: a frame ends with a record, so that damage costs one frame.
            let (first, second) = records.split_at(middle(records));
            self.put(first, to)?;
            return self.put(second, to);
        }
        self.raw += records.len() as u64;
        self.compressed += frame.len() as u64;
        to.u32(kind::COMPRESSED);
        to.u16(0);
        to.u16((frame.len() + HEADER) as u16);
        to.extend_from_slice(&frame);
        Ok(())
    }

    /// Uncompressed bytes per compressed byte.
    pub(super) fn ratio(&self) -> f64 {
        if self.compressed == 0 { 1.0 } else { self.raw as f64 / self.compressed as f64 }
    }
}

/// The end of the first record behind half of them. One record is shorter than [`MOST`], also where zstd cannot compress it.
fn middle(records: &[u8]) -> usize {
    let mut at = 0;
    while at < records.len() / 2 {
        let size = usize::from(u16::from_le_bytes([records[at + 6], records[at + 7]]));
        if at + size >= records.len() {
            break;
        }
        at += size.max(HEADER);
    }
    at
}
