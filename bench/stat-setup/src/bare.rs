//! The system calls of a set-up with nothing around them: the limit of what any method that makes these calls can reach here.
//!
//! Neither a clock nor a count nor a list is looked at between two calls, and threads are there before the clock starts.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings::perf_event_attr;

use crate::affinity::Guard;
use crate::list::EventList;
use crate::method::{Method, Order, layout};
use crate::sys::{self, Mask};
use crate::unit::prepared;

/// The calls of one CPU, prepared.
struct Ready {
    cpu: u32,
    /// The attributes of each group's events, the leader first.
    groups: Vec<Vec<perf_event_attr>>,
    fds: Vec<OwnedFd>,
    leaders: Vec<usize>,
    buffer: Vec<u64>,
}

impl Ready {
    /// Opens, enables and reads.
    fn count(&mut self) -> io::Result<()> {
        for group in &self.groups {
            let leader = self.fds.len();
            self.leaders.push(leader);
            for attr in group {
                let group = self.fds.get(leader).map(|fd| fd.as_fd());
                self.fds.push(sys::open(attr, self.cpu, group)?);
            }
        }
        self.leaders.iter().try_for_each(|&leader| sys::enable(&self.fds[leader]))?;
        self.leaders.iter().try_for_each(|&leader| sys::read(&self.fds[leader], &mut self.buffer).map(drop))
    }

    fn close(&mut self) {
        sys::close_all(std::mem::take(&mut self.fds));
    }
}

/// Measures the time of the calls of `method`'s groups: by a thread on each CPU, or by one that moves to each; `None` where one of
/// them fails, or an event cannot be opened here at all.
pub fn run(list: &EventList, cpus: &[u32], method: Method) -> Option<Duration> {
    let attr = |place: usize, event: usize| Some(prepared(list.events[event].open.as_ref().ok()?, place == 0));
    let packs = layout(list, method.pack);
    let group = |members: &[usize]| members.iter().enumerate().map(|(place, &event)| attr(place, event)).collect();
    let groups: Option<Vec<Vec<perf_event_attr>>> = packs.iter().map(|pack| group(&pack.members)).collect();
    let groups = groups.filter(|_| !cpus.is_empty() && list.events.iter().all(|event| event.open.is_ok()))?;
    let (events, largest) = (list.events.len(), groups.iter().map(Vec::len).max()?);
    let ready = |&cpu: &u32| Ready {
        cpu,
        groups: groups.clone(),
        fds: Vec::with_capacity(events),
        leaders: Vec::with_capacity(groups.len()),
        buffer: vec![0; largest + 3],
    };
    let ready: Vec<Ready> = cpus.iter().map(ready).collect();
    let mut guard = Guard::new();
    let times = if method.order == Order::Threads {
        by_threads(ready, events, &mut guard)
    } else {
        alone(ready, events, &mut guard)
    };
    times.ok().and_then(|all| {
        Some(all.iter().map(|(_, end)| end).max()?.duration_since(*all.iter().map(|(begin, _)| begin).min()?))
    })
}

/// Begin and end of the calls.
type Span = (Instant, Instant);

fn alone(mut ready: Vec<Ready>, events: usize, guard: &mut Guard) -> io::Result<Vec<Span>> {
    sys::make_room(events * ready.len());
    let began = Instant::now();
    for one in &mut ready {
        guard.move_to(one.cpu);
        one.count()?;
    }
    // Events are closed only now, because the last close of a kind and the open after it interrupt all CPUs.
    for one in &mut ready {
        guard.move_to(one.cpu);
        one.close();
    }
    Ok(vec![(began, Instant::now())])
}

fn by_threads(ready: Vec<Ready>, events: usize, guard: &mut Guard) -> io::Result<Vec<Span>> {
    let (wanted, there) = (AtomicUsize::new(ready.len()), AtomicUsize::new(0));
    let work = &|mut one: Ready| {
        sys::make_room(events);
        there.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0_u32;
        while there.load(Ordering::Acquire) < wanted.load(Ordering::Acquire) {
            // Threads that may not have a CPU each would wait for one another for good.
            looks = looks.saturating_add(1);
            if looks < 10_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let began = Instant::now();
        let done = one.count();
        one.close();
        done.map(|()| (began, Instant::now()))
    };
    std::thread::scope(|scope| {
        let (mut ready, mut threads) = (ready.into_iter(), Vec::new());
        let own = ready.next();
        for one in ready {
            let thread = move || {
                let _ = sys::set_affinity(&Mask::one(one.cpu));
                let _ = sys::own_descriptor_table();
                work(one)
            };
            let started = std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, thread);
            // The threads that are there wait for no others.
            threads.push(started.inspect_err(|_| wanted.store(0, Ordering::Release))?);
        }
        // This thread moves only now, because threads inherit the affinity of the one that starts them.
        let own = own.map(|own| {
            guard.move_to(own.cpu);
            work(own)
        });
        let theirs =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))));
        own.into_iter().chain(theirs).collect()
    })
}
