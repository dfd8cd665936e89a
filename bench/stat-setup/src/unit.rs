//! The events of one CPU and the system calls of each phase; caller and order are the crew's choice.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perf_event_open_sys::bindings::{
    PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, perf_event_attr,
};

use crate::list::{EventList, Openable};
use crate::method::{Job, MAX_PACK, Pack, Phase, Recorder};
use crate::sys;

/// Count of one event on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Unscaled count.
    pub(crate) value: u64,
    /// Time enabled, ns.
    pub(crate) enabled: u64,
    /// Time on a counter, ns.
    pub(crate) running: u64,
}

/// An open group: the leader and its members.
#[derive(Clone, Copy, Debug)]
struct Led {
    /// Index of its pack in [`Shared::packs`].
    pack: usize,
    /// Range of its events in [`Unit::order`].
    first: usize,
    len: usize,
}

/// A failed call on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) event: usize,
    pub(crate) cpu: u32,
    pub(crate) errno: i32,
}

/// What is made on every CPU before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The calls of a phase.
    Phase(Phase),
    /// After an open: opens each event of a broken group as a group of its own.
    Regroup,
}

/// State shared by all CPUs.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) list: &'a EventList,
    packs: &'a [Pack],
    /// The events of all packs, in the order of their opens, each with its pack.
    slots: Vec<(usize, usize)>,
    /// Events the host does not support: not opened again on further CPUs.
    unsupported: Vec<AtomicBool>,
    /// Weak groups that a member could not join on some CPU: broken up on every CPU by [`Step::Regroup`].
    pub(crate) broken: Vec<AtomicBool>,
    close_ranges: bool,
}

/// Returns whether perf reports this errno as `<not supported>`.
pub(crate) fn is_unsupported(errno: i32) -> bool {
    matches!(errno, libc::EINVAL | libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP | libc::ENXIO)
}

impl<'a> Shared<'a> {
    pub(crate) fn new(job: &Job<'a>, packs: &'a [Pack]) -> Self {
        let flags = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
        let slots = packs.iter().enumerate().flat_map(|(at, pack)| pack.members.iter().map(move |&event| (at, event)));
        Self {
            list: job.list,
            unsupported: flags(job.list.events.len()),
            broken: flags(packs.len()),
            slots: slots.collect(),
            packs,
            close_ranges: job.method.close_ranges,
        }
    }

    fn is_broken(&self, pack: usize) -> bool {
        self.broken[pack].load(Ordering::Relaxed)
    }

    pub(crate) fn any_broken(&self) -> bool {
        self.broken.iter().any(|broken| broken.load(Ordering::Relaxed))
    }
}

/// Returns the attribute of an event that leads a group, or of a member.
pub(crate) fn prepared(open: &Openable, leads: bool) -> perf_event_attr {
    let mut attr = open.attr;
    attr.read_format = u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
    if leads {
        // Members are opened enabled and follow their leader.
        attr.set_disabled(1);
        // Only the leader is read. PERF_FORMAT_GROUP on members makes each open check the size of the whole group.
        attr.read_format |= u64::from(PERF_FORMAT_GROUP);
    }
    attr
}

/// Events of one CPU.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) cpu: u32,
    fds: Vec<Option<OwnedFd>>,
    leds: Vec<Led>,
    /// Open events in open order: each leader, then its members.
    order: Vec<usize>,
    counts: Vec<Option<Count>>,
    failures: Vec<Failure>,
    buffer: Vec<u64>,
}

impl Unit {
    pub(crate) fn new(cpu: u32, shared: &Shared<'_>) -> Self {
        let events = shared.list.events.len();
        Self {
            cpu,
            fds: (0..events).map(|_| None).collect(),
            leds: Vec::with_capacity(shared.packs.len()),
            order: Vec::with_capacity(events),
            counts: vec![None; events],
            failures: Vec::new(),
            buffer: vec![0; MAX_PACK * 2 + 3],
        }
    }

