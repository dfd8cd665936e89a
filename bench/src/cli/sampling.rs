//! The options of commands that sample a guest.

use clap::Args;
use host_pmu::sampler::Rate;
use vmm::sample::Event;

use crate::parse::number_in;

/// By what, and how often, a guest is sampled.
#[derive(Clone, Debug, Args)]
pub struct SamplingOptions {
    /// Events to sample by: cpu-clock, cycles, rHEX, kvm:kvm_exit, exit, pmi ... (`vpmu list`)
    ///
    /// cpu-clock and task-clock need no PMU. cycles, instructions, branches, branch-misses, cache-references, cache-misses and rHEX count
    /// in guest mode only, on a host with a PMU. GROUP:NAME is a tracepoint of the host that happens on the vCPU's thread. exit, or
    /// exit:rdmsr, exit:wrmsr, exit:io, exit:mmio, exit:other, is an exit of the guest to the VMM; pmi a PMI of the guest's own counters,
    /// where the guest takes it. Without --count each exit and each PMI is a sample.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "cpu-clock")]
    pub event: Vec<Event>,

    /// Samples a second of each vCPU that runs
    #[arg(short = 'F', long, value_name = "HZ", default_value = "999", value_parser = number_in(1..=100_000))]
    pub freq: u64,

    /// One sample in N counts, in place of --freq; of a clock they are ns, 10000 and more
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = number_in(1..=1 << 47))]
    pub count: Option<u64>,

    /// Take call chains: a Linux kernel's by its ORC tables, others by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub chains: bool,
}

impl SamplingOptions {
    /// How often.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.count.map_or(Rate::Hertz(self.freq), Rate::Period)
    }
}
