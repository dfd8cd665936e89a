//! A recording with names, for pictures.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use perf_data::attr::Event;
use perf_data::calls::TooMuch;
use perf_data::history::{Gathered, MOST_KEPT, Named};
use perf_data::names::Names;
use perf_data::plain;
use perf_data::reader::{BIG_ENDIAN, Damage, Recording, VERSION_1};
use perf_data::writer::MAGIC;
use results::error::{Error, one_line};

use super::beside::{Beside, Companion, companion};
use super::spec::PIPED;
use crate::machine;
use crate::setting::parse::suggestion;

/// Begin of a file that gzip packed, and of xz's.
const PACKED: [&[u8]; 2] = [b"\x1f\x8b", b"\xfd7zXZ\0"];
/// Most KiB of memory to unpack xz: what `xz -9` takes.
const XZ_MEMORY_KIB: u32 = 66 << 10;
/// Most files of a folder that `perf record --threads` wrote.
const MOST_PARTS: u32 = 1 << 13;
/// Largest recording that is read from a pipe.
const LARGEST_PIPED: u64 = 1 << 30;
/// Largest text that is made of a recording.
pub const MOST_MADE: u64 = 512 << 20;
/// Remedy for a recording that is too much.
pub const FEWER: &str = "record for a shorter time, at a lower frequency, or without -g";

/// A recording, and the names of its addresses.
#[derive(Debug)]
pub struct Contents {
    /// Samples of the event that is shown.
    pub named: Named,
    /// The event that is shown.
    pub event: Event,
    /// The names of other events, and their samples.
    pub others: Vec<(String, usize)>,
    /// CLOCK_REALTIME, and the time of the samples' clock at the same moment, ns, if it says them.
    pub clocks: Option<(u64, u64)>,
    /// Samples of that event that were lost when it was recorded.
    pub lost: u64,
    /// They are those of all events of its ring.
    pub of_ring: bool,
    /// Times that the kernel stopped that event up to the next tick.
    pub throttled: u64,
    /// Parts that could not be read.
    pub damage: Damage,
    /// The command that recorded it.
    pub command_line: Vec<String>,
    /// The file beside it with the NMIs of its guest.
    pub nmis: Option<PathBuf>,
    /// Files beside it that are older than it and were left out: they are of an earlier recording.
    pub older: Vec<PathBuf>,
}

/// Returns whether a file begins as a recording of any kind, or packed; or a folder has perf's main file.
pub fn is_recording(path: &Path) -> bool {
    let (mut start, path) = ([0; 8], main_file(path));
    // The kernel's own files have no size, and reading one may wait.
    fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() >= start.len() as u64)
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && [MAGIC, BIG_ENDIAN, VERSION_1]
            .iter()
            .map(|known| &known[..])
            .chain(PACKED)
            .any(|known| start.starts_with(known))
}

/// Returns the file with the header: `perf record --threads` makes a folder.
fn main_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("data") } else { path.to_owned() }
}

/// Reads the files of records that `perf record --threads` has beside the main one.
fn parts(folder: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let (mut parts, mut room) = (Vec::new(), LARGEST_PIPED);
    for number in 0..MOST_PARTS {
        let path = folder.join(format!("data.{number}"));
        match plain::read(&path, room) {
            Ok(part) => {
                room -= part.len() as u64;
                parts.push(part);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::usage(format!("cannot read {}", path.display()), error.to_string(), "")),
        }
    }
    Ok(parts)
}

/// Unpacks what gzip or xz packed.
fn unpacked(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let packed = &bytes[..];
    let mut from: Box<dyn io::Read + '_> = match PACKED.map(|known| packed.starts_with(known)) {
        [true, _] => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        [_, true] => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB)),
        _ => return Ok(bytes),
    };
    let mut out = Vec::new();
    from.as_mut().take(LARGEST_PIPED + 1).read_to_end(&mut out)?;
    if out.len() as u64 > LARGEST_PIPED {
        return Err(io::Error::other(format!("unpacked it is larger than {} MiB", LARGEST_PIPED >> 20)));
    }
    Ok(out)
}

/// Reads a recording, and of its events the one called `event`, or else the first that has samples.
///
/// # Errors
/// Exit 2: it cannot be read, is none, or has no such event.
pub fn read(path: &Path, event: Option<&str>) -> Result<Contents, Error> {
    let (bytes, parts) = files(path)?;
    of_bytes(&bytes, &parts, path, event)
}

/// Reads the files of a recording: the one with the header, and those of records alone.
///
/// # Errors
/// Exit 2: one cannot be read.
pub fn files(path: &Path) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
    let parts = if path.is_dir() { parts(path)? } else { Vec::new() };
    let bytes = unpacked(machine::read(&main_file(path), "the recording")?);
    let cannot =
        |error: io::Error| Error::usage(format!("cannot read the recording {}", path.display()), error.to_string(), "");
    Ok((bytes.map_err(cannot)?, parts))
}

