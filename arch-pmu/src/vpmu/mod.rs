//! The Intel architectural PMU of one vCPU, free of KVM, clocks and descriptors.
//!
//! The guest's register accesses come in as [`Vpmu::rdmsr`] and [`Vpmu::wrmsr`], the host's overflows through
//! [`Vpmu::kick`]; what shall count goes out to a [`HostCounters`]. The order of one guest entry is KVM's: counters that
//! must be looked at again ([`Vpmu::enter`]), then the PMI ([`Vpmu::take_pmi`]).
//!
//! A counter's value is the base kept here plus what the host side has not handed over yet, so no count and no overflow
//! is lost however events are kept: whenever counts are handed over the carry out of the counter's top bit sets the
//! STATUS bit, before anything else the guest's access does.

mod counter;
mod global;
mod rdpmc;

use crate::caps::PmuCaps;
use crate::filter::EventFilter;
use crate::host::{AfterOverflow, HostCounters, Reprogram, Touch};
use crate::regs::{
    DebugCtl, IA32_A_PMC0, IA32_DEBUGCTL, IA32_DS_AREA, IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_PEBS_ENABLE,
    IA32_PERF_CAPABILITIES, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_INUSE, IA32_PERF_GLOBAL_OVF_CTRL,
    IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_SET, IA32_PERFEVTSEL0, IA32_PMC0, PerfEvtSel, status,
};
use crate::spec::{CounterId, CounterSet, MAX_COUNTERS, MAX_FIXED, MAX_GP};

/// A register of the PMU, decoded from its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmuMsr {
    /// IA32_PMCx, 32-bit writes.
    Counter(CounterId),
    /// IA32_A_PMCx, full-width writes.
    FullWidth(CounterId),
    /// IA32_PERFEVTSELx.
    Selector(usize),
    /// IA32_FIXED_CTRx.
    Fixed(CounterId),
    /// IA32_FIXED_CTR_CTRL.
    FixedCtrCtrl,
    /// IA32_PERF_GLOBAL_STATUS.
    GlobalStatus,
    /// IA32_PERF_GLOBAL_CTRL.
    GlobalCtrl,
    /// IA32_PERF_GLOBAL_OVF_CTRL.
    GlobalOvfCtrl,
    /// IA32_PERF_GLOBAL_STATUS_SET.
    GlobalStatusSet,
    /// IA32_PERF_GLOBAL_INUSE.
    GlobalInUse,
    /// IA32_PERF_CAPABILITIES.
    PerfCapabilities,
    /// IA32_DEBUGCTL.
    DebugCtl,
    /// IA32_PEBS_ENABLE.
    PebsEnable,
    /// IA32_DS_AREA.
    DsArea,
}

impl PmuMsr {
    /// The register behind `index`, whether or not a certain guest has it.
    #[inline]
    #[must_use]
    pub fn decode(index: u32) -> Option<Self> {
        let nth = |base: u32, count: usize| {
            let n = index.wrapping_sub(base) as usize;
            (n < count).then_some(n)
        };
        Some(match index {
            IA32_FIXED_CTR_CTRL => Self::FixedCtrCtrl,
            IA32_PERF_GLOBAL_STATUS => Self::GlobalStatus,
            IA32_PERF_GLOBAL_CTRL => Self::GlobalCtrl,
            IA32_PERF_GLOBAL_OVF_CTRL => Self::GlobalOvfCtrl,
            IA32_PERF_GLOBAL_STATUS_SET => Self::GlobalStatusSet,
            IA32_PERF_GLOBAL_INUSE => Self::GlobalInUse,
            IA32_PERF_CAPABILITIES => Self::PerfCapabilities,
            IA32_DEBUGCTL => Self::DebugCtl,
            IA32_PEBS_ENABLE => Self::PebsEnable,
            IA32_DS_AREA => Self::DsArea,
            _ => {
                if let Some(n) = nth(IA32_PMC0, MAX_GP) {
                    Self::Counter(CounterId::gp(n)?)
                } else if let Some(n) = nth(IA32_A_PMC0, MAX_GP) {
                    Self::FullWidth(CounterId::gp(n)?)
                } else if let Some(n) = nth(IA32_FIXED_CTR0, MAX_FIXED) {
                    Self::Fixed(CounterId::fixed(n)?)
                } else {
                    Self::Selector(nth(IA32_PERFEVTSEL0, MAX_GP)?)
                }
            }
        })
    }
}

