//! The names of backends.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A backend, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendKey {
    /// Hardware events.
    Hardware,
    /// ns of the vCPU thread, as stand-in for cycles.
    CpuClock,
    /// The CPU clock at a rate of its own in place of the TSC's: for hosts on which an exit takes long, so that short
    /// periods leave the guest time. In counts per microsecond, 1 to 10 000.
    CpuClockAt(u32),
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

/// The backends with a plain name, and the event that each counts. The name of a tracepoint has the event in it, that of a clock of
/// its own rate has the rate.
const TABLE: [(BackendKey, &str, &str); 4] = [
    (BackendKey::Hardware, "hardware", "the event that the guest selects, in guest mode only, by the host's PMU"),
    (
        BackendKey::CpuClock,
        "cpu-clock",
        "ns of the vCPU's thread, scaled to the TSC's rate; cpu-clock:20MHz: at a rate of its own",
    ),
    (BackendKey::Step, "step", "retired instructions and branches, exactly, by single-stepping the guest; slow"),
    (BackendKey::None, "none", "TSC ticks; a timer raises the PMIs, as in the floor arm"),
];

impl BackendKey {
    /// The names of the backends, without tracepoints.
    pub const PLAIN: [&str; 4] = [TABLE[0].1, TABLE[1].1, TABLE[2].1, TABLE[3].1];

    /// Lists every backend with what counts behind a counter, and one tracepoint for all.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        let tracepoint = Self::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() };
        let about =
            "occurrences of a tracepoint on the vCPU's thread; any GROUP/NAME; with --workload io, which causes exits";
        TABLE.into_iter().map(|(key, _, about)| (key, about)).chain([(tracepoint, about)])
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
            Self::CpuClockAt(mhz) => Some(u64::from(*mhz) * 1000),
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
            Self::CpuClockAt(mhz) => write!(f, "cpu-clock:{mhz}MHz"),
            plain => f.write_str(TABLE.iter().find(|row| row.0 == *plain).map_or("", |row| row.1)),
        }
    }
}

/// A backend key that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown backend '{0}'; use auto, {plain}, cpu-clock:20MHz (with its unit, 1MHz to {MOST_MHZ}MHz), tracepoint:GROUP/NAME or sim:MODEL",
    plain = BackendKey::PLAIN.join(", ")
)]
pub struct UnknownBackend(pub String);

/// Returns group and name of a tracepoint, with one of these between them. A path is built from both: neither may climb out of events/.
pub(crate) fn tracepoint<'a>(text: &'a str, between: &[char]) -> Option<(&'a str, &'a str)> {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_part = |part: &str| (1..=128).contains(&part.len()) && part.bytes().all(may_be);
    text.split_once(between).filter(|(group, name)| is_part(group) && is_part(name))
}

impl FromStr for BackendKey {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        let found = if let Some((key, ..)) = TABLE.into_iter().find(|row| row.1 == text) {
            Some(key)
        } else if let Some(rate) = text.strip_prefix("cpu-clock:") {
            let mhz = rate.strip_suffix("MHz").filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
            let mhz = mhz.and_then(|number| number.parse().ok()).filter(|mhz| (1..=MOST_MHZ).contains(mhz));
            mhz.map(Self::CpuClockAt)
        } else {
            let parts = text.strip_prefix("tracepoint:").and_then(|event| tracepoint(event, &['/', ':']));
            parts.map(|(group, name)| Self::Tracepoint { group: group.to_owned(), name: name.to_owned() })
        };
        found.ok_or_else(|| UnknownBackend(text.to_owned()))
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
        let rates = ["", "20", "MHz", "0MHz", "+1MHz", "10001MHz"].map(|rate| format!("cpu-clock:{rate}"));
        let others =
            ["", "cpuclock", "tracepoint:", "tracepoint:kvm", "tracepoint:../x", "tracepoint:a/b/c", "tracepoint:a/.."];
        for bad in rates.iter().map(String::as_str).chain(others) {
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
    }

    #[test]
    fn a_clock_at_a_rate_of_its_own_has_a_floor_at_that_rate() {
        let slow = BackendKey::CpuClockAt(20);
        assert_eq!((slow.pace(7), slow.is_stand_in(), BackendKey::CpuClock.pace(7)), (Some(20_000), true, None));
        let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_exit".to_owned() };
        assert_eq!(tracepoint.pace(7), Some(7));
    }
}
