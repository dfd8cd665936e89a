//! Compression: a complete zstd frame in each PERF_RECORD_COMPRESSED.

use std::fmt;
use std::io;

use zstd::bulk::Compressor;

use crate::bytes::{Put as _, Take};
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

    pub(super) fn pack(&mut self, records: &[u8], samples: u64) -> io::Result<Packed> {
        let raw = records.len() as u64;
        let Some(compressor) = &mut self.0 else {
            return Ok(Packed { bytes: records.to_vec(), raw, compressed: raw, samples });
        };
        let mut packed = Packed { raw, samples, ..Packed::default() };
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
        // Two halves: a frame ends with a record, so that damage costs one frame. One record is shorter than a frame may be, also where
        // zstd cannot compress it.
        let mut middle = 0;
        while middle < records.len() / 2 {
            let next = middle + Take(&records[middle + 6..]).u16().map_or(records.len(), usize::from);
            if next >= records.len() {
                break;
            }
            middle = next;
        }
        let (first, second) = records.split_at(middle);
        put(compressor, first, to)?;
        return put(compressor, second, to);
    }
    to.compressed += frame.len() as u64;
    to.bytes.u32(kind::COMPRESSED);
    to.bytes.u16(0);
    to.bytes.u16((frame.len() + HEADER) as u16);
    to.bytes.extend_from_slice(&frame);
    Ok(())
}
