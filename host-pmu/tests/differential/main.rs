//! The vPMU against an ideal one: long random sequences of MSR accesses, guest work, signals, slices and host failures,
//! by every strategy.
//!
//! Promised, whatever the strategy: the same registers and the same #GP as the ideal PMU; every overflow in STATUS and,
//! with INT, as a PMI at the latest when its signal is taken; no count lost or made up; each counter armed at exactly
//! its overflow on entry; no more host events than counters, or the pool's size; none left open. While the script lets the
//! host fail, counts may be missing, none may be made up, and each failure is reported; afterwards the PMU counts again by itself.
//!
//! `VPMU_DIFFERENTIAL_OPS=N` runs about N operations instead of the default; see docs/testing.md.

mod former_bugs;
mod hardware;
mod lazy_release;
mod model;
mod ops;

use std::cell::Cell;

use arch_pmu::spec::Vendor;
use model::Shape;
use model::host::Rules;
use model::pair::{Activity, Pair};
use ops::{amd_shape, by_rules, ops, records, shape, strategy};
use proptest::strategy::Strategy as _;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Operations in `cargo test`.
const OPS: u64 = 30_000;
/// Operations of one sequence at most; the mean is half.
const LONGEST: usize = 600;

#[test]
fn the_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(shape().prop_map(|shape| (shape, None)), false);
}

#[test]
fn amds_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(amd_shape().prop_map(|shape| (shape, None)), true);
}

#[test]
fn the_vpmu_is_the_ideal_one_by_perfs_rules() {
    agree(by_rules(Vendor::Intel), false);
}

#[test]
fn amds_vpmu_is_the_ideal_one_by_perfs_rules() {
    agree(by_rules(Vendor::Amd), true);
}

/// Runs sequences on PMUs of these shapes, whose hosts have hardware events by perf's rules, if there are any.
fn agree(shapes: impl proptest::strategy::Strategy<Value = (Shape, Option<Rules>)>, amd: bool) {
    let wanted = std::env::var("VPMU_DIFFERENTIAL_OPS").map_or(OPS, |n| n.parse().expect("VPMU_DIFFERENTIAL_OPS"));
    let cases = u32::try_from(wanted / (LONGEST as u64 / 2)).expect("fewer than 2^32 sequences").max(1);
    // Strategies that contradict themselves are thrown away: some of each hundred.
    let mut config = Config { cases, failure_persistence: None, max_local_rejects: u32::MAX, ..Config::default() };
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
    let scripted = Cell::new(true);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result =
        runner.run(&(shapes, strategy(), records(), ops(amd, LONGEST)), |((shape, rules), strategy, records, ops)| {
            let by_rules = rules.is_some();
            let mut pair = match rules {
                Some(rules) => Pair::by_rules(shape, strategy, rules),
                None => Pair::new(shape, strategy, records),
            };
            for (at, op) in ops.iter().enumerate() {
                pair.step(op).map_err(|why| TestCaseError::fail(format!("operation {at}, {op:x?}: {why}")))?;
            }
            done.set(done.get() + ops.len() as u64);
            let more = pair.finish().map_err(|why| TestCaseError::fail(format!("at the end: {why}")))?;
            activity.set(activity.get().add(more));
            scripted.set(scripted.get() && !by_rules);
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (done, seen) = (done.get(), activity.get());
    println!("{done} operations in {cases} sequences: {seen:?}");
    // The sequences must do what they are for.
    // The lengths of sequences are random; their mean over a hundred varies by 6 %.
    assert!(done >= wanted * 4 / 5, "{done} operations");
    let often = [seen.overflows, seen.pmis, seen.reused, seen.slices, seen.failures];
    assert!(often.into_iter().all(|n| n > done / 500), "{seen:?}");
    assert!(!scripted.get() || seen.lost_records > done / 5000, "{seen:?}");
}

/// Takes the fuzzer's way in (`tools/fuzz/`), with scripts that a fuzzer would begin with.
#[test]
fn scripts_of_random_bytes_agree_too() {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..1500);
    runner
        .run(&bytes, |bytes| model::bytes::run(&bytes).map_err(TestCaseError::fail))
        .unwrap_or_else(|e| panic!("{e}"));
}

fn rand_seed() -> [u8; 32] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    std::array::from_fn(|i| now.to_le_bytes()[i % 16] ^ i as u8)
}
