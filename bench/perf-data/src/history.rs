//! The samples of a recording with the names that their addresses had at their time. What is kept of a recording has a
//! bound, whatever the file says: a compressed one may hold a thousand times its own size.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;

use crate::calls::{BROKEN, BROKEN_END, CUT, Frame, frames_of};
use crate::calls::{Calls, Place, TooMuch, Tree};
use crate::names::Names;
use crate::reader::{Damage, Recording};
use crate::record::{DEFERRED, MOST_ENTRIES, Mode, Record, Sample, UserStack, kind};
use crate::spaces::Spaces;
use crate::unwind::{End, PLACE, STACK_POINTER};

/// Most bytes of memory that the samples of a recording take, with their stacks, names and mappings.
pub const MOST_KEPT: u64 = 1 << 30;
/// Bytes that a sample takes, without and with names; and a call chain, and a change of threads or mappings, beside
/// their entries and texts.
const OF_SAMPLE: u64 = (size_of::<Raw>() + size_of::<Shown>()) as u64;
const OF_CHAIN: u64 = 128;
const OF_CHANGE: u64 = 320;

/// When a record was written: by its time, and, where records have none, by its place in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    time: u64,
    record: u64,
}

/// A sample before its addresses have names: what [`Sample`] has, smaller.
#[derive(Clone, Copy, Debug)]
struct Raw {
    moment: Moment,
    ip: u64,
    period: u64,
    pid: u32,
    tid: u32,
    /// The number of its call chain; many have the same.
    chain: u32,
    cut: u32,
    event: u16,
    misc: u16,
    /// The number of its user stack, from 1 on.
    user: u32,
}

/// Contents of a recording, in the order of its records.
#[derive(Debug, Default)]
pub struct Gathered {
    samples: Vec<Raw>,
    chains: Vec<Rc<[u64]>>,
    known: HashMap<Rc<[u64]>, u32>,
    changes: Vec<(Moment, Record)>,
    /// Losses by the kernel's ring, by the event's own count, and times that the event was throttled.
    lost: BTreeMap<usize, [u64; 3]>,
    /// User stacks are of another architecture than x86_64.
    foreign: bool,
    users: Vec<UserStack>,
    /// User parts of chains, and the entries they lack, by thread and cookie.
    deferred: HashMap<(u32, u64), (u32, u32)>,
    bytes: u64,
    most: u64,
    /// Parts that could not be read.
    pub damage: Damage,
}

/// A sample with the names that its addresses had when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Time, ns.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Period.
    pub period: u64,
    /// The number of its innermost function in [`Named::calls`]. The outermost entry of its stack is the thread.
    pub innermost: u32,
}

/// The samples of one event, in the order of time, with names.
#[derive(Debug, Default)]
pub struct Named {
    /// The samples.
    pub samples: Vec<Shown>,
    /// Their stacks.
    pub calls: Calls,
    /// Names by their numbers.
    pub names: Vec<String>,
    /// The last name of each thread.
    threads: BTreeMap<u32, u32>,
    /// Call chains that are longer than is read, and the entries that they lack, the outermost ones.
    pub cut: (u64, u64),
    /// Samples whose user stack is not unwound: of a 32-bit task, or of another architecture.
    pub not_unwound: usize,
    /// Files of code without names, as all together are too large.
    pub left_out: usize,
}

