//! The vPMU against an ideal one: long random sequences of MSR accesses, guest work, signals, slices and host failures,
//! by every strategy.
//!
//! Promised, whatever the strategy: the same registers and the same #GP as the ideal PMU; every overflow in STATUS and,
//! with INT, as a PMI at the latest when its signal is taken; no count lost or made up; each counter armed at exactly
//! its overflow on entry; no more host events than counters and pool; none left open. Where events stop themselves at an
//! overflow, the counters that overflowed may miss the one entry that delivers the PMI, and nothing else: not the others, and
//! not if records of overflows are lost. While the script lets the host fail, counts may be missing, none may be made up, and
//! each failure is reported; afterwards the PMU counts again by itself.
//!
//! `VPMU_DIFFERENTIAL_OPS=N` runs about N operations instead of the default; see docs/testing.md.

mod lazy_release;
mod model;
mod one_shot;
mod ops;

use std::cell::Cell;

use host_pmu::strategy::{OnOverflow, Pause, Strategy};
use model::Shape;
use model::host::Failing;
use model::pair::{Activity, Op, Pair, Records, Signal};
use ops::{amd_shape, ops, records, shape, strategy};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Operations in `cargo test`.
const OPS: u64 = 30_000;
/// Operations of one sequence at most; the mean is half.
const LONGEST: usize = 600;

#[test]
fn the_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(shape(), false);
}

#[test]
fn amds_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(amd_shape(), true);
}

/// Runs sequences on PMUs of these shapes.
fn agree(shapes: impl proptest::strategy::Strategy<Value = Shape>, amd: bool) {
    let wanted = std::env::var("VPMU_DIFFERENTIAL_OPS").map_or(OPS, |n| n.parse().expect("VPMU_DIFFERENTIAL_OPS"));
    let cases = u32::try_from(wanted / (LONGEST as u64 / 2)).expect("fewer than 2^32 sequences").max(1);
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_MAX_SHRINK_ITERS").is_none() {
        config.max_shrink_iters = 100_000;
    }
    // The nightly run is to see something new each time; what it finds is printed, shrunk.
    let rng = if wanted == OPS {
        TestRng::deterministic_rng(RngAlgorithm::ChaCha)
    } else {
        TestRng::from_seed(RngAlgorithm::ChaCha, &rand_seed())
    };
    let done = Cell::new(0u64);
    let activity = Cell::new(Activity::default());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&(shapes, strategy(), records(), ops(amd, LONGEST)), |(shape, strategy, records, ops)| {
        let mut pair = Pair::new(shape, strategy, records);
        for (at, op) in ops.iter().enumerate() {
            pair.step(op).map_err(|why| TestCaseError::fail(format!("operation {at}, {op:x?}: {why}")))?;
        }
        done.set(done.get() + ops.len() as u64);
        let more = pair.finish().map_err(|why| TestCaseError::fail(format!("at the end: {why}")))?;
        activity.set(activity.get().add(more));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (done, seen) = (done.get(), activity.get());
    println!("{done} operations in {cases} sequences: {seen:?}");
    // That the sequences do what they are for.
    // The lengths of sequences are random; their mean over a hundred varies by 6 %.
    assert!(done >= wanted * 4 / 5, "{done} operations");
    let often = [seen.overflows, seen.pmis, seen.reused, seen.slices, seen.failures];
    assert!(often.into_iter().all(|n| n > done / 500), "{seen:?}");
    assert!(seen.stopped.min(seen.lost_records) > done / 5000, "{seen:?}");
}

