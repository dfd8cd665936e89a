//! Cancellation: `scancel`.

use std::collections::BTreeMap;

use results::error::Error;

use crate::slurm::command::{Failure, Slurm, arguments};
use crate::slurm::submit::Submitted;

/// Job ids in one call.
const AT_ONCE: usize = 200;

impl Slurm {
    /// Cancels the tasks of these jobs that have not ended.
    ///
    /// # Errors
    /// Exit 4 if there is no `scancel` or no controller, exit 2 if it refuses (the jobs of another user).
    pub fn cancel(&self, jobs: &[Submitted]) -> Result<(), Error> {
        let mut clusters: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
        for job in jobs {
            clusters.entry(job.cluster.as_deref()).or_default().push(job.job);
        }
        for (cluster, ids) in clusters {
            for ids in ids.chunks(AT_ONCE) {
                let clusters = cluster.map(|name| format!("--clusters={name}"));
                let words = clusters.into_iter().chain(ids.iter().map(u64::to_string));
                match self.ask("scancel", &arguments(words), "") {
                    Err(Failure::Refused(why)) if only_ended(&why) => {}
                    Err(failure) => return Err(failure.error("cannot cancel the campaign's jobs", "see squeue")),
                    Ok(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns whether `scancel` complains only about jobs that have ended or that it has forgotten.
fn only_ended(why: &str) -> bool {
    let over = ["Invalid job id specified", "already completing or completed", "Job/step already"];
    why.split("; ").all(|part| over.iter().any(|text| part.contains(text)))
}

#[cfg(test)]
mod tests {
    use results::error::Exit;

    use super::*;
    use crate::slurm::command::tests::fakes;

    fn job(job: u64, cluster: Option<&str>) -> Submitted {
        Submitted { job, cluster: cluster.map(str::to_owned), elements: vec![0], options: Vec::new() }
    }

    #[test]
    fn jobs_are_cancelled_on_their_clusters() {
        let (folder, slurm) = fakes(&[("scancel", "echo \"$@\" >> \"$(dirname \"$0\")/calls\"")]);
        slurm.cancel(&[job(1, None), job(2, Some("east")), job(3, None)]).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("calls")).unwrap(), "1 3\n--clusters=east 2\n");
    }

    #[test]
    fn jobs_that_ended_are_no_error() {
        let ended = "echo 'scancel: error: Kill job error on job id 1: Invalid job id specified' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", ended)]);
        slurm.cancel(&[job(1, None)]).unwrap();
        slurm.cancel(&[]).unwrap();
    }

    #[test]
    fn other_refusals_are_errors() {
        let denied = "echo 'scancel: error: Kill job error on job id 1: Access/permission denied' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", denied)]);
        assert_eq!(slurm.cancel(&[job(1, None)]).unwrap_err().exit, Exit::Usage);
        let down = "echo 'scancel: error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", down)]);
        assert_eq!(slurm.cancel(&[job(1, None)]).unwrap_err().exit, Exit::Host);
    }
}
