//! Writes a trace: rows are gathered, and each full segment gets its name once it is whole.

use std::io::{self, BufWriter, IntoInnerError, Write as _};
use std::path::{Path, PathBuf};

use arch_pmu::spec::{CounterId, MAX_COUNTERS};
use host_pmu::trace::{Kind, Row, counter};
use results::error::Error;
use results::open::Folder;
use results::write::Target;
use zstd::stream::write::Encoder;

use crate::lines::{self, COLUMNS};
use crate::meta::{DUCKDB, FORM, Meta, NAME, SEGMENT};

/// A trace that is being written.
#[derive(Debug)]
pub struct Writer {
    folder: Folder,
    path: PathBuf,
    meta: Meta,
    /// The rows of the segment to come, by vCPU.
    rows: Vec<Vec<Row>>,
    gathered: usize,
    /// Time of each vCPU's last row.
    last: Vec<u64>,
}

/// zstd's level: rings would be full before a segment is compressed further.
const LEVEL: i32 = 3;

/// Puts together counts of a counter between which the guest does not look at it, and leaves out those that it overwrites: the counter has
/// the same value wherever the guest, or an overflow, could tell.
pub(crate) fn put_together(rows: &mut Vec<Row>) {
    let mut pending: [Option<usize>; MAX_COUNTERS] = [None; MAX_COUNTERS];
    let mut gone = vec![false; rows.len()];
    // Counts that follow a read were handed over by it, and are in its value.
    let mut read = None;
    for at in 0..rows.len() {
        let Row { kind, register, .. } = rows[at];
        if kind.is_count() {
            let Some(pending) = pending.get_mut(register as usize) else { continue };
            if let Some(before) = pending.take() {
                rows[at].value = rows[at].value.saturating_add(rows[before].value);
                gone[before] = true;
            }
            *pending = (kind == Kind::Count && read != Some(register as usize)).then_some(at);
            continue;
        }
        read = counter(kind, register).filter(|_| kind != Kind::Write).map(CounterId::index);
        if kind == Kind::Lost {
            // The guest may have looked at any of them here.
            pending = [None; MAX_COUNTERS];
        } else if let Some(counter) = counter(kind, register) {
            // A write may find an overflow before it takes effect.
            let found = rows[at + 1..].iter().take_while(|row| row.kind == Kind::Overflow);
            let overflows = kind == Kind::Write && found.clone().any(|row| row.register as usize == counter.index());
            if !overflows && let Some(before) = pending[counter.index()].take() {
                gone[before] = kind == Kind::Write;
            }
        }
    }
    let mut gone = gone.into_iter();
    rows.retain(|_| !gone.next().unwrap_or(false));
}

/// The end of a segment's name.
pub(crate) const SUFFIX: &str = ".csv.zst";

/// Returns the name of a segment.
pub(crate) fn segment(number: u64) -> String {
    format!("{number:06}{SUFFIX}")
}

impl Writer {
    /// Begins a trace in a new folder.
    ///
    /// # Errors
    /// Exit 2: the folder is there, or cannot be made.
    pub fn begin(folder: &Path, meta: Meta) -> Result<Self, Error> {
        let what = format!("cannot write a trace to {}", folder.display());
        let path = folder.to_owned();
        let folder = Folder::make_new(folder)
            .map_err(|error| Error::output(what, &error, "give the name of a new folder with --output"))?;
        let columns = COLUMNS.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())).collect();
        let tool = format!("vpmu {}", env!("CARGO_PKG_VERSION"));
        let meta = Meta { form: FORM.to_owned(), tool, columns, duckdb: DUCKDB.to_owned(), ..meta };
        let meta = Meta { finished: false, segments: 0, rows: 0, accesses: 0, ..meta };
        let (rows, last) = (vec![Vec::new(); meta.vcpus], vec![0; meta.vcpus]);
        let writer = Self { folder, path, meta, rows, gathered: 0, last };
        writer.describe()?;
        Ok(writer)
    }

    /// Returns what the JSON will say.
    pub const fn meta(&mut self) -> &mut Meta {
        &mut self.meta
    }

    /// Adds a row, whose time is in ns. A clock that goes back stands still.
    ///
    /// # Errors
    /// As of [`Error::output`]: a segment cannot be written; those before it are whole.
    pub fn add(&mut self, row: Row) -> Result<(), Error> {
        let vcpu = usize::from(row.vcpu);
        let (Some(rows), Some(last)) = (self.rows.get_mut(vcpu), self.last.get_mut(vcpu)) else {
            return Err(Error::usage("cannot write a trace", format!("it has no vCPU {vcpu}"), ""));
        };
        *last = row.at.max(*last);
        rows.push(Row { at: *last, ..row });
        self.gathered += 1;
        if self.gathered >= SEGMENT { self.flush() } else { Ok(()) }
    }

    /// Writes all that was gathered.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.gathered == 0 {
            return Ok(());
        }
        self.rows.iter_mut().for_each(put_together);
        self.write().map_err(|error| self.cannot(&error))?;
        for rows in &mut self.rows {
            self.meta.rows += rows.len() as u64;
            self.meta.accesses += rows.iter().filter(|row| row.kind.is_access()).count() as u64;
            rows.clear();
        }
        (self.gathered, self.meta.segments) = (0, self.meta.segments + 1);
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let mut pending = Target::at(&self.folder, segment(self.meta.segments).as_ref())?.begin()?;
        let mut packed = Encoder::new(&mut pending, LEVEL)?;
        packed.include_checksum(true)?;
        let mut file = BufWriter::new(packed);
        lines::write(self.rows.iter().map(Vec::as_slice), &mut file)?;
        file.into_inner().map_err(IntoInnerError::into_error)?.finish()?;
        pending.flush()?;
        pending.finish()?;
        Ok(())
    }

    fn describe(&self) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(&self.meta).unwrap_or_default() + "\n";
        let written = Target::at(&self.folder, NAME.as_ref()).and_then(|target| target.replace(text.as_bytes()));
        written.map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &io::Error) -> Error {
        let what = format!("the trace {} ends early", self.path.display());
        let kept = format!("its {} segments so far are whole; make room, and record again", self.meta.segments);
        Error::output(what, error, kept)
    }

    /// Keeps what there is of a guest that failed, as a trace without its end; of one that did not begin nothing.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn abandon(mut self) -> Result<(), Error> {
        self.flush()?;
        if self.meta.segments == 0 {
            let _ = std::fs::remove_file(self.folder.by_descriptor().join(NAME));
            let _ = std::fs::remove_dir(self.path);
        }
        Ok(())
    }

    /// Writes what is left, and says that the trace is finished.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn finish(mut self) -> Result<Meta, Error> {
        self.flush()?;
        self.meta.finished = true;
        self.describe()?;
        Ok(self.meta)
    }
}
