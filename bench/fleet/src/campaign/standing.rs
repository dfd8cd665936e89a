//! Progress of a campaign: the outcome of each element, and Slurm's answer about those that left none.

use std::collections::BTreeMap;

use results::error::{Error, Exit};
use serde::Serialize;

use super::element::Element;
use super::folder::{Campaign, Done, Folder};
use crate::slurm::query::{State as Slurm, Task};

/// Exit code of an attempt that was stopped.
const INTERRUPTED: i32 = Exit::Inconclusive.code() as i32;

/// Progress of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Exit 0.
    Ok,
    /// Exit 3: what was measured does not answer the question.
    Inconclusive,
    /// Another exit code, or a signal.
    Failed,
    /// On a node.
    Running,
    /// In Slurm's queue.
    Pending,
    /// Stopped by a time limit, a user or a preemption: it runs again with the next submission.
    Stopped,
    /// Its job has gone without an outcome: node failure, or killed. It runs again with the next submission.
    Lost,
    /// Never begun.
    Waiting,
}

impl State {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Inconclusive,
        Self::Failed,
        Self::Running,
        Self::Pending,
        Self::Stopped,
        Self::Lost,
        Self::Waiting,
    ];

    /// Returns a word for tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Inconclusive => "inconclusive",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Pending => "pending",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
            Self::Waiting => "waiting",
        }
    }

    /// Returns whether the element has an outcome.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ok | Self::Inconclusive | Self::Failed)
    }

    /// Returns whether a submission runs the element: it has no outcome, and no job has it.
    pub const fn is_due(self) -> bool {
        matches!(self, Self::Stopped | Self::Lost | Self::Waiting)
    }
}

/// One element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// Progress of the element.
    pub state: State,
    /// Host of the last attempt.
    pub host: Option<String>,
    /// Slurm job of the last attempt, or of the submission.
    pub job: Option<String>,
    /// Exit code.
    pub exit: Option<u8>,
    /// Attempts that were begun.
    pub attempts: usize,
    /// Why it is where it is.
    pub reason: Option<String>,
    /// Prerequisites that `vpmu doctor` missed on the host of the last attempt.
    pub missing: Vec<String>,
    /// The outcome.
    #[serde(skip)]
    pub done: Option<Done>,
}

/// A campaign at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Name of the campaign.
    pub campaign: String,
    /// Number of elements in each state.
    pub counts: BTreeMap<State, usize>,
    /// Why Slurm's answer is not whole.
    pub unanswered: Option<String>,
    /// The elements, in order.
    pub elements: Vec<Line>,
}

impl Standing {
    /// Reads what is there. `tasks`: what Slurm says of the last submission of each element.
    ///
    /// # Errors
    /// Exit 2 for a damaged outcome.
    pub fn of(
        folder: &Folder,
        campaign: &Campaign,
        tasks: &BTreeMap<u64, Task>,
        unanswered: Option<String>,
    ) -> Result<Self, Error> {
        let line = |element: &Element| line(folder, element, tasks.get(&element.number));
        let elements = campaign.elements.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        let mut counts = BTreeMap::new();
        for line in &elements {
            *counts.entry(line.state).or_insert(0) += 1;
        }
        Ok(Self { campaign: campaign.name.clone(), counts, unanswered, elements })
    }

