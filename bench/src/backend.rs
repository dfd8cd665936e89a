//! The backend as it stands on the command line: one of the host's, or `auto`.

use std::fmt;
use std::str::FromStr;

use host_pmu::backend::BackendKey;

/// What `--backend` accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendArg {
    /// The first that works here.
    Auto,
    /// This one.
    Key(BackendKey),
}

/// The sampling period used when the user gives none: about 1 ms of cycles or of a clock scaled to cycles at 2 GHz, 100
/// occurrences of a tracepoint.
#[must_use]
pub const fn default_period(backend: &BackendKey) -> u64 {
    match backend {
        BackendKey::Tracepoint { .. } | BackendKey::Step => 100,
        BackendKey::Hardware | BackendKey::CpuClock | BackendKey::TaskClock | BackendKey::None => 2_000_000,
    }
}

impl fmt::Display for BackendArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Key(key) => key.fmt(f),
        }
    }
}

impl FromStr for BackendArg {
    type Err = host_pmu::backend::UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_as_written() {
        for text in ["auto", "hardware", "cpu-clock", "task-clock", "step", "none", "tracepoint:kvm/kvm_exit"] {
            assert_eq!(text.parse::<BackendArg>().unwrap().to_string(), text);
        }
        assert!("cpuclock".parse::<BackendArg>().unwrap_err().to_string().contains("cpu-clock"));
    }
}
