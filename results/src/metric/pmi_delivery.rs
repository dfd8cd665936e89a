//! Latency of PMI delivery.

use super::kind::{Better, Metric};

/// Latency of PMI delivery.
pub const PMI_DELIVERY: Metric = Metric {
    key: "pmi_delivery_ns",
    unit: "ns",
    name: "PMI delivery latency",
    about: "from the VMM seeing an overflow to the handler's entry",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: false,
    judged: true,
};
