//! Random PMUs, strategies and sequences.

use arch_pmu::spec::Vendor;
use host_pmu::backend::scheduling::Processor;
use host_pmu::strategy::Strategy as Kept;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::host::{Failing, Release, Rules};
use crate::model::pair::{AMD_EVENTS, EVENTS, Op, Records, Signal};
use crate::model::{Amd, Shape};

fn msr() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => prop_oneof![0xc1..=0xc8u32, 0x4c1..=0x4c8u32, 0x309..=0x30cu32],
        6 => prop_oneof![0x186..=0x18du32, Just(0x38d)],
        6 => prop_oneof![Just(0x38e), Just(0x38f), Just(0x390), Just(0x391), Just(0x392)],
        2 => prop_oneof![Just(0x345), Just(0x1d9), Just(0x3f1), Just(0x600), Just(0x1a0)],
        1 => prop_oneof![Just(0xc9), Just(0x18e), Just(0x30d), Just(0x38c), Just(0x393), Just(0x4c9), any::<u32>()],
    ]
}

/// Generates a selector of a few events, so that counters share them and strategies find them again.
fn selector() -> impl Strategy<Value = u64> {
    let event = prop::sample::select(EVENTS.to_vec());
    (event, prop::sample::select(vec![1u64, 2, 3, 3]), any::<bool>(), prop::bool::weighted(0.85), 0..20u64).prop_map(
        |(event, ring, int, enable, rare)| {
            let rare = match rare {
                0 => 1 << 18,
                1 => 1 << 23 | 2 << 24,
                2 => 1 << 32,
                3 => 1 << 33,
                4 => 3 << 32,
                5 => 1 << 21,
                _ => 0,
            };
            event | ring << 16 | u64::from(int) << 20 | u64::from(enable) << 22 | rare
        },
    )
}

fn value(msr: u32) -> BoxedStrategy<u64> {
    let odd = prop_oneof![any::<u64>(), (0..64u32).prop_map(|bit| 1 << bit), Just(0), Just(u64::MAX)];
    let counter = prop_oneof![
        3 => (0..2000u64).prop_map(|n| 0u64.wrapping_sub(n)),
        2 => (0..2000u64).prop_map(|n| (1u64 << 48) - 1 - n),
        1 => any::<u32>().prop_map(u64::from),
        1 => odd.clone(),
    ];
    match msr {
        0xc1..=0xc8 | 0x309..=0x30c | 0x4c1..=0x4c8 => counter.boxed(),
        0x186..=0x18d => prop_oneof![9 => selector(), 1 => Just(0), 1 => odd].boxed(),
        0x38d => {
            let nibble = || prop::sample::select(vec![0u64, 1, 2, 3, 8, 9, 0xa, 0xb, 0xb, 0xb]);
            let all = vec(nibble(), 4).prop_map(|n| n[0] | n[1] << 4 | n[2] << 8 | n[3] << 12);
            prop_oneof![4 => all.clone().prop_map(|v| v & 0xfff), 2 => all, 1 => odd].boxed()
        }
        0x38f..=0x391 => {
            let lines = (any::<u8>(), 0..16u64).prop_map(|(gp, fixed)| u64::from(gp) | fixed << 32);
            let full = prop::sample::select(vec![0, 0xf, 0x7_0000_000f, 0xf_0000_00ff, 0x7_0000_0003, 3, 1 << 59]);
            prop_oneof![4 => full, 3 => lines.clone().prop_map(|v| v & 0x7_0000_000f), 1 => lines, 1 => odd].boxed()
        }
        0x1d9 => prop::sample::select(vec![
            0u64,
            1,
            2,
            0x40,
            0x400,
            0x800,
            0x1000,
            0x1800,
            0x1801,
            4,
            0x2000,
            1 << 16,
            1 << 40,
        ])
        .boxed(),
        0x600 => prop_oneof![any::<u64>(), 0..1u64 << 47, Just(0xffff_8000_0000_0000), Just(1 << 47)].boxed(),
        0x1a0 => {
            prop_oneof![Just(0u64), Just(0x1881), Just(0x40_0080), any::<u64>().prop_map(|v| v & 0x44_00c5_1889), odd]
                .boxed()
        }
        0x3f1 => prop_oneof![3 => Just(0), 1 => odd].boxed(),
        _ => odd.boxed(),
    }
}

