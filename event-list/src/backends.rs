//! Backends: what may stand behind a guest's counters.

use host_pmu::backend::BackendKey;
use host_pmu::open;
use serde::Serialize;

use super::price::Price;

/// A backend on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backend {
    /// Its key.
    pub key: String,
    /// What counts behind a counter.
    pub counts: &'static str,
    /// Whether that stands in for the event that the guest selects.
    pub stand_in: bool,
    /// Why its events do not open here.
    pub refused: Option<String>,
    /// What creating one costs; none without host events.
    pub price: Option<Price>,
}

/// Events per backend whose cost is measured.
const TIMES: usize = 33;
/// Of one whose first or last event may take tens of milliseconds.
const FEW: usize = 4;
/// The tracepoint that stands for all.
const TRACEPOINT: &str = "tracepoint:kvm/kvm_userspace_exit";

const TABLE: [(&str, &str); 6] = [
    ("hardware", "the event that the guest selects, in guest mode only, by the host's PMU"),
    ("cpu-clock", "ns of the vCPU's thread, scaled to the TSC's rate; cpu-clock:20MHz: at a rate of its own"),
    ("task-clock", "the same by the task's clock"),
    (
        TRACEPOINT,
        "occurrences of a tracepoint on the vCPU's thread; any GROUP/NAME; with --workload io, which causes exits",
    ),
    ("step", "retired instructions and branches, exactly, by single-stepping the guest; slow"),
    ("none", "TSC ticks; a timer raises the PMIs, as in the floor arm"),
];

/// Every backend of a host, tried on the calling thread.
#[must_use]
pub fn backends() -> Vec<Backend> {
    TABLE.iter().filter_map(|(key, counts)| Some(tried(&key.parse().ok()?, counts))).collect()
}

fn tried(key: &BackendKey, counts: &'static str) -> Backend {
    let times = if key.first_open_is_expensive() { FEW } else { TIMES };
    let (refused, price) = match open::costs(key, times) {
        Ok(costs) => (None, Price::of(&costs)),
        Err(error) => (Some(error.to_string()), None),
    };
    Backend { key: key.to_string(), counts, stand_in: key.is_stand_in(), refused, price }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_opens_or_says_why_not() {
        let all = backends();
        assert_eq!(all.len(), TABLE.len());
        for plain in BackendKey::PLAIN {
            assert!(all.iter().any(|backend| backend.key == plain), "{plain} is not listed");
        }
        for backend in all {
            let has_events = !matches!(backend.key.as_str(), "step" | "none");
            let priced = backend.price.is_some();
            assert_eq!(priced, has_events && backend.refused.is_none(), "{backend:?}");
            assert!(backend.refused.is_none_or(|why| !why.is_empty()));
        }
    }
}
