//! Reads a trace segment by segment; all that it says is checked.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use host_pmu::trace::Row;
use results::error::Error;
use results::open::{self, Folder};

use crate::lines;
use crate::meta::{Meta, NAME};
use crate::write::{SUFFIX, segment};

/// Largest JSON of a trace.
const MOST_JSON: u64 = 1 << 20;
/// Largest segment: all its lines, hardly packed.
const MOST_BYTES: u64 = 32 << 20;

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
        let number = |name: &OsString| name.to_str()?.strip_suffix(SUFFIX)?.parse::<u64>().ok();
        let numbers: Vec<_> = names.iter().filter_map(number).collect();
        let (there, behind) = (numbers.len() as u64, numbers.iter().max().map_or(0, |last| last.saturating_add(1)));
        let needed = if meta.finished { meta.segments } else { behind };
        if there != needed || behind != needed {
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

    /// Reads all rows in their order, those of a vCPU in a segment at a time. Each has its time. Nothing is behind an error.
    pub fn batches(&self) -> impl Iterator<Item = Result<Vec<Row>, Error>> + use<> {
        let (trace, mut ends, mut count, mut ended) = (self.clone(), vec![0; self.meta.vcpus], 0, false);
        let batches = (0..=self.segments).flat_map(move |number| match trace.segment(number, &mut ends, &mut count) {
            Ok(batches) => batches.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(trace.damaged(number, &error))],
        });
        batches.map_while(move |batch| (!std::mem::replace(&mut ended, batch.is_err())).then_some(batch)).fuse()
    }

    /// Reads a segment, or behind the last one checks that it was. `ends`: the time of each vCPU's last row.
    fn segment(&self, number: u64, ends: &mut [u64], count: &mut u64) -> io::Result<Vec<Vec<Row>>> {
        if number == self.segments {
            let is_whole = !self.meta.finished || *count == self.meta.rows;
            let why = || format!("it says {} rows, and {count} are there", self.meta.rows);
            return if is_whole { Ok(Vec::new()) } else { Err(io::Error::other(why())) };
        }
        let batches = lines::read(self.folder.file(segment(number).as_ref(), MOST_BYTES)?, ends.len())?;
        for rows in &batches {
            if let [first, .., last] | [first @ last] = &rows[..] {
                let end = &mut ends[usize::from(first.vcpu)];
                if first.at < *end {
                    return Err(io::Error::other("its rows are older than those of the segment before"));
                }
                *end = last.at;
            }
            *count += rows.len() as u64;
        }
        Ok(batches)
    }

    fn damaged(&self, number: u64, error: &io::Error) -> Error {
        let name = if number == self.segments { NAME.to_owned() } else { segment(number) };
        let what = format!("cannot read {}", self.path.join(name).display());
        Error::usage(what, error.to_string(), "record it again")
    }
}
