//! Intel's PMU, and the values of its registers.

use super::caps::IntelCaps;
use crate::register::{self, VendorPmu};
use crate::spec::MAX_GP;

/// Intel's architectural PMU.
#[derive(Debug)]
pub(crate) struct Intel;

impl VendorPmu for Intel {
    type Caps = IntelCaps;
    type Registers = Registers;
}

/// State that an Intel register acts on.
pub(super) type State<'a, H> = register::State<'a, Intel, H>;

/// Register values as the guest wrote them. The registers' files give them their layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(super) perfevtsel: [u64; MAX_GP],
    pub(super) fixed_ctr_ctrl: u64,
    /// Bits of GLOBAL_STATUS beside the counters' and CTR_FRZ.
    pub(super) status: u64,
    pub(super) debugctl: u64,
    pub(super) misc_enable: u64,
    pub(super) ds_area: u64,
}
