//! Campaigns on a real Slurm: munged, slurmctld and four slurmd on loopback, two of each of two classes.
//!
//! Without Slurm or without root the tests are listed as ignored and a `SKIP` line says what to install; with
//! `VPMU_REQUIRE_SLURM=1` that is a failure. Each runs in a process of its own, beside trials of other modules.

mod campaigns;
mod rig;
mod stops;

use anyhow::{Result, bail, ensure};
use trials::Case;

use crate::binary::text;
use crate::prerequisites::{alone, is_required};
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

/// Names the folder of one of them to its process.
const OWN: &str = "VPMU_SLURM_FOLDER";

pub(crate) fn cases() -> Vec<Case> {
    let missing = rig::missing().map(|why| format!("{why}; remedy: {}", rig::REMEDY));
    let lacks = missing.clone().filter(|_| !is_required("VPMU_REQUIRE_SLURM"));
    let case = |(number, (name, check)): (usize, (&'static str, Check))| {
        let missing = missing.clone();
        let run = move || match (missing, std::env::var_os(OWN)) {
            (Some(why), _) => bail!("{why}"),
            // Each has a cluster of its own.
            (None, Some(folder)) => check(&mut Rig::start(folder.into())?),
            (None, None) => in_its_process(&format!("slurm::{name}")),
        };
        Case::fallible(name, lacks.clone(), run).expected(false).beside(1 + number % 3)
    };
    CHECKS.into_iter().enumerate().map(case).collect()
}

fn in_its_process(name: &str) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("vpmu-slurm-").tempdir()?;
    let output = alone(std::env::current_exe()?).args([name, "--exact"]).env(OWN, folder.path()).output()?;
    let said = text(&output.stdout) + &text(&output.stderr);
    ensure!(output.status.success() && said.contains("1 passed"), "{said}");
    Ok(())
}
