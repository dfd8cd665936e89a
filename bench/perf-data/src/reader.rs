//! Reads samples and losses of recordings in files and pipes. Every field is distrusted: sizes are checked before they
//! are used, what is decompressed is bounded, and what makes no sense ends the reading.

use std::collections::BTreeMap;

use thiserror::Error;
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use crate::attr::{IDENTIFIER, Layout};
use crate::bytes::Take;
use crate::feature;
use crate::record::{self, HEADER, Record, kind};
use crate::tracepoint::{self, Tracepoints};
use crate::writer::{FILE_HEADER, MAGIC, PIPE_HEADER};

/// A recording.
#[derive(Clone, Debug, Default)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    data: std::ops::Range<usize>,
    pipe: bool,
    /// Fields of the first event's samples, and of all events by their ids.
    first: Option<Layout>,
    layouts: BTreeMap<u64, Layout>,
    ids: usize,
    /// Not all events have the fields of the first one: a sample says whose it is.
    is_mixed: bool,
    /// The release of the host's kernel, if it says it.
    pub os_release: Option<String>,
    /// The host's processor, if it says it.
    pub cpu: Option<String>,
    /// Its tracepoints. Of a pipe they are known once its records are read.
    pub tracepoints: Tracepoints,
    /// Once its records are read: bytes of records that were compressed (of all, where none was), and of the compressed records.
    pub volume: (u64, u64),
}

/// Takes a record with the tracepoints that are known.
type Visit<'v> = dyn FnMut(&Tracepoints, Record) + 'v;

