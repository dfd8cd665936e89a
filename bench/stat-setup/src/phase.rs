//! Phases in the life of an event, and their cost.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::sys;

/// A phase: one kind of call for every event on every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// perf_event_open.
    Open,
    /// mmap of one buffer per CPU, and IOC_SET_OUTPUT of the other events to it.
    Map,
    /// IOC_ENABLE of group leaders.
    Enable,
    /// read, one call for a whole group.
    Read,
    /// IOC_DISABLE of group leaders.
    Disable,
    /// munmap.
    Unmap,
    /// close; without the last descriptor of each tracepoint where the method defers it.
    Close,
    /// The last close of each tracepoint, deferred until the counts are printed.
    LastClose,
}

impl Phase {
    /// Returns its name in tables and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Map => "map",
            Self::Enable => "enable",
            Self::Read => "read",
            Self::Disable => "disable",
            Self::Unmap => "unmap",
            Self::Close => "close",
            Self::LastClose => "last-close",
        }
    }
}

/// Purpose of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Counting, like `perf stat`.
    Stat,
    /// Open, mmap, enable, disable, munmap, close, like `perf bench internals evlist-open-close`.
    Mmap,
}

impl Use {
    /// Returns its phases, in order.
    #[must_use]
    pub const fn phases(self) -> &'static [Phase] {
        match self {
            Self::Stat => &[Phase::Open, Phase::Enable, Phase::Read, Phase::Disable, Phase::Close, Phase::LastClose],
            Self::Mmap => &[Phase::Open, Phase::Map, Phase::Enable, Phase::Disable, Phase::Unmap, Phase::Close],
        }
    }
}

/// Cost of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseCost {
    /// The phase.
    pub phase: Phase,
    /// Time from the first call to the end of the last.
    pub wall: Duration,
    /// User time of the process during the phase.
    pub user: Duration,
    /// System time of the process during the phase.
    pub sys: Duration,
    /// System calls on events and affinity calls; without those for thread start and synchronisation.
    pub syscalls: u64,
    /// Duration of each call on an event, ns, unordered. One close_range is one call.
    pub calls_ns: Vec<u32>,
}

/// Counts and times calls within a phase.
#[derive(Debug)]
pub(crate) struct Recorder {
    last: Instant,
    pub(crate) calls_ns: Vec<u32>,
    pub(crate) syscalls: u64,
}

impl Recorder {
    pub(crate) fn new(expected: usize) -> Self {
        Self { last: Instant::now(), calls_ns: Vec::with_capacity(expected), syscalls: 0 }
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
        self.syscalls += 1;
        self.last = now;
    }

    /// Counts calls that are not timed.
    pub(crate) fn other(&mut self, calls: u64) {
        self.syscalls += calls;
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.calls_ns.extend(other.calls_ns);
        self.syscalls += other.syscalls;
    }
}

/// Start of a phase: wall clock and CPU times.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Instant,
    times: (Duration, Duration),
}

impl Watch {
    pub(crate) fn start() -> Self {
        let times = sys::times();
        Self { began: Instant::now(), times }
    }

    pub(crate) fn stop(self, phase: Phase, recorder: Recorder) -> PhaseCost {
        let wall = self.began.elapsed();
        let (user, system) = sys::times();
        PhaseCost {
            phase,
            wall,
            user: user.saturating_sub(self.times.0),
            sys: system.saturating_sub(self.times.1),
            syscalls: recorder.syscalls,
            calls_ns: recorder.calls_ns,
        }
    }
}
