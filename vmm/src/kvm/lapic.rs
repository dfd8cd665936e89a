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

use arch_pmu::pmi::{Delivery, Lvtpc};
use kvm_bindings::{Msrs, kvm_lapic_state, kvm_msi, kvm_msr_entry};
use kvm_ioctls::{VcpuFd, VmFd};

use super::tsc::TickClock;
use crate::outcome::End;
use crate::sys;

/// Offset of LVTPC in the LAPIC's page.
const LVTPC: usize = 0x340;
/// Offsets of the interrupts in service and of the requested ones, 256 bits each.
const ISR: usize = 0x100;
const IRR: usize = 0x200;

/// Returns the entry of a LAPIC page.
pub(super) fn lvtpc(lapic: &kvm_lapic_state) -> Lvtpc {
    let byte = |i: usize| lapic.regs[LVTPC + i].cast_unsigned();
    Lvtpc::from_bits(u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]))
}

/// Puts the entry into a LAPIC page.
fn set_lvtpc(lapic: &mut kvm_lapic_state, entry: Lvtpc) {
    for (i, byte) in entry.into_bits().to_le_bytes().into_iter().enumerate() {
        lapic.regs[LVTPC + i] = byte.cast_signed();
    }
}

/// LVTPC as an MSR, in x2APIC mode (SDM vol. 3, table 12-6).
pub(super) const X2APIC_LVTPC: u32 = 0x834;
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
        // KVM would keep two.
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

/// Returns whether `page` has the interrupt requested or in service.
pub(super) fn is_active(page: &kvm_lapic_state, vector: u8) -> bool {
    let byte = usize::from(vector / 32) * 16 + usize::from(vector / 8 % 4);
    [IRR, ISR].into_iter().any(|row| page.regs[row + byte].cast_unsigned() >> (vector % 8) & 1 != 0)
}

// A tick of the LAPIC's timer that KVM_SET_LAPIC would drop, or repeat.
//
// KVM counts an expired timer as pending and makes it an interrupt in the next KVM_RUN. KVM_SET_LAPIC starts the timer anew
// and forgets what is pending (`cancel_apic_timer`, arch/x86/kvm/lapic.c). Nothing of that is in the page, but its current count
// says when the timer last expired: if that was after KVM_RUN returned, the tick is pending, and its bit of the IRR is what KVM
// would have set.
//
// Two cases remain, and are only counted. A timer that expired while KVM was on its way out of KVM_RUN may be pending or not. A
// one-shot timer that is over expires once more by KVM_SET_LAPIC, whether or not its tick was delivered before. A TSC deadline is
// neither dropped nor repeated: it is 0 once its tick was delivered.

const LVTT: usize = 0x320;
const TMICT: usize = 0x380;
const TMCCT: usize = 0x390;
const TDCR: usize = 0x3e0;

/// LVTT: masked, and the modes (SDM vol. 3, 12.5.4).
const MASKED: u32 = 1 << 16;
const MODE: u32 = 3 << 17;
const ONE_SHOT: u32 = 0;
const PERIODIC: u32 = 1 << 17;

/// Longest way out of KVM_RUN that is reckoned with, ns.
const WAY_OUT_NS: u64 = 50_000;

/// Fate of a tick when the LAPIC's page was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Nothing is lost: none was pending, it is in the IRR now, or the page was not written.
    #[default]
    None,
    /// One may be lost, or repeated.
    Uncertain,
}

