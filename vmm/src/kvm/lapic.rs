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

/// What a delivery needs of KVM.
pub(crate) trait PmiPort {
    /// Why it failed.
    type Error;
    /// KVM_GET_LAPIC.
    fn lapic(&mut self) -> Result<kvm_lapic_state, Self::Error>;
    /// KVM_SET_LAPIC.
    fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), Self::Error>;
    /// KVM_NMI; it wakes a halted vCPU, and KVM keeps at most two pending.
    fn nmi(&mut self) -> Result<(), Self::Error>;
    /// KVM_SIGNAL_MSI to this vCPU.
    fn interrupt(&mut self, vector: u8) -> Result<(), Self::Error>;
}

/// Delivers a PMI as the LAPIC does: by LVTPC's mode, unless masked, and masks the entry (SDM vol. 3, 12.5.1).
pub(crate) fn deliver<P: PmiPort>(port: &mut P) -> Result<Delivery, P::Error> {
    let mut lapic = port.lapic()?;
    let lvtpc = Lvtpc::read(&lapic);
    let delivery = lvtpc.delivery();
    match delivery {
        Delivery::Masked | Delivery::Unsupported(_) => return Ok(delivery),
        Delivery::Nmi => port.nmi()?,
        Delivery::Fixed(vector) => {
            port.interrupt(vector)?;
            // The interrupt is in the page by now.
            lapic = port.lapic()?;
        }
    }
    lvtpc.with_masked(true).write(&mut lapic);
    port.set_lapic(&lapic)?;
    Ok(delivery)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A LAPIC that pends what it is sent: an interrupt shows in its page, NMIs are counted.
    #[derive(Default)]
    struct Fake {
        page: Option<kvm_lapic_state>,
        nmis: u32,
    }

    /// First byte of the IRR.
    const IRR: usize = 0x200;

    impl PmiPort for Fake {
        type Error = &'static str;
        fn lapic(&mut self) -> Result<kvm_lapic_state, Self::Error> {
            self.page.ok_or("there is no LAPIC in the kernel")
        }
        fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), Self::Error> {
            self.page = Some(*lapic);
            Ok(())
        }
        fn nmi(&mut self) -> Result<(), Self::Error> {
            self.nmis += 1;
            Ok(())
        }
        fn interrupt(&mut self, vector: u8) -> Result<(), Self::Error> {
            let page = self.page.as_mut().ok_or("there is no LAPIC in the kernel")?;
            page.regs[IRR + usize::from(vector / 32) * 16 + usize::from(vector / 8 % 4)] |= 1 << (vector % 8);
            Ok(())
        }
    }

    fn with(entry: u32) -> Fake {
        let mut page = kvm_lapic_state::default();
        Lvtpc::from_bits(entry).write(&mut page);
        Fake { page: Some(page), nmis: 0 }
    }

    fn entry(fake: &Fake) -> u32 {
        Lvtpc::read(&fake.page.unwrap()).into_bits()
    }

    #[test]
    fn pitfall_09_a_delivery_masks_lvtpc_so_that_an_overflow_storm_is_one_nmi() {
        let mut fake = with(0x400);
        assert_eq!((deliver(&mut fake), entry(&fake)), (Ok(Delivery::Nmi), 0x1_0400));
        for _ in 0..1000 {
            assert_eq!(deliver(&mut fake), Ok(Delivery::Masked));
        }
        assert_eq!(fake.nmis, 1);
    }

    #[test]
    fn pitfall_24_until_the_handler_unmasks_lvtpc_no_second_nmi_can_be_lost() {
        let mut fake = with(0x400);
        for handled in 1..=3 {
            let _ = deliver(&mut fake);
            let _ = deliver(&mut fake);
            assert_eq!(fake.nmis, handled, "one KVM_NMI for each time the entry was unmasked");
            Lvtpc::from_bits(0x400).write(fake.page.as_mut().unwrap());
        }
    }

    #[test]
    fn a_fixed_interrupt_is_still_pending_after_its_entry_was_masked() {
        let mut fake = with(0x31);
        assert_eq!((deliver(&mut fake), entry(&fake)), (Ok(Delivery::Fixed(0x31)), 0x1_0031));
        assert_eq!((fake.page.unwrap().regs[IRR + 0x10 + 2], fake.nmis), (1 << 1, 0));
    }

    #[test]
    fn what_is_not_delivered_does_not_mask() {
        for (lvtpc, delivery) in [(0x1_0400, Delivery::Masked), (0x200, Delivery::Unsupported(2))] {
            let mut fake = with(lvtpc);
            assert_eq!((deliver(&mut fake), entry(&fake), fake.nmis), (Ok(delivery), lvtpc, 0));
        }
    }

    #[test]
    fn pitfall_25_without_an_in_kernel_lapic_a_pmi_is_an_error_not_silence() {
        assert_eq!(deliver(&mut Fake::default()), Err("there is no LAPIC in the kernel"));
    }

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
