//! Progress of a campaign: the outcome of each element, and Slurm's answer about those that left none.

use std::collections::BTreeMap;

use results::error::{Error, Exit};
use results::table::layout::plural;
use schemars::JsonSchema;
use serde::Serialize;

use super::element::Element;
use super::folder::{Campaign, Done, Folder};
use crate::slurm::query::{State as Slurm, States, Task, never_starts};

/// Progress of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
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
    /// Its attempt or job has gone without an outcome: node failure, or killed. It runs again with the next submission.
    Lost,
    /// Never begun.
    #[default]
    Waiting,
}

impl State {
    /// Returns a word for tables.
    pub fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns whether a submission runs the element: it has no outcome, and no job has it.
    pub const fn is_due(self) -> bool {
        matches!(self, Self::Stopped | Self::Lost | Self::Waiting)
    }
}

/// One element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
    /// Why it never starts, of one in Slurm's queue.
    pub never: Option<&'static str>,
    /// The outcome.
    #[serde(skip)]
    pub done: Option<Done>,
}

/// A campaign at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
    /// Reads what is there. `states`: what Slurm says of the last submission of each element.
    ///
    /// # Errors
    /// Exit 2 for a damaged outcome.
    pub fn of(folder: &Folder, campaign: &Campaign, states: &States) -> Result<Self, Error> {
        let line = |element: &Element| line(folder, element, states.elements.get(&element.number));
        let elements = campaign.elements.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        let mut counts = BTreeMap::new();
        for line in &elements {
            *counts.entry(line.state).or_insert(0) += 1;
        }
        Ok(Self { campaign: campaign.name.clone(), counts, unanswered: states.unanswered.clone(), elements })
    }

    /// Formats the numbers of elements.
    pub fn summary(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(state, count)| format!("{count} {}", state.word())).collect();
        format!("{}: {}: {}", self.campaign, plural(self.elements.len(), "element"), counts.join(", "))
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

fn line(folder: &Folder, element: &Element, task: Option<&Task>) -> Result<Line, Error> {
    let mut line = Line {
        number: element.number,
        name: element.name.clone(),
        job: task.map(|task| task.id.clone()),
        done: folder.done(element.number)?,
        ..Line::default()
    };
    let attempts = folder.attempts(element.number);
    line.attempts = attempts.len();
    if let Some(done) = &line.done {
        line.state = match done.exit {
            Some(0) => State::Ok,
            Some(3) => State::Inconclusive,
            _ => State::Failed,
        };
        line.host.clone_from(&done.attempt.host);
        line.job = done.attempt.job.clone().or(line.job);
        line.exit = done.exit;
        let why = done.error.clone().unwrap_or_else(|| done.how());
        line.reason = Some(why).filter(|_| line.state != State::Ok);
        return Ok(line);
    }
    // The note of an attempt that was stopped says more than Slurm's word.
    let noted = attempts.last().and_then(|last| folder.stopped(element.number, last.attempt));
    let (state, reason) = match (task.map(|task| &task.state), noted) {
        (Some(Slurm::Running), _) => (State::Running, None),
        (Some(Slurm::Pending(reason)), _) => {
            line.never = never_starts(reason);
            (State::Pending, Some(reason.clone()))
        }
        (_, Some(why)) => (State::Stopped, Some(why)),
        (Some(Slurm::Stopped(why)), None) => (State::Stopped, Some(why.clone())),
        (Some(Slurm::Gone(why)), None) => (State::Lost, Some(why.clone())),
        (None, None) if attempts.is_empty() => (State::Waiting, None),
        (None, None) => (State::Lost, Some("its last attempt left no outcome".to_owned())),
    };
    line.host = task.and_then(|task| task.node.clone()).or_else(|| attempts.last()?.host.clone());
    line.state = state;
    line.reason = reason.filter(|reason| !reason.is_empty());
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::folder::tests::{done, submitted};
    use crate::campaign::folder::{ATTEMPT, STOPPED};

    #[test]
    fn outcomes_come_before_notes_and_notes_before_slurms_word() {
        let dir = tempfile::tempdir().unwrap();
        let plan = "name = 'x'\nexperiment = [{ run = 'sim' }]\nhosts = [{ constraint = 'n', count = 8 }]";
        let (folder, campaign) = submitted(&dir.path().join("run"), plan);
        for (number, exit) in [(0, 0), (1, 3), (2, 4)] {
            let (attempt, _) = folder.next_attempt(number).unwrap();
            folder.finish(&done(number, attempt, exit)).unwrap();
        }
        for number in [3, 7] {
            let (attempt, path) = folder.next_attempt(number).unwrap();
            folder.write_new(&path.join(ATTEMPT), &done(number, attempt, 0).attempt).unwrap();
        }
        std::fs::write(folder.element(3).join("attempt-1").join(STOPPED), "its time limit").unwrap();
        let task = |state| Task { id: "7_1".to_owned(), state, node: None };
        let elements = BTreeMap::from([
            (0, task(Slurm::Running)),
            (3, task(Slurm::Gone("failed".to_owned()))),
            (4, task(Slurm::Gone("node fail".to_owned()))),
            (5, task(Slurm::Pending("PartitionTimeLimit".to_owned()))),
        ]);
        let standing = Standing::of(&folder, &campaign, &States { elements, unanswered: None }).unwrap();
        let found: Vec<_> = standing
            .elements
            .iter()
            .map(|line| (line.state.word(), line.reason.as_deref().unwrap_or(""), line.never.is_some()))
            .collect();
        let expected = [
            ("ok", "", false),
            ("inconclusive", "exit 3", false),
            ("failed", "exit 4", false),
            ("stopped", "its time limit", false),
            ("lost", "node fail", false),
            ("pending", "PartitionTimeLimit", true),
            ("waiting", "", false),
            ("lost", "its last attempt left no outcome", false),
        ];
        assert_eq!(found, expected.map(|(word, why, never)| (word.to_owned(), why, never)));
        assert_eq!((standing.exit(), standing.count(State::Ok)), (Exit::Regression, 1));
        assert_eq!(standing.elements.iter().filter(|line| line.state.is_due()).count(), 4);
    }
}
