//! Reads samples and losses of recordings in files and pipes. Every field is distrusted: sizes are checked before they
//! are used, and what is decompressed is bounded.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use crate::attr::{self, Attr, Event};
use crate::bytes::Take;
use crate::feature;
use crate::record::{self, HEADER, Record, kind};
use crate::tracepoint::{self, Tracepoint};
use crate::writer::{FILE_HEADER, MAGIC, PIPE_HEADER};

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    data: std::ops::Range<usize>,
    /// Bytes of records that the header says, and the file lacks.
    missing: u64,
    pipe: bool,
    index: Index,
    /// Its events, without names.
    pub events: Vec<Event>,
    /// The release of the host's kernel, if it says it.
    pub os_release: Option<String>,
    /// The host's processor, if it says it.
    pub cpu: Option<String>,
    /// Its tracepoints by the `config` of their events. Of a pipe they are known once its records are read.
    pub tracepoints: BTreeMap<u64, Tracepoint>,
    /// Once its records are read: bytes of records that were compressed (of all, where none was), and of the compressed records.
    pub volume: (u64, u64),
}

/// Fields of all events that each record needs.
#[derive(Clone, Debug)]
struct Index {
    /// Events by the ids of their records.
    ids: BTreeMap<u64, usize>,
    /// All events have [`attr::IDENTIFIER`].
    identified: bool,
    /// All events have the same fields.
    alike: bool,
}

