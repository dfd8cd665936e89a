//! The guest's work and the events it samples meanwhile: two independent choices.
//!
//! `--workload EVENTS[/WORK]`: an event set (programmed by the guest's PMU driver) and guest work (done by
//! ring 3). WORK alone means `single/WORK`, EVENTS alone `EVENTS/ftest`.

use std::fmt;
use std::str::FromStr;

use arch_pmu::spec::Vendor;
use guest::abi::{EventSpec, FLAG_TASK_SWITCH, WORKLOAD_FTEST, WORKLOAD_IDLE, WORKLOAD_IO};
use results::document::EventParameter;
use serde::Serialize;

/// IA32_PERFEVTSELx.USR (SDM vol. 3, "Architectural Performance Monitoring").
const USR: u64 = 1 << 16;
/// IA32_PERFEVTSELx.OS.
const OS: u64 = 1 << 17;
/// IA32_PERFEVTSELx.INT.
pub const INT: u64 = 1 << 20;

/// One event of a set: its perf name, umask and event byte, and the fixed counter it belongs to.
#[derive(Clone, Copy, Debug)]
struct Event {
    name: &'static str,
    code: u64,
    fixed: Option<u64>,
    /// It samples every `period × factor`; 0: it only counts.
    factor: u64,
    /// The event of an AMD processor in its place, by its perf name, if it has another one.
    on_amd: Option<&'static str>,
}

const fn gp(name: &'static str, code: u64) -> Event {
    Event { name, code, fixed: None, factor: 1, on_amd: None }
}

const fn fixed(name: &'static str, code: u64, counter: u64) -> Event {
    Event { fixed: Some(counter), ..gp(name, code) }
}

/// The first ten hardware events `perf list` names on Cascade Lake, as umask << 8 | event code.
const SAMPLING10: &[Event] = &[
    gp("branch-instructions", 0x00c4),
    gp("branch-misses", 0x00c5),
    Event { on_amd: Some("stalled-cycles-frontend"), ..gp("bus-cycles", 0x013c) },
    gp("cache-misses", 0x412e),
    gp("cache-references", 0x4f2e),
    fixed("cpu-cycles", 0x003c, 1),
    fixed("instructions", 0x00c0, 0),
    fixed("ref-cycles", 0x0300, 2),
    gp("L1-dcache-load-misses", 0x0151),
    gp("L1-dcache-loads", 0x81d0),
];

/// The hardware events of AMD's family 19h as Linux's driver has them (`amd_zen4_perfmon_event_map`,
/// `amd_hw_cache_event_ids_f17h`): umask and event select as in PERF_CTL, bits 11:8 of the select in 35:32. Zen 3
/// counts no ref-cycles, which a stand-in does not know.
const AMD: &[(&str, u64)] = &[
    ("branch-instructions", 0x00c2),
    ("branch-misses", 0x00c3),
    ("stalled-cycles-frontend", 0x00a9),
    ("cache-misses", 0x0964),
    ("cache-references", 0xff60),
    ("cpu-cycles", 0x0076),
    ("instructions", 0x00c0),
    ("ref-cycles", 0x1_0000_0120),
    ("L1-dcache-load-misses", 0xc860),
    ("L1-dcache-loads", 0x0040),
];

impl Event {
    /// Its name, code and fixed counter on a processor of `vendor`.
    fn on(&self, vendor: Vendor) -> (&'static str, u64, Option<u64>) {
        let name = self.on_amd.unwrap_or(self.name);
        match AMD.iter().find(|(amd, _)| vendor == Vendor::Amd && *amd == name) {
            Some(&(name, code)) => (name, code, None),
            None => (self.name, self.code, self.fixed),
        }
    }
}

/// Finds a hardware event of Intel's list on a processor of `vendor`: its name there, umask << 8 | event code, and its
/// fixed counter.
pub fn hardware_event(name: &str, vendor: Vendor) -> Option<(&'static str, u64, Option<u64>)> {
    SAMPLING10.iter().find(|event| event.name == name).map(|event| event.on(vendor))
}

