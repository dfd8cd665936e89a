//! AMD's register contract (`docs/design.md`), against a host side that counts as scripted.

use super::*;
use crate::amd::{
    AmdCaps, PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CNTR_GLOBAL_STATUS_CLR, PERF_CNTR_GLOBAL_STATUS_SET,
    PERF_CTL0, PERF_CTR0, PERF_LEGACY_CTL0, PERF_LEGACY_CTR0,
};
use crate::fake::Fake;
use crate::filter::{Action, Event};
use crate::spec::{CounterId, CounterSet};

const EN_INT_USR: u64 = 1 << 22 | 1 << 20 | 1 << 16;
const CYCLES: u64 = EN_INT_USR | 0x76;
const NEAR: u64 = (1 << 48) - 10;

fn milan() -> Vpmu<Fake> {
    Vpmu::new(AmdCaps::default(), Fake::default())
}

fn genoa() -> Vpmu<Fake> {
    Vpmu::new(AmdCaps::GENOA, Fake::default())
}

fn both() -> [Vpmu<Fake>; 2] {
    [milan(), genoa()]
}

/// Returns a PMU whose counter 0 counts with INT from `value`.
fn sampling(mut vpmu: Vpmu<Fake>, value: u64) -> Vpmu<Fake> {
    vpmu.wrmsr(PERF_CTR0, value).unwrap();
    vpmu.wrmsr(PERF_CTL0, CYCLES).unwrap();
    vpmu
}

#[test]
fn six_counters_are_started_by_their_own_enables() {
    for mut vpmu in both() {
        for n in 0..6 {
            vpmu.wrmsr(PERF_CTL0 + 2 * n, CYCLES).unwrap();
            assert_eq!(vpmu.host().period[n as usize], Some(1 << 48));
            vpmu.wrmsr(PERF_CTL0 + 2 * n, CYCLES & !(1 << 22)).unwrap();
            assert_eq!(vpmu.host().period[n as usize], None);
        }
        for beyond in [PERF_CTL0 + 12, PERF_CTR0 + 12, PERF_CTL0 - 1] {
            assert_eq!((vpmu.rdmsr(beyond), vpmu.wrmsr(beyond, 0)), (Err(GeneralProtection), Err(GeneralProtection)));
        }
    }
}

#[test]
fn the_old_indices_are_aliases_of_the_first_four() {
    for mut vpmu in both() {
        for n in 0..4 {
            vpmu.wrmsr(PERF_LEGACY_CTR0 + n, 0x1234_0000_0000 + u64::from(n)).unwrap();
            vpmu.wrmsr(PERF_LEGACY_CTL0 + n, 0x1_0053_02d6).unwrap();
            assert_eq!(vpmu.rdmsr(PERF_CTR0 + 2 * n), Ok(0x1234_0000_0000 + u64::from(n)));
            assert_eq!(vpmu.rdmsr(PERF_CTL0 + 2 * n), Ok(0x1_0053_02d6));
            vpmu.wrmsr(PERF_CTR0 + 2 * n, 77).unwrap();
            vpmu.wrmsr(PERF_CTL0 + 2 * n, 0).unwrap();
            assert_eq!((vpmu.rdmsr(PERF_LEGACY_CTR0 + n), vpmu.rdmsr(PERF_LEGACY_CTL0 + n)), (Ok(77), Ok(0)));
        }
        assert_eq!(vpmu.rdmsr(PERF_LEGACY_CTR0 + 4), Err(GeneralProtection));
    }
}

#[test]
fn a_select_has_12_bits() {
    let mut vpmu = milan();
    let listed = Event { event: 0x1d6, umask: 2 };
    vpmu.set_filter(EventFilter::new(Action::Deny, vec![listed], 0).unwrap());
    vpmu.wrmsr(PERF_CTL0, 1 << 32 | EN_INT_USR | 0x02d6).unwrap();
    vpmu.wrmsr(PERF_CTL0 + 2, EN_INT_USR | 0x02d6).unwrap();
    assert_eq!((vpmu.host().period[0], vpmu.host().period[1]), (None, Some(1 << 48)), "0x1d6 is not 0x0d6");
    vpmu.wrmsr(PERF_CTL0 + 4, 0xf << 32 | EN_INT_USR | 0xff).unwrap();
    assert_eq!(vpmu.host().specs[2].unwrap().raw_config(), Some(0xf_0000_00ff));
}

#[test]
fn reserved_bits_of_a_selector_are_neither_refused_nor_kept() {
    for mut vpmu in both() {
        assert_eq!((vpmu.wrmsr(PERF_CTL0, u64::MAX), vpmu.rdmsr(PERF_CTL0)), (Ok(()), Ok(0x30f_ffd7_ffff)));
    }
}

#[test]
fn guest_only_and_host_only_count_nothing_without_svme() {
    for mut vpmu in both() {
        for only in [1 << 40, 1 << 41, 3 << 40] {
            vpmu.wrmsr(PERF_CTL0, CYCLES).unwrap();
            assert!(vpmu.host().period[0].is_some());
            vpmu.wrmsr(PERF_CTL0, CYCLES | only).unwrap();
            assert_eq!((vpmu.rdmsr(PERF_CTL0), vpmu.host().period[0]), (Ok(CYCLES | only), None));
        }
    }
}

