//! The registers of the guest's PMU: where its vendor decides.

use crate::amd::{self, AmdCaps, Svm};
use crate::caps::PmuCaps;
use crate::counters::Counters;
use crate::host::HostCounters;
use crate::intel::{self, IntelCaps};
use crate::register::GeneralProtection;
use crate::register::State;
use crate::spec::CounterId;

/// The registers of one vendor's PMU.
#[derive(Debug)]
pub(crate) enum RegisterFile {
    Intel(IntelCaps, intel::Registers),
    Amd(AmdCaps, amd::Registers),
}

/// Calls a function of the vendor's table with its state.
macro_rules! of_vendor {
    ($file:expr, $counters:expr, $function:ident $(, $argument:expr)*) => {
        match $file {
            RegisterFile::Intel(caps, registers) => {
                let mut state: State<'_, intel::Intel, _> =
                    State { caps, registers, counters: $counters };
                intel::$function(&mut state $(, $argument)*)
            }
            RegisterFile::Amd(caps, registers) => {
                let mut state: State<'_, amd::Amd, _> =
                    State { caps, registers, counters: $counters };
                amd::$function(&mut state $(, $argument)*)
            }
        }
    };
}

impl RegisterFile {
    /// Creates the registers, all 0, of a PMU with numbers that this vPMU can keep.
    pub(crate) fn new(caps: PmuCaps) -> Self {
        match caps.bounded() {
            PmuCaps::Intel(caps) => Self::Intel(caps, intel::Registers::default()),
            PmuCaps::Amd(caps) => Self::Amd(caps, amd::Registers::default()),
        }
    }

    pub(crate) const fn caps(&self) -> PmuCaps {
        match self {
            Self::Intel(caps, _) => PmuCaps::Intel(*caps),
            Self::Amd(caps, _) => PmuCaps::Amd(*caps),
        }
    }

    /// Sets all registers to their values at RESET.
    pub(crate) fn reset<H: HostCounters>(&mut self, counters: &mut Counters<H>) {
        match self {
            Self::Intel(_, registers) => *registers = intel::Registers::default(),
            Self::Amd(_, registers) => *registers = amd::Registers::default(),
        }
        of_vendor!(self, counters, reset);
    }

    /// Handles RDMSR.
    #[inline]
    pub(crate) fn read<H: HostCounters>(
        &mut self,
        counters: &mut Counters<H>,
        index: u32,
    ) -> Result<u64, GeneralProtection> {
        of_vendor!(self, counters, read, index)
    }

    /// Handles WRMSR.
    #[inline]
    pub(crate) fn write<H: HostCounters>(
        &mut self,
        counters: &mut Counters<H>,
        index: u32,
        value: u64,
    ) -> Result<(), GeneralProtection> {
        of_vendor!(self, counters, write, index, value)
    }

    /// Sets the state of SVM, which Intel's PMU does not know.
    pub(crate) fn set_svm<H: HostCounters>(&mut self, counters: &mut Counters<H>, svm: Svm) {
        if let Self::Amd(caps, registers) = self {
            amd::set_svm(&mut State { caps, registers, counters }, svm);
        }
    }

    /// Returns the state of SVM.
    pub(crate) const fn svm(&self) -> Svm {
        if let Self::Amd(_, registers) = self { registers.svm } else { Svm::Off }
    }

    /// Returns whether a counter counts in one mode of SVM and not in the other.
    pub(crate) fn depends_on_svm(&self) -> bool {
        let Self::Amd(_, registers) = self else { return false };
        amd::depends_on_svm(registers)
    }

    /// Returns the counter that RDPMC's ECX selects.
    pub(crate) const fn rdpmc(&self, ecx: u32) -> Option<CounterId> {
        match self {
            Self::Intel(..) => intel::rdpmc::counter(ecx),
            // APM vol. 3, RDPMC: numbers from 6 are counters outside of the core, which the guest has none of.
            Self::Amd(..) => CounterId::gp(ecx as usize),
        }
    }

    /// Freezes the counters at the delivery of a PMI, if a register asks for that.
    #[inline]
    pub(crate) fn freeze_on_pmi<H: HostCounters>(&mut self, counters: &mut Counters<H>) {
        if let Self::Intel(caps, registers) = self {
            intel::freeze_on_pmi(&mut State { caps, registers, counters });
        }
    }

    /// Returns whether a PMI stops the counters.
    pub(crate) const fn freezes_on_pmi(&self) -> bool {
        match self {
            Self::Intel(_, registers) => intel::freezes_on_pmi(registers),
            Self::Amd(..) => false,
        }
    }
}
