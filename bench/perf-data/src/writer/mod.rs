//! Writes a recording to a file.
//!
//! A file begins with a header that says how long its data is. With every flush the header and the features that are known at the
//! begin are brought up to date, so that a process that is killed leaves a file that perf reads. When the disk is full, writing
//! ends at the last whole record, and the features take the place of the last records.
//!
//! Records gather in chunks; `frames` compresses them, `store` puts them into a file.

mod frames;
mod store;

use std::fs::File;
use std::io;

use crate::attr::Event;
use crate::bytes::Put as _;
use crate::feature::{self, CHUNK, Facts};
use crate::record::{self, Record};
use frames::{Packed, Packer};
pub(crate) use store::FILE_HEADER;
pub use store::MAGIC;
use store::{Behind, Store};

/// Bytes of the header of a pipe.
pub(crate) const PIPE_HEADER: u64 = 16;

/// Way in which records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// zstd's level; 0: no compression.
    pub level: u32,
    /// Writes that a thread may be behind; `None`: the writer itself writes.
    pub aio: Option<usize>,
}

/// Figures of a recording at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Bytes of the output.
    pub bytes: u64,
    /// Bytes of records before compression.
    pub raw: u64,
    /// Samples in it. Those of a write that failed are not.
    pub samples: u64,
    /// Uncompressed bytes per compressed byte; 1 without compression.
    pub ratio: f64,
    /// Bytes that are not in the file, though they were to be written: the disk is full.
    pub given_up: u64,
}

/// Destination of the records.
#[derive(Debug)]
enum Sink {
    File(Box<Store>),
    Thread(Behind),
}

impl Sink {
    fn put(&mut self, packed: Packed) -> io::Result<()> {
        match self {
            Self::File(store) => store.put(packed),
            Self::Thread(thread) => {
                if thread.send(Some(packed)) {
                    return Ok(());
                }
                self.settle()
            }
        }
    }

    fn commit(&mut self) -> io::Result<()> {
        match self {
            Self::File(store) => store.commit(),
            Self::Thread(thread) if thread.send(None) => Ok(()),
            Self::Thread(_) => self.settle(),
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
pub struct Writer {
    sink: Sink,
    packer: Packer,
    events: Vec<Event>,
    /// Samples have call chains.
    chains: bool,
    facts: Facts,
    /// Records that are not taken yet, and samples among them.
    pending: Vec<u8>,
    samples: u64,
    /// Bytes of records in frames, and of frames.
    packed: (u64, u64),
    failed: bool,
}

impl Writer {
    /// Begins a recording of `events`, whose samples have a call chain with `chains`.
    ///
    /// # Errors
    /// Returns the errors of the output, and of a host that gives no thread.
    pub fn begin(file: File, events: &[Event], chains: bool, options: Options, mut facts: Facts) -> io::Result<Self> {
        facts.compression = (options.level, 1.0);
        let mut early = feature::all(&facts, events, chains);
        // Times are not known, and build-ids come at the end. Without that of the compression perf reads no compressed record.
        early.retain(|&(number, _)| number != feature::BUILD_ID && number != feature::SAMPLE_TIME);
        let store = Store::begin(file, &file_start(events, chains), events.len() as u64, early)?;
        let sink = match options.aio {
            Some(writes) => Sink::Thread(Behind::start(store, writes)?),
            None => Sink::File(Box::new(store)),
        };
        Ok(Self {
            sink,
            packer: Packer::new(options.level)?,
            events: events.to_vec(),
            chains,
            facts,
            pending: Vec::with_capacity(2 * CHUNK),
            samples: 0,
            packed: (0, 0),
            failed: false,
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Returns the errors of the output, once; from then on everything is dropped.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        let before = self.pending.len();
        record::put(&mut self.pending, record, self.chains);
        // A frame has whole records and at most so many bytes.
        let given = if self.pending.len() > CHUNK {
            let last = self.pending.split_off(before);
            let given = self.once(Self::give);
            self.pending.extend_from_slice(&last);
            given
        } else {
            Ok(())
        };
        if let Record::Sample(sample) = record {
            self.samples += 1;
            let (first, last) = &mut self.facts.times;
            *first = if *last == 0 { sample.time } else { sample.time.min(*first) };
            *last = sample.time.max(*last);
        }
        given
    }

    /// Writes what waits, and brings the header up to date, or has a thread do both.
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
        let packed = self.packer.pack(&self.pending, std::mem::take(&mut self.samples))?;
        self.pending.clear();
        self.packed.0 += packed.raw;
        self.packed.1 += packed.compressed;
        self.sink.put(packed)
    }

    /// Ends the recording: the file gets its features. Says what it has, also where something failed.
    ///
    /// # Errors
    /// The first failure that was not returned before; the file is readable nevertheless.
    pub fn finish(mut self) -> (Summary, io::Result<()>) {
        let flushed = self.once(Self::give).and(self.sink.settle());
        let (raw, compressed) = self.packed;
        let ratio = if compressed == 0 { 1.0 } else { raw as f64 / compressed as f64 };
        let store = match self.sink {
            Sink::File(ref mut store) => store,
            // A thread that panicked took the file with it.
            Sink::Thread(_) => return (Summary::default(), flushed),
        };
        self.facts.compression.1 = ratio;
        // Writes that were begun may fail here for the first time.
        let ended = store.finish(&feature::all(&self.facts, &self.events, self.chains));
        let Store { raw, samples, given_up, .. } = **store;
        (Summary { bytes: store.bytes(), raw, samples, ratio, given_up }, flushed.and(ended))
    }
}

/// Returns everything ahead of the data of a file.
fn file_start(events: &[Event], chains: bool) -> Vec<u8> {
    let mut bytes = vec![0; FILE_HEADER as usize];
    for event in events {
        bytes.u64(event.id);
    }
    for (event, at) in events.iter().zip((FILE_HEADER..).step_by(8)) {
        event.put(&mut bytes, chains);
        bytes.u64(at);
        bytes.u64(8);
    }
    bytes
}