    /// Makes all calls of a step. The time of a call begins at the end of the one before: another clock reading for each of a
    /// thousand calls would be seen in the whole.
    pub(crate) fn step(&mut self, shared: &Shared<'_>, step: Step, rec: &mut Recorder) {
        rec.begin();
        (0..self.calls(shared, step)).for_each(|at| self.call(shared, step, at, rec));
    }

    /// Returns the number of calls of a step; those that are made together are one.
    pub(crate) fn calls(&self, shared: &Shared<'_>, step: Step) -> usize {
        match step {
            Step::Phase(Phase::Open) => shared.slots.len(),
            Step::Phase(Phase::Enable | Phase::Read | Phase::Disable) => self.leds.len(),
            Step::Phase(Phase::Close) if !shared.close_ranges => self.order.len(),
            _ => 1,
        }
    }

    /// Makes the call of this number, if there is one.
    pub(crate) fn call(&mut self, shared: &Shared<'_>, step: Step, at: usize, rec: &mut Recorder) {
        match step {
            Step::Phase(Phase::Open) => self.open(shared, shared.slots[at], rec),
            Step::Phase(Phase::Enable) => self.control(at, sys::enable, rec),
            Step::Phase(Phase::Disable) => self.control(at, sys::disable, rec),
            Step::Phase(Phase::Read) => self.read(at, rec),
            Step::Phase(Phase::Close) if shared.close_ranges => self.close_ranges(rec),
            Step::Phase(Phase::Close) => {
                // Members are closed first, because closing a leader turns each of its members into a group of its own.
                if let Some(&event) = self.order.iter().rev().nth(at) {
                    self.close(event, rec);
                }
            }
            Step::Regroup => self.regroup(shared, rec),
        }
    }

    /// Opens one event of a pack; the first open event of the pack is its leader.
    fn open(&mut self, shared: &Shared<'_>, (pack, event): (usize, usize), rec: &mut Recorder) {
        if shared.is_broken(pack) {
            // The pack is broken up: [`Step::Regroup`] opens all of its events later.
            return;
        }
        let led = self.leds.last().copied().filter(|led| led.pack == pack);
        match self.try_open(shared, event, led, rec) {
            // perf breaks a group up at the first two; by E2BIG the kernel refuses a group with a read of more than 16 KiB.
            Some(libc::EINVAL | libc::EBADF | libc::E2BIG) if shared.packs[pack].weak && led.is_some() => {
                shared.broken[pack].store(true, Ordering::Relaxed);
            }
            Some(errno) => self.failed(shared, event, errno),
            None => {}
        }
        if self.fds[event].is_some() {
            self.joined(pack, event, led.is_some());
        }
    }

    fn joined(&mut self, pack: usize, event: usize, has_leader: bool) {
        match self.leds.last_mut() {
            Some(led) if has_leader => led.len += 1,
            _ => self.leds.push(Led { pack, first: self.order.len(), len: 1 }),
        }
        self.order.push(event);
    }

    fn failed(&mut self, shared: &Shared<'_>, event: usize, errno: i32) {
        if is_unsupported(errno) {
            shared.unsupported[event].store(true, Ordering::Relaxed);
        }
        self.failures.push(Failure { event, cpu: self.cpu, errno });
    }