/// The fuzzer's way in (`fuzz/`), with what a fuzzer would begin with.
#[test]
fn scripts_of_random_bytes_agree_too() {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..1500);
    runner
        .run(&bytes, |bytes| model::bytes::run(&bytes).map_err(TestCaseError::fail))
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Sequences that found a bug once.
#[test]
fn sequences_of_former_bugs_agree() {
    let shape = Shape {
        amd: None,
        version: 1,
        gp: 4,
        fixed: 0,
        width: 33,
        full_width: false,
        transactions: false,
        debug_store: false,
    };
    let run = |seed, bits, signal| Op::Run { seed, bits, signal, take_pmi: false };
    let base = Strategy::preset("reuse").expect("a preset");
    let strategy = Strategy { overflow: OnOverflow::Stop, gate: true, ..base };
    // A refused resume of a stopped event was taken for a resume.
    let refused_resume = vec![
        Op::Arm { n: 1, selector: 0x41_00c0, bits: 1, back: 1 },
        run(0, 4, Signal::OnTime),
        Op::Fail(Failing { resume: true, ..Failing::default() }),
        Op::Write(0xc2, 0),
        Op::Heal,
    ];
    // An entry resumed the event that its strategy had left stopped behind the gate.
    let left_stopped = vec![
        Op::Write(0x186, 0x51_00c0),
        run(5_549_334_310_038_643_277, 40, Signal::OnTime),
        Op::Kick,
        run(20_568_431_363_679_242, 40, Signal::Held),
    ];
    // A loss of records before an event was opened hid that this one stopped early.
    let arm = |n, bits, back| Op::Arm { n, selector: 0x43_00c4, bits, back };
    let early_after_a_loss = vec![
        arm(3, 11, 24),
        arm(0, 4, 524_852_428_453_461_811),
        Op::Read(0xc1),
        Op::Write(0xc4, u64::MAX),
        Op::Enter,
        Op::LoseRecords,
        Op::Filter { denied: 0, fixed: 0, allow: false },
        run(0, 1, Signal::OnTime),
        run(0, 0, Signal::OnTime),
    ];
    let deferred = Strategy::preset("deferred").expect("a preset");
    // Two like counters overflow together; the guest writes one.
    let alike = |n, selector| Op::Arm { n, selector, bits: 1, back: 1 };
    let written_after_its_overflow = vec![
        alike(0, 0x43_013c),
        alike(2, 0x53_013c),
        run(467_914_116_400_077_287, 1, Signal::OnTime),
        Op::Write(0xc3, 0),
        run(0, 1, Signal::OnTime),
    ];
    // The lost record of a signal that was early after a virtual pause, beside an overflow of another counter.
    let goes_on = Strategy::preset("reuse").expect("a preset");
    let goes_on = Strategy { pause: Pause::Virtual, skip_period: true, ..goes_on };
    let early_and_lost = vec![
        Op::Arm { n: 3, selector: 0x45_00c0, bits: 0, back: 0 },
        Op::Arm { n: 1, selector: 0x41_00c4, bits: 0, back: 0 },
        Op::Handler { seed: 0, bits: 0, n: 1, back: 6_248_731_181_990_564_567 },
        Op::Filter { denied: 11, fixed: 0, allow: false },
        Op::Read(0xc1),
        run(4_994_487_208_871_914_930, 11, Signal::OnTime),
        Op::Filter { denied: 0, fixed: 0, allow: false },
        Op::Handler { seed: 5_267_823_882_738_345_354, bits: 0, n: 3, back: 8_915_552_365_697_175_553 },
        Op::LoseRecords,
        Op::Handler { seed: 550_059_050_827_880_573, bits: 11, n: 0, back: 0 },
    ];
    for (strategy, records, ops) in [
        (&goes_on, Records::Exact, early_and_lost),
        (&deferred, Records::Exact, written_after_its_overflow),
        (&strategy, Records::Exact, refused_resume),
        (&strategy, Records::Exact, left_stopped),
        (&deferred, Records::Early, early_after_a_loss),
    ] {
        let mut pair = Pair::new(shape, strategy.clone(), records);
        for op in &ops {
            pair.step(op).unwrap_or_else(|why| panic!("{op:x?}: {why}"));
        }
        pair.finish().unwrap_or_else(|why| panic!("at the end: {why}"));
    }
}

fn rand_seed() -> [u8; 32] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    std::array::from_fn(|i| now.to_le_bytes()[i % 16] ^ i as u8)
}
