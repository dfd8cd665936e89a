//! The table of all registers. Decoding, dispatch, names, the numbers for statistics and the VMM's MSR filter come from it.

use super::a_pmc::APmc;
use super::debugctl::DebugCtl;
use super::ds_area::DsArea;
use super::fixed_ctr::FixedCtr;
use super::fixed_ctr_ctrl::FixedCtrCtrl;
use super::global_ctrl::GlobalCtrl;
use super::global_inuse::GlobalInUse;
use super::global_ovf_ctrl::GlobalOvfCtrl;
use super::global_status::GlobalStatus;
use super::global_status_set::GlobalStatusSet;
use super::misc_enable::MiscEnable;
use super::pebs_enable::PebsEnable;
use super::perf_capabilities::PerfCapabilities;
use super::perfevtsel::PerfEvtSel;
use super::pmc::Pmc;
use super::register::{GeneralProtection, Register};
use crate::caps::PmuCaps;
use crate::host::HostCounters;
use crate::spec::{MAX_FIXED, MAX_GP};
use crate::state::State;

/// A row of the table: one register, or consecutive ones of the same kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Index of the first.
    pub first: u32,
    /// How many there are on the largest PMU.
    pub count: u32,
    /// The name in the manual; of several, without their number.
    pub name: &'static str,
    /// The section of the SDM, volume 3.
    pub section: &'static str,
    /// Whether a guest has register `n`.
    exists: fn(PmuCaps, usize) -> bool,
}

impl Row {
    /// How many of them a guest has.
    #[must_use]
    pub fn count_of(&self, caps: PmuCaps) -> usize {
        (0..self.count as usize).take_while(|&n| (self.exists)(caps, n)).count()
    }
}

/// Makes a constant for the first index of each row, [`TABLE`], [`PmuMsr::decode`] and the dispatch. Indices are patterns:
/// the compiler makes one decision tree of all rows, as from a `match` by hand.
macro_rules! registers {
    ($($index:ident = $first:literal ..= $last:literal, $handler:ident, $section:literal;)*) => {
        $(
            #[doc = concat!("Index of ", stringify!($index), ".")]
            pub const $index: u32 = $first;
        )*

        /// Rows of the table by handler.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Kind {
            $($handler,)*
        }

        /// All registers, by handler.
        pub static TABLE: [Row; ROWS] = ALL;

        const ALL: [Row; ROWS] = [$(Row {
            first: $first,
            count: $last - $first + 1,
            name: name(stringify!($index), $last > $first),
            section: $section,
            exists: <$handler as Register>::exists,
        },)*];

        const ROWS: usize = [$(stringify!($handler),)*].len();

        impl PmuMsr {
            /// The register behind `index`, whether or not a certain guest has it.
            #[inline]
            #[must_use]
            pub const fn decode(index: u32) -> Option<Self> {
                Some(match index {
                    $($first..=$last => Self { kind: Kind::$handler, n: (index - $first) as u8 },)*
                    _ => return None,
                })
            }
        }

        /// Sets every register to its value at RESET.
        pub(crate) fn reset<H: HostCounters>(state: &mut State<H>) {
            $(<$handler as Register>::reset(state);)*
        }

        /// The event filter changed.
        pub(crate) fn filter_changed<H: HostCounters>(state: &mut State<H>) {
            $(<$handler as Register>::filter_changed(state);)*
        }

        /// RDMSR.
        pub(crate) fn read<H: HostCounters>(state: &mut State<H>, index: u32) -> Result<u64, GeneralProtection> {
            match index {
                $($first..=$last => read_nth::<$handler, H>(state, (index - $first) as usize),)*
                _ => Err(GeneralProtection),
            }
        }

        /// WRMSR.
        pub(crate) fn write<H: HostCounters>(
            state: &mut State<H>,
            index: u32,
            value: u64,
        ) -> Result<(), GeneralProtection> {
            match index {
                $($first..=$last => write_nth::<$handler, H>(state, (index - $first) as usize, value),)*
                _ => Err(GeneralProtection),
            }
        }
    };
}

