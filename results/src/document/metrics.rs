//! The metrics of an arm or a round.

use std::collections::BTreeMap;

use super::summary::Summary;

/// Metrics by key, such as `nmi_handler_ns`; below a phase by path, such as `phases/open/wall_ns`.
pub type Metrics = BTreeMap<String, Summary>;
