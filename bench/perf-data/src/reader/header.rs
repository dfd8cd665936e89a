//! The header of a recording.

use std::ops::Range;

use super::damage::ReadError;
use crate::attr::{Attr, Event};
use crate::bytes::Take;
use crate::feature::MOST_IDS;
use crate::writer::{FILE_HEADER, MAGIC, PIPE_HEADER};

/// Most events of a recording.
pub const MOST_EVENTS: usize = 4096;
/// Bytes of an entry of a section table.
const ENTRY: usize = 16;

/// Contents of a header.
pub(super) struct Head<'a> {
    /// Place of the records.
    pub(super) data: Range<usize>,
    /// Bytes of records that the file lacks.
    pub(super) missing: u64,
    /// The header knows no record.
    pub(super) unfinished: bool,
    pub(super) pipe: bool,
    pub(super) events: Vec<Event>,
    /// Features by number.
    pub(super) features: Vec<(u8, &'a [u8])>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Head<'_>, ReadError> {
    let mut from = Take(bytes);
    if from.bytes(8) != Some(MAGIC) {
        return Err(ReadError::NotARecording);
    }
    match from.u64() {
        Some(PIPE_HEADER) => {
            let data = PIPE_HEADER as usize..bytes.len();
            let (events, features) = (Vec::new(), Vec::new());
            Ok(Head { data, missing: 0, unfinished: false, pipe: true, events, features })
        }
        Some(FILE_HEADER) => file(bytes, from),
        _ => Err(ReadError::Header("it has neither the size of a file's nor that of a pipe's")),
    }
}

fn file<'a>(bytes: &'a [u8], mut from: Take<'a>) -> Result<Head<'a>, ReadError> {
    let mut word = || from.u64().and_then(|n| usize::try_from(n).ok()).ok_or(ReadError::Header("it is cut short"));
    let entry = word()?;
    let (attrs, attrs_size, data, data_size) = (word()?, word()?, word()?, word()?);
    let (_, _) = (word()?, word()?);
    let features = from.u64().ok_or(ReadError::Header("it is cut short"))?;
    let attrs = section(bytes, attrs, attrs_size).ok_or(ReadError::Header("its events lie outside of the file"))?;
    if entry <= ENTRY || attrs.len() / entry > MOST_EVENTS {
        return Err(ReadError::Header("its events have no size, or are too many"));
    }
    let mut events = Vec::new();
    let mut count = 0;
    for bytes_of_event in attrs.chunks_exact(entry) {
        let (attr, size) = Attr::take(bytes_of_event).ok_or(ReadError::Header("an event makes no sense"))?;
        let mut from = Take(bytes_of_event.get(size..).unwrap_or_default());
        let ids = match (from.u64(), from.u64()) {
            (Some(at), Some(size)) => section(bytes, at as usize, size as usize).unwrap_or_default(),
            _ => &[],
        };
        // Events may name the same bytes.
        count += ids.len() / 8;
        if count > MOST_IDS {
            return Err(ReadError::Header("its events have more than 65536 ids"));
        }
        let ids = ids.chunks_exact(8).filter_map(|id| Take(id).u64()).collect();
        events.push(Event { attr, name: String::new(), ids });
    }
    if data > bytes.len() {
        return Err(ReadError::Header("its records lie outside of the file"));
    }
    let table = bytes.get(data.saturating_add(data_size)..).unwrap_or_default();
    // No recorder ends a file without a record. perf says size and place of its features at the end: what is behind the header of one that was
    // killed are records. This crate's writer has features from the begin.
    let unfinished = data_size == 0;
    let has_table = Take(table).u64().is_some_and(|at| features != 0 && at <= bytes.len() as u64);
    let (end, table) = if unfinished && !has_table {
        (bytes.len(), &[][..])
    } else {
        (data.saturating_add(data_size).min(bytes.len()), table)
    };
    // A file that was cut is shorter than it says.
    let missing = data.saturating_add(data_size).saturating_sub(bytes.len()) as u64;
    let numbers = (0..64_u8).filter(|number| features >> number & 1 != 0);
    let features = numbers
        .zip(table.chunks_exact(ENTRY))
        .filter_map(|(number, place)| {
            let mut from = Take(place);
            Some((number, section(bytes, from.u64()? as usize, from.u64()? as usize)?))
        })
        .collect();
    Ok(Head { data: data..end, missing, unfinished, pipe: false, events, features })
}

fn section(bytes: &[u8], at: usize, size: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(size)?)
}

/// Reads the event of a PERF_RECORD_HEADER_ATTR.
pub(super) fn take_attr(body: &[u8]) -> Option<Event> {
    let (attr, size) = Attr::take(body)?;
    let ids = body.get(size..)?.chunks_exact(8).filter_map(|id| Take(id).u64()).collect();
    Some(Event { attr, name: String::new(), ids })
}
