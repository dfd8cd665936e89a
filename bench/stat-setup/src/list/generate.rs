//! Generated lists of a given size, for `--events 700` and `--events tracepoints:700`.

use super::sysfs::Sysfs;

/// Software events that a generated list cycles through.
pub const MIX: [&str; 7] =
    ["page-faults", "context-switches", "cpu-migrations", "minor-faults", "cpu-clock", "task-clock", "dummy"];

/// Maximum number of distinct trace events in a generated list; the published measurement has as many.
pub const MOST_TRACEPOINTS: usize = 90;

/// Groups of trace events that rarely fire, so that the set-up is timed and not the events.
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

/// Creates a list of `n` software events that cycles through [`MIX`].
#[must_use]
pub fn software(n: usize) -> String {
    (0..n).map(|i| MIX[i % MIX.len()]).collect::<Vec<_>>().join(",")
}

/// Creates a list of `n` trace events, at most [`MOST_TRACEPOINTS`] of them distinct.
///
/// # Errors
/// tracefs shows no trace events.
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
