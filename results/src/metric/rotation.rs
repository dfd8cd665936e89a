//! Latency of the guest's rotation.

use super::kind::{Better, Metric};

/// Latency of the guest's rotation.
pub const ROTATION: Metric = Metric {
    key: "rotation_ns",
    unit: "ns",
    name: "guest rotation latency",
    about: "guest rotation of multiplexed events, or stop and restart at a task switch",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: true,
    judged: true,
};