fn register(page: &kvm_lapic_state, at: usize) -> u32 {
    let byte = |i: usize| page.regs[at + i].cast_unsigned();
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// Returns the ns of one count of the timer: KVM's APIC bus has 1 GHz (SDM vol. 3, figure 12-10).
fn ns_per_count(page: &kvm_lapic_state) -> u64 {
    let divide = register(page, TDCR);
    match divide & 3 | divide >> 1 & 4 {
        7 => 1,
        power => 2 << power,
    }
}

/// Puts a tick that expired since KVM_RUN returned into `page`'s IRR. KVM_RUN returned between `least` and `most` ns before the
/// page was read.
pub(crate) fn put_back(page: &mut kvm_lapic_state, least: u64, most: u64) -> Tick {
    let entry = register(page, LVTT);
    let (initial, current) = (register(page, TMICT), register(page, TMCCT));
    let vector = entry as u8;
    if entry & MASKED != 0 || initial == 0 || vector < 16 {
        return Tick::None;
    }
    match entry & MODE {
        PERIODIC => {}
        ONE_SHOT if current == 0 => return Tick::Uncertain,
        _ => return Tick::None,
    }
    // A count above the initial one: KVM has lengthened a very short period.
    let Some(counted) = initial.checked_sub(current) else { return Tick::Uncertain };
    // A count of 0: the timer is over, and its expiry not yet noted.
    let since = if current == 0 { 0 } else { u64::from(counted) * ns_per_count(page) };
    if since <= least {
        let byte = IRR + usize::from(vector / 32) * 16 + usize::from(vector / 8 % 4);
        page.regs[byte] |= (1u8 << (vector % 8)).cast_signed();
        Tick::None
    } else if since <= most + WAY_OUT_NS {
        Tick::Uncertain
    } else {
        Tick::None
    }
}

// The LAPIC of one vCPU, in KVM, through which PMIs are delivered.
//
// A PMI by NMI in x2APIC mode takes two calls: KVM_GET_MSRS reads LVTPC, and one KVM_SET_MSRS masks it and writes ICR,
// which sends the NMI. The read cannot be left out, because the guest's unmask is no exit: KVM keeps no filter for the
// MSRs of an x2APIC. The NMI cannot come with the entry (KVM_CAP_SYNC_REGS): KVM_SYNC_X86_EVENTS replaces the count of
// NMIs that wait, those that other vCPUs sent meanwhile among them, and needs the vCPU's events of before, at each exit
// or by a call of its own.
//
// The write to ICR has one side effect: a guest that reads its ICR back finds this NMI in place of the last interrupt
// that it sent itself. Nothing that was sent is sent again or lost; in x2APIC mode a write is sent at once, and there
// is no status to wait for.

/// ICR as an MSR, in x2APIC mode (SDM vol. 3, table 12-6).
const X2APIC_ICR: u32 = 0x830;
/// ICR: an NMI (SDM vol. 3, 12.6.1), asserted, to one physical x2APIC ID, which is in the upper half.
const NMI_TO: u64 = 1 << 14 | 0b100 << 8;

/// Room for KVM_GET_MSRS and KVM_SET_MSRS of the LAPIC in x2APIC mode, made once per vCPU.
#[derive(Debug)]
pub(crate) struct X2ApicMsrs {
    lvtpc: Msrs,
    /// LVTPC, and an NMI to this vCPU by its ICR: one call for both.
    lvtpc_and_nmi: Msrs,
}

impl X2ApicMsrs {
    /// Prepares the calls for the vCPU with this APIC ID.
    pub(crate) fn new(apic_id: u32) -> Option<Self> {
        let entry = |index, data| kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
        let (lvtpc, icr) = (entry(X2APIC_LVTPC, 0), entry(X2APIC_ICR, u64::from(apic_id) << 32 | NMI_TO));
        let msrs = |entries: &[kvm_msr_entry]| Msrs::from_entries(entries).ok();
        Some(Self { lvtpc: msrs(&[lvtpc])?, lvtpc_and_nmi: msrs(&[lvtpc, icr])? })
    }
}

fn put(msrs: &mut Msrs, lvtpc: Lvtpc) {
    if let Some(entry) = msrs.as_mut_slice().first_mut() {
        entry.data = lvtpc.into_bits().into();
    }
}

fn refused() -> End {
    End::Host("KVM_SET_MSRS refused LVTPC".to_owned())
}

/// The LAPIC of one vCPU, in KVM.
pub(crate) struct LocalApic<'a> {
    pub(crate) fd: &'a mut VcpuFd,
    pub(crate) vm: &'a VmFd,
    pub(crate) apic_id: u32,
    pub(crate) msrs: Option<&'a mut X2ApicMsrs>,
    /// Host TSC at the last return of KVM_RUN, and at the last one before which it has looked at the LAPIC's timer.
    pub(crate) returned_at: [u64; 2],
    pub(crate) clock: TickClock,
}

