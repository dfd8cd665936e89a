//! Writes a recording to a file or a pipe.
//!
//! A file begins with a header that says how long its data is. With every flush the header and the features that are known at the
//! begin are brought up to date, so that a process that is killed leaves a file that perf reads. When the disk is full, writing
//! ends at the last whole record, and the features take the place of the last records.

mod frames;

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};

use crate::attr::{self, Event};
use crate::bytes::Put as _;
use crate::feature::{self, Compression, Facts};
use crate::record::{self, HEADER, Record, Stamp, kind};
use frames::{CHUNK, Frames};

/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header of a file, and of a pipe.
pub(crate) const FILE_HEADER: u64 = 104;
pub(crate) const PIPE_HEADER: u64 = 16;
/// Room that a full disk's features get: so much of the end of the data is given up for them.
const ROOM: u64 = 64 << 10;
/// Most bytes that one compressed record is decompressed to, as features say it.
const MOST_OF_FRAME: u32 = CHUNK as u32 + (64 << 10);

/// Where a recording goes.
#[derive(Debug)]
pub enum Output<W> {
    /// A file: its header is completed at the end.
    File(File),
    /// A stream, in perf's pipe mode.
    Pipe(W),
}

/// What a recording has in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Bytes of the output.
    pub bytes: u64,
    /// Bytes of records before compression.
    pub raw: u64,
    /// Uncompressed bytes per compressed byte; 1 without compression.
    pub ratio: f64,
    /// Bytes of records that were given up since the disk was full.
    pub given_up: u64,
}

