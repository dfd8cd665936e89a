//! The options of commands that sample a guest.

use clap::Args;
use host_pmu::sampler::{Rate, SampledEvent};
use results::error::Error;
use vmm::sample::Event;

use crate::setting::parse::{number_in, suggestion};

/// Event and rate by which a guest is sampled.
#[derive(Clone, Debug, Args)]
pub struct SamplingOptions {
    /// Events to sample by: cpu-clock, cycles, rHEX, kvm:kvm_exit, exit, pmi ... (`vpmu list`)
    ///
    /// cpu-clock and task-clock need no PMU. cycles, instructions, branches, branch-misses, cache-references, cache-misses and rHEX count
    /// in guest mode only, on a host with a PMU. GROUP:NAME is a tracepoint of the host that happens on the vCPU's thread. exit, or
    /// exit:rdmsr, exit:wrmsr, exit:io, exit:mmio, exit:other, is an exit of the guest to the VMM; pmi a PMI of the guest's own counters,
    /// where the guest takes it. Without --count each exit and each PMI is a sample.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "cpu-clock", value_parser = event)]
    pub event: Vec<Event>,

    /// Samples a second of each vCPU that runs [default: 999]
    ///
    /// For host events; what the VMM itself sees has --count.
    #[arg(short = 'F', long, value_name = "HZ", value_parser = number_in(1..=100_000))]
    pub freq: Option<u64>,

    /// One sample in N counts, in place of --freq; of a clock they are ns, 10000 and more
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = number_in(1..=1 << 47))]
    pub count: Option<u64>,

    /// Take call chains: a Linux kernel's by its ORC tables, others by frame pointers
    #[arg(short = 'g', long = "call-graph")]
    pub chains: bool,
}

impl SamplingOptions {
    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.count.map_or(Rate::Hertz(self.freq.unwrap_or(USUAL)), Rate::Period)
    }

    /// Refuses a frequency that none of `events` has.
    ///
    /// # Errors
    /// Exit 2: so it is.
    pub fn check(&self, events: &[Event]) -> Result<(), Error> {
        if self.freq.is_some() && events.iter().all(|event| event.host().is_none()) {
            return Err(Error::usage(
                "--freq has nothing to do",
                "exits and PMIs are counted by the VMM: each is a sample, or with --count one in N",
                "leave it out, or give --count",
            ));
        }
        Ok(())
    }
}

/// Samples a second without `--freq`.
const USUAL: u64 = 999;

/// Reads the name of an event.
fn event(text: &str) -> Result<Event, String> {
    text.parse().map_err(|_: String| {
        let known: Vec<_> = SampledEvent::named().chain(Event::of_vmm().map(|(name, _)| name)).collect();
        match text.split_once('/').or_else(|| text.split_once(':')) {
            Some((name, _)) if known.contains(&name) && name != "exit" => {
                format!("events have no modifiers here: those of a PMU count in guest mode, clocks all the thread's time; give {name}")
            }
            Some((group, name)) if text.contains('/') && !group.is_empty() && !name.is_empty() => {
                format!("a tracepoint has a colon in place of the slash: {group}:{}", name.trim_end_matches('/'))
            }
            _ => suggestion(text, &known, ", rHEX, and tracepoints as kvm:kvm_exit"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_event_is_told_the_right_one() {
        for (text, needle) in [
            ("cycels", "did you mean cycles?"),
            ("cpu-cycles", "did you mean"),
            ("exits", "did you mean exit?"),
            ("exit:wmsr", "did you mean exit:wrmsr?"),
            ("kvm/kvm_exit", "kvm:kvm_exit"),
            ("cycles/", "give cycles"),
            ("zzz", "there are cpu-clock"),
        ] {
            let why = event(text).unwrap_err();
            assert!(why.contains(needle), "{text}: {why} lacks {needle}");
        }
    }
}
