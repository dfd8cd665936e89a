//! Output of `scontrol show job -o` and of `sacct -P`.

use std::collections::BTreeMap;

use crate::slurm::state::{State, Task};

/// Most indexes that a list may have: MaxArraySize is at most 4 000 001.
const MOST_INDEXES: u64 = 4_000_001;

/// The tasks of `scontrol show job -o`: a line for each task that has begun, and one for all that have not.
#[must_use]
pub fn show_job(text: &str) -> Vec<Task> {
    text.lines().flat_map(job_line).collect()
}

/// The tasks of a line.
fn job_line(line: &str) -> Vec<Task> {
    let fields = fields(line);
    let field =
        |key: &str| fields.get(key).copied().filter(|value| !matches!(*value, "" | "(null)" | "N/A" | "Unknown"));
    let (Some(id), Some(state)) = (number(field("JobId")), field("JobState")) else { return Vec::new() };
    let (exit_code, signal) = exit_code(field("ExitCode").unwrap_or_default());
    let state = State::of_name(state, field("Reason").unwrap_or_default());
    let waits = matches!(state, State::Pending(_));
    let over = !state.is_active();
    let task = |index| Task {
        job: number(field("ArrayJobId")).unwrap_or(id),
        index,
        state: state.clone(),
        node: field("BatchHost").or_else(|| field("NodeList")).filter(|_| !waits).map(str::to_owned),
        exit_code: exit_code.filter(|_| over),
        signal: if over { signal } else { 0 },
        restarts: number(field("Restarts")).and_then(|n| n.try_into().ok()).unwrap_or(0),
        began: field("StartTime").filter(|_| !waits).map(str::to_owned),
        ends: field("EndTime").filter(|_| !waits).map(str::to_owned),
    };
    match field("ArrayTaskId") {
        None => vec![task(None)],
        Some(list) => indexes(list).into_iter().map(|index| task(Some(index))).collect(),
    }
}

/// The fields of a line. The first of two with one name is the one: comments come later.
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

/// Exit code and signal of `5:0`.
fn exit_code(text: &str) -> (Option<i32>, i32) {
    let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
    (code.parse().ok(), signal.parse().unwrap_or(0))
}

/// The indexes of `14,16-20,30-40:2%7`. A part that cannot be read is left out: its tasks are then unknown.
#[must_use]
pub fn indexes(text: &str) -> Vec<u32> {
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
pub const SACCT_FIELDS: &str = "JobID,State,ExitCode,NodeList,Start,End";

/// The tasks of `sacct -X -n -P -o` [`SACCT_FIELDS`].
#[must_use]
pub fn accounting(text: &str) -> Vec<Task> {
    text.lines().flat_map(accounting_line).collect()
}

fn accounting_line(line: &str) -> Vec<Task> {
    let [id, state, exit, node, began, ends] = line.split('|').collect::<Vec<_>>()[..] else { return Vec::new() };
    let (job, list) = id.split_once('_').map_or((id, None), |(job, list)| (job, Some(list)));
    let Ok(job) = job.parse() else { return Vec::new() };
    let state = State::of_name(state, "");
    let over = !state.is_active();
    let (exit_code, signal) = exit_code(exit);
    let known = |text: &str| (!matches!(text, "" | "None assigned" | "Unknown" | "None")).then(|| text.to_owned());
    let task = |index| Task {
        job,
        index,
        state: state.clone(),
        node: known(node),
        exit_code: exit_code.filter(|_| over),
        signal: if over { signal } else { 0 },
        restarts: 0,
        began: known(began),
        ends: known(ends),
    };
    match list {
        None => vec![task(None)],
        Some(list) => indexes(list.trim_matches(['[', ']'])).into_iter().map(|index| task(Some(index))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array and a job, on a controller of 22.05 with a dead slurmd.
    const SHOWN: &str = include_str!("../../tests/outputs/show-job-22.05.txt");

    fn of(index: u32) -> Task {
        show_job(SHOWN).into_iter().find(|task| task.index == Some(index)).unwrap()
    }

    #[test]
    fn every_task_of_an_array_is_found_once() {
        let tasks = show_job(SHOWN);
        let indexes: Vec<u32> = tasks.iter().filter(|task| task.job == 1).filter_map(|task| task.index).collect();
        // Task 15 was cancelled before it began: the controller keeps no record of it.
        assert_eq!(indexes, [14, 16, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn ends_have_their_exit_code_or_signal_and_node() {
        let done = of(0);
        assert_eq!(
            (&done.state, done.exit_code, done.signal, done.id().as_str()),
            (&State::Completed, Some(0), 0, "1_0")
        );
        assert!(done.node.is_some() && done.began.is_some() && done.ends.is_some());
        let failed = of(1);
        assert_eq!((failed.state, failed.exit_code), (State::Failed("NonZeroExitCode".into()), Some(5)));
        let killed = of(2);
        assert_eq!((killed.exit_code, killed.signal), (Some(0), 11));
        assert_eq!(of(3).state, State::Cancelled);
    }

    #[test]
    fn tasks_that_wait_have_a_reason_and_those_requeued_a_count() {
        let requeued = of(4);
        assert_eq!((&requeued.state, requeued.restarts), (&State::Pending("Resources".into()), 1));
        assert_eq!((requeued.node, requeued.began, requeued.exit_code), (None, None, None));
        assert_eq!(of(6).state, State::Pending("job_requeued_in_held_state".into()));
        assert_eq!((of(16).state, of(16).restarts), (State::Pending("Resources".into()), 0));
        let running = of(13);
        assert_eq!((&running.state, running.exit_code), (&State::Running, None));
        assert!(running.node.is_some());
    }

    #[test]
    fn a_job_without_requeue_on_a_dead_node_has_failed_with_it() {
        let job = show_job(SHOWN).into_iter().find(|task| task.index.is_none()).unwrap();
        assert_eq!((job.state, job.node.as_deref()), (State::NodeFailed, Some("node3")));
    }

    #[test]
    fn a_comment_does_not_change_a_state_and_unknown_fields_are_ignored() {
        // 24.11 has new fields, and no Power.
        let line = "JobId=9 JobName=x JobState=RUNNING Reason=None FailedNode=(null) Dependency=(null) Restarts=2 \
                    ExitCode=0:0 SubmitTime=2026-11-22T11:00:00 StartTime=2026-11-22T11:53:39 EndTime=Unknown \
                    BatchHost=clx7 Comment=JobState=FAILED Restarts=9 OOMKillStep=0 \n\nno job here\n";
        let tasks = show_job(line);
        assert_eq!(tasks.len(), 1);
        assert_eq!((&tasks[0].state, tasks[0].restarts, tasks[0].ends.as_deref()), (&State::Running, 2, None));
    }

    #[test]
    fn index_lists_are_read_with_steps_and_bounds() {
        assert_eq!(indexes("14,16%7"), [14, 16]);
        assert_eq!(indexes("0-6:3,9"), [0, 3, 6, 9]);
        assert_eq!(indexes("1,x,3-2,0-4294967295,5-"), [1]);
    }

    #[test]
    fn accounting_is_read_with_its_ranges() {
        let text = "18_0|COMPLETED|0:0|clx1|2026-11-22T11:53:39|2026-11-22T11:53:47\n\
                    18_1|CANCELLED by 1000|0:15|clx1|2026-11-22T11:53:39|2026-11-22T11:53:40\n\
                    18_[2-3%4]|PENDING|0:0|None assigned|Unknown|Unknown\n\
                    19|OUT_OF_MEMORY|0:125|clx2|2026-11-22T11:53:39|2026-11-22T11:53:47\n\
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
