//! The request of a recording to the vCPUs.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use host_pmu::sampler::Rate;
use host_pmu::stats::OpKind;
use vm_memory::GuestMemoryMmap;

use super::event::Event;
use super::modules::{MOST_ENTRIES, ModulePlace, ModuleTables, TablesRead};
use super::orc::Orc;
use super::queue::Queue;
use super::space::Space;
use crate::boot::payload::PayloadLog;

/// Events to sample, and the channels that take the samples.
#[derive(Debug)]
pub struct Sampling {
    /// Events that sample.
    pub events: Vec<Event>,
    /// Rate of the samples.
    pub rate: Rate,
    /// True if samples have call chains.
    pub chains: bool,
    /// The unwind tables of the guest's kernel.
    pub orc: Option<Orc>,
    /// The payload's logs once it is loaded, where the guest is the payload.
    pub log: OnceLock<PayloadLog>,
    /// One of each vCPU.
    pub channels: Vec<Channel>,
    /// The unwind tables of its modules, once they were read.
    modules: OnceLock<ModuleTables>,
    /// Entries of such tables that may still be read, over all tries.
    entries_left: AtomicUsize,
    /// The guest's memory, once a vCPU has it.
    memory: OnceLock<GuestMemoryMmap>,
}

/// The channel through which the samples of a vCPU leave it.
#[derive(Debug, Default)]
pub struct Channel {
    /// Samples.
    pub queue: Queue,
    /// The vCPU's thread; 0 before it has begun.
    pub tid: AtomicI32,
    /// The vCPU's TSC frequency, kHz; 0 before it has begun.
    pub tsc_khz: AtomicU64,
    /// Counts so far.
    pub live: Live,
    /// The address space of the last sample in a 64-bit kernel; 0 before there is one.
    pub(super) kernel_space: AtomicU64,
}

impl Sampling {
    /// Creates the sampling of so many vCPUs.
    pub fn new(events: Vec<Event>, rate: Rate, chains: bool, vcpus: usize) -> Self {
        let channels = (0..vcpus).map(|_| Channel::default()).collect();
        Self {
            events,
            rate,
            chains,
            orc: None,
            log: OnceLock::new(),
            channels,
            modules: OnceLock::new(),
            entries_left: AtomicUsize::new(MOST_ENTRIES),
            memory: OnceLock::new(),
        }
    }

    /// Notes the guest's memory. The first one stays.
    pub(super) fn has_memory(&self, memory: &GuestMemoryMmap) {
        self.memory.get_or_init(|| memory.clone());
    }

    /// Returns the unwind tables of modules.
    pub(super) fn modules(&self) -> Option<&ModuleTables> {
        self.modules.get()
    }

    /// Reads the unwind tables of modules at these places: chains go through them from then on. Only the first tables
    /// are kept, since vCPUs look at them without a lock.
    ///
    /// `None`: there is no sample of the kernel yet in whose address space they are; later there may be. Nothing is
    /// read for a guest whose kernel has no tables itself. All calls together read a bounded number of entries. For one
    /// thread.
    pub fn read_modules(&self, places: &[ModulePlace]) -> Option<TablesRead> {
        let Some(orc) = &self.orc else { return Some(TablesRead::default()) };
        let memory = self.memory.get()?;
        // vCPUs share the kernel's address space, mostly.
        let spaces: BTreeSet<u64> =
            self.channels.iter().map(|channel| channel.kernel_space.load(Ordering::Relaxed)).collect();
        let mut left = self.entries_left.load(Ordering::Relaxed);
        let read = spaces
            .into_iter()
            .filter_map(|packed| Space::of_kernel(memory, packed))
            .find_map(|mut space| ModuleTables::read(&mut space, places, orc.layout(), &mut left));
        self.entries_left.store(left, Ordering::Relaxed);
        let (tables, done) = read?;
        self.modules.get_or_init(|| tables);
        Some(done)
    }
}

