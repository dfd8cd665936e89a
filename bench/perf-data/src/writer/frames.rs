//! Compression: a complete zstd frame in each PERF_RECORD_COMPRESSED.

use std::fmt;
use std::io;

use zstd::bulk::Compressor;

use crate::bytes::Put as _;
use crate::record::{HEADER, kind};

/// Most bytes of a frame: a record's size has 16 bits.
const MOST: usize = u16::MAX as usize - HEADER;

/// Records as they are written.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    /// Bytes of records in it, and of frames.
    pub(super) raw: u64,
    pub(super) compressed: u64,
    /// Samples in it.
    pub(super) samples: u64,
}

/// Turns chunks of whole records into what is written: themselves, or frames.
pub(super) struct Packer(Option<Compressor<'static>>);

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packer")
    }
}

impl Packer {
    /// # Errors
    /// zstd's.
    pub(super) fn new(level: u32) -> io::Result<Self> {
        Ok(Self(if level == 0 { None } else { Some(Compressor::new(level.cast_signed())?) }))
    }

    pub(super) fn pack(&mut self, records: &[u8]) -> io::Result<Packed> {
        let samples = samples(records);
        let Some(compressor) = &mut self.0 else {
            let length = records.len() as u64;
            return Ok(Packed { bytes: records.to_vec(), raw: length, compressed: length, samples });
        };
        let mut packed = Packed { samples, ..Packed::default() };
        put(compressor, records, &mut packed)?;
        Ok(packed)
    }
}

fn put(compressor: &mut Compressor<'_>, records: &[u8], to: &mut Packed) -> io::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let frame = compressor.compress(records)?;
    if frame.len() > MOST {
        // Two halves: a frame ends with a record, so that damage costs one frame.
        let (first, second) = records.split_at(middle(records));
        put(compressor, first, to)?;
        return put(compressor, second, to);
    }
    to.raw += records.len() as u64;
    to.compressed += frame.len() as u64;
    to.bytes.u32(kind::COMPRESSED);
    to.bytes.u16(0);
    to.bytes.u16((frame.len() + HEADER) as u16);
    to.bytes.extend_from_slice(&frame);
    Ok(())
}

/// Counts the samples among these whole records.
fn samples(records: &[u8]) -> u64 {
    let (mut at, mut samples) = (0, 0);
    while let Some(&[a, b, c, d, _, _, low, high]) = records[at..].first_chunk::<HEADER>() {
        samples += u64::from(u32::from_le_bytes([a, b, c, d]) == kind::SAMPLE);
        at = records.len().min(at + usize::from(u16::from_le_bytes([low, high])).max(HEADER));
    }
    samples
}

/// Returns the end of the first record behind half of them. One record is shorter than [`MOST`], also where zstd cannot
/// compress it.
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
