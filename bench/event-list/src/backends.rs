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
    /// Event that it counts.
    pub counts: &'static str,
    /// True if its counts stand in for the event that the guest selects.
    pub stand_in: bool,
    /// Reason why its events do not open here.
    pub refused: Option<String>,
    /// Cost of creating one; none without host events.
    pub price: Option<Price>,
}

/// Events per backend whose cost is measured.
const TIMES: usize = 33;
/// Backends whose first or last event may take tens of milliseconds get this many tries.
const EXPENSIVE_TRIES: usize = 4;
/// Lists the backends of a host with such names, tried on the calling thread.
#[must_use]
pub fn backends(named: impl Fn(&str) -> bool) -> Vec<Backend> {
    BackendKey::all().filter(|(key, _)| named(&key.to_string())).map(|(key, counts)| tried(&key, counts)).collect()
}

/// Returns their names; nothing is tried.
pub fn names() -> impl Iterator<Item = String> {
    BackendKey::all().map(|(key, _)| key.to_string())
}

fn tried(key: &BackendKey, counts: &'static str) -> Backend {
    let times = if key.first_open_is_expensive() { EXPENSIVE_TRIES } else { TIMES };
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
        let all = backends(|_| true);
        assert_eq!(names().collect::<Vec<_>>(), all.iter().map(|backend| backend.key.clone()).collect::<Vec<_>>());
        assert_eq!(backends(|name| name == "none").len(), 1);
        for backend in all {
            let has_events = backend.key.parse::<BackendKey>().unwrap().has_host_events();
            let priced = backend.price.is_some();
            assert_eq!(priced, has_events && backend.refused.is_none(), "{backend:?}");
            assert!(backend.refused.is_none_or(|why| !why.is_empty()));
        }
    }
}
