//! A file, whose header means at each moment what was written before.
//!
//! Behind the data that the header knows are the features. New data takes their place, so the first bytes of it are
//! held back, and those behind written, until a commit: it writes the features behind the new data, then the bytes that
//! were held back, then the header. There is hardly a moment in which the end of the process leaves records in the
//! place of features.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::attr;
use crate::bytes::Put as _;

/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header of a file.
pub(crate) const FILE_HEADER: u64 = 104;
/// Room that a full disk's features get: so much of the end of the data is given up for them.
const ROOM: u64 = 64 << 10;

/// Features by their numbers.
pub(super) type Features = [(u8, Vec<u8>)];

#[derive(Debug)]
pub(super) struct Store {
    file: File,
    engine: Engine,
    /// Ids and events, for the header.
    counts: (u64, u64),
    /// Begin of the data, and its end so far.
    data: (u64, u64),
    /// End of the data that the header knows, and the bytes of the features behind it.
    known: u64,
    tail: u64,
    /// The first bytes behind `known`, as many as the features have.
    held: Vec<u8>,
    /// The ends of the last writes, for a full disk.
    ends: Vec<End>,
    /// Bytes of data that were to be written and are not in the file.
    given_up: u64,
}

/// The end of a write.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// In the file.
    at: u64,
    /// Bytes of records up to it.
    raw: u64,
    /// Samples up to it.
    samples: u64,
}

impl Store {
    /// Begins a file with everything ahead of its data in `start`.
    pub(super) fn begin(
        file: File,
        start: &[u8],
        counts: (u64, u64),
        features: &Features,
        aio: Option<usize>,
    ) -> io::Result<Self> {
        let engine = Engine::start(&file, aio)?;
        file.write_all_at(start, 0)?;
        let end = start.len() as u64;
        let mut store = Self {
            file,
            engine,
            counts,
            data: (end, end),
            known: end,
            tail: 0,
            held: Vec::new(),
            ends: Vec::new(),
            given_up: 0,
        };
        store.commit(features)?;
        Ok(store)
    }

    /// Returns the bytes of the file, as the header knows it.
    pub(super) const fn bytes(&self) -> u64 {
        self.known + self.tail
    }

    /// Bytes of records, before their compression, that are in the file.
    pub(super) fn raw(&self) -> u64 {
        self.last().raw
    }

    /// Samples that are in the file.
    pub(super) fn samples(&self) -> u64 {
        self.last().samples
    }

    /// Bytes of data that did not come into the file, or not to stay.
    pub(super) const fn given_up(&self) -> u64 {
        self.given_up
    }

