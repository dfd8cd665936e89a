//! Features: what a recording says about its host, its command and its events.

use crate::attr::{self, Event};
use crate::bytes::{Put as _, Take};
use crate::record::{HEADER, kind};

/// Number of HEADER_TRACING_DATA.
pub(crate) const TRACING_DATA: u8 = 1;
/// Number of HEADER_BUILD_ID.
pub(crate) const BUILD_ID: u8 = 2;
/// Number of HEADER_OSRELEASE.
pub(crate) const OS_RELEASE: u8 = 4;
/// Number of HEADER_ARCH.
pub(crate) const ARCH: u8 = 6;
/// Number of HEADER_CPUDESC.
pub(crate) const CPU: u8 = 8;
/// Number of HEADER_CMDLINE.
pub(crate) const CMDLINE: u8 = 11;
/// Number of HEADER_EVENT_DESC.
pub(crate) const EVENT_DESC: u8 = 12;
/// Number of HEADER_SAMPLE_TIME.
pub(crate) const SAMPLE_TIME: u8 = 21;
/// Number of HEADER_COMPRESSED.
pub(crate) const COMPRESSED: u8 = 27;
/// HEADER_CLOCK_DATA.
pub(crate) const CLOCK_DATA: u8 = 29;

/// A build-id, and the file or kernel that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildId {
    /// `misc` of its record: the [mode](crate::record::Mode).
    pub misc: u16,
    /// Process.
    pub pid: i32,
    /// The id, at most 20 bytes.
    pub id: Vec<u8>,
    /// The file's name, or a name in brackets.
    pub file: String,
}

/// The length of the id is in its 21st byte (PERF_RECORD_MISC_BUILD_ID_SIZE).
const HAS_SIZE: u16 = 1 << 15;
/// Bytes of an id in a record.
const ID: usize = 20;

impl BuildId {
    /// Appends the record.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.u32(kind::BUILD_ID);
        to.u16(self.misc | HAS_SIZE);
        to.u16(0);
        to.u32(self.pid.cast_unsigned());
        let length = self.id.len().min(ID);
        to.extend_from_slice(&self.id[..length]);
        to.resize(start + HEADER + 4 + ID, 0);
        to.push(length as u8);
        to.resize(start + HEADER + 4 + 24, 0);
        to.text(&self.file, 64);
        let unpadded = to.len() - start;
        to.resize(start + unpadded.next_multiple_of(8), 0);
        let size = (to.len() - start) as u16;
        to[start + 6..start + 8].copy_from_slice(&size.to_le_bytes());
    }
}

/// Everything that features say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Name of the host.
    pub hostname: String,
    /// Release of its kernel.
    pub os_release: String,
    /// Version of this tool.
    pub version: String,
    /// Its processor.
    pub cpu: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// CPUs, which samples name.
    pub cpus: u32,
    /// Times of the first and last sample.
    pub times: (u64, u64),
    /// CLOCK_REALTIME, and CLOCK_MONOTONIC at the same time, ns.
    pub clocks: (u64, u64),
    /// zstd's level, 0 without compression, and uncompressed bytes per compressed byte.
    pub compression: (u32, f64),
    /// Build-ids.
    pub build_ids: Vec<BuildId>,
}

/// perf pads the text of features to this.
const TEXT: usize = 64;

fn string(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.text(text, TEXT);
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Most bytes of records that are compressed together.
pub(crate) const CHUNK: usize = 128 << 10;
const MOST: usize = CHUNK + (64 << 10);

/// Returns the features with their numbers, ascending.
#[expect(clippy::cast_sign_loss, reason = "a ratio of sizes is not negative")]
pub(crate) fn all(facts: &Facts, events: &[Event], chains: bool) -> Vec<(u8, Vec<u8>)> {
    let mut features = Vec::new();
    if !facts.build_ids.is_empty() {
        let mut bytes = Vec::new();
        facts.build_ids.iter().for_each(|id| id.put(&mut bytes));
        features.push((BUILD_ID, bytes));
    }
    for (number, text) in
        [(3, facts.hostname.as_str()), (4, &facts.os_release), (5, &facts.version), (ARCH, std::env::consts::ARCH)]
    {
        features.push((number, string(text)));
    }
    features.push((7, [facts.cpus.to_le_bytes(); 2].concat()));
    features.push((8, string(&facts.cpu)));
    let mut command = Vec::new();
    command.u32(facts.command_line.len() as u32);
    facts.command_line.iter().for_each(|word| command.extend(string(word)));
    features.push((CMDLINE, command));
    features.push((EVENT_DESC, description(events, chains)));
    features.push((SAMPLE_TIME, [facts.times.0, facts.times.1].map(u64::to_le_bytes).concat()));
    // HEADER_CLOCKID: the clock's resolution, ns.
    features.push((23, 1_u64.to_le_bytes().to_vec()));
    if let (level @ 1.., ratio) = facts.compression {
        // Version 1, zstd, and most bytes of what one record is decompressed to: a chunk, and a record beyond it.
        let fields = [1, 1, level, ratio.round() as u32, MOST as u32];
        features.push((COMPRESSED, fields.map(u32::to_le_bytes).concat()));
    }
    // HEADER_CLOCK_DATA: version 1, CLOCK_MONOTONIC.
    let clocks = [1 << 32 | 1, facts.clocks.0, facts.clocks.1];
    features.push((CLOCK_DATA, clocks.map(u64::to_le_bytes).concat()));
    features
}

fn description(events: &[Event], chains: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.u32(events.len() as u32);
    bytes.u32(attr::SIZE as u32);
    for event in events {
        event.put(&mut bytes, chains);
        // The number of its ids.
        bytes.u32(1);
        bytes.extend(string(&event.name));
        bytes.u64(event.id);
    }
    bytes
}

/// Reads the text of a feature.
pub(crate) fn take_text(bytes: &[u8]) -> Option<String> {
    let mut from = Take(bytes);
    let length = from.u32()? as usize;
    Some(Take(from.bytes(length)?).text())
}
