//! Reads a trace segment by segment; all that it says is checked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use host_pmu::trace::Row;
use results::error::Error;
use results::open::{self, Bounded, Folder};

use crate::lines::Lines;
use crate::meta::{Meta, NAME};
use crate::write::{SUFFIX, segment};

/// Largest JSON of a trace.
const MOST_JSON: u64 = 1 << 20;
/// Largest segment: all its lines, hardly packed.
const MOST_BYTES: u64 = 32 << 20;
/// Most batches that wait for those who take them.
const AHEAD: usize = 16;

/// A trace in a folder.
#[derive(Clone, Debug)]
pub struct Trace {
    folder: Folder,
    path: PathBuf,
    /// The facts that its JSON says.
    pub meta: Meta,
    /// Segments that are there, without a gap.
    pub segments: u64,
}

impl Trace {
    /// Opens a trace. One that was not finished has the segments that are there.
    ///
    /// # Errors
    /// Exit 2: it is none, a segment is missing, or it is of another form.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let place = folder.display();
        let refuse = |why: String| {
            Error::usage(format!("cannot read the trace {place}"), why, "give a folder of vpmu trace record")
        };
        let path = folder.to_owned();
        let folder = Folder::open(folder).map_err(|error| refuse(error.to_string()))?;
        let text = folder.file(Path::new(NAME), MOST_JSON).and_then(open::text);
        let meta = Meta::parse(&text.map_err(|error| refuse(format!("{NAME}: {error}")))?, &place.to_string())?;
        let names = folder.names().map_err(|error| refuse(error.to_string()))?;
        let mut there = 0;
        let mut last = None;
        for name in names.into_iter().filter_map(|name| name.into_string().ok()) {
            if let Some(number) = name.strip_suffix(SUFFIX).and_then(|stem| stem.parse::<u64>().ok()) {
                (there, last) = (there + 1, last.max(Some(number)));
            }
        }
        let needed = if meta.finished { meta.segments } else { last.map_or(0, |last| last.saturating_add(1)) };
        if there != needed || last.is_some_and(|last| last >= needed) {
            return Err(refuse(format!("it has {there} of its {needed} segments")));
        }
        Ok(Self { folder, path, meta, segments: needed })
    }

    /// Returns the name of its folder.
    pub fn name(&self) -> String {
        let folder = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the bytes of its segments.
    pub fn bytes(&self) -> u64 {
        let size = |number| self.folder.file(segment(number).as_ref(), MOST_BYTES).map_or(0, |file| file.limit());
        (0..self.segments).map(size).sum()
    }

    /// Reads all rows, a vCPU's of a segment after another's, some thousand at a time, in their order. Each has its time. An error ends it.
    pub fn batches(&self) -> impl Iterator<Item = Result<Vec<Row>, Error>> + use<> {
        let ends = vec![0; self.meta.vcpus];
        Batches { trace: self.clone(), segment: 0, lines: None, ends, rows: 0, ended: false }
    }

    /// Reads them on a thread of its own, beside what `take` does with them.
    ///
    /// # Errors
    /// The error of a batch, which is the last one.
    pub fn read_beside(&self, mut take: impl FnMut(&[Row])) -> Result<(), Error> {
        std::thread::scope(|scope| {
            let (send, batches) = sync_channel(AHEAD);
            // It ends as soon as nobody takes them any more.
            scope.spawn(move || self.batches().try_for_each(|batch| send.send(batch)));
            batches.into_iter().try_for_each(|batch| batch.map(|rows| take(&rows)))
        })
    }

    fn damaged(&self, number: u64, error: &io::Error) -> Error {
        let what = format!("cannot read {}", self.path.join(segment(number)).display());
        Error::usage(what, error.to_string(), "record it again")
    }
}

/// The rows of a trace on their way out of its files.
struct Batches {
    trace: Trace,
    /// Segments that were opened, and what is left of the last one.
    segment: u64,
    lines: Option<Lines<Bounded>>,
    /// Time of each vCPU's last row.
    ends: Vec<u64>,
    rows: u64,
    ended: bool,
}

impl Batches {
    /// Reads the next rows of the segment that is open, and opens the first one.
    fn next_rows(&mut self) -> io::Result<Vec<Row>> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => {
                let file = self.trace.folder.file(segment(self.segment - 1).as_ref(), MOST_BYTES)?;
                none.insert(Lines::new(file)?)
            }
        };
        let rows = lines.rows(self.ends.len())?;
        if let [first, .., last] | [first @ last] = &rows[..] {
            let end = &mut self.ends[usize::from(first.vcpu)];
            if first.at < *end {
                return Err(io::Error::other("its rows are older than those of the segment before"));
            }
            *end = last.at;
        }
        Ok(rows)
    }

    fn read(&mut self) -> Result<Option<Vec<Row>>, Error> {
        loop {
            if self.segment > 0 {
                let rows = self.next_rows().map_err(|error| self.trace.damaged(self.segment - 1, &error))?;
                if !rows.is_empty() {
                    self.rows += rows.len() as u64;
                    return Ok(Some(rows));
                }
            }
            let Trace { meta, path, segments, .. } = &self.trace;
            if self.segment == *segments {
                if !meta.finished || self.rows == meta.rows {
                    return Ok(None);
                }
                let what = format!("cannot read all of the trace {}", path.display());
                let why = format!("its rows are not the {} that {NAME} says", meta.rows);
                return Err(Error::usage(what, why, "record it again; a file of it is another trace's, or damaged"));
            }
            (self.segment, self.lines) = (self.segment + 1, None);
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Vec<Row>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = if self.ended { None } else { self.read().transpose() };
        self.ended |= !matches!(read, Some(Ok(_)));
        read
    }
}
