//! Records: what a recording consists of behind its header.

use crate::attr::{self, Layout};
use crate::bytes::{Put as _, Take};

/// Bytes of a record's header.
pub const HEADER: usize = 8;

/// Record types of <linux/perf_event.h>, and those that perf itself writes.
pub mod kind {
    /// PERF_RECORD_LOST.
    pub const LOST: u32 = 2;
    /// PERF_RECORD_COMM.
    pub const COMM: u32 = 3;
    /// PERF_RECORD_SAMPLE.
    pub const SAMPLE: u32 = 9;
    /// PERF_RECORD_MMAP2.
    pub const MMAP2: u32 = 10;
    /// PERF_RECORD_LOST_SAMPLES.
    pub const LOST_SAMPLES: u32 = 13;
    /// PERF_RECORD_HEADER_ATTR, in a pipe.
    pub const HEADER_ATTR: u32 = 64;
    /// PERF_RECORD_HEADER_TRACING_DATA: as many bytes as it says follow it in a pipe.
    pub const TRACING_DATA: u32 = 66;
    /// PERF_RECORD_HEADER_BUILD_ID.
    pub const BUILD_ID: u32 = 67;
    /// PERF_RECORD_HEADER_FEATURE, in a pipe.
    pub const FEATURE: u32 = 80;
    /// PERF_RECORD_COMPRESSED.
    pub const COMPRESSED: u32 = 81;
    /// PERF_RECORD_COMPRESSED2, padded.
    pub const COMPRESSED2: u32 = 83;
}

/// Processor mode of a record, in the low bits of its `misc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Mode {
    /// The host's kernel.
    Kernel = 1,
    /// A user task.
    User = 2,
}

impl Mode {
    /// Returns the entry of a call chain ahead of entries of this mode (PERF_CONTEXT_*).
    pub const fn context(self) -> u64 {
        let distance: u64 = match self {
            Self::Kernel => 128,
            Self::User => 512,
        };
        distance.wrapping_neg()
    }
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// `misc` of the record: its [`Mode`].
    pub misc: u16,
    /// Id of the event; 0 if there is none.
    pub id: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time, ns.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Period.
    pub period: u64,
    /// Call chain with its contexts, innermost first.
    pub chain: Vec<u64>,
    /// Bytes of a tracepoint, in which its fields lie.
    pub raw: Vec<u8>,
}

/// A mapping of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// `misc` of the record.
    pub misc: u16,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file, or a name in brackets.
    pub file: String,
    /// Its build-id, at most 20 bytes; empty if it is not known.
    pub build_id: Vec<u8>,
}

/// A record. Names and mappings are written; of those that are read each is [`Record::Other`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The name of a thread.
    Comm {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Its name.
        name: String,
    },
    /// A mapping.
    Mapping(Mapping),
    /// A sample.
    Sample(Sample),
    /// Records of an event that found no room.
    Lost {
        /// Id of the event.
        id: u64,
        /// Number of samples.
        count: u64,
    },
    /// Samples of an event that were lost, by the event's own count, which may hold those of [`Record::Lost`].
    LostSamples(u64),
    /// Anything else, of this type.
    Other(u32),
}

/// In `misc` of a mapping: device and inode are a build-id (PERF_RECORD_MISC_MMAP_BUILD_ID), for perf 5.12 and later.
const HAS_BUILD_ID: u16 = 1 << 14;
/// In `misc` of lost samples (PERF_RECORD_MISC_LOST_SAMPLES_BPF).
const BY_FILTER: u16 = 1 << 15;
/// Most bytes of a build-id.
pub const MOST_OF_BUILD_ID: usize = 20;

/// PROT_READ | PROT_EXEC, and MAP_PRIVATE.
const EXECUTABLE: (u32, u32) = (5, 2);

