//! The trait that every register's file implements, the state that it acts on, and the table that a vendor makes of its registers.

use crate::counters::Counters;
use crate::host::HostCounters;

/// The access is answered by #GP(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralProtection;

/// A vendor's PMU.
pub(crate) trait VendorPmu {
    /// Description of the guest's PMU.
    type Caps: Copy;
    /// Register values as the guest wrote them; 0 by default.
    type Registers;
}

/// A PMU of vendor `V`, with `H` behind its counters.
#[derive(Debug)]
pub(crate) struct State<'a, V: VendorPmu, H> {
    pub(crate) caps: &'a V::Caps,
    pub(crate) registers: &'a mut V::Registers,
    pub(crate) counters: &'a mut Counters<H>,
}

/// A register, or a row of `n` registers of the same kind.
pub(crate) trait Register<V: VendorPmu> {
    /// Returns whether a guest with `caps` has register `n`.
    fn exists(caps: V::Caps, n: usize) -> bool;

    /// Sets the registers to their value at RESET. They are 0, and the counters off.
    fn reset<H: HostCounters>(_state: &mut State<'_, V, H>) {}

    /// Handles RDMSR of register `n`.
    fn read<H: HostCounters>(state: &mut State<'_, V, H>, n: usize) -> u64;

    /// Handles WRMSR of `value` to register `n`.
    fn write<H: HostCounters>(state: &mut State<'_, V, H>, n: usize, value: u64) -> Result<(), GeneralProtection>;
}

/// A row of a vendor's table: one register, or several of the same kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Index of the first.
    pub first: u32,
    /// Distance from one to the next.
    pub step: u32,
    /// Number of such registers on the largest PMU.
    pub count: u32,
    /// The name in the manual; of several, without their number.
    pub name: &'static str,
    /// The section of the manual: of the SDM, volume 3, or of the APM, volume 2.
    pub section: &'static str,
}

impl Row {
    /// Creates the row of registers `first` to `last`.
    pub(crate) const fn new(first: u32, last: u32, step: u32, constant: &'static str, section: &'static str) -> Self {
        // The constant has the number of the first of several registers.
        let name = if last > first { constant.split_at(constant.len() - 1).0 } else { constant };
        Self { first, step, count: (last - first) / step + 1, name, section }
    }

    /// Returns the indices of its registers.
    pub fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        let (first, step) = (self.first, self.step);
        (0..self.count).map(move |n| first + n * step)
    }
}

/// Makes a constant for the first index of each row, the table of all rows, and decoding and dispatch. Indices are patterns:
/// the compiler makes one decision tree of all rows, as from a `match` by hand. A row with `step 2` has every second index.
macro_rules! registers {
    ($vendor:ident: $($index:ident = $first:literal ..= $last:literal $(step $step:literal)?, $handler:ident, $section:literal;)*) => {
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
        pub static TABLE: [Row; ROWS] = TABLE_ROWS;

        pub(crate) const TABLE_ROWS: [Row; ROWS] =
            [$(Row::new($first, $last, 1 $(* $step)?, stringify!($index), $section),)*];

        const ROWS: usize = [$(stringify!($handler),)*].len();

        /// Returns the row of the register behind `index`, and its number in it, whether or not a certain guest has it.
        #[inline]
        pub(crate) const fn decode(index: u32) -> Option<(usize, usize)> {
            Some(match index {
                $($first..=$last $(if (index - $first) % $step == 0)? =>
                    (Kind::$handler as usize, ((index - $first) $(/ $step)?) as usize),)*
                _ => return None,
            })
        }

        /// Sets every register to its value at RESET.
        pub(crate) fn reset<H: HostCounters>(state: &mut State<'_, H>) {
            $(<$handler as Register<$vendor>>::reset(state);)*
        }

        /// Handles RDMSR.
        #[inline]
        pub(crate) fn read<H: HostCounters>(state: &mut State<'_, H>, index: u32) -> Result<u64, GeneralProtection> {
            match index {
                $($first..=$last $(if (index - $first) % $step == 0)? =>
                    read_nth::<$vendor, $handler, H>(state, ((index - $first) $(/ $step)?) as usize),)*
                _ => Err(GeneralProtection),
            }
        }

        /// Handles WRMSR.
        #[inline]
        pub(crate) fn write<H: HostCounters>(
            state: &mut State<'_, H>,
            index: u32,
            value: u64,
        ) -> Result<(), GeneralProtection> {
            match index {
                $($first..=$last $(if (index - $first) % $step == 0)? =>
                    write_nth::<$vendor, $handler, H>(state, ((index - $first) $(/ $step)?) as usize, value),)*
                _ => Err(GeneralProtection),
            }
        }
    };
}

pub(crate) use registers;

#[inline]
pub(crate) fn read_nth<V: VendorPmu, R: Register<V>, H: HostCounters>(
    state: &mut State<'_, V, H>,
    n: usize,
) -> Result<u64, GeneralProtection> {
    if R::exists(*state.caps, n) { Ok(R::read(state, n)) } else { Err(GeneralProtection) }
}

#[inline]
pub(crate) fn write_nth<V: VendorPmu, R: Register<V>, H: HostCounters>(
    state: &mut State<'_, V, H>,
    n: usize,
    value: u64,
) -> Result<(), GeneralProtection> {
    if R::exists(*state.caps, n) { R::write(state, n, value) } else { Err(GeneralProtection) }
}

/// Checks that `value` has no bit outside `mask`.
#[inline]
pub(crate) const fn within(value: u64, mask: u64) -> Result<(), GeneralProtection> {
    if value & !mask == 0 { Ok(()) } else { Err(GeneralProtection) }
}

/// Checks that bits 63:47 of an address are equal.
///
/// # Errors
/// #GP for an address that is not canonical.
pub const fn canonical(address: u64) -> Result<(), GeneralProtection> {
    let upper = address.cast_signed() >> 47;
    if upper == 0 || upper == -1 { Ok(()) } else { Err(GeneralProtection) }
}
