//! Backend keys as they stand on the command line and in results.

use std::fmt;
use std::str::FromStr;

/// What shall count behind the guest's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendKey {
    /// The first that works here.
    Auto,
    /// The host's PMU.
    Hardware,
    /// `PERF_COUNT_SW_CPU_CLOCK`: a timer on the vCPU thread, a stand-in.
    CpuClock,
    /// `PERF_COUNT_SW_TASK_CLOCK`: run time of the vCPU thread, a stand-in.
    TaskClock,
    /// A kernel tracepoint, a stand-in whose creation costs tens of ms.
    Tracepoint {
        /// Group, e.g. `kvm`.
        group: String,
        /// Name, e.g. `kvm_userspace_exit`.
        name: String,
    },
    /// Nothing counts.
    None,
}

impl BackendKey {
    /// What the key accepts, for help and errors.
    pub const SYNTAX: &'static str =
        "auto, hardware, cpu-clock, task-clock, tracepoint:GROUP/NAME, none";

    /// Whether what it counts only stands in for a hardware event.
    #[must_use]
    pub const fn is_stand_in(&self) -> bool {
        matches!(
            self,
            Self::CpuClock | Self::TaskClock | Self::Tracepoint { .. }
        )
    }

    /// The sampling period used when the user gives none, in the backend's own events: about 2 ms of
    /// a clock or of cycles, 100 occurrences of a tracepoint.
    #[must_use]
    pub const fn default_period(&self) -> u64 {
        match self {
            Self::Tracepoint { .. } => 100,
            Self::Auto | Self::Hardware | Self::CpuClock | Self::TaskClock | Self::None => {
                2_000_000
            }
        }
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Hardware => f.write_str("hardware"),
            Self::CpuClock => f.write_str("cpu-clock"),
            Self::TaskClock => f.write_str("task-clock"),
            Self::Tracepoint { group, name } => write!(f, "tracepoint:{group}/{name}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// A tracepoint's group and name become a path below tracefs: letters, digits, `_`, `-` only.
fn is_tracepoint_part(part: &str) -> bool {
    (1..=100).contains(&part.len())
        && part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

impl FromStr for BackendKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "hardware" => Self::Hardware,
            "cpu-clock" => Self::CpuClock,
            "task-clock" => Self::TaskClock,
            "none" => Self::None,
            _ => {
                let Some(point) = text.strip_prefix("tracepoint:") else {
                    return Err(format!("unknown backend; known are {}", Self::SYNTAX));
                };
                match point.split_once('/') {
                    Some((group, name))
                        if is_tracepoint_part(group) && is_tracepoint_part(name) =>
                    {
                        Self::Tracepoint {
                            group: group.to_owned(),
                            name: name.to_owned(),
                        }
                    }
                    _ => {
                        return Err(
                            "a tracepoint is GROUP/NAME in letters, digits, '_' and '-', \
                                    e.g. tracepoint:kvm/kvm_userspace_exit"
                                .to_owned(),
                        );
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_as_written() {
        for text in [
            "auto",
            "hardware",
            "cpu-clock",
            "task-clock",
            "none",
            "tracepoint:kvm/kvm_exit",
        ] {
            assert_eq!(text.parse::<BackendKey>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_tracepoint_cannot_leave_tracefs() {
        for text in [
            "tracepoint:../x",
            "tracepoint:kvm/../../etc",
            "tracepoint:kvm/",
            "tracepoint:/a",
            "tracepoint:kvm",
            "cpuclock",
        ] {
            assert!(text.parse::<BackendKey>().is_err(), "{text}");
        }
    }
}
