//! Latency of the guest's NMI handler.

use super::kind::{Better, Metric};

/// Latency of the guest's NMI handler.
pub const NMI_HANDLER: Metric = Metric {
    key: "nmi_handler_ns",
    unit: "ns",
    name: "guest NMI handler latency",
    about: "guest NMI handler, entry to exit",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: true,
    judged: true,
};
