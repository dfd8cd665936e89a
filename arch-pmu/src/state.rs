//! State that a register acts on: the counting core, and the registers of one vendor that are more than views of it.

use crate::counters::Counters;
use crate::filter::EventFilter;

/// A vendor's PMU.
pub(crate) trait Vendor {
    /// Description of the guest's PMU.
    type Caps: Copy;
    /// Register values as the guest wrote them; 0 by default.
    type Registers;
}

/// A PMU of vendor `V`, with `H` behind its counters.
#[derive(Debug)]
pub(crate) struct State<'a, V: Vendor, H> {
    pub(crate) caps: &'a V::Caps,
    pub(crate) registers: &'a mut V::Registers,
    pub(crate) counters: &'a mut Counters<H>,
    pub(crate) filter: &'a EventFilter,
}
