//! Sequences that found a bug once.

use host_pmu::backend::scheduling::Processor;
use host_pmu::strategy::{Pause, Strategy};

use crate::model::host::{self, Failing, Rules};
use crate::model::pair::{Op, Pair, Records, Signal};
use crate::model::{Amd, Shape};

const INTEL: Shape = Shape {
    amd: None,
    version: 1,
    gp: 4,
    fixed: 0,
    width: 33,
    full_width: false,
    transactions: false,
    debug_store: false,
};
const AMD: Shape = Shape { amd: Some(Amd::Core), gp: 6, width: 48, ..INTEL };
const AMD_V2: Shape = Shape { amd: Some(Amd::V2), version: 2, ..AMD };

fn preset(name: &str) -> Strategy {
    Strategy::preset(name).expect("a preset")
}

const fn run(seed: u64, bits: u32, signal: Signal) -> Op {
    Op::Run { seed, bits, signal, take_pmi: false }
}

fn agree(shape: Shape, strategy: &Strategy, records: Records, ops: &[Op]) {
    agrees(Pair::new(shape, strategy.clone(), records), ops);
}

fn agrees(mut pair: Pair, ops: &[Op]) {
    for op in ops {
        pair.step(op).unwrap_or_else(|why| panic!("{op:x?}: {why}"));
    }
    pair.finish().unwrap_or_else(|why| panic!("at the end: {why}"));
}

/// The lost record of a signal that was early after a virtual pause, beside an overflow of another counter.
#[test]
fn of_a_lost_record_of_an_early_signal() {
    let ops = [
        Op::Write(0xc001_0206, 0x11_006a_00c0),
        Op::Write(0xc001_0207, 0u64.wrapping_sub(1565)),
        Op::Arm { n: 0, selector: 0x10_006b_00c0, bits: 1, back: 187 },
        Op::LoseRecords,
        run(11_980_064_018_544_080_299, 11, Signal::OnTime),
        Op::Write(0xc000_0300, 63),
    ];
    agree(AMD, &preset("virtual"), Records::Early, &ops);
}

/// A counter whose early signal was lost, beside one that overflowed, kept the event's next period.
#[test]
fn of_a_lost_early_signal_beside_an_overflow() {
    let ops = [
        Op::Write(0xc001_020b, u64::MAX),
        Op::Write(0xc001_020a, 68_726_358_208),
        Op::Arm { n: 1, selector: 68_726_358_134, bits: 0, back: 0 },
        Op::LoseRecords,
        Op::Write(0xc001_0203, 0u64.wrapping_sub(1546)),
        run(5_766_038_976_621_748_904, 11, Signal::OnTime),
        Op::Read(0xc001_0201),
    ];
    agree(AMD_V2, &preset("recreate"), Records::Early, &ops);
}

/// The counter with `IN_TXCP` never signals; a kick looks at it all the same.
#[test]
fn of_a_counter_without_signals_and_virtual_pauses() {
    let ops = [
        Op::Arm { n: 2, selector: 0x2_0051_00c0, bits: 4, back: 1 },
        run(3, 4, Signal::OnTime),
        Op::Kick,
        Op::Run { seed: 0, bits: 0, signal: Signal::OnTime, take_pmi: true },
    ];
    agree(Shape { gp: 3, transactions: true, ..INTEL }, &preset("virtual"), Records::Exact, &ops);
}

/// The event of a pause that was virtual went on while its counter was on again and waited for another event.
#[test]
fn of_an_open_that_was_refused_after_a_virtual_pause() {
    let run = || run(0, 0, Signal::OnTime);
    let ops = [
        Op::Write(0xc001_0200, 0x10_006b_00c0),
        run(),
        Op::Fail(Failing { open: true, ..Failing::default() }),
        Op::Write(0xc001_0200, 0x10_007b_00c0),
        run(),
        run(),
        run(),
        run(),
        Op::Heal,
        Op::Arm { n: 0, selector: 0x10_007b_00c0, bits: 1, back: 1 },
        Op::Kick,
    ];
    agree(AMD_V2, &preset("virtual"), Records::Exact, &ops);
}

