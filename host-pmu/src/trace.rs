//! Traces: what a vCPU and its PMU met, row by row, from the vCPU's thread to one reader.
//!
//! The threads write to one ring, and never wait unless they are simulated ones: rows that find no room are counted, and a row
//! says so where they are missing. A row is what the guest did or met; rows of what the host side told the counters follow it, and
//! [`Kind::Entry`] ends what belongs together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arch_pmu::journal::Note;
use arch_pmu::msr::{counter_of, counter_of_rdpmc};
use arch_pmu::pmi::{Delivery, Lvtpc};
use arch_pmu::spec::CounterId;
use arch_pmu::{HostCounters, Vpmu};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $key:literal;)+) => {
        /// The kind of a row.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)+
        }

        impl Kind {
            /// Every kind, in the order of its discriminant.
            pub const ALL: &[Self] = &[$(Self::$kind),+];
            const KEYS: &[&str] = &[$($key),+];
        }
    };
}

kinds! {
    /// RDMSR of `register`, answered with `value`.
    #[default]
    Read = "read";
    /// WRMSR of `value` to `register`.
    Write = "write";
    /// The host side handed over `value` counts of counter `register`. In a file those that the guest reads between no others are one.
    Count = "count";
    /// The same, and the counter overflowed by them.
    Overflow = "overflow";
    /// The guest is entered, after `value` entries without rows.
    Entry = "entry";
    /// A signal of the host side: `value` has a bit for each counter behind it; the top bit: one of them that has not overflowed was
    /// signalled early.
    Signal = "signal";
    /// A PMI met LVTPC: `value` is the entry, as far as its delivery tells, with delivery status for one that merged with a pending NMI.
    Pmi = "pmi";
    /// A PMI that had been deferred met LVTPC; `value` as of a PMI.
    LatePmi = "late-pmi";
    /// The vCPU's thread was switched in: a new slice.
    Slice = "slice";
    /// It had slept.
    Sleep = "sleep";
    /// RDPMC with ECX `register`, answered with `value`.
    Rdpmc = "rdpmc";
    /// RDMSR that was #GP.
    ReadFault = "read-fault";
    /// WRMSR that was #GP.
    WriteFault = "write-fault";
    /// `value` rows are missing here.
    Lost = "lost";
    /// RDPMC with ECX `register` that was #GP.
    RdpmcFault = "rdpmc-fault";
    /// `register` has `value` where the trace begins to tell of it: no access of the guest's.
    State = "state";
}

impl Kind {
    /// Returns its name in a trace.
    pub const fn key(self) -> &'static str {
        Self::KEYS[self as usize]
    }

    /// Returns the kind of this name.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| key.eq_ignore_ascii_case(kind.key().as_bytes()))
    }

    /// Returns whether such a row is an access of the guest.
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Rdpmc | Self::ReadFault | Self::WriteFault | Self::RdpmcFault)
    }

    /// Returns whether such a row has counts of a counter.
    pub const fn is_count(self) -> bool {
        matches!(self, Self::Count | Self::Overflow)
    }
}

/// A row of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Time: ticks of its clock from the vCPU, ns in a file.
    pub at: u64,
    /// The vCPU.
    pub vcpu: u16,
    /// The kind.
    pub kind: Kind,
    /// The MSR, counter or ECX.
    pub register: u32,
    /// The value.
    pub value: u64,
    /// RIP of an access; 0 where it is unknown.
    pub rip: u64,
}

impl Row {
    /// Returns whether it is a PMI that reached the guest, and merged with no other.
    pub const fn brings_pmi(&self) -> bool {
        matches!(self.kind, Kind::Pmi | Kind::LatePmi)
            && self.value & PENDING == 0
            && matches!(Lvtpc::from_bits(self.value as u32).delivery(), Delivery::Nmi | Delivery::Fixed(_))
    }
}