fn amd_msr() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => (0..6u32).prop_map(|n| 0xc001_0201 + 2 * n),
        6 => (0..6u32).prop_map(|n| 0xc001_0200 + 2 * n),
        4 => 0xc001_0000..=0xc001_0007u32,
        6 => 0xc000_0300..=0xc000_0303u32,
        1 => prop_oneof![Just(0xc001_020c), Just(0xc001_01ff), Just(0xc000_0304), Just(0xc1), Just(0x38f), any::<u32>()],
    ]
}

fn amd_selector() -> impl Strategy<Value = u64> {
    let event = prop::sample::select(AMD_EVENTS.to_vec());
    (event, prop::sample::select(vec![1u64, 2, 3, 3]), any::<bool>(), prop::bool::weighted(0.85), 0..20u64).prop_map(
        |(event, ring, int, enable, rare)| {
            let rare = match rare {
                0 => 1 << 18,
                1 => 1 << 23 | 2 << 24,
                2 => 1 << 40,
                3 => 1 << 41,
                4 => 1 << 19 | 1 << 21 | 1 << 36,
                _ => 0,
            };
            event & 0xffff | event >> 16 << 32 | ring << 16 | u64::from(int) << 20 | u64::from(enable) << 22 | rare
        },
    )
}

fn amd_value(msr: u32) -> BoxedStrategy<u64> {
    let odd = prop_oneof![any::<u64>(), (0..64u32).prop_map(|bit| 1 << bit), Just(0), Just(u64::MAX)];
    let counter = prop_oneof![4 => (0..2000u64).prop_map(|n| 0u64.wrapping_sub(n)), 1 => odd.clone()];
    match msr {
        0xc001_0000..=0xc001_0003 => prop_oneof![9 => amd_selector(), 1 => odd].boxed(),
        0xc001_0200..=0xc001_020b if msr.is_multiple_of(2) => prop_oneof![9 => amd_selector(), 1 => odd].boxed(),
        0xc000_0300..=0xc000_0303 => prop_oneof![3 => Just(0x3f), 3 => 0..64u64, 1 => odd].boxed(),
        _ => counter.boxed(),
    }
}

fn op(amd: bool) -> impl Strategy<Value = Op> {
    let msr = if amd { amd_msr().boxed() } else { msr().boxed() };
    let value = if amd { amd_value } else { value };
    let selector = if amd { amd_selector().boxed() } else { selector().boxed() };
    let flag = || prop::bool::weighted(0.5);
    let signal = prop_oneof![4 => Just(Signal::OnTime), 1 => Just(Signal::Held)];
    let bits = || prop::sample::select(vec![0u32, 1, 4, 8, 11, 11, 20, 40]);
    prop_oneof![
        60 => msr.clone().prop_map(Op::Read),
        60 => msr.prop_flat_map(move |m| value(m).prop_map(move |v| Op::Write(m, v))),
        20 => (0..12u32, selector, bits(), any::<u64>()).prop_map(|(n, selector, bits, back)| Op::Arm {
            n, selector: selector | 1 << 22, bits, back
        }),
        60 => (any::<u64>(), bits(), signal, flag()).prop_map(|(seed, bits, signal, take_pmi)| Op::Run {
            seed, bits, signal, take_pmi
        }),
        20 => (any::<u64>(), bits(), 0..10u32, any::<u64>()).prop_map(|(seed, bits, n, back)| Op::Handler {
            seed, bits, n, back
        }),
        6 => Just(Op::Kick),
        10 => Just(Op::Enter),
        10 => Just(Op::Pmi),
        12 => Just(Op::Slice),
        1 => Just(Op::Reset),
        1 => (flag(), flag(), flag()).prop_map(|(open, period, resume)| Op::Fail(Failing { open, period, resume })),
        1 => Just(Op::Lose),
        4 => Just(Op::LoseRecords),
        3 => Just(Op::Heal),
        1 => (0..16u8, 0..16u32, any::<bool>()).prop_map(|(denied, fixed, allow)| Op::Filter { denied, fixed, allow }),
        1 => Just(Op::Filter { denied: 0, fixed: 0, allow: false }),
    ]
}

