//! One set-up, from the first open to the last close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::list::sysfs::Sysfs;
use crate::method::{Descriptors, Job, Order, Pack, Phase, PhaseCost, Recorder, Use, Watch, layout};
use crate::sys::{self, Mask};
use crate::unit::{Outcome, Report, Shared, Unit, fill_duration, outcomes};

/// Result of a set-up.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Cost of each phase, in order.
    pub phases: Vec<PhaseCost>,
    /// Outcome of each event, in the order of the list.
    pub outcomes: Vec<Outcome>,
    /// Descriptors open at the same time.
    pub opened: usize,
    /// Number of weak groups that were broken up.
    pub broken: usize,
    /// CPUs whose thread did not start: the caller served them itself.
    pub threadless: usize,
    /// Why nothing was opened, if the events do not fit into the tables that threads got.
    pub short: Option<String>,
}

/// Called after each phase, outside of the timed section; with the outcomes after the phase that determines them.
pub type Hook<'a> = &'a mut dyn FnMut(Phase, Option<&[Outcome]>);

/// Carries out all phases of `job.purpose`.
pub fn run(job: &Job<'_>, hook: Hook<'_>) -> Finished {
    let packs = layout(job.list, job.method.pack);
    let shared = shared(job, &packs);
    match job.method.order {
        Order::Threads => {
            let (mut done, ends) = with_crew(job, &shared, |crew, watch| match crew.short() {
                Some(why) => nothing(job, crew.threadless(), why),
                None => phases(job, &shared, crew, Some(watch), hook),
            });
            // As the first phase has their starts, the last call's has the ends of the threads.
            if let Some(close) = done.phases.iter_mut().find(|cost| cost.phase == Phase::Close) {
                close.wall += ends;
            }
            done
        }
        Order::EventMajor | Order::CpuMajor(_) => {
            let watch = Watch::start();
            let mut crew = Alone::new(job, &shared);
            phases(job, &shared, &mut crew, Some(watch), hook)
        }
    }
}

fn shared<'a>(job: &Job<'a>, packs: &'a [Pack]) -> Shared<'a> {
    let flags = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
    Shared {
        list: job.list,
        unsupported: flags(job.list.events.len()),
        broken: flags(packs.len()),
        packs,
        ring_pages: job.ring_pages,
        close_ranges: job.method.close_ranges,
        keep_last: job.method.keep_last,
    }
}

/// Returns the result of a set-up that opened nothing.
fn nothing(job: &Job<'_>, threadless: usize, why: String) -> Finished {
    let outcomes = job.list.events.iter().map(|_| Outcome::NotCounted { why: why.clone() }).collect();
    Finished { phases: Vec::new(), outcomes, opened: 0, broken: 0, threadless, short: Some(why) }
}

fn phases(job: &Job<'_>, shared: &Shared<'_>, crew: &mut dyn Crew, first: Option<Watch>, hook: Hook<'_>) -> Finished {
    let mut costs = Vec::new();
    let mut first = first;
    let mut enabled = None;
    let mut settled: Option<(Vec<Outcome>, usize)> = None;
    for &phase in job.purpose.phases() {
        if phase == Phase::LastClose && !job.method.keep_last {
            continue;
        }
        // The time of the first phase includes the start of the threads.
        let watch = first.take().unwrap_or_else(Watch::start);
        let counted = enabled.map(|since: Instant| since.elapsed());
        let mut rec = crew.phase(phase);
        if phase == Phase::Open && shared.any_broken() {
            rec.absorb(crew.break_up());
        }
        costs.push(watch.stop(phase, rec));
        // Outcomes are final after the read; without a read, after the open.
        let settles = matches!((phase, job.purpose), (Phase::Read, _) | (Phase::Open, Use::Mmap));
        if settles {
            // A CPU that went away while it counted reads as if whole: its events ended with it.
            let online = Sysfs::host().online();
            let gone: Vec<u32> = if online.is_empty() { Vec::new() } else { job.cpus.to_vec() };
            let gone: Vec<u32> = gone.into_iter().filter(|cpu| !online.contains(cpu)).collect();
            let mut found = crew.outcomes(counted.unwrap_or_default(), &gone);
            fill_duration(job.list, counted.unwrap_or_default(), &mut found.0);
            settled = Some(found);
        }
        if phase == Phase::Enable {
            enabled = Some(Instant::now());
        }
        hook(phase, settled.as_ref().filter(|_| settles).map(|(outcomes, _)| outcomes.as_slice()));
    }
    let (outcomes, opened) = settled.unwrap_or_else(|| crew.outcomes(Duration::ZERO, &[]));
    Finished {
        phases: costs,
        outcomes,
        opened,
        broken: shared.broken.iter().filter(|broken| broken.load(Ordering::Relaxed)).count(),
        threadless: crew.threadless(),
        short: None,
    }
}