/// A counter was written by its record's count, which another counter's start had taken, and kept what came after it.
#[test]
fn of_a_record_that_no_kick_has_looked_at() {
    let strategy = Strategy { pause: Pause::Virtual, ..preset("reuse") };
    let arm = |n, back| Op::Arm { n, selector: 0x53_00c0, bits: 4, back };
    let ops = [
        arm(0, 1),
        arm(1, 3),
        run(1_105_701_590_365, 11, Signal::Held),
        run(1_009_481_216_751_310_571, 1, Signal::Held),
        Op::Write(0xc001_0004, 0),
        Op::Enter,
        Op::Read(0xc001_0005),
    ];
    agree(AMD, &strategy, Records::Exact, &ops);
}

#[test]
fn of_an_event_that_signals_unrecorded_after_its_pause() {
    let strategy = Strategy { pause: Pause::Virtual, skip_period: true, ..preset("reuse") };
    let shape = Shape { version: 4, gp: 8, fixed: 4, width: 48, transactions: true, ..INTEL };
    let ops = [
        Op::Arm { n: 4, selector: 4_522_176, bits: 0, back: 0 },
        Op::Read(193),
        Op::Handler { seed: 0, bits: 0, n: 4, back: 8_771_033_676_465_900_595 },
        Op::Read(193),
        Op::Arm { n: 0, selector: 4_260_032, bits: 8, back: 189_888_632_230_924 },
        run(108_330_029_840_661_382, 0, Signal::OnTime),
        Op::Write(911, 0),
        run(1_398_539_960_059_531_443, 20, Signal::OnTime),
        Op::LoseRecords,
        Op::Handler { seed: 5_452_791_068_680_780_035, bits: 11, n: 4, back: 16_012_781_667_127_010_699 },
        run(0, 0, Signal::OnTime),
    ];
    agree(shape, &strategy, Records::None, &ops);
}

#[test]
fn of_a_period_begun_while_the_counter_was_off() {
    let ops = [
        Op::Write(3_221_291_520, 73_021_456_576),
        Op::Write(3_221_291_521, 18_446_744_073_709_551_415),
        Op::Enter,
        Op::Handler { seed: 3_697_798_109_877_473_168, bits: 11, n: 1, back: 0 },
        run(0, 0, Signal::OnTime),
        Op::LoseRecords,
        run(1_327_140_529_484_067_216, 1, Signal::OnTime),
        Op::Read(3_221_291_521),
    ];
    agree(AMD_V2, &preset("virtual"), Records::None, &ops);
}

#[test]
fn of_a_lost_event_that_is_enabled_beside_one_that_leaves() {
    let rules = Rules { processor: Processor::Zen3, release: host::Release(5, 4), others: 0 };
    let pair = Pair::by_rules(AMD, preset("virtual"), rules);
    let ops = [
        Op::Write(3_221_291_010, 68_726_358_208),
        Op::Write(3_221_291_530, 68_727_472_834),
        Op::Arm { n: 0, selector: 4_391_104, bits: 8, back: 964_616_447_497_690_547 },
        Op::Arm { n: 4, selector: 4_300_275_904, bits: 11, back: 4_637_053_467_634_831_488 },
        Op::Write(3_221_291_522, 5_308_534),
        Op::Handler { seed: 14_135_183_633_029_518_849, bits: 8, n: 8, back: 8_358_761_677_644_982_828 },
        Op::Lose,
        Op::Arm { n: 5, selector: 4_391_104, bits: 40, back: 13_840_139_322_968_155_687 },
        Op::Write(3_221_291_526, 4_325_568),
        Op::Heal,
        Op::Arm { n: 1, selector: 5_374_658, bits: 8, back: 5_590_191_663_096_112_816 },
    ];
    agrees(pair, &ops);
}
