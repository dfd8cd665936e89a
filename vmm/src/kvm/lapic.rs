//! LVTPC: where a PMI goes.
//!
//! The LAPIC is KVM's, so a PMI is delivered in userspace as KVM's own vPMU does it in the kernel
//! (`kvm_apic_local_deliver`): read the entry, obey mask and mode, set the mask bit (a16eb25b09c0).

use bitfield_struct::bitfield;
use kvm_bindings::kvm_lapic_state;

/// Offset of LVTPC in the LAPIC's page.
const LVTPC: usize = 0x340;

/// The performance-counter entry of the local vector table (SDM vol. 3, 12.5.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Lvtpc {
    /// Vector, for fixed delivery.
    pub vector: u8,
    /// Delivery mode.
    #[bits(3)]
    pub mode: u8,
    #[bits(5)]
    reserved: u8,
    /// Nothing is delivered.
    pub masked: bool,
    #[bits(15)]
    reserved_high: u16,
}

/// What an unmasked entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing: the entry is masked. The STATUS bit stays; the interrupt is gone, as on hardware.
    Masked,
    /// An NMI.
    Nmi,
    /// A fixed interrupt.
    Fixed(u8),
    /// SMI, INIT, ExtINT or a reserved mode: nothing a PMU driver uses.
    Unsupported(u8),
}

impl Lvtpc {
    /// The entry of a LAPIC page.
    #[must_use]
    pub fn read(lapic: &kvm_lapic_state) -> Self {
        let byte = |i: usize| lapic.regs[LVTPC + i].cast_unsigned();
        Self::from_bits(u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]))
    }

    /// Puts the entry into a LAPIC page.
    pub fn write(self, lapic: &mut kvm_lapic_state) {
        for (i, byte) in self.into_bits().to_le_bytes().into_iter().enumerate() {
            lapic.regs[LVTPC + i] = byte.cast_signed();
        }
    }

    /// Where a PMI goes now.
    #[must_use]
    pub const fn delivery(self) -> Delivery {
        match (self.masked(), self.mode()) {
            (true, _) => Delivery::Masked,
            (false, 0b100) => Delivery::Nmi,
            (false, 0b000) => Delivery::Fixed(self.vector()),
            (false, mode) => Delivery::Unsupported(mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_and_mask_decide() {
        for (entry, delivery) in [
            (0x1_0400, Delivery::Masked),
            (0x0_0400, Delivery::Nmi),
            (0x0_0021, Delivery::Fixed(0x21)),
            (0x1_0000, Delivery::Masked),
            (0x0_0200, Delivery::Unsupported(2)),
            (0x0_0700, Delivery::Unsupported(7)),
        ] {
            assert_eq!(Lvtpc::from_bits(entry).delivery(), delivery, "{entry:#x}");
        }
    }

    #[test]
    fn pitfall_09_masking_changes_one_bit_of_the_page() {
        let mut lapic = kvm_lapic_state::default();
        Lvtpc::from_bits(0x400).write(&mut lapic);
        let before = lapic.regs;
        Lvtpc::read(&lapic).with_masked(true).write(&mut lapic);
        let changed: Vec<_> = (0..before.len()).filter(|&i| before[i] != lapic.regs[i]).collect();
        assert_eq!((changed, Lvtpc::read(&lapic).into_bits()), (vec![LVTPC + 2], 0x1_0400));
    }
}
