//! Reads recordings of files and pipes, ours and perf's. Every field is distrusted: sizes are checked before they are used, and
//! what is decompressed is bounded.

mod damage;
mod header;
mod inflate;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::attr::{self, Event};
use crate::bytes::Take;
use crate::feature::{self, BuildId, Compression, MOST_IDS};
use crate::record::{self, HEADER, Record, kind};
pub use damage::{Damage, MOST_INFLATED, ReadError, allowed};
use header::Head;
pub use header::MOST_EVENTS;
use inflate::Inflate;
pub use inflate::MOST_UNUSED;

/// Prefix of the version in recordings that this tool wrote.
const OURS: &str = "vpmu ";
/// Most build-ids that are kept.
pub const MOST_BUILD_IDS: usize = 1 << 16;

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    data: std::ops::Range<usize>,
    /// Parts that the header lists and the file lacks.
    damage: Damage,
    pipe: bool,
    /// It has the times of its first and last sample, which this tool's writer puts at the end.
    ended: bool,
    index: Index,
    /// The names of events were read.
    described: bool,
    /// Its events.
    pub events: Vec<Event>,
    /// Its command line, if it says it.
    pub command_line: Vec<String>,
    /// The version of what recorded it, if it says it.
    pub version: Option<String>,
    /// Its compression, if it says it.
    pub compression: Option<Compression>,
    /// CLOCK_REALTIME, and the time of its own clock at the same moment, ns, if it says them.
    pub clocks: Option<(u64, u64)>,
    /// Build-ids of its files.
    pub build_ids: Vec<BuildId>,
    /// Once its records are read: bytes of records that were compressed (of all, where none was), and of the compressed records.
    pub volume: (u64, u64),
}

/// Fields of all events that each record needs.
#[derive(Clone, Debug)]
struct Index {
    /// Events by the ids of their records.
    ids: BTreeMap<u64, usize>,
    /// Ids of all events; an id of two events counts twice.
    count: usize,
    /// All events have [`attr::IDENTIFIER`].
    identified: bool,
    /// All events have the same fields.
    alike: bool,
}

