//! Campaigns on a real Slurm: munged, slurmctld and four slurmd on loopback, two of each of two classes.
//!
//! Without Slurm or without root the tests are listed as ignored and a `SKIP` line says what to install; with
//! `VPMU_REQUIRE_SLURM=1` that is a failure.

mod campaigns;
mod rig;
mod stops;

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};

use rig::Rig;

type Check = fn(&mut Rig) -> Result<()>;

const CHECKS: [(&str, Check); 11] = [
    ("campaigns::elements_run_once_with_their_states", campaigns::elements_run_once_with_their_states),
    ("campaigns::refusals_are_sbatchs_own_words", campaigns::refusals_are_sbatchs_own_words),
    ("campaigns::a_time_limit_is_announced_by_sigterm", campaigns::a_time_limit_is_announced_by_sigterm),
    ("campaigns::every_result_once_whatever_happens", campaigns::every_result_once_whatever_happens),
    ("campaigns::a_sweep_in_parts_is_the_same_to_the_byte", campaigns::a_sweep_in_parts_is_the_same_to_the_byte),
    ("stops::a_controller_that_vanishes_loses_no_outcome", stops::a_controller_that_vanishes_loses_no_outcome),
    ("stops::preempted_and_cancelled_elements_run_again", stops::preempted_and_cancelled_elements_run_again),
    ("stops::a_time_limit_leaves_a_whole_document", stops::a_time_limit_leaves_a_whole_document),
    ("stops::status_says_what_pending_elements_wait_for", stops::status_says_what_pending_elements_wait_for),
    ("stops::two_at_once_do_nothing_twice", stops::two_at_once_do_nothing_twice),
    ("stops::a_full_disk_loses_no_outcome", stops::a_full_disk_loses_no_outcome),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each has a cluster of its own.
    arguments.test_threads = Some(1);
    let missing = rig::missing();
    let required = std::env::var_os("VPMU_REQUIRE_SLURM").is_some_and(|value| value == "1");
    if let (Some(why), false, false) = (&missing, required, arguments.list) {
        eprintln!("SKIP: no Slurm can be run here: {why}; remedy: {}", rig::REMEDY);
    }
    let skip = missing.is_some() && !required;
    let trial = |&(name, check): &(&'static str, Check)| {
        let missing = missing.clone();
        let run = move || match missing {
            Some(why) => Err(format!("{why}; remedy: {}", rig::REMEDY).into()),
            None => Rig::start().and_then(|mut rig| check(&mut rig)).map_err(|error| format!("{error:#}").into()),
        };
        Trial::test(name, run).with_ignored_flag(skip)
    };
    libtest_mimic::run(&arguments, CHECKS.iter().map(trial).collect()).exit_code()
}
