//! The vPMU against an ideal one: long random sequences of MSR accesses, guest work, signals, slices and host failures,
//! by every strategy.
//!
//! Promised, whatever the strategy: the same registers and the same #GP as the ideal PMU; every overflow in STATUS and,
//! with INT, as a PMI at the latest when its signal is taken; no count lost or made up; each counter armed at exactly
//! its overflow on entry; no more host events than counters, or the pool's size; none left open. While the script lets the
//! host fail, counts may be missing, none may be made up, and each failure is reported; afterwards the PMU counts again by itself.
//!
//! `VPMU_DIFFERENTIAL_OPS=N` runs about N operations instead of the default; see docs/contributing.md.

mod former_bugs;
mod hardware;
mod lazy_release;
mod model;

use std::cell::Cell;

use arch_pmu::spec::Vendor;
use model::bytes::{HEAD, Host, OP, Script};
use model::pair::Activity;
use proptest::prelude::{Strategy as _, any};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Operations in `cargo test`.
const OPS: u64 = 30_000;
/// Operations of one sequence at most; the mean is half.
const LONGEST: usize = 600;

#[test]
fn the_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(Vendor::Intel, Host::Plain);
}

#[test]
fn amds_vpmu_is_the_ideal_one_by_every_strategy() {
    agree(Vendor::Amd, Host::Plain);
}

#[test]
fn the_vpmu_is_the_ideal_one_by_perfs_rules() {
    agree(Vendor::Intel, Host::ByRules);
}

#[test]
fn amds_vpmu_is_the_ideal_one_by_perfs_rules() {
    agree(Vendor::Amd, Host::ByRules);
}

fn agree(vendor: Vendor, host: Host) {
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
    let ops = proptest::collection::vec(any::<[u8; OP]>(), 1..=LONGEST);
    let scripts = (any::<[u8; HEAD]>(), ops)
        .prop_map(|(head, ops)| Script::new(vendor, host, &head, ops.iter().map(<[u8; OP]>::as_slice)));
    let result = runner.run(&scripts, |script| {
        let ops = script.ops.len() as u64;
        let more = script.run().map_err(TestCaseError::fail)?;
        done.set(done.get() + ops);
        activity.set(std::array::from_fn(|n| activity.get()[n] + more[n]));
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
    let [often @ .., lost_records] = seen;
    assert!(often.into_iter().all(|n| n > done / 500), "{seen:?}");
    assert!(matches!(host, Host::ByRules) || lost_records > done / 5000, "{seen:?}");
}

fn rand_seed() -> [u8; 32] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    std::array::from_fn(|i| now.to_le_bytes()[i % 16] ^ i as u8)
}
