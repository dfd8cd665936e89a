//! Time of a whole set-up on the host.

use super::kind::{Better, Metric};

/// Time of a whole set-up on the host.
pub const TOTAL: Metric = Metric {
    key: "total_ns",
    unit: "ns",
    name: "set-up and tear-down time",
    about: "all phases of a set-up on the host, open to close",
    experiments: &["stat-setup"],
    better: Better::Lower,
    headline: true,
    judged: true,
};
