//! States of a campaign's elements: `scontrol show job -o`, and `sacct` for jobs that the controller has forgotten.

use std::collections::BTreeMap;

use crate::slurm::command::{Failure, Slurm, arguments};
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
    /// Asks for the states of the elements of `jobs`, which are in the order of their submission. `accounting` is
    /// whether to ask `sacct` for what the controller does not know.
    ///
    /// This always has an answer: elements whose state is not known have [`State::Unknown`]
    /// with the reason.
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
        Ok(show_job(&text))
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
                let words = ["-X", "-n", "-P", "-o", SACCT_FIELDS, "-j"].map(str::to_owned).into_iter();
                let words = cluster.into_iter().chain(words).chain([ids.join(",")]);
                tasks.extend(accounting(&self.ask("sacct", &arguments(words), "")?));
            }
        }
        Ok(tasks)
    }
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In the queue, for this reason; also after a requeue.
    Pending(String),
    /// On a node.
    Running,
    /// Ended with exit code 0.
    Completed,
    /// Ended with another exit code, or by a signal; for this reason.
    Failed(String),
    /// Ended by a user or an administrator.
    Cancelled,
    /// Ended by its time limit.
    TimedOut,
    /// Ended by a job of higher priority, and not requeued.
    Preempted,
    /// Its node failed, and it was not requeued.
    NodeFailed,
    /// Ended by its memory limit.
    OutOfMemory,
    /// Not known, for this reason: no answer from the controller, or the job is forgotten.
    Unknown(String),
}

impl State {
    /// Returns the state of this name in `scontrol` (JobState) or `sacct` (State).
    fn of_name(name: &str, reason: &str) -> Self {
        // sacct: "CANCELLED by 1000", and "CANCELLED+" where a column is too narrow.
        let base = name.split([' ', ',']).next().unwrap_or(name).trim_end_matches('+');
        let reason = if matches!(reason, "None" | "(null)" | "") { "" } else { reason };
        match base {
            "PENDING" | "REQUEUED" | "REQUEUE_FED" => Self::Pending(reason.to_owned()),
            "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => Self::Pending(format!("held: {base}")),
            "RUNNING" | "COMPLETING" | "CONFIGURING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING"
            | "STAGE_OUT" | "POWER_UP_NODE" | "EXPEDITING" => Self::Running,
            "COMPLETED" => Self::Completed,
            "FAILED" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => {
                Self::Failed(if reason.is_empty() { base.to_owned() } else { reason.to_owned() })
            }
            "CANCELLED" | "REVOKED" => Self::Cancelled,
            "TIMEOUT" | "DEADLINE" => Self::TimedOut,
            "PREEMPTED" => Self::Preempted,
            "NODE_FAIL" => Self::NodeFailed,
            "OUT_OF_MEMORY" => Self::OutOfMemory,
            _ => Self::Unknown(format!("Slurm's state {base:?} is not known here")),
        }
    }

    /// Returns whether the task runs or will run.
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Running)
    }

    /// Returns a word for a table.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pending(_) => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Preempted => "preempted",
            Self::NodeFailed => "node failed",
            Self::OutOfMemory => "out of memory",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pending(reason) | Self::Failed(reason) | Self::Unknown(reason) => Some(reason),
            _ => None,
        }
        .map(String::as_str)
        .filter(|reason| !reason.is_empty())
    }
}

/// A task of an array job, or a job without an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Job id of the array: what `sbatch` printed.
    pub job: u64,
    /// Index in the array; `None` for a job without an array.
    pub index: Option<u32>,
    /// State.
    pub state: State,
    /// Node, once it has one.
    pub node: Option<String>,
    /// Exit code of the batch script, once it ended.
    pub exit_code: Option<i32>,
    /// Times that it was requeued.
    pub restarts: u32,
}

impl Task {
    /// Builds a task without a known state.
    pub fn unknown(job: u64, index: Option<u32>, why: impl Into<String>) -> Self {
        Self { job, index, state: State::Unknown(why.into()), node: None, exit_code: None, restarts: 0 }
    }

    /// Returns the id that Slurm's commands take: `18_7`.
    pub fn id(&self) -> String {
        self.index.map_or_else(|| self.job.to_string(), |index| format!("{}_{index}", self.job))
    }
}

/// Most indexes that a list may have: MaxArraySize is at most 4 000 001.
const MOST_INDEXES: u64 = 4_000_001;