impl PmuMsr {
    /// Number of [`slot`](Self::slot)s.
    pub const SLOTS: usize = 3 * MAX_GP + MAX_FIXED + 10;

    /// A dense number, for tables.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        const FIXED: usize = 3 * MAX_GP;
        const OTHERS: usize = FIXED + MAX_FIXED;
        match self {
            Self::Counter(counter) => counter.index(),
            Self::FullWidth(counter) => MAX_GP + counter.index(),
            Self::Selector(n) => 2 * MAX_GP + n,
            Self::Fixed(counter) => FIXED + counter.index() - MAX_GP,
            Self::FixedCtrCtrl => OTHERS,
            Self::GlobalStatus => OTHERS + 1,
            Self::GlobalCtrl => OTHERS + 2,
            Self::GlobalOvfCtrl => OTHERS + 3,
            Self::GlobalStatusSet => OTHERS + 4,
            Self::GlobalInUse => OTHERS + 5,
            Self::PerfCapabilities => OTHERS + 6,
            Self::DebugCtl => OTHERS + 7,
            Self::PebsEnable => OTHERS + 8,
            Self::DsArea => OTHERS + 9,
        }
    }
}

/// The access is answered by #GP(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralProtection;

/// What the vPMU counted of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VpmuStats {
    /// Overflows of counters.
    pub overflows: u64,
    /// Of those, of counters with INT.
    pub pmi_requests: u64,
}

/// The PMU of one vCPU, with `H` behind its counters.
#[derive(Debug)]
pub struct Vpmu<H> {
    caps: PmuCaps,
    filter: EventFilter,
    host: H,
    selectors: [PerfEvtSel; MAX_GP],
    /// Values without what the host side still holds.
    base: [u64; MAX_COUNTERS],
    fixed_ctr_ctrl: u64,
    global_ctrl: u64,
    global_status: u64,
    debugctl: DebugCtl,
    ds_area: u64,
    /// Counters whose own enable is on.
    enabled: CounterSet,
    /// Counters told to run.
    running: CounterSet,
    /// Counters to look at again before the next entry.
    dirty: CounterSet,
    pmi_pending: bool,
    stats: VpmuStats,
}

impl<H: HostCounters> Vpmu<H> {
    /// A PMU at RESET.
    pub fn new(caps: PmuCaps, host: H) -> Self {
        let caps = caps.bounded();
        Self {
            caps,
            filter: EventFilter::default(),
            host,
            selectors: [PerfEvtSel::new(); MAX_GP],
            base: [0; MAX_COUNTERS],
            fixed_ctr_ctrl: 0,
            global_ctrl: caps.global_ctrl_reset(),
            global_status: 0,
            debugctl: DebugCtl::new(),
            ds_area: 0,
            enabled: CounterSet::EMPTY,
            running: CounterSet::EMPTY,
            dirty: CounterSet::EMPTY,
            pmi_pending: false,
            stats: VpmuStats::default(),
        }
    }

