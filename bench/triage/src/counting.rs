//! Counts of events over a process and everything it starts.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;

use perf_event_open_sys::bindings as perf;
use perf_event_open_sys::bindings::{PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, perf_event_attr};
use rustix::io::Errno;

use crate::sys;

/// An event, and whether it can be counted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The event.
    pub event: Event,
    /// `Ok(true)`: in user mode only; the reason if it cannot be counted.
    pub user_only: Result<bool, String>,
}

/// Tries every event on this process.
pub fn offers() -> Vec<Offer> {
    ALL.iter().map(|&event| Offer { event, user_only: probe(&event) }).collect()
}

fn probe(event: &Event) -> Result<bool, String> {
    let open = |user_only| {
        let mut attr = event.attr(user_only)?;
        attr.set_disabled(1);
        Ok::<_, String>(sys::open(&attr, 0, -1))
    };
    match open(false)? {
        Ok(_) => Ok(false),
        Err(error) if denied(&error) && event.in_user_mode => match open(true)? {
            Ok(_) => Ok(true),
            Err(error) => Err(reason(event, &error)),
        },
        Err(error) => Err(reason(event, &error)),
    }
}

fn denied(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}

fn reason(event: &Event, error: &io::Error) -> String {
    match (Errno::from_io_error(error), event.class) {
        (Some(Errno::ACCESS | Errno::PERM), _) => {
            "it happens in the kernel: needs kernel.perf_event_paranoid 1 or less, or CAP_PERFMON".to_owned()
        }
        (Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP), Class::Hardware) => "this host has no PMU".to_owned(),
        (Some(Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP), _) => "this kernel has no such event".to_owned(),
        (Some(Errno::NOSYS), _) => "this kernel has no perf events".to_owned(),
        _ => error.to_string(),
    }
}

/// Events of one process.
#[derive(Debug)]
pub struct Counters {
    /// One per offer; `None`: not countable here.
    open: Vec<Option<OwnedFd>>,
}

impl Counters {
    /// Attaches every countable event of `offers` to process `pid` and whatever it starts from now on. Nothing is counted yet.
    ///
    /// # Errors
    /// Returns the errors of perf_event_open(2) for an event that opened on this process.
    pub fn attach(pid: i32, offers: &[Offer]) -> io::Result<Self> {
        let open = offers.iter().map(|offer| {
            let Ok(user_only) = offer.user_only else { return Ok(None) };
            let mut attr = offer.event.attr(user_only).map_err(io::Error::other)?;
            attr.set_disabled(1);
            attr.read_format = u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
            sys::open(&attr, pid, -1).map(Some)
        });
        Ok(Self { open: open.collect::<io::Result<_>>()? })
    }

    /// Begins to count.
    ///
    /// # Errors
    /// Returns the errors of ioctl(2).
    pub fn enable(&self) -> io::Result<()> {
        self.open.iter().flatten().try_for_each(sys::enable)
    }

    /// Reads the counts, one per offer, after the processes have ended. An event that shared its counter with others is
    /// scaled to its whole time; one that never had a counter has no count.
    ///
    /// # Errors
    /// Returns the errors of read(2).
    pub fn read(self) -> io::Result<Vec<Option<f64>>> {
        let count = |fd: Option<OwnedFd>| {
            let Some(fd) = fd else { return Ok(None) };
            let mut bytes = [0; 24];
            let got = rustix::io::read(&fd, &mut bytes)?;
            let word =
                |at: usize| bytes.get(8 * at..8 * at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
            match (word(0), word(1), word(2)) {
                (Some(value), Some(enabled), Some(running)) if got == bytes.len() => {
                    Ok(scaled(value, enabled, running))
                }
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        };
        self.open.into_iter().map(count).collect()
    }
}

fn scaled(value: u64, enabled: u64, running: u64) -> Option<f64> {
    if running == 0 {
        return (enabled == 0).then_some(value as f64);
    }
    Some(value as f64 * (enabled.max(running) as f64 / running as f64))
}

// Numbers of tracepoints.

/// Mount points of tracefs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Reads the number of a tracepoint.
///
/// # Errors
/// Why it has none here.
fn id(group: &str, name: &str) -> Result<u64, String> {
    let mut why = format!("no tracefs at {}", PLACES[0]);
    for events in PLACES.map(|place| Path::new(place).join("events")) {
        let file = events.join(group).join(name).join("id");
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                return text.trim().parse().map_err(|_| format!("{} has no number", file.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && events.is_dir() => {
                "this kernel has no such tracepoint".clone_into(&mut why);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The reason is the same for all, so that they are named together.
            Err(error) => why = format!("{}: {error}", events.display()),
        }
    }
    Err(why)
}

// The events that are counted: the kernel's own, tracepoints, and hardware where there is a PMU.

/// Class of an event's evidence about a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Shortest period of a clock, ns: a tenth of the kernel's own rate limit.
const SHORTEST_CLOCK: u64 = 100_000;

impl Event {
    /// Counts of a sample, by what all threads count in a second; a clock counts the more, the more CPUs are in use. `None`
    /// without a rate.
    #[expect(clippy::cast_sign_loss, reason = "a rate")]
    pub fn period(&self, per_second: f64, frequency: u64) -> Option<u64> {
        let least = if self.class == Class::Clock { SHORTEST_CLOCK } else { 1 };
        (per_second > 0.0).then(|| ((per_second / frequency as f64) as u64).max(least))
    }

    /// Finds the one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|event| event.name == name)
    }

    /// Returns whether its counts are nanoseconds.
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
            Source::Tracepoint(group, name) => (perf::PERF_TYPE_TRACEPOINT, id(group, name)?),
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
    fn shared_counters_are_scaled_and_those_that_never_ran_have_no_count() {
        assert_eq!(scaled(7, 100, 100), Some(7.0));
        assert_eq!(scaled(7, 100, 50), Some(14.0));
        assert_eq!((scaled(0, 100, 0), scaled(0, 0, 0)), (None, Some(0.0)));
    }

    #[test]
    fn periods_give_about_a_thousand_samples_a_second() {
        let switches = Event::named("context-switches").unwrap();
        assert_eq!([240_000.0, 30.0, 0.0].map(|rate| switches.period(rate, 1000)), [Some(240), Some(1), None]);
        let clock = Event::named("cpu-clock").unwrap();
        let periods = [2e9, 1e6, 0.0].map(|rate| clock.period(rate, 1000));
        assert_eq!(periods, [Some(2_000_000), Some(SHORTEST_CLOCK), None]);
    }
}
