//! A recording as stacks with names, for pictures. Files that a recording names are read only if they are plain files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use perf_data::reader::{Damage, Recording};
use perf_data::record::{Mapping, Mode, Record, Sample};
use perf_data::stacks::{Stacks, frames};
use perf_data::symbols::Symbols;
use perf_data::writer::MAGIC;
use results::error::Error;

use crate::machine;

/// Largest file whose symbols are read.
const LARGEST: u64 = 512 << 20;

/// A recording, summed up.
#[derive(Debug)]
pub struct Profile {
    /// Samples of the first event by their stacks, the thread as their root.
    pub stacks: Stacks,
    /// The events' names; the first is the one that is shown.
    pub events: Vec<String>,
    /// Samples that were lost when it was recorded.
    pub lost: u64,
    /// What could not be read.
    pub damage: Damage,
    /// The command that recorded it.
    pub command_line: Vec<String>,
}

/// Whether a file begins as a recording.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    let mut start = [0; 8];
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *MAGIC
}

/// Reads a recording.
///
/// # Errors
/// Exit 2: it cannot be read, or is none.
pub fn read(path: &Path) -> Result<Profile, Error> {
    let bytes = machine::read(path, "the recording")?;
    let cannot = |why: String| Error::usage(format!("cannot read the recording {}", path.display()), why, "");
    let mut recording = Recording::open(&bytes).map_err(|error| cannot(error.to_string()))?;
    let (mut samples, mut threads, mut lost) = (Vec::new(), BTreeMap::new(), 0_u64);
    let mut names = Names::beside(path);
    let damage = recording.records(|event, record| match record {
        Record::Sample(sample) if event == 0 => samples.push(sample),
        Record::Comm { tid, name, .. } => drop(threads.insert(tid, name)),
        Record::Mapping(mapping) => names.map(mapping),
        Record::Lost { count, .. } => lost = lost.saturating_add(count),
        Record::Sample(_) | Record::Other(_) => {}
    });
    let mut stacks = Stacks::new();
    for sample in &samples {
        stacks.add(stack(sample, &threads, &mut names), 1);
    }
    let events = recording.events.into_iter().map(|event| event.name).collect();
    Ok(Profile { stacks, events, lost, damage, command_line: recording.command_line })
}

fn stack(sample: &Sample, threads: &BTreeMap<u32, String>, names: &mut Names) -> Vec<String> {
    let thread = threads.get(&sample.tid).cloned().unwrap_or_else(|| format!("thread {}", sample.tid));
    let mut stack = vec![thread];
    stack.extend(frames(sample, |mode, address| names.of(mode, address)));
    stack
}

/// Names of addresses.
struct Names {
    kernel: Option<Symbols>,
    mappings: Vec<Mapping>,
    /// Symbols of files that were looked for.
    files: BTreeMap<PathBuf, Option<Symbols>>,
}

impl Names {
    /// With the kernel's list that lies beside the recording.
    fn beside(path: &Path) -> Self {
        let mut list = path.as_os_str().to_owned();
        list.push(".kallsyms");
        let text = plain(Path::new(&list)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let kernel = text.map(|text| Symbols::of_kallsyms(&text)).filter(|symbols| !symbols.is_empty());
        Self { kernel, mappings: Vec::new(), files: BTreeMap::new() }
    }

    fn map(&mut self, mapping: Mapping) {
        if Mode::of(mapping.misc) == Mode::User {
            self.mappings.push(mapping);
        }
    }

    fn of(&mut self, mode: Mode, address: u64) -> String {
        if matches!(mode, Mode::Kernel | Mode::GuestKernel) {
            let name = self.kernel.as_ref().and_then(|symbols| symbols.find(address));
            return name.unwrap_or("[kernel]").to_owned();
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
        assert!(!is_recording(&path) && !is_recording(folder.path()));
        fs::write(&path, b"PERFILE2").unwrap();
        assert!(is_recording(&path) && read(&path).is_err());
    }
}
