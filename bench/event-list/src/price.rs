//! Measures the cost of creating an event on this host.

use std::time::Duration;

use host_pmu::open::Cost;
use serde::Serialize;

/// Medians over a number of events, created and closed one after the other; ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Price {
    /// Events.
    pub events: usize,
    /// Time to create one after the first.
    pub create_ns: u64,
    /// Time to close one.
    pub close_ns: u64,
    /// Time to create the first, which may set something up for all.
    pub first_create_ns: u64,
}

impl Price {
    /// Summarizes the costs of these events; `None` for none.
    #[must_use]
    pub fn of(costs: &[Cost]) -> Option<Self> {
        let (first, rest) = costs.split_first()?;
        let rest = if rest.is_empty() { costs } else { rest };
        Some(Self {
            events: costs.len(),
            create_ns: median(rest.iter().map(|cost| cost.open)),
            close_ns: median(rest.iter().map(|cost| cost.close)),
            first_create_ns: ns(first.open),
        })
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the middle one; of an even number the lower of both.
fn median(times: impl Iterator<Item = Duration>) -> u64 {
    let mut times: Vec<_> = times.map(ns).collect();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_apart() {
        let cost = |open, close| Cost { open: Duration::from_nanos(open), close: Duration::from_nanos(close) };
        let costs = [cost(900, 1), cost(10, 5), cost(30, 7), cost(20, 6)];
        let price = Price { events: 4, create_ns: 20, close_ns: 6, first_create_ns: 900 };
        assert_eq!(Price::of(&costs), Some(price));
        assert_eq!(Price::of(&costs[..1]).map(|price| (price.create_ns, price.first_create_ns)), Some((900, 900)));
        assert_eq!(Price::of(&[]), None);
    }
}
