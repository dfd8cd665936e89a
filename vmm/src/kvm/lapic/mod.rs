//! LVTPC: where a PMI goes.
//!
//! The LAPIC is KVM's, so a PMI is delivered in userspace as KVM's own vPMU does it in the kernel
//! (`kvm_apic_local_deliver`): read the entry, obey mask and mode, set the mask bit (a16eb25b09c0). AMD's processors
//! leave the entry as it is (49ff3b4aec51): a PMI then meets no mask of a delivery, and one that finds an NMI still
//! pending is that NMI.
//!
//! A LAPIC that is switched off (IA32_APIC_BASE bit 11) delivers nothing (SDM vol. 3, 12.4.3), and neither does KVM's.
//! Its mode is looked at for each PMI, because the guest may change it at any time.
//!
//! # What can be lost
//! KVM_SET_LAPIC replaces the whole page, the request register with it: an interrupt that another thread puts there
//! between KVM_GET_LAPIC and KVM_SET_LAPIC (another vCPU's IPI, a line of the IOAPIC) would be lost without a trace. In x2APIC
//! mode LVTPC is an MSR, and KVM_SET_MSRS writes no register but those it names: that way is taken whenever the
//! guest is in that mode, and nothing can be lost. In xAPIC mode there is no other way than the page; it is then fetched
//! again immediately before it is written, which leaves a window of two system calls per PMI. KVM gives userspace no
//! means to close it: masking later, or not at all, would change what the guest sees of every PMI instead.
//! KVM_SET_LAPIC also drops a tick of the timer that has expired and is not yet an interrupt: `tick` puts it back.

pub(super) mod local;
pub(super) mod page;
pub(super) mod tick;

use arch_pmu::pmi::{Delivery, Lvtpc};
use kvm_bindings::kvm_lapic_state;

use self::page::{lvtpc, set_lvtpc};
use self::tick::{Tick, put_back};

/// IA32_APIC_BASE[10]: x2APIC mode.
const EXTD: u64 = 1 << 10;
/// IA32_APIC_BASE[11]: the LAPIC is on.
const EN: u64 = 1 << 11;

/// The mode of a LAPIC (SDM vol. 3, table 12-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is off.
    Off,
    /// Its registers are in memory.
    XApic,
    /// Its registers are MSRs.
    X2Apic,
}

impl Mode {
    /// Returns the mode that IA32_APIC_BASE selects. EXTD without EN cannot be written.
    pub(super) const fn of(apic_base: u64) -> Self {
        match (apic_base & EN != 0, apic_base & EXTD != 0) {
            (false, _) => Self::Off,
            (true, false) => Self::XApic,
            (true, true) => Self::X2Apic,
        }
    }
}

/// Outcome of a PMI's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) delivery: Delivery,
    /// A tick that the delivery met.
    pub(crate) tick: Tick,
    /// An NMI was pending already, and this PMI merged with it.
    pub(crate) merged: bool,
}

impl Delivered {
    const fn new(delivery: Delivery) -> Self {
        Self { delivery, tick: Tick::None, merged: false }
    }
}

/// Access to KVM that a delivery needs.
pub(crate) trait PmiPort {
    /// Reason why it failed.
    type Error;
    /// Returns the mode of the LAPIC.
    fn mode(&mut self) -> Mode;
    /// Returns the time since KVM_RUN returned, ns: lower and upper bound.
    fn ns_outside(&self) -> (u64, u64);
    /// Reads LVTPC by KVM_GET_MSRS, in x2APIC mode; `None` if it cannot be read as an MSR.
    fn lvtpc_msr(&mut self) -> Result<Option<Lvtpc>, Self::Error>;
    /// Writes LVTPC by KVM_SET_MSRS.
    fn set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), Self::Error>;
    /// Calls KVM_GET_LAPIC.
    fn lapic(&mut self) -> Result<kvm_lapic_state, Self::Error>;
    /// Calls KVM_SET_LAPIC.
    fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), Self::Error>;
    /// Calls KVM_NMI; it wakes a halted vCPU, and KVM keeps at most two pending.
    fn nmi(&mut self) -> Result<(), Self::Error>;
    /// Sends an NMI and writes LVTPC, in x2APIC mode.
    fn nmi_and_set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), Self::Error> {
        self.set_lvtpc_msr(lvtpc)?;
        self.nmi()
    }
    /// Sends KVM_SIGNAL_MSI to this vCPU.
    fn interrupt(&mut self, vector: u8) -> Result<(), Self::Error>;
    /// Returns whether an NMI waits for the guest, or is on its way.
    fn nmi_pending(&mut self) -> Result<bool, Self::Error>;
    /// Returns whether a handler of such interrupts runs in the guest, or is about to.
    fn in_handler(&mut self, delivery: Delivery) -> Result<bool, Self::Error>;
}