    /// Elements in a state.
    pub fn count(&self, state: State) -> usize {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    /// Returns 1 if an element failed, 3 if one is inconclusive or has no outcome, else 0.
    pub fn exit(&self) -> Exit {
        if self.count(State::Failed) > 0 {
            Exit::Regression
        } else if self.count(State::Ok) < self.elements.len() {
            Exit::Inconclusive
        } else {
            Exit::Done
        }
    }
}

/// Prefix of a finding of `vpmu doctor` that keeps something from working.
const MISSING: &str = "missing: ";

fn line(folder: &Folder, element: &Element, task: Option<&Task>) -> Result<Line, Error> {
    let mut line = Line {
        number: element.number,
        name: element.name.clone(),
        state: State::Waiting,
        host: None,
        job: task.map(Task::id),
        exit: None,
        attempts: 0,
        reason: None,
        missing: Vec::new(),
        done: folder.done(element.number)?,
    };
    let attempts = folder.attempts(element.number);
    line.attempts = attempts.len();
    if let Some(last) = attempts.last() {
        line.missing =
            last.findings.iter().filter_map(|finding| finding.strip_prefix(MISSING)).map(str::to_owned).collect();
    }
    if let Some(done) = &line.done {
        line.state = match done.exit {
            Some(0) => State::Ok,
            Some(3) => State::Inconclusive,
            _ => State::Failed,
        };
        line.host.clone_from(&done.attempt.host);
        line.job = done.attempt.job.as_ref().map(|job| job.task.clone().unwrap_or_else(|| job.id.clone())).or(line.job);
        line.exit = done.exit;
        line.reason = if done.is_ok() { None } else { Some(done.error.clone().unwrap_or_else(|| done.how())) };
        return Ok(line);
    }
    if let Some(attempt) = attempts.last() {
        line.host.clone_from(&attempt.host);
        line.state = State::Stopped;
        let why = folder.stopped(element.number, attempt.attempt);
        line.reason = Some(why.unwrap_or_else(|| "its last attempt left no outcome".to_owned()));
    }
    if let Some(task) = task {
        line.host = task.node.clone().or(line.host);
        line.reason = Some(task.state.reason().unwrap_or(task.state.word()).to_owned());
        line.state = match &task.state {
            Slurm::Running => State::Running,
            Slurm::Pending(_) => State::Pending,
            Slurm::Cancelled | Slurm::TimedOut | Slurm::Preempted => State::Stopped,
            // An attempt that was interrupted ends before Slurm has to end it.
            Slurm::Failed(_) if task.exit_code == Some(INTERRUPTED) && line.attempts > 0 => {
                line.reason = Some("its last attempt was stopped: time limit, or SIGTERM".to_owned());
                State::Stopped
            }
            Slurm::Completed | Slurm::Failed(_) | Slurm::NodeFailed | Slurm::OutOfMemory | Slurm::Unknown(_) => {
                State::Lost
            }
        };
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::folder::tests::{done, submitted};

    #[test]
    fn outcomes_come_before_what_slurm_says() {
        let dir = tempfile::tempdir().unwrap();
        let plan = "name = 'x'\nexperiment = [{ run = 'sim' }]\nhosts = [{ names = 'n[1-6]' }]";
        let (folder, campaign) = submitted(&dir.path().join("run"), plan);
        for (number, exit) in [(0, 0), (1, 3), (2, 4)] {
            let (attempt, _) = folder.next_attempt(number).unwrap();
            folder.finish(&done(number, attempt, exit)).unwrap();
        }
        folder.next_attempt(3).unwrap();
        folder.write_new(&folder.element(3).join("attempt-1/attempt.json"), &done(3, 1, 0).attempt).unwrap();
        let task = |state: Slurm| Task { state, ..Task::unknown(7, Some(1), "") };
        let tasks = BTreeMap::from([
            (0, task(Slurm::Running)),
            (4, task(Slurm::NodeFailed)),
            (5, task(Slurm::Pending("Priority".to_owned()))),
        ]);
        let standing = Standing::of(&folder, &campaign, &tasks, None).unwrap();
        let states: Vec<State> = standing.elements.iter().map(|line| line.state).collect();
        let words: Vec<&str> = states.iter().map(|state| state.word()).collect();
        assert_eq!(words, ["ok", "inconclusive", "failed", "stopped", "lost", "pending"]);
        assert_eq!(standing.exit(), Exit::Regression);
        assert_eq!(standing.elements[4].reason.as_deref(), Some("node failed"));
        assert_eq!(standing.elements[5].reason.as_deref(), Some("Priority"));
        assert_eq!(standing.count(State::Ok), 1);
        assert_eq!(states.iter().filter(|state| state.is_due()).count(), 2);
    }

    #[test]
    fn a_campaign_is_done_when_every_element_is_ok() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, campaign) = submitted(&dir.path().join("run"), "name = 'x'\nexperiment = [{ run = 'sim' }]");
        let of = || Standing::of(&folder, &campaign, &BTreeMap::new(), None).unwrap();
        assert_eq!((of().exit(), of().elements[0].state), (Exit::Inconclusive, State::Waiting));
        folder.next_attempt(0).unwrap();
        folder.finish(&done(0, 1, 0)).unwrap();
        assert_eq!(of().exit(), Exit::Done);
    }
}
