//! A recording as stacks with names, for pictures. Files that a recording names are read only if they are plain files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use perf_data::attr::Event;
use perf_data::reader::{Damage, Recording};
use perf_data::record::{Mapping, Mode, Record, Sample};
use perf_data::stacks::{Stacks, frames};
use perf_data::symbols::Symbols;
use perf_data::writer::MAGIC;
use results::error::{Error, one_line};

use super::beside::Companion;
use super::spec::PIPED;
use crate::machine;
use crate::parse::suggestion;

/// Largest file whose symbols are read.
const LARGEST: u64 = 512 << 20;
/// Largest recording that is read from a pipe.
const LARGEST_PIPED: u64 = 1 << 30;

/// A recording, summed up.
#[derive(Debug)]
pub struct Profile {
    /// Samples of the event that is shown by their stacks, the thread as their root.
    pub stacks: Stacks,
    /// The name of that event.
    pub event: String,
    /// Samples that were lost when it was recorded.
    pub lost: u64,
    /// What could not be read.
    pub damage: Damage,
    /// The command that recorded it.
    pub command_line: Vec<String>,
}

/// A recording, and the names of its addresses.
#[derive(Debug)]
pub struct Contents {
    /// Samples of the event that is shown.
    pub samples: Vec<Sample>,
    /// The event that is shown.
    pub event: Event,
    /// The names of other events, and their samples.
    pub others: Vec<(String, usize)>,
    /// CLOCK_REALTIME, and the time of the samples' clock at the same moment, ns, if it says them.
    pub clocks: Option<(u64, u64)>,
    /// Samples that were lost when it was recorded.
    pub lost: u64,
    /// What could not be read.
    pub damage: Damage,
    /// The command that recorded it.
    pub command_line: Vec<String>,
    threads: BTreeMap<u32, String>,
    names: Names,
}

/// Each sample with its time, for a part of a recording.
#[derive(Debug, Default)]
pub struct Timed {
    /// Each stack once, the thread as its root.
    pub stacks: Vec<Vec<String>>,
    /// Time and stack of each sample.
    pub samples: Vec<(u64, usize)>,
}

/// Whether a file begins as a recording.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    let mut start = [0; 8];
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *MAGIC
}

/// Reads a recording, and of its events the one called `event`, or else the first that has samples.
///
/// # Errors
/// Exit 2: it cannot be read, is none, or has no such event.
pub fn read(path: &Path, event: Option<&str>) -> Result<Contents, Error> {
    of_bytes(&machine::read(path, "the recording")?, path, event)
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
    of_bytes(&bytes, Path::new(PIPED), event)
}

fn of_bytes(bytes: &[u8], path: &Path, wanted: Option<&str>) -> Result<Contents, Error> {
    let cannot = |why: String| {
        let what = if path == Path::new(PIPED) { "from stdin".to_owned() } else { path.display().to_string() };
        Error::usage(format!("cannot read the recording {what}"), why, "")
    };
    let mut recording = Recording::open(bytes).map_err(|error| cannot(error.to_string()))?;
    // In a pipe events are known, and named, by records.
    let (mut samples, mut threads, mut lost) = (BTreeMap::<usize, Vec<Sample>>::new(), BTreeMap::new(), 0_u64);
    let mut names = Names::beside(path);
    let damage = recording.records(|event, record| match record {
        Record::Sample(sample) => samples.entry(event).or_default().push(sample),
        Record::Comm { tid, name, .. } => drop(threads.insert(tid, name)),
        Record::Mapping(mapping) => names.map(mapping),
        Record::Lost { count, .. } => lost = lost.saturating_add(count),
        Record::Other(_) => {}
    });
    let Recording { mut events, clocks, command_line, .. } = recording;
    let shown = match wanted {
        Some(wanted) => named(&events, wanted)?,
        None => samples.keys().next().copied().unwrap_or(0),
    };
    let of = |at: usize| samples.get(&at).map_or(0, Vec::len);
    let others = events.iter().enumerate().filter(|&(at, _)| at != shown);
    let others = others.map(|(at, event)| (event.name.clone(), of(at))).collect();
    let samples = samples.remove(&shown).unwrap_or_default();
    let event = if shown < events.len() { events.swap_remove(shown) } else { Event::default() };
    Ok(Contents { samples, event, others, clocks, lost, damage, command_line, threads, names })
}

