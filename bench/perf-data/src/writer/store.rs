//! A file, whose header means at each moment what was written before.
//!
//! Behind the data that the header knows are the features, and room for those that are known at the end. New data takes their place, so
//! it is held back until a commit: that writes what is behind the old features first, then what is in their place, then the
//! header. There is hardly a moment in which the end of the process leaves records in the place of features.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::frames::Packed;
use crate::attr;
use crate::bytes::Put as _;

/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header of a file.
pub(crate) const FILE_HEADER: u64 = 104;
/// Room behind the features of a commit, which those of the end find on a full disk.
const ROOM: usize = 64 << 10;
/// Bytes that are held back at the most.
const MOST_HELD: usize = 4 << 20;

/// Features with their numbers.
pub(super) type Features = Vec<(u8, Vec<u8>)>;

#[derive(Debug)]
pub(super) struct Store {
    file: File,
    /// Events, each of one id.
    events: u64,
    /// Begin of the data, its end that the header knows, and the bytes of features and room behind that.
    data: u64,
    end: u64,
    tail: u64,
    held: Vec<Packed>,
    /// The features that are known at the begin.
    early: Features,
    /// Bytes of records before their compression, and samples, that are in the file.
    pub(super) raw: u64,
    pub(super) samples: u64,
    /// Bytes of data that were to be written and are not in the file.
    pub(super) given_up: u64,
}

impl Store {
    /// Begins a file with everything ahead of its data in `start`.
    pub(super) fn begin(file: File, start: &[u8], events: u64, early: Features) -> io::Result<Self> {
        file.write_all_at(start, 0)?;
        let (data, held) = (start.len() as u64, Vec::new());
        let mut store = Self { file, events, data, end: data, tail: 0, held, early, raw: 0, samples: 0, given_up: 0 };
        store.commit()?;
        Ok(store)
    }

    /// Returns the bytes of the file, as the header knows it.
    pub(super) const fn bytes(&self) -> u64 {
        self.end + self.tail
    }

    /// Adds data.
    pub(super) fn put(&mut self, packed: Packed) -> io::Result<()> {
        self.held.push(packed);
        let held: usize = self.held.iter().map(|packed| packed.bytes.len()).sum();
        if held < MOST_HELD { Ok(()) } else { self.commit() }
    }

    /// Makes the header know all data.
    ///
    /// # Errors
    /// The file's. It has as much of the data as found room, and features.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        let early = std::mem::take(&mut self.early);
        let kept = self.keep(&early, ROOM);
        self.early = early;
        kept
    }

    /// Ends the file with these features.
    ///
    /// # Errors
    /// As of [`Self::commit`].
    pub(super) fn finish(&mut self, features: &Features) -> io::Result<()> {
        self.keep(features, 0)
    }

    /// Writes as much of the data as there is room for.
    fn keep(&mut self, features: &Features, room: usize) -> io::Result<()> {
        let mut kept = Ok(());
        while let Err(error) = self.write(features, room) {
            kept = kept.and(Err(error));
            let Some(last) = self.held.pop() else { break };
            self.given_up += last.bytes.len() as u64;
        }
        kept
    }

    /// Writes all data and the features behind it; where there is no room, nothing.
    fn write(&mut self, features: &Features, room: usize) -> io::Result<()> {
        let mut whole = self.held.iter().flat_map(|packed| &packed.bytes).copied().collect::<Vec<u8>>();
        let end = self.end + whole.len() as u64;
        let mut at = end + 16 * features.len() as u64;
        for (_, body) in features {
            whole.u64(at);
            whole.u64(body.len() as u64);
            at += body.len() as u64;
        }
        whole.extend(features.iter().flat_map(|(_, body)| body));
        whole.resize(whole.len() + room, 0);
        let old = whole.len().min(self.tail as usize);
        if let Err(error) = self.file.write_all_at(&whole[old..], self.end + old as u64) {
            self.cut(self.bytes())?;
            return Err(error);
        }
        self.file.write_all_at(&whole[..old], self.end)?;
        self.tail = self.end + whole.len() as u64 - end;
        self.end = end;
        for packed in self.held.drain(..) {
            self.raw += packed.raw;
            self.samples += packed.samples;
        }
        self.head(features.iter().fold(0, |bits, (number, _)| bits | 1 << number))?;
        self.cut(self.bytes())
    }

    /// Sets the length; a device such as /dev/null has none.
    fn cut(&self, length: u64) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(length) } else { Ok(()) }
    }

    /// Writes the header.
    fn head(&self, features: u64) -> io::Result<()> {
        let entry = attr::SIZE as u64 + 16;
        let mut bytes = MAGIC.to_vec();
        let attrs = (FILE_HEADER + 8 * self.events, entry * self.events);
        for word in [FILE_HEADER, entry, attrs.0, attrs.1, self.data, self.end - self.data, 0, 0, features] {
            bytes.u64(word);
        }
        bytes.resize(FILE_HEADER as usize, 0);
        self.file.write_all_at(&bytes, 0)
    }
}

/// A file that a thread writes, some writes behind.
#[derive(Debug)]
pub(super) struct Behind {
    /// Data, or `None` for a commit.
    jobs: Option<SyncSender<Option<Packed>>>,
    thread: Option<JoinHandle<(Store, io::Result<()>)>>,
}

impl Behind {
    /// # Errors
    /// The host gives no thread.
    pub(super) fn start(mut store: Store, writes: usize) -> io::Result<Self> {
        let (jobs, taken) = sync_channel::<Option<Packed>>(writes);
        let work = move || {
            let done = taken.into_iter().try_for_each(|job| match job {
                Some(packed) => store.put(packed),
                None => store.commit(),
            });
            (store, done)
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands data over, or has it committed; `false`: something failed before, which [`Self::end`] returns.
    pub(super) fn send(&self, job: Option<Packed>) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Waits for all writes; returns the file with the first failure.
    pub(super) fn end(&mut self) -> Option<(Store, io::Result<()>)> {
        self.jobs = None;
        self.thread.take()?.join().ok()
    }
}