    fn last(&self) -> End {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Adds data that holds so many bytes of records, and samples.
    pub(super) fn put(&mut self, mut bytes: Vec<u8>, raw: u64, samples: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let at = self.data.1;
        let place = at - self.known;
        self.data.1 += bytes.len() as u64;
        let before = self.last();
        self.ends.push(End { at: self.data.1, raw: before.raw + raw, samples: before.samples + samples });
        let mut hold = 0;
        if place < self.tail {
            hold = ((self.tail - place) as usize).min(bytes.len());
            self.held.extend_from_slice(&bytes[..hold]);
            bytes.drain(..hold);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        match self.engine.write(&self.file, at + hold as u64, bytes) {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.roll_back(failure)),
        }
    }

    /// Ends the data with what is whole, after a failure.
    fn roll_back(&mut self, failure: Failure) -> io::Error {
        // The failure in hand is the first one, unless the thread died.
        let other = self.engine.settle().err().filter(|other| other.at < failure.at);
        let Failure { at, error } = other.unwrap_or(failure);
        let before = self.data.1;
        while self.ends.last().is_some_and(|end| end.at > at.max(self.known)) {
            self.ends.pop();
        }
        self.data.1 = self.ends.last().map_or(self.data.0, |end| end.at).max(self.known);
        self.given_up += before - self.data.1;
        self.held.truncate((self.data.1 - self.known) as usize);
        error
    }

    /// Makes the header know all data, with these features behind it.
    pub(super) fn commit(&mut self, features: &Features) -> io::Result<()> {
        if let Err(failure) = self.engine.settle() {
            return Err(self.roll_back(failure));
        }
        let (known, end) = (self.known, self.data.1);
        let mut behind = Vec::new();
        let mut at = end + 16 * features.len() as u64;
        for (_, body) in features {
            behind.u64(at);
            behind.u64(body.len() as u64);
            at += body.len() as u64;
        }
        behind.extend(features.iter().flat_map(|(_, body)| body.iter().copied()));
        let bits = features.iter().fold(0, |bits, (number, _)| bits | 1 << number);
        if end - known <= self.tail {
            // The new features begin in the place of the old ones.
            let whole = [&self.held[..], &behind].concat();
            let old = whole.len().min(self.tail as usize);
            self.file.write_all_at(&whole[old..], known + old as u64)?;
            self.file.write_all_at(&whole[..old], known)?;
        } else {
            self.file.write_all_at(&behind, end)?;
            self.file.write_all_at(&self.held, known)?;
        }
        self.held.clear();
        self.known = end;
        self.tail = at - end;
        self.head(bits)?;
        // A full disk takes no more than the last ones.
        let old = self.ends.partition_point(|before| before.at + ROOM < end).saturating_sub(1);
        self.ends.drain(..old);
        self.cut(at)
    }

    /// Makes room for the features at the end of a full disk, by giving up the last data.
    ///
    /// # Errors
    /// `features` found no room even so. The `early` ones may have.
    pub(super) fn commit_when_full(&mut self, features: &Features, early: &Features) -> io::Result<()> {
        let end = self.data.1;
        while self.data.1 > self.data.0 && end - self.data.1 < ROOM {
            self.ends.pop();
            self.data.1 = self.ends.last().map_or(self.data.0, |end| end.at);
        }
        self.given_up += end - self.data.1;
        self.truncate().and_then(|()| self.commit(features)).or_else(|error| {
            if self.commit(early).is_err() {
                self.truncate()?;
            }
            Err(error)
        })
    }

    /// Sets the length; a device such as /dev/null has none.
    fn cut(&self, length: u64) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(length) } else { Ok(()) }
    }

    /// Cuts the file at the end of its data.
    fn truncate(&mut self) -> io::Result<()> {
        if self.data.1 > self.known {
            self.held.truncate((self.data.1 - self.known) as usize);
            self.file.write_all_at(&self.held, self.known)?;
        }
        self.held.clear();
        self.known = self.data.1;
        self.tail = 0;
        self.head(0)?;
        self.cut(self.data.1)
    }

    /// Writes the header.
    fn head(&self, features: u64) -> io::Result<()> {
        let (ids, events) = self.counts;
        let mut bytes = MAGIC.to_vec();
        bytes.u64(FILE_HEADER);
        bytes.u64(attr::SIZE as u64 + 16);
        bytes.u64(FILE_HEADER + 8 * ids);
        bytes.u64((attr::SIZE as u64 + 16) * events);
        bytes.u64(self.data.0);
        bytes.u64(self.known - self.data.0);
        bytes.u64(0);
        bytes.u64(0);
        bytes.u64(features);
        bytes.resize(FILE_HEADER as usize, 0);
        self.file.write_all_at(&bytes, 0)
    }
}

/// A write that failed.
#[derive(Debug)]
struct Failure {
    /// The place in the file.
    at: u64,
    error: io::Error,
}

/// Writes to places of a file: at once, or by a thread that is a bounded number of writes behind.
#[derive(Debug)]
enum Engine {
    Serial,
    Thread(WriterThread),
}

impl Engine {
    /// # Errors
    /// Fails if the host gives no thread.
    fn start(file: &File, aio: Option<usize>) -> io::Result<Self> {
        Ok(match aio {
            None => Self::Serial,
            Some(writes) => Self::Thread(WriterThread::start(file, writes.max(1))?),
        })
    }

    /// Writes, or begins to. The failure may be that of an earlier write.
    fn write(&mut self, file: &File, at: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Serial => file.write_all_at(&bytes, at).map_err(|error| Failure { at, error }),
            Self::Thread(thread) => thread.write(at, bytes),
        }
    }

    /// Waits for all writes. The failure is the first one in the file: writes are in the file's order.
    fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Serial => Ok(()),
            Self::Thread(thread) => thread.settle(),
        }
    }
}

/// A thread that writes.
#[derive(Debug)]
struct WriterThread {
    jobs: Option<Sender<(u64, Vec<u8>)>>,
    done: Receiver<Result<(), Failure>>,
    thread: Option<JoinHandle<()>>,
    /// Most writes that it may be behind.
    bound: usize,
    in_flight: usize,
}

impl WriterThread {
    fn start(file: &File, bound: usize) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (jobs, taken) = channel::<(u64, Vec<u8>)>();
        let (tell, done) = channel();
        let work = move || {
            for (at, bytes) in taken {
                let written = file.write_all_at(&bytes, at).map_err(|error| Failure { at, error });
                if tell.send(written).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), bound, in_flight: 0 })
    }

    fn write(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        while self.in_flight >= self.bound {
            self.wait()?;
        }
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send((at, bytes)).is_ok());
        if !sent {
            return Err(Failure { at, error: io::Error::other("the writer's thread has ended") });
        }
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let Ok(written) = self.done.recv() else {
            self.in_flight = 0;
            return Err(Failure { at: 0, error: io::Error::other("the writer's thread has ended") });
        };
        self.in_flight -= 1;
        written
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let mut settled = Ok(());
        while self.in_flight > 0 {
            settled = settled.and(self.wait());
        }
        settled
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It wrote what it was given, or reported why not.
            let _ = thread.join();
        }
    }
}