    /// Makes one perf_event_open; returns the errno of a failure.
    fn try_open(&mut self, shared: &Shared<'_>, event: usize, led: Option<Led>, rec: &mut Recorder) -> Option<i32> {
        let described = &shared.list.events[event];
        if shared.unsupported[event].load(Ordering::Relaxed) || !described.counts_on(self.cpu) {
            return None;
        }
        let Ok(open) = &described.open else { return None };
        let leader = led.and_then(|led| self.fds[self.order[led.first]].as_ref());
        let attr = prepared(open, leader.is_none());
        let opened = sys::open(&attr, self.cpu, leader.map(AsFd::as_fd));
        rec.call();
        match opened {
            Ok(fd) => {
                self.fds[event] = Some(fd);
                None
            }
            Err(error) => Some(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn regroup(&mut self, shared: &Shared<'_>, rec: &mut Recorder) {
        let (broken, whole): (Vec<Led>, _) = self.leds.iter().partition(|led| shared.is_broken(led.pack));
        for led in broken {
            for at in (led.first..led.first + led.len).rev() {
                self.close(self.order[at], rec);
            }
        }
        self.leds = whole;
        for &(pack, event) in shared.slots.iter().filter(|(pack, _)| shared.is_broken(*pack)) {
            match self.try_open(shared, event, None, rec) {
                Some(errno) => self.failed(shared, event, errno),
                None if self.fds[event].is_some() => self.joined(pack, event, false),
                None => {}
            }
        }
    }

    /// Makes an ioctl on a leader.
    fn control(&mut self, led: usize, call: fn(&OwnedFd) -> io::Result<()>, rec: &mut Recorder) {
        if let Some(Led { first, .. }) = self.leds.get(led)
            && let Some(fd) = &self.fds[self.order[*first]]
        {
            let done = call(fd);
            rec.call();
            self.note(led, &done);
        }
    }

    /// Records a failed call on a leader as a failure of every event of the group.
    fn note(&mut self, led: usize, done: &io::Result<()>) {
        if let (Err(error), Some(led)) = (done, self.leds.get(led).copied()) {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            for at in led.first..led.first + led.len {
                self.failures.push(Failure { event: self.order[at], cpu: self.cpu, errno });
            }
        }
    }

    /// Makes one read per group: number of events, times, one count per event.
    fn read(&mut self, led: usize, rec: &mut Recorder) {
        let Some(&Led { first, len, .. }) = self.leds.get(led) else { return };
        let Some(fd) = self.fds[self.order[first]].as_ref() else { return };
        let words = 3 + len;
        if self.buffer.len() < words {
            self.buffer.resize(words, 0);
        }
        let got = sys::read(fd, &mut self.buffer[..words]);
        rec.call();
        match got {
            Ok(got) if got == words && self.buffer[0] == len as u64 => {
                let (enabled, running) = (self.buffer[1], self.buffer[2]);
                for (at, &value) in (first..first + len).zip(&self.buffer[3..words]) {
                    self.counts[self.order[at]] = Some(Count { value, enabled, running });
                }
            }
            // A pinned event in error state, and an event of a removed PMU, read as end of file.
            Ok(_) => self.note(led, &Err(io::Error::from_raw_os_error(libc::ENODEV))),
            Err(error) => self.note(led, &Err(error)),
        }
    }

    fn close(&mut self, event: usize, rec: &mut Recorder) {
        if let Some(fd) = self.fds[event].take() {
            // close of a perf event returns no error worth reporting.
            let _ = sys::close(fd);
            rec.call();
        }
    }

    /// Closes every event, descriptors in a row by one call.
    fn close_ranges(&mut self, rec: &mut Recorder) {
        let fds: Vec<OwnedFd> = self.order.iter().filter_map(|&event| self.fds[event].take()).collect();
        if !fds.is_empty() {
            sys::close_all(fds);
            rec.call();
        }
    }
}

// Outcome of each event: a count, or the reason for its absence in perf's terms.

/// Outcome of an event over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Counted on every CPU of the job.
    Counted {
        /// Sum over CPUs, unscaled.
        value: u64,
        /// Time enabled, summed over CPUs, ns.
        enabled_ns: u64,
        /// Time on a counter, summed over CPUs, ns; less than `enabled_ns` if the event was multiplexed.
        running_ns: u64,
    },
    /// perf's `<not supported>`: the host cannot count the event or does not know it.
    NotSupported {
        /// Reason.
        why: String,
    },
    /// perf's `<not counted>`: open, enable or read failed on at least one CPU, or a CPU went away, so the sum is incomplete.
    NotCounted {
        /// Reason and place.
        why: String,
    },
}

impl Outcome {
    /// Returns whether the event was counted on every CPU.
    pub const fn is_whole(&self) -> bool {
        matches!(self, Self::Counted { .. })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Counted { .. } => f.write_str("counted"),
            Self::NotSupported { why } => write!(f, "<not supported>: {why}"),
            Self::NotCounted { why } => write!(f, "<not counted>: {why}"),
        }
    }
}

/// Returns the text of an errno, with the remedy where one is known.
fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match errno {
        libc::EACCES | libc::EPERM => {
            format!("{text}: counting on a CPU needs root, CAP_PERFMON, or kernel.perf_event_paranoid=0")
        }
        libc::ENOENT => format!("{text}: no PMU of this host counts it"),
        libc::EMFILE => format!("{text}: the limit of open files (ulimit -Hn, fs.nr_open) is used up"),
        libc::ENFILE => format!("{text}: the system's limit of open files (fs.file-max) is used up"),
        libc::ENODEV => format!("{text}: the CPU or the PMU went away"),
        _ => text,
    }
}

