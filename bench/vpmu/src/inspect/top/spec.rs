//! The specification of `top`.

use std::path::PathBuf;
use std::time::Duration;

use host_pmu::sampler::Rate;
use vmm::sample::Event;

/// Parameters of `top`, apart from its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSpec {
    /// The events that sample; functions are those of the first.
    pub events: Vec<Event>,
    /// How often.
    pub rate: Rate,
    /// Whether samples have call chains.
    pub chains: bool,
    /// Time between two tables or pictures.
    pub interval: Duration,
    /// Length of the sliding window.
    pub window: Duration,
    /// Tables or pictures after which the guest is ended.
    pub iterations: Option<u64>,
    /// Plain tables, also on a terminal.
    pub stdio: bool,
    /// Where the guest's own output goes; `None`: it is dropped and counted.
    pub guest_output: Option<PathBuf>,
    /// Symbols of a Linux guest's kernel, as `/proc/kallsyms` lists them.
    pub symbols: Option<PathBuf>,
    /// Whether the guest's own report at the end is left out.
    pub quiet: bool,
}

impl TopSpec {
    /// Ticks of the window.
    #[must_use]
    pub fn span(&self) -> usize {
        let ticks = self.window.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        usize::try_from(ticks).unwrap_or(usize::MAX).clamp(1, 100_000)
    }
}
