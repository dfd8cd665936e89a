//! What keeps figures from being judged as if they were whole.

use serde_json::Value;

use crate::document::{Any, Arm, DOUBTS, Record, Status};

/// Why an arm's figures are not whole on one of the sides; `None` if they are.
pub(super) fn of_arm(base: &[&Record], new: &[&Record], name: &str) -> Option<String> {
    [("BASE", base), ("NEW", new)].into_iter().find_map(|(which, records)| {
        let why = records.iter().find_map(|record| of_record(record, record.arm(name)?))?;
        Some(format!("{which}: {why}"))
    })
}

/// Why one arm of a document is not whole.
pub(crate) fn of_record(record: &Record, arm: &Arm<Any>) -> Option<String> {
    match record.status {
        Status::Running => return Some("the run was killed".to_owned()),
        Status::Interrupted => return Some("the run was interrupted".to_owned()),
        Status::Incomplete if record.arms.iter().all(|arm| arm.incomplete.is_empty()) => {
            return Some("the run is incomplete".to_owned());
        }
        Status::Incomplete | Status::Complete => {}
    }
    if let Some(why) = arm.incomplete.first() {
        return Some(format!("incomplete: {why}"));
    }
    let count = |key: &str| arm.own.get(key).and_then(Value::as_i64).unwrap_or(0);
    DOUBTS.iter().find(|doubt| count(doubt.key) != 0).map(|doubt| format!("{} {}", count(doubt.key), doubt.about))
}

/// Whether two documents are the same run: one file, or copies of one. Simulated runs of one seed are the same by design.
pub(super) fn same_run(a: &Record, b: &Record) -> bool {
    let path = |record: &Record| std::fs::canonicalize(&record.path).ok();
    if path(a).is_some_and(|path_a| path(b) == Some(path_a)) {
        return true;
    }
    let simulated = a.parameter("backend").is_some_and(|name| name.starts_with("sim:"));
    let start = (a.started_unix, a.wall_ns) == (b.started_unix, b.wall_ns);
    !simulated && start && a.arms == b.arms && a.host == b.host && a.tool == b.tool
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{changed, value};
    use serde_json::json;

    #[test]
    fn lost_throttled_and_interrupted_figures_are_not_whole() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut value = value(3, 5, |_, _| 1000);
            change(&mut value);
            let record = changed(value);
            let arm = record.arm("recreate").unwrap().clone();
            of_record(&record, &arm)
        };
        assert_eq!(of(&|_| {}), None);
        assert_eq!(
            of(&|d| d["arms"][0]["lost"] = json!(-2)),
            Some("-2 NMIs delivered and not taken, or the reverse".to_owned())
        );
        assert_eq!(of(&|d| d["arms"][1]["lost"] = json!(2)), None);
        assert!(of(&|d| d["arms"][0]["throttled"] = json!(7)).is_some_and(|why| why.contains("throttled")));
        assert!(of(&|d| d["status"] = json!("interrupted")).is_some_and(|why| why.contains("interrupted")));
        assert!(of(&|d| d["arms"][0]["incomplete"] = json!(["round 2"])).is_some_and(|why| why.contains("round 2")));
    }

    #[test]
    fn a_document_and_its_copy_are_one_run() {
        let of = |at| changed(value(3, at, |_, round| 1000 + round));
        assert!(same_run(&of(5), &of(5)) && !same_run(&of(5), &of(6)));
    }
}