impl<'a> Recording<'a> {
    /// Reads everything but the records.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let mut from = Take(bytes);
        if from.bytes(8).is_none_or(|start| start != MAGIC) {
            return Err(ReadError::NotARecording);
        }
        let data = PIPE_HEADER as usize..bytes.len();
        let mut recording = Self { bytes, data, pipe: true, ..Self::default() };
        match from.u64() {
            Some(PIPE_HEADER) => Ok(recording),
            Some(FILE_HEADER) => recording.read_header(from).map(|()| recording),
            _ => Err(ReadError::Header("it has neither the size of a file's nor that of a pipe's")),
        }
    }

    /// Reads the rest of a file's header.
    fn read_header(&mut self, mut from: Take<'a>) -> Result<(), ReadError> {
        let bytes = self.bytes;
        let mut word = || from.u64().and_then(|n| usize::try_from(n).ok()).ok_or(ReadError::Header("it is cut short"));
        let (entry, attrs, attrs_size, data, data_size) = (word()?, word()?, word()?, word()?, word()?);
        let (_, _, features) = (word()?, word()?, word()?);
        let attrs = section(bytes, attrs, attrs_size).ok_or(ReadError::Header("its events lie outside of the file"))?;
        if entry <= ENTRY {
            return Err(ReadError::Header("its events have no size"));
        }
        for event in attrs.chunks_exact(entry) {
            let (layout, size) = Layout::take(event).ok_or(ReadError::Event)?;
            let ids = event.get(size..).and_then(|place| named(bytes, place)).unwrap_or_default();
            self.add(layout, ids)?;
        }
        let end = data.checked_add(data_size).filter(|end| *end <= bytes.len()).ok_or(ReadError::Cut)?;
        (self.pipe, self.data) = (false, data..end);
        let numbers = (0..64_u8).filter(|number| features >> number & 1 != 0);
        for (number, place) in numbers.zip(bytes[end..].chunks_exact(ENTRY)) {
            if let Some(body) = named(bytes, place) {
                self.feature(number, body);
            }
        }
        Ok(())
    }

    fn feature(&mut self, number: u8, body: &[u8]) {
        match number {
            feature::OS_RELEASE => self.os_release = feature::take_text(body),
            feature::CPU => self.cpu = feature::take_text(body),
            feature::TRACING_DATA => self.tracepoints = tracepoint::take(body).unwrap_or_default(),
            _ => {}
        }
    }

    fn add(&mut self, layout: Layout, ids: &[u8]) -> Result<(), ReadError> {
        let first = *self.first.get_or_insert(layout);
        self.is_mixed |= first != layout;
        if self.is_mixed && !(first.has(IDENTIFIER) && layout.has(IDENTIFIER)) {
            return Err(ReadError::Header("its events differ, and no sample says whose it is"));
        }
        self.ids += ids.len() / 8;
        if self.ids > MOST_IDS {
            return Err(ReadError::Header("its events have too many ids"));
        }
        self.layouts.extend(ids.chunks_exact(8).filter_map(|id| Some((Take(id).u64()?, layout))));
        Ok(())
    }

    /// Visits each record in the order of the file, which perf writes by CPU.
    ///
    /// # Errors
    /// The part that could not be read; what was visited before is sound. perf ends a compressed recording within a record, which is none.
    pub fn records(&mut self, mut visit: impl FnMut(&Tracepoints, Record)) -> Result<(), ReadError> {
        let mut inflate = Inflate::default();
        let bytes: &'a [u8] = self.bytes;
        let mut rest = &bytes[self.data.clone()];
        let (mut plain, mut compressed) = (0, 0);
        while !rest.is_empty() {
            let one = split(rest)?.ok_or(ReadError::Cut)?;
            let size = one.size.saturating_add(self.behind(&one));
            let behind = rest.get(one.size..size).ok_or(ReadError::Cut)?;
            rest = &rest[size..];
            let frame = match one.type_ {
                kind::COMPRESSED => one.body,
                kind::COMPRESSED2 => {
                    let (length, body) = one.body.split_first_chunk().ok_or(ReadError::Record(one.type_))?;
                    // Its first writer counted all records of a write in the first of them.
                    &body[..body.len().min(u64::from_le_bytes(*length) as usize)]
                }
                _ => {
                    plain += one.size as u64;
                    if !self.of_header(&one, behind)? {
                        self.one(&one, &mut visit)?;
                    }
                    continue;
                }
            };
            compressed += one.size as u64;
            inflate.add(frame, |bytes| {
                let mut at = 0;
                while let Some(one) = split(&bytes[at..])? {
                    self.one(&one, &mut visit)?;
                    at += one.size;
                }
                Ok(at)
            })?;
        }
        self.volume = (if compressed == 0 { plain } else { inflate.total }, compressed);
        Ok(())
    }

    /// Returns the number of bytes that follow a record and are no records: descriptions of tracepoints in a pipe.
    fn behind(&self, one: &Raw<'_>) -> usize {
        let said = Take(one.body).u32().filter(|_| self.pipe && one.type_ == kind::TRACING_DATA);
        said.map_or(0, |size| (size as usize).next_multiple_of(8))
    }

    /// Takes a record that has the place of a header in a pipe. No recorder compresses these, and a small frame could hold any number.
    fn of_header(&mut self, one: &Raw<'_>, behind: &[u8]) -> Result<bool, ReadError> {
        let mut from = Take(one.body);
        match one.type_ {
            _ if !self.pipe => return Ok(false),
            kind::HEADER_ATTR => {
                let (layout, size) = Layout::take(one.body).ok_or(ReadError::Event)?;
                self.add(layout, &one.body[size..])?;
            }
            kind::FEATURE => {
                if let Some(number) = from.u64().and_then(|number| u8::try_from(number).ok()) {
                    self.feature(number, from.0);
                }
            }
            kind::TRACING_DATA if self.tracepoints.is_empty() => self.feature(feature::TRACING_DATA, behind),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Visits a record.
    fn one(&self, &Raw { type_, misc, body, .. }: &Raw<'_>, visit: &mut Visit<'_>) -> Result<(), ReadError> {
        let by_id = || self.layouts.get(&Take(body).u64()?).copied();
        let layout = if self.is_mixed && type_ == kind::SAMPLE { by_id() } else { self.first };
        let record = layout.or((type_ != kind::SAMPLE).then(Layout::default));
        let record = record.and_then(|layout| record::take(type_, misc, body, layout));
        visit(&self.tracepoints, record.ok_or(ReadError::Record(type_))?);
        Ok(())
    }
}

/// A record as it lies there.
struct Raw<'a> {
    type_: u32,
    misc: u16,
    body: &'a [u8],
    size: usize,
}

/// Splits off the first record of `bytes`; `None`: there are fewer than it has.
fn split(bytes: &[u8]) -> Result<Option<Raw<'_>>, ReadError> {
    let mut from = Take(bytes);
    let (Some(type_), Some(misc), Some(size)) = (from.u32(), from.u16(), from.u16()) else { return Ok(None) };
    let size = usize::from(size);
    if size < HEADER {
        return Err(ReadError::Record(type_));
    }
    Ok(bytes.get(HEADER..size).map(|body| Raw { type_, misc, body, size }))
}