/// Reads a recording from stdin, where [`PIPED`] stands for its name.
///
/// # Errors
/// As [`read`].
pub fn from_stdin(event: Option<&str>) -> Result<Contents, Error> {
    let cannot = |why: String| Error::usage("cannot read the recording from stdin", why, "");
    let mut bytes = Vec::new();
    io::stdin().lock().take(LARGEST_PIPED + 1).read_to_end(&mut bytes).map_err(|error| cannot(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_PIPED {
        return Err(cannot(format!("it is larger than {} MiB", LARGEST_PIPED >> 20)));
    }
    let bytes = unpacked(bytes).map_err(|error| cannot(error.to_string()))?;
    of_bytes(&bytes, &[], Path::new(PIPED), event)
}

fn of_bytes(bytes: &[u8], parts: &[Vec<u8>], path: &Path, wanted: Option<&str>) -> Result<Contents, Error> {
    let cannot = |why: String| {
        let what = if path == Path::new(PIPED) { "from stdin".to_owned() } else { path.display().to_string() };
        Error::usage(format!("cannot read the recording {what}"), why, "")
    };
    let recording = Recording::open(bytes).map_err(|error| cannot(error.to_string()))?;
    let mut recording = recording.with_parts(parts.iter().map(Vec::as_slice).collect());
    let too_much = |bound: TooMuch| {
        let why = format!("its samples, their stacks and names take {bound} of memory");
        Error { remedy: FEWER.to_owned(), ..cannot(why) }
    };
    let gathered = Gathered::read(&mut recording, MOST_KEPT).map_err(too_much)?;
    let mut older = Vec::new();
    let [kallsyms, nmis] =
        [Companion::Kallsyms, Companion::Nmis].map(|which| match companion(which, path, &recording)? {
            Beside::Its(file) => Some(file),
            Beside::Older(file) => {
                older.push(file);
                None
            }
        });
    let Recording { mut events, clocks, command_line, .. } = recording;
    let counts = gathered.counts();
    let shown = match wanted {
        Some(wanted) => named(&events, wanted)?,
        None => counts.keys().next().copied().unwrap_or(0),
    };
    let others = events.iter().enumerate().filter(|&(at, _)| at != shown);
    let others = others.map(|(at, event)| (event.name.clone(), counts.get(&at).copied().unwrap_or(0))).collect();
    let event = if shown < events.len() { events.swap_remove(shown) } else { Event::default() };
    let ((lost, of_ring, throttled), damage) = (gathered.lost(shown), gathered.damage);
    let named = gathered.name(shown, Names::of(kallsyms.as_deref())).map_err(too_much)?;
    Ok(Contents { named, event, others, clocks, lost, of_ring, throttled, damage, command_line, nmis, older })
}

/// Returns an event's name without perf's precise modifiers: that of the same event, however exact its addresses are.
pub fn imprecise(name: &str) -> &str {
    name.trim_end_matches(['p', 'P']).strip_suffix(':').unwrap_or(name)
}

/// The number of the event of this name, or else of one that differs from it in precise modifiers alone.
fn named(events: &[Event], wanted: &str) -> Result<usize, Error> {
    let same = || events.iter().position(|event| imprecise(&event.name) == imprecise(wanted));
    events.iter().position(|event| event.name == wanted).or_else(same).ok_or_else(|| {
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).filter(|name| !name.is_empty()).collect();
        let what = format!("the recording has no event '{}'", one_line(wanted));
        match names[..] {
            [] => Error::usage(what, "it names none", "leave --event out"),
            _ => Error::usage(what, "", suggestion(wanted, &names, "")),
        }
    })
}

/// Describes the damage of a recording, for a warning.
pub fn said(damage: &Damage) -> String {
    let mut parts = Vec::new();
    if damage.unfinished {
        parts.push("its recorder was killed before it had ended it".to_owned());
    }
    if damage.missing > 0 {
        parts.push(format!("it was cut: {} bytes of records are missing", damage.missing));
    }
    if damage.records + damage.frames + damage.rest > 0 {
        parts.push(format!(
            "{} records, {} frames and {} bytes could not be used",
            damage.records, damage.frames, damage.rest
        ));
    }
    if damage.too_much {
        parts.push("more is compressed in it than is read of so many bytes".to_owned());
    }
    format!("the recording is damaged: {}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_without_its_precise_modifiers() {
        let events =
            ["cycles:P", "cpu-clock:ppp", "sched:pp_p"].map(|name| Event { name: name.to_owned(), ..Event::default() });
        let found = ["cpu-clock", "cycles:pp", "cpu-clock:ppp", "sched"].map(|wanted| named(&events, wanted).ok());
        assert_eq!(found, [Some(1), Some(0), Some(1), None]);
    }

    #[test]
    fn a_recording_is_known_by_its_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        assert!(!is_recording(&path) && !is_recording(folder.path()));
        fs::write(&path, b"PERFILE2").unwrap();
        assert!(is_recording(&path) && read(&path, None).is_err());
    }
}
