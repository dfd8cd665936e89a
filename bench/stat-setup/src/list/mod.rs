//! Event lists in perf's syntax: parsed ([`parse`]), generated, looked up on the host ([`resolve`]).

mod ask;
pub mod names;
pub mod parse;
pub mod resolve;
pub mod sysfs;

use perf_event_open_sys::bindings::perf_event_attr;
use sysfs::Sysfs;

// Events and groups of a list.

/// Kind of an event, by the behaviour of its set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Counted by the kernel; never competes for a counter.
    Software,
    /// A trace event; never competes, but its last close waits for RCU grace periods.
    Tracepoint,
    /// An event of the core PMU.
    Hardware,
    /// An event of another PMU in sysfs.
    OtherPmu,
}

impl Class {
    /// Returns whether any number of such events can count at the same time: grouping then does not change counts.
    pub const fn never_competes(self) -> bool {
        matches!(self, Self::Software | Self::Tracepoint)
    }

    /// Returns its name in a document, which the word "events" follows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Tracepoint => "tracepoint",
            Self::Hardware => "hardware",
            Self::OtherPmu => "other PMUs'",
        }
    }
}

/// Arguments of an open.
#[derive(Clone, Copy, Debug)]
pub struct Openable {
    /// The attribute; the disabled bit and the read format are set at the open.
    pub attr: perf_event_attr,
    /// Class of the event.
    pub class: Class,
}

/// One event of a list.
#[derive(Clone, Debug)]
pub struct Event {
    /// Name in the output: as written, or that of its term `name`.
    pub name: String,
    /// The text as written, with modifiers.
    pub written: String,
    /// Arguments of the open, or the reason why the event cannot be opened.
    pub open: Result<Openable, String>,
    /// CPUs of its PMU (`cpumask` in sysfs); `None` = any.
    pub cpus: Option<Vec<u32>>,
    /// Unit; empty for plain counts.
    pub unit: String,
}

impl Event {
    /// Returns whether the event counts on `cpu`.
    pub fn counts_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Class, if the event can be opened.
    pub fn class(&self) -> Option<Class> {
        self.open.as_ref().ok().map(|open| open.class)
    }
}

/// A group: events that are scheduled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Indices into [`EventList::events`], the leader first; never empty.
    pub members: Vec<usize>,
    /// True if the group may be broken up (`:W`).
    pub weak: bool,
}

/// Events in groups; an event outside of braces is a group of one.
#[derive(Clone, Debug, Default)]
pub struct EventList {
    /// Events in the order written.
    pub events: Vec<Event>,
    /// Groups; each event is in exactly one.
    pub groups: Vec<Group>,
    /// Events whose group could not be kept, and why names could not be asked for.
    pub notes: Vec<String>,
}

impl EventList {
    /// Returns whether a group has two events or more.
    pub fn has_groups(&self) -> bool {
        self.groups.iter().any(|group| group.members.len() > 1)
    }

    /// Returns the most frequent class; `None` if no event can be opened.
    pub fn main_class(&self) -> Option<Class> {
        let count = |class| self.events.iter().filter(|event| event.class() == Some(class)).count();
        [Class::Software, Class::Tracepoint, Class::Hardware, Class::OtherPmu]
            .into_iter()
            .rev()
            .max_by_key(|&class| count(class))
            .filter(|&class| count(class) > 0)
    }

    /// Returns the list in perf's syntax, in groups of at most `size`; 1 = ungrouped, `None` = groups as they are.
    pub fn to_perf(&self, size: Option<usize>) -> String {
        let part = |members: &[usize], weak: bool| {
            let names: Vec<&str> = members.iter().map(|&event| self.events[event].written.as_str()).collect();
            match (members.len(), weak) {
                (1, _) if size.is_none_or(|size| size == 1) => names.concat(),
                (_, weak) => format!("{{{}}}{}", names.join(","), if weak { ":W" } else { "" }),
            }
        };
        let all: Vec<usize> = (0..self.events.len()).collect();
        let parts: Vec<String> = match size {
            Some(size) => all.chunks(size).map(|chunk| part(chunk, false)).collect(),
            None => self.groups.iter().map(|group| part(&group.members, group.weak)).collect(),
        };
        parts.join(",")
    }
}

// Generated lists of a given size, for `--events 700` and `--events tracepoints:700`.

/// Software events that a generated list cycles through.
pub const MIX: [&str; 7] =
    ["page-faults", "context-switches", "cpu-migrations", "minor-faults", "cpu-clock", "task-clock", "dummy"];

/// Maximum number of distinct trace events in a generated list; the published measurement has as many.
pub const MOST_TRACEPOINTS: usize = 90;

/// Groups of trace events that rarely fire, so that the set-up is timed and not the events.
const QUIET: &str = "ext4 xfs btrfs jbd2 writeback block cgroup workqueue power thermal vmscan skb napi signal";

/// Creates a list of `n` software events that cycles through [`MIX`].
pub fn software_list(n: usize) -> String {
    (0..n).map(|i| MIX[i % MIX.len()]).collect::<Vec<_>>().join(",")
}

/// Creates a list of `n` trace events, at most [`MOST_TRACEPOINTS`] of them distinct.
///
/// # Errors
/// tracefs shows no trace events.
pub fn tracepoint_list(n: usize, sysfs: &Sysfs) -> Result<String, String> {
    let mut names: Vec<String> = Vec::new();
    for group in QUIET.split(' ') {
        names.extend(sysfs.tracepoints(group).into_iter().map(|name| format!("{group}:{name}")));
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
    use super::parse::parse;
    use super::sysfs::tests::tree;
    use super::*;

    #[test]
    fn lists_have_the_size_asked_for() {
        assert_eq!(parse(&software_list(700)).unwrap().len(), 700);
        let files: Vec<String> = (0..120).map(|i| format!("sys/kernel/tracing/events/ext4/e{i}/id")).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "7\n")).collect();
        let (_dir, sysfs) = tree(&files);
        let list = tracepoint_list(700, &sysfs).unwrap();
        let mut names: Vec<&str> = list.split(',').collect();
        assert_eq!(names.len(), 700);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MOST_TRACEPOINTS);
        let (_dir, none) = tree(&[]);
        assert!(tracepoint_list(7, &none).unwrap_err().contains("mount"));
    }
}
