//! States of a campaign's elements: `scontrol show job -o`, and `sacct` for jobs that the controller has forgotten.

use std::collections::BTreeMap;

use crate::slurm::command::{Failure, Slurm, arguments};
use crate::slurm::parse;
use crate::slurm::state::Task;
use crate::slurm::submit::Submitted;

/// Job ids in one call of `sacct`.
const AT_ONCE: usize = 200;

/// Slurm's answer about the elements of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// State of each element's last submission.
    pub elements: BTreeMap<u64, Task>,
    /// Why not every question was answered.
    pub unanswered: Option<String>,
}

/// Why a task of a job that the controller shows is not among those shown.
const NOT_SHOWN: &str = "cancelled before it began, or ended long ago";
/// Why nothing is known of a job.
const FORGOTTEN: &str = "the controller has forgotten the job, and there is no accounting";

impl Slurm {
    /// The states of the elements of `jobs`, which are in the order of their submission. `accounting` is whether to ask `sacct` for
    /// what the controller does not know.
    ///
    /// This always has an answer: elements whose state is not known have [`State::Unknown`](crate::slurm::state::State::Unknown)
    /// with the reason.
    #[must_use]
    pub fn states(&self, jobs: &[Submitted], accounting: bool) -> States {
        let mut found: BTreeMap<(u64, Option<u32>), Task> = BTreeMap::new();
        let mut reasons: BTreeMap<u64, String> = BTreeMap::new();
        let mut unanswered = None;
        let mut recorded = Vec::new();
        for job in jobs {
            if let Some(why) = &unanswered {
                // Each further question to a controller that is gone would take its time limit.
                reasons.insert(job.job, String::clone(why));
                continue;
            }
            match self.show(job) {
                Ok(tasks) => {
                    reasons.insert(job.job, NOT_SHOWN.into());
                    if tasks.len() < job.elements.len() {
                        recorded.push(job);
                    }
                    found.extend(tasks.into_iter().map(|task| ((task.job, task.index), task)));
                }
                Err(Failure::Refused(why)) if why.contains("Invalid job id") => {
                    reasons.insert(job.job, FORGOTTEN.into());
                    recorded.push(job);
                }
                Err(failure) => {
                    reasons.insert(job.job, failure.why().to_owned());
                    unanswered = Some(failure.why().to_owned());
                }
            }
        }
        if accounting && unanswered.is_none() {
            match self.records(&recorded) {
                Ok(tasks) => {
                    for task in tasks {
                        found.entry((task.job, task.index)).or_insert(task);
                    }
                }
                Err(failure) => unanswered = Some(failure.why().to_owned()),
            }
        }
        let mut elements = BTreeMap::new();
        for job in jobs {
            for (index, element) in (0..).zip(&job.elements) {
                let unknown =
                    || Task::unknown(job.job, Some(index), reasons.get(&job.job).cloned().unwrap_or_default());
                elements.insert(*element, found.remove(&(job.job, Some(index))).unwrap_or_else(unknown));
            }
        }
        States { elements, unanswered }
    }

    fn show(&self, job: &Submitted) -> Result<Vec<Task>, Failure> {
        let cluster = job.cluster.as_ref().map(|name| format!("--clusters={name}"));
        let words = ["show", "job", "-o"].map(str::to_owned).into_iter().chain([job.job.to_string()]);
        let text = self.ask("scontrol", &arguments(cluster.into_iter().chain(words)), "")?;
        Ok(parse::show_job(&text))
    }

    fn records(&self, jobs: &[&Submitted]) -> Result<Vec<Task>, Failure> {
        let mut clusters: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for job in jobs {
            clusters.entry(job.cluster.as_deref()).or_default().push(job.job.to_string());
        }
        let mut tasks = Vec::new();
        for (cluster, ids) in clusters {
            for ids in ids.chunks(AT_ONCE) {
                let cluster = cluster.map(|name| format!("--clusters={name}"));
                let words = ["-X", "-n", "-P", "-o", parse::SACCT_FIELDS, "-j"].map(str::to_owned).into_iter();
                let words = cluster.into_iter().chain(words).chain([ids.join(",")]);
                tasks.extend(parse::accounting(&self.ask("sacct", &arguments(words), "")?));
            }
        }
        Ok(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::command::tests::fakes;
    use crate::slurm::state::State;

    fn job(job: u64, elements: &[u64]) -> Submitted {
        Submitted { job, cluster: None, elements: elements.to_vec(), options: Vec::new() }
    }

    /// Knows job 5, whose task 1 was requeued, and task 2 cancelled in the queue; has forgotten all others.
    const SCONTROL: &str = r#"if [ "$*" != "show job -o 5" ]; then echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi
echo "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=COMPLETED Reason=None Restarts=0 ExitCode=0:0 BatchHost=n1"
echo "JobId=7 ArrayJobId=5 ArrayTaskId=1 JobState=RUNNING Reason=None Restarts=2 ExitCode=0:0 BatchHost=n2"
echo "JobId=5 ArrayJobId=5 ArrayTaskId=3-4%2 JobState=PENDING Reason=Resources Restarts=0 ExitCode=0:0""#;
    /// Has records of job 3.
    const SACCT: &str = r#"case "$*" in *"-j 3,5") ;; *) echo "sacct: error: $*" >&2; exit 1;; esac
echo "3_0|FAILED|1:0|n1|2026-11-22T11:53:39|2026-11-22T11:53:47"
echo "3_1|TIMEOUT|0:0|n1|2026-11-22T11:53:39|2026-11-22T11:53:47""#;

    #[test]
    fn elements_have_the_state_of_their_last_submission() {
        let (_folder, slurm) = fakes(&[("scontrol", SCONTROL), ("sacct", SACCT)]);
        let states = slurm.states(&[job(3, &[10, 11, 12]), job(5, &[11, 20, 21, 22, 23])], true);
        assert_eq!(states.unanswered, None);
        let of = |element| &states.elements[&element];
        assert_eq!((of(10).state.word(), of(10).exit_code), ("failed", Some(1)));
        assert_eq!((of(11).state.word(), of(11).job), ("completed", 5));
        assert_eq!((of(20).state.word(), of(20).restarts, of(20).node.as_deref()), ("running", 2, Some("n2")));
        assert_eq!(of(21).state, State::Unknown(NOT_SHOWN.into()));
        assert_eq!(of(23).state, State::Pending("Resources".into()));
        assert_eq!(of(12).state, State::Unknown(FORGOTTEN.into()));
    }

    #[test]
    fn without_accounting_a_forgotten_job_is_unknown() {
        let (_folder, slurm) = fakes(&[("scontrol", SCONTROL)]);
        let states = slurm.states(&[job(3, &[1])], false);
        assert_eq!((&states.elements[&1].state, states.unanswered), (&State::Unknown(FORGOTTEN.into()), None));
    }

    #[test]
    fn a_controller_that_is_gone_is_asked_once() {
        let gone = "echo x >> \"$(dirname \"$0\")/calls\"
                    echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
        let (folder, slurm) = fakes(&[("scontrol", gone)]);
        let states = slurm.states(&[job(3, &[1]), job(5, &[2])], true);
        assert!(states.unanswered.unwrap().contains("Unable to contact"));
        assert!(states.elements.values().all(|task| task.state.reason().unwrap().contains("Unable to contact")));
        assert_eq!(std::fs::read_to_string(folder.path().join("calls")).unwrap(), "x\n");
    }
}
