//! A tick of the LAPIC's timer that KVM_SET_LAPIC would drop, or repeat.
//!
//! KVM counts an expired timer as pending and makes it an interrupt in the next KVM_RUN. KVM_SET_LAPIC starts the timer anew
//! and forgets what is pending (`cancel_apic_timer`, arch/x86/kvm/lapic.c). Nothing of that is in the page, but its current count
//! says when the timer last expired: if that was after KVM_RUN returned, the tick is pending, and its bit of the IRR is what KVM
//! would have set.
//!
//! Two cases remain, and are only counted. A timer that expired while KVM was on its way out of KVM_RUN may be pending or not. A
//! one-shot timer that is over expires once more by KVM_SET_LAPIC, whether or not its tick was delivered before. A TSC deadline is
//! neither dropped nor repeated: it is 0 once its tick was delivered.

use kvm_bindings::kvm_lapic_state;

use super::page::{LVTT, TDCR, TMCCT, TMICT, register, request};

/// LVTT: masked, and the modes (SDM vol. 3, 12.5.4).
const MASKED: u32 = 1 << 16;
const MODE: u32 = 3 << 17;
const ONE_SHOT: u32 = 0;
pub(super) const PERIODIC: u32 = 1 << 17;

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
    // The count is above the initial one where KVM has lengthened a very short period.
    let Some(counted) = initial.checked_sub(current) else { return Tick::Uncertain };
    // At a count of 0 the timer is over, and its expiry is not yet noted.
    let since = if current == 0 { 0 } else { u64::from(counted) * ns_per_count(page) };
    if since <= least {
        request(page, vector);
        Tick::None
    } else if since <= most + WAY_OUT_NS {
        Tick::Uncertain
    } else {
        Tick::None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::page::{IRR, set_register};
    use super::*;

    /// Returns a page with these registers of the timer.
    pub(in crate::kvm::lapic) fn page(lvtt: u32, initial: u32, current: u32, divide: u32) -> kvm_lapic_state {
        let mut page = kvm_lapic_state::default();
        for (at, value) in [(LVTT, lvtt), (TMICT, initial), (TMCCT, current), (TDCR, divide)] {
            set_register(&mut page, at, value);
        }
        page
    }

    #[test]
    fn the_divide_register_skips_its_bit_2() {
        for (divide, ns) in [(0, 2), (1, 4), (3, 16), (8, 32), (0xa, 128), (0xb, 1)] {
            assert_eq!(ns_per_count(&page(0, 0, 0, divide)), ns, "{divide:#x}");
        }
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
}