/// Writes records.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: Output<W>,
    events: Vec<Event>,
    /// Whether samples have call chains.
    chains: bool,
    /// Records that are not written yet.
    pending: Vec<u8>,
    frames: Option<(Frames, u32)>,
    /// Where the data of a file begins, and ends so far.
    data: (u64, u64),
    /// Bytes of the features behind the data, so far.
    tail: u64,
    /// The features that are known at the begin. Without that of the compression perf reads no compressed record.
    early: Vec<(u8, Vec<u8>)>,
    raw: u64,
    /// The ends of the last writes, for a full disk.
    ends: Vec<u64>,
    times: (u64, u64),
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a recording of `events`, whose samples have [`record::FIELDS`], with `chains` a call chain as well. `facts` are
    /// those that are known at the begin: a pipe has no others. `level` of zstd; 0: no compression.
    ///
    /// # Errors
    /// Those of the output.
    pub fn begin(output: Output<W>, events: &[Event], chains: bool, level: u32, facts: &Facts) -> io::Result<Self> {
        let mut events = events.to_vec();
        for event in &mut events {
            event.attr.sample_type = record::FIELDS | if chains { attr::CALLCHAIN } else { 0 };
            event.attr.sample_id_all = true;
        }
        let frames = (level > 0).then(|| (Frames::new(level), level));
        let compression = (level > 0).then_some(Compression { level, ratio: 1, most: MOST_OF_FRAME });
        let mut early = feature::all(&Facts { compression, ..facts.clone() }, &events);
        // Times are not known, and build-ids come at the end of a file and as records of a pipe.
        early.retain(|&(number, _)| number != feature::BUILD_ID && number != feature::SAMPLE_TIME);
        let mut writer = Self {
            output,
            events,
            chains,
            pending: Vec::with_capacity(2 * CHUNK),
            frames,
            data: (0, 0),
            tail: 0,
            early,
            raw: 0,
            ends: Vec::new(),
            times: (0, 0),
            failed: false,
        };
        let bytes = match writer.output {
            Output::File(_) => writer.file_start(),
            Output::Pipe(_) => writer.pipe_start(facts),
        };
        writer.data = (bytes.len() as u64, bytes.len() as u64);
        match &mut writer.output {
            Output::File(file) => {
                file.write_all(&bytes)?;
                writer.append(&[], None)?;
            }
            Output::Pipe(pipe) => pipe.write_all(&bytes)?,
        }
        Ok(writer)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Those of the output, once; from then on everything is dropped.
    pub fn add(&mut self, record: &Record, stamp: Stamp) -> io::Result<()> {
        if let Record::Sample(sample) = record {
            self.times.1 = self.times.1.max(sample.time);
            self.times.0 = if self.times.0 == 0 { sample.time } else { self.times.0.min(sample.time) };
        }
        if self.failed {
            return Ok(());
        }
        let before = self.pending.len();
        record::put(&mut self.pending, record, stamp, self.chains);
        // A frame has whole records and at most CHUNK bytes.
        if self.pending.len() > CHUNK {
            let last = self.pending.split_off(before);
            let flushed = self.flush();
            self.pending.extend_from_slice(&last);
            return flushed;
        }
        Ok(())
    }

    /// Writes what waits, and brings a file's header up to date.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let written = if self.failed { Ok(()) } else { self.write(&pending) };
        self.pending = pending;
        self.pending.clear();
        self.failed |= written.is_err();
        written
    }

    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let framed = match &mut self.frames {
            Some((frames, _)) => {
                let mut bytes = Vec::with_capacity(records.len() / 2);
                frames.put(records, &mut bytes)?;
                Some(bytes)
            }
            None => None,
        };
        let bytes = framed.as_deref().unwrap_or(records);
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.output {
            Output::File(_) => self.append(bytes, None)?,
            Output::Pipe(pipe) => {
                pipe.write_all(bytes)?;
                pipe.flush()?;
                self.data.1 += bytes.len() as u64;
            }
        }
        self.raw += records.len() as u64;
        self.ends.push(self.data.1);
        Ok(())
    }

    /// Ends the recording. A file gets its features; `facts` are those known at the end.
    ///
    /// # Errors
    /// Those of the output; a file is readable nevertheless.
    pub fn finish(mut self, facts: &Facts) -> io::Result<Summary> {
        let flushed = self.flush();
        let ratio = self.frames.as_ref().map_or(1.0, |(frames, _)| frames.ratio());
        let mut summary = Summary { bytes: self.data.1, raw: self.raw, ratio, given_up: 0 };
        if matches!(self.output, Output::Pipe(_)) {
            return flushed.map(|()| summary);
        }
        let compression =
            self.frames.as_ref().map(|&(_, level)| Compression { level, ratio: rounded(ratio), most: MOST_OF_FRAME });
        let facts = Facts { compression, times: self.times, ..facts.clone() };
        let features = feature::all(&facts, &self.events);
        if self.append(&[], Some(&features)).is_err() {
            // The disk is full: the last records make room.
            let end = self.data.1;
            while self.data.1 > self.data.0 && end - self.data.1 < ROOM {
                self.ends.pop();
                self.data.1 = self.ends.last().copied().unwrap_or(self.data.0);
            }
            summary.given_up = end - self.data.1;
            self.truncate()?;
            if let Err(error) = self.append(&[], Some(&features)) {
                if self.append(&[], None).is_err() {
                    self.truncate()?;
                }
                return Err(error);
            }
        }
        summary.bytes = self.data.1 + self.tail;
        flushed.map(|()| summary)
    }

    /// Cuts a file at the end of its data.
    fn truncate(&mut self) -> io::Result<()> {
        self.tail = 0;
        self.head(0)?;
        let Output::File(file) = &mut self.output else { return Ok(()) };
        file.set_len(self.data.1)
    }

    /// Appends `records` to the data of a file, and behind them `features`, by default those known at the begin.
    fn append(&mut self, records: &[u8], features: Option<&[(u8, Vec<u8>)]>) -> io::Result<()> {
        let Output::File(file) = &mut self.output else { return Ok(()) };
        let features = features.unwrap_or(&self.early);
        let (start, end) = (self.data.1, self.data.1 + records.len() as u64);
        let mut bytes = records.to_vec();
        let mut at = end + 16 * features.len() as u64;
        for (_, body) in features {
            bytes.u64(at);
            bytes.u64(body.len() as u64);
            at += body.len() as u64;
        }
        bytes.extend(features.iter().flat_map(|(_, body)| body.iter().copied()));
        let bits = features.iter().fold(0, |bits, (number, _)| bits | 1 << number);
        // The features that the header means are replaced last, just before the header: a full disk leaves them as they are, and
        // there is hardly a moment in which the end of the process leaves records in their place.
        let old = bytes.len().min(self.tail as usize);
        file.seek(SeekFrom::Start(start + old as u64))?;
        file.write_all(&bytes[old..])?;
        file.seek(SeekFrom::Start(start))?;
        file.write_all(&bytes[..old])?;
        self.data.1 = end;
        self.tail = at - end;
        self.head(bits)?;
        let Output::File(file) = &mut self.output else { return Ok(()) };
        file.set_len(at)
    }

    /// Everything ahead of the data of a file.
    fn file_start(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE_HEADER as usize];
        let ids_at = FILE_HEADER;
        self.events.iter().flat_map(|event| &event.ids).for_each(|&id| bytes.u64(id));
        let mut at = ids_at;
        for event in &self.events {
            event.attr.put(&mut bytes);
            bytes.u64(at);
            bytes.u64(8 * event.ids.len() as u64);
            at += 8 * event.ids.len() as u64;
        }
        bytes
    }

    /// Writes the header of a file.
    fn head(&mut self, features: u64) -> io::Result<()> {
        let ids: usize = self.events.iter().map(|event| event.ids.len()).sum();
        let mut bytes = MAGIC.to_vec();
        bytes.u64(FILE_HEADER);
        bytes.u64(attr::SIZE as u64 + 16);
        bytes.u64(FILE_HEADER + 8 * ids as u64);
        bytes.u64((attr::SIZE as u64 + 16) * self.events.len() as u64);
        bytes.u64(self.data.0);
        bytes.u64(self.data.1 - self.data.0);
        bytes.u64(0);
        bytes.u64(0);
        bytes.u64(features);
        bytes.resize(FILE_HEADER as usize, 0);
        let Output::File(file) = &mut self.output else { return Ok(()) };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&bytes)
    }

    /// Everything ahead of the records of a pipe: attributes and features are records there.
    fn pipe_start(&self, facts: &Facts) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.u64(PIPE_HEADER);
        let mut put = |type_: u32, body: &[u8]| {
            let size = (HEADER + body.len()).next_multiple_of(8);
            // A feature that is longer than a record can be is left out.
            let Ok(size) = u16::try_from(size) else { return };
            let end = bytes.len() + usize::from(size);
            bytes.u32(type_);
            bytes.u16(0);
            bytes.u16(size);
            bytes.extend_from_slice(body);
            bytes.resize(end, 0);
        };
        for event in &self.events {
            let mut body = Vec::new();
            event.attr.put(&mut body);
            event.ids.iter().for_each(|&id| body.u64(id));
            put(kind::HEADER_ATTR, &body);
        }
        for (number, body) in &self.early {
            let mut feature = u64::from(*number).to_le_bytes().to_vec();
            feature.extend(body);
            put(kind::FEATURE, &feature);
        }
        for id in &facts.build_ids {
            id.put(&mut bytes);
        }
        bytes
    }
}

/// The nearest whole number of a ratio.
#[expect(clippy::cast_sign_loss, reason = "a ratio of sizes is not negative, and the cast saturates")]
fn rounded(ratio: f64) -> u32 {
    ratio.round() as u32
}