impl Gathered {
    /// Reads the records. `most` bytes of memory are taken at the most, usually [`MOST_KEPT`].
    ///
    /// # Errors
    /// They take more.
    pub fn read(recording: &mut Recording<'_>, most: u64) -> Result<Self, TooMuch> {
        let (mut all, mut now) = (Self { most, ..Self::default() }, Moment::default());
        // In a pipe events are known, and named, by records.
        all.damage = recording.timed_records(|event, time, record| {
            // One without a time is of that of the one before it.
            now = Moment { time: time.unwrap_or(now.time), record: now.record + 1 };
            match record {
                Record::Sample(mut sample) => all.sample(now, event, &mut sample),
                Record::Lost { count, .. } => all.lose(event, 0, count),
                Record::LostSamples(count) => all.lose(event, 1, count),
                Record::Other(kind::THROTTLE) => all.lose(event, 2, 1),
                Record::Deferred { tid, cookie, chain, cut } => {
                    all.bytes += OF_CHAIN;
                    let chain = all.chain(&chain);
                    all.deferred.insert((tid, cookie), (chain, cut));
                }
                Record::Comm { .. } | Record::Mapping(_) | Record::Fork { .. } => all.change(now, record),
                Record::Other(_) => {}
            }
            if all.bytes > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        all.foreign = recording.arch.as_ref().is_some_and(|arch| arch != "x86_64");
        if all.bytes > most { Err(TooMuch(most)) } else { Ok(all) }
    }

    fn lose(&mut self, event: usize, how: usize, count: u64) {
        let sum = &mut self.lost.entry(event).or_default()[how];
        *sum = sum.saturating_add(count);
    }

    /// Numbers a call chain.
    fn chain(&mut self, chain: &[u64]) -> u32 {
        self.known.get(chain).copied().unwrap_or_else(|| {
            self.bytes += size_of_val(chain) as u64 + OF_CHAIN;
            let (chain, number): (Rc<[u64]>, _) = (chain.into(), self.chains.len() as u32);
            self.chains.push(Rc::clone(&chain));
            self.known.insert(chain, number);
            number
        })
    }

    fn sample(&mut self, moment: Moment, event: usize, sample: &mut Sample) {
        let chain = self.chain(&sample.chain);
        self.bytes += OF_SAMPLE;
        let user = sample.user.take().map_or(0, |user| {
            self.bytes += (size_of_val(&*user) + user.stack.len()) as u64;
            self.users.push(*user);
            self.users.len() as u32
        });
        let &mut Sample { misc, ip, pid, tid, period, cut, .. } = sample;
        self.samples.push(Raw { moment, ip, period, pid, tid, chain, cut, event: event as u16, misc, user });
    }

    fn change(&mut self, moment: Moment, record: Record) {
        let text = match &record {
            Record::Comm { name, .. } => name.len(),
            Record::Mapping(mapping) => mapping.file.len(),
            _ => 0,
        };
        // A file's name is there three times, as it has a number.
        self.bytes += 3 * text as u64 + OF_CHANGE;
        self.changes.push((moment, record));
    }

    /// Returns the number of samples of each event.
    pub fn counts(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        self.samples.iter().for_each(|sample| *counts.entry(usize::from(sample.event)).or_default() += 1);
        counts
    }

    /// Returns the samples that were lost when an event was recorded, whether they are those of all events of its ring,
    /// and how often it was throttled. A ring counts the losses of all its events under one of them: what the event
    /// counts itself is used where it has it.
    pub fn lost(&self, event: usize) -> (u64, bool, u64) {
        let [ring, own, throttled] = self.lost.get(&event).copied().unwrap_or_default();
        if own > 0 { (own, false, throttled) } else { (ring, ring > 0, throttled) }
    }

    /// Gives the samples of an event the names of their time.
    ///
    /// # Errors
    /// They take too much memory.
    pub fn name(self, event: usize, names: Names) -> Result<Named, TooMuch> {
        let Self { mut samples, mut changes, chains, users, deferred, bytes, most, foreign, .. } = self;
        samples.retain(|sample| usize::from(sample.event) == event);
        samples.sort_unstable_by_key(|sample| sample.moment);
        changes.sort_unstable_by_key(|&(moment, _)| moment);
        let names = names.unwinding(!users.is_empty() && !foreign);
        let mut history =
            History { spaces: Spaces::default(), names, threads: BTreeMap::new(), calls: Calls::default() };
        let mut chain = Vec::new();
        let mut all = Named::default();
        let mut changes = changes.into_iter().peekable();
        for sample in samples {
            while let Some((_, change)) = changes.next_if(|&(time, _)| time <= sample.moment) {
                history.change(change);
            }
            chain.clear();
            chain.extend_from_slice(&chains[sample.chain as usize]);
            let mut cut = sample.cut;
            if let [.., DEFERRED, cookie] = chain[..] {
                chain.truncate(chain.len() - 2);
                match deferred.get(&(sample.tid, cookie)) {
                    Some(&(user, more)) => {
                        chain.extend_from_slice(&chains[user as usize]);
                        cut += more;
                    }
                    None => chain.push(BROKEN_END),
                }
            }
            match (sample.user as usize).checked_sub(1).map(|user| &users[user]) {
                Some(user) if !foreign && user.regs[PLACE].is_some() => history.unwind(sample.pid, user, &mut chain),
                Some(_) => all.not_unwound += 1,
                None => {}
            }
            cut += chain.len().saturating_sub(MOST_ENTRIES) as u32;
            chain.truncate(MOST_ENTRIES);
            all.cut.0 += u64::from(cut > 0);
            all.cut.1 += u64::from(cut);
            all.samples.push(history.show(&Raw { cut, ..sample }, &chain));
            if bytes + history.bytes() > most {
                return Err(TooMuch(most));
            }
        }
        changes.for_each(|(_, change)| history.change(change));
        let History { names, threads, calls, .. } = history;
        let (names, left_out) = names.finish();
        Ok(Named { calls, names, threads, left_out, ..all })
    }
}

/// Threads and mappings of a recording, in the order of time.
#[derive(Debug)]
struct History {
    spaces: Spaces,
    names: Names,
    /// The numbers of their names.
    threads: BTreeMap<u32, u32>,
    calls: Calls,
}

impl History {
    /// Bytes of memory that it takes.
    const fn bytes(&self) -> u64 {
        self.spaces.bytes() + self.names.bytes() + self.calls.bytes()
    }

    fn change(&mut self, change: Record) {
        match change {
            Record::Comm { pid, tid, name, exec } => {
                if exec {
                    self.spaces.exec(pid);
                }
                self.threads.insert(tid, self.names.number(&name));
            }
            Record::Fork { pid, parent, tid, parent_tid } => {
                self.spaces.fork(parent, pid);
                if let Some(&name) = self.threads.get(&parent_tid) {
                    self.threads.insert(tid, name);
                }
            }
            Record::Mapping(mapping) => match Mode::of(mapping.misc) {
                Mode::User => self.spaces.map(mapping),
                Mode::Kernel | Mode::GuestKernel => self.names.map(&mapping),
                _ => {}
            },
            _ => {}
        }
    }

    /// Adds the user part of a chain, by the tables of the files that are mapped in the process.
    fn unwind(&mut self, pid: u32, user: &UserStack, chain: &mut Vec<u64>) {
        let (mut regs, start) = (user.regs, user.regs[STACK_POINTER].unwrap_or(0));
        let memory = |at: u64| {
            let at = usize::try_from(at.checked_sub(start)?).ok()?;
            Some(u64::from_le_bytes(user.stack.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        let Self { spaces, names, .. } = self;
        chain.push(Mode::User.context());
        let mut back = 0;
        while let Some(place) = regs[PLACE].filter(|_| chain.len() < MOST_ENTRIES) {
            chain.push(place);
            let found = spaces.find(pid, place.wrapping_sub(back)).and_then(|(file, place)| {
                Some(names.of_file(file, Path::new(spaces.file(file)))?.caller(place, &regs, memory))
            });
            match found {
                // Another stack, of a signal, is not in the sample; and a walk ends.
                Some(Ok(caller)) if caller.registers[STACK_POINTER] > regs[STACK_POINTER] => {
                    (regs, back) = (caller.registers, u64::from(!caller.interrupted));
                }
                Some(Err(End::Bottom)) => return,
                _ => break,
            }
        }
        chain.push(BROKEN_END);
    }

    fn show(&mut self, sample: &Raw, chain: &[u64]) -> Shown {
        let Self { spaces, names, threads, calls } = self;
        let &Raw { moment: Moment { time, .. }, ip, period, pid, tid, cut, misc, .. } = sample;
        let thread = threads.get(&tid).copied().unwrap_or_else(|| names.number(&unnamed(tid)));
        let mut innermost = calls.below(None, Place { mode: None, name: thread });
        for frame in frames_of(misc, ip, chain, cut > 0) {
            let place = match frame {
                Frame::At(mode, address) => Place { mode: Some(mode), name: names.find(spaces, mode, pid, address) },
                Frame::Broken => Place { mode: None, name: names.number(BROKEN) },
                Frame::Cut => Place { mode: None, name: names.number(CUT) },
            };
            innermost = calls.below(Some(innermost), place);
        }
        Shown { time, pid, tid, period, innermost }
    }
}

fn unnamed(tid: u32) -> String {
    format!("thread {tid}")
}

impl Named {
    /// Returns a name by its number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Returns the last name of a thread.
    pub fn thread(&self, tid: u32) -> String {
        self.threads.get(&tid).map_or_else(|| unnamed(tid), |&number| self.name(number).to_owned())
    }

    /// Returns the stacks as a tree, with how many samples are in each function.
    pub fn tree(&self) -> Tree {
        self.calls.tree(&self.names, self.samples.iter().map(|sample| sample.innermost))
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Mapping;

    use super::*;

    /// Samples without chains and changes, of those moments.
    fn gathered(samples: &[(Moment, u32)], changes: Vec<(Moment, Record)>) -> Gathered {
        let mut all = Gathered { changes, most: MOST_KEPT, ..Gathered::default() };
        for &(moment, pid) in samples {
            let mut sample = Sample { misc: 2, ip: 0x1010, pid, tid: pid, time: moment.time, ..Sample::default() };
            all.sample(moment, 0, &mut sample);
        }
        all
    }

    /// Returns time, thread and function of each sample.
    fn shown(all: Gathered) -> Vec<(u64, String, String)> {
        let named = all.name(0, Names::default()).unwrap();
        let one = |sample: &Shown| {
            let (caller, function) = named.calls.get(sample.innermost);
            let thread = named.calls.get(caller.unwrap()).1;
            (sample.time, named.name(thread.name).to_owned(), named.name(function.name).to_owned())
        };
        named.samples.iter().map(one).collect()
    }

    /// Builds the moment of that time, as the `record`th in the file.
    fn at(time: u64, record: u64) -> Moment {
        Moment { time, record }
    }

    fn map(time: u64, pid: u32, file: &str) -> (Moment, Record) {
        let file = file.to_owned();
        let mapping = Mapping { misc: 2, pid, tid: pid, address: 0x1000, length: 0x1000, file, ..Mapping::default() };
        (at(time, 0), Record::Mapping(mapping))
    }

    fn comm(time: u64, pid: u32, name: &str, exec: bool) -> (Moment, Record) {
        (at(time, 0), Record::Comm { pid, tid: pid, name: name.to_owned(), exec })
    }

    fn expected(all: &[(u64, &str, &str)]) -> Vec<(u64, String, String)> {
        all.iter().map(|&(time, thread, function)| (time, thread.to_owned(), function.to_owned())).collect()
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
        let samples = [(8, 40), (7, 40), (8, 15), (8, 25), (8, 30), (9, 1)];
        let samples: Vec<_> = samples.iter().zip(9..).map(|(&(pid, time), record)| (at(time, record), pid)).collect();
        let all = expected(&[
            (1, "thread 9", "[user]"),
            (15, "one", "[one]"),
            (25, "two", "[two]"),
            (30, "after", "[user]"),
            (40, "after", "[after]"),
            (40, "one", "[one]"),
        ]);
        assert_eq!(shown(gathered(&samples, changes)), all);
    }

    #[test]
    fn without_times_a_sample_has_the_names_of_its_place_in_the_recording() {
        let mut changes = vec![comm(0, 7, "one", false), map(0, 7, "/1"), comm(0, 7, "two", true), map(0, 7, "/2")];
        for ((moment, _), record) in changes.iter_mut().zip([1, 2, 4, 5]) {
            moment.record = record;
        }
        let all = gathered(&[(at(0, 3), 7), (at(0, 6), 7)], changes);
        assert_eq!(shown(all), expected(&[(0, "one", "[1]"), (0, "two", "[2]")]));
    }

    #[test]
    fn memory_is_counted_before_and_after_names_are_known() {
        let sample = |chain: &[u64]| Sample { misc: 2, chain: chain.to_vec(), ..Sample::default() };
        let mut all = Gathered { most: MOST_KEPT, ..Gathered::default() };
        (0..100).for_each(|record| all.sample(at(0, record), 0, &mut sample(&[1; 1000])));
        let same = all.bytes;
        (0..100).for_each(|n| all.sample(at(0, 100 + n), 0, &mut sample(&[n; 1000])));
        assert!(same < 30_000 && all.bytes > 99 * 8000, "a chain is kept once: {same}, {}", all.bytes);
        let before = all.bytes;
        all.change(at(0, 0), Record::Comm { pid: 1, tid: 1, name: "x".repeat(60_000), exec: false });
        assert!(all.bytes > before + 120_000);
        // Names find no room; the bytes that are read do.
        all.most = all.bytes + 300;
        let most = all.most;
        assert_eq!(all.name(0, Names::default()).err(), Some(TooMuch(most)));
    }
}
