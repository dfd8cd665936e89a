//! RDPMC (SDM vol. 2, RDPMC): a counter by number and type.

use crate::spec::CounterId;

/// ECX[31:16] of a fixed counter; a value, not a flag.
const FIXED: u32 = 0x4000;

/// Returns the counter that `ecx` selects; `None` for a type that is neither general-purpose nor fixed. Bit 31, the
/// "fast" read of the Pentium 4, is such a type on an architectural PMU.
pub(crate) const fn counter(ecx: u32) -> Option<CounterId> {
    let number = (ecx & 0xffff) as usize;
    match ecx >> 16 {
        0 => CounterId::gp(number),
        FIXED => CounterId::fixed(number),
        _ => None,
    }
}
