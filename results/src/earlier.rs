//! Earlier runs in a results folder tell how runs of a host differ.

use std::path::Path;

use crate::compare::{doubt_of, facts, group_key};
use crate::document::{Between, Record, Status};
use crate::metric::Metric;
use crate::{paired, read};

/// Most files that are read, of whatever setting: older ones tell little of how the host is now, and reading takes time.
const MOST: usize = 24;

/// Learns how runs differ from the newest in a folder that measured the same as `run`, on its host with its build; `None` if there
/// are fewer than two. Files that are no results are passed over.
pub fn learn(folder: &Path, run: &Record, metric: &Metric) -> Option<Between> {
    let begin = format!("{}-", run.experiment);
    let is_one = |name: &str| name.starts_with(&begin) && Path::new(name).extension().is_some_and(|end| end == "json");
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_one(name)).collect();
    // They begin with the time.
    names.sort_unstable_by(|a, b| b.cmp(a));
    let own =
        |record: &Record| (group_key(record), facts(record).collect::<Vec<_>>(), record.tool.git_revision.clone());
    let wanted = own(run);
    let is_like = |record: &Record| {
        let whole = record.status == Status::Complete && record.arms.iter().all(|arm| doubt_of(record, arm).is_none());
        whole && record.started_unix < run.started_unix && own(record) == wanted
    };
    let records = names.iter().take(MOST).filter_map(|name| read::found(&folder.join(name)).ok()).filter(is_like);
    let records: Vec<Record> = records.collect();
    (records.len() > 1).then(|| paired::learn(&records.iter().collect::<Vec<_>>(), metric.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::metric::NMI_HANDLER;

    #[test]
    fn runs_of_the_same_host_and_setting_are_learnt_from() {
        let folder = tempfile::tempdir().unwrap();
        let write = |at: u64, change: &dyn Fn(&mut serde_json::Value)| {
            let ns = |arm: &str, round: u64| 70_000 + round % 3 * 10 + if arm == "reuse" { at % 2 * 2_000 } else { 0 };
            let mut value = fixture::value(20, at, ns);
            change(&mut value);
            std::fs::write(folder.path().join(format!("nmi-latency-{at}.json")), value.to_string()).unwrap();
            fixture::changed(value)
        };
        let last = write(40, &|_| {});
        let of = || learn(folder.path(), &last, &NMI_HANDLER);
        write(11, &|_| {});
        assert_eq!(of(), None, "one run tells nothing, and a run is no earlier one of itself");
        for at in 12..20 {
            write(at, &|_| {});
        }
        let found = of().unwrap();
        // Every other run's reuse is 2.9 % slower, beyond what the default has.
        assert!(found.runs == 9 && found.floor.deviation > 0.005 && found.floor.freedom > 5.0, "{found:?}");
        write(20, &|value| value["host"]["kernel"] = "7.0".into());
        write(21, &|value| value["tool"]["git_revision"] = "another".into());
        write(22, &|value| value["parameters"]["workload"] = "sampling10/ftest".into());
        write(23, &|value| value["status"] = "interrupted".into());
        std::fs::write(folder.path().join("nmi-latency-24.json"), "{").unwrap();
        assert_eq!(of(), Some(found));
    }
}