/// Appends a record, with a call chain of samples if all have one. A chain that does not fit a record is cut at its end.
pub(crate) fn put(to: &mut Vec<u8>, record: &Record, chains: bool) {
    let start = to.len();
    to.u64(0);
    // What identifies a record other than a sample: process, thread, and event.
    let (type_, misc, stamp) = match record {
        Record::Comm { pid, tid, name } => {
            to.u32(*pid);
            to.u32(*tid);
            to.text(cut(name, 256), 8);
            (kind::COMM, 0, Some((*pid, *tid, 1)))
        }
        Record::Mapping(mapping) => {
            to.u32(mapping.pid);
            to.u32(mapping.tid);
            to.u64(mapping.address);
            to.u64(mapping.length);
            to.u64(mapping.offset);
            // Device and inode, which are not known, or a build-id behind its length.
            let id = &mapping.build_id[..mapping.build_id.len().min(MOST_OF_BUILD_ID)];
            to.u32(id.len() as u32);
            to.extend_from_slice(id);
            to.resize(to.len() + MOST_OF_BUILD_ID - id.len(), 0);
            to.u32(EXECUTABLE.0);
            to.u32(EXECUTABLE.1);
            to.text(cut(&mapping.file, 4095), 8);
            let has_id = if id.is_empty() { 0 } else { HAS_BUILD_ID };
            (kind::MMAP2, mapping.misc | has_id, Some((0, 0, 1)))
        }
        Record::Sample(sample) => {
            to.u64(sample.id);
            to.u64(sample.ip);
            to.u32(sample.pid);
            to.u32(sample.tid);
            to.u64(sample.time);
            to.u32(sample.cpu);
            to.u32(0);
            to.u64(sample.period);
            if chains {
                let chain = &sample.chain[..sample.chain.len().min(MOST_ENTRIES)];
                to.u64(chain.len() as u64);
                for &entry in chain {
                    to.u64(entry);
                }
            }
            (kind::SAMPLE, sample.misc, None)
        }
        Record::Lost { id, count } => {
            to.u64(*id);
            to.u64(*count);
            (kind::LOST, 0, Some((0, 0, *id)))
        }
        // These are only read, never written.
        Record::LostSamples(_) | Record::Other(_) => return to.truncate(start),
    };
    if let Some((pid, tid, id)) = stamp {
        to.u32(pid);
        to.u32(tid);
        // Time and CPU, which are not known.
        to.u64(0);
        to.u64(0);
        to.u64(id);
    }
    let size = (to.len() - start) as u16;
    to[start..start + 4].copy_from_slice(&type_.to_le_bytes());
    to[start + 4..start + 6].copy_from_slice(&misc.to_le_bytes());
    to[start + 6..start + 8].copy_from_slice(&size.to_le_bytes());
}

/// Most entries of a call chain, with its contexts, that are written.
const MOST_ENTRIES: usize = 1024;

/// Returns the first `length` bytes of `text`, or a few less.
fn cut(text: &str, length: usize) -> &str {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Reads a record's body by the fields that its event has. `None`: it is too short for them.
pub(crate) fn take(type_: u32, misc: u16, body: &[u8], layout: Layout) -> Option<Record> {
    let mut from = Take(body);
    Some(match type_ {
        kind::SAMPLE => Record::Sample(take_sample(misc, from, layout)?),
        kind::LOST => Record::Lost { id: from.u64()?, count: from.u64()? },
        // A filter of the user's dropped the others.
        kind::LOST_SAMPLES if misc & BY_FILTER == 0 => Record::LostSamples(from.u64()?),
        other => Record::Other(other),
    })
}

/// Reads the fields up to the raw bytes of a tracepoint.
fn take_sample(misc: u16, mut from: Take<'_>, layout: Layout) -> Option<Sample> {
    let has = |field| layout.has(field);
    let mut sample = Sample { misc, ..Sample::default() };
    if has(attr::IDENTIFIER) {
        sample.id = from.u64()?;
    }
    if has(attr::IP) {
        sample.ip = from.u64()?;
    }
    if has(attr::TID) {
        (sample.pid, sample.tid) = (from.u32()?, from.u32()?);
    }
    if has(attr::TIME) {
        sample.time = from.u64()?;
    }
    if has(attr::ADDR) {
        from.u64()?;
    }
    if has(attr::ID) {
        sample.id = from.u64()?;
    }
    if has(attr::STREAM_ID) {
        from.u64()?;
    }
    if has(attr::CPU) {
        (sample.cpu, _) = (from.u32()?, from.u32()?);
    }
    if has(attr::PERIOD) {
        sample.period = from.u64()?;
    }
    if has(attr::CALLCHAIN) {
        let entries = usize::try_from(from.u64()?).ok()?;
        let mut bytes = Take(from.bytes(entries.checked_mul(8)?)?);
        sample.chain = (0..entries).map_while(|_| bytes.u64()).collect();
    }
    if has(attr::RAW) {
        let size = from.u32()? as usize;
        sample.raw = from.bytes(size)?.to_vec();
    }
    Some(sample)
}
