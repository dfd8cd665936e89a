//! The events that are counted: the kernel's own, tracepoints, and hardware where there is a PMU.

use perf_event_open_sys::bindings as perf;
use perf_event_open_sys::bindings::perf_event_attr;
use serde::Serialize;

/// Class of an event's evidence about a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Something that happens to a program and costs it time: one may be the cause.
    Cause,
    /// A part or another view of such an event.
    Detail,
    /// Time on a CPU.
    Clock,
    /// The work of the CPU itself.
    Hardware,
}

/// Source of an event, as perf opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Type and configuration.
    Fixed(u32, u64),
    /// A tracepoint's group and name.
    Tracepoint(&'static str, &'static str),
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// perf's name for it.
    pub name: &'static str,
    /// Class of its evidence.
    pub class: Class,
    /// Source that opens it.
    pub source: Source,
    /// A user without rights over the kernel counts it, too; other events count nothing for him although they open.
    pub in_user_mode: bool,
}

const fn software(name: &'static str, config: u32, class: Class, in_user_mode: bool) -> Event {
    Event { name, class, source: Source::Fixed(perf::PERF_TYPE_SOFTWARE, config as u64), in_user_mode }
}

const fn hardware(name: &'static str, config: u32) -> Event {
    let source = Source::Fixed(perf::PERF_TYPE_HARDWARE, config as u64);
    Event { name, class: Class::Hardware, source, in_user_mode: true }
}

const fn tracepoint(name: &'static str, group: &'static str, event: &'static str) -> Event {
    Event { name, class: Class::Detail, source: Source::Tracepoint(group, event), in_user_mode: false }
}

/// Every event. perf's software events `dummy` and `bpf-output` are not here: by themselves they count nothing.
pub const ALL: [Event; 22] = [
    software("context-switches", perf::PERF_COUNT_SW_CONTEXT_SWITCHES, Class::Cause, false),
    software("cpu-migrations", perf::PERF_COUNT_SW_CPU_MIGRATIONS, Class::Cause, false),
    software("page-faults", perf::PERF_COUNT_SW_PAGE_FAULTS, Class::Cause, true),
    software("alignment-faults", perf::PERF_COUNT_SW_ALIGNMENT_FAULTS, Class::Cause, true),
    software("emulation-faults", perf::PERF_COUNT_SW_EMULATION_FAULTS, Class::Cause, true),
    software("minor-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MIN, Class::Detail, true),
    software("major-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ, Class::Detail, true),
    software("cgroup-switches", perf::PERF_COUNT_SW_CGROUP_SWITCHES, Class::Detail, false),
    tracepoint("sched:sched_switch", "sched", "sched_switch"),
    tracepoint("sched:sched_wakeup", "sched", "sched_wakeup"),
    tracepoint("sched:sched_migrate_task", "sched", "sched_migrate_task"),
    tracepoint("exceptions:page_fault_user", "exceptions", "page_fault_user"),
    tracepoint("exceptions:page_fault_kernel", "exceptions", "page_fault_kernel"),
    tracepoint("kvm:kvm_exit", "kvm", "kvm_exit"),
    software("task-clock", perf::PERF_COUNT_SW_TASK_CLOCK, Class::Clock, true),
    software("cpu-clock", perf::PERF_COUNT_SW_CPU_CLOCK, Class::Clock, true),
    hardware("cycles", perf::PERF_COUNT_HW_CPU_CYCLES),
    hardware("instructions", perf::PERF_COUNT_HW_INSTRUCTIONS),
    hardware("branches", perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    hardware("branch-misses", perf::PERF_COUNT_HW_BRANCH_MISSES),
    hardware("cache-references", perf::PERF_COUNT_HW_CACHE_REFERENCES),
    hardware("cache-misses", perf::PERF_COUNT_HW_CACHE_MISSES),
];

impl Event {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|event| event.name == name)
    }

    /// Returns whether its counts are nanoseconds.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.class == Class::Clock
    }

    /// Its attribute, inherited by threads and processes that begin later. `user_only`: without the kernel's share.
    ///
    /// # Errors
    /// Why there is none here.
    pub(crate) fn attr(&self, user_only: bool) -> Result<perf_event_attr, String> {
        let (kind, config) = match self.source {
            Source::Fixed(kind, config) => (kind, config),
            Source::Tracepoint(group, name) => (perf::PERF_TYPE_TRACEPOINT, super::tracefs::id(group, name)?),
        };
        let mut attr = perf_event_attr { size: size_of::<perf_event_attr>() as u32, type_: kind, ..Default::default() };
        attr.config = config;
        attr.set_inherit(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_kernel(u64::from(user_only));
        Ok(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_perfs_and_unique() {
        let mut names: Vec<_> = ALL.iter().map(|event| event.name).collect();
        assert_eq!(Event::named("context-switches").unwrap().class, Class::Cause);
        assert!(Event::named("task-clock").unwrap().is_time() && Event::named("cs").is_none());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