#[test]
fn counters_have_48_bits() {
    for mut vpmu in both() {
        vpmu.wrmsr(PERF_CTR0, u64::MAX - 4).unwrap();
        assert_eq!((vpmu.rdmsr(PERF_CTR0), vpmu.kick()), (Ok((1 << 48) - 5), 0));
        vpmu.wrmsr(PERF_CTR0, 0x8000_0000).unwrap();
        assert_eq!(vpmu.rdmsr(PERF_CTR0), Ok(0x8000_0000), "no sign is extended");
    }
}

#[test]
fn an_overflow_asks_for_one_pmi_and_nothing_freezes() {
    for vpmu in both() {
        let mut vpmu = sampling(vpmu, NEAR);
        vpmu.host().pending[0] = 12;
        assert_eq!((vpmu.kick(), vpmu.take_pmi(), vpmu.take_pmi()), (1, true, false));
        vpmu.enter();
        assert_eq!((vpmu.rdmsr(PERF_CTR0), vpmu.host().period[0]), (Ok(2), Some((1 << 48) - 2)), "it goes on");
    }
}

#[test]
fn a_counter_that_is_written_anew_has_no_overflow_left_where_there_is_no_status() {
    for (vpmu, status) in [(milan(), Err(GeneralProtection)), (genoa(), Ok(1))] {
        let mut vpmu = sampling(vpmu, NEAR);
        for _ in 0..2 {
            vpmu.host().pending[0] = 12;
            assert_eq!(vpmu.kick(), 1);
            vpmu.wrmsr(PERF_CTR0, NEAR).unwrap();
        }
        assert_eq!(vpmu.counts().status_shared, 0, "the counter was written between");
        assert_eq!(vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS), status);
    }
}

#[test]
fn without_perfmon_v2_there_is_no_global_register() {
    let mut vpmu = milan();
    for msr in PERF_CNTR_GLOBAL_STATUS..=PERF_CNTR_GLOBAL_STATUS_SET {
        assert_eq!((vpmu.rdmsr(msr), vpmu.wrmsr(msr, 0)), (Err(GeneralProtection), Err(GeneralProtection)));
    }
}

#[test]
fn the_global_control_gates_and_is_on_at_reset() {
    let mut vpmu = sampling(genoa(), 0);
    assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.host().period[0]), (Ok(0x3f), Some(1 << 48)));
    vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, !1).unwrap();
    assert_eq!(
        (vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.host().period[0]),
        (Ok(0x3e), None),
        "reserved bits are ignored"
    );
    vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, 1).unwrap();
    assert_eq!(vpmu.host().period[0], Some(1 << 48));
    assert!(!vpmu.guest_has_all_off());
    vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, 0).unwrap();
    assert!(vpmu.guest_has_all_off());
    vpmu.reset();
    assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.rdmsr(PERF_CTL0)), (Ok(0x3f), Ok(0)));
}

#[test]
fn the_status_is_set_and_cleared_beside_itself() {
    let mut vpmu = sampling(genoa(), NEAR);
    vpmu.host().pending[0] = 10;
    assert_eq!((vpmu.kick(), vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS)), (1, Ok(1)));
    assert!(vpmu.take_pmi());
    assert_eq!((vpmu.wrmsr(PERF_CNTR_GLOBAL_STATUS, 0), vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS)), (Ok(()), Ok(1)));
    vpmu.wrmsr(PERF_CNTR_GLOBAL_STATUS_SET, !0xf).unwrap();
    assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS), vpmu.take_pmi()), (Ok(0x31), false), "no PMI comes of it");
    vpmu.wrmsr(PERF_CNTR_GLOBAL_STATUS_CLR, !0x10).unwrap();
    assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS), vpmu.pmi_unacknowledged()), (Ok(0x10), false));
    assert_eq!([PERF_CNTR_GLOBAL_STATUS_CLR, PERF_CNTR_GLOBAL_STATUS_SET].map(|msr| vpmu.rdmsr(msr)), [Ok(0); 2]);
}

#[test]
fn rdpmc_has_the_six_counters_and_no_types() {
    for mut vpmu in both() {
        vpmu.wrmsr(PERF_CTR0 + 10, 0x1234_5678_9abc).unwrap();
        assert_eq!(vpmu.rdpmc(5), Ok(0x1234_5678_9abc));
        for bad in [6, 8, 10, 16, 0x4000_0000, 0x8000_0000, u32::MAX] {
            assert_eq!(vpmu.rdpmc(bad), Err(GeneralProtection), "{bad:#x}");
        }
    }
}

#[test]
fn a_vendor_has_no_register_of_the_other() {
    for (mut vpmu, other) in
        [(genoa(), 0xc1..=0x600), (Vpmu::new(PmuCaps::default(), Fake::default()), 0xc000_0300..=0xc001_020b)]
    {
        assert!(other.into_iter().step_by(1).all(|msr| vpmu.rdmsr(msr).is_err() && vpmu.wrmsr(msr, 0).is_err()));
    }
}

#[test]
fn a_part_of_the_counters_is_announced_by_perfmon_v2() {
    let mut vpmu = Vpmu::new(AmdCaps { counters: 4, ..AmdCaps::GENOA }, Fake::default());
    assert_eq!((vpmu.rdmsr(PERF_CTL0 + 6), vpmu.rdmsr(PERF_CTL0 + 8)), (Ok(0), Err(GeneralProtection)));
    vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, u64::MAX).unwrap();
    assert_eq!(vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), Ok(0xf));
    assert_eq!(vpmu.caps().counters(), (0..4).filter_map(CounterId::gp).collect::<CounterSet>());
}