    /// RESET: stops every counter and clears the registers (a guest that reboots must not meet its old PMIs).
    pub fn reset(&mut self) {
        for counter in self.caps.counters() {
            self.host.pause(counter);
            self.host.stop(counter, false);
        }
        self.selectors = [PerfEvtSel::new(); MAX_GP];
        self.base = [0; MAX_COUNTERS];
        self.fixed_ctr_ctrl = 0;
        self.global_ctrl = self.caps.global_ctrl_reset();
        self.global_status = 0;
        self.debugctl = DebugCtl::new();
        self.ds_area = 0;
        self.enabled = CounterSet::EMPTY;
        self.running = CounterSet::EMPTY;
        self.dirty = CounterSet::EMPTY;
        self.pmi_pending = false;
    }

    /// From the next entry on only what `filter` allows counts; counters that run are reprogrammed there. A denied
    /// counter keeps its registers, as in KVM, and a RESET keeps the filter.
    pub fn set_filter(&mut self, filter: EventFilter) {
        // What was counted so far was allowed.
        for counter in self.running {
            self.sync(counter);
        }
        self.filter = filter;
        self.dirty = self.caps.counters();
    }

    /// The guest's PMU.
    pub fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    /// What stands behind the counters.
    pub fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// Gives back what stands behind the counters.
    pub fn into_host(self) -> H {
        self.host
    }

    /// Whether an overflow awaits its PMI.
    pub fn pmi_requested(&self) -> bool {
        self.pmi_pending
    }

    /// What was counted so far.
    pub fn stats(&self) -> VpmuStats {
        self.stats
    }