// RLIMIT_NOFILE, raised once before a set-up.

/// RLIMIT_NOFILE before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimit {
    /// Soft limit before.
    pub before: u64,
    /// Soft limit now.
    pub now: u64,
    /// Hard limit now.
    pub hard: u64,
    /// Events that fit into one descriptor table.
    #[serde(default)]
    pub room: u64,
}

/// Raises the limit of open files to fit `descriptors` beside the files that are open: the soft limit, and the hard one
/// where the user may (CAP_SYS_RESOURCE), as perf does. What cannot be raised stays as it is.
///
/// # Errors
/// Errors of getrlimit.
pub fn raise_file_limit(descriptors: u64) -> std::io::Result<FileLimit> {
    // A sandbox may refuse getrlimit, and perf_event_open not.
    let (before, mut hard) = sys::file_limit().or_else(|error| {
        std::fs::read_to_string("/proc/self/limits").ok().and_then(|text| open_files_of(&text)).ok_or(error)
    })?;
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let most = most.unwrap_or(u64::MAX);
    let open = open_files();
    let wanted = descriptors.saturating_add(open + SPARE);
    // A table stops growing at fs.nr_open even if both limits are above it.
    let mut now = before.min(most);
    if wanted > now {
        let raised =
            limits(wanted, hard, most).into_iter().find(|&(soft, hard)| sys::set_file_limit(soft, hard).is_ok());
        (now, hard) = raised.unwrap_or((now, hard));
    }
    Ok(FileLimit { before, now, hard, room: now.saturating_sub(open) })
}

/// Returns the soft and the hard limit of open files in /proc/self/limits; "unlimited" is no number.
fn open_files_of(limits: &str) -> Option<(u64, u64)> {
    let row = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = row.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    Some((words.next()?, words.next()?))
}