/// Four sampling events, one of them rare, as in the follow-up series of July 2021.
const SAMPLING4: &[Event] = &[
    fixed("cpu-cycles", 0x003c, 1),
    fixed("instructions", 0x00c0, 0),
    gp("cache-references", 0x4f2e),
    Event { factor: 6, ..gp("branch-misses", 0x00c5) },
];

/// `perf stat -e branch-misses`.
const COUNTING1: &[Event] = &[Event { factor: 0, ..gp("branch-misses", 0x00c5) }];

/// One sampling event on a general-purpose counter.
const SINGLE: &[Event] = &[gp("cpu-cycles", 0x003c)];

/// Events that the guest programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSet {
    /// Ten sampling events multiplexed on 4 general-purpose and 3 fixed counters.
    Sampling10,
    /// Four sampling events, stopped and restarted at each tick as a task switch does.
    Sampling4,
    /// One counting event, stopped and restarted at each tick.
    Counting1,
    /// One sampling event.
    Single,
}

impl EventSet {
    /// Every set.
    pub const ALL: [Self; 4] = [Self::Sampling10, Self::Sampling4, Self::Counting1, Self::Single];

    /// Its key, its events, and its `FLAG_*` bits of the guest's boot page.
    const fn row(self) -> (&'static str, &'static [Event], u64) {
        match self {
            Self::Sampling10 => ("sampling10", SAMPLING10, 0),
            Self::Sampling4 => ("sampling4", SAMPLING4, FLAG_TASK_SWITCH),
            Self::Counting1 => ("counting1", COUNTING1, FLAG_TASK_SWITCH),
            Self::Single => ("single", SINGLE, 0),
        }
    }

    /// Returns the key on the command line.
    pub const fn key(self) -> &'static str {
        self.row().0
    }

    /// Returns the `FLAG_*` bits of the guest's boot page.
    pub const fn flags(self) -> u64 {
        self.row().2
    }

    /// Lists the events of a processor of `vendor`, in order.
    ///
    /// A stand-in backend counts every event at the same rate, which real events do not: with equal
    /// periods all counters would overflow in lock-step. So event i of a set gets
    /// `period × (16 + 3 i) / 16`, on every backend, to keep arms comparable. `period` is at least 1.
    pub fn events(self, vendor: Vendor, period: u64) -> Vec<EventParameter> {
        let event = |(i, event): (u64, &Event)| {
            let spread = u128::from(period) * u128::from(event.factor) * u128::from(16 + 3 * i) / 16;
            let period = u64::try_from(spread).unwrap_or(u64::MAX).max(event.factor.min(1));
            let (name, code, fixed) = event.on(vendor);
            parameter(name, code | if event.factor > 0 { INT } else { 0 }, fixed, period)
        };
        (0..).zip(self.row().1).map(event).collect()
    }
}

/// Returns an event that counts in both rings, as documents have it.
pub fn parameter(name: &str, code: u64, fixed_counter: Option<u64>, period: u64) -> EventParameter {
    EventParameter { name: name.to_owned(), selector: format!("{:#x}", code | USR | OS), fixed_counter, period }
}

/// Returns an event as the boot page has it.
pub fn event_spec(event: &EventParameter) -> EventSpec {
    // It was made above.
    let selector = u64::from_str_radix(event.selector.trim_start_matches("0x"), 16).unwrap_or_default();
    EventSpec { selector, fixed: event.fixed_counter.map_or(0, |n| n + 1), period: event.period }
}

/// Work of the guest's CPU meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestWork {
    /// The branchy CPU-bound loop, ring 3.
    Ftest,
    /// Port writes, so VM exits, ring 3.
    Io,
    /// HLT.
    Idle,
}

impl GuestWork {
    /// Every kind of work.
    pub const ALL: [Self; 3] = [Self::Ftest, Self::Io, Self::Idle];

