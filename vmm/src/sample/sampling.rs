//! What a recording asks of the vCPUs.

use std::sync::atomic::AtomicI32;

use host_pmu::sampler::{Rate, SampledEvent};

use super::orc::Orc;
use super::queue::Queue;

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
