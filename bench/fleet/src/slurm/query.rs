//! Slurm is asked for the states of a campaign's elements: `squeue`, and `sacct` for jobs that the controller has forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::slurm::command::{Failure, Slurm};

/// Job ids in one call.
const AT_ONCE: usize = 200;
/// Array job and task, state, node and reason, as [`task`] reads them.
const SQUEUE_FIELDS: &str = "%F_%K|%T|%N|%r";
/// `sacct` gives the same fields but no reason.
const SACCT_FIELDS: &str = "JobID,State,NodeList";

/// An array job that the controller accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Job id.
    pub job: u64,
    /// Element of each array task, from task 0.
    pub elements: Vec<u64>,
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In the queue, for this reason; also after a requeue.
    Pending(String),
    /// On a node.
    Running,
    /// Ended by a time limit, a user or a job of higher priority, in Slurm's word; or not in Slurm's books.
    Stopped(String),
    /// Ended in another way, in Slurm's word; or not known, for this reason.
    Gone(String),
}

impl State {
    /// Reads a state of `squeue` or `sacct`.
    fn of(name: &str, reason: &str) -> Self {
        // sacct: "CANCELLED by 1000".
        let word = name.split([' ', ',', '+']).next().unwrap_or(name);
        let lower = || word.to_lowercase().replace('_', " ");
        match word {
            "PENDING" | "REQUEUED" | "REQUEUE_FED" => {
                Self::Pending(if reason == "None" { String::new() } else { reason.to_owned() })
            }
            "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => Self::Pending(word.to_owned()),
            "RUNNING" | "COMPLETING" | "CONFIGURING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING"
            | "STAGE_OUT" | "POWER_UP_NODE" | "EXPEDITING" => Self::Running,
            "CANCELLED" | "REVOKED" | "TIMEOUT" | "DEADLINE" | "PREEMPTED" => Self::Stopped(lower()),
            _ => Self::Gone(lower()),
        }
    }

    /// Returns whether the task runs or will run.
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Running)
    }
}

/// Reasons for which a job never starts, as things are, with what that means; a job with any other reason has its turn.
const NEVER: [(&str, &str); 16] = [
    ("BadConstraints", "no node is as the plan wants it"),
    ("PartitionConfig", "its nodes are not in the partition"),
    ("PartitionNodeLimit", "its nodes are not in the partition"),
    ("PartitionTimeLimit", "its time limit is longer than the partition's"),
    ("InvalidAccount", "the account is not valid"),
    ("InvalidQOS", "the QOS is not valid"),
    ("AccountNotAllowed", "the partition does not take the account"),
    ("QOSNotAllowed", "the partition does not take the QOS"),
    ("DependencyNeverSatisfied", "a job that it waits for did not end as it must"),
    ("JobHeldUser", HELD),
    ("JobHeldAdmin", HELD),
    ("JobHoldMaxRequeue", HELD),
    ("launch_failed_requeued_held", HELD),
    ("job_requeued_in_held_state", HELD),
    ("REQUEUE_HOLD", HELD),
    ("SPECIAL_EXIT", HELD),
];
const HELD: &str = "it is held: `scontrol release JOB` lets it go";

/// Says why a job with this reason never starts; `None` if it may.
pub fn never_starts(reason: &str) -> Option<&'static str> {
    // Newer releases write launch_failed_requeued_held with blanks.
    let reason = reason.replace(' ', "_");
    NEVER.iter().find(|(never, _)| never.eq_ignore_ascii_case(&reason)).map(|(_, why)| *why)
}

/// The task of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Id that Slurm's commands take: `18_7`.
    pub id: String,
    /// State.
    pub state: State,
    /// Node, if it has one.
    pub node: Option<String>,
}

/// Slurm's answer about the elements of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Task of each element's last submission.
    pub elements: BTreeMap<u64, Task>,
    /// Why not every question was answered.
    pub unanswered: Option<String>,
}

