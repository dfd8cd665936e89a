//! IA32_PERFEVTSELx: the event, the enables and the rings of a general-purpose counter (SDM vol. 3, 21.2.1.1).

use bitfield_struct::bitfield;

use super::caps::IntelCaps;
use super::registers::{Intel, State};
use crate::counters::Config;
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, within};
use crate::spec::{CounterId, Selection, Source, Spec, Vendor};

/// IA32_PERFEVTSELx; 0 at RESET.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PerfEvtSel {
    /// Event select.
    pub event: u8,
    /// Unit mask.
    pub umask: u8,
    /// Count in ring 3.
    pub usr: bool,
    /// Count in ring 0.
    pub os: bool,
    /// Edge detect.
    pub edge: bool,
    /// Pin control.
    pub pin: bool,
    /// PMI on overflow.
    pub int: bool,
    /// AnyThread.
    pub any: bool,
    /// Enable.
    pub en: bool,
    /// Invert the counter mask.
    pub inv: bool,
    /// Counter mask.
    pub cmask: u8,
    /// Only inside transactions.
    pub in_tx: bool,
    /// Only outside aborted transactions.
    pub in_txcp: bool,
    #[bits(30)]
    reserved: u64,
}

impl PerfEvtSel {
    /// Returns a mask of the bits that selector `n` takes: ANY is refused, IN_TX needs transactions, IN_TXCP also counter 2.
    #[inline]
    fn mask(caps: IntelCaps, n: usize) -> u64 {
        let refused = Self::new().with_any(true).with_in_tx(true).with_in_txcp(true);
        let transactional = Self::new().with_in_tx(caps.transactions).with_in_txcp(caps.transactions && n == 2);
        (0x3_ffff_ffff & !u64::from(refused)) | u64::from(transactional)
    }

    /// Returns the selector in no vendor's layout. ANY is never set.
    pub const fn selection(self) -> Selection {
        Selection::new()
            .with_vendor(Vendor::Intel)
            .with_select(self.event() as u16)
            .with_umask(self.umask())
            .with_cmask(self.cmask())
            .with_user(self.usr())
            .with_kernel(self.os())
            .with_edge(self.edge())
            .with_pin(self.pin())
            .with_int(self.int())
            .with_enable(self.en())
            .with_invert(self.inv())
            .with_in_tx(self.in_tx())
            .with_in_txcp(self.in_txcp())
    }

    /// Returns the event that a counter with this selector is asked to count.
    pub const fn spec(self) -> Spec {
        Spec(Source::Selector(self.selection()))
    }
}

impl Register<Intel> for PerfEvtSel {
    fn exists(caps: IntelCaps, n: usize) -> bool {
        n < usize::from(caps.gp)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        state.registers.perfevtsel[n]
    }

    /// Writes the selector. A write of the same value changes nothing (KVM elides it), but keeps the counter in use.
    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        within(value, Self::mask(*state.caps, n))?;
        let counter = CounterId::gp(n).ok_or(GeneralProtection)?;
        state.counters.touch(counter);
        if state.registers.perfevtsel[n] != value {
            state.registers.perfevtsel[n] = value;
            let selector = Self::from_bits(value);
            let config = Config { spec: selector.spec(), enabled: selector.en(), interrupts: selector.int() };
            state.counters.configure(counter, config);
        }
        Ok(())
    }
}
