//! The names of backends.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::table::names;

/// Which backend, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
pub enum BackendKey {
    /// Hardware events.
    Hardware,
    /// ns of the vCPU thread, as stand-in for cycles.
    CpuClock,
    /// The same by the task clock.
    TaskClock,
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

/// A backend with a plain name.
struct Row {
    key: BackendKey,
    name: &'static str,
    /// Its counts stand in for those the guest asked for.
    stand_in: bool,
}

/// The backends, one row each. The name of a tracepoint has the event in it.
const TABLE: [Row; 5] = [
    Row { key: BackendKey::Hardware, name: "hardware", stand_in: false },
    Row { key: BackendKey::CpuClock, name: "cpu-clock", stand_in: true },
    Row { key: BackendKey::TaskClock, name: "task-clock", stand_in: true },
    Row { key: BackendKey::Step, name: "step", stand_in: false },
    Row { key: BackendKey::None, name: "none", stand_in: true },
];

impl BackendKey {
    /// The names of the backends, without tracepoints.
    pub const PLAIN: [&str; TABLE.len()] = names!(TABLE);

    /// Whether the host's first such event, and the last one's close, may take much longer than others, whoever's they are: the first
    /// hardware event reserves the PMU (`x86_reserve_hardware`), that of a tracepoint registers a probe (`perf_trace_event_reg`).
    #[must_use]
    pub const fn first_open_is_expensive(&self) -> bool {
        matches!(self, Self::Hardware | Self::Tracepoint { .. })
    }

    /// Whether its counts stand in for those the guest asked for.
    #[must_use]
    pub fn is_stand_in(&self) -> bool {
        TABLE.iter().find(|row| row.key == *self).is_none_or(|row| row.stand_in)
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Tracepoint { group, name } = self {
            return write!(f, "tracepoint:{group}/{name}");
        }
        f.write_str(TABLE.iter().find(|row| row.key == *self).map_or("", |row| row.name))
    }
}

impl From<BackendKey> for String {
    fn from(key: BackendKey) -> Self {
        key.to_string()
    }
}

/// A backend key that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown backend '{0}'; use auto, {plain}, tracepoint:GROUP/NAME or sim:MODEL",
    plain = BackendKey::PLAIN.join(", ")
)]
pub struct UnknownBackend(pub String);

impl FromStr for BackendKey {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        if let Some(row) = TABLE.iter().find(|row| row.name == text) {
            return Ok(row.key.clone());
        }
        let unknown = || UnknownBackend(text.to_owned());
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
        for text in ["hardware", "cpu-clock", "task-clock", "step", "none", "tracepoint:kvm/kvm_userspace_exit"] {
            assert_eq!(text.parse::<BackendKey>().unwrap().to_string(), text);
        }
        for bad in
            ["", "cpuclock", "tracepoint:", "tracepoint:kvm", "tracepoint:../x", "tracepoint:a/b/c", "tracepoint:a/.."]
        {
            assert!(bad.parse::<BackendKey>().is_err(), "{bad}");
        }
    }
}