impl Slurm {
    /// Asks for the tasks of `jobs`, which are in the order of their submission. There is always an answer: a task that a controller does
    /// not have does not run, and without a controller it is [`State::Gone`].
    pub fn states(&self, jobs: &[Submitted]) -> States {
        let mut found: BTreeMap<String, Task> = BTreeMap::new();
        let mut unanswered = None;
        for jobs in jobs.chunks(AT_ONCE) {
            let ids = jobs.iter().map(|job| job.job.to_string()).collect::<Vec<_>>().join(",");
            match self.ask("squeue", &["-h", "-a", "-r", "-t", "all", "-o", SQUEUE_FIELDS, "-j", &ids], "") {
                Ok(text) => found.extend(text.lines().filter_map(task).map(|task| (task.id.clone(), task))),
                Err(Failure::Refused(why)) if why.contains("Invalid job id") => {}
                Err(failure) => {
                    // Each further question to a controller that is gone would take its time limit.
                    unanswered = Some(failure.why().to_owned());
                    break;
                }
            }
            // What the controller does not have is over. Only accounting, where there is some, says how it ended.
            let is_forgotten =
                |job: &Submitted| (0..job.elements.len()).any(|index| !found.contains_key(&id(job.job, index)));
            if jobs.iter().any(is_forgotten)
                && let Ok(text) = self.ask("sacct", &["-X", "-n", "-P", "-o", SACCT_FIELDS, "-j", &ids], "")
            {
                for task in text.lines().filter_map(task).filter(|task| !task.state.is_active()) {
                    found.entry(task.id.clone()).or_insert(task);
                }
            }
        }
        let unknown = match &unanswered {
            Some(why) => State::Gone(why.clone()),
            None => State::Stopped("cancelled before it began, or ended long ago".to_owned()),
        };
        let mut elements = BTreeMap::new();
        for job in jobs {
            for (index, element) in job.elements.iter().enumerate() {
                let id = id(job.job, index);
                let task = found.remove(&id).unwrap_or_else(|| Task { id, state: unknown.clone(), node: None });
                elements.insert(*element, task);
            }
        }
        States { elements, unanswered }
    }
}

fn id(job: u64, index: usize) -> String {
    format!("{job}_{index}")
}

/// Reads a line of `squeue` or `sacct`.
fn task(line: &str) -> Option<Task> {
    let mut fields = line.split('|').map(str::trim);
    let (id, state, node) = (fields.next()?, fields.next()?, fields.next()?);
    let state = State::of(state, fields.next().unwrap_or_default());
    let has_node = !matches!(node, "" | "None assigned") && !matches!(state, State::Pending(_));
    Some(Task { id: id.to_owned(), state, node: has_node.then(|| node.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::command::tests::fakes;

    fn job(job: u64, elements: &[u64]) -> Submitted {
        Submitted { job, elements: elements.to_vec() }
    }

    /// Has forgotten job 3, and task 2 of job 5, which was cancelled in the queue.
    const SQUEUE: &str = r#"case "$*" in *"-r -t all -o %F_%K|%T|%N|%r -j 3,5") ;; *) echo "squeue: error: $*" >&2; exit 1;; esac
    echo "5_0|COMPLETED|n1|None"
    echo "5_1|RUNNING|n2|None"
    echo "5_3|PENDING||Resources"
    echo "5_4|PENDING|n1|job requeued in held state""#;
    const SACCT: &str = r#"case "$*" in *"-j 3,5") ;; *) echo "sacct: error: $*" >&2; exit 1;; esac
    echo "3_0|OUT_OF_MEMORY|n1"
    echo "3_1|TIMEOUT|n1"
    echo "3_2|CANCELLED by 1000|None assigned"
    echo "5_[2]|PENDING|None assigned"
    echo "broken|line""#;

    #[test]
    fn elements_have_the_state_of_their_last_submission() {
        let (_folder, slurm) = fakes(&[("squeue", SQUEUE), ("sacct", SACCT)]);
        let States { elements, unanswered } = slurm.states(&[job(3, &[10, 11, 12]), job(5, &[11, 20, 21, 22, 23])]);
        assert_eq!(unanswered, None);
        let (gone, stopped) = (|why: &str| State::Gone(why.into()), |why: &str| State::Stopped(why.into()));
        let pending = |why: &str| State::Pending(why.into());
        for (element, id, state, node) in [
            (10, "3_0", gone("out of memory"), Some("n1")),
            (11, "5_0", gone("completed"), Some("n1")),
            (12, "3_2", stopped("cancelled"), None),
            (20, "5_1", State::Running, Some("n2")),
            (21, "5_2", stopped("cancelled before it began, or ended long ago"), None),
            (22, "5_3", pending("Resources"), None),
            (23, "5_4", pending("job requeued in held state"), None),
        ] {
            let expected = Task { id: id.into(), state, node: node.map(str::to_owned) };
            assert_eq!(elements[&element], expected);
        }
        assert!(never_starts("job requeued in held state").is_some() && never_starts("Resources").is_none());
    }

    #[test]
    fn a_forgotten_job_is_gone_and_a_controller_that_is_gone_is_asked_once() {
        let forgotten = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("squeue", forgotten)]);
        let states = slurm.states(&[job(3, &[1])]);
        assert!(states.unanswered.is_none() && !states.elements[&1].state.is_active());
        let gone = "echo x >> \"$(dirname \"$0\")/calls\"
                    echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
        let (folder, slurm) = fakes(&[("squeue", gone)]);
        let jobs: Vec<Submitted> = (1..=300).map(|id| job(id, &[id])).collect();
        let states = slurm.states(&jobs);
        assert!(states.unanswered.unwrap().contains("Unable to contact"));
        assert!(matches!(&states.elements[&300].state, State::Gone(why) if why.contains("Unable to contact")));
        assert_eq!(std::fs::read_to_string(folder.path().join("calls")).unwrap(), "x\n");
    }
}