/// Reads the tasks of `scontrol show job -o`: a line for each task that has begun, and one for all that have not.
fn show_job(text: &str) -> Vec<Task> {
    text.lines().flat_map(job_line).collect()
}

/// Reads the tasks of a line.
fn job_line(line: &str) -> Vec<Task> {
    let fields = fields(line);
    let field =
        |key: &str| fields.get(key).copied().filter(|value| !matches!(*value, "" | "(null)" | "N/A" | "Unknown"));
    let (Some(id), Some(state)) = (number(field("JobId")), field("JobState")) else { return Vec::new() };
    let exit_code = exit_code(field("ExitCode").unwrap_or_default());
    let state = State::of_name(state, field("Reason").unwrap_or_default());
    let waits = matches!(state, State::Pending(_));
    let over = !state.is_active();
    let task = |index| Task {
        job: number(field("ArrayJobId")).unwrap_or(id),
        index,
        state: state.clone(),
        node: field("BatchHost").or_else(|| field("NodeList")).filter(|_| !waits).map(str::to_owned),
        exit_code: exit_code.filter(|_| over),
        restarts: number(field("Restarts")).and_then(|n| n.try_into().ok()).unwrap_or(0),
    };
    match field("ArrayTaskId") {
        None => vec![task(None)],
        Some(list) => indexes(list).into_iter().map(|index| task(Some(index))).collect(),
    }
}

/// Reads the fields of a line. The first of two with one name is the one: comments come later.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    let mut fields = BTreeMap::new();
    for (key, value) in line.split_ascii_whitespace().filter_map(|word| word.split_once('=')) {
        fields.entry(key).or_insert(value);
    }
    fields
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Reads the exit code of `5:0`; behind the colon is a signal.
fn exit_code(text: &str) -> Option<i32> {
    text.split(':').next()?.parse().ok()
}

/// Reads the indexes of `14,16-20,30-40:2%7`. A part that cannot be read is left out: its tasks are then unknown.
fn indexes(text: &str) -> Vec<u32> {
    let text = text.split('%').next().unwrap_or(text);
    let mut indexes = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last), Ok(step)) = (first.parse::<u32>(), last.parse::<u32>(), step.parse::<usize>()) else {
            continue;
        };
        if first <= last && u64::from(last - first) < MOST_INDEXES {
            indexes.extend((first..=last).step_by(step.max(1)));
        }
    }
    indexes
}

/// Fields that [`accounting`] reads.
const SACCT_FIELDS: &str = "JobID,State,ExitCode,NodeList";

/// Reads the tasks of `sacct -X -n -P -o` [`SACCT_FIELDS`].
fn accounting(text: &str) -> Vec<Task> {
    text.lines().flat_map(accounting_line).collect()
}

