//! Reads samples and losses of recordings in files and pipes. Every field is distrusted: sizes are checked before they
//! are used, and what is decompressed is bounded.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use crate::attr::{IDENTIFIER, Layout, TIME};
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
    /// Bytes of records that the header says, and the file lacks.
    missing: u64,
    pipe: bool,
    /// Fields of the first event's records; of all events by the ids of their records.
    first: Option<Layout>,
    events: usize,
    /// Nothing says which records are whose: events differ, and not all say it in one place.
    is_mixed: bool,
    layouts: BTreeMap<u64, Layout>,
    /// The release of the host's kernel, if it says it.
    pub os_release: Option<String>,
    /// The host's processor, if it says it.
    pub cpu: Option<String>,
    /// Its tracepoints. Of a pipe they are known once its records are read.
    pub tracepoints: Tracepoints,
    /// Once its records are read: bytes of records that were compressed (of all, where none was), and of the compressed records.
    pub volume: (u64, u64),
}

/// Takes a record with the tracepoints that are known, and its time if it has one.
type Visit<'v> = dyn FnMut(&Tracepoints, Option<u64>, Record) + 'v;

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
        let mut count = 0;
        for event in attrs.chunks_exact(entry) {
            let (layout, size) = Layout::take(event).ok_or(ReadError::Header("an event makes no sense"))?;
            let ids = event.get(size..).and_then(|place| named(bytes, place)).unwrap_or_default();
            count += ids.len() / 8;
            if count > MOST_IDS {
                return Err(ReadError::Header("its events have more than 65536 ids"));
            }
            self.add(layout, ids);
        }
        if data > bytes.len() {
            return Err(ReadError::Header("its records lie outside of the file"));
        }
        let end = data.saturating_add(data_size);
        // A file that was cut is shorter than it says.
        (self.pipe, self.data) = (false, data..end.min(bytes.len()));
        self.missing = end.saturating_sub(bytes.len()) as u64;
        let table = bytes.get(end..).unwrap_or_default();
        let numbers = (0..64_u8).filter(|number| features >> number & 1 != 0);
        for (number, place) in numbers.zip(table.chunks_exact(ENTRY)) {
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

    fn add(&mut self, layout: Layout, ids: &[u8]) {
        let first = *self.first.get_or_insert(layout);
        self.events += 1;
        self.is_mixed |= first != layout && !(first.has(IDENTIFIER) && layout.has(IDENTIFIER));
        self.layouts.extend(ids.chunks_exact(8).filter_map(|id| Some((Take(id).u64()?, layout))));
    }

    /// Visits each record in the order of the file, which perf writes by CPU; says what could not be used.
    pub fn records(&mut self, mut visit: impl FnMut(&Tracepoints, Option<u64>, Record)) -> Damage {
        let mut damage = Damage { missing: self.missing, ..Damage::default() };
        let mut inflate = Inflate::default();
        let bytes: &'a [u8] = self.bytes;
        let mut rest = &bytes[self.data.clone()];
        let (mut plain, mut compressed) = (0, 0);
        while let Some(one) = split(rest) {
            let (frame, size) = match one.type_ {
                kind::COMPRESSED => (Some(one.body), one.size),
                // Its first writer counted all records of a write in the first of them.
                kind::COMPRESSED2 => {
                    let body = one.body.split_first_chunk().map(|(length, body)| (u64::from_le_bytes(*length), body));
                    let frame = body.map(|(length, body)| &body[..body.len().min(length as usize)]);
                    (Some(frame.unwrap_or_default()), one.size)
                }
                _ => (None, one.size.saturating_add(self.behind(&one))),
            };
            if let Some(frame) = frame {
                inflate.add(frame, &mut damage, |bytes, damage| {
                    let mut at = 0;
                    while let Some(one) = split(&bytes[at..]) {
                        self.one(&one, damage, &mut visit);
                        at += one.size;
                    }
                    at
                });
                compressed += size as u64;
            } else {
                plain += one.size as u64;
                let behind = rest.get(one.size..size).unwrap_or_default();
                if !self.of_header(&one, behind, &mut damage) {
                    self.one(&one, &mut damage, &mut visit);
                }
            }
            let Some(next) = rest.get(size..) else { break };
            rest = next;
        }
        damage.rest = rest.len() as u64 + inflate.out.len() as u64;
        self.volume = (if compressed == 0 { plain } else { inflate.total }, compressed);
        damage
    }

    /// Returns the number of bytes that follow a record and are no records: descriptions of tracepoints in a pipe.
    fn behind(&self, one: &Raw<'_>) -> usize {
        let said = Take(one.body).u32().filter(|_| self.pipe && one.type_ == kind::TRACING_DATA);
        said.map_or(0, |size| (size as usize).next_multiple_of(8))
    }

    /// Takes a record that has the place of a header in a pipe. No recorder compresses these, and a small frame could hold any number.
    fn of_header(&mut self, one: &Raw<'_>, behind: &[u8], damage: &mut Damage) -> bool {
        let mut from = Take(one.body);
        match one.type_ {
            _ if !self.pipe => return false,
            kind::HEADER_ATTR => match Layout::take(one.body) {
                Some((layout, size)) => self.add(layout, &one.body[size..]),
                None => damage.records += 1,
            },
            kind::FEATURE => {
                if let Some(number) = from.u64().and_then(|number| u8::try_from(number).ok()) {
                    self.feature(number, from.0);
                }
            }
            kind::TRACING_DATA if self.tracepoints.is_empty() => self.feature(feature::TRACING_DATA, behind),
            _ => return false,
        }
        true
    }

    /// Visits a record.
    fn one(&self, &Raw { type_, misc, body, .. }: &Raw<'_>, damage: &mut Damage, visit: &mut Visit<'_>) {
        let is_sample = type_ == kind::SAMPLE;
        let is_own = is_sample || type_ == kind::LOST_SAMPLES;
        let layout = match self.first {
            // Types from here on are perf's own, and end without an id.
            _ if type_ >= kind::HEADER_ATTR => Some(Layout::default()),
            None => (!is_sample).then(Layout::default),
            // A lone event's are its own, whatever they say.
            Some(first) if self.events == 1 => Some(first),
            Some(_) if self.is_mixed => None,
            Some(first) => match first.id(is_sample, body) {
                // Records of no event have the first one's form.
                Some(id) => self.layouts.get(&id).copied().or((id == 0 || !is_own).then_some(first)),
                None => Some(first),
            },
        };
        let record = layout.and_then(|layout| Some((layout, record::take(type_, misc, body, layout)?)));
        match record {
            Some((layout, Record::Sample(sample))) => {
                visit(&self.tracepoints, layout.has(TIME).then_some(sample.time), Record::Sample(sample));
            }
            Some((layout, record)) => visit(&self.tracepoints, layout.time(body), record),
            None => damage.records += 1,
        }
    }
}