fn failed(call: &'static str) -> impl Fn(kvm_ioctls::Error) -> End {
    move |error| End::Host(format!("{call}: {error}"))
}

impl PmiPort for LocalApic<'_> {
    type Error = End;

    fn mode(&mut self) -> Mode {
        Mode::of(self.fd.get_kvm_run().apic_base)
    }

    fn ns_outside(&self) -> (u64, u64) {
        let now = sys::rdtsc();
        let [least, most] = self.returned_at.map(|at| self.clock.ns(now.saturating_sub(at)));
        (least, most)
    }

    fn lvtpc_msr(&mut self) -> Result<Option<Lvtpc>, End> {
        let Some(msrs) = &mut self.msrs else { return Ok(None) };
        // A KVM that does not have the register among its MSRs still has the page.
        let got = self.fd.get_msrs(&mut msrs.lvtpc).map_err(failed("KVM_GET_MSRS of LVTPC"))?;
        let first = msrs.lvtpc.as_slice().first();
        Ok(first.filter(|_| got == 1).map(|entry| Lvtpc::from_bits(entry.data as u32)))
    }

    fn set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), End> {
        let msrs = self.msrs.as_mut().ok_or_else(refused)?;
        put(&mut msrs.lvtpc, lvtpc);
        match self.fd.set_msrs(&msrs.lvtpc).map_err(failed("KVM_SET_MSRS of LVTPC"))? {
            1 => Ok(()),
            _ => Err(refused()),
        }
    }

    fn nmi_and_set_lvtpc_msr(&mut self, lvtpc: Lvtpc) -> Result<(), End> {
        let msrs = self.msrs.as_mut().ok_or_else(refused)?;
        put(&mut msrs.lvtpc_and_nmi, lvtpc);
        match self.fd.set_msrs(&msrs.lvtpc_and_nmi).map_err(failed("KVM_SET_MSRS of LVTPC and ICR"))? {
            2 => Ok(()),
            // Registers are set in their order: LVTPC is set, and no NMI was sent.
            1 => self.nmi(),
            _ => Err(refused()),
        }
    }

    fn lapic(&mut self) -> Result<kvm_lapic_state, End> {
        self.fd.get_lapic().map_err(failed("KVM_GET_LAPIC"))
    }

    fn set_lapic(&mut self, lapic: &kvm_lapic_state) -> Result<(), End> {
        self.fd.set_lapic(lapic).map_err(failed("KVM_SET_LAPIC"))
    }

    fn nmi(&mut self) -> Result<(), End> {
        self.fd.nmi().map_err(failed("KVM_NMI"))
    }

    fn interrupt(&mut self, vector: u8) -> Result<(), End> {
        let msi = kvm_msi {
            address_lo: 0xfee0_0000 | (self.apic_id & 0xff) << 12,
            data: u32::from(vector),
            ..kvm_msi::default()
        };
        self.vm.signal_msi(msi).map(|_| ()).map_err(failed("KVM_SIGNAL_MSI"))
    }

    fn nmi_pending(&mut self) -> Result<bool, End> {
        let nmi = self.fd.get_vcpu_events().map_err(failed("KVM_GET_VCPU_EVENTS"))?.nmi;
        Ok(nmi.injected | nmi.pending != 0)
    }

    fn in_handler(&mut self, delivery: Delivery) -> Result<bool, End> {
        match delivery {
            Delivery::Nmi => {
                let nmi = self.fd.get_vcpu_events().map_err(failed("KVM_GET_VCPU_EVENTS"))?.nmi;
                Ok(nmi.injected | nmi.pending | nmi.masked != 0)
            }
            Delivery::Fixed(vector) => Ok(is_active(&self.lapic()?, vector)),
            Delivery::Masked | Delivery::Unsupported(_) => Ok(false),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
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
            page.regs[IRR + usize::from(vector / 32) * 16 + usize::from(vector / 8 % 4)] |= 1 << (vector % 8);
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

    fn page(lvtt: u32, initial: u32, current: u32, divide: u32) -> kvm_lapic_state {
        let mut page = kvm_lapic_state::default();
        for (at, value) in [(LVTT, lvtt), (TMICT, initial), (TMCCT, current), (TDCR, divide)] {
            for (i, byte) in value.to_le_bytes().into_iter().enumerate() {
                page.regs[at + i] = byte.cast_signed();
            }
        }
        page
    }

    #[test]
    fn a_tick_is_pending_if_the_timer_expired_after_the_exit() {
        // A period of 1 ms, by counts of 16 ns.
        let expired = |us_ago: u32| page(PERIODIC | 0x31, 62_500, 62_500 - us_ago * 1000 / 16, 3);
        for (us_ago, tick, is_pending) in [
            (10, Tick::None, true),
            (30, Tick::None, true),
            (32, Tick::Uncertain, false),
            (80, Tick::Uncertain, false),
            (90, Tick::None, false),
            (999, Tick::None, false),
            (1000, Tick::None, true),
        ] {
            let mut page = expired(us_ago);
            assert_eq!(put_back(&mut page, 30_000, 35_000), tick, "{us_ago} us ago");
            let pending = page.regs[IRR + 0x12].cast_unsigned();
            assert_eq!(pending, u8::from(is_pending) << 1, "{us_ago} us ago");
        }
    }

    #[test]
    fn only_a_timer_that_runs_unmasked_has_ticks_to_lose() {
        for (lvtt, initial) in [
            (PERIODIC | MASKED | 0x31, 1000),
            (0x31, 1000),
            (2 << 17 | 0x31, 1000),
            (PERIODIC | 0x31, 0),
            (PERIODIC | 0xf, 1000),
        ] {
            let mut page = page(lvtt, initial, initial, 0xb);
            assert_eq!(put_back(&mut page, 1000, 1000), Tick::None, "{lvtt:#x} {initial}");
        }
        assert_eq!(put_back(&mut page(PERIODIC | 0x31, 1000, 200_000, 0xb), 1000, 1000), Tick::Uncertain);
        assert_eq!(
            put_back(&mut page(0x31, 1000, 0, 0xb), 1000, 1000),
            Tick::Uncertain,
            "a one-shot timer that is over"
        );
    }

    #[test]
    fn registers_are_read_as_the_manual_has_them() {
        // Reset of an application processor, of the boot processor, x2APIC mode, off.
        let modes = [0xfee0_0800, 0xfee0_0900, 0xfee0_0d00, 0xfee0_0100, 0xfee0_0500].map(Mode::of);
        assert_eq!(modes, [Mode::XApic, Mode::XApic, Mode::X2Apic, Mode::Off, Mode::Off]);
        // The divide register skips its bit 2.
        for (divide, ns) in [(0, 2), (1, 4), (3, 16), (8, 32), (0xa, 128), (0xb, 1)] {
            assert_eq!(ns_per_count(&page(0, 0, 0, divide)), ns, "{divide:#x}");
        }
        // An interrupt is active from its request to the end of its handler.
        for row in [IRR, ISR] {
            let mut page = kvm_lapic_state::default();
            assert!(!is_active(&page, 0x31));
            page.regs[row + 0x12] = 1 << 1;
            assert!(is_active(&page, 0x31), "{row:#x}");
        }
    }
}