registers! {
    IA32_PMC0                   = 0x0c1..=0x0c8, Pmc,              "21.2.5";
    IA32_PERFEVTSEL0            = 0x186..=0x18d, PerfEvtSel,       "21.2.1.1";
    IA32_MISC_ENABLE            = 0x1a0..=0x1a0, MiscEnable,       "21.2";
    IA32_DEBUGCTL               = 0x1d9..=0x1d9, DebugCtl,         "18.4.1";
    IA32_FIXED_CTR0             = 0x309..=0x30c, FixedCtr,         "21.2.2";
    IA32_PERF_CAPABILITIES      = 0x345..=0x345, PerfCapabilities, "21.2.8";
    IA32_FIXED_CTR_CTRL         = 0x38d..=0x38d, FixedCtrCtrl,     "21.2.2";
    IA32_PERF_GLOBAL_STATUS     = 0x38e..=0x38e, GlobalStatus,     "21.2.2";
    IA32_PERF_GLOBAL_CTRL       = 0x38f..=0x38f, GlobalCtrl,       "21.2.2";
    IA32_PERF_GLOBAL_OVF_CTRL   = 0x390..=0x390, GlobalOvfCtrl,    "21.2.2";
    IA32_PERF_GLOBAL_STATUS_SET = 0x391..=0x391, GlobalStatusSet,  "21.2.4";
    IA32_PERF_GLOBAL_INUSE      = 0x392..=0x392, GlobalInUse,      "21.2.4";
    IA32_PEBS_ENABLE            = 0x3f1..=0x3f1, PebsEnable,       "21.8.4";
    IA32_A_PMC0                 = 0x4c1..=0x4c8, APmc,             "21.2.8";
    IA32_DS_AREA                = 0x600..=0x600, DsArea,           "18.4.9.4";
}

const _: () = assert!(
    ALL[Kind::Pmc as usize].count as usize == MAX_GP && ALL[Kind::FixedCtr as usize].count as usize == MAX_FIXED
);

/// `constant` without the number of the first of several registers.
const fn name(constant: &'static str, several: bool) -> &'static str {
    if several { constant.split_at(constant.len() - 1).0 } else { constant }
}

#[inline]
fn read_nth<R: Register, H: HostCounters>(state: &mut State<H>, n: usize) -> Result<u64, GeneralProtection> {
    if R::exists(state.caps, n) { Ok(R::read(state, n)) } else { Err(GeneralProtection) }
}

#[inline]
fn write_nth<R: Register, H: HostCounters>(
    state: &mut State<H>,
    n: usize,
    value: u64,
) -> Result<(), GeneralProtection> {
    if R::exists(state.caps, n) { R::write(state, n, value) } else { Err(GeneralProtection) }
}

/// A register of the table, decoded from its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuMsr {
    kind: Kind,
    n: u8,
}

impl PmuMsr {
    /// Number of [`slot`](Self::slot)s.
    pub const SLOTS: usize = FIRST_SLOTS[ROWS - 1] + ALL[ROWS - 1].count as usize;

    /// A dense number, for tables.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        FIRST_SLOTS[self.kind as usize] + self.n as usize
    }

    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &TABLE[self.kind as usize]
    }

    /// Its name in the manual.
    #[must_use]
    pub fn name(self) -> String {
        let row = self.row();
        if row.count > 1 { format!("{}{}", row.name, self.n) } else { row.name.to_owned() }
    }
}

/// The slot of each row's first register.
static FIRST_SLOTS: [usize; ROWS] = {
    let mut slots = [0; ROWS];
    let mut row = 1;
    while row < ROWS {
        slots[row] = slots[row - 1] + ALL[row - 1].count as usize;
        row += 1;
    }
    slots
};

/// First index and count of each gapless range of registers, ascending: what an MSR filter lets exit.
#[must_use]
pub fn ranges() -> Vec<(u32, u32)> {
    let mut rows: Vec<_> = TABLE.iter().map(|row| (row.first, row.count)).collect();
    rows.sort_unstable();
    rows.into_iter().fold(Vec::new(), |mut ranges: Vec<(u32, u32)>, (first, count)| {
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == first => last.1 += count,
            _ => ranges.push((first, count)),
        }
        ranges
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_has_a_slot_and_a_name_of_its_own() {
        let all: Vec<_> = (0..0x1000).filter_map(PmuMsr::decode).collect();
        let mut slots: Vec<_> = all.iter().map(|msr| msr.slot()).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..PmuMsr::SLOTS).collect::<Vec<_>>());
        let mut names: Vec<_> = all.iter().map(|msr| msr.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PmuMsr::SLOTS);
        let name = |index| PmuMsr::decode(index).unwrap().name();
        assert_eq!((name(0x18d), name(0x38f)), ("IA32_PERFEVTSEL7".to_owned(), "IA32_PERF_GLOBAL_CTRL".to_owned()));
    }

    #[test]
    fn ranges_are_merged_rows() {
        let gaps = ranges().windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0);
        assert!(gaps, "ascending, and no two touch: {:x?}", ranges());
        assert!(ranges().contains(&(0x38d, 6)));
        assert_eq!(ranges().iter().map(|&(_, count)| count as usize).sum::<usize>(), PmuMsr::SLOTS);
    }

    #[test]
    fn a_guest_has_what_its_pmu_has() {
        let caps = PmuCaps::default();
        let count = |index| PmuMsr::decode(index).unwrap().row().count_of(caps);
        assert_eq!(
            [IA32_PMC0, IA32_FIXED_CTR0, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_INUSE].map(count),
            [4, 3, 1, 0]
        );
    }
}