/// Most ids of a recording's events, which may all name the same bytes of it.
const MOST_IDS: usize = 1 << 16;
/// Bytes of an entry of a section table.
const ENTRY: usize = 16;

fn section(bytes: &[u8], at: usize, size: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(size)?)
}

/// Returns the section that an entry names.
fn named<'a>(bytes: &'a [u8], entry: &[u8]) -> Option<&'a [u8]> {
    let mut from = Take(entry);
    section(bytes, usize::try_from(from.u64()?).ok()?, usize::try_from(from.u64()?).ok()?)
}

// Decompresses the frames of records: complete ones, and perf's, which are parts of one stream.

/// Bytes that are decompressed at once.
const STEP: usize = 256 << 10;

/// The stream, and what of it is not used yet: less than a record, whose size has 16 bits.
#[derive(Default)]
struct Inflate {
    decoder: Option<Decoder<'static>>,
    out: Vec<u8>,
    step: Vec<u8>,
    /// Bytes so far: compressed, and decompressed.
    compressed: u64,
    total: u64,
}

impl Inflate {
    /// Decompresses a frame or a part of one. `take` is given what waits, and says how much of it are whole records.
    fn add(&mut self, frame: &[u8], mut take: impl FnMut(&[u8]) -> Result<usize, ReadError>) -> Result<(), ReadError> {
        self.compressed += frame.len() as u64;
        self.step.resize(STEP, 0);
        let mut input = InBuffer::around(frame);
        loop {
            if self.decoder.is_none() {
                self.decoder = Decoder::new().ok();
            }
            let mut output = OutBuffer::around(&mut self.step[..]);
            let decoder = self.decoder.as_mut().ok_or(ReadError::Frame)?;
            decoder.run(&mut input, &mut output).map_err(|_| ReadError::Frame)?;
            let length = output.pos();
            self.total += length as u64;
            if self.total > allowed(self.compressed) {
                return Err(ReadError::TooMuch);
            }
            self.out.extend_from_slice(&self.step[..length]);
            let used = take(&self.out)?;
            self.out.drain(..used);
            // A full buffer may hide more.
            if input.pos() == frame.len() && length < STEP {
                return Ok(());
            }
        }
    }
}

/// Most bytes that the records of a file are decompressed to.
const MOST_INFLATED: u64 = 4 << 30;
/// Bytes that may be decompressed whatever is compressed, and the bytes for each compressed one beyond them. Samples
/// that are alike but for their time, with chains of 1024 frames, are compressed by nearly as much; zstd's format could
/// make 32768 of one.
const FREE: u64 = 64 << 20;
const RATIO: u64 = 2048;

/// Returns the most bytes that so many compressed ones are decompressed to.
pub fn allowed(compressed: u64) -> u64 {
    FREE.saturating_add(compressed.saturating_mul(RATIO)).min(MOST_INFLATED)
}

/// Why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It does not begin as one.
    #[error("it is no perf.data of a little-endian host: it does not begin with PERFILE2")]
    NotARecording,
    /// Its header makes no sense.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    /// The description of an event.
    #[error("an event makes no sense, reads counts with each sample, or has samples without a time")]
    Event,
    /// The header says more records than there are, or the last one is not whole.
    #[error("it was cut short")]
    Cut,
    /// A record of this type.
    #[error("a record of type {0} makes no sense, or is of no event")]
    Record(u32),
    /// The compressed bytes make no sense.
    #[error("a compressed record is damaged")]
    Frame,
    /// More than [`allowed`].
    #[error("more is compressed in it than is read of so many bytes")]
    TooMuch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_frame_is_used_in_parts_and_a_small_one_does_not_become_gigabytes() {
        // Records of eight bytes: 4 KiB of them are compressed to some hundred MiB.
        let mut inflate = Inflate::default();
        let frame = zstd::bulk::compress(&[9, 0, 0, 0, 0, 0, 8, 0].repeat(40 << 17), 1).unwrap();
        let (mut used, mut most) = (0, 0);
        let mut add = || {
            inflate.add(&frame, |bytes| {
                most = most.max(bytes.len());
                used += bytes.len();
                Ok(bytes.len())
            })
        };
        assert_eq!((0..3).try_for_each(|_| add()), Err(ReadError::TooMuch));
        assert!(most <= STEP && inflate.total > allowed(0), "{most}");
        assert!(used as u64 <= allowed(3 * frame.len() as u64) && used >= 64 << 20, "{used}");
    }
}
