//! Campaigns on a real Slurm: munged, slurmctld and four slurmd on loopback, two of each of two classes.
//!
//! Without Slurm or without root the tests are listed as ignored and a `SKIP` line says what to install; with
//! `VPMU_REQUIRE_SLURM=1` that is a failure.

mod campaigns;
mod rig;
mod stops;

use anyhow::{Result, bail};
use trials::Case;

use crate::prerequisites::is_required;
use rig::Rig;

type Check = fn(&mut Rig) -> Result<()>;

const CHECKS: [(&str, Check); 10] = [
    ("campaigns::refusals_name_what_the_cluster_lacks", campaigns::refusals_name_what_the_cluster_lacks),
    ("campaigns::every_result_once_whatever_happens", campaigns::every_result_once_whatever_happens),
    ("campaigns::a_sweep_in_parts_is_the_same_to_the_byte", campaigns::a_sweep_in_parts_is_the_same_to_the_byte),
    ("stops::a_controller_that_vanishes_loses_no_outcome", stops::a_controller_that_vanishes_loses_no_outcome),
    ("stops::preempted_and_cancelled_elements_run_again", stops::preempted_and_cancelled_elements_run_again),
    ("stops::a_time_limit_is_announced_by_sigterm", stops::a_time_limit_is_announced_by_sigterm),
    ("stops::a_time_limit_leaves_a_whole_document", stops::a_time_limit_leaves_a_whole_document),
    ("stops::status_says_what_pending_elements_wait_for", stops::status_says_what_pending_elements_wait_for),
    ("stops::two_at_once_do_nothing_twice", stops::two_at_once_do_nothing_twice),
    ("stops::a_full_disk_loses_no_outcome", stops::a_full_disk_loses_no_outcome),
];

pub(crate) fn cases() -> Vec<Case> {
    let missing = rig::missing().map(|why| format!("{why}; remedy: {}", rig::REMEDY));
    let required = is_required("VPMU_REQUIRE_SLURM");
    let case = |&(name, check): &(&str, Check)| {
        let lacks = missing.clone();
        let run = move || match lacks {
            Some(why) => bail!("{why}"),
            // Each has a cluster of its own.
            None => check(&mut Rig::start()?),
        };
        Case::fallible(name, missing.clone().filter(|_| !required), run).expected(false)
    };
    CHECKS.iter().map(case).collect()
}
