//! Slurm's state of a job or of one task of an array.

use serde::{Deserialize, Serialize};

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
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
    /// The state of this name in `scontrol` (JobState) or `sacct` (State).
    #[must_use]
    pub fn of_name(name: &str, reason: &str) -> Self {
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
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Running)
    }

    /// A word for a table.
    #[must_use]
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

    /// The reason, where there is one.
    #[must_use]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Signal that ended the batch script; 0 for none.
    pub signal: i32,
    /// Times that it was requeued.
    pub restarts: u32,
    /// When it began, as Slurm prints it.
    pub began: Option<String>,
    /// When it ended or will have to, as Slurm prints it.
    pub ends: Option<String>,
}

impl Task {
    /// A task without a known state.
    #[must_use]
    pub fn unknown(job: u64, index: Option<u32>, why: impl Into<String>) -> Self {
        Self {
            job,
            index,
            state: State::Unknown(why.into()),
            node: None,
            exit_code: None,
            signal: 0,
            restarts: 0,
            began: None,
            ends: None,
        }
    }

    /// The id that Slurm's commands take: `18_7`.
    #[must_use]
    pub fn id(&self) -> String {
        self.index.map_or_else(|| self.job.to_string(), |index| format!("{}_{index}", self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn only_pending_and_running_tasks_are_still_to_come() {
        let names = [
            "PENDING",
            "RUNNING",
            "COMPLETED",
            "FAILED",
            "CANCELLED",
            "TIMEOUT",
            "PREEMPTED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "?",
        ];
        let active: Vec<&str> = names.into_iter().filter(|name| State::of_name(name, "").is_active()).collect();
        assert_eq!(active, ["PENDING", "RUNNING"]);
    }
}