pub(crate) fn ops(amd: bool, most: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(amd), 1..=most)
}

pub(crate) fn amd_shape() -> impl Strategy<Value = Shape> {
    let shape = |amd, version: u8, gp| Shape {
        amd: Some(amd),
        version,
        gp,
        fixed: 0,
        width: 48,
        full_width: false,
        transactions: false,
        debug_store: false,
    };
    prop_oneof![
        Just(shape(Amd::Core, 1, 6)),
        Just(shape(Amd::V2, 2, 6)),
        (1..=6u8).prop_map(move |gp| shape(Amd::V2, 2, gp))
    ]
}

pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    let numbers = (1..=5u8, 1..=8u8, 0..=4u8, prop::sample::select(vec![33u8, 40, 47, 48, 48, 48]));
    let usual = prop::sample::select(vec![(2u8, 4u8, 3u8, 48u8), (4, 4, 3, 48), (4, 8, 4, 48)]);
    (prop_oneof![numbers, usual], any::<[bool; 3]>()).prop_map(
        |((version, gp, fixed, width), [full_width, transactions, debug_store])| Shape {
            amd: None,
            version,
            gp,
            // Fixed counters came with version 2.
            fixed: if version < 2 { 0 } else { fixed },
            width,
            full_width,
            transactions,
            debug_store,
        },
    )
}

/// Generates hosts with hardware events, and guests whose counters all fit on them.
pub(crate) fn by_rules(vendor: Vendor) -> impl Strategy<Value = (Shape, Option<Rules>)> {
    let processors: Vec<_> = Processor::ALL.into_iter().filter(|processor| processor.vendor() == vendor).collect();
    let releases = [Release(5, 4), Release(6, 1), Release(6, 12), Release(6, 15), Release(7, 2)];
    let host = (prop::sample::select(processors), prop::sample::select(releases.to_vec()), 0..2usize);
    let shape = if vendor == Vendor::Amd { amd_shape().boxed() } else { shape().boxed() };
    (shape, host).prop_map(|(shape, (processor, release, others))| {
        let (gp, fixed) = processor.counters();
        let mut shape = Shape { gp: shape.gp.min(gp - others as u8), fixed: shape.fixed.min(fixed), ..shape };
        if shape.amd == Some(Amd::Core) && others > 0 {
            // PERFCTR_CORE has six counters, one more than are left.
            (shape.amd, shape.version) = (Some(Amd::V2), 2);
        }
        (shape, Some(Rules { processor, release, others }))
    })
}

pub(crate) fn strategy() -> impl Strategy<Value = Kept> {
    let preset = prop::sample::select(host_pmu::strategy::PRESETS.to_vec())
        .prop_map(|name| Kept::preset(name).expect("a preset"));
    let reuse = prop_oneof![
        Just("'none'".to_owned()),
        Just("'last'".to_owned()),
        (1..6u32).prop_map(|k| format!("{{ pool = {k} }}"))
    ];
    let release = prop_oneof![
        Just("'never'".to_owned()),
        Just("'eager'".to_owned()),
        (1..4u32).prop_map(|n| format!("{{ slices = {n} }}")),
    ];
    let overflow = prop::sample::select(vec!["reprogram", "keep"]);
    let valid = (reuse, release, any::<[bool; 5]>(), overflow);
    let valid = valid.prop_filter_map("contradiction", |(reuse, release, flags, overflow)| {
        let [deferred, skip, skip_period, gate, goes_on] = flags;
        let pause = if goes_on { "virtual" } else { "host" };
        let apply = if deferred { "deferred" } else { "at-once" };
        Kept::from_toml(&format!(
            "name = 'random'\nreuse = {reuse}\nrelease = {release}\napply = '{apply}'\nskip-paused = {skip}\n\
             skip-period = {skip_period}\ngate = {gate}\npause = '{pause}'\noverflow = '{overflow}'"
        ))
        .ok()
    });
    prop_oneof![preset, valid]
}

pub(crate) fn records() -> impl Strategy<Value = Records> {
    prop::sample::select(vec![Records::None, Records::Exact, Records::Exact, Records::Early])
}
