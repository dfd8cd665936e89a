//! The request of a recording to the vCPUs.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use host_pmu::sampler::Rate;
use vm_memory::GuestMemoryMmap;

use super::event::Event;
use super::live::Live;
use super::modules::{MOST_ENTRIES, ModulePlace, ModuleTables, TablesRead};
use super::orc::Orc;
use super::queue::Queue;
use super::space::Space;
use crate::boot::payload_log::PayloadLog;

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
    /// Creates it for so many vCPUs.
    #[must_use]
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

    /// Reads the unwind tables of modules at these places: chains go through them from then on. Only the first tables are kept, since vCPUs
    /// look at them without a lock.
    ///
    /// `None`: there is no sample of the kernel yet in whose address space they are; later there may be. Nothing is read for a guest whose kernel
    /// has no tables itself. All calls together read a bounded number of entries. For one thread.
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
