//! A recording as stacks with names, for pictures.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use perf_data::attr::Event;
use perf_data::names::Names;
use perf_data::reader::{Damage, MOST_INFLATED, Recording};
use perf_data::record::{Mode, Record, Sample};
use perf_data::spaces::Spaces;
use perf_data::stacks::{BROKEN, Frame, Stacks, frames_of};
use perf_data::writer::MAGIC;
use results::error::{Error, one_line};

use super::beside::{Beside, Companion, companion};
use super::spec::PIPED;
use crate::machine;
use crate::parse::suggestion;

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

/// A function of a sample's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The processor's mode; `None`: outside of it the chain could not be followed.
    pub mode: Option<Mode>,
    /// The number of its name.
    pub name: u32,
}

/// A sample with the names that its addresses had when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Time, ns.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Period.
    pub period: u64,
    /// The number of the thread's name.
    pub thread: u32,
    /// Its stack, the root first.
    pub stack: Vec<Place>,
}

/// A recording, and the names of its addresses.
#[derive(Debug)]
pub struct Contents {
    /// Samples of the event that is shown.
    pub samples: Vec<Shown>,
    /// The event that is shown.
    pub event: Event,
    /// The names of other events, and their samples.
    pub others: Vec<(String, usize)>,
    /// CLOCK_REALTIME, and the time of the samples' clock at the same moment, ns, if it says them.
    pub clocks: Option<(u64, u64)>,
    /// Samples of that event that were lost when it was recorded.
    pub lost: u64,
    /// What could not be read.
    pub damage: Damage,
    /// The command that recorded it.
    pub command_line: Vec<String>,
    /// The file beside it with the NMIs of its guest.
    pub nmis: Option<PathBuf>,
    /// Files beside it that are older than it and were left out: they are of an earlier recording.
    pub older: Vec<PathBuf>,
    /// The last name of each thread.
    threads: BTreeMap<u32, String>,
    /// Names by their numbers.
    names: Vec<String>,
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
    let (mut samples, mut lost) = (BTreeMap::<usize, Vec<(Moment, Sample)>>::new(), BTreeMap::<usize, u64>::new());
    let (mut changes, mut now) = (Vec::new(), Moment::default());
    let damage = recording.timed_records(|event, time, record| {
        // One without a time is of that of the one before it.
        now = Moment { time: time.unwrap_or(now.time), record: now.record + 1 };
        match record {
            Record::Sample(sample) => samples.entry(event).or_default().push((now, sample)),
            Record::Lost { count, .. } => {
                let sum = lost.entry(event).or_default();
                *sum = sum.saturating_add(count);
            }
            Record::Comm { .. } | Record::Mapping(_) | Record::Fork { .. } => changes.push((now, record)),
            Record::Other(_) => {}
        }
    });
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
    let shown = match wanted {
        Some(wanted) => named(&events, wanted)?,
        None => samples.keys().next().copied().unwrap_or(0),
    };
    let of = |at: usize| samples.get(&at).map_or(0, Vec::len);
    let others = events.iter().enumerate().filter(|&(at, _)| at != shown);
    let others = others.map(|(at, event)| (event.name.clone(), of(at))).collect();
    let samples = samples.remove(&shown).unwrap_or_default();
    let lost = lost.get(&shown).copied().unwrap_or(0);
    let event = if shown < events.len() { events.swap_remove(shown) } else { Event::default() };
    let mut history = History::new(Names::of(kallsyms.as_deref()));
    let samples = history.go_through(changes, &samples);
    let History { threads, names, .. } = history;
    let names = names.finish();
    Ok(Contents { samples, event, others, clocks, lost, damage, command_line, nmis, older, threads, names })
}

/// When a record was written: by its time, and, where records have none, by its place in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    time: u64,
    record: u64,
}

/// What a recording says of threads and mappings, in the order of time.
#[derive(Debug)]
struct History {
    spaces: Spaces,
    names: Names,
    threads: BTreeMap<u32, String>,
}

impl History {
    fn new(names: Names) -> Self {
        Self { spaces: Spaces::default(), names, threads: BTreeMap::new() }
    }

    /// Names each sample as it was at its time; the samples stay in their order.
    fn go_through(&mut self, mut changes: Vec<(Moment, Record)>, samples: &[(Moment, Sample)]) -> Vec<Shown> {
        changes.sort_by_key(|&(moment, _)| moment);
        let mut changes = changes.into_iter().peekable();
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_by_key(|&at| samples[at].0);
        let mut shown: Vec<(usize, Shown)> = Vec::with_capacity(samples.len());
        for at in order {
            let (moment, sample) = &samples[at];
            while let Some((_, change)) = changes.next_if(|(of, _)| of <= moment) {
                self.change(change);
            }
            shown.push((at, self.show(sample)));
        }
        changes.for_each(|(_, change)| self.change(change));
        shown.sort_by_key(|&(at, _)| at);
        shown.into_iter().map(|(_, shown)| shown).collect()
    }

    fn change(&mut self, change: Record) {
        match change {
            Record::Comm { pid, tid, name, exec } => {
                if exec {
                    self.spaces.exec(pid);
                }
                self.threads.insert(tid, name);
            }
            Record::Fork { pid, parent, tid, parent_tid } => {
                self.spaces.fork(parent, pid);
                if let Some(name) = self.threads.get(&parent_tid).cloned() {
                    self.threads.insert(tid, name);
                }
            }
            Record::Mapping(mapping) => match Mode::of(mapping.misc) {
                Mode::User => self.spaces.map(mapping),
                Mode::Kernel | Mode::GuestKernel => self.names.map(&mapping),
                _ => {}
            },
            Record::Sample(_) | Record::Lost { .. } | Record::Other(_) => {}
        }
    }

