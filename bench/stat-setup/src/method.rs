//! Set-up methods as data: order of the calls, calling thread, groups.

use std::time::{Duration, Instant};

use crate::list::{Class, EventList};

// Phases in the life of an event, and their cost.

/// A phase: one kind of call for every event on every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// perf_event_open.
    Open,
    /// IOC_ENABLE of group leaders.
    Enable,
    /// read, one call for a whole group.
    Read,
    /// IOC_DISABLE of group leaders.
    Disable,
    /// close.
    Close,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] = [Self::Open, Self::Enable, Self::Read, Self::Disable, Self::Close];

    /// Returns its name in tables and documents.
    pub const fn name(self) -> &'static str {
        ["open", "enable", "read", "disable", "close"][self as usize]
    }
}

/// Cost of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseCost {
    /// The phase.
    pub phase: Phase,
    /// Time from the first call to the end of the last.
    pub wall: Duration,
    /// Duration of each call on an event, ns, unordered. One close_range is one call.
    pub calls_ns: Vec<u32>,
}

/// Times calls within a phase.
#[derive(Debug)]
pub(crate) struct Recorder {
    last: Instant,
    pub(crate) calls_ns: Vec<u32>,
}

impl Recorder {
    pub(crate) fn new(expected: usize) -> Self {
        Self { last: Instant::now(), calls_ns: Vec::with_capacity(expected) }
    }

    /// Starts the time of the next call here instead of at the end of the last.
    pub(crate) fn begin(&mut self) {
        self.last = Instant::now();
    }

    /// Records a call that began at the end of the last one: one clock reading per call.
    pub(crate) fn call(&mut self) {
        let now = Instant::now();
        let ns = now.duration_since(self.last).as_nanos();
        self.calls_ns.push(u32::try_from(ns).unwrap_or(u32::MAX));
        self.last = now;
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.calls_ns.extend(other.calls_ns);
    }
}

/// Maximum size of a packed group. The kernel limits a group's read to 16 KiB: three words and 2 045 counts.
pub const MAX_PACK: usize = 1024;

/// A set of phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases(u16);

impl Phases {
    /// No phase.
    pub const NONE: Self = Self(0);
    /// Every phase.
    pub const ALL: Self = Self(u16::MAX);

    /// Returns this set with `phase` added.
    pub const fn with(self, phase: Phase) -> Self {
        Self(self.0 | 1 << phase as u16)
    }

    /// Returns whether the set contains `phase`.
    pub const fn has(self, phase: Phase) -> bool {
        self.0 >> phase as u16 & 1 == 1
    }
}

/// Order of the calls, and the CPU they are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Event by event, each on every CPU, from the current CPU of the process.
    EventMajor,
    /// CPU by CPU; in the given phases the process first moves to each CPU.
    CpuMajor(Phases),
    /// One thread pinned to each CPU, with its own descriptor table.
    Threads,
}

/// A set-up method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Order of the calls.
    pub order: Order,
    /// Size of the groups that non-competing events are packed into; `None` keeps the groups of the list.
    pub pack: Option<usize>,
    /// Close consecutive descriptors with one close_range.
    pub close_ranges: bool,
}

impl Method {
    /// perf before Linux 5.5.
    pub const EVENT_MAJOR: Self = Self::plain(Order::EventMajor);
    /// perf since Linux 5.5 (series of 2019): 4804e0111662, 7736627b865d, 704e2f5b700d.
    pub const CPU_MAJOR: Self = Self::plain(Order::CpuMajor(Phases::ALL));
    /// One pinned worker per CPU.
    pub const THREADS: Self = Self::plain(Order::Threads);

    const fn plain(order: Order) -> Self {
        Self { order, pack: None, close_ranges: false }
    }

    /// Groups of one size, CPU by CPU: strategy `packed`.
    pub fn packed(list: &EventList) -> Self {
        Self::in_groups(list, false)
    }