/// The number of the event of this name.
fn named(events: &[Event], wanted: &str) -> Result<usize, Error> {
    events.iter().position(|event| event.name == wanted).ok_or_else(|| {
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).filter(|name| !name.is_empty()).collect();
        let what = format!("the recording has no event '{}'", one_line(wanted));
        match names[..] {
            [] => Error::usage(what, "it names none", "leave --event out"),
            _ => Error::usage(what, "", suggestion(wanted, &names, "")),
        }
    })
}

impl Contents {
    /// The name of an address.
    pub fn name(&mut self, mode: Mode, address: u64) -> String {
        self.names.of(mode, address)
    }

    /// The name of a thread.
    #[must_use]
    pub fn thread(&self, tid: u32) -> String {
        self.threads.get(&tid).cloned().unwrap_or_else(|| format!("thread {tid}"))
    }

    fn stack(&mut self, sample: &Sample) -> Vec<String> {
        let mut stack = vec![self.thread(sample.tid)];
        stack.extend(frames(sample, |mode, address| self.names.of(mode, address)));
        stack
    }

    /// Its samples with their times.
    #[must_use]
    pub fn timed(&mut self) -> Timed {
        let (mut timed, mut known) = (Timed::default(), BTreeMap::new());
        let samples = std::mem::take(&mut self.samples);
        for sample in &samples {
            let stack = self.stack(sample);
            let at = *known.entry(stack).or_insert_with_key(|stack| {
                timed.stacks.push(stack.clone());
                timed.stacks.len() - 1
            });
            timed.samples.push((sample.time, at));
        }
        self.samples = samples;
        timed
    }

    /// Its samples as stacks.
    #[must_use]
    pub fn profile(mut self) -> Profile {
        let mut stacks = Stacks::new();
        for sample in std::mem::take(&mut self.samples) {
            stacks.add(self.stack(&sample), 1);
        }
        Profile {
            stacks,
            event: self.event.name,
            lost: self.lost,
            damage: self.damage,
            command_line: self.command_line,
        }
    }
}

/// Names of addresses.
#[derive(Debug)]
struct Names {
    kernel: Option<Symbols>,
    mappings: Vec<Mapping>,
    /// Modules of the kernel by their first address: bytes, and the name in brackets.
    modules: BTreeMap<u64, (u64, String)>,
    /// Symbols of files that were looked for.
    files: BTreeMap<PathBuf, Option<Symbols>>,
}

