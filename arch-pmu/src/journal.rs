//! A journal of what the host side told the counters. A PMU depends on nothing else but the guest's accesses.

use crate::host::Signalled;
use crate::spec::CounterId;

/// An answer of the host side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It looked for the counters behind its signals.
    Signalled(Signalled),
    /// It handed over counts of a running counter.
    Counted {
        /// The counter.
        counter: CounterId,
        /// The counts.
        count: u64,
        /// The counter overflowed by them.
        overflowed: bool,
    },
}

/// Notes of one entry that a journal has room for without an allocation: each counter a few times.
const ROOM: usize = 256;

/// The notes since they were last taken; none unless a vCPU is traced.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<Vec<Note>>);

impl Journal {
    /// Keeps notes from now on.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(Vec::with_capacity(ROOM));
    }

    #[inline]
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note) {
        if let Some(notes) = &mut self.0 {
            notes.push(note());
        }
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Note> + '_ {
        self.0.iter_mut().flat_map(|notes| notes.drain(..))
    }
}