    /// The guest reads MSR `index`.
    pub fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
        let msr = self.existing(index)?;
        Ok(match msr {
            PmuMsr::Counter(counter) | PmuMsr::FullWidth(counter) | PmuMsr::Fixed(counter) => {
                self.read_counter(counter)
            }
            PmuMsr::Selector(n) => self.selectors[n].into(),
            PmuMsr::FixedCtrCtrl => self.fixed_ctr_ctrl,
            PmuMsr::GlobalStatus => self.global_status,
            PmuMsr::GlobalCtrl => self.global_ctrl,
            // Write-only in effect: they read as 0.
            PmuMsr::GlobalOvfCtrl | PmuMsr::GlobalStatusSet | PmuMsr::PebsEnable => 0,
            PmuMsr::GlobalInUse => self.in_use(),
            PmuMsr::PerfCapabilities => self.caps.perf_capabilities(),
            PmuMsr::DebugCtl => self.debugctl.into(),
            PmuMsr::DsArea => self.ds_area,
        })
    }

    /// The guest writes MSR `index`.
    pub fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
        match self.existing(index)? {
            PmuMsr::Counter(counter) => {
                // Bit 31 is extended to the counter's width (SDM vol. 3, 21.2.5).
                self.write_counter(counter, i64::from(value as i32).cast_unsigned());
                Ok(())
            }
            PmuMsr::FullWidth(counter) => {
                within(value, self.caps.counter_mask())?;
                self.write_counter(counter, value);
                Ok(())
            }
            PmuMsr::Fixed(counter) => {
                self.write_counter(counter, value);
                Ok(())
            }
            PmuMsr::Selector(n) => self.write_selector(n, value),
            PmuMsr::FixedCtrCtrl => self.write_fixed_ctr_ctrl(value),
            PmuMsr::GlobalCtrl => self.write_global_ctrl(value),
            PmuMsr::GlobalOvfCtrl => self.write_global_ovf_ctrl(value),
            PmuMsr::GlobalStatusSet => {
                within(value, self.caps.status_set_mask())?;
                self.set_status(value);
                Ok(())
            }
            PmuMsr::DebugCtl => {
                within(value, self.caps.debugctl_mask())?;
                self.debugctl = value.into();
                Ok(())
            }
            PmuMsr::DsArea => {
                canonical(value)?;
                self.ds_area = value;
                Ok(())
            }
            // No counter can do PEBS, so no bit may be set.
            PmuMsr::PebsEnable => within(value, 0),
            PmuMsr::GlobalStatus | PmuMsr::GlobalInUse | PmuMsr::PerfCapabilities => Err(GeneralProtection),
        }
    }

    /// A signal said that a host event overflowed: looks at the counters it may have been, and returns how many overflowed.
    ///
    /// A clock may signal a little before its count is there. What it signalled for without an overflow is therefore aimed
    /// anew, so that the overflow is signalled again.
    pub fn kick(&mut self) -> u32 {
        let before = self.stats.overflows;
        let signalled = self.host.signalled();
        let mut early = CounterSet::EMPTY;
        for counter in self.running.and(signalled.counters) {
            let overflows = self.stats.overflows;
            self.sync(counter);
            early.set(counter, self.stats.overflows == overflows);
        }
        if signalled.certain || self.stats.overflows == before {
            early.into_iter().for_each(|counter| self.aim(counter));
        }
        (self.stats.overflows - before) as u32
    }

    /// Everything due before the guest is entered: failed starts, counters marked dirty, release by the strategy.
    pub fn enter(&mut self) {
        self.dirty.extend(self.host.due(self.pmi_pending));
        self.reprogram_dirty();
        self.host.on_entry(self.enabled);
    }

    /// Whether a PMI is due; the caller delivers it. With freeze-on-PMI the counters stop here.
    pub fn take_pmi(&mut self) -> bool {
        if !std::mem::take(&mut self.pmi_pending) {
            return false;
        }
        self.freeze_on_pmi();
        true
    }

    /// The PMI that was taken starts no handler at once: LVTPC is masked, or has no NMI.
    pub fn pmi_not_handled(&mut self) {
        let due = self.host.pmi_not_handled();
        if !due.is_empty() {
            self.dirty.extend(due);
            self.reprogram_dirty();
            self.host.on_entry(self.enabled);
        }
    }

    fn reprogram_dirty(&mut self) {
        if !self.dirty.is_empty() {
            for counter in std::mem::take(&mut self.dirty) {
                self.reprogram(counter);
            }
        }
    }

    fn existing(&self, index: u32) -> Result<PmuMsr, GeneralProtection> {
        let msr = PmuMsr::decode(index).ok_or(GeneralProtection)?;
        let exists = match msr {
            PmuMsr::Counter(counter) | PmuMsr::Fixed(counter) => self.has(counter),
            PmuMsr::FullWidth(counter) => self.caps.full_width_writes && self.has(counter),
            PmuMsr::Selector(n) => n < usize::from(self.caps.gp),
            PmuMsr::FixedCtrCtrl | PmuMsr::GlobalStatus | PmuMsr::GlobalCtrl | PmuMsr::GlobalOvfCtrl => {
                self.caps.version >= 2
            }
            PmuMsr::GlobalStatusSet | PmuMsr::GlobalInUse => self.caps.version >= 4,
            PmuMsr::PerfCapabilities | PmuMsr::DebugCtl => true,
            PmuMsr::PebsEnable | PmuMsr::DsArea => self.caps.debug_store,
        };
        if exists { Ok(msr) } else { Err(GeneralProtection) }
    }

    fn has(&self, counter: CounterId) -> bool {
        self.caps.global_mask() & 1 << counter.global_bit() != 0
    }

    /// Looks at the counter now or before the next entry, as the strategy says.
    fn mark_dirty(&mut self, counter: CounterId) {
        match self.host.changed(counter) {
            Reprogram::Now => self.reprogram(counter),
            Reprogram::AtEntry => self.dirty.insert(counter),
        }
    }
}

/// `value` has no bit outside `mask`.
fn within(value: u64, mask: u64) -> Result<(), GeneralProtection> {
    if value & !mask == 0 { Ok(()) } else { Err(GeneralProtection) }
}

/// Bits 63:47 of an address are equal.
pub fn canonical(address: u64) -> Result<(), GeneralProtection> {
    let upper = address.cast_signed() >> 47;
    if upper == 0 || upper == -1 { Ok(()) } else { Err(GeneralProtection) }
}

#[cfg(test)]
mod tests;
