//! The names of backends.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::strategy::names;

/// A backend, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
pub enum BackendKey {
    /// Hardware events.
    Hardware,
    /// ns of the vCPU thread, as stand-in for cycles.
    CpuClock,
    /// The CPU clock at a rate of its own in place of the TSC's: for hosts on which an exit takes long, so that short
    /// periods leave the guest time.
    CpuClockAt {
        /// Counts per microsecond, 1 to 10 000.
        mhz: u32,
    },
    /// A tracepoint, as stand-in.
    Tracepoint {
        /// The group, a folder below `events/`.
        group: String,
        /// The event's name.
        name: String,
    },
    /// Retired instructions and branches, by single-stepping the vCPU.
    Step,
    /// No host event: a clock counts and a timer signals.
    None,
}

/// The highest rate of a stand-in.
const MOST_MHZ: u32 = 10_000;

/// Before and after the rate of a [`BackendKey::CpuClockAt`].
const AT: (&str, &str) = ("cpu-clock:", "MHz");

/// A backend with a plain name.
struct Row {
    key: BackendKey,
    name: &'static str,
    /// The event that it counts.
    about: &'static str,
}

/// The backends, one row each. The name of a tracepoint has the event in it, that of a clock of its own rate has the rate.
const TABLE: [Row; 4] = [
    Row {
        key: BackendKey::Hardware,
        name: "hardware",
        about: "the event that the guest selects, in guest mode only, by the host's PMU",
    },
    Row {
        key: BackendKey::CpuClock,
        name: "cpu-clock",
        about: "ns of the vCPU's thread, scaled to the TSC's rate; cpu-clock:20MHz: at a rate of its own",
    },
    Row {
        key: BackendKey::Step,
        name: "step",
        about: "retired instructions and branches, exactly, by single-stepping the guest; slow",
    },
    Row { key: BackendKey::None, name: "none", about: "TSC ticks; a timer raises the PMIs, as in the floor arm" },
];

/// The tracepoint that stands for all in lists: group, name, and what tracepoints count.
const TRACEPOINT: (&str, &str, &str) = (
    "kvm",
    "kvm_userspace_exit",
    "occurrences of a tracepoint on the vCPU's thread; any GROUP/NAME; with --workload io, which causes exits",
);

impl BackendKey {
    /// The names of the backends, without tracepoints.
    pub const PLAIN: [&str; TABLE.len()] = names!(TABLE);

    /// Lists every backend with what counts behind a counter, and one tracepoint for all.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        let (group, name, about) = TRACEPOINT;
        let tracepoint = Self::Tracepoint { group: group.to_owned(), name: name.to_owned() };
        TABLE.iter().map(|row| (row.key.clone(), row.about)).chain([(tracepoint, about)])
    }

    /// Returns whether its counters are host events, which can be opened and have a cost.
    pub const fn has_host_events(&self) -> bool {
        !matches!(self, Self::Step | Self::None)
    }

    /// Returns whether the first such event of the host, and the close of the last one, may take much longer than
    /// others, whoever owns them: the first hardware event reserves the PMU (`x86_reserve_hardware`), the first event
    /// of a tracepoint registers a probe (`perf_trace_event_reg`).
    pub const fn first_open_is_expensive(&self) -> bool {
        matches!(self, Self::Hardware | Self::Tracepoint { .. })
    }

    /// Returns the rate, in counts per ms, at which a guest without host events has its counters overflow about as
    /// often as with this backend; `None` for the TSC's rate. `period` is the guest's.
    pub fn pace(&self, period: u64) -> Option<u64> {
        match self {
            // A period is a few occurrences: at one count per TSC tick the guest would do nothing but overflow.
            Self::Tracepoint { .. } => Some(period),
            Self::CpuClockAt { mhz } => Some(u64::from(*mhz) * 1000),
            _ => None,
        }
    }

    /// Returns whether its counts stand in for those the guest asked for.
    pub const fn is_stand_in(&self) -> bool {
        !matches!(self, Self::Hardware | Self::Step)
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tracepoint { group, name } => write!(f, "tracepoint:{group}/{name}"),
            Self::CpuClockAt { mhz } => write!(f, "{}{mhz}{}", AT.0, AT.1),
            plain => f.write_str(TABLE.iter().find(|row| row.key == *plain).map_or("", |row| row.name)),
        }
    }
}

