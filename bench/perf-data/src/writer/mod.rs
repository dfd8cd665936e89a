//! Writes a recording to a file or a pipe.
//!
//! A file begins with a header that says how long its data is. With every flush the header and the features that are known at the
//! begin are brought up to date, so that a process that is killed leaves a file that perf reads. When the disk is full, writing
//! ends at the last whole record, and the features take the place of the last records.
//!
//! Records gather in chunks; `frames` compresses them, `store` puts them into a file.

mod frames;
mod store;

use std::fs::File;
use std::io::{self, Write};

use crate::attr::{self, Event};
use crate::bytes::Put as _;
use crate::feature::{self, Compression, Facts};
use crate::record::{self, HEADER, Record, Stamp, kind};
use frames::{Packed, Packer};
pub(crate) use store::FILE_HEADER;
pub use store::MAGIC;
use store::{Behind, Store};

/// Bytes of the header of a pipe.
pub(crate) const PIPE_HEADER: u64 = 16;
/// Most bytes of records that are taken together.
const CHUNK: usize = 128 << 10;

/// Way in which records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// zstd's level; 0: no compression.
    pub level: u32,
    /// Writes that a thread may be behind, for files; `None`: the writer itself writes.
    pub aio: Option<usize>,
}

/// Destination of a recording.
#[derive(Debug)]
pub enum Output<W> {
    /// A file: its header is completed at the end.
    File(File),
    /// A stream, in perf's pipe mode. Its writes are serial.
    Pipe(W),
}

/// Figures of a recording at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Bytes of the output.
    pub bytes: u64,
    /// Bytes of records before compression.
    pub raw: u64,
    /// Samples in it. Those of a write that failed, or that a pipe took in part, are not.
    pub samples: u64,
    /// Uncompressed bytes per compressed byte; 1 without compression.
    pub ratio: f64,
    /// Bytes that are not in the file, though they were to be written: the disk is full.
    pub given_up: u64,
}

/// Destination of the records.
#[derive(Debug)]
enum Sink<W> {
    File(Box<Store>),
    Thread(Behind),
    /// With what came out.
    Pipe(W, Summary),
}

impl<W: Write> Sink<W> {
    fn put(&mut self, packed: Packed) -> io::Result<()> {
        match self {
            Self::File(store) => store.put(packed),
            Self::Thread(thread) => thread.send(Some(packed)).or_else(|_| self.settle()),
            Self::Pipe(pipe, piped) => {
                pipe.write_all(&packed.bytes)?;
                pipe.flush()?;
                piped.bytes += packed.bytes.len() as u64;
                piped.raw += packed.raw;
                piped.samples += packed.samples;
                Ok(())
            }
        }
    }

    fn commit(&mut self) -> io::Result<()> {
        match self {
            Self::File(store) => store.commit(),
            Self::Thread(thread) => thread.send(None).or_else(|_| self.settle()),
            Self::Pipe(..) => Ok(()),
        }
    }

    /// Takes the file back from its thread, with the failure that the thread had.
    fn settle(&mut self) -> io::Result<()> {
        let Self::Thread(thread) = self else { return Ok(()) };
        let (store, done) = thread.end().ok_or_else(|| io::Error::other("the writer's thread has ended"))?;
        *self = Self::File(Box::new(store));
        done
    }
}

