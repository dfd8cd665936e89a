//! Host events that sample the calling thread, apart from those behind its counters: a signal and a record at each overflow.

use std::fmt;
use std::io;
use std::str::FromStr;

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_BRANCH_INSTRUCTIONS, PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_CACHE_MISSES,
    PERF_COUNT_HW_CACHE_REFERENCES, PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_SW_CPU_CLOCK,
    PERF_COUNT_SW_TASK_CLOCK, PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE, PERF_SAMPLE_PERIOD,
    PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use crate::backend::perf::{os, tracepoint_id};
use crate::backend::{attr, tracepoint};
use crate::sys;

/// Pages of each event's ring.
const PAGES: usize = 4;
/// Names of events beside tracepoints: (name, type, config).
const NAMED: [(&str, u32, u32); 8] = [
    ("cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK),
    ("cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS),
    ("branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES),
    ("cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES),
];

/// An event to sample by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampledEvent {
    name: String,
    type_: u32,
    config: u64,
}

impl SampledEvent {
    /// Returns `type` and `config` of its attribute; those of a tracepoint are the host's.
    ///
    /// # Errors
    /// This host has no such tracepoint, or hides it.
    pub fn encoding(&self) -> Result<(u32, u64), String> {
        let Some((group, name)) = self.name.split_once(':') else { return Ok((self.type_, self.config)) };
        Ok((PERF_TYPE_TRACEPOINT, tracepoint_id(group, name).map_err(|error| error.to_string())?))
    }

    /// Returns the names of the events that are neither tracepoints nor raw ones.
    pub fn named() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _, _)| *name)
    }

    /// Tries whether the calling thread can open it.
    ///
    /// # Errors
    /// The reason why not, with the remedy.
    pub fn probe(&self) -> Result<(), String> {
        let attr = attribute(self, Rate::Hertz(100))?;
        sys::open_on_this_thread(attr, None).map(drop).map_err(|error| refused(self, &error))
    }

    /// Returns whether it counts time.
    pub const fn is_clock(&self) -> bool {
        self.type_ == PERF_TYPE_SOFTWARE
    }

    /// Returns whether it is a tracepoint of the host.
    pub const fn is_tracepoint(&self) -> bool {
        self.type_ == PERF_TYPE_TRACEPOINT
    }

    /// Returns whether the host's PMU counts it, in guest mode only.
    pub const fn is_hardware(&self) -> bool {
        matches!(self.type_, PERF_TYPE_HARDWARE | PERF_TYPE_RAW)
    }
}

impl fmt::Display for SampledEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for SampledEvent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let event = |type_: u32, config: u64| Ok(Self { name: text.to_owned(), type_, config });
        if let Some(&(_, type_, config)) = NAMED.iter().find(|(name, _, _)| *name == text) {
            event(type_, config.into())
        } else if let Some(config) = text.strip_prefix('r').and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            event(PERF_TYPE_RAW, config)
        } else if tracepoint(text, &[':']).is_some() {
            event(PERF_TYPE_TRACEPOINT, 0)
        } else {
            let names: Vec<_> = Self::named().collect();
            Err(format!("give {}, rHEX or a tracepoint as kvm:kvm_exit", names.join(", ")))
        }
    }
}

/// Rate at which an event samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Samples a second: exact for a clock; for other events the kernel adjusts the period to reach it.
    Hertz(u64),
    /// One sample in so many counts; of a clock they are ns.
    Period(u64),
}

impl Rate {
    /// Returns `sample_period` or `sample_freq` of an attribute, and whether it is the latter. A clock has a fixed period always.
    pub fn of(self, event: &SampledEvent) -> (u64, bool) {
        match self {
            Self::Period(period) => (period.max(1), false),
            Self::Hertz(hertz) if event.is_clock() => ((1_000_000_000 / hertz.max(1)).max(1), false),
            Self::Hertz(hertz) => (hertz.max(1), true),
        }
    }
}

/// An overflow of a sampling event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Its number in the list that was opened.
    pub event: usize,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// Counts since the one before.
    pub period: u64,
}

/// Findings of a look at the rings, beside the overflows themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Overflows.
    pub overflows: u64,
    /// Times that the kernel stopped an event since it took too much of a tick.
    pub throttled: u64,
}

/// The sampling events of a thread.
#[derive(Debug)]
pub struct Sampler(Vec<(sys::Ring, Option<u64>)>);

