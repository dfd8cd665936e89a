//! Compression: a complete zstd frame in each PERF_RECORD_COMPRESSED, by the writer itself or by threads.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use zstd::bulk::Compressor;

use crate::bytes::Put as _;
use crate::record::{HEADER, kind};

/// Most bytes of a frame: a record's size has 16 bits.
const MOST: usize = u16::MAX as usize - HEADER;
/// Chunks that wait for each thread.
const AHEAD: usize = 2;

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

/// Turns chunks of whole records into what is written.
#[derive(Debug)]
pub(super) enum Packer {
    Plain,
    Here(Press),
    Threads(Pool),
}

impl Packer {
    /// # Errors
    /// zstd's, or the host gives no thread.
    pub(super) fn start(level: u32, threads: usize) -> io::Result<Self> {
        Ok(match (level, threads) {
            (0, _) => Self::Plain,
            (_, 0 | 1) => Self::Here(Press::new(level)?),
            _ => Self::Threads(Pool::start(level, threads)?),
        })
    }

    /// Takes a chunk, and gives what is ready, in the order of the chunks.
    pub(super) fn give(&mut self, records: &[u8]) -> io::Result<Vec<Packed>> {
        match self {
            Self::Plain => {
                let length = records.len() as u64;
                let samples = samples(records);
                Ok(vec![Packed { bytes: records.to_vec(), raw: length, compressed: length, samples }])
            }
            Self::Here(press) => press.pack(records).map(|packed| vec![packed]),
            Self::Threads(pool) => pool.give(records.to_vec()),
        }
    }

    /// Waits for what was taken.
    pub(super) fn rest(&mut self) -> io::Result<Vec<Packed>> {
        match self {
            Self::Plain | Self::Here(_) => Ok(Vec::new()),
            Self::Threads(pool) => pool.take(0),
        }
    }
}

/// Compresses chunks.
pub(super) struct Press(Compressor<'static>);

impl fmt::Debug for Press {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Press")
    }
}

impl Press {
    fn new(level: u32) -> io::Result<Self> {
        Compressor::new(level.cast_signed()).map(Self)
    }

    fn pack(&mut self, records: &[u8]) -> io::Result<Packed> {
        let bytes = Vec::with_capacity(records.len() / 4);
        let mut packed = Packed { bytes, samples: samples(records), ..Packed::default() };
        self.put(records, &mut packed)?;
        Ok(packed)
    }

    fn put(&mut self, records: &[u8], to: &mut Packed) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let frame = self.0.compress(records)?;
        if frame.len() > MOST {
            // Two halves: a frame ends with a record, so that damage costs one frame.
            let (first, second) = records.split_at(middle(records));
            self.put(first, to)?;
            return self.put(second, to);
        }
        to.raw += records.len() as u64;
        to.compressed += frame.len() as u64;
        to.bytes.u32(kind::COMPRESSED);
        to.bytes.u16(0);
        to.bytes.u16((frame.len() + HEADER) as u16);
        to.bytes.extend_from_slice(&frame);
        Ok(())
    }
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

/// A chunk by its number.
type Chunk = (u64, Vec<u8>);
type Done = (u64, io::Result<Packed>);

/// Threads that compress.
#[derive(Debug)]
pub(super) struct Pool {
    chunks: Option<Sender<Chunk>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    /// Chunks that were given, and those that were taken back.
    given: u64,
    taken: u64,
    /// Those that were done before an earlier one.
    early: BTreeMap<u64, io::Result<Packed>>,
}

impl Pool {
    fn start(level: u32, threads: usize) -> io::Result<Self> {
        let (chunks, queue) = channel::<Chunk>();
        let (tell, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool =
            Self { chunks: Some(chunks), done, threads: Vec::new(), given: 0, taken: 0, early: BTreeMap::new() };
        for number in 0..threads {
            let (mut press, queue, tell) = (Press::new(level)?, Arc::clone(&queue), tell.clone());
            let work = move || {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, records)) = next else { break };
                    // Without an answer the chunks behind this one would wait for ever.
                    let packed = catch_unwind(AssertUnwindSafe(|| press.pack(&records)));
                    let packed = packed.unwrap_or_else(|_| Err(io::Error::other("a thread that compresses panicked")));
                    if tell.send((number, packed)).is_err() {
                        break;
                    }
                }
            };
            pool.threads.push(std::thread::Builder::new().name(format!("zstd-{number}")).spawn(work)?);
        }
        Ok(pool)
    }

    fn give(&mut self, records: Vec<u8>) -> io::Result<Vec<Packed>> {
        let sent = self.chunks.as_ref().is_some_and(|chunks| chunks.send((self.given, records)).is_ok());
        if !sent {
            return Err(io::Error::other("the threads that compress have ended"));
        }
        self.given += 1;
        self.take((AHEAD * self.threads.len()) as u64)
    }

    /// Takes what is done, and waits until no more than `left` are not.
    fn take(&mut self, left: u64) -> io::Result<Vec<Packed>> {
        let mut ready = Vec::new();
        loop {
            while let Some(next) = self.early.remove(&self.taken) {
                self.taken += 1;
                ready.push(next?);
            }
            let next = if self.given - self.taken > left {
                let ended = |_| io::Error::other("the threads that compress have ended");
                self.done.recv().map_err(ended)?
            } else if let Ok(next) = self.done.try_recv() {
                next
            } else {
                return Ok(ready);
            };
            self.early.insert(next.0, next.1);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.chunks = None;
        for thread in self.threads.drain(..) {
            // Its panics were answers.
            let _ = thread.join();
        }
    }
}
