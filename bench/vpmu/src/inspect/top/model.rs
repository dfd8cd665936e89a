//! Samples of a guest, over all and over a sliding window. Nothing here knows a terminal, a clock or a guest.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use host_pmu::stats::ns_histogram;
use vmm::sample::{LiveCounts, Sample};

use super::names::{Names, OTHERS, Place};

/// Most addresses that are told apart; those that come later are one. A guest can make any number.
const MOST_PLACES: usize = 1 << 17;
/// Most values of a history.
const HISTORY: usize = 256;

/// Samples by their address.
#[derive(Clone, Debug, Default)]
struct Tally<K> {
    counts: HashMap<K, u64>,
}

impl<K: Copy + Eq + std::hash::Hash> Tally<K> {
    /// Counts one at `key`, or at `others` once there are too many; returns which.
    fn add(&mut self, key: K, others: K) -> K {
        let full = self.counts.len() >= MOST_PLACES && !self.counts.contains_key(&key);
        let at = if full { others } else { key };
        *self.counts.entry(at).or_insert(0) += 1;
        at
    }
}

/// Samples between two ticks.
#[derive(Clone, Debug, Default)]
struct Bin {
    length: Duration,
    places: Tally<Place>,
    /// Samples and counts of each event.
    events: Vec<(u64, u64)>,
    counts: LiveCounts,
    handler_ns: Option<Histogram<u64>>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// It ran at privilege level 3.
    pub user: bool,
    /// Its name, fit for a terminal.
    pub name: String,
    /// Samples in the window.
    pub window: u64,
    /// Samples over all.
    pub all: u64,
}

/// Run times of the guest's NMI handler, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Number of samples.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The longest.
    pub worst: u64,
}

impl Handler {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |percent: f64| histogram.value_at_quantile(percent / 100.0);
        let [p50, p99] = [50.0, 99.0].map(at);
        (!histogram.is_empty()).then(|| Self { count: histogram.len(), p50, p99, worst: histogram.max() })
    }
}

/// Figures to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Ticks so far.
    pub ticks: u64,
    /// Time over all, and of the window, s.
    pub seconds: [f64; 2],
    /// Names of the events, with their samples and counts per second in the window.
    pub events: Vec<(String, f64, f64)>,
    /// Samples of the first event since the tick before, in the window, and over all: those of the functions.
    pub samples: [u64; 3],
    /// Samples without room: in a queue of this program's, in the kernel's ring.
    pub lost: [u64; 2],
    /// Counts of the window.
    pub window: LiveCounts,
    /// Counts over all.
    pub all: LiveCounts,
    /// The guest's NMI handler in the window and over all, where the guest is the payload.
    pub handler: [Option<Handler>; 2],
    /// The latest last: median of the handler in ns, or NMIs, of each tick.
    pub history: Vec<u64>,
    /// Functions, those with most samples in the window first.
    pub functions: Vec<Line>,
    /// Callers of the function that is looked at.
    pub callers: Option<Vec<Line>>,
}

/// The state.
#[derive(Debug)]
pub struct Model {
    events: Vec<String>,
    /// Bins of the window, the oldest first, and how many there are at most.
    bins: VecDeque<Bin>,
    span: usize,
    current: Bin,
    last_samples: u64,
    places: Tally<Place>,
    /// Samples by function and caller.
    callers: Tally<(Place, Place)>,
    samples: u64,
    every_sample: u64,
    lost: [u64; 2],
    counts: LiveCounts,
    handler_ns: Histogram<u64>,
    is_payload: bool,
    history: VecDeque<u64>,
    ticks: u64,
    time: Duration,
}

impl Model {
    /// For events of these names and a window of `span` ticks.
    #[must_use]
    pub fn new(events: Vec<String>, span: usize, is_payload: bool) -> Self {
        Self {
            current: Bin { events: vec![(0, 0); events.len()], ..Bin::default() },
            events,
            bins: VecDeque::new(),
            span: span.max(1),
            last_samples: 0,
            places: Tally::default(),
            callers: Tally::default(),
            samples: 0,
            every_sample: 0,
            lost: [0; 2],
            counts: LiveCounts::default(),
            handler_ns: ns_histogram(),
            is_payload,
            history: VecDeque::new(),
            ticks: 0,
            time: Duration::ZERO,
        }
    }

    /// A sample.
    pub fn sample(&mut self, sample: &Sample) {
        self.every_sample += 1;
        if let Some((samples, counts)) = self.current.events.get_mut(sample.event) {
            *samples += 1;
            *counts = counts.saturating_add(sample.period);
        }
        if sample.event != 0 {
            return;
        }
        let place = Place { user: sample.user, address: sample.rip };
        let others = |user| Place { user, address: OTHERS };
        self.samples += 1;
        // Both columns list the same places.
        let place = self.places.add(place, others(place.user));
        self.current.places.add(place, others(place.user));
        if let Some(caller) = caller(sample) {
            self.callers.add((place, caller), (others(place.user), others(caller.user)));
        }
    }

