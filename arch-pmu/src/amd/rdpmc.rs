//! RDPMC (APM vol. 3, RDPMC): a counter by number. Numbers from 6 are counters outside of the core, which the guest has none of.

use crate::spec::CounterId;

/// Returns the counter that `ecx` selects, all 32 bits of it.
pub(crate) const fn counter(ecx: u32) -> Option<CounterId> {
    CounterId::gp(ecx as usize)
}