impl From<BackendKey> for String {
    fn from(key: BackendKey) -> Self {
        key.to_string()
    }
}

/// A backend key that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", why(.0))]
pub struct UnknownBackend(pub String);

fn why(text: &str) -> String {
    if let Some(rate) = text.strip_prefix(AT.0) {
        return format!(
            "backend cpu-clock has no rate '{rate}'; give a whole number of MHz, 1MHz to {MOST_MHZ}MHz, as cpu-clock:20MHz"
        );
    }
    let plain = BackendKey::PLAIN.join(", ");
    format!(
        "unknown backend '{text}'; use auto, {plain}, cpu-clock:20MHz (any rate), tracepoint:GROUP/NAME or sim:MODEL"
    )
}

impl FromStr for BackendKey {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        if let Some(row) = TABLE.iter().find(|row| row.name == text) {
            return Ok(row.key.clone());
        }
        let unknown = || UnknownBackend(text.to_owned());
        if let Some(rate) = text.strip_prefix(AT.0) {
            let mhz = rate.strip_suffix(AT.1).filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
            let mhz = mhz.and_then(|number| number.parse().ok()).filter(|mhz| (1..=MOST_MHZ).contains(mhz));
            return mhz.map(|mhz| Self::CpuClockAt { mhz }).ok_or_else(unknown);
        }
        // A path is built from both parts: neither may climb out of events/.
        let part = |p: &str| {
            let fits = !p.is_empty()
                && p.len() <= 128
                && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            fits.then(|| p.to_owned()).ok_or_else(unknown)
        };
        let (group, name) =
            text.strip_prefix("tracepoint:").and_then(|t| t.split_once(['/', ':'])).ok_or_else(unknown)?;
        Ok(Self::Tracepoint { group: part(group)?, name: part(name)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_text() {
        for text in ["hardware", "cpu-clock", "cpu-clock:20MHz", "step", "none", "tracepoint:kvm/kvm_userspace_exit"] {
            assert_eq!(text.parse::<BackendKey>().unwrap().to_string(), text);
        }
        for bad in
            ["cpu-clock:", "cpu-clock:20", "cpu-clock:MHz", "cpu-clock:0MHz", "cpu-clock:+1MHz", "cpu-clock:10001MHz"]
        {
            let error = bad.parse::<BackendKey>().unwrap_err().to_string();
            assert!(error.contains("no rate") && error.contains("20MHz"), "{error}");
        }
        for bad in
            ["", "cpuclock", "tracepoint:", "tracepoint:kvm", "tracepoint:../x", "tracepoint:a/b/c", "tracepoint:a/.."]
        {
            assert!(bad.parse::<BackendKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_backend_is_listed_with_its_facts() {
        let all: Vec<_> = BackendKey::all().collect();
        assert_eq!(all.len(), BackendKey::PLAIN.len() + 1);
        for (key, about) in all {
            assert!(key.to_string().parse() == Ok(key.clone()) && !about.is_empty(), "{key}");
        }
        assert!(BackendKey::CpuClock.has_host_events() && BackendKey::CpuClockAt { mhz: 20 }.has_host_events());
        assert!(!BackendKey::Step.has_host_events() && !BackendKey::None.has_host_events());
    }

    #[test]
    fn a_clock_at_a_rate_of_its_own_has_a_floor_at_that_rate() {
        let slow = BackendKey::CpuClockAt { mhz: 20 };
        assert_eq!((slow.pace(7), slow.is_stand_in(), BackendKey::CpuClock.pace(7)), (Some(20_000), true, None));
        let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_exit".to_owned() };
        assert_eq!(tracepoint.pace(7), Some(7));
    }
}
