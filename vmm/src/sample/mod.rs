//! Samples of a guest: where each vCPU was when a host event overflowed, and by which calls it came there.
//!
//! The kernel gives a VMM no samples of a guest whose PMU it emulates, and call chains of no guest at all. This VMM has the guest's
//! registers and memory: the event's signal ends KVM_RUN, and the vCPU's thread reads both before it enters again.
//!
//! The thread writes to its own [`queue`] and never waits: what finds no room is counted. A thread of the caller's takes samples out.

mod chain;
mod orc;
pub mod queue;
mod space;
mod take;

use std::sync::atomic::AtomicI32;

use host_pmu::sampler::{Rate, SampledEvent};

pub use orc::{Orc, OrcError};
pub use queue::{Queue, Sample};

pub(crate) use take::VcpuSampler;

/// What is sampled, and where samples go.
#[derive(Debug)]
pub struct Sampling {
    /// The host events.
    pub events: Vec<SampledEvent>,
    /// How often.
    pub rate: Rate,
    /// Whether samples have call chains.
    pub chains: bool,
    /// The unwind tables of the guest's kernel.
    pub orc: Option<Orc>,
    /// One of each vCPU.
    pub channels: Vec<Channel>,
}

/// Where the samples of a vCPU come out.
#[derive(Debug, Default)]
pub struct Channel {
    /// Samples.
    pub queue: Queue,
    /// The vCPU's thread; 0 before it has begun.
    pub tid: AtomicI32,
}

impl Sampling {
    /// For so many vCPUs.
    #[must_use]
    pub fn new(events: Vec<SampledEvent>, rate: Rate, chains: bool, vcpus: usize) -> Self {
        Self { events, rate, chains, orc: None, channels: (0..vcpus).map(|_| Channel::default()).collect() }
    }
}