    /// Chooses by the table in docs/stat-setup.md: groups for events that never compete for a counter, threads where their calls
    /// do not wait for one another. `one_table`: all descriptors fit into one.
    pub fn auto(list: &EventList, cpus: usize, one_table: bool) -> Self {
        let class = list.main_class();
        let meet = match class {
            // Their opens and closes hold the host's `event_mutex`.
            Some(Class::Tracepoint) => true,
            // Their opens walk over all possible CPUs under `pmus_lock`.
            Some(Class::Software) => cpus > THREADS,
            _ => false,
        };
        let pay = cpus > 1 && list.events.len() >= FEW && !meet;
        Self::in_groups(list, pay || !one_table)
    }

    fn in_groups(list: &EventList, threads: bool) -> Self {
        let grouped = list.events.iter().any(|event| event.class().is_some_and(Class::never_competes));
        // An ENABLE reschedules every event of the CPU, and an open and a close walk over their group: the sum of both is least near
        // this size.
        let pack = grouped.then(|| (4 * list.events.len()).isqrt());
        let groups = layout(list, pack);
        let events = groups.iter().map(|group| group.members.len()).sum();
        // Calls on another CPU are interrupts to it. A disabled event opens without one since Linux 5.5 (db0503e4f675).
        let remote = [
            (Phase::Enable, groups.len()),
            (Phase::Read, groups.len()),
            (Phase::Disable, groups.len()),
            (Phase::Close, events),
        ];
        let moving = remote.into_iter().filter(|&(_, calls)| calls >= FEW);
        let moving = moving.fold(Phases::NONE, |phases, (phase, _)| phases.with(phase));
        let order = if threads { Order::Threads } else { Order::CpuMajor(moving) };
        Self { order, pack, close_ranges: true }
    }
}

/// Calls of a phase on a CPU from which a move there costs less than their interrupts, and events from which a thread does.
const FEW: usize = 8;
/// CPUs up to which threads open software events without much waiting for one another.
const THREADS: usize = 8;

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pack {
            Some(size) => write!(f, "groups of {size}, ")?,
            None => f.write_str("groups as given, ")?,
        }
        match self.order {
            Order::EventMajor => f.write_str("event by event"),
            Order::CpuMajor(Phases::NONE) => f.write_str("CPU by CPU without moving"),
            Order::CpuMajor(Phases::ALL) => f.write_str("CPU by CPU, moving to each"),
            Order::CpuMajor(phases) => {
                let names: Vec<&str> = Phase::ALL.into_iter().filter(|&p| phases.has(p)).map(Phase::name).collect();
                write!(f, "CPU by CPU, moving to {}", names.join("+"))
            }
            Order::Threads => f.write_str("a pinned thread per CPU"),
        }
    }
}

/// A group to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pack {
    /// Indices of its events, the leader first.
    pub(crate) members: Vec<usize>,
    /// True if a member that cannot join breaks the group up: weak groups of the list, and packed groups.
    pub(crate) weak: bool,
}

/// Returns the groups of a list, with non-competing events in packs of `pack`; without events that cannot be opened.
pub(crate) fn layout(list: &EventList, pack: Option<usize>) -> Vec<Pack> {
    let usable = |&event: &usize| list.events[event].open.is_ok();
    // The count of a non-competing event on every CPU does not depend on its group.
    let free = |&event: &usize| {
        let event = &list.events[event];
        // Only a leader may be pinned or exclusive.
        let joins = event.open.as_ref().is_ok_and(|open| open.attr.pinned() == 0 && open.attr.exclusive() == 0);
        event.class().is_some_and(Class::never_competes) && event.cpus.is_none() && joins
    };
    let mut packs = Vec::with_capacity(list.groups.len());
    let mut loose = Vec::new();
    for group in &list.groups {
        let members: Vec<usize> = group.members.iter().copied().filter(usable).collect();
        if pack.is_some() && members.iter().all(free) {
            loose.extend(members);
        } else if !members.is_empty() {
            packs.push(Pack { members, weak: group.weak });
        }
    }
    let size = pack.unwrap_or(1).clamp(1, MAX_PACK);
    // Packs of equal size: 101 events at size 100 become 51 and 50, not 100 and 1.
    let chunks = loose.len().div_ceil(size).max(1);
    for chunk in loose.chunks(loose.len().div_ceil(chunks).max(1)) {
        packs.push(Pack { members: chunk.to_vec(), weak: true });
    }
    packs
}