    fn show(&mut self, sample: &Sample) -> Shown {
        let Self { spaces, names, threads } = self;
        let &Sample { time, pid, tid, period, .. } = sample;
        let thread = match threads.get(&tid) {
            Some(name) => names.number(name),
            None => names.number(&unnamed(tid)),
        };
        let place = |frame| match frame {
            Frame::At(mode, address) => Place { mode: Some(mode), name: names.find(spaces, mode, pid, address) },
            Frame::Broken => Place { mode: None, name: names.number(BROKEN) },
        };
        let stack = frames_of(sample).into_iter().map(place).collect();
        Shown { time, pid, tid, period, thread, stack }
    }
}

fn unnamed(tid: u32) -> String {
    format!("thread {tid}")
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

/// What is wrong with a recording, for a warning.
#[must_use]
pub fn said(damage: &Damage) -> String {
    let mut parts = Vec::new();
    if damage.unfinished {
        parts.push("who recorded it was killed before the file said any record".to_owned());
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
        parts.push(format!("more than {} MiB are compressed in it", MOST_INFLATED >> 20));
    }
    format!("the recording is damaged: {}", parts.join("; "))
}

impl Contents {
    /// A name by its number.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// The last name of a thread.
    #[must_use]
    pub fn thread(&self, tid: u32) -> String {
        self.threads.get(&tid).cloned().unwrap_or_else(|| unnamed(tid))
    }

    fn stack(&self, sample: &Shown) -> Vec<String> {
        let numbers = std::iter::once(sample.thread).chain(sample.stack.iter().map(|place| place.name));
        numbers.map(|number| self.name(number).to_owned()).collect()
    }

    /// Its samples with their times.
    #[must_use]
    pub fn timed(&self) -> Timed {
        let (mut timed, mut known) = (Timed::default(), BTreeMap::new());
        for sample in &self.samples {
            let at = *known.entry(self.stack(sample)).or_insert_with_key(|stack| {
                timed.stacks.push(stack.clone());
                timed.stacks.len() - 1
            });
            timed.samples.push((sample.time, at));
        }
        timed
    }

    /// Its samples as stacks.
    #[must_use]
    pub fn profile(self) -> Profile {
        let mut stacks = Stacks::new();
        for sample in &self.samples {
            stacks.add(self.stack(sample), 1);
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

#[cfg(test)]
mod tests {
    use perf_data::record::Mapping;

    use super::*;

    /// Of that time, as the `record`th in the file.
    fn at(time: u64, record: u64) -> Moment {
        Moment { time, record }
    }

    fn map(time: u64, pid: u32, file: &str) -> (Moment, Record) {
        let mapping = Mapping {
            misc: 2,
            pid,
            tid: pid,
            address: 0x1000,
            length: 0x1000,
            file: file.into(),
            ..Mapping::default()
        };
        (at(time, 0), Record::Mapping(mapping))
    }

    fn comm(time: u64, pid: u32, name: &str, exec: bool) -> (Moment, Record) {
        (at(time, 0), Record::Comm { pid, tid: pid, name: name.to_owned(), exec })
    }

    #[test]
    fn a_sample_has_the_names_of_its_process_at_its_time() {
        // As perf writes them, by CPU: not in the order of time.
        let changes = vec![
            comm(30, 8, "after", true),
            map(31, 8, "/after"),
            comm(0, 7, "one", false),
            map(0, 7, "/one"),
            (at(10, 0), Record::Fork { pid: 8, parent: 7, tid: 8, parent_tid: 7 }),
            map(20, 8, "/two"),
            comm(21, 8, "two", false),
        ];
        let sample =
            |pid, time| (at(time, 0), Sample { misc: 2, ip: 0x1010, pid, tid: pid, time, ..Sample::default() });
        let samples = vec![sample(8, 40), sample(7, 40), sample(8, 15), sample(8, 25), sample(8, 30), sample(9, 1)];
        let mut history = History::new(Names::default());
        let shown = history.go_through(changes, &samples);
        let names = history.names.finish();
        let name = |number: u32| names[number as usize].as_str();
        let found: Vec<_> = shown.iter().map(|one| (name(one.thread), name(one.stack[0].name))).collect();
        assert_eq!(
            found,
            [
                ("after", "[after]"),
                ("one", "[one]"),
                ("one", "[one]"),
                ("two", "[two]"),
                ("after", "[user]"),
                ("thread 9", "[user]")
            ]
        );
    }

    #[test]
    fn without_times_a_sample_has_the_names_of_its_place_in_the_recording() {
        let mut changes = [comm(0, 7, "one", false), map(0, 7, "/one"), comm(0, 7, "two", true), map(0, 7, "/two")];
        for ((moment, _), record) in changes.iter_mut().zip([1, 2, 4, 5]) {
            moment.record = record;
        }
        let sample = |record| (at(0, record), Sample { misc: 2, ip: 0x1010, pid: 7, tid: 7, ..Sample::default() });
        let mut history = History::new(Names::default());
        let shown = history.go_through(changes.into(), &[sample(3), sample(6)]);
        let names = history.names.finish();
        let found: Vec<_> = shown.iter().map(|one| names[one.thread as usize].as_str()).collect();
        assert_eq!(found, ["one", "two"]);
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
