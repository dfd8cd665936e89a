//! The guest of a run: its events, its ticks, its limits, and the boot page made from them.

use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};

use vmm::machine::Cpu;

use crate::setting::workload::Workload;

/// Log entries per requested sample: rotations share the log.
const LOG_PER_SAMPLE: u64 = 2;
/// Log entries beyond that, for NMIs that arrive while the guest stops.
const LOG_SPARE: u64 = 4096;

/// Configuration of a guest, the same for all arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPlan {
    /// Event set and guest work.
    pub workload: Workload,
    /// `BootPage::events`.
    pub events: Vec<EventSpec>,
    /// `BootPage::flags`.
    pub flags: u64,
    /// `BootPage::freq_hz`; 0 = fixed period.
    pub freq_hz: u64,
    /// The guest's tick.
    pub mux_interval: Duration,
    /// `BootPage::baseline_ticks`.
    pub baseline_ticks: u64,
    /// `BootPage::tail_ticks`.
    pub tail_ticks: u64,
    /// `BootPage::max_ticks`: the guest itself ends the measured phase after the time limit.
    pub max_ticks: u64,
    /// `BootPage::window_ticks`; 0 unless the guest times set-ups, as the two below.
    pub window_ticks: u64,
    /// `BootPage::gap_ticks`.
    pub gap_ticks: u64,
    /// `BootPage::limit_us`.
    pub limit_us: u64,
    /// Time after which the VMM ends a guest that did not end by itself.
    pub hard_limit: Duration,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPU of each vCPU, or empty.
    pub pin: Vec<u32>,
    /// The processor.
    pub cpu: Cpu,
    /// PMU version of an Intel's: 2 or 4.
    pub pmu_version: u64,
    /// General-purpose counters.
    pub gp_counters: u64,
    /// Fixed counters.
    pub fixed_counters: u64,
    /// True if vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

impl GuestPlan {
    /// Returns the capacity of the guest's log for a run of this many samples.
    #[must_use]
    pub const fn log_entries(&self, samples: u64) -> u64 {
        // A set-up logs each call of its four phases, and the rotations after it.
        let set_up = 4 * self.events.len() as u64 + self.window_ticks;
        samples * (if self.window_ticks > 0 { set_up } else { LOG_PER_SAMPLE }) + LOG_SPARE
    }

    /// Returns the boot page, without addresses and frequencies.
    #[must_use]
    pub fn boot_page(&self, samples: u64) -> BootPage {
        let mut events = [EventSpec::default(); MAX_EVENTS];
        for (slot, event) in events.iter_mut().zip(&self.events) {
            *slot = *event;
        }
        BootPage {
            workload: self.workload.work.abi(),
            flags: self.flags,
            tick_count: lapic_ticks(self.mux_interval),
            baseline_ticks: self.baseline_ticks,
            max_ticks: self.max_ticks,
            tail_ticks: self.tail_ticks,
            sample_target: samples,
            window_ticks: self.window_ticks,
            gap_ticks: self.gap_ticks,
            limit_us: self.limit_us,
            freq_hz: self.freq_hz,
            event_count: self.events.len().min(MAX_EVENTS) as u64,
            events,
            ..BootPage::default()
        }
    }

    /// Returns the guest's PMU.
    #[must_use]
    pub fn pmu(&self) -> PmuCaps {
        match self.cpu.vendor() {
            Vendor::Intel => self.intel_pmu().into(),
            Vendor::Amd => self.cpu.pmu(),
        }
    }

    /// Returns the PMU of an Intel guest.
    #[must_use]
    pub fn intel_pmu(&self) -> IntelCaps {
        IntelCaps {
            version: self.pmu_version as u8,
            gp: self.gp_counters as u8,
            fixed: self.fixed_counters as u8,
            ..IntelCaps::default()
        }
    }
}

/// Returns the LAPIC timer ticks of an interval; KVM's LAPIC timer runs at 1 GHz.
fn lapic_ticks(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).min(u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_never_exceeds_the_timers_32_bits() {
        assert_eq!(lapic_ticks(Duration::from_millis(4)), 4_000_000);
        assert_eq!(lapic_ticks(Duration::from_secs(10)), u64::from(u32::MAX));
    }
}