impl<'a> Recording<'a> {
    /// Reads everything but the records.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let Head { data, missing, unfinished, pipe, events, features } = header::read(bytes)?;
        let feature = |number: u8| features.iter().find(|(n, _)| *n == number).map(|(_, body)| *body);
        let mut recording = Self {
            bytes,
            data,
            damage: Damage { missing, unfinished, ..Damage::default() },
            pipe,
            ended: feature(feature::SAMPLE_TIME).is_some(),
            index: Index { ids: BTreeMap::new(), count: 0, identified: true, alike: true },
            described: false,
            events: Vec::with_capacity(events.len()),
            command_line: feature(feature::CMDLINE).and_then(feature::take_words).unwrap_or_default(),
            version: feature(feature::VERSION).and_then(feature::take_text),
            compression: feature(feature::COMPRESSED).and_then(feature::take_compression),
            clocks: feature(feature::CLOCK_DATA).and_then(feature::take_clocks),
            build_ids: Vec::new(),
            volume: (0, 0),
        };
        for event in events {
            recording.add(event);
        }
        if let Some(described) = feature(feature::EVENT_DESC).and_then(feature::take_description) {
            recording.name(&described);
        }
        if let Some(mut rest) = feature(feature::BUILD_ID) {
            while let Some((type_, misc, body, size)) =
                split(rest).filter(|_| recording.build_ids.len() < MOST_BUILD_IDS)
            {
                if type_ == kind::BUILD_ID || type_ == 0 {
                    recording.build_ids.extend(BuildId::take(misc, body));
                }
                rest = &rest[size..];
            }
        }
        Ok(recording)
    }

    /// Adds an event; `false`: it is one too many, or its ids are.
    fn add(&mut self, event: Event) -> bool {
        let (at, index) = (self.events.len(), &mut self.index);
        if at >= MOST_EVENTS || index.count + event.ids.len() > MOST_IDS {
            return false;
        }
        index.count += event.ids.len();
        index.ids.extend(event.ids.iter().map(|&id| (id, at)));
        index.identified &= event.attr.sample_type & attr::IDENTIFIER != 0;
        index.alike &= self.events.first().is_none_or(|first| first.attr.sample_type == event.attr.sample_type);
        self.events.push(event);
        true
    }

    /// Names events by the first description; others are not looked at.
    fn name(&mut self, described: &[Event]) {
        if std::mem::replace(&mut self.described, true) {
            return;
        }
        // The first of two events with equal ids counts.
        let named = described.iter().rev().filter(|known| !known.ids.is_empty());
        let by_ids: BTreeMap<&[u64], &Event> = named.map(|known| (known.ids.as_slice(), known)).collect();
        for (at, event) in self.events.iter_mut().enumerate() {
            let same = by_ids.get(event.ids.as_slice()).copied();
            if let Some(known) = same.or_else(|| described.get(at)) {
                event.name.clone_from(&known.name);
            }
        }
    }

    /// Returns whether this tool wrote it. For a pipe the answer is known once its records are read.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.starts_with(OURS))
    }

    /// Hands each record to `visit`, with the number of its event, in the order of the file, and says what could not be used.
    pub fn records(&mut self, mut visit: impl FnMut(usize, Record)) -> Damage {
        self.timed_records(|event, _, record| {
            visit(event, record);
            ControlFlow::Continue(())
        })
    }

    /// Visits each record with its time, if it has one, until `visit` breaks off. perf writes records by CPU, so that they are in their
    /// order only for each of them.
    pub fn timed_records(&mut self, mut visit: impl FnMut(usize, Option<u64>, Record) -> ControlFlow<()>) -> Damage {
        let mut damage = self.damage;
        let mut inflate = Inflate::new();
        let bytes: &'a [u8] = self.bytes;
        let mut rest = &bytes[self.data.clone()];
        let (mut plain, mut compressed) = (0, 0);
        let over = Cell::new(false);
        let mut visit = |event, time, record| {
            if !over.get() {
                over.set(visit(event, time, record).is_break());
            }
        };
        while let Some((type_, misc, body, mut size)) = split(rest).filter(|_| !over.get()) {
            match type_ {
                kind::COMPRESSED | kind::COMPRESSED2 => {
                    let frame = if type_ == kind::COMPRESSED {
                        Some(body)
                    } else {
                        let padded;
                        (padded, size) = compressed2(rest, size);
                        padded
                    };
                    let frame = frame.unwrap_or_else(|| {
                        damage.frames += 1;
                        &[]
                    });
                    inflate.add(frame, &mut damage, |bytes, damage| self.plain(bytes, damage, &mut visit));
                    compressed += size as u64;
                }
                _ => {
                    plain += size as u64;
                    size = size.saturating_add(self.behind(type_, body));
                    self.outer(type_, misc, body, &mut damage, &mut visit);
                }
            }
            let Some(behind) = rest.get(size..) else { break };
            rest = behind;
        }
        self.volume = (if compressed == 0 { plain } else { inflate.total() }, compressed);
        damage.rest = rest.len() as u64 + inflate.unused() as u64;
        damage.unfinished |= self.is_ours() && !self.ended;
        damage
    }

    /// Returns the number of bytes that follow a record of this type and are no records: descriptions of tracepoints in a pipe, a processor's trace.
    fn behind(&self, type_: u32, body: &[u8]) -> usize {
        let said = match type_ {
            kind::TRACING_DATA if self.pipe => Take(body).u32().map(|size| u64::from(size).next_multiple_of(8)),
            kind::AUXTRACE => Take(body).u64(),
            _ => None,
        };
        said.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// Visits the whole records of `bytes`; returns how long they are.
    fn plain(
        &mut self,
        bytes: &[u8],
        damage: &mut Damage,
        visit: &mut impl FnMut(usize, Option<u64>, Record),
    ) -> usize {
        let mut at = 0;
        while let Some((type_, misc, body, size)) = split(&bytes[at..]) {
            self.one(type_, misc, body, damage, visit);
            at += size;
        }
        at
    }

    /// Handles a record that is not compressed: among them are those that take the place of a header.
    fn outer(
        &mut self,
        type_: u32,
        misc: u16,
        body: &[u8],
        damage: &mut Damage,
        visit: &mut impl FnMut(usize, Option<u64>, Record),
    ) {
        match type_ {
            kind::HEADER_ATTR if self.pipe => {
                let added = header::take_attr(body).is_some_and(|event| self.add(event));
                damage.records += u64::from(!added);
            }
            kind::FEATURE if self.pipe => self.feature(body),
            kind::BUILD_ID => match BuildId::take(misc, body).filter(|_| self.build_ids.len() < MOST_BUILD_IDS) {
                Some(id) => self.build_ids.push(id),
                None => damage.records += 1,
            },
            _ => self.one(type_, misc, body, damage, visit),
        }
    }

    fn one(
        &mut self,
        type_: u32,
        misc: u16,
        body: &[u8],
        damage: &mut Damage,
        visit: &mut impl FnMut(usize, Option<u64>, Record),
    ) {
        match type_ {
            // No recorder compresses these, and a small frame could hold any number of them.
            kind::HEADER_ATTR | kind::FEATURE if self.pipe => damage.records += 1,
            kind::BUILD_ID => damage.records += 1,
            _ => {
                let known =
                    matches!(type_, kind::SAMPLE | kind::COMM | kind::LOST | kind::MMAP | kind::MMAP2 | kind::FORK);
                let at = if known { self.event_of(type_, body) } else { Some(0) };
                let record = at.and_then(|at| {
                    let empty = attr::Attr::default();
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
        }
    }

    fn feature(&mut self, body: &[u8]) {
        let mut from = Take(body);
        match from.u64() {
            Some(number) if number == u64::from(feature::EVENT_DESC) && !self.described => {
                if let Some(described) = feature::take_description(from.0) {
                    self.name(&described);
                }
            }
            Some(number) if number == u64::from(feature::CMDLINE) => {
                self.command_line = feature::take_words(from.0).unwrap_or_default();
            }
            Some(number) if number == u64::from(feature::VERSION) => self.version = feature::take_text(from.0),
            Some(number) if number == u64::from(feature::COMPRESSED) => {
                self.compression = feature::take_compression(from.0);
            }
            Some(number) if number == u64::from(feature::SAMPLE_TIME) => self.ended = true,
            Some(number) if number == u64::from(feature::CLOCK_DATA) => self.clocks = feature::take_clocks(from.0),
            _ => {}
        }
    }

    /// Returns the event of a record. With several events of different fields the id says it.
    fn event_of(&self, type_: u32, body: &[u8]) -> Option<usize> {
        if self.events.len() <= 1 {
            return Some(0).filter(|_| type_ != kind::SAMPLE || !self.events.is_empty());
        }
        let id_all = self.events[0].attr.sample_id_all;
        if self.index.identified
            && let Some(id) = record::identifier(type_, body, id_all)
        {
            let of = self.index.ids.get(&id).copied();
            return of.or((type_ != kind::SAMPLE || id == 0).then_some(0));
        }
        let alike = self.index.alike.then_some(0)?;
        if self.index.identified || self.events[0].attr.sample_type & attr::ID == 0 {
            return Some(alike);
        }
        let id = record::id(type_, body, &self.events[0].attr);
        match id {
            Some(id) if id != 0 => self.index.ids.get(&id).copied().or((type_ != kind::SAMPLE).then_some(alike)),
            _ => Some(alike),
        }
    }
}

/// Splits off the first record of `bytes`: type, misc, body, size.
fn split(bytes: &[u8]) -> Option<(u32, u16, &[u8], usize)> {
    let mut from = Take(bytes);
    let (type_, misc, size) = (from.u32()?, from.u16()?, usize::from(from.u16()?));
    let body = bytes.get(HEADER..size.max(HEADER)).filter(|_| size >= HEADER)?;
    Some((type_, misc, body, size))
}

/// Returns the frame of a PERF_RECORD_COMPRESSED2 and the size of the record. Its first writer let the size wrap for the longest records,
/// and counted in `data_size` all records of a write in the first of them.
fn compressed2(record: &[u8], size: usize) -> (Option<&[u8]>, usize) {
    let Some(length) = Take(record.get(HEADER..).unwrap_or_default()).u64().and_then(|n| usize::try_from(n).ok())
    else {
        return (None, size);
    };
    let start = HEADER + 8;
    let padded = length.checked_add(start).map(|end| end.next_multiple_of(8));
    let wrapped = size < start && padded.is_some_and(|padded| padded & 0xffff == size && padded <= 1 << 17);
    let size = if wrapped { padded.unwrap_or(size) } else { size };
    let end = start.saturating_add(length).min(size);
    (record.get(start..end), size.max(HEADER))
}