fn accounting_line(line: &str) -> Vec<Task> {
    let [id, state, exit, node] = line.split('|').collect::<Vec<_>>()[..] else { return Vec::new() };
    let (job, list) = id.split_once('_').map_or((id, None), |(job, list)| (job, Some(list)));
    let Ok(job) = job.parse() else { return Vec::new() };
    let state = State::of_name(state, "");
    let over = !state.is_active();
    let exit_code = exit_code(exit);
    let known = |text: &str| (!matches!(text, "" | "None assigned" | "Unknown" | "None")).then(|| text.to_owned());
    let task = |index| Task {
        job,
        index,
        state: state.clone(),
        node: known(node),
        exit_code: exit_code.filter(|_| over),
        restarts: 0,
    };
    match list {
        None => vec![task(None)],
        Some(list) => indexes(list.trim_matches(['[', ']'])).into_iter().map(|index| task(Some(index))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::command::tests::fakes;

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
    echo "3_0|FAILED|1:0|n1"
    echo "3_1|TIMEOUT|0:0|n1""#;

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

    #[test]
    fn states_of_scontrol_and_sacct_are_the_same() {
        let of = |name| State::of_name(name, "None");
        assert_eq!(of("CANCELLED by 1000"), State::Cancelled);
        assert_eq!(of("CANCELLED+"), State::Cancelled);
        assert_eq!(of("COMPLETING"), State::Running);
        assert_eq!(of("RUNNING,SIGNALING"), State::Running);
        assert_eq!(of("PENDING"), State::Pending(String::new()));
        assert_eq!(State::of_name("PENDING", "Resources"), State::Pending("Resources".into()));
        assert_eq!(of("SPECIAL_EXIT"), State::Pending("held: SPECIAL_EXIT".into()));
        assert_eq!(State::of_name("FAILED", "NonZeroExitCode"), State::Failed("NonZeroExitCode".into()));
        assert_eq!(of("BOOT_FAIL"), State::Failed("BOOT_FAIL".into()));
        assert!(matches!(of("NEXT_RELEASES_STATE"), State::Unknown(why) if why.contains("NEXT_RELEASES_STATE")));
    }

    /// An array and a job, on a controller of 22.05 with a dead slurmd.
    const SHOWN: &str = include_str!("../../tests/outputs/show-job-22.05.txt");

    #[test]
    fn every_task_of_an_array_is_found_once_with_its_state() {
        let tasks = show_job(SHOWN);
        let indexes: Vec<u32> = tasks.iter().filter(|task| task.job == 1).filter_map(|task| task.index).collect();
        // Task 15 was cancelled before it began: the controller keeps no record of it.
        assert_eq!(indexes, [14, 16, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        let pending = |why: &str| State::Pending(why.into());
        for (index, state, exit_code, restarts, has_node) in [
            (Some(0), State::Completed, Some(0), 0, true),
            (Some(1), State::Failed("NonZeroExitCode".into()), Some(5), 0, true),
            (Some(4), pending("Resources"), None, 1, false),
            (Some(6), pending("job_requeued_in_held_state"), None, 1, false),
            (Some(13), State::Running, None, 0, true),
            (Some(16), pending("Resources"), None, 0, false),
        ] {
            let task = tasks.iter().find(|task| task.index == index).unwrap();
            let found = (&task.state, task.exit_code, task.restarts, task.node.is_some());
            assert_eq!(found, (&state, exit_code, restarts, has_node), "{}", task.id());
        }
        assert_eq!(tasks.iter().find(|task| task.index == Some(3)).unwrap().state, State::Cancelled);
        let alone = tasks.iter().find(|task| task.index.is_none()).unwrap();
        assert_eq!((&alone.state, alone.node.as_deref()), (&State::NodeFailed, Some("node3")));
    }

    #[test]
    fn a_comment_does_not_change_a_state_and_unknown_fields_are_ignored() {
        // 24.11 has new fields, and no Power.
        let line = "JobId=9 JobName=x JobState=RUNNING Reason=None FailedNode=(null) Dependency=(null) Restarts=2 \
                    ExitCode=0:0 SubmitTime=2026-11-22T11:00:00 StartTime=2026-11-22T11:53:39 EndTime=Unknown \
                    BatchHost=clx7 Comment=JobState=FAILED Restarts=9 OOMKillStep=0 \n\nno job here\n";
        let tasks = show_job(line);
        assert_eq!(tasks.len(), 1);
        assert_eq!((&tasks[0].state, tasks[0].restarts), (&State::Running, 2));
    }

    #[test]
    fn index_lists_are_read_with_steps_and_bounds() {
        assert_eq!(indexes("14,16%7"), [14, 16]);
        assert_eq!(indexes("0-6:3,9"), [0, 3, 6, 9]);
        assert_eq!(indexes("1,x,3-2,0-4294967295,5-"), [1]);
    }

    #[test]
    fn accounting_is_read_with_its_ranges() {
        let text = "18_0|COMPLETED|0:0|clx1\n\
                    18_1|CANCELLED by 1000|0:15|clx1\n\
                    18_[2-3%4]|PENDING|0:0|None assigned\n\
                    19|OUT_OF_MEMORY|0:125|clx2\n\
                    broken|line\n";
        let tasks = accounting(text);
        let states: Vec<(String, &str)> = tasks.iter().map(|task| (task.id(), task.state.word())).collect();
        let expected = [
            ("18_0", "completed"),
            ("18_1", "cancelled"),
            ("18_2", "pending"),
            ("18_3", "pending"),
            ("19", "out of memory"),
        ];
        assert_eq!(states, expected.map(|(id, word)| (id.to_owned(), word)));
        assert_eq!((tasks[2].node.as_deref(), tasks[0].node.as_deref()), (None, Some("clx1")));
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_without_a_panic(text in "(JobId=|JobState=|ArrayTaskId=|[0-9]{1,12}|[,:%|_ -]|\\[|PENDING|\n){0,40}") {
            let _ = show_job(&text);
            let _ = accounting(&text);
        }
    }
}
