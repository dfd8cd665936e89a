//! AMD's PMU, and the values of its registers.

use super::caps::AmdCaps;
use crate::register::{self, VendorPmu};
use crate::spec::MAX_GP;

/// AMD's core PMU.
#[derive(Debug)]
pub(crate) struct Amd;

impl VendorPmu for Amd {
    type Caps = AmdCaps;
    type Registers = Registers;
}

/// State that an AMD register acts on.
pub(super) type State<'a, H> = register::State<'a, Amd, H>;

/// Register values as the guest wrote them. The registers' files give them their layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(super) perf_ctl: [u64; MAX_GP],
    pub(crate) svm: Svm,
}

/// State of a guest with SVM that Guest-Only and Host-Only ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Svm {
    /// EFER.SVME is 0, as RESET leaves it.
    #[default]
    Off,
    /// EFER.SVME is 1, and the vCPU runs no guest of the guest.
    Host,
    /// The vCPU runs a guest of the guest.
    Guest,
}
