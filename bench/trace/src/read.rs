//! Reads a trace segment by segment; all that it says is checked.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use host_pmu::trace::Row;
use parquet::errors::ParquetError;
use results::error::Error;
use results::open::{self, Folder};

use crate::column::{Group, schema};
use crate::meta::{Meta, NAME};
use crate::segment::{MOST_BYTES, Segment};
use crate::write::segment;

/// Largest JSON of a trace.
const MOST_JSON: u64 = 1 << 20;
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
            if let Some(number) = name.strip_suffix(".parquet").and_then(|stem| stem.parse::<u64>().ok()) {
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
        Batches { trace: self.clone(), segment: 0, file: None, group: None, rows: 0, ended: false }
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

    fn open_segment(&self, number: u64) -> Result<Segment, Error> {
        let open = || {
            let file = self.folder.file(segment(number).as_ref(), MOST_BYTES)?;
            let file = Segment::of(open::bytes(file)?, schema()?)?;
            let own = file.number.as_deref();
            if own != Some(number.to_string().as_str()) {
                return Err(ParquetError::General(format!("it is segment {} by its own word", own.unwrap_or("none"))));
            }
            Ok(file)
        };
        open().map_err(|error| self.damaged(number, &error))
    }

    fn damaged(&self, number: u64, error: &ParquetError) -> Error {
        let what = format!("cannot read {}", self.path.join(segment(number)).display());
        Error::usage(what, error.to_string(), "record it again")
    }
}

/// The rows of a trace on their way out of its files.
struct Batches {
    trace: Trace,
    /// Segments that were opened, the last one's file with the groups that were opened, and the last one's rows.
    segment: u64,
    file: Option<(Segment, usize)>,
    group: Option<Group>,
    rows: u64,
    ended: bool,
}

impl Batches {
    fn read(&mut self) -> Result<Option<Vec<Row>>, Error> {
        let Self { trace, segment, file, group, .. } = self;
        let damaged = |segment: u64, error: ParquetError| trace.damaged(segment - 1, &error);
        loop {
            if let Some(group) = group {
                let rows = guarded(|| group.rows(trace.meta.vcpus)).map_err(|error| damaged(*segment, error))?;
                if !rows.is_empty() {
                    self.rows += rows.len() as u64;
                    return Ok(Some(rows));
                }
            }
            *group = None;
            if let Some((file, next)) = file
                && *next < file.groups()
            {
                *group = Some(guarded(|| Group::new(file, *next)).map_err(|error| damaged(*segment, error))?);
                *next += 1;
            } else if *segment < trace.segments {
                *file = Some((trace.open_segment(*segment)?, 0));
                *segment += 1;
            } else if trace.meta.finished && self.rows != trace.meta.rows {
                let what = format!("cannot read all of the trace {}", trace.path.display());
                let why = format!("its rows are not the {} that {NAME} says", trace.meta.rows);
                return Err(Error::usage(what, why, "record it again; a file of it is another trace's, or damaged"));
            } else {
                return Ok(None);
            }
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

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread reads a segment, so that a panic is the file's fault and an error like others.
pub fn is_reading() -> bool {
    READING.get()
}

/// Reads something of a segment. The library panics at some damage, such as indices of a dictionary that is not there.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    READING.set(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    read.unwrap_or_else(|_| Err(ParquetError::General("its structure is damaged".to_owned())))
}
