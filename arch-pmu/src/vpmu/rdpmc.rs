//! RDPMC (SDM vol. 2, RDPMC): a counter by number and type.

use crate::host::HostCounters;
use crate::spec::CounterId;

use super::{GeneralProtection, Vpmu};

/// ECX[31:16] of a fixed counter; a value, not a flag.
const FIXED: u32 = 0x4000;

impl<H: HostCounters> Vpmu<H> {
    /// RDPMC with `ecx`: the counter's value in its full width.
    ///
    /// # Errors
    /// #GP for a counter this PMU does not have and for a type that is neither; bit 31, the "fast" read of the Pentium 4,
    /// is such a type on an architectural PMU. Privilege (CPL, CR4.PCE) is the caller's matter.
    pub fn rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        let number = (ecx & 0xffff) as usize;
        let counter = match ecx >> 16 {
            0 => CounterId::gp(number),
            FIXED => CounterId::fixed(number),
            _ => None,
        };
        let counter = counter.filter(|&counter| self.has(counter)).ok_or(GeneralProtection)?;
        Ok(self.read_counter(counter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::PmuCaps;
    use crate::fake::Fake;
    use crate::regs::{IA32_A_PMC0, IA32_FIXED_CTR0};

    #[test]
    fn pitfall_20_fixed_is_a_type_value_and_bit_31_faults() {
        let mut pmu = Vpmu::new(PmuCaps::default(), Fake::default());
        pmu.wrmsr(IA32_A_PMC0 + 3, 0xffff_8000_0003).unwrap();
        pmu.wrmsr(IA32_FIXED_CTR0 + 2, 0x1234).unwrap();
        assert_eq!(pmu.rdpmc(3), Ok(0xffff_8000_0003), "the whole width, not sign-extended");
        assert_eq!(pmu.rdpmc(0x4000_0002), Ok(0x1234));
        for bad in
            [4, 64, 0xffff, 0x4000_0003, 0x8000_0000, 0x8000_0003, 0xc000_0000, 0x2000_0000, 0x0001_0000, u32::MAX]
        {
            assert_eq!(pmu.rdpmc(bad), Err(GeneralProtection), "{bad:#x}");
        }
    }
}