/// Takes a record with the number of its event, and its time if it has one.
type Visit<'v> = dyn FnMut(usize, Option<u64>, Record) + 'v;

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
        let mut recording = Self {
            bytes,
            data: PIPE_HEADER as usize..bytes.len(),
            missing: 0,
            pipe: true,
            index: Index { ids: BTreeMap::new(), identified: true, alike: true },
            events: Vec::new(),
            os_release: None,
            cpu: None,
            tracepoints: BTreeMap::new(),
            volume: (0, 0),
        };
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
        let entry = word()?;
        let (attrs, attrs_size, data, data_size) = (word()?, word()?, word()?, word()?);
        let (_, _) = (word()?, word()?);
        let features = from.u64().ok_or(ReadError::Header("it is cut short"))?;
        let attrs = section(bytes, attrs, attrs_size).ok_or(ReadError::Header("its events lie outside of the file"))?;
        if entry <= ENTRY {
            return Err(ReadError::Header("its events have no size"));
        }
        let mut count = 0;
        for bytes_of_event in attrs.chunks_exact(entry) {
            let (attr, size) = Attr::take(bytes_of_event).ok_or(ReadError::Header("an event makes no sense"))?;
            let mut from = Take(bytes_of_event.get(size..).unwrap_or_default());
            let ids = match (from.u64(), from.u64()) {
                (Some(at), Some(size)) => section(bytes, at as usize, size as usize).unwrap_or_default(),
                _ => &[],
            };
            count += ids.len() / 8;
            if count > MOST_IDS {
                return Err(ReadError::Header("its events have more than 65536 ids"));
            }
            self.add(attr, ids);
        }
        if data > bytes.len() {
            return Err(ReadError::Header("its records lie outside of the file"));
        }
        let end = data.saturating_add(data_size);
        let table = bytes.get(end..).unwrap_or_default();
        // A file that was cut is shorter than it says.
        (self.pipe, self.data, self.missing) =
            (false, data..end.min(bytes.len()), end.saturating_sub(bytes.len()) as u64);
        let numbers = (0..64_u8).filter(|number| features >> number & 1 != 0);
        for (number, place) in numbers.zip(table.chunks_exact(ENTRY)) {
            let mut from = Take(place);
            if let (Some(at), Some(size)) = (from.u64(), from.u64())
                && let Some(body) = section(bytes, at as usize, size as usize)
            {
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

    fn add(&mut self, attr: Attr, ids: &[u8]) {
        let ids: Vec<u64> = ids.chunks_exact(8).filter_map(|id| Take(id).u64()).collect();
        let (at, index) = (self.events.len(), &mut self.index);
        index.ids.extend(ids.iter().map(|&id| (id, at)));
        index.identified &= attr.sample_type & attr::IDENTIFIER != 0;
        index.alike &= self.events.first().is_none_or(|first| first.attr.sample_type == attr.sample_type);
        self.events.push(Event { attr, name: String::new(), ids });
    }

    /// Visits each record with the number of its event, and its time if it has one, in the order of the file, which perf writes by CPU;
    /// says what could not be used.
    pub fn records(&mut self, mut visit: impl FnMut(usize, Option<u64>, Record)) -> Damage {
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
                        self.one(&one, false, damage, &mut visit);
                        at += one.size;
                    }
                    at
                });
                compressed += size as u64;
            } else {
                plain += one.size as u64;
                if one.type_ == kind::TRACING_DATA && self.tracepoints.is_empty() {
                    self.feature(feature::TRACING_DATA, rest.get(one.size..size).unwrap_or_default());
                }
                self.one(&one, true, &mut damage, &mut visit);
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

    /// Visits a record. In a pipe some that are not compressed take the place of a header; no recorder compresses these, and a
    /// small frame could hold any number of them.
    fn one(
        &mut self,
        &Raw { type_, misc, body, .. }: &Raw<'_>,
        is_plain: bool,
        damage: &mut Damage,
        visit: &mut Visit<'_>,
    ) {
        if self.pipe && matches!(type_, kind::HEADER_ATTR | kind::FEATURE) {
            let mut from = Take(body);
            match Attr::take(body).filter(|_| is_plain) {
                _ if is_plain && type_ == kind::FEATURE => {
                    if let Some(number) = from.u64().and_then(|number| u8::try_from(number).ok()) {
                        self.feature(number, from.0);
                    }
                }
                Some((attr, size)) => self.add(attr, body.get(size..).unwrap_or_default()),
                None => damage.records += 1,
            }
            return;
        }
        // Types from 64 on are perf's own, and end without an id.
        let at = if type_ < kind::HEADER_ATTR { self.event_of(type_, body) } else { Some(0) };
        let record = at.and_then(|at| {
            let empty = Attr::default();
            let attr = self.events.get(at).map_or(&empty, |event| &event.attr);
            let record = record::take(type_, misc, body, attr)?;
            let time = match &record {
                Record::Sample(sample) => (attr.sample_type & attr::TIME != 0).then_some(sample.time),
                _ => record::time(body, attr),
            };
            Some((at, time, record))
        });
        match record {
            Some((at, time, record)) => visit(at, time, record),
            None => damage.records += 1,
        }
    }

    /// Returns the event of a record. With several events of different fields the id says it; what counts for one event
    /// alone is of none where its id is unknown.
    fn event_of(&self, type_: u32, body: &[u8]) -> Option<usize> {
        if self.events.len() <= 1 {
            return Some(0).filter(|_| type_ != kind::SAMPLE || !self.events.is_empty());
        }
        let id_all = self.events[0].attr.sample_id_all;
        let own = matches!(type_, kind::SAMPLE | kind::LOST_SAMPLES);
        if self.index.identified
            && let Some(id) = record::identifier(type_, body, id_all)
        {
            let of = self.index.ids.get(&id).copied();
            return of.or((!own || type_ == kind::SAMPLE && id == 0).then_some(0));
        }
        let alike = self.index.alike.then_some(0)?;
        if self.index.identified || self.events[0].attr.sample_type & attr::ID == 0 {
            return Some(alike);
        }
        let id = record::id(type_, body, &self.events[0].attr);
        match id {
            Some(id) if id != 0 => self.index.ids.get(&id).copied().or((!own).then_some(alike)),
            _ => Some(alike),
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

// The header of a recording.

/// Most ids of a file's events, which may all name the same bytes of it.
const MOST_IDS: usize = 1 << 16;
/// Bytes of an entry of a section table.
const ENTRY: usize = 16;

fn section(bytes: &[u8], at: usize, size: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(size)?)
}

// Decompresses the frames of records: complete ones, and perf's, which are parts of one stream.

/// Bytes that are decompressed at once: more than a recorder puts into a frame, so that a damaged one is not used in part.
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
    fn add(&mut self, frame: &[u8], damage: &mut Damage, mut take: impl FnMut(&[u8], &mut Damage) -> usize) {
        if damage.too_much {
            return;
        }
        self.compressed += frame.len() as u64;
        self.step.resize(STEP, 0);
        let mut input = InBuffer::around(frame);
        // The frame has records so far; what is behind them is not looked at.
        let mut sound = true;
        loop {
            self.decoder = self.decoder.take().or_else(|| Decoder::new().ok());
            let mut output = OutBuffer::around(&mut self.step[..]);
            let run = self.decoder.as_mut().map(|decoder| decoder.run(&mut input, &mut output));
            let length = output.pos();
            if !matches!(run, Some(Ok(_))) {
                // The next frame may be whole.
                self.decoder = None;
                self.out.clear();
                damage.records += 1;
                return;
            }
            self.total += length as u64;
            damage.too_much = self.total > allowed(self.compressed);
            if damage.too_much {
                self.out.clear();
                return;
            }
            if sound {
                self.out.extend_from_slice(&self.step[..length]);
                let used = take(&self.out, damage);
                sound = self.used(used);
                damage.records += u64::from(!sound);
            }
            // A full buffer may hide more.
            if input.pos() == frame.len() && length < STEP {
                return;
            }
        }
    }

    /// Drops the first `length` bytes, which were used. `false`: what is behind them cannot be the begin of a record,
    /// and is dropped.
    fn used(&mut self, length: usize) -> bool {
        self.out.drain(..length);
        let size = self.out.get(6..).and_then(|size| Take(size).u16());
        let begin = self.out.len() <= MOST_UNUSED && size.is_none_or(|size| usize::from(size) >= HEADER);
        if !begin {
            self.out.clear();
        }
        begin
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
