//! PERF_CTLx: the event, the enable and the rings of a counter (APM vol. 2, 13.2.1 and 13.2.2).

use bitfield_struct::bitfield;

use super::caps::AmdCaps;
use super::registers::{Amd, Registers, State, Svm};
use crate::counters::Config;
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};
use crate::spec::{CounterId, Selection, Source, Spec, Vendor};

/// PERF_CTLx; 0 at RESET. A WRMSR never faults: reserved bits are not kept (seen on Zen 3 for most of them; 9b026073db2f).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PerfCtl {
    /// Event select, bits 7:0.
    pub event_low: u8,
    /// Unit mask.
    pub umask: u8,
    /// Count in ring 3.
    pub usr: bool,
    /// Count in ring 0.
    pub os: bool,
    /// Edge detect.
    pub edge: bool,
    #[bits(1)]
    reserved_19: u8,
    /// PMI on overflow.
    pub int: bool,
    #[bits(1)]
    reserved_21: u8,
    /// Enable.
    pub en: bool,
    /// Invert the counter mask.
    pub inv: bool,
    /// Counter mask.
    pub cmask: u8,
    /// Event select, bits 11:8.
    #[bits(4)]
    pub event_high: u8,
    #[bits(4)]
    reserved_36: u8,
    /// Only in guests.
    pub guest_only: bool,
    /// Only outside of guests.
    pub host_only: bool,
    #[bits(22)]
    reserved_42: u64,
}

impl PerfCtl {
    /// Bits that are kept.
    const KEPT: u64 = 0x0000_030f_ffd7_ffff;

    /// Returns the 12 bits of the event.
    pub const fn event(self) -> u16 {
        (self.event_high() as u16) << 8 | self.event_low() as u16
    }

    /// Returns the selector in no vendor's layout.
    pub const fn selection(self) -> Selection {
        Selection::new()
            .with_vendor(Vendor::Amd)
            .with_select(self.event())
            .with_umask(self.umask())
            .with_cmask(self.cmask())
            .with_user(self.usr())
            .with_kernel(self.os())
            .with_edge(self.edge())
            .with_int(self.int())
            .with_enable(self.en())
            .with_invert(self.inv())
            .with_guest_only(self.guest_only())
            .with_host_only(self.host_only())
    }

    /// Returns the event that a counter with this selector is asked to count.
    pub const fn spec(self) -> Spec {
        Spec(Source::Selector(self.selection()))
    }

    /// Returns whether the counter's own enable is on, and the vCPU in a mode in which it counts. With Guest-Only or
    /// Host-Only it counts while EFER.SVME is 1 alone, with both in either mode (PPR, PERF_CTL HostGuestOnly). Linux
    /// masks Host-Only for that reason.
    pub const fn enabled(self, svm: Svm) -> bool {
        self.en()
            && match (self.guest_only(), self.host_only()) {
                (false, false) => true,
                (true, true) => !matches!(svm, Svm::Off),
                (true, false) => matches!(svm, Svm::Guest),
                (false, true) => matches!(svm, Svm::Host),
            }
    }

    fn config(self, svm: Svm) -> Config {
        Config { spec: self.spec(), enabled: self.enabled(svm), interrupts: self.int() }
    }
}

impl Register<Amd> for PerfCtl {
    fn exists(caps: AmdCaps, n: usize) -> bool {
        n < usize::from(caps.counters)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        state.registers.perf_ctl[n]
    }

    /// Writes the selector. A write of the same value changes nothing (KVM elides it), but keeps the counter in use.
    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        let value = value & Self::KEPT;
        let counter = CounterId::gp(n).ok_or(GeneralProtection)?;
        state.counters.touch(counter);
        if state.registers.perf_ctl[n] != value {
            state.registers.perf_ctl[n] = value;
            state.counters.configure(counter, Self::from_bits(value).config(state.registers.svm));
        }
        Ok(())
    }
}

/// Sets the state of SVM: counters that ask for it begin and end to count.
pub(crate) fn set_svm<H: HostCounters>(state: &mut State<'_, H>, svm: Svm) {
    let before = std::mem::replace(&mut state.registers.svm, svm);
    for (n, &selector) in state.registers.perf_ctl.iter().enumerate() {
        let selector = PerfCtl::from_bits(selector);
        if let Some(counter) = CounterId::gp(n).filter(|_| selector.enabled(before) != selector.enabled(svm)) {
            state.counters.configure(counter, selector.config(svm));
        }
    }
}

/// Returns whether SVM is on, and a counter in one of [`Svm::Host`] and [`Svm::Guest`] alone.
pub(crate) fn depends_on_svm(registers: &Registers) -> bool {
    registers.svm != Svm::Off
        && registers.perf_ctl.iter().any(|&selector| {
            let selector = PerfCtl::from_bits(selector);
            selector.enabled(Svm::Host) != selector.enabled(Svm::Guest)
        })
}
