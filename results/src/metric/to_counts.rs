//! Time until the counts are there.

use super::kind::{Better, Metric};

/// Time until the counts are there.
pub const TO_COUNTS: Metric = Metric {
    key: "to_counts_ns",
    unit: "ns",
    name: "time to counts",
    about: "from the first open to the last count read",
    experiments: &["stat-setup"],
    better: Better::Lower,
    headline: false,
    judged: true,
};