/// Returns the number of files that this process has open.
fn open_files() -> u64 {
    // The listing itself is one of them.
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

/// Returns the soft and hard limits to try in turn for `wanted` descriptors under the hard limit `hard` and fs.nr_open.
/// setrlimit refuses a hard limit above fs.nr_open, even the present one.
fn limits(wanted: u64, hard: u64, nr_open: u64) -> [(u64, u64); 2] {
    [hard.max(wanted), hard].map(|hard| (wanted.min(hard).min(nr_open), hard.min(nr_open)))
}

/// Descriptors raised for other files, such as the monitor's: asked for, and not held against a set-up that needs none.
const SPARE: u64 = 64;

// perf's affinity guard (4804e0111662): saves the CPU mask, moves from CPU to CPU, restores the mask if it was changed.

/// Binding of the calling thread; undone on drop.
#[derive(Debug)]
pub(crate) struct Guard {
    saved: Option<Mask>,
    at: Option<u32>,
    calls: u64,
}

impl Guard {
    /// Saves the mask. If that fails, `move_to` does nothing because the mask could not be restored.
    pub(crate) fn new() -> Self {
        Self { saved: sys::affinity().ok(), at: None, calls: 1 }
    }

    /// Moves to `cpu`. A refusal (CPU outside of the cpuset) is ignored; calls then cost an IPI each.
    pub(crate) fn move_to(&mut self, cpu: u32) {
        if self.saved.is_none() || self.at == Some(cpu) {
            return;
        }
        self.calls += 1;
        if sys::set_affinity(&Mask::one(cpu)).is_ok() {
            self.at = Some(cpu);
        }
    }

    /// Returns whether it has a CPU.
    pub(crate) fn is_bound(&self) -> bool {
        self.at.is_some()
    }

    /// Restores the mask; returns the number of system calls made by this guard.
    pub(crate) fn back(mut self) -> u64 {
        self.restore();
        self.calls
    }

    fn restore(&mut self) {
        if let (Some(mask), Some(_)) = (&self.saved, self.at.take()) {
            self.calls += 1;
            // Fails only if all CPUs of the saved mask are offline now.
            let _ = sys::set_affinity(mask);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.restore();
    }
}

// The threads that own the events of each CPU, behind one interface.

/// Carries out phases on every CPU.
pub(crate) trait Crew {
    /// Makes the calls of a phase on every CPU.
    fn phase(&mut self, phase: Phase) -> Recorder;
    /// Closes and reopens the members of broken weak groups: passes A and B of [`crate::unit::Unit`].
    fn break_up(&mut self) -> Recorder;
    /// Returns the outcome of each event, of which each counted for `counted` at least, and the number of open descriptors;
    /// the CPUs of `gone` are offline now.
    fn outcomes(&mut self, counted: Duration, gone: &[u32]) -> (Vec<Outcome>, usize);
    /// Returns the number of CPUs that should have a thread and have none.
    fn threadless(&self) -> usize {
        0
    }
}

// One thread for all CPUs: event by event, or CPU by CPU.

/// The calling thread, with the events of every CPU.
#[derive(Debug)]
pub(crate) struct Alone<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    units: Vec<Unit>,
}

impl<'a> Alone<'a> {
    pub(crate) fn new(job: &'a Job<'a>, shared: &'a Shared<'a>) -> Self {
        Self { job, shared, units: job.cpus.iter().map(|&cpu| Unit::new(cpu, shared)).collect() }
    }

    /// Opens one event on every CPU before the next event.
    fn event_major(&mut self, phase: Phase, rec: &mut Recorder) {
        let leaders = self.units.iter().map(Unit::leaders).max().unwrap_or(0);
        match phase {
            Phase::Open => {
                for (pack, group) in self.shared.packs.iter().enumerate() {
                    for position in 0..group.members.len() {
                        for unit in &mut self.units {
                            unit.open_one(self.shared, pack, position, rec);
                        }
                    }
                }
            }
            Phase::Enable | Phase::Read | Phase::Disable => {
                for led in 0..leaders {
                    for unit in &mut self.units {
                        match phase {
                            Phase::Enable => unit.enable(led, rec),
                            Phase::Read => unit.read(led, rec),
                            _ => unit.disable(led, rec),
                        }
                    }
                }
            }
            Phase::Close => {
                for event in (0..self.job.list.events.len()).rev() {
                    for unit in &mut self.units {
                        unit.close_event(event, rec);
                    }
                }
            }
            Phase::Map | Phase::Unmap | Phase::LastClose => {
                for unit in &mut self.units {
                    unit.phase(self.shared, phase, rec);
                }
            }
        }
    }
}

impl Crew for Alone<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let mut rec = Recorder::new(self.job.list.events.len() * self.units.len());
        let Order::CpuMajor(moving) = self.job.method.order else {
            self.event_major(phase, &mut rec);
            return rec;
        };
        let mut guard = moving.has(phase).then(Guard::new);
        for unit in &mut self.units {
            if let Some(guard) = &mut guard {
                guard.move_to(unit.cpu);
            }
            unit.phase(self.shared, phase, &mut rec);
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = Recorder::new(0);
        let moving = matches!(self.job.method.order, Order::CpuMajor(moving) if moving.has(Phase::Open));
        let mut guard = moving.then(Guard::new);
        for pass in [Unit::close_broken, Unit::reopen_broken] {
            for unit in &mut self.units {
                if let Some(guard) = &mut guard {
                    guard.move_to(unit.cpu);
                }
                pass(unit, self.shared, &mut rec);
            }
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn outcomes(&mut self, counted: Duration, gone: &[u32]) -> (Vec<Outcome>, usize) {
        let reports: Vec<_> = self.units.iter().map(Report::of).collect();
        outcomes(self.job, &reports, counted, gone)
    }
}

// One pinned thread per CPU, kept for all phases: the caller's own for the CPU that it is on, a worker for each other one.
//
// Each worker has its own descriptor table. A table that is shared by threads waits for an RCU grace period when it
// grows (`expand_fdtable`), serialises opens on its lock, and applies RLIMIT_NOFILE to all CPUs together. A private
// table avoids all three and is freed with its thread.
//
// Most phases take less time than a thread takes to wake up, so both sides look for the next message for a while before they sleep.

/// Request to a worker.
#[derive(Clone, Copy, Debug)]
enum Request {
    Phase(Phase),
    CloseBroken,
    ReopenBroken,
    Report,
}

/// Reply of a worker.
#[derive(Debug)]
enum Reply {
    Done(Recorder),
    Report(Box<Report>),
}

struct Pool<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    /// The events of the caller's CPU, and of the CPUs whose thread did not start.
    own: Vec<Unit>,
    guard: Option<Guard>,
    workers: Vec<Sender<Request>>,
    replies: Receiver<Reply>,
    /// CPUs whose thread shares the caller's table: a table of its own was refused.
    tableless: &'a Mutex<Vec<u32>>,
}

/// Time that a thread polls for a message before it sleeps: a few times the cost of waking it up.
const LOOKING: Duration = Duration::from_micros(200);

/// Receives the next message; `None` if none will come. `alone`: the thread has a CPU of its own to look on; elsewhere
/// it would take the time of the thread that it waits for.
fn next<T>(from: &Receiver<T>, alone: bool) -> Option<T> {
    if !alone {
        return from.recv().ok();
    }
    let began = Instant::now();
    loop {
        match from.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if began.elapsed() > LOOKING => return from.recv().ok(),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}

/// Starts the workers, calls `work` with all threads, and joins them; also returns the time of that.
fn with_crew<R>(job: &Job<'_>, shared: &Shared<'_>, work: impl FnOnce(&mut Pool<'_>, Watch) -> R) -> (R, Duration) {
    let watch = Watch::start();
    let tableless = &Mutex::new(Vec::new());
    // The table grows before it is shared with threads, so that it need not wait for them.
    sys::make_room(job.list.events.len());
    let here = sys::current_cpu();
    let own = job.cpus.iter().copied().find(|cpu| *cpu == here).or(job.cpus.last().copied());
    let (done, ending) = std::thread::scope(|scope| {
        let (reply, replies) = channel();
        let mut workers = Vec::with_capacity(job.cpus.len());
        let mut served: Vec<u32> = own.into_iter().collect();
        for &cpu in job.cpus.iter().filter(|cpu| Some(**cpu) != own) {
            let (request, requests) = channel();
            let reply = reply.clone();
            let name = worker_name();
            let started = std::thread::Builder::new().name(name).stack_size(256 << 10).spawn_scoped(scope, move || {
                worker(cpu, shared, tableless, &requests, &reply);
            });
            // pids.max, RLIMIT_NPROC, or no memory: the caller serves the CPU itself.
            match started {
                Ok(_) => workers.push(request),
                Err(_) => served.push(cpu),
            }
        }
        drop(reply);
        let guard = own.map(|cpu| {
            let mut guard = Guard::new();
            guard.move_to(cpu);
            guard
        });
        let own = served.into_iter().map(|cpu| Unit::new(cpu, shared)).collect();
        let done = work(&mut Pool { job, shared, own, guard, workers, replies, tableless }, watch);
        (done, Instant::now())
    });
    (done, ending.elapsed())
}

/// Returns the thread name of the workers; the process id distinguishes runs in traces.
pub(crate) fn worker_name() -> String {
    format!("su{}", std::process::id())
}

fn worker(
    cpu: u32,
    shared: &Shared<'_>,
    tableless: &Mutex<Vec<u32>>,
    requests: &Receiver<Request>,
    reply: &Sender<Reply>,
) {
    // A refusal only costs time: IPIs.
    let alone = sys::set_affinity(&Mask::one(cpu)).is_ok();
    if sys::own_descriptor_table().is_err() {
        tableless.lock().unwrap_or_else(PoisonError::into_inner).push(cpu);
    }
    sys::make_room(shared.list.events.len());
    let mut unit = Unit::new(cpu, shared);
    while let Some(request) = next(requests, alone) {
        if reply.send(serve(&mut unit, shared, request)).is_err() {
            break;
        }
    }
}

fn serve(unit: &mut Unit, shared: &Shared<'_>, request: Request) -> Reply {
    let mut rec = Recorder::new(match request {
        Request::Phase(Phase::Open | Phase::Close) => shared.list.events.len(),
        _ => unit.leaders(),
    });
    match request {
        Request::Phase(phase) => unit.phase(shared, phase, &mut rec),
        Request::CloseBroken => unit.close_broken(shared, &mut rec),
        Request::ReopenBroken => unit.reopen_broken(shared, &mut rec),
        Request::Report => return Reply::Report(Box::new(Report::of(unit))),
    }
    Reply::Done(rec)
}

impl Pool<'_> {
    /// Returns why the events do not fit into the tables that there are: the caller's holds those of the CPUs that have no thread,
    /// and of those whose thread has no table.
    fn short(&mut self) -> Option<String> {
        let Job { list, cpus, room, .. } = *self.job;
        if (list.events.len() * cpus.len()) as u64 <= room {
            return None;
        }
        // A thread that answers has its table, or was refused it.
        self.work(Request::Phase(Phase::Enable));
        let mut here: Vec<u32> = self.own.iter().map(|unit| unit.cpu).collect();
        here.extend(self.tableless.lock().unwrap_or_else(PoisonError::into_inner).iter());
        let needed = Descriptors::of(list, &here).together;
        (needed > room).then(|| {
            let (threads, tables) = (self.own.len().saturating_sub(1), here.len() - self.own.len());
            format!(
                "no thread started for {threads} CPUs, and no table was given to {tables}: {needed} descriptors are needed in one \
                 table, and {room} fit under the limit of open files"
            )
        })
    }

    /// Sends a request to every worker, carries it out for the own CPU, and waits for all replies.
    fn all(&mut self, request: Request) -> Vec<Reply> {
        let sent = self.workers.iter().filter(|worker| worker.send(request).is_ok()).count();
        let mut replies = Vec::with_capacity(sent + self.own.len());
        for unit in &mut self.own {
            if let Some(guard) = &mut self.guard {
                guard.move_to(unit.cpu);
            }
            replies.push(serve(unit, self.shared, request));
        }
        let alone = self.guard.as_ref().is_some_and(Guard::is_bound);
        replies.extend((0..sent).map_while(|_| next(&self.replies, alone)));
        replies
    }

    fn work(&mut self, request: Request) -> Recorder {
        let mut all = Recorder::new(0);
        for reply in self.all(request) {
            if let Reply::Done(rec) = reply {
                all.absorb(rec);
            }
        }
        all
    }
}

impl Crew for Pool<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let made = |guard: &Option<Guard>| guard.as_ref().map_or(0, |guard| guard.calls);
        let before = made(&self.guard);
        let mut rec = self.work(Request::Phase(phase));
        // Moves between the CPUs that have no thread.
        rec.other(made(&self.guard) - before);
        if phase == Phase::Open {
            // sched_setaffinity, close_range, and the two of make_room; of the caller sched_getaffinity in place of close_range.
            rec.other(4 * (self.workers.len() + usize::from(self.guard.is_some())) as u64);
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = self.work(Request::CloseBroken);
        rec.absorb(self.work(Request::ReopenBroken));
        rec
    }

    fn threadless(&self) -> usize {
        self.own.len().saturating_sub(1)
    }

    fn outcomes(&mut self, counted: Duration, gone: &[u32]) -> (Vec<Outcome>, usize) {
        let replies = self.all(Request::Report);
        let reports: Vec<Report> = replies
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Report(report) => Some(*report),
                Reply::Done(_) => None,
            })
            .collect();
        outcomes(self.job, &reports, counted, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{parse::parse, resolve::resolve};
    use crate::method::Method;

    #[test]
    fn the_hard_limit_is_raised_where_it_is_too_low_and_kept_below_nr_open() {
        assert_eq!(limits(5700, 4096, 1 << 20), [(5700, 5700), (4096, 4096)]);
        assert_eq!(limits(5700, 20_000, 1 << 20)[0], (5700, 20_000), "no more than needed");
        // fs.nr_open below the hard limit: setrlimit takes no hard limit above it.
        assert_eq!(limits(2400, 20_000, 4096)[0], (2400, 4096));
        assert_eq!(limits(9000, 20_000, 4096)[0], (4096, 4096));
        // Where getrlimit is refused.
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax processes 96 96 processes\nMax open files  1024  unlimited  files\n";
        assert_eq!(open_files_of(text), Some((1024, u64::MAX)));
    }

    /// The calls of an empty phase, and the shortage, of a job with room for five descriptors on three CPUs: `own` without a thread,
    /// one whose thread has no table.
    fn crew(text: &str, own: &[u32]) -> (u64, Option<String>) {
        let list = resolve(&parse(text).unwrap(), &mut Sysfs::at("/nonexistent"));
        let job =
            Job { list: &list, cpus: &[0; 3], method: Method::THREADS, purpose: Use::Stat, ring_pages: 1, room: 5 };
        let shared = shared(&job, &[]);
        let own = own.iter().map(|&cpu| Unit::new(cpu, &shared)).collect();
        let (guard, replies, tableless) = (Some(Guard::new()), channel().1, &Mutex::new(vec![8189]));
        let mut pool = Pool { job: &job, shared: &shared, own, guard, workers: Vec::new(), replies, tableless };
        (pool.phase(Phase::Enable).syscalls, pool.short())
    }

    #[test]
    fn moves_between_cpus_without_a_thread_are_counted() {
        // No host lets a thread move there; the calls are made none the less.
        assert_eq!(crew("cs", &[8190, 8191]).0, 2);
    }

    #[test]
    fn events_that_fit_into_no_table_are_not_opened() {
        assert_eq!(crew("cs", &[8190, 8191]).1, None, "three descriptors, whatever threads have");
        assert_eq!(crew("cs,cs", &[8190]).1, None, "two of the caller, two of the thread");
        let why = crew("cs,cs", &[8190, 8191]).1.unwrap();
        assert!(why.starts_with("no thread started for 1 CPUs, and no table was given to 1: 6 descriptors"), "{why}");
    }

    #[test]
    fn the_mask_is_restored() {
        let before = sys::affinity().unwrap();
        let cpu = (0..8192).rfind(|&cpu| before.has(cpu)).unwrap();
        let mut guard = Guard::new();
        guard.move_to(cpu);
        guard.move_to(cpu);
        assert_eq!(sys::affinity().unwrap(), Mask::one(cpu));
        assert_eq!(sys::current_cpu(), cpu);
        assert_eq!(guard.back(), 3);
        assert_eq!(sys::affinity().unwrap(), before);
        // An impossible CPU is ignored: nothing changed, nothing to restore.
        let mut guard = Guard::new();
        guard.move_to(8191);
        assert_eq!(guard.back(), 2);
        assert_eq!(sys::affinity().unwrap(), before);
    }
}
