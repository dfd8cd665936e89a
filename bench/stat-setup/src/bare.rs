//! The system calls of a set-up with nothing around them, in the quickest of three orders: the limit of what any method that
//! makes these calls can reach here.
//!
//! Neither a clock nor a count nor a list is looked at between two calls, and threads are there before the clock starts.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings::{
    PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, perf_event_attr,
};

use crate::list::EventList;
use crate::method::layout;
use crate::run::Guard;
use crate::sys::{self, Mask, Target};

/// Arguments of one CPU's calls, prepared before the clock starts.
struct Ready {
    cpu: u32,
    /// The attributes of each group's events, the leader first.
    groups: Vec<Vec<perf_event_attr>>,
    fds: Vec<OwnedFd>,
    leaders: Vec<usize>,
    buffer: Vec<u64>,
}

impl Ready {
    fn new(cpu: u32, list: &EventList, pack: Option<usize>) -> Option<Self> {
        let group = |members: &[usize]| -> Option<Vec<perf_event_attr>> {
            let attr = |(place, &event): (usize, &usize)| {
                let mut attr = list.events[event].open.as_ref().ok()?.attr;
                attr.read_format = u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
                if place == 0 {
                    attr.set_disabled(1);
                    attr.read_format |= u64::from(PERF_FORMAT_GROUP);
                }
                Some(attr)
            };
            members.iter().enumerate().map(attr).collect()
        };
        if list.events.iter().any(|event| event.open.is_err()) {
            return None;
        }
        let packs = layout(list, pack);
        let groups: Vec<_> = packs.iter().map(|pack| group(&pack.members)).collect::<Option<_>>()?;
        let largest = groups.iter().map(Vec::len).max()?;
        let events = list.events.len();
        let (fds, leaders) = (Vec::with_capacity(events), Vec::with_capacity(groups.len()));
        Some(Self { cpu, groups, fds, leaders, buffer: vec![0; largest + 3] })
    }

    /// Opens, enables, reads; `None` where a call fails.
    fn count(&mut self) -> Option<()> {
        for group in &self.groups {
            let leader = self.fds.len();
            self.leaders.push(leader);
            for attr in group {
                let group = self.fds.get(leader).map(|fd| fd.as_fd());
                self.fds.push(sys::open(attr, Target::Cpu(self.cpu), group).ok()?);
            }
        }
        for &leader in &self.leaders {
            sys::enable(&self.fds[leader]).ok()?;
        }
        for (&leader, group) in self.leaders.iter().zip(&self.groups) {
            sys::read(&self.fds[leader], &mut self.buffer[..group.len() + 3]).ok()?;
        }
        Some(())
    }

    /// Counts, and closes.
    fn calls(&mut self) -> Option<()> {
        self.count()?;
        sys::close_all(std::mem::take(&mut self.fds));
        Some(())
    }
}

/// Looks at what another thread does before the CPU is offered to it: some 100 µs.
const LOOKS: u32 = 10_000;

/// The place that the calls are made from. One thread makes all calls of a CPU before those of the next, but closes only then: between
/// the last close of a kind and the next open all CPUs would be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A thread on each CPU.
    Threads,
    /// One thread that moves to each CPU.
    Moving,
    /// One thread where it is.
    Staying,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Threads => "a thread per CPU",
            Self::Moving => "CPU by CPU, moving to each",
            Self::Staying => "CPU by CPU without moving",
        })
    }
}

/// Returns the quickest place, of three runs from each; `None` as [`run`].
pub fn quickest(list: &EventList, cpus: &[u32], pack: Option<usize>) -> Option<Place> {
    let least = |place: Place| (0..3).filter_map(|_| run(list, cpus, pack, place)).min().map(|wall| (wall, place));
    let all = [Place::Threads, Place::Moving, Place::Staying].into_iter().filter_map(least);
    all.min_by_key(|(wall, _)| *wall).map(|(_, place)| place)
}

/// Measures the time of all calls for groups of `pack` events; `None` where one of them fails, or an event cannot be opened
/// here at all.
pub fn run(list: &EventList, cpus: &[u32], pack: Option<usize>, place: Place) -> Option<Duration> {
    let ready: Option<Vec<Ready>> = cpus.iter().map(|&cpu| Ready::new(cpu, list, pack)).collect();
    let mut ready = ready?;
    if place != Place::Threads {
        sys::make_room(list.events.len() * cpus.len());
        let mut guard = Guard::new();
        let mut go = |cpu: u32| {
            if place == Place::Moving {
                guard.move_to(cpu);
            }
        };
        let began = Instant::now();
        for one in &mut ready {
            go(one.cpu);
            one.count()?;
        }
        for one in &mut ready {
            go(one.cpu);
            sys::close_all(std::mem::take(&mut one.fds));
        }
        return (!cpus.is_empty()).then(|| began.elapsed());
    }
    let mut ready = ready.into_iter();
    let mut own = ready.next()?;
    sys::make_room(list.events.len());
    let (waiting, go, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let until = |done: &dyn Fn() -> bool| {
        let mut looks = 0_u32;
        while !done() {
            // Threads that may not have a CPU each would wait for one another for good.
            looks = looks.saturating_add(1);
            if looks < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    };
    let mut guard = Guard::new();
    let wall = std::thread::scope(|scope| {
        let mut others = 0;
        let mut handles = Vec::new();
        for mut one in ready {
            let (waiting, go, failed) = (&waiting, &go, &failed);
            let work = move || {
                let _ = sys::set_affinity(&Mask::one(one.cpu));
                let _ = sys::own_descriptor_table();
                sys::make_room(one.fds.capacity());
                waiting.fetch_add(1, Ordering::AcqRel);
                until(&|| go.load(Ordering::Acquire) > 0);
                if one.calls().is_none() {
                    failed.fetch_add(1, Ordering::AcqRel);
                }
                waiting.fetch_sub(1, Ordering::AcqRel);
            };
            match std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work) {
                Ok(handle) => {
                    others += 1;
                    handles.push(handle);
                }
                Err(_) => drop(failed.fetch_add(1, Ordering::AcqRel)),
            }
        }
        // Only now: threads have the affinity of the one that starts them.
        guard.move_to(own.cpu);
        until(&|| waiting.load(Ordering::Acquire) == others);
        let began = Instant::now();
        go.store(1, Ordering::Release);
        if own.calls().is_none() {
            failed.fetch_add(1, Ordering::AcqRel);
        }
        until(&|| waiting.load(Ordering::Acquire) == 0);
        began.elapsed()
    });
    (failed.load(Ordering::Acquire) == 0).then_some(wall)
}