/// The bit of [`Kind::Signal`] that says that one of its counters was signalled early.
pub const CERTAIN: u64 = 1 << 63;
/// LVTPC in x2APIC mode, by which a PMI's row names it.
pub const LVTPC: u32 = 0x834;
/// ECX of an RDPMC of which neither that nor the value is known.
pub const UNKNOWN: u32 = u32::MAX;
/// Delivery status of an LVT entry.
pub const PENDING: u64 = 1 << 12;

/// Rows of a ring for each vCPU: a tenth of a second of a million a second.
const ROOM: usize = 1 << 17;

/// The way of the rows of a run that is traced, from its vCPUs to the reader.
#[derive(Debug)]
pub struct Tracing {
    rows: SyncSender<Row>,
    read: Mutex<Receiver<Row>>,
    /// Rows that found no room.
    pub lost: AtomicU64,
    /// Frequency of the vCPUs' clock, kHz; 0 before the first has begun.
    pub khz: AtomicU64,
    /// A simulated guest shall end: nobody else stops it.
    pub stop: AtomicBool,
}

impl Tracing {
    /// Creates one with room for so many vCPUs.
    pub fn new(vcpus: usize) -> Arc<Self> {
        let (rows, read) = sync_channel(ROOM * vcpus);
        let [lost, khz] = Default::default();
        Arc::new(Self { rows, read: Mutex::new(read), lost, khz, stop: AtomicBool::new(false) })
    }

    /// Takes the oldest row. For one thread.
    pub fn pop(&self) -> Option<Row> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

/// The tracing of one vCPU, on its thread.
#[derive(Debug)]
pub struct Tracer {
    tracing: Arc<Tracing>,
    vcpu: u16,
    /// Rows lost since the last one that found room.
    missing: u64,
    /// There are rows since the last entry.
    open: bool,
    /// Entries since then that had none.
    passed: u64,
    /// Its time is not the reader's: it waits for room.
    waits: bool,
}

impl Tracer {
    /// Traces vCPU `vcpu`, whose clock runs at `khz`; `waits`: in a time that is not the reader's.
    pub fn new(tracing: &Arc<Tracing>, vcpu: u16, khz: u64, waits: bool) -> Self {
        tracing.khz.store(khz, Ordering::Relaxed);
        Self { tracing: Arc::clone(tracing), vcpu, missing: 0, open: false, passed: 0, waits }
    }

    /// Returns whether the guest shall end.
    pub fn is_stopped(&self) -> bool {
        self.tracing.stop.load(Ordering::Relaxed)
    }

