//! The MSRs of both vendors' PMUs, from their tables: decoding, names, the numbers for statistics, the ranges for the
//! VMM's MSR filter, and exits counted by register.

use crate::amd::{PERF_CNTR_GLOBAL_CTL, PERF_CTR0, PERF_LEGACY_CTR0};
use crate::intel::{IA32_A_PMC0, IA32_FIXED_CTR0, IA32_PERF_GLOBAL_CTRL, IA32_PMC0};
pub use crate::register::Row;
use crate::spec::{CounterId, Vendor};
use crate::{amd, intel};

/// A register of a vendor's table, decoded from its index. No index is in both tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuMsr {
    vendor: Vendor,
    row: u8,
    n: u8,
}

const INTEL_ROWS: usize = intel::TABLE_ROWS.len();
const AMD_ROWS: usize = amd::TABLE_ROWS.len();

impl PmuMsr {
    /// Number of [`slot`](Self::slot)s.
    pub const SLOTS: usize = INTEL_SLOTS.1 + AMD_SLOTS.1;

    /// Returns the register behind `index`, whether or not a certain guest has it.
    #[inline]
    pub const fn decode(index: u32) -> Option<Self> {
        let (vendor, (row, n)) = match intel::decode(index) {
            Some(at) => (Vendor::Intel, at),
            None => match amd::decode(index) {
                Some(at) => (Vendor::Amd, at),
                None => return None,
            },
        };
        Some(Self { vendor, row: row as u8, n: n as u8 })
    }

    /// Returns whose register it is.
    pub const fn vendor(self) -> Vendor {
        self.vendor
    }

    /// Returns a dense number, for tables.
    #[inline]
    pub const fn slot(self) -> usize {
        let first = match self.vendor {
            Vendor::Intel => INTEL_SLOTS.0[self.row as usize],
            Vendor::Amd => INTEL_SLOTS.1 + AMD_SLOTS.0[self.row as usize],
        };
        first + self.n as usize
    }

    /// Returns the slot of the register behind `index`, or [`NO_SLOT`], as by [`decode`](Self::decode), without its decisions for
    /// the indices that guests use most.
    #[inline]
    fn slot_of(index: u32) -> usize {
        match NEAR_SLOTS.get(index as usize) {
            Some(&slot) => usize::from(slot),
            None => Self::decode(index).map_or(usize::from(NO_SLOT), Self::slot),
        }
    }

    /// Returns its row of the table.
    pub fn row(self) -> &'static Row {
        &table(self.vendor)[usize::from(self.row)]
    }

    /// Returns its name in the manual.
    pub fn name(self) -> String {
        let row = self.row();
        if row.count > 1 { format!("{}{}", row.name, self.n) } else { row.name.to_owned() }
    }
}

/// Returns the counter whose value the register at `index` is.
pub const fn counter_of(index: u32) -> Option<CounterId> {
    let n = match index {
        IA32_FIXED_CTR0..=0x30c => return CounterId::fixed((index - IA32_FIXED_CTR0) as usize),
        IA32_PMC0..=0xc8 => index - IA32_PMC0,
        IA32_A_PMC0..=0x4c8 => index - IA32_A_PMC0,
        PERF_LEGACY_CTR0..=0xc001_0007 => index - PERF_LEGACY_CTR0,
        PERF_CTR0..=0xc001_020b if (index - PERF_CTR0).is_multiple_of(2) => (index - PERF_CTR0) / 2,
        _ => return None,
    };
    CounterId::gp(n as usize)
}

/// Returns whether the register switches all counters at once.
pub const fn is_global_ctrl(index: u32) -> bool {
    matches!(index, IA32_PERF_GLOBAL_CTRL | PERF_CNTR_GLOBAL_CTL)
}

/// Returns the counter that RDPMC reads with this ECX, on a PMU that has it: AMD's numbers are those of Intel's type 0.
pub const fn counter_of_rdpmc(ecx: u32) -> Option<CounterId> {
    intel::rdpmc::counter(ecx)
}

/// Returns the registers of a vendor's PMU.
pub fn table(vendor: Vendor) -> &'static [Row] {
    match vendor {
        Vendor::Intel => &intel::TABLE,
        Vendor::Amd => &amd::TABLE,
    }
}

/// Returns the slot of each row's first register among its vendor's, and how many there are.
const fn slots<const N: usize>(rows: &[Row; N]) -> ([usize; N], usize) {
    let (mut slots, mut next, mut row) = ([0; N], 0, 0);
    while row < N {
        slots[row] = next;
        next += rows[row].count as usize;
        row += 1;
    }
    (slots, next)
}