impl Names {
    /// With the kernel's list that lies beside the recording.
    fn beside(path: &Path) -> Self {
        let text = plain(&Companion::Kallsyms.of(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let kernel = text.map(|text| Symbols::of_kallsyms(&text)).filter(|symbols| !symbols.is_empty());
        Self { kernel, mappings: Vec::new(), modules: BTreeMap::new(), files: BTreeMap::new() }
    }

    fn map(&mut self, mapping: Mapping) {
        match Mode::of(mapping.misc) {
            Mode::User => self.mappings.push(mapping),
            Mode::Kernel | Mode::GuestKernel if !is_kernel(&mapping.file) => {
                self.modules.insert(mapping.address, (mapping.length, module(&mapping.file)));
            }
            _ => {}
        }
    }

    /// A function of the kernel. Behind the last symbol of one module there may be another that has none.
    fn of_kernel(&self, address: u64) -> String {
        let found = self.kernel.as_ref().and_then(|symbols| symbols.find(address));
        let before = self.modules.range(..=address).next_back();
        let module = before.filter(|(start, (length, _))| address - *start < *length).map(|(_, (_, name))| name);
        match (found, module) {
            (Some(name), Some(module)) if !name.ends_with(module.as_str()) => module.clone(),
            (Some(name), _) => name.to_owned(),
            (None, Some(module)) => module.clone(),
            (None, None) => "[kernel]".to_owned(),
        }
    }

    fn of(&mut self, mode: Mode, address: u64) -> String {
        if matches!(mode, Mode::Kernel | Mode::GuestKernel) {
            return self.of_kernel(address);
        }
        let here = |mapping: &&Mapping| address.wrapping_sub(mapping.address) < mapping.length;
        let Some(mapping) = self.mappings.iter().find(here) else { return "[user]".to_owned() };
        let path = PathBuf::from(&mapping.file);
        let of_file = || plain(&path).and_then(|bytes| Symbols::of_elf(&bytes));
        let symbols = self.files.entry(path.clone()).or_insert_with(of_file);
        let name = symbols.as_ref().and_then(|symbols| symbols.find(address));
        let file = || format!("[{}]", path.file_name().unwrap_or_default().to_string_lossy());
        name.map_or_else(file, str::to_owned)
    }
}

/// Whether a mapping is the kernel's own: perf names a guest's `[guest.kernel.kallsyms]`, or `[guest.kernel.kallsyms.PID]` of several, with
/// the first symbol behind it.
fn is_kernel(file: &str) -> bool {
    ["[kernel.kallsyms", "[guest.kernel.kallsyms"].iter().any(|name| {
        let rest = file.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([']', '.']))
    })
}

/// The name of a module in brackets. perf has its file: `/lib/modules/RELEASE/kernel/NAME.ko.xz`, where the kernel's lists have `_` for `-`.
fn module(file: &str) -> String {
    if file.starts_with('[') {
        return file.to_owned();
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("[{}]", name.split('.').next().unwrap_or(name).replace('-', "_"))
}

/// The bytes of a plain file, if it can be read.
fn plain(path: &Path) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    if found.len() > LARGEST {
        return None;
    }
    fs::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_list_beside_the_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        fs::write(folder.path().join("x.data.kallsyms"), "ffffffff81000000 T start\n").unwrap();
        let mut names = Names::beside(&path);
        names.map(Mapping { misc: 2, address: 0x1000, length: 0x1000, file: "/no/such".into(), ..Mapping::default() });
        let kernel = 0xffff_ffff_8100_0010;
        assert_eq!([names.of(Mode::Kernel, kernel), names.of(Mode::GuestKernel, 5)], ["start", "[kernel]"]);
        assert_eq!([names.of(Mode::User, 0x1fff), names.of(Mode::User, 0x2000)], ["[such]", "[user]"]);
        let list = "ffffffff81000000 T start\nffffffffc0000010 t one\t[loop]\n";
        fs::write(folder.path().join("x.data.kallsyms"), list).unwrap();
        let mut names = Names::beside(&path);
        for (address, file) in [(0xffff_ffff_c000_0000, "[loop]"), (0xffff_ffff_c000_4000, "[bare]")] {
            names.map(Mapping { misc: 1, address, length: 0x1000, file: file.into(), ..Mapping::default() });
        }
        names.map(Mapping {
            misc: 1,
            address: 0xffff_ffff_8100_0000,
            length: 1 << 29,
            file: "[kernel.kallsyms]_text".into(),
            ..Mapping::default()
        });
        for (file, kernel) in [
            ("[guest.kernel.kallsyms]_text", true),
            ("[guest.kernel.kallsyms.4711]_text", true),
            ("[kallsyms]", false),
            ("[loop]", false),
            ("/lib/modules/6.1/kernel/loop.ko", false),
        ] {
            assert_eq!(is_kernel(file), kernel, "{file}");
        }
        let found = [0x10_u64, 0x4010, 0xf].map(|at| names.of(Mode::Kernel, 0xffff_ffff_c000_0000 + at));
        assert_eq!(found, ["one [loop]", "[bare]", "[loop]"]);
        assert_eq!(names.of(Mode::Kernel, kernel), "start");
        assert_eq!([module("/lib/modules/6.1/kernel/kvm-amd.ko.xz"), module("[loop]")], ["[kvm_amd]", "[loop]"]);
        assert!(!is_recording(&path) && !is_recording(folder.path()));
        fs::write(&path, b"PERFILE2").unwrap();
        assert!(is_recording(&path) && read(&path, None).is_err());
    }
}
