//! The CPU quota of the control groups that this process is in, and how often it stopped them.

use serde::{Deserialize, Serialize};

use super::fs::HostFs;

/// A limit on CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Quota {
    /// CPU time in each second, s, by the tightest limit.
    pub cpus: f64,
    /// Throttling of all groups with a limit, before the measurement.
    pub before: Throttling,
    /// Throttling after the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Throttling>,
}

/// Throttling by limits since they were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Throttling {
    /// Periods in which a group ran.
    pub periods: u64,
    /// Those in which it was stopped.
    pub throttled: u64,
    /// Time that its CPUs were stopped, µs.
    pub throttled_us: u64,
}

impl Quota {
    /// Reads control groups of either version: the limit of an ancestor holds, too. `None` without a limit.
    pub(super) fn read(fs: &HostFs) -> Option<Self> {
        let limits: Vec<_> = groups(fs).iter().filter_map(|group| limit(fs, group)).collect();
        let cpus = limits.iter().map(|(cpus, _)| *cpus).min_by(f64::total_cmp)?;
        let mut before = Throttling::default();
        for (_, level) in limits {
            before.periods = before.periods.saturating_add(level.periods);
            before.throttled = before.throttled.saturating_add(level.throttled);
            before.throttled_us = before.throttled_us.saturating_add(level.throttled_us);
        }
        Some(Self { cpus, before, after: None })
    }

    /// Returns the throttling during the measurement.
    pub fn meanwhile(&self) -> Option<Throttling> {
        let after = self.after?;
        Some(Throttling {
            periods: after.periods.checked_sub(self.before.periods)?,
            throttled: after.throttled.checked_sub(self.before.throttled)?,
            throttled_us: after.throttled_us.checked_sub(self.before.throttled_us)?,
        })
    }
}

/// Lists the folders of the groups that limit this process's CPU time, from its own to the topmost that it sees.
fn groups(fs: &HostFs) -> Vec<String> {
    let (Some(own), Some(mounts)) = (fs.text("proc/self/cgroup"), fs.text("proc/self/mounts")) else {
        return Vec::new();
    };
    let has_cpu = |list: &str| list.split(',').any(|controller| controller == "cpu");
    // A group of version 1 names its controllers; that of version 2 has number 0 and names none.
    let of_version = |one: bool| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            (if one { has_cpu(controllers) } else { number == "0" }).then_some(path)
        })
    };
    let mounted = |one: bool| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, place, kind, options, ..] = words[..] else { return None };
            (if one { kind == "cgroup" && has_cpu(options) } else { kind == "cgroup2" }).then_some(place)
        })
    };
    let mut groups = Vec::new();
    for one in [true, false] {
        let (Some(path), Some(mount)) = (of_version(one), mounted(one)) else { continue };
        // A group outside of the namespace's root begins with "..": nothing of it is mounted here.
        let names: Vec<&str> =
            path.split('/').take_while(|name| *name != "..").filter(|name| !name.is_empty()).collect();
        groups.extend((0..=names.len()).rev().map(|depth| [&[mount], &names[..depth]].concat().join("/")));
    }
    groups
}

/// Reads the limit of one group in CPUs, and what it did.
fn limit(fs: &HostFs, group: &str) -> Option<(f64, Throttling)> {
    let of = |name: &str| fs.text(&format!("{group}/{name}"));
    let (quota, period) = match of("cpu.max") {
        Some(max) => {
            let (quota, period) = max.split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        }
        None => (of("cpu.cfs_quota_us")?.parse().ok()?, of("cpu.cfs_period_us")?.parse().ok()?),
    };
    let stat = of("cpu.stat").unwrap_or_default();
    let value = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok()).unwrap_or(0)
    };
    let throttled_us = value("throttled_usec").max(value("throttled_time") / 1000);
    let throttling = Throttling { periods: value("nr_periods"), throttled: value("nr_throttled"), throttled_us };
    (quota > 0.0 && period > 0.0).then(|| (quota / period, throttling))
}

#[cfg(test)]
mod tests {
    use super::super::HostFacts;
    use super::super::fixture::tree;
    use super::*;

    #[test]
    fn the_tightest_limit_counts_and_all_throttling_of_version_2() {
        let stat = "usage_usec 1\nnr_periods 4\nnr_throttled 3\nthrottled_usec 200\nnr_bursts 0\n";
        let (_dir, fs) = tree(&[
            ("proc/self/cgroup", "0::/job/step\n"),
            ("proc/self/mounts", "none /sys sysfs rw 0 0\nnone /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 7\n"),
            ("sys/fs/cgroup/job/cpu.max", "200000 100000\n"),
            ("sys/fs/cgroup/job/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_usec 5\n"),
            ("sys/fs/cgroup/job/step/cpu.max", "10000 100000\n"),
            ("sys/fs/cgroup/job/step/cpu.stat", stat),
        ]);
        let mut facts = HostFacts::begin(&fs);
        let before = Throttling { periods: 5, throttled: 4, throttled_us: 205 };
        assert_eq!(facts.quota, Some(Quota { cpus: 0.1, before, after: None }));
        let later = "nr_periods 105\nnr_throttled 101\nthrottled_usec 9200\n";
        std::fs::write(fs.path("sys/fs/cgroup/job/step/cpu.stat"), later).unwrap();
        facts.finish(&fs);
        let meanwhile = Throttling { periods: 101, throttled: 98, throttled_us: 9000 };
        assert_eq!(facts.quota.unwrap().meanwhile(), Some(meanwhile));
    }

    #[test]
    fn version_1_names_its_controllers_and_counts_in_ns() {
        let files = |quota| {
            [
                ("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/jobs\n0::/\n"),
                (
                    "proc/self/mounts",
                    "c /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\nc /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n",
                ),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", quota),
                ("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/jobs/cpu.stat", "nr_periods 9\nnr_throttled 8\nthrottled_time 7000\n"),
            ]
        };
        let (_dir, fs) = tree(&files("150000\n"));
        let before = Throttling { periods: 9, throttled: 8, throttled_us: 7 };
        assert_eq!(Quota::read(&fs), Some(Quota { cpus: 1.5, before, after: None }));
        let (_dir, fs) = tree(&files("-1\n"));
        assert_eq!(Quota::read(&fs), None);
    }

    #[test]
    fn no_limit_and_no_groups_are_no_quota() {
        let mounts = ("proc/self/mounts", "none /sys/fs/cgroup cgroup2 rw 0 0\n");
        let max = ("sys/fs/cgroup/cpu.max", "max 100000\n");
        for files in [vec![], vec![mounts], vec![mounts, ("proc/self/cgroup", "0::/../../x\n"), max]] {
            assert_eq!(Quota::read(&tree(&files).1), None);
        }
    }
}
