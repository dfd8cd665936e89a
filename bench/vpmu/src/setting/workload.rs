//! The guest's work and the events it samples meanwhile: two independent choices.
//!
//! `--workload EVENTS[/WORK]`: an event set (programmed by the guest's PMU driver) and guest work (done by
//! ring 3). WORK alone means `single/WORK`, EVENTS alone `EVENTS/ftest`.

use std::fmt;
use std::str::FromStr;

use crate::setting::parse::suggestion;
use arch_pmu::spec::Vendor;
use guest::abi::{EventSpec, FLAG_TASK_SWITCH, WORKLOAD_FTEST, WORKLOAD_IDLE, WORKLOAD_IO};
use results::document::EventParameter;

/// IA32_PERFEVTSELx.USR (SDM vol. 3, "Architectural Performance Monitoring").
const USR: u64 = 1 << 16;
/// IA32_PERFEVTSELx.OS.
const OS: u64 = 1 << 17;
/// IA32_PERFEVTSELx.INT.
pub const INT: u64 = 1 << 20;

/// The first ten hardware events that `perf list` names on Cascade Lake: perf's name, umask << 8 | event code, and the fixed counter it
/// belongs to; then AMD's name, and its code: of family 19h as Linux's driver has them (`amd_zen4_perfmon_event_map`,
/// `amd_hw_cache_event_ids_f17h`), umask and event select as in PERF_CTL, bits 11:8 of the select in 35:32. Zen 3 counts no ref-cycles,
/// which a stand-in does not know.
type Event = (&'static str, u64, Option<u64>, &'static str, u64);
const EVENTS: [Event; 10] = [
    ("branch-instructions", 0x00c4, None, "branch-instructions", 0x00c2),
    ("branch-misses", 0x00c5, None, "branch-misses", 0x00c3),
    ("bus-cycles", 0x013c, None, "stalled-cycles-frontend", 0x00a9),
    ("cache-misses", 0x412e, None, "cache-misses", 0x0964),
    ("cache-references", 0x4f2e, None, "cache-references", 0xff60),
    ("cpu-cycles", 0x003c, Some(1), "cpu-cycles", 0x0076),
    ("instructions", 0x00c0, Some(0), "instructions", 0x00c0),
    ("ref-cycles", 0x0300, Some(2), "ref-cycles", 0x1_0000_0120),
    ("L1-dcache-load-misses", 0x0151, None, "L1-dcache-load-misses", 0xc860),
    ("L1-dcache-loads", 0x81d0, None, "L1-dcache-loads", 0x0040),
];

/// Finds a hardware event of Intel's list on a processor of `vendor`: its name there, umask << 8 | event code, and its
/// fixed counter.
pub fn hardware_event(name: &str, vendor: Vendor) -> Option<(&'static str, u64, Option<u64>)> {
    let &(own, code, fixed, of_amd, code_of_amd) = EVENTS.iter().find(|event| event.0 == name)?;
    Some(if vendor == Vendor::Amd { (of_amd, code_of_amd, None) } else { (own, code, fixed) })
}

/// Events that the guest programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSet {
    /// Key on the command line.
    pub key: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// `FLAG_*` bits of the guest's boot page.
    pub flags: u64,
    /// Their names in Intel's list.
    events: &'static str,
    /// The last of them samples every `period × last`; 0: it only counts.
    last: u64,
    /// They take general-purpose counters alone.
    is_general: bool,
}

impl EventSet {
    /// Every set.
    pub const ALL: [Self; 4] = [Self::SAMPLING10, Self::SAMPLING4, Self::COUNTING1, Self::SINGLE];
    /// All of the list.
    pub const SAMPLING10: Self = Self {
        key: "sampling10",
        about: "ten sampling events multiplexed on 4 general-purpose and 3 fixed counters",
        flags: 0,
        events: "branch-instructions branch-misses bus-cycles cache-misses cache-references cpu-cycles instructions ref-cycles \
                 L1-dcache-load-misses L1-dcache-loads",
        last: 1,
        is_general: false,
    };
    /// Those of the follow-up series of July 2021, one of them rare.
    pub const SAMPLING4: Self = Self {
        key: "sampling4",
        about: "four sampling events, restarted at each tick as by a task switch",
        flags: FLAG_TASK_SWITCH,
        events: "cpu-cycles instructions cache-references branch-misses",
        last: 6,
        ..Self::SAMPLING10
    };
    /// That of `perf stat -e branch-misses`.
    pub const COUNTING1: Self = Self {
        key: "counting1",
        about: "one counting event, restarted at each tick; no NMIs, rotations are timed",
        events: "branch-misses",
        last: 0,
        ..Self::SAMPLING4
    };
    /// One on a general-purpose counter.
    pub const SINGLE: Self =
        Self { key: "single", about: "one sampling event", events: "cpu-cycles", is_general: true, ..Self::SAMPLING10 };