    /// Adds a row.
    pub fn row(&mut self, at: u64, kind: Kind, register: u32, value: u64, rip: u64) {
        self.open = true;
        let (Tracing { rows, lost, .. }, vcpu) = (&*self.tracing, self.vcpu);
        let row = Row { at, vcpu, kind, register, value, rip };
        if self.waits {
            // The reader's side is there as long as this one.
            let _ = rows.send(row);
            return;
        }
        let missing = Row { at, vcpu, kind: Kind::Lost, value: self.missing, ..Row::default() };
        if self.missing > 0 && rows.try_send(missing).is_ok() {
            self.missing = 0;
        }
        if self.missing > 0 || rows.try_send(row).is_err() {
            self.missing += 1;
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds an access and what the host side told the counters meanwhile; `answer` is `None` for one that was #GP. A row of a read has
    /// no value yet.
    pub fn access<H: HostCounters>(&mut self, access: Row, answer: Option<u64>, pmu: &mut Vpmu<H>) {
        let Row { at, kind, register, value, rip, .. } = access;
        let (kind, value) = match (kind, answer) {
            (Kind::Read, None) => (Kind::ReadFault, 0),
            (Kind::Rdpmc, None) => (Kind::RdpmcFault, 0),
            (Kind::Write, None) => (Kind::WriteFault, value),
            (Kind::Write, _) => (kind, value),
            (kind, answer) => (kind, answer.unwrap_or(value)),
        };
        self.row(at, kind, register, value, rip);
        // The guest overwrites counts of the counter that it writes.
        let written = if kind == Kind::Write { counter_of(register) } else { None };
        self.notes(at, pmu, written);
    }

    /// Adds what the host side told the counters, but for counts of the one that was `written`.
    pub fn notes<H: HostCounters>(&mut self, at: u64, pmu: &mut Vpmu<H>, written: Option<CounterId>) {
        for note in pmu.take_notes() {
            match note {
                Note::Signalled(signalled) => {
                    let counters = signalled.counters.into_iter().map(|counter| 1 << counter.index()).sum::<u64>();
                    let certain = if signalled.certain { CERTAIN } else { 0 };
                    self.row(at, Kind::Signal, 0, counters | certain, 0);
                }
                Note::Counted { counter, overflowed: false, .. } if written == Some(counter) => {}
                Note::Counted { counter, count, overflowed } => {
                    let kind = if overflowed { Kind::Overflow } else { Kind::Count };
                    self.row(at, kind, counter.index() as u32, count, 0);
                }
            }
        }
    }

    /// Adds a PMI that met LVTPC.
    pub fn pmi(&mut self, at: u64, kind: Kind, delivery: Delivery, merged: bool) {
        let entry = match delivery {
            Delivery::Masked => Lvtpc::new().with_masked(true),
            Delivery::Nmi => Lvtpc::new().with_mode(0b100),
            Delivery::Fixed(vector) => Lvtpc::new().with_vector(vector),
            Delivery::Unsupported(mode) => Lvtpc::new().with_mode(mode),
        };
        self.row(at, kind, LVTPC, u64::from(entry.into_bits()) | if merged { PENDING } else { 0 }, 0);
    }

    /// Adds a switch of the thread since the last entry.
    pub fn switches(&mut self, at: u64, switched: bool, slept: bool) {
        for (_, kind) in [(switched, Kind::Slice), (slept, Kind::Sleep)].into_iter().filter(|(happened, _)| *happened) {
            self.row(at, kind, 0, 0, 0);
        }
    }

    /// Ends what happened since the last entry.
    #[inline]
    pub fn entry(&mut self, at: u64) {
        if !self.open {
            self.passed += 1;
            return;
        }
        let passed = std::mem::take(&mut self.passed);
        self.row(at, Kind::Entry, 0, passed, 0);
        self.open = false;
    }
}

/// Returns the counter that an access reads or writes.
pub const fn counter(kind: Kind, register: u32) -> Option<CounterId> {
    match (kind, register) {
        (Kind::Rdpmc, _) => counter_of_rdpmc(register),
        (Kind::Read | Kind::Write, _) => counter_of(register),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_as_they_went_in_and_a_full_ring_says_what_is_missing() {
        let tracing = Tracing::new(1);
        let mut tracer = Tracer::new(&tracing, 7, 1000, false);
        tracer.entry(1);
        for n in 0..ROOM as u64 + 5 {
            tracer.row(n, Kind::Write, 0x38f, n << 40, n);
        }
        assert_eq!([&tracing.lost, &tracing.khz].map(|n| n.load(Ordering::Relaxed)), [5, 1000]);
        let pop = || tracing.pop();
        assert_eq!(pop(), Some(Row { at: 0, vcpu: 7, kind: Kind::Write, register: 0x38f, value: 0, rip: 0 }));
        assert_eq!(pop().map(|row| (row.value, row.rip)), Some((1 << 40, 1)));
        tracer.entry(ROOM as u64 + 9);
        let rest: Vec<Row> = std::iter::from_fn(pop).collect();
        let [.., lost, entry] = &rest[..] else { panic!() };
        assert_eq!((rest.len(), lost.kind, lost.value, entry.kind), (ROOM, Kind::Lost, 5, Kind::Entry));
        assert_eq!((lost.vcpu, entry.vcpu), (7, 7));
        assert!(Kind::ALL.iter().all(|kind| Kind::from_key(kind.key().as_bytes()) == Some(*kind)));
    }
}
