//! The way of a PMI out of the PMU: LVTPC, and what became of each PMI.

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
    /// The destination of a PMI now.
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

/// Overflows and PMIs of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmiStats {
    /// Overflows of counters (counters, not signals).
    pub overflows: u64,
    /// Of those, overflows of counters with INT (each asks for a PMI; several may share one).
    pub pmi_requests: u64,
    /// PMIs delivered as NMI.
    pub nmis: u64,
    /// PMIs delivered as interrupts in fixed delivery mode.
    pub fixed: u64,
    /// PMIs not delivered because LVTPC was masked or the local APIC switched off, as on hardware (the STATUS bit stays).
    pub masked: u64,
    /// PMIs not delivered because LVTPC held a delivery mode that the VMM does not know.
    pub undeliverable: u64,
    /// Deliveries that replaced the APIC's state and may have lost or repeated such a tick.
    pub ticks_uncertain: u64,
}

impl PmiStats {
    /// By how many overflows a driver that handled `handled` differs. Those of counters without INT ask for no PMI, so that it may or
    /// may not see them.
    #[must_use]
    pub const fn overflows_lost(&self, handled: u64) -> u64 {
        let (missed, surplus) = (self.pmi_requests.saturating_sub(handled), handled.saturating_sub(self.overflows));
        if missed > surplus { missed } else { surplus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_may_leave_out_overflows_that_ask_for_no_pmi() {
        let stats = PmiStats { overflows: 10, pmi_requests: 7, ..PmiStats::default() };
        assert_eq!([5, 7, 8, 10, 13].map(|handled| stats.overflows_lost(handled)), [2, 0, 0, 0, 3]);
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
