//! Event lists as perf writes them: read ([`parse`]), made ([`generate`]), and looked up on the host ([`resolve`]).

pub mod generate;
pub mod names;
pub mod parse;
pub mod resolve;
pub mod sysfs;

use perf_event_open_sys::bindings::perf_event_attr;

/// How an event's set-up behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Counted by the kernel itself: never competes for a counter.
    Software,
    /// A trace event: never competes; its last close waits for grace periods.
    Tracepoint,
    /// A counter of the CPU's own PMU.
    Hardware,
    /// Any other PMU that sysfs lists.
    OtherPmu,
}

impl Class {
    /// Whether any number of such events counts at the same time, so that grouping changes no count.
    #[must_use]
    pub const fn never_competes(self) -> bool {
        matches!(self, Self::Software | Self::Tracepoint)
    }
}

/// An event that may be opened.
#[derive(Clone, Copy, Debug)]
pub struct Openable {
    /// What the kernel is asked for; the disabled bit and the read format are set at the open.
    pub attr: perf_event_attr,
    /// How it behaves.
    pub class: Class,
}

/// One event of a list.
#[derive(Clone, Debug)]
pub struct Event {
    /// As written, modifiers included.
    pub name: String,
    /// How to open it, or why it cannot be.
    pub open: Result<Openable, String>,
    /// The only CPUs it counts on, as its PMU says; `None`: any.
    pub cpus: Option<Vec<u32>>,
    /// What a count is multiplied with to be in `unit`.
    pub scale: f64,
    /// The unit; empty for plain counts.
    pub unit: String,
}

impl Event {
    /// Whether it counts on `cpu`.
    #[must_use]
    pub fn counts_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Its class, if it can be opened.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        self.open.as_ref().ok().map(|open| open.class)
    }
}

/// A group: its events go on and off together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Indices into [`EventList::events`], the leader first; never empty.
    pub members: Vec<usize>,
    /// Whether it may be broken up (`:W`).
    pub weak: bool,
}

/// A list of events in groups; an event outside of braces is a group of one.
#[derive(Clone, Debug, Default)]
pub struct EventList {
    /// The events, in the order written.
    pub events: Vec<Event>,
    /// Every event is in exactly one group.
    pub groups: Vec<Group>,
}

impl EventList {
    /// Whether some group has two events or more.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.groups.iter().any(|group| group.members.len() > 1)
    }

    /// The class of most of its events; `None` if none can be opened.
    #[must_use]
    pub fn main_class(&self) -> Option<Class> {
        let count = |class| self.events.iter().filter(|event| event.class() == Some(class)).count();
        [Class::Software, Class::Tracepoint, Class::Hardware, Class::OtherPmu]
            .into_iter()
            .rev()
            .max_by_key(|&class| count(class))
            .filter(|&class| count(class) > 0)
    }

    /// The list as perf reads it, in groups of at most `size`; 1 = ungrouped, `None` = as it is.
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