static INTEL_SLOTS: ([usize; INTEL_ROWS], usize) = slots(&intel::TABLE_ROWS);
static AMD_SLOTS: ([usize; AMD_ROWS], usize) = slots(&amd::TABLE_ROWS);

/// Indices with a place in [`NEAR_SLOTS`]: Intel's are below.
const NEAR: usize = 0x640;
/// The place of an index without a register.
const NO_SLOT: u8 = u8::MAX;

/// The slot of each low index.
static NEAR_SLOTS: [u8; NEAR] = {
    assert!(PmuMsr::SLOTS < NO_SLOT as usize);
    let (mut slots, mut index) = ([NO_SLOT; NEAR], 0);
    while index < NEAR {
        if let Some(register) = PmuMsr::decode(index as u32) {
            slots[index] = register.slot() as u8;
        }
        index += 1;
    }
    slots
};

/// Returns first index and count of each gapless range of a vendor's registers, ascending: the ranges that an MSR filter lets exit.
pub fn ranges(vendor: Vendor) -> Vec<(u32, u32)> {
    let mut indices: Vec<_> = table(vendor).iter().flat_map(Row::indices).collect();
    indices.sort_unstable();
    indices.into_iter().fold(Vec::new(), |mut ranges: Vec<(u32, u32)>, index| {
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == index => last.1 += 1,
            _ => ranges.push((index, 1)),
        }
        ranges
    })
}

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
        let Some(line) = self.lines.get_mut(PmuMsr::slot_of(msr)) else { return };
        line.msr = msr;
        if write {
            line.writes += 1;
        } else {
            line.reads += 1;
        }
        line.faults += u64::from(fault);
    }

    /// Returns the registers with accesses, by index.
    pub fn exits(&self) -> Vec<MsrExits> {
        let mut exits: Vec<_> = self.lines.iter().copied().filter(|line| line.reads + line.writes > 0).collect();
        exits.sort_unstable_by_key(|line| line.msr);
        exits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd::PERF_CTR0;
    use crate::spec::Vendor;

    #[test]
    fn every_register_has_a_slot_and_a_name_of_its_own() {
        let indices: Vec<_> = [Vendor::Intel, Vendor::Amd].into_iter().flat_map(table).flat_map(Row::indices).collect();
        let all: Vec<_> = indices.iter().map(|&index| PmuMsr::decode(index).unwrap()).collect();
        let mut slots: Vec<_> = all.iter().map(|msr| msr.slot()).collect();
        let of_all = (0..0x2000).chain(0xc000_0000..0xc001_1000);
        for index in of_all {
            let slot = PmuMsr::decode(index).map_or(usize::from(NO_SLOT), PmuMsr::slot);
            assert_eq!(PmuMsr::slot_of(index), slot, "{index:#x}");
        }
        slots.sort_unstable();
        assert_eq!(slots, (0..PmuMsr::SLOTS).collect::<Vec<_>>());
        let mut names: Vec<_> = all.iter().map(|msr| msr.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PmuMsr::SLOTS);
        let name = |index| PmuMsr::decode(index).unwrap().name();
        assert_eq!((name(0x18d), name(0x38f)), ("IA32_PERFEVTSEL7".to_owned(), "IA32_PERF_GLOBAL_CTRL".to_owned()));
        assert_eq!((name(0xc001_020a), name(PERF_CTR0 + 2)), ("PERF_CTL5".to_owned(), "PERF_CTR1".to_owned()));
        assert_eq!([0xc001_0008, 0xc001_01ff, 0xc001_020c, 0xc000_02ff].map(PmuMsr::decode), [None; 4]);
    }

    #[test]
    fn ranges_are_merged_rows() {
        for vendor in [Vendor::Intel, Vendor::Amd] {
            let ranges = ranges(vendor);
            let gaps = ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0);
            assert!(gaps, "ascending, and no two touch: {ranges:x?}");
            let registers: u32 = table(vendor).iter().map(|row| row.count).sum();
            assert_eq!(ranges.iter().map(|&(_, count)| count).sum::<u32>(), registers);
        }
        assert!(ranges(Vendor::Intel).contains(&(0x38d, 6)));
        assert_eq!(ranges(Vendor::Amd), [(0xc000_0300, 4), (0xc001_0000, 8), (0xc001_0200, 12)]);
    }

    #[test]
    fn every_register_has_its_own_line() {
        let mut stats = MsrStats::default();
        let mut registers: Vec<u32> =
            [Vendor::Intel, Vendor::Amd].into_iter().flat_map(table).flat_map(Row::indices).collect();
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
