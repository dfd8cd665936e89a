//! Growth of times with events and CPUs.

use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// One point of a growth curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct ScalePoint {
    /// Strategy.
    pub strategy: String,
    /// Events per CPU.
    pub events: u64,
    /// CPUs.
    pub cpus: u64,
    /// All phases together.
    pub total_ns: Summary,
}
