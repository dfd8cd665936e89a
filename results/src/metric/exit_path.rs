//! VMM time per MSR exit.

use super::kind::{Better, Metric};

/// VMM time per MSR exit.
pub const EXIT_PATH: Metric = Metric {
    key: "exit_path_ns",
    unit: "ns",
    name: "VMM time per MSR exit",
    about: "VMM time from KVM_RUN's return at an MSR exit to the next KVM_RUN",
    experiments: &["nmi-latency", "guest-stat"],
    better: Better::Lower,
    headline: false,
    judged: true,
};