/// A record as it lies there.
struct Raw<'a> {
    type_: u32,
    misc: u16,
    body: &'a [u8],
    size: usize,
}

/// Splits off the first record of `bytes`.
fn split(bytes: &[u8]) -> Option<Raw<'_>> {
    let mut from = Take(bytes);
    let (type_, misc, size) = (from.u32()?, from.u16()?, usize::from(from.u16()?));
    let body = bytes.get(HEADER..size.max(HEADER)).filter(|_| size >= HEADER)?;
    Some(Raw { type_, misc, body, size })
}

/// Most ids of a file's events, which may all name the same bytes of it.
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
/// Most bytes that wait for the rest of their record: its size has 16 bits.
const MOST_UNUSED: usize = 64 << 10;

/// The stream, and what of it is not used yet.
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
    fn add(&mut self, frame: &[u8], damage: &mut Damage, take: impl FnMut(&[u8], &mut Damage) -> usize) {
        if !damage.too_much && self.run(frame, damage, take).is_none() {
            // The next frame may be whole.
            self.decoder = None;
            self.out.clear();
            damage.records += u64::from(!damage.too_much);
        }
    }

    /// `None`: it makes no sense, or is too much.
    fn run(
        &mut self,
        frame: &[u8],
        damage: &mut Damage,
        mut take: impl FnMut(&[u8], &mut Damage) -> usize,
    ) -> Option<()> {
        self.compressed += frame.len() as u64;
        self.step.resize(STEP, 0);
        let mut input = InBuffer::around(frame);
        // It has records so far; what is behind them is not looked at, but the next part of the stream needs it.
        let mut sound = true;
        loop {
            if self.decoder.is_none() {
                self.decoder = Decoder::new().ok();
            }
            let mut output = OutBuffer::around(&mut self.step[..]);
            self.decoder.as_mut()?.run(&mut input, &mut output).ok()?;
            let length = output.pos();
            self.total += length as u64;
            damage.too_much = self.total > allowed(self.compressed);
            if damage.too_much {
                return None;
            }
            if sound {
                self.out.extend_from_slice(&self.step[..length]);
                let used = take(&self.out, damage);
                self.out.drain(..used);
                // What waits is the begin of a record.
                let size = self.out.get(6..).and_then(|size| Take(size).u16());
                sound = self.out.len() <= MOST_UNUSED && size.is_none_or(|size| usize::from(size) >= HEADER);
                if !sound {
                    self.out.clear();
                    damage.records += 1;
                }
            }
            // A full buffer may hide more.
            if input.pos() == frame.len() && length < STEP {
                return Some(());
            }
        }
    }
}

