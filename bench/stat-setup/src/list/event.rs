//! Events and groups of a list.

use perf_event_open_sys::bindings::perf_event_attr;

/// Kind of an event, by the behaviour of its set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    #[must_use]
    pub const fn never_competes(self) -> bool {
        matches!(self, Self::Software | Self::Tracepoint)
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
    /// Name as written, with modifiers.
    pub name: String,
    /// Arguments of the open, or the reason why the event cannot be opened.
    pub open: Result<Openable, String>,
    /// CPUs of its PMU (`cpumask` in sysfs); `None` = any.
    pub cpus: Option<Vec<u32>>,
    /// Factor from a count to `unit`.
    pub scale: f64,
    /// Unit; empty for plain counts.
    pub unit: String,
}

impl Event {
    /// Returns whether the event counts on `cpu`.
    #[must_use]
    pub fn counts_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Class, if the event can be opened.
    #[must_use]
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
}

impl EventList {
    /// Returns whether a group has two events or more.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.groups.iter().any(|group| group.members.len() > 1)
    }

    /// Returns the most frequent class; `None` if no event can be opened.
    #[must_use]
    pub fn main_class(&self) -> Option<Class> {
        let count = |class| self.events.iter().filter(|event| event.class() == Some(class)).count();
        [Class::Software, Class::Tracepoint, Class::Hardware, Class::OtherPmu]
            .into_iter()
            .rev()
            .max_by_key(|&class| count(class))
            .filter(|&class| count(class) > 0)
    }

    /// Returns the list in perf's syntax, in groups of at most `size`; 1 = ungrouped, `None` = groups as they are.
    #[must_use]
    pub fn to_perf(&self, size: Option<usize>) -> String {
        let name = |&event: &usize| self.events[event].name.clone();
        let all: Vec<usize> = (0..self.events.len()).collect();
        let mut parts: Vec<String> = Vec::new();
        match size {
            Some(size) if size > 1 => {
                for chunk in all.chunks(size) {
                    parts.push(format!("{{{}}}", chunk.iter().map(name).collect::<Vec<_>>().join(",")));
                }
            }
            Some(_) => parts.extend(all.iter().map(name)),
            None => {
                for group in &self.groups {
                    let names = group.members.iter().map(name).collect::<Vec<_>>().join(",");
                    parts.push(match group.members.len() {
                        1 => names,
                        _ if group.weak => format!("{{{names}}}:W"),
                        _ => format!("{{{names}}}"),
                    });
                }
            }
        }
        parts.join(",")
    }
}