impl Sampler {
    /// Opens `events` on the calling thread. They count at once, and each overflow raises [`crate::kick::signal`] there.
    ///
    /// # Errors
    /// The event that was refused, and why.
    pub fn open(events: &[SampledEvent], rate: Rate) -> Result<Self, String> {
        let open = |event: &SampledEvent| -> Result<_, String> {
            let (period, by_frequency) = rate.of(event);
            let fd = sys::open_on_this_thread(attribute(event, rate)?, None).map_err(|error| refused(event, &error))?;
            sys::signal_this_thread(&fd).map_err(|error| format!("the signal of event {event}: {error}"))?;
            let ring = sys::Ring::map(fd, PAGES);
            let ring = ring.map_err(|error| format!("the ring of event {event}: {error}; raise ulimit -l"))?;
            sys::enable(&ring.fd).map_err(|error| refused(event, &error))?;
            Ok((ring, (!by_frequency).then_some(period)))
        };
        events.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Lets the events count, or stops them.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_enabled(&self, on: bool) -> io::Result<()> {
        self.0.iter().try_for_each(|(ring, _)| if on { sys::enable(&ring.fd) } else { sys::disable(&ring.fd) })
    }

    /// Reports the overflows since the last call to `visit`, and to `lost` how many of an event found no room in its
    /// ring. Without any it is a load of shared memory for each event.
    #[inline]
    pub fn take(&mut self, mut visit: impl FnMut(Overflow), mut lost: impl FnMut(usize, u64)) -> Taken {
        let mut taken = Taken::default();
        for (event, (ring, fixed)) in self.0.iter_mut().enumerate() {
            ring.drain(|type_, [first, second, _]| match type_ {
                PERF_RECORD_SAMPLE => {
                    taken.overflows += 1;
                    visit(Overflow { event, time: first, period: fixed.unwrap_or(second) });
                }
                PERF_RECORD_LOST => lost(event, second),
                PERF_RECORD_THROTTLE => taken.throttled += 1,
                _ => {}
            });
        }
        taken
    }
}

fn refused(event: &SampledEvent, error: &io::Error) -> String {
    format!("event {event}: {}", os("perf_event_open", error))
}

fn attribute(event: &SampledEvent, rate: Rate) -> Result<perf_event_attr, String> {
    let (type_, config) = event.encoding()?;
    let mut attr = attr::base(type_, config);
    attr.__bindgen_anon_2.wakeup_events = 1;
    attr.set_disabled(1);
    let (period, by_frequency) = rate.of(event);
    // A tracepoint with a fixed period that records it samples each occurrence (`perf_swevent_event`).
    attr.sample_type = u64::from(PERF_SAMPLE_TIME | if by_frequency { PERF_SAMPLE_PERIOD } else { 0 });
    attr.__bindgen_anon_1.sample_period = period;
    attr.set_freq(u64::from(by_frequency));
    attr.set_exclude_host(u64::from(event.is_hardware()));
    Ok(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let encoding = |name: &str| name.parse::<SampledEvent>().unwrap().encoding().unwrap();
        assert_eq!([encoding("cpu-clock"), encoding("task-clock")], [(1, 0), (1, 1)]);
        assert_eq!([encoding("cycles"), encoding("branch-misses"), encoding("r1c2")], [(0, 0), (0, 5), (4, 0x1c2)]);
        let exits: SampledEvent = "kvm:kvm_exit".parse().unwrap();
        assert_eq!((exits.to_string().as_str(), exits.is_clock(), exits.is_hardware()), ("kvm:kvm_exit", false, false));
        for wrong in ["", "cycels", "kvm:", "a:b:c", "../x:y", "rxyz"] {
            assert!(wrong.parse::<SampledEvent>().unwrap_err().contains("cpu-clock"), "{wrong}");
        }
    }

    #[test]
    fn a_clock_has_a_fixed_period() {
        let event = |name: &str| name.parse::<SampledEvent>().unwrap();
        assert_eq!(Rate::Hertz(1000).of(&event("cpu-clock")), (1_000_000, false));
        assert_eq!(Rate::Hertz(1000).of(&event("cycles")), (1000, true));
        assert_eq!(Rate::Period(77).of(&event("cpu-clock")), (77, false));
        let attr = attribute(&event("cycles"), Rate::Hertz(7)).unwrap();
        assert_eq!((attr.freq(), attr.exclude_host(), sys::tests::sample_period(&attr)), (1, 1, 7));
        let attr = attribute(&event("cpu-clock"), Rate::Hertz(1000)).unwrap();
        assert_eq!((attr.freq(), attr.exclude_host(), attr.disabled()), (0, 0, 1));
        // Of a tracepoint each occurrence would be a sample if a fixed period were recorded.
        let records = |rate| attribute(&event("cycles"), rate).unwrap().sample_type & u64::from(PERF_SAMPLE_PERIOD);
        assert!(records(Rate::Period(77)) == 0 && records(Rate::Hertz(7)) != 0);
    }
}