// Damage of a recording.

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
}

/// Parts of a recording that the reader could not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Records that were cut short, made no sense or could not be decompressed.
    pub records: u64,
    /// Bytes at the end that are no record.
    pub rest: u64,
    /// Bytes of records that its header says, and the file lacks.
    pub missing: u64,
    /// More was compressed than is decompressed ([`allowed`]).
    pub too_much: bool,
}

impl Damage {
    /// Returns whether there was any.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, rest, missing, too_much } = self;
        let more = if *too_much { "; more is compressed in it than is read of so many bytes" } else { "" };
        write!(
            f,
            "the recording is damaged: {records} records and {rest} bytes could not be used, {missing} bytes are missing{more}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_cannot_become_a_record_does_not_wait() {
        let mut inflate = Inflate::default();
        let mut add = |bytes: &[u8], used: usize| {
            let (frame, mut damage) = (zstd::bulk::compress(bytes, 1).unwrap(), Damage::default());
            inflate.add(&frame, &mut damage, |_, _| used);
            (damage.records == 0, inflate.out.len())
        };
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 16], 0), (true, 7), "a header in two parts");
        assert_eq!(add(&[0, 1, 2], 0), (true, 10));
        assert_eq!(add(&[3; 6], 16), (true, 0));
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 7, 0, 1], 0), (false, 0), "a size below that of a header");
        assert_eq!(add(&vec![0xff; MOST_UNUSED + 1], 0), (false, 0), "longer than a record");
    }

    #[test]
    fn a_part_that_makes_no_sense_does_not_end_its_stream() {
        let mut stream = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        let (mut inflate, mut damage, mut taken) = (Inflate::default(), Damage::default(), Vec::new());
        for size in [7, 8] {
            stream.write_all(&[9, 0, 0, 0, 0, 0, size, 0]).unwrap();
            stream.flush().unwrap();
            inflate.add(&std::mem::take(stream.get_mut()), &mut damage, |bytes, _| {
                let used = if size == 8 { bytes.len() } else { 0 };
                taken.extend_from_slice(&bytes[..used]);
                used
            });
        }
        assert_eq!((taken, damage.records), (vec![9, 0, 0, 0, 0, 0, 8, 0], 1));
    }

    #[test]
    fn a_large_frame_is_used_in_parts_and_a_small_one_does_not_become_gigabytes() {
        // Records of eight bytes: 4 KiB of them are compressed to some hundred MiB.
        let (mut inflate, mut damage) = (Inflate::default(), Damage::default());
        let frame = zstd::bulk::compress(&[9, 0, 0, 0, 0, 0, 8, 0].repeat(40 << 17), 1).unwrap();
        let (mut used, mut most) = (0, 0);
        for _ in 0..3 {
            inflate.add(&frame, &mut damage, |bytes, _| {
                most = most.max(bytes.len());
                used += bytes.len();
                bytes.len()
            });
        }
        assert!(most <= MOST_UNUSED + STEP && damage.too_much && inflate.total > allowed(0), "{most}, {damage:?}");
        assert!(used as u64 <= allowed(3 * frame.len() as u64) && used >= 64 << 20, "{used}");
        assert!(inflate.out.capacity() <= 2 * (MOST_UNUSED + STEP), "{}", inflate.out.capacity());
    }
}
