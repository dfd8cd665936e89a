//! Latency of the host's signals.

use super::kind::{Better, Metric};

/// Latency of the host's signals.
pub const SIGNAL: Metric = Metric {
    key: "signal_ns",
    unit: "ns",
    name: "signal latency",
    about: "from the host's record of an overflow (floor: its timer's due time) to the VMM seeing it",
    experiments: &["nmi-latency", "guest-stat"],
    better: Better::Lower,
    headline: false,
    judged: false,
};
