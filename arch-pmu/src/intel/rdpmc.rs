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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_is_a_type_value() {
        assert_eq!((counter(7), counter(0x4000_0003)), (CounterId::gp(7), CounterId::fixed(3)));
        for ecx in [8, 0xffff, 0x4000_0004, 0x8000_0000, 0xc000_0000, 0x2000_0000, 0x0001_0000, u32::MAX] {
            assert_eq!(counter(ecx), None, "{ecx:#x}");
        }
    }
}
