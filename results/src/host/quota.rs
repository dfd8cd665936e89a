//! The CPU quota of the control groups that this process is in, and how often it stopped them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fs::HostFs;

/// A limit on CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// CPU time in each second, s, by the tightest limit.
    pub cpus: f64,
    /// Time for which limits had stopped CPUs of their groups, in all groups with a limit, before the measurement, µs.
    pub stopped_us_before: u64,
    /// The same after the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_us_after: Option<u64>,
}

impl Quota {
    /// Reads control groups: the limit of an ancestor holds, too. `None` without a limit.
    pub(super) fn read(fs: &HostFs) -> Option<Self> {
        let limits: Vec<_> = groups(fs).iter().filter_map(|group| limit(fs, group)).collect();
        let cpus = limits.iter().map(|(cpus, _)| *cpus).min_by(f64::total_cmp)?;
        let stopped_us_before = limits.iter().fold(0, |sum, (_, stopped_us)| stopped_us.saturating_add(sum));
        Some(Self { cpus, stopped_us_before, stopped_us_after: None })
    }

    /// Returns the time for which CPUs were stopped during the measurement, µs.
    pub fn stopped_us(&self) -> Option<u64> {
        self.stopped_us_after?.checked_sub(self.stopped_us_before)
    }
}

/// Lists the folders of the groups that this process is in, from its own to the topmost that it sees. Groups of version 1 are not
/// looked at.
fn groups(fs: &HostFs) -> Vec<String> {
    let own = fs.text("proc/self/cgroup").unwrap_or_default();
    // Beside version 1 it is mounted one level deeper.
    let is_hybrid = !fs.path("sys/fs/cgroup/cgroup.controllers").exists();
    let mount = if is_hybrid { "sys/fs/cgroup/unified" } else { "sys/fs/cgroup" };
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("..");
    // A group outside of the namespace's root begins with "..": nothing of it is mounted here.
    let names: Vec<&str> = path.split('/').take_while(|name| *name != "..").filter(|name| !name.is_empty()).collect();
    (0..=names.len()).rev().map(|depth| [&[mount], &names[..depth]].concat().join("/")).collect()
}

/// Reads the limit of one group in CPUs, and for how long it stopped them.
fn limit(fs: &HostFs, group: &str) -> Option<(f64, u64)> {
    let max = fs.text(&format!("{group}/cpu.max"))?;
    let (quota, period) = max.split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    let stat = fs.text(&format!("{group}/cpu.stat")).unwrap_or_default();
    let stopped_us = stat.lines().find_map(|line| line.strip_prefix("throttled_usec ")?.parse().ok()).unwrap_or(0);
    (quota > 0.0 && period > 0.0).then(|| (quota / period, stopped_us))
}

#[cfg(test)]
mod tests {
    use super::super::HostFacts;
    use super::*;
    use crate::hosts::tree;

    #[test]
    fn the_tightest_limit_counts_and_all_throttling() {
        let stat = "usage_usec 1\nnr_periods 4\nnr_throttled 3\nthrottled_usec 200\nnr_bursts 0\n";
        let (_dir, fs) = tree(&[
            ("proc/self/cgroup", "0::/job/step\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 7\n"),
            ("sys/fs/cgroup/job/cpu.max", "200000 100000\n"),
            ("sys/fs/cgroup/job/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_usec 5\n"),
            ("sys/fs/cgroup/job/step/cpu.max", "10000 100000\n"),
            ("sys/fs/cgroup/job/step/cpu.stat", stat),
        ]);
        let mut facts = HostFacts::begin(&fs);
        assert_eq!(facts.quota, Some(Quota { cpus: 0.1, stopped_us_before: 205, stopped_us_after: None }));
        let later = "nr_periods 105\nnr_throttled 101\nthrottled_usec 9200\n";
        std::fs::write(fs.path("sys/fs/cgroup/job/step/cpu.stat"), later).unwrap();
        facts.finish(&fs);
        assert_eq!(facts.quota.unwrap().stopped_us(), Some(9000));
    }

    #[test]
    fn no_limit_and_no_groups_are_no_quota() {
        let hybrid =
            [("proc/self/cgroup", "1:cpu:/\n0::/job\n"), ("sys/fs/cgroup/unified/job/cpu.max", "100000 100000\n")];
        let whole = Quota { cpus: 1.0, stopped_us_before: 0, stopped_us_after: None };
        assert_eq!(Quota::read(&tree(&hybrid).1), Some(whole));
        let max = ("sys/fs/cgroup/cpu.max", "max 100000\n");
        for files in [vec![], vec![("proc/self/cgroup", "0::/../../x\n"), max]] {
            assert_eq!(Quota::read(&tree(&files).1), None);
        }
    }
}