/// Writes records.
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: Sink<W>,
    packer: Packer,
    events: Vec<Event>,
    /// Samples have call chains.
    chains: bool,
    level: u32,
    /// Records that are not taken yet.
    pending: Vec<u8>,
    /// Bytes of records in frames, and of frames.
    packed: (u64, u64),
    times: (u64, u64),
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a recording of `events`, whose samples have [`record::FIELDS`], with `chains` a call chain as well. `facts` are
    /// those that are known at the begin: a pipe has no others.
    ///
    /// # Errors
    /// Returns the errors of the output, and of a host that gives no thread.
    pub fn begin(
        output: Output<W>,
        events: &[Event],
        chains: bool,
        options: Options,
        facts: &Facts,
    ) -> io::Result<Self> {
        let mut events = events.to_vec();
        for event in &mut events {
            event.attr.sample_type = record::FIELDS | if chains { attr::CALLCHAIN } else { 0 };
            event.attr.sample_id_all = true;
        }
        let early = Facts { compression: compression(options.level, 1.0), ..facts.clone() };
        let mut early = feature::all(&early, &events);
        // Times are not known, and build-ids come at the end of a file and as records of a pipe. Without that of the compression perf
        // reads no compressed record.
        early.retain(|&(number, _)| number != feature::BUILD_ID && number != feature::SAMPLE_TIME);
        let sink = match output {
            Output::File(file) => {
                let ids: usize = events.iter().map(|event| event.ids.len()).sum();
                let counts = (ids as u64, events.len() as u64);
                let store = Store::begin(file, &file_start(&events), counts, early)?;
                match options.aio {
                    Some(writes) => Sink::Thread(Behind::start(store, writes)?),
                    None => Sink::File(Box::new(store)),
                }
            }
            Output::Pipe(mut pipe) => {
                let start = pipe_start(&events, &early, facts);
                pipe.write_all(&start)?;
                Sink::Pipe(pipe, Summary { bytes: start.len() as u64, ..Summary::default() })
            }
        };
        Ok(Self {
            sink,
            packer: Packer::new(options.level)?,
            events,
            chains,
            level: options.level,
            pending: Vec::with_capacity(2 * CHUNK),
            packed: (0, 0),
            times: (0, 0),
            failed: false,
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Returns the errors of the output, once; from then on everything is dropped.
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
        // A frame has whole records and at most so many bytes.
        if self.pending.len() > CHUNK {
            let last = self.pending.split_off(before);
            let given = self.once(Self::give);
            self.pending.extend_from_slice(&last);
            return given;
        }
        Ok(())
    }

    /// Writes what waits, and brings a file's header up to date, or has a thread do both.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.once(Self::give)?;
        self.once(|writer| writer.sink.commit())
    }

    /// Does something unless something failed before.
    fn once(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let done = if self.failed { Ok(()) } else { what(self) };
        self.failed |= done.is_err();
        if self.failed {
            self.pending.clear();
        }
        done
    }

    /// Takes the records together.
    fn give(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let packed = self.packer.pack(&self.pending)?;
        self.pending.clear();
        self.packed.0 += packed.raw;
        self.packed.1 += packed.compressed;
        self.sink.put(packed)
    }

    /// Ends the recording: a file gets its features; `facts` are those known at the end. Says what the output has, also
    /// where something failed.
    ///
    /// # Errors
    /// The first failure of the output that was not returned before; a file is readable nevertheless.
    pub fn finish(mut self, facts: &Facts) -> (Summary, io::Result<()>) {
        let flushed = self.once(Self::give).and(self.sink.settle());
        let (raw, compressed) = self.packed;
        let ratio = if compressed == 0 { 1.0 } else { raw as f64 / compressed as f64 };
        let store = match self.sink {
            Sink::File(ref mut store) => store,
            Sink::Pipe(_, piped) => return (Summary { ratio, ..piped }, flushed),
            // A thread that panicked has the file.
            Sink::Thread(_) => return (Summary::default(), flushed),
        };
        let facts = Facts { compression: compression(self.level, ratio), times: self.times, ..facts.clone() };
        // Writes that were begun may fail here for the first time.
        let ended = store.finish(&feature::all(&facts, &self.events));
        let Store { raw, samples, given_up, .. } = **store;
        (Summary { bytes: store.bytes(), raw, samples, ratio, given_up }, flushed.and(ended))
    }
}

fn compression(level: u32, ratio: f64) -> Option<Compression> {
    // One record may be beyond a chunk.
    let most = CHUNK as u32 + (64 << 10);
    (level > 0).then(|| Compression { level, ratio: rounded(ratio), most })
}

/// Returns everything ahead of the data of a file.
fn file_start(events: &[Event]) -> Vec<u8> {
    let mut bytes = vec![0; FILE_HEADER as usize];
    let ids_at = FILE_HEADER;
    events.iter().flat_map(|event| &event.ids).for_each(|&id| bytes.u64(id));
    let mut at = ids_at;
    for event in events {
        event.attr.put(&mut bytes);
        bytes.u64(at);
        bytes.u64(8 * event.ids.len() as u64);
        at += 8 * event.ids.len() as u64;
    }
    bytes
}

/// Returns everything ahead of the records of a pipe: attributes and features are records there.
fn pipe_start(events: &[Event], early: &[(u8, Vec<u8>)], facts: &Facts) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.u64(PIPE_HEADER);
    for event in events {
        let mut body = Vec::new();
        event.attr.put(&mut body);
        event.ids.iter().for_each(|&id| body.u64(id));
        put(&mut bytes, kind::HEADER_ATTR, &body);
    }
    for (number, body) in early {
        put(&mut bytes, kind::FEATURE, &[&u64::from(*number).to_le_bytes(), body.as_slice()].concat());
    }
    for id in &facts.build_ids {
        id.put(&mut bytes);
    }
    bytes
}

/// Appends a record of a pipe's header, unless it is longer than a record can be.
fn put(to: &mut Vec<u8>, type_: u32, body: &[u8]) {
    let size = (HEADER + body.len()).next_multiple_of(8);
    let Ok(size) = u16::try_from(size) else { return };
    let end = to.len() + usize::from(size);
    to.u32(type_);
    to.u16(0);
    to.u16(size);
    to.extend_from_slice(body);
    to.resize(end, 0);
}

/// Rounds a ratio to the nearest whole number.
#[expect(clippy::cast_sign_loss, reason = "a ratio of sizes is not negative, and the cast saturates")]
fn rounded(ratio: f64) -> u32 {
    ratio.round() as u32
}