// Publishes the counts of a running vCPU to a reader.
//
// The vCPU's thread publishes its counters where it takes a sample, [`EVERY_NS`] apart at the least, and at its end. A vCPU that is
// not sampled publishes nothing and pays nothing.

/// Least time between two publications, ns.
pub(crate) const EVERY_NS: u64 = 10_000_000;

/// Reason why KVM_RUN returned to this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnKind {
    /// RDMSR of a filtered MSR.
    MsrRead,
    /// WRMSR of a filtered MSR.
    MsrWrite,
    /// IN or OUT.
    Port,
    /// Memory without a slot.
    Memory,
    /// A signal: of counters, of the recording, of others.
    Signal,
}

impl ReturnKind {
    /// Every kind, in the order of its discriminant.
    pub const ALL: [Self; 5] = [Self::MsrRead, Self::MsrWrite, Self::Port, Self::Memory, Self::Signal];

    /// Returns its name in tables.
    pub const fn key(self) -> &'static str {
        match self {
            Self::MsrRead => "rdmsr",
            Self::MsrWrite => "wrmsr",
            Self::Port => "io",
            Self::Memory => "mmio",
            Self::Signal => "signal",
        }
    }
}

/// Counts since the vCPU began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Returns of KVM_RUN, in the order of [`ReturnKind::ALL`].
    pub exits: [u64; ReturnKind::ALL.len()],
    /// NMIs that were injected into the guest.
    pub nmis: u64,
    /// Overflows of its counters.
    pub overflows: u64,
    /// Host operations, in the order of [`OpKind::ALL`].
    pub ops: [u64; OpKind::ALL.len()],
}

const FIELDS: usize = ReturnKind::ALL.len() + 2 + OpKind::ALL.len();

impl LiveCounts {
    fn fields(&self) -> impl Iterator<Item = u64> {
        self.exits.into_iter().chain([self.nmis, self.overflows]).chain(self.ops)
    }

    fn fields_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.exits.iter_mut().chain([&mut self.nmis, &mut self.overflows]).chain(&mut self.ops)
    }

    /// Returns the sum of this and another vCPU's.
    pub fn plus(mut self, other: &Self) -> Self {
        self.fields_mut().zip(other.fields()).for_each(|(mine, theirs)| *mine = mine.saturating_add(theirs));
        self
    }

    /// Returns the counts since `before`.
    pub fn since(mut self, before: &Self) -> Self {
        self.fields_mut().zip(before.fields()).for_each(|(mine, theirs)| *mine = mine.saturating_sub(theirs));
        self
    }
}

/// The counts that a vCPU published last.
#[derive(Debug, Default)]
pub struct Live {
    counts: [AtomicU64; FIELDS],
}

impl Live {
    /// Publishes the counts of the vCPU's thread.
    pub(crate) fn publish(&self, counts: &LiveCounts) {
        self.counts.iter().zip(counts.fields()).for_each(|(place, count)| place.store(count, Ordering::Relaxed));
    }

    /// Reads the counts; those of one publication and of the next may be mixed.
    pub fn read(&self) -> LiveCounts {
        let mut read = LiveCounts::default();
        read.fields_mut().zip(&self.counts).for_each(|(field, count)| *field = count.load(Ordering::Relaxed));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_field_by_field() {
        let counts = LiveCounts { exits: [1, 2, 3, 4, 5], nmis: 6, overflows: 7, ops: [8, 9, 10, 11, 12, 13] };
        let live = Live::default();
        assert_eq!(live.read(), LiveCounts::default());
        live.publish(&counts);
        assert_eq!(live.read(), counts);
        let twice = counts.plus(&counts);
        assert_eq!((twice.nmis, twice.ops[5], twice.since(&counts)), (12, 26, counts));
        assert_eq!(LiveCounts::default().since(&counts), LiveCounts::default(), "never below 0");
        assert_eq!(ReturnKind::ALL.map(|kind| kind as usize), [0, 1, 2, 3, 4]);
    }
}
