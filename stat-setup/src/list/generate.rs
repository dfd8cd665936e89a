//! Lists made to a size, for `--events 700` and `--events tracepoints:700`.

use super::sysfs::Sysfs;

/// The mix of software events that a list of N repeats: clocks, switches, faults, and one that counts nothing.
pub const MIX: [&str; 7] =
    ["page-faults", "context-switches", "cpu-migrations", "minor-faults", "cpu-clock", "task-clock", "dummy"];

/// Distinct trace events a generated list holds at most; as many as the published regime needs.
pub const MOST_TRACEPOINTS: usize = 90;

/// Groups of trace events that seldom fire, which are taken first: what is timed is the set-up, not the events.
const QUIET: [&str; 14] = [
    "ext4",
    "xfs",
    "btrfs",
    "jbd2",
    "writeback",
    "block",
    "cgroup",
    "workqueue",
    "power",
    "thermal",
    "vmscan",
    "skb",
    "napi",
    "signal",
];

/// `n` events of [`MIX`] in turn, as a list.
#[must_use]
pub fn software(n: usize) -> String {
    (0..n).map(|i| MIX[i % MIX.len()]).collect::<Vec<_>>().join(",")
}

/// `n` trace events over as many distinct ones as there are, [`MOST_TRACEPOINTS`] at most, as a list.
///
/// # Errors
/// That this host shows none.
pub fn tracepoints(n: usize, sysfs: &Sysfs) -> Result<String, String> {
    let mut names: Vec<String> = Vec::new();
    for group in QUIET {
        for (group, found) in sysfs.tracepoints(group, "*") {
            names.extend(found.into_iter().map(|name| format!("{group}:{name}")));
        }
        names.truncate(MOST_TRACEPOINTS.min(n));
    }
    if names.is_empty() {
        return Err("this host shows no trace events; mount tracefs (mount -t tracefs tracefs /sys/kernel/tracing), \
                    and run as root"
            .to_owned());
    }
    Ok((0..n).map(|i| names[i % names.len()].as_str()).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::sysfs::tests::tree;
    use super::*;

    #[test]
    fn lists_have_the_size_asked_for() {
        assert_eq!(parse(&software(700)).unwrap().len(), 700);
        let files: Vec<String> = (0..120).map(|i| format!("sys/kernel/tracing/events/ext4/e{i}/id")).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "7\n")).collect();
        let (_dir, sysfs) = tree(&files);
        let list = tracepoints(700, &sysfs).unwrap();
        let mut names: Vec<&str> = list.split(',').collect();
        assert_eq!(names.len(), 700);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MOST_TRACEPOINTS);
        let (_dir, none) = tree(&[]);
        assert!(tracepoints(7, &none).unwrap_err().contains("mount"));
    }
}
