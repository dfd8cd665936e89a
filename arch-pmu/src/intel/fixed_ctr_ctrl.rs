//! IA32_FIXED_CTR_CTRL: a nibble of enables for each fixed counter (SDM vol. 3, 21.2.2).

use bitfield_struct::bitfield;

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::counters::Config;
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};
use crate::spec::{CounterId, Source, Spec};

/// One nibble of IA32_FIXED_CTR_CTRL.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct FixedControl {
    /// Count in ring 0.
    pub os: bool,
    /// Count in ring 3.
    pub usr: bool,
    /// AnyThread.
    pub any: bool,
    /// PMI on overflow.
    pub pmi: bool,
    #[bits(4)]
    reserved: u8,
}

impl FixedControl {
    /// Returns the nibble of fixed counter `n`.
    pub const fn of(fixed_ctr_ctrl: u64, n: usize) -> Self {
        Self::from_bits((fixed_ctr_ctrl >> (4 * n)) as u8 & 0xf)
    }

    /// Returns whether the counter's own enable is on: some ring is counted.
    pub const fn enabled(self) -> bool {
        self.os() || self.usr()
    }
}

/// IA32_FIXED_CTR_CTRL; 0 at RESET, since version 2.
#[derive(Debug)]
pub(super) struct FixedCtrCtrl;

impl FixedCtrCtrl {
    /// Returns all bits but the nibbles' ANY.
    #[inline]
    const fn mask(caps: IntelCaps) -> u64 {
        0xbbbb & ((1 << (4 * caps.fixed)) - 1)
    }
}

impl Register<Intel> for FixedCtrCtrl {
    fn exists(caps: IntelCaps, _n: usize) -> bool {
        caps.version >= 2
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, _n: usize) -> u64 {
        state.registers.fixed_ctr_ctrl
    }

    /// Writes the nibbles. Only counters with a changed nibble are configured anew.
    fn write<H: HostCounters>(state: &mut State<'_, H>, _n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, Self::mask(*state.caps))?;
        let changed = std::mem::replace(&mut state.registers.fixed_ctr_ctrl, value) ^ value;
        for n in 0..usize::from(state.caps.fixed) {
            let Some(counter) = CounterId::fixed(n) else { continue };
            if FixedControl::of(changed, n) == FixedControl::new() {
                continue;
            }
            let control = FixedControl::of(value, n);
            let config = Config {
                spec: Spec(Source::Fixed { index: n as u8, control: control.into() }),
                enabled: control.enabled(),
                interrupts: control.pmi(),
            };
            state.counters.touch(counter);
            state.counters.configure(counter, config);
        }
        Ok(())
    }
}
