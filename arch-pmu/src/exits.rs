//! MSR exits counted by register.

use crate::msr::PmuMsr;

/// Exits of one MSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsrExits {
    /// The MSR's index.
    pub msr: u32,
    /// RDMSR exits.
    pub reads: u64,
    /// WRMSR exits.
    pub writes: u64,
    /// Accesses, among both, that were answered by #GP.
    pub faults: u64,
}

/// One line per register of the PMU.
#[derive(Clone, Debug)]
pub struct MsrStats {
    lines: [MsrExits; PmuMsr::SLOTS],
}

impl Default for MsrStats {
    fn default() -> Self {
        Self { lines: [MsrExits::default(); PmuMsr::SLOTS] }
    }
}

impl MsrStats {
    /// Counts one access to `msr`; `fault`: it was answered by #GP. An MSR that is not of the PMU is not counted.
    #[inline]
    pub fn count(&mut self, msr: u32, write: bool, fault: bool) {
        let Some(slot) = PmuMsr::slot_of(msr) else { return };
        let line = &mut self.lines[slot];
        line.msr = msr;
        if write {
            line.writes += 1;
        } else {
            line.reads += 1;
        }
        line.faults += u64::from(fault);
    }

    /// Returns the registers with accesses, by index.
    #[must_use]
    pub fn exits(&self) -> Vec<MsrExits> {
        let mut exits: Vec<_> = self.lines.iter().copied().filter(|line| line.reads + line.writes > 0).collect();
        exits.sort_unstable_by_key(|line| line.msr);
        exits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msr::{self, Row};
    use crate::spec::Vendor;

    #[test]
    fn every_register_has_its_own_line() {
        let mut stats = MsrStats::default();
        let mut registers: Vec<u32> =
            [Vendor::Intel, Vendor::Amd].into_iter().flat_map(msr::table).flat_map(Row::indices).collect();
        registers.sort_unstable();
        for &msr in &registers {
            stats.count(msr, true, false);
            stats.count(msr, false, true);
        }
        let exits = stats.exits();
        assert_eq!(exits.iter().map(|line| line.msr).collect::<Vec<_>>(), registers);
        assert_eq!(registers.len(), PmuMsr::SLOTS);
        assert!(exits.iter().all(|line| (line.reads, line.writes, line.faults) == (1, 1, 1)));
    }
}
