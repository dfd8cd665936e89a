//! LVTPC: where a PMI goes.
//!
//! The LAPIC is KVM's, so a PMI is delivered in userspace as KVM's own vPMU does it in the kernel
//! (`kvm_apic_local_deliver`): read the entry, obey mask and mode, set the mask bit (a16eb25b09c0).
//!
//! # What can be lost
//! KVM_SET_LAPIC replaces the whole page, the request register with it: an interrupt that another thread puts there
//! between KVM_GET_LAPIC and KVM_SET_LAPIC (another vCPU's IPI, a line of the IOAPIC) would be lost without a trace. In x2APIC
//! mode LVTPC is an MSR, and KVM_SET_MSRS writes that one register and nothing else: `LvtpcDoor` uses it whenever the
//! guest is in that mode, and nothing can be lost. In xAPIC mode there is no other way than the page; it is then fetched
//! again immediately before it is written, which leaves a window of two system calls per PMI. KVM gives userspace no
//! means to close it: masking later, or not at all, would change what the guest sees of every PMI instead.

use bitfield_struct::bitfield;
use kvm_bindings::{Msrs, kvm_lapic_state, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

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

/// LVTPC as an MSR, in x2APIC mode (SDM vol. 3, table 12-6).
const X2APIC_LVTPC: u32 = 0x834;
/// IA32_APIC_BASE[10]: x2APIC mode.
const EXTD: u64 = 1 << 10;

/// The way to a vCPU's LVTPC.
#[derive(Debug)]
pub(crate) struct LvtpcDoor {
    /// Others write to this LAPIC: never write back a page that was read a while ago.
    contended: bool,
    msr: Option<Msrs>,
    /// Whether the guest is in x2APIC mode, as of the last read.
    by_msr: bool,
    page: Option<kvm_lapic_state>,
}

impl LvtpcDoor {
    /// A way to the LVTPC of a vCPU whose LAPIC others write to, or not.
    pub(crate) fn new(contended: bool) -> Self {
        let entry = kvm_msr_entry { index: X2APIC_LVTPC, ..kvm_msr_entry::default() };
        Self { contended, msr: Msrs::from_entries(&[entry]).ok(), by_msr: false, page: None }
    }

    /// Reads the entry.
    pub(crate) fn read(&mut self, fd: &mut VcpuFd) -> Result<Lvtpc, kvm_ioctls::Error> {
        self.page = None;
        self.by_msr = false;
        let x2apic = fd.get_kvm_run().apic_base & EXTD != 0;
        if let (true, Some(msr)) = (x2apic, &mut self.msr)
            && fd.get_msrs(msr)? == 1
            && let [entry] = msr.as_slice()
        {
            self.by_msr = true;
            return Ok(Lvtpc::from_bits(entry.data as u32));
        }
        let page = fd.get_lapic()?;
        if !self.contended {
            self.page = Some(page);
        }
        Ok(Lvtpc::read(&page))
    }

    /// What was read of the page is out of date.
    pub(crate) fn forget(&mut self) {
        self.page = None;
    }

    /// Writes the entry, by the way it was read.
    pub(crate) fn write(&mut self, fd: &VcpuFd, entry: Lvtpc) -> Result<(), kvm_ioctls::Error> {
        if let (true, Some(msr)) = (self.by_msr, &mut self.msr) {
            if let [slot] = msr.as_mut_slice() {
                slot.data = entry.into_bits().into();
            }
            return match fd.set_msrs(msr)? {
                1 => Ok(()),
                _ => Err(kvm_ioctls::Error::new(libc::EINVAL)),
            };
        }
        let mut page = match self.page.take() {
            Some(page) => page,
            None => fd.get_lapic()?,
        };
        entry.write(&mut page);
        fd.set_lapic(&page)
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