    /// Lists the events of a processor of `vendor`, in order.
    ///
    /// A stand-in backend counts every event at the same rate, which real events do not: with equal
    /// periods all counters would overflow in lock-step. So event i of a set gets
    /// `period × (16 + 3 i) / 16`, on every backend, to keep arms comparable. `period` is at least 1.
    pub fn events(self, vendor: Vendor, period: u64) -> Vec<EventParameter> {
        let names: Vec<_> = self.events.split(' ').collect();
        let event = |(i, name): (usize, &&str)| {
            let factor = if i + 1 < names.len() { 1 } else { self.last };
            let spread = u128::from(period) * u128::from(factor) * (16 + 3 * i as u128) / 16;
            let period = u64::try_from(spread).unwrap_or(u64::MAX).max(factor.min(1));
            let (name, code, fixed) = hardware_event(name, vendor)?;
            let code = code | if factor > 0 { INT } else { 0 };
            Some(parameter(name, code, fixed.filter(|_| !self.is_general), period))
        };
        names.iter().enumerate().filter_map(event).collect()
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
pub struct GuestWork {
    /// Key on the command line.
    pub key: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// Value of `BootPage::workload`.
    pub abi: u64,
}

impl GuestWork {
    /// Every kind of work.
    pub const ALL: [Self; 3] = [
        Self::FTEST,
        Self { key: "io", about: "port writes in ring 3, each a VM exit", abi: WORKLOAD_IO },
        Self { key: "idle", about: "HLT", abi: WORKLOAD_IDLE },
    ];
    /// The usual one.
    pub const FTEST: Self =
        Self { key: "ftest", about: "a branchy CPU-bound loop in ring 3; the default", abi: WORKLOAD_FTEST };
}

/// Event set and guest work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Events of the PMU driver.
    pub events: EventSet,
    /// The guest's work.
    pub work: GuestWork,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.events.key, self.work.key)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let events = |key: &str| EventSet::ALL.into_iter().find(|set| set.key == key);
        let work = |key: &str| GuestWork::ALL.into_iter().find(|work| work.key == key);
        let found = match text.split_once('/') {
            Some((set, rest)) => events(set).zip(work(rest)),
            None => events(text)
                .map(|set| (set, GuestWork::FTEST))
                .or_else(|| work(text).map(|work| (EventSet::SINGLE, work))),
        };
        let (sets, works) = (EventSet::ALL.map(|set| set.key), GuestWork::ALL.map(|work| work.key));
        let unknown = || {
            let (part, keys, both) = match text.split_once('/') {
                Some((set, work)) if events(set).is_some() => (work, works.to_vec(), ""),
                Some((set, _)) => (set, sets.to_vec(), ""),
                None => (text, [&sets[..], &works].concat(), ", and EVENTS/WORK"),
            };
            format!("unknown workload; {}{both}", suggestion(part, &keys, ""))
        };
        found.map(|(events, work)| Self { events, work }).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

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
    }

    /// No selector has EN, which the guest's driver owns, or ANY, which faults; INT goes with a period; no two events of a set share one,
    /// and AMD's have no fixed counter. A set of an AMD has the names and codes of its driver.
    #[test]
    fn sets_are_as_the_drivers_of_both_vendors_have_them() {
        let mut text = String::new();
        for (set, vendor) in EventSet::ALL.iter().flat_map(|set| [(set, Vendor::Intel), (set, Vendor::Amd)]) {
            writeln!(text, "# {} {vendor:?}", set.key).unwrap();
            for event in set.events(vendor, 1_600_000) {
                let EventSpec { selector, fixed, period } = event_spec(&event);
                writeln!(text, "{} {selector:#x} {fixed} {period}", event.name).unwrap();
            }
        }
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/setting/sets.txt"), &text);
    }
}
