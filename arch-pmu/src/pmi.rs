//! The way of a PMI out of the PMU: LVTPC and its mask.

use bitfield_struct::bitfield;

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

/// Interrupt that an unmasked entry asks for.
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
    /// Returns the destination of a PMI now.
    pub const fn delivery(self) -> Delivery {
        match (self.masked(), self.mode()) {
            (true, _) => Delivery::Masked,
            (false, 0b100) => Delivery::Nmi,
            (false, 0b000) => Delivery::Fixed(self.vector()),
            (false, mode) => Delivery::Unsupported(mode),
        }
    }
}

/// Record of who masked LVTPC, and of a PMI that is deferred until the mask is gone. On AMD's processors no delivery
/// masks LVTPC, and no PMI waits.
///
/// A delivery masks LVTPC and the guest's handler unmasks it. A handler that restarts the counters first (Linux's "late
/// ack") leaves a window in which an overflow meets the mask. On hardware it lasts nanoseconds; between two exits of a
/// vCPU it is wide, and a PMI dropped in it leaves a counter that never interrupts again. Such a PMI is deferred.
///
/// The guest's writes of LVTPC are no exits in x2APIC mode. A handler turns no counter's own enable on, so the mask is
/// taken for the guest's own once that has happened since the delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Own enables that the guest had turned on when a delivery masked LVTPC last.
    delivered_at: Option<u64>,
    deferred: bool,
}

/// Fate of a PMI that meets a masked LVTPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It is deferred.
    Deferred,
    /// One is deferred already, and both will be one interrupt.
    Joined,
    /// The guest's own mask: it is dropped.
    Guests,
}

impl Mask {
    /// Creates the state of a LAPIC after its reset.
    pub const fn new() -> Self {
        Self { delivered_at: None, deferred: false }
    }

    /// Notes that a delivery masked LVTPC, after the guest turned on `turned_on` own enables. Returns whether a PMI was
    /// deferred until now: the handler of this delivery finds its overflow.
    pub const fn by_delivery(&mut self, turned_on: u64) -> bool {
        self.delivered_at = Some(turned_on);
        self.release()
    }

    /// Notes that a PMI met a masked LVTPC, and decides its fate.
    pub fn met(&mut self, turned_on: u64) -> Met {
        if self.delivered_at != Some(turned_on) {
            return Met::Guests;
        }
        if std::mem::replace(&mut self.deferred, true) { Met::Joined } else { Met::Deferred }
    }

    /// Returns whether a PMI is deferred.
    pub const fn has_deferred(&self) -> bool {
        self.deferred
    }

    /// Ends the deferral of a PMI, which is delivered or dropped. Returns whether there was one.
    pub const fn release(&mut self) -> bool {
        std::mem::replace(&mut self.deferred, false)
    }

    /// Forgets the mask of a delivery when the local APIC was switched off or reset. Returns whether a PMI was deferred.
    pub const fn forget(&mut self) -> bool {
        self.delivered_at = None;
        self.release()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pmi_is_held_by_the_mask_of_a_delivery_and_dropped_by_the_guests_own() {
        let mut mask = Mask::default();
        assert_eq!((mask.met(0), mask.has_deferred()), (Met::Guests, false), "nothing was delivered yet");
        assert!(!mask.by_delivery(3));
        assert_eq!((mask.met(3), mask.met(3), mask.has_deferred()), (Met::Deferred, Met::Joined, true));
        assert_eq!((mask.by_delivery(3), mask.has_deferred()), (true, false), "the next handler finds both");
        assert_eq!(mask.met(4), Met::Guests, "no handler turns a counter on");
        assert_eq!((mask.met(3), mask.forget(), mask.met(3)), (Met::Deferred, true, Met::Guests), "LAPIC off");
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
}