/// Delivers a PMI as the LAPIC does: by LVTPC's mode, unless masked, and where a delivery `masks` (SDM vol. 3, 12.5.1),
/// masks the entry.
///
/// `contended`: others write to this LAPIC, so its page is never written back as it was read a while ago.
pub(crate) fn deliver<P: PmiPort>(port: &mut P, contended: bool, masks: bool) -> Result<Delivered, P::Error> {
    let by_msr = match port.mode() {
        Mode::Off => return Ok(Delivered::new(Delivery::Masked)),
        Mode::XApic => None,
        Mode::X2Apic => port.lvtpc_msr()?,
    };
    let (mut least, _) = port.ns_outside();
    let mut page = if by_msr.is_none() { Some(port.lapic()?) } else { None };
    let entry = by_msr.or_else(|| page.as_ref().map(lvtpc)).unwrap_or_default();
    let delivery = entry.delivery();
    let masked = entry.with_masked(true);
    let mut delivered = Delivered::new(delivery);
    match delivery {
        Delivery::Nmi if masks && by_msr.is_some() => {
            port.nmi_and_set_lvtpc_msr(masked)?;
            return Ok(delivered);
        }
        Delivery::Masked | Delivery::Unsupported(_) => return Ok(delivered),
        // A processor keeps one pending NMI, where KVM would keep two.
        Delivery::Nmi if !masks && port.nmi_pending()? => delivered.merged = true,
        Delivery::Nmi => port.nmi()?,
        Delivery::Fixed(vector) => port.interrupt(vector)?,
    }
    if !masks {
        return Ok(delivered);
    }
    if let Some(page) = &mut page {
        if contended || matches!(delivery, Delivery::Fixed(_)) {
            // The page is read again, because interrupts that were sent meanwhile, this PMI among them, are in it by now.
            (least, _) = port.ns_outside();
            *page = port.lapic()?;
        }
        set_lvtpc(page, masked);
        let (_, most) = port.ns_outside();
        delivered.tick = put_back(page, least, most);
        port.set_lapic(page)?;
    } else {
        port.set_lvtpc_msr(masked)?;
    }
    Ok(delivered)
}

#[cfg(test)]
pub(super) mod tests {
    use super::page::{IRR, ISR, LVTPC, is_active, request};
    use super::tick::{PERIODIC, tests::page};
    use super::*;
    use crate::kvm::Cpu;

    /// A LAPIC that pends what it is sent: an interrupt shows in its page, NMIs are counted.
    #[derive(Debug, Default)]
    pub(in crate::kvm) struct FakeLapic {
        /// `None`: there is no LAPIC in the kernel.
        pub(in crate::kvm) page: Option<kvm_lapic_state>,
        /// Its registers are MSRs, and its page cannot be had.
        pub(in crate::kvm) is_x2apic: bool,
        pub(in crate::kvm) off: bool,
        /// ns since KVM_RUN returned.
        pub(in crate::kvm) outside: u64,
        pub(in crate::kvm) sent: u32,
        pub(in crate::kvm) pending: u32,
        pub(in crate::kvm) in_nmi: bool,
        /// Another vCPU's interrupt arrives with an NMI.
        pub(in crate::kvm) contended: bool,
    }

