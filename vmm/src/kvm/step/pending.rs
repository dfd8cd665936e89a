//! Events that come before the next instruction: a HLT with one pending has not begun.

use kvm_bindings::{kvm_lapic_state, kvm_vcpu_events};

const IF: u64 = 1 << 9;
/// Offsets in the LAPIC's page: processor priority, and the 256 bits of requests (SDM vol. 3, table 12-1).
const PPR: usize = 0xa0;
const IRR: usize = 0x200;

/// Returns whether the next entry delivers an NMI, an exception or an interrupt.
pub(super) fn comes_first(events: &kvm_vcpu_events, lapic: &kvm_lapic_state, rflags: u64) -> bool {
    let injected = events.nmi.injected | events.interrupt.injected | events.exception.injected != 0;
    if injected || events.exception.pending != 0 {
        return true;
    }
    // After STI or MOV SS the instruction comes first.
    if events.interrupt.shadow != 0 {
        return false;
    }
    let nmi = events.nmi.pending != 0 && events.nmi.masked == 0;
    nmi || rflags & IF != 0 && requested(lapic).is_some_and(|vector| vector >> 4 > register(lapic, PPR) >> 4 & 0xf)
}

/// Returns the highest vector that is requested.
fn requested(lapic: &kvm_lapic_state) -> Option<u32> {
    let word = |n: u32| register(lapic, IRR + 16 * n as usize);
    (0..8).rev().find(|&n| word(n) != 0).map(|n| 32 * n + word(n).ilog2())
}

fn register(lapic: &kvm_lapic_state, at: usize) -> u32 {
    let byte = |i: usize| lapic.regs[at + i].cast_unsigned();
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hlt_runs_only_if_nothing_comes_before_it() {
        let (quiet, lapic) = (kvm_vcpu_events::default(), kvm_lapic_state::default());
        assert!(!comes_first(&quiet, &lapic, IF));
        let mut nmi = quiet;
        nmi.nmi.pending = 1;
        assert!(comes_first(&nmi, &lapic, 0));
        nmi.nmi.masked = 1;
        assert!(!comes_first(&nmi, &lapic, 0), "within an NMI handler");
        nmi.nmi.masked = 0;
        nmi.interrupt.shadow = 1;
        assert!(!comes_first(&nmi, &lapic, 0), "behind STI or MOV SS");
        let mut injected = quiet;
        injected.nmi.injected = 1;
        assert!(comes_first(&injected, &lapic, 0));
        let mut fault = quiet;
        fault.exception.pending = 1;
        assert!(comes_first(&fault, &lapic, 0));
    }

    #[test]
    fn an_interrupt_comes_first_if_it_is_enabled_and_of_higher_priority() {
        let quiet = kvm_vcpu_events::default();
        let mut lapic = kvm_lapic_state::default();
        // Vector 0x41.
        lapic.regs[IRR + 0x20] = 2;
        assert_eq!(requested(&lapic), Some(0x41));
        assert!(comes_first(&quiet, &lapic, IF) && !comes_first(&quiet, &lapic, 0));
        lapic.regs[PPR] = 0x40;
        assert!(!comes_first(&quiet, &lapic, IF), "of the same class as the one in service");
        lapic.regs[PPR] = 0x3f;
        assert!(comes_first(&quiet, &lapic, IF));
    }
}