    /// A run of the guest's NMI handler.
    pub fn handler(&mut self, ns: u64) {
        self.current.handler_ns.get_or_insert_with(ns_histogram).saturating_record(ns.max(1));
        self.handler_ns.saturating_record(ns.max(1));
    }

    /// A tick of `length`: `counts` are those of all vCPUs since they began, `lost` the samples that were lost so far.
    pub fn tick(&mut self, length: Duration, counts: LiveCounts, lost: [u64; 2]) {
        let next = Bin { events: vec![(0, 0); self.events.len()], ..Bin::default() };
        let mut bin = std::mem::replace(&mut self.current, next);
        (bin.length, bin.counts) = (length, counts.since(&self.counts));
        self.history.push_back(match &bin.handler_ns {
            Some(ns) => ns.value_at_quantile(0.5),
            None if self.is_payload => 0,
            None => bin.counts.nmis,
        });
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.last_samples = bin.events.first().map_or(0, |(samples, _)| *samples);
        (self.counts, self.lost) = (counts, lost);
        self.time += length;
        self.ticks += 1;
        self.bins.push_back(bin);
        if self.bins.len() > self.span {
            self.bins.pop_front();
        }
    }

    /// Ticks so far.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Samples of all events.
    #[must_use]
    pub const fn every_sample(&self) -> u64 {
        self.every_sample
    }

    /// Returns the figures to show, with names; with the callers of the function `zoom`.
    pub fn snapshot(&self, names: &mut Names, zoom: Option<&(bool, String)>) -> Snapshot {
        let length: Duration = self.bins.iter().map(|bin| bin.length).sum();
        let seconds = [self.time.as_secs_f64(), length.as_secs_f64()];
        let per_second = |count: u64| if length.is_zero() { 0.0 } else { count as f64 / length.as_secs_f64() };
        let events = self.events.iter().enumerate().map(|(at, name)| {
            let (samples, counts) =
                self.bins.iter().fold((0_u64, 0_u64), |sum, bin| (sum.0 + bin.events[at].0, sum.1 + bin.events[at].1));
            (name.clone(), per_second(samples), per_second(counts))
        });
        let in_window =
            self.bins.iter().flat_map(|bin| bin.places.counts.iter()).map(|(&place, &count)| (place, count));
        let functions = lines(self.places.counts.iter().map(|(&place, &count)| (place, count)), in_window, names);
        let mut handler = ns_histogram();
        for bin in self.bins.iter().filter_map(|bin| bin.handler_ns.as_ref()) {
            // Both have the same bounds.
            let _ = handler.add(bin);
        }
        Snapshot {
            ticks: self.ticks,
            seconds,
            events: events.collect(),
            samples: [self.last_samples, functions.iter().map(|line| line.window).sum(), self.samples],
            lost: self.lost,
            window: self.bins.iter().fold(LiveCounts::default(), |sum, bin| sum.plus(&bin.counts)),
            all: self.counts,
            handler: [Handler::of(&handler), Handler::of(&self.handler_ns)],
            history: self.history.iter().copied().collect(),
            functions,
            callers: zoom.map(|(user, name)| self.callers(*user, name, names)),
        }
    }

    /// The callers of a function over all.
    fn callers(&self, user: bool, name: &str, names: &mut Names) -> Vec<Line> {
        let of = |&(&(place, _), _): &(&(Place, Place), &u64)| place.user == user && *names.of(place) == *name;
        let found: Vec<_> =
            self.callers.counts.iter().filter(of).map(|(&(_, caller), &count)| (caller, count)).collect();
        lines(found.iter().copied(), std::iter::empty(), names)
    }
}

/// The caller of a sample's function, if its chain has one. The address of a call is before that of the return.
fn caller(sample: &Sample) -> Option<Place> {
    let [kernel, user] = &sample.chain;
    let own = if sample.user { user } else { kernel };
    match own.get(1) {
        Some(address) => Some(Place { user: sample.user, address: address.wrapping_sub(1) }),
        // The kernel was entered from there.
        None if !sample.user => user.first().map(|&address| Place { user: true, address }),
        None => None,
    }
}

/// Functions of addresses, those with most samples in the window first.
fn lines(
    all: impl Iterator<Item = (Place, u64)>,
    window: impl Iterator<Item = (Place, u64)>,
    names: &mut Names,
) -> Vec<Line> {
    let mut found: HashMap<(bool, Arc<str>), (u64, u64)> = HashMap::new();
    for (place, count) in all {
        found.entry((place.user, names.of(place))).or_default().1 += count;
    }
    for (place, count) in window {
        found.entry((place.user, names.of(place))).or_default().0 += count;
    }
    let line =
        |((user, name), (window, all)): ((bool, Arc<str>), _)| Line { user, name: name.to_string(), window, all };
    let mut lines: Vec<_> = found.into_iter().map(line).collect();
    lines.sort_by(|a, b| (b.window, b.all, &a.name, a.user).cmp(&(a.window, a.all, &b.name, b.user)));
    lines
}

#[cfg(test)]
mod tests;