/// One set-up: events, CPUs, method.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Events to open.
    pub list: &'a EventList,
    /// CPU numbers, without duplicates.
    pub cpus: &'a [u32],
    /// Order, place and grouping of the calls.
    pub method: Method,
}

/// Returns the descriptors that a list takes on some CPUs: in one table for all, and in the fullest of a table for each, as threads have.
pub fn descriptors(list: &EventList, cpus: &[u32]) -> [u64; 2] {
    let on = |&cpu: &u32| list.events.iter().filter(|event| event.open.is_ok() && event.counts_on(cpu)).count() as u64;
    [cpus.iter().map(on).sum(), cpus.iter().map(on).max().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::parse::parse;
    use crate::list::resolve::resolve;
    use crate::list::sysfs::Sysfs;

    fn list(text: &str) -> EventList {
        resolve(&parse(text).unwrap(), &mut Sysfs::at("/nonexistent"))
    }

    #[test]
    fn auto_packs_what_never_competes_and_takes_threads_that_do_not_meet() {
        let software = |n: usize| list(&crate::list::software_list(n));
        let of = |list: &EventList, cpus: usize| Method::auto(list, cpus, true).to_string();
        for (events, cpus, what) in [
            (1, 2, "groups of 2, CPU by CPU without moving"),
            (20, 1, "groups of 8, CPU by CPU, moving to close"),
            (700, 2, "groups of 52, a pinned thread per CPU"),
            (700, 8, "groups of 52, a pinned thread per CPU"),
            (700, 94, "groups of 52, CPU by CPU, moving to enable+read+disable+close"),
        ] {
            assert_eq!(of(&software(events), cpus), what);
        }
        // Hardware events compete for counters: their groups stay as written.
        let hardware = list(&vec!["cycles"; 700].join(","));
        assert_eq!(of(&hardware, 94), "groups as given, a pinned thread per CPU");
        assert_eq!(of(&hardware, 1), "groups as given, CPU by CPU, moving to enable+read+disable+close");
        assert_eq!(of(&list("cycles,cycles,cs"), 1), "groups of 3, CPU by CPU without moving");
        // One event is quickest where it is, but two descriptors need not fit into one table.
        assert_eq!(Method::auto(&software(1), 2, false).order, Order::Threads);
    }

    #[test]
    fn only_what_never_competes_is_packed() {
        let list = list("cs,{dummy,page-faults},{cycles,cs}:W,nothing,cpu-clock,instructions,cs:D");
        let sizes = |pack| layout(&list, pack).iter().map(|pack| pack.members.len()).collect::<Vec<_>>();
        assert_eq!(sizes(None), [1, 2, 2, 1, 1, 1]);
        // {cycles,cs} and instructions stay as they are; cs, dummy, page-faults and cpu-clock are packed, cs:D is not.
        assert_eq!(sizes(Some(100)), [2, 1, 1, 4]);
        assert_eq!(sizes(Some(3)), [2, 1, 1, 2, 2]);
        assert!(layout(&list, Some(100))[0].weak && !layout(&list, Some(100))[1].weak);
    }

    #[test]
    fn packs_are_of_equal_size_and_hold_every_event_once() {
        let list = list(&crate::list::software_list(701));
        for size in [1, 2, 50, 100, 700, 5000] {
            let packs = layout(&list, Some(size));
            let mut all: Vec<usize> = packs.iter().flat_map(|pack| pack.members.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..701).collect::<Vec<_>>());
            let largest = packs.iter().map(|pack| pack.members.len()).max().unwrap();
            assert!(largest <= size.min(MAX_PACK), "{size}: {largest}");
        }
        assert!(layout(&EventList::default(), Some(5)).is_empty());
    }

    #[test]
    fn what_does_not_open_takes_no_descriptor() {
        let of = |text: &str, cpus: &[u32]| descriptors(&list(text), cpus);
        assert_eq!(of("cs,nothing,{cs,dummy}", &[0, 1, 2]), [9, 3]);
        assert_eq!(of("nothing", &[0]), [0, 0]);
    }
}