    impl FakeLapic {
        pub(in crate::kvm) fn with(entry: u32) -> Self {
            let mut fake = Self { page: Some(kvm_lapic_state::default()), ..Self::default() };
            fake.set(Lvtpc::from_bits(entry));
            fake
        }

        pub(in crate::kvm) fn set(&mut self, entry: Lvtpc) {
            set_lvtpc(self.page.as_mut().unwrap(), entry);
        }

        pub(in crate::kvm) fn lvtpc(&self) -> Lvtpc {
            lvtpc(&self.page.unwrap())
        }
    }

    impl PmiPort for FakeLapic {
        type Error = &'static str;
        fn mode(&mut self) -> Mode {
            match (self.off, self.is_x2apic) {
                (true, _) => Mode::Off,
                (false, true) => Mode::X2Apic,
                (false, false) => Mode::XApic,
            }
        }
        fn ns_outside(&self) -> (u64, u64) {
            (self.outside, self.outside)
        }
        fn lvtpc_msr(&mut self) -> Result<Option<Lvtpc>, Self::Error> {
            Ok(Some(self.lvtpc()))
        }
        fn set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), Self::Error> {
            self.set(lvtpc);
            Ok(())
        }
        fn lapic(&mut self) -> Result<kvm_lapic_state, Self::Error> {
            self.page.filter(|_| !self.is_x2apic).ok_or("there is no LAPIC in the kernel")
        }
        fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), Self::Error> {
            self.page = Some(*lapic);
            Ok(())
        }
        fn nmi(&mut self) -> Result<(), Self::Error> {
            self.sent += 1;
            self.pending += 1;
            if self.contended { self.interrupt(0x40) } else { Ok(()) }
        }
        fn interrupt(&mut self, vector: u8) -> Result<(), Self::Error> {
            let page = self.page.as_mut().ok_or("there is no LAPIC in the kernel")?;
            request(page, vector);
            Ok(())
        }
        fn nmi_pending(&mut self) -> Result<bool, Self::Error> {
            Ok(self.pending > 0)
        }
        fn in_handler(&mut self, delivery: Delivery) -> Result<bool, Self::Error> {
            Ok(match delivery {
                Delivery::Fixed(vector) => self.page.is_some_and(|page| is_active(&page, vector)),
                _ => self.in_nmi || self.pending > 0,
            })
        }
    }

    fn delivery<P: PmiPort>(port: &mut P, contended: bool) -> Result<Delivery, P::Error> {
        deliver(port, contended, true).map(|delivered| delivered.delivery)
    }

    #[test]
    fn a_delivery_on_amd_leaves_lvtpc_and_a_pending_nmi_takes_the_next_with_it() {
        let masks = Cpu::Milan.pmu().delivery_masks_lvtpc();
        let mut fake = FakeLapic::with(0x400);
        let mut deliver = |pending| {
            fake.pending *= u32::from(pending);
            let merged = deliver(&mut fake, false, masks).unwrap().merged;
            (merged, fake.lvtpc().into_bits(), fake.sent)
        };
        assert_eq!((deliver(false), deliver(true)), ((false, 0x400, 1), (true, 0x400, 1)));
        assert_eq!(deliver(false), (false, 0x400, 2), "the handler runs, and the next is pending behind it");
        let mut masked = FakeLapic::with(0x1_0400);
        assert_eq!(super::deliver(&mut masked, false, masks), Ok(Delivered::new(Delivery::Masked)));
    }

    #[test]
    fn pitfall_24_until_the_handler_unmasks_lvtpc_no_second_nmi_can_be_lost() {
        let mut fake = FakeLapic::with(0x400);
        for handled in 1..=3 {
            let _ = delivery(&mut fake, false);
            let _ = delivery(&mut fake, false);
            assert_eq!(fake.sent, handled, "one KVM_NMI for each time the entry was unmasked");
            fake.set(Lvtpc::from_bits(0x400));
        }
    }

    #[test]
    fn a_delivery_is_by_mode_and_masks_what_it_delivers() {
        for (lvtpc, expected, after) in [
            (0x400, Delivery::Nmi, 0x1_0400),
            (0x31, Delivery::Fixed(0x31), 0x1_0031),
            (0x1_0400, Delivery::Masked, 0x1_0400),
            (0x200, Delivery::Unsupported(2), 0x200),
        ] {
            for is_x2apic in [false, true] {
                let mut fake = FakeLapic { is_x2apic, off: true, ..FakeLapic::with(lvtpc) };
                assert_eq!((delivery(&mut fake, false), fake.sent), (Ok(Delivery::Masked), 0), "it is off");
                assert_eq!(fake.lvtpc().into_bits(), lvtpc, "nor is its entry masked");
                fake.off = false;
                assert_eq!((delivery(&mut fake, false), fake.lvtpc().into_bits()), (Ok(expected), after));
                let requested = fake.page.unwrap().regs[IRR + 0x12] == 1 << 1;
                let sent = (fake.sent == 1, requested);
                assert_eq!(sent, (expected == Delivery::Nmi, expected == Delivery::Fixed(0x31)), "{lvtpc:#x}");
            }
        }
    }

    #[test]
    fn a_contended_page_is_fetched_again_before_it_is_written() {
        let mut fake = FakeLapic { contended: true, ..FakeLapic::with(0x400) };
        assert_eq!(delivery(&mut fake, true), Ok(Delivery::Nmi));
        assert_eq!((fake.page.unwrap().regs[IRR + 0x20], fake.lvtpc().into_bits()), (1, 0x1_0400));
    }

    #[test]
    fn a_tick_that_kvm_would_drop_is_pending_after_the_delivery() {
        for (outside, tick) in [(3_000, Tick::None), (500, Tick::Uncertain)] {
            // Vector 0x31; 1000 of 100 000 ns have passed since it expired.
            let mut timer = page(PERIODIC | 0x31, 100_000, 99_000, 0xb);
            set_lvtpc(&mut timer, Lvtpc::from_bits(0x400));
            let mut fake = FakeLapic { page: Some(timer), outside, ..FakeLapic::default() };
            assert_eq!(deliver(&mut fake, false, true), Ok(Delivered { tick, ..Delivered::new(Delivery::Nmi) }));
            let pending = fake.page.unwrap().regs[IRR + 0x12];
            assert_eq!((pending, fake.lvtpc().into_bits()), (i8::from(tick == Tick::None) << 1, 0x1_0400));
        }
    }

    #[test]
    fn pitfall_25_without_an_in_kernel_lapic_a_pmi_is_an_error_not_silence() {
        assert_eq!(delivery(&mut FakeLapic::default(), false), Err("there is no LAPIC in the kernel"));
    }

    #[test]
    fn pitfall_09_masking_changes_one_bit_of_the_page() {
        let (before, mut fake) = (FakeLapic::with(0x400).page.unwrap(), FakeLapic::with(0x400));
        delivery(&mut fake, false).unwrap();
        let after = fake.page.unwrap();
        let changed: Vec<_> = (0..before.regs.len()).filter(|&i| before.regs[i] != after.regs[i]).collect();
        assert_eq!((changed, lvtpc(&after).into_bits()), (vec![LVTPC + 2], 0x1_0400));
    }

    #[test]
    fn registers_are_read_as_the_manual_has_them() {
        // Reset of an application processor, of the boot processor, x2APIC mode, off.
        let modes = [0xfee0_0800, 0xfee0_0900, 0xfee0_0d00, 0xfee0_0100, 0xfee0_0500].map(Mode::of);
        assert_eq!(modes, [Mode::XApic, Mode::XApic, Mode::X2Apic, Mode::Off, Mode::Off]);
        // An interrupt is active from its request to the end of its handler.
        for row in [IRR, ISR] {
            let mut page = kvm_lapic_state::default();
            assert!(!is_active(&page, 0x31));
            page.regs[row + 0x12] = 1 << 1;
            assert!(is_active(&page, 0x31), "{row:#x}");
        }
    }
}