    /// Its key, and its value of `BootPage::workload`.
    const fn row(self) -> (&'static str, u64) {
        match self {
            Self::Ftest => ("ftest", WORKLOAD_FTEST),
            Self::Io => ("io", WORKLOAD_IO),
            Self::Idle => ("idle", WORKLOAD_IDLE),
        }
    }

    /// Returns the key on the command line.
    pub const fn key(self) -> &'static str {
        self.row().0
    }

    /// Returns the value of `BootPage::workload`.
    pub const fn abi(self) -> u64 {
        self.row().1
    }
}

/// Event set and guest work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Events of the PMU driver.
    pub events: EventSet,
    /// The guest's work.
    pub work: GuestWork,
}

impl Workload {
    /// Syntax of the option, for help and errors.
    pub const SYNTAX: &'static str = "EVENTS[/WORK] or WORK, with EVENTS sampling10, sampling4, counting1 or single, and WORK \
         ftest, io or idle";
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.events.key(), self.work.key())
    }
}

impl Serialize for Workload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let events = |key: &str| EventSet::ALL.into_iter().find(|set| set.key() == key);
        let work = |key: &str| GuestWork::ALL.into_iter().find(|work| work.key() == key);
        let found = match text.split_once('/') {
            Some((set, rest)) => events(set).zip(work(rest)),
            None => events(text)
                .map(|set| (set, GuestWork::Ftest))
                .or_else(|| work(text).map(|work| (EventSet::Single, work))),
        };
        found
            .map(|(events, work)| Self { events, work })
            .ok_or_else(|| format!("unknown workload; give {}", Self::SYNTAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_axes_and_their_short_forms() {
        for (text, long) in [
            ("sampling10", "sampling10/ftest"),
            ("io", "single/io"),
            ("idle", "single/idle"),
            ("sampling4/io", "sampling4/io"),
            ("counting1", "counting1/ftest"),
        ] {
            let workload: Workload = text.parse().unwrap();
            assert_eq!(workload.to_string(), long);
            assert_eq!(long.parse::<Workload>().unwrap(), workload);
        }
        for bad in ["", "/", "io/sampling4", "sampling10/", "sampling10/io/x", "Sampling10"] {
            assert!(bad.parse::<Workload>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_set_fits_the_boot_page_and_the_register_contract() {
        for set in EventSet::ALL {
            let events = set.events(Vendor::Intel, 2_000_000);
            assert!(events.len() <= guest::abi::MAX_EVENTS);
            let mut periods: Vec<u64> = events.iter().map(|event| event.period).collect();
            for event in &events {
                let (spec, name) = (event_spec(event), &event.name);
                // Event, umask, USR, OS, INT only: neither EN, which the driver owns, nor ANY, which faults.
                assert_eq!(spec.selector & !(0xffff | USR | OS | INT), 0, "{name}");
                assert_eq!(spec.selector & INT != 0, spec.period != 0, "{name}");
                assert_eq!(set != EventSet::Counting1, spec.period != 0, "{name}");
                assert!(spec.fixed <= 3, "{name}");
            }
            periods.sort_unstable();
            periods.dedup();
            assert_eq!(periods.len(), events.len(), "no two events of a set share a period");
        }
        let rare = EventSet::Sampling4.events(Vendor::Intel, 1_600_000)[3].period;
        assert_eq!(rare, 1_600_000 * 6 * 25 / 16);
    }

    #[test]
    fn an_amd_has_every_event_of_a_set_in_its_own_encoding_and_no_fixed_counter() {
        for set in EventSet::ALL {
            for (intel, amd) in set.events(Vendor::Intel, 1000).into_iter().zip(set.events(Vendor::Amd, 1000)) {
                let code = event_spec(&amd).selector & !(USR | OS | INT);
                assert!(AMD.contains(&(amd.name.as_str(), code)), "{}", amd.name);
                assert_eq!((amd.fixed_counter, amd.period), (None, intel.period));
                assert_eq!(amd.name == "stalled-cycles-frontend", amd.name != intel.name);
            }
        }
    }
}