/// Combines the events of all CPUs, which counted for `counted` at least and of which `gone` are offline now;
/// also returns the number of open descriptors.
pub(crate) fn outcomes(job: &Job<'_>, units: &[&Unit], counted: Duration, gone: &[u32]) -> (Vec<Outcome>, usize) {
    let opened = units.iter().map(|unit| unit.fds.iter().flatten().count()).sum();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // A CPU that is unplugged stops its events for good, even if it comes back: their enabled times end there. The clocks need
    // not agree to the ns.
    let least = ns(counted.saturating_sub(Duration::from_millis(1)) * 15 / 16);
    let outcome = |event| of_event(job, units, event, least, gone);
    ((0..job.list.events.len()).map(outcome).collect(), opened)
}

fn of_event(job: &Job<'_>, units: &[&Unit], event: usize, least: u64, gone: &[u32]) -> Outcome {
    let described = &job.list.events[event];
    if let Err(why) = &described.open {
        return Outcome::NotSupported { why: why.clone() };
    }
    let failures = || units.iter().flat_map(|unit| &unit.failures).filter(|failure| failure.event == event);
    let wanted: Vec<u32> = job.cpus.iter().copied().filter(|&cpu| described.counts_on(cpu)).collect();
    let mut sum = Count::default();
    let mut whole = 0;
    let mut stopped = None;
    for unit in units.iter().filter(|unit| wanted.contains(&unit.cpu) && unit.fds[event].is_some()) {
        let Some(count) = unit.counts[event] else { continue };
        if count.enabled < least || gone.contains(&unit.cpu) {
            stopped = stopped.or(Some(Failure { event, cpu: unit.cpu, errno: libc::ENODEV }));
            continue;
        }
        if failures().any(|failure| failure.cpu == unit.cpu) {
            continue;
        }
        sum.value = sum.value.wrapping_add(count.value);
        sum.enabled += count.enabled;
        sum.running += count.running;
        whole += 1;
    }
    if whole == wanted.len() && whole > 0 {
        // A group that never fits on the PMU is enabled but never runs.
        if sum.running == 0 {
            return Outcome::NotCounted { why: "it never got a counter (running time 0)".to_owned() };
        }
        return Outcome::Counted { value: sum.value, enabled_ns: sum.enabled, running_ns: sum.running };
    }
    if wanted.is_empty() {
        return Outcome::NotCounted { why: "its PMU counts on none of these CPUs".to_owned() };
    }
    let Some(first) = failures().next().copied().or(stopped) else {
        return Outcome::NotCounted { why: format!("counted on {whole} of {} CPUs only", wanted.len()) };
    };
    let why = errno_text(first.errno);
    if is_unsupported(first.errno) && whole == 0 {
        return Outcome::NotSupported { why };
    }
    let place = if wanted.len() == 1 || whole == 0 { String::new() } else { format!(" (CPU {} at first)", first.cpu) };
    match (whole, first.errno) {
        (0, libc::EACCES | libc::EPERM) => Outcome::NotSupported { why },
        (0, _) => Outcome::NotCounted { why },
        _ => Outcome::NotCounted { why: format!("whole on {whole} of {} CPUs only: {why}{place}", wanted.len()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{EventList, parse::parse, resolve::resolve, sysfs::Sysfs};
    use crate::method::Method;
    use crate::unit::Failure;

    fn list() -> EventList {
        resolve(&parse("cs,nothing").unwrap(), &mut Sysfs::at("/nonexistent"))
    }

    fn job(list: &EventList) -> Job<'_> {
        Job { list, cpus: &[0, 1], method: Method::CPU_MAJOR }
    }

    fn report(cpu: u32, count: Option<Count>, errno: Option<i32>) -> Unit {
        let list = list();
        let mut unit = Unit::new(cpu, &Shared::new(&job(&list), &[]));
        unit.failures.extend(errno.map(|errno| Failure { event: 0, cpu, errno }));
        let open = count.is_some() || matches!(errno, Some(libc::ENODEV));
        unit.fds[0] = open.then(|| std::fs::File::open("/dev/null").unwrap().into());
        unit.counts[0] = count;
        unit
    }

    fn fate(units: &[Unit]) -> Outcome {
        fate_after(units, Duration::ZERO, &[])
    }

    fn fate_after(units: &[Unit], counted: Duration, gone: &[u32]) -> Outcome {
        let list = list();
        let (mut found, _) = outcomes(&job(&list), &units.iter().collect::<Vec<_>>(), counted, gone);
        assert!(matches!(&found[1], Outcome::NotSupported { why } if why.contains("unknown event")));
        found.remove(0)
    }

    const COUNT: Option<Count> = Some(Count { value: 5, enabled: 100, running: 50 });

    #[test]
    fn an_incomplete_sum_is_not_shown_as_a_count() {
        let whole = fate(&[report(0, COUNT, None), report(1, COUNT, None)]);
        assert_eq!(whole, Outcome::Counted { value: 10, enabled_ns: 200, running_ns: 100 });
        for (errno, needle) in [
            (libc::EMFILE, "ulimit -Hn"),
            // The event was opened and fails at the read, because the PMU or the CPU went away.
            (libc::ENODEV, "went away"),
            (libc::EINVAL, "whole on 1 of 2"),
        ] {
            let partial = fate(&[report(0, COUNT, None), report(1, None, Some(errno))]);
            assert!(matches!(&partial, Outcome::NotCounted { why } if why.contains(needle)), "{partial:?}");
        }
        // Unplugged while it counted: read whole, but its time ended before the others'.
        let second = Duration::from_secs(1);
        let for_ms = |ms: u64| Some(Count { value: 5, enabled: ms * 1_000_000, running: ms * 1_000_000 });
        let short = fate_after(&[report(0, for_ms(1001), None), report(1, for_ms(400), None)], second, &[]);
        let why =
            "whole on 1 of 2 CPUs only: No such device (os error 19): the CPU or the PMU went away (CPU 1 at first)";
        assert_eq!(short, Outcome::NotCounted { why: why.to_owned() });
        let both = [report(0, for_ms(1001), None), report(1, for_ms(1000), None)];
        // Unplugged so late that its time is as good as whole.
        assert_eq!(fate_after(&both, second, &[1]), short);
        let long = fate_after(&both, second, &[]);
        assert!(matches!(long, Outcome::Counted { value: 10, .. }), "{long:?}");
        let silent = fate(&[report(0, COUNT, None)]);
        assert!(matches!(&silent, Outcome::NotCounted { why } if why.contains("1 of 2")), "{silent:?}");
        let never = Some(Count { value: 0, enabled: 100, running: 0 });
        let starved = fate(&[report(0, never, None), report(1, never, None)]);
        assert!(matches!(&starved, Outcome::NotCounted { why } if why.contains("never got")), "{starved:?}");
    }

    #[test]
    fn a_failure_on_every_cpu_is_not_supported() {
        for (errno, needle) in
            [(libc::ENOENT, "No such"), (libc::EACCES, "perf_event_paranoid"), (libc::EOPNOTSUPP, "")]
        {
            let none = fate(&[report(0, None, Some(errno)), report(1, None, None)]);
            assert!(matches!(&none, Outcome::NotSupported { why } if why.contains(needle)), "{none:?}");
        }
        let full = fate(&[report(0, None, Some(libc::EMFILE)), report(1, None, Some(libc::EMFILE))]);
        assert!(matches!(full, Outcome::NotCounted { .. }));
    }
}
