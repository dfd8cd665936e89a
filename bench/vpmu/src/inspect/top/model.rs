//! Samples of a guest, over all and over a sliding window. Nothing here knows a terminal, a clock or a guest.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use host_pmu::stats::ns_histogram;
use perf_data::symbols::{Symbols, demangled};
use vmm::sample::{LiveCounts, Sample};

// Names of a guest's addresses, fit for a terminal: a guest chooses its symbols.

/// The address of code that is not told apart any more.
pub const OTHERS: u64 = u64::MAX;
/// Longest name that is shown, characters.
const LONGEST: usize = 160;
/// Most names that are kept; others are looked up again.
const MOST_KNOWN: usize = 1 << 18;

/// Place of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// It is at privilege level 3.
    pub user: bool,
    /// Linear address.
    pub address: u64,
}

/// Guest that names are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All of the guest: one program.
    Everything,
    /// Its kernel alone.
    Kernel,
}

/// Names of addresses.
#[derive(Debug)]
pub struct Names {
    symbols: Symbols,
    of: Of,
    known: HashMap<Place, Arc<str>>,
}

impl Names {
    /// Starts with these symbols.
    pub fn new(symbols: Symbols, of: Of) -> Self {
        Self { symbols, of, known: HashMap::new() }
    }

    /// Returns whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Finds the function, or the page of code that has no name.
    pub fn of(&mut self, place: Place) -> Arc<str> {
        if let Some(known) = self.known.get(&place) {
            return Arc::clone(known);
        }
        let name: Arc<str> = self.find(place).into();
        if self.known.len() < MOST_KNOWN {
            self.known.insert(place, Arc::clone(&name));
        }
        name
    }

    fn find(&self, place: Place) -> String {
        if place.address == OTHERS {
            return "[others]".to_owned();
        }
        let named = self.of == Of::Everything || !place.user;
        let symbol = named.then(|| self.symbols.find(place.address)).flatten();
        symbol.map_or_else(|| format!("{:#x}xxx", place.address >> 12), |symbol| escaped(&demangled(symbol)))
    }
}

/// Filters text of a guest's as printable characters, cut.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == LONGEST {
            out.push_str("...");
            break;
        }
        // Neither control characters nor those that turn or hide text.
        if character == ' ' || character.is_ascii_graphic() || character.is_alphanumeric() {
            out.push(character);
        } else {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
    }
    out
}

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
    /// Starts a model for events of these names and a window of `span` ticks.
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

    /// Takes a sample.
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

    /// Takes a run of the guest's NMI handler.
    pub fn handler(&mut self, ns: u64) {
        self.current.handler_ns.get_or_insert_with(ns_histogram).saturating_record(ns.max(1));
        self.handler_ns.saturating_record(ns.max(1));
    }

    /// Takes a tick of `length`: `counts` are those of all vCPUs since they began, `lost` the samples that were lost so far.
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
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Samples of all events.
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

    /// Lists the callers of a function over all.
    fn callers(&self, user: bool, name: &str, names: &mut Names) -> Vec<Line> {
        let of = |&(&(place, _), _): &(&(Place, Place), &u64)| place.user == user && *names.of(place) == *name;
        let found: Vec<_> =
            self.callers.counts.iter().filter(of).map(|(&(_, caller), &count)| (caller, count)).collect();
        lines(found.iter().copied(), std::iter::empty(), names)
    }
}

/// Finds the caller of a sample's function, if its chain has one. The address of a call is before that of the return.
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
mod tests {
    use perf_data::symbols::Symbols;

    use super::*;

    fn names() -> Names {
        Names::new(Symbols::of_kallsyms("1000 T one\n2000 T two\n3000 T three\n"), Of::Everything)
    }

    fn at(rip: u64) -> Sample {
        Sample { rip, period: 10, ..Sample::default() }
    }

    fn model(span: usize) -> Model {
        Model::new(vec!["cpu-clock".to_owned(), "kvm:kvm_exit".to_owned()], span, false)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_window_slides_and_the_rest_stays() {
        let mut model = model(2);
        let counts = |n: u64| LiveCounts { nmis: n, exits: [n, 2 * n, 0, 0, 0], ..LiveCounts::default() };
        for (rip, n) in [(0x1001, 3), (0x2001, 5), (0x1002, 9)] {
            (0..n).for_each(|_| model.sample(&at(rip)));
            model.tick(SECOND, counts(n), [n, 0]);
        }
        let shown = model.snapshot(&mut names(), None);
        let line = |name: &str, window, all| Line { user: false, name: name.to_owned(), window, all };
        assert_eq!(shown.functions, [line("one", 9, 12), line("two", 5, 5)]);
        assert_eq!((shown.samples, shown.seconds, shown.ticks), ([9, 14, 17], [3.0, 2.0], 3));
        assert_eq!(shown.events, [("cpu-clock".to_owned(), 7.0, 70.0), ("kvm:kvm_exit".to_owned(), 0.0, 0.0)]);
        assert_eq!((shown.window.nmis, shown.window.exits[1], shown.all.nmis, shown.lost), (6, 12, 9, [9, 0]));
        assert_eq!((shown.history.as_slice(), shown.handler), (&[3, 2, 4][..], [None, None]));
        assert_eq!(shown.callers, None);
    }

    #[test]
    fn functions_are_those_of_the_first_event() {
        let mut model = model(1);
        model.sample(&at(0x1000));
        model.sample(&Sample { event: 1, ..at(0x2000) });
        model.sample(&Sample { event: 9, ..at(0x2000) });
        model.tick(SECOND, LiveCounts::default(), [0; 2]);
        let shown = model.snapshot(&mut names(), None);
        assert_eq!((shown.functions.len(), shown.samples[2], model.every_sample()), (1, 1, 3));
        assert_eq!((shown.events[0].1, shown.events[1].1), (1.0, 1.0));
    }

    #[test]
    fn callers_are_found_by_function_and_ring() {
        let mut model = model(1);
        let chain = |kernel: &[u64], user: &[u64]| [kernel.to_vec(), user.to_vec()];
        model.sample(&Sample { chain: chain(&[0x1001, 0x2001, 0x3001], &[]), ..at(0x1001) });
        // A return address at the end of its function is the next one's begin.
        model.sample(&Sample { chain: chain(&[0x1002, 0x3000], &[]), ..at(0x1002) });
        model.sample(&Sample { chain: chain(&[0x1002], &[0x3000]), ..at(0x1002) });
        model.sample(&Sample { user: true, chain: chain(&[], &[0x1001, 0x3001]), ..at(0x1001) });
        model.sample(&at(0x1001));
        let mut names = names();
        let shown = model.snapshot(&mut names, Some(&(false, "one".to_owned())));
        let line = |user, name: &str, all| Line { user, name: name.to_owned(), window: 0, all };
        assert_eq!(shown.callers.unwrap(), [line(false, "two", 2), line(true, "three", 1)]);
        let of_user = model.snapshot(&mut names, Some(&(true, "one".to_owned()))).callers.unwrap();
        assert_eq!(of_user, [line(true, "three", 1)]);
        assert_eq!(model.snapshot(&mut names, Some(&(false, "no such".to_owned()))).callers, Some(Vec::new()));
    }

    #[test]
    fn the_handlers_times_are_those_of_the_window() {
        let mut model = Model::new(vec!["cpu-clock".to_owned()], 1, true);
        model.handler(1000);
        model.tick(SECOND, LiveCounts::default(), [0; 2]);
        (0..99).for_each(|_| model.handler(50));
        model.handler(100);
        model.tick(SECOND, LiveCounts::default(), [0; 2]);
        let shown = model.snapshot(&mut names(), None);
        assert_eq!(shown.handler[0], Some(Handler { count: 100, p50: 50, p99: 50, worst: 100 }));
        assert_eq!(shown.handler[1].map(|all| all.count), Some(101));
        model.tick(SECOND, LiveCounts { nmis: 7, ..LiveCounts::default() }, [0; 2]);
        let shown = model.snapshot(&mut names(), None);
        assert_eq!((shown.handler[0], shown.history[1..].to_vec()), (None, vec![50, 0]));
    }

    #[test]
    fn a_guest_that_jumps_anywhere_does_not_grow_the_model() {
        let mut model = model(1);
        let more = MOST_PLACES as u64 + 1000;
        (0..more).for_each(|n| model.sample(&at(0x10_0000 + n)));
        model.tick(SECOND, LiveCounts::default(), [0; 2]);
        assert_eq!(model.places.counts.len(), MOST_PLACES + 1);
        let shown = model.snapshot(&mut names(), None);
        assert_eq!(shown.samples, [more; 3]);
        let others = |shown: &Snapshot| {
            let line = shown.functions.iter().find(|line| line.name == "[others]").unwrap();
            (line.window, line.all)
        };
        assert_eq!(others(&shown), (1000, 1000));
        // New places of a later window are the others of both columns; known ones stay.
        (0..50).for_each(|n| model.sample(&at(0x9000_0000 + n)));
        (0..5).for_each(|_| model.sample(&at(0x10_0000)));
        model.tick(SECOND, LiveCounts::default(), [0; 2]);
        let mut names = names();
        let shown = model.snapshot(&mut names, None);
        assert_eq!((others(&shown), shown.samples), ((50, 1050), [55, 55, more + 55]));
        assert_eq!(model.bins[0].places.counts.len(), 2);
    }

    fn place(user: bool, address: u64) -> Place {
        Place { user, address }
    }

    #[test]
    fn what_has_no_name_is_its_page() {
        let symbols = || {
            Symbols::of_kallsyms("ffffffff81000000 T start\nffffffff81001000 T next\nffffffff81002000 t _RNvCs4_1a1b\n")
        };
        let mut names = Names::new(symbols(), Of::Kernel);
        assert_eq!(&*names.of(place(false, 0xffff_ffff_8100_0010)), "start");
        assert_eq!(&*names.of(place(false, 0xffff_ffff_8100_2000)), "a::b");
        assert_eq!(&*names.of(place(false, 0x1234)), "0x1xxx");
        assert_eq!(&*names.of(place(true, 0xffff_ffff_8100_0010)), "0xffffffff81000xxx", "user code is no kernel's");
        assert_eq!(&*Names::new(symbols(), Of::Everything).of(place(true, 0xffff_ffff_8100_0010)), "start");
        assert_eq!(&*names.of(place(true, OTHERS)), "[others]");
    }

    #[test]
    fn names_that_are_kept_are_bounded() {
        let mut names = Names::new(Symbols::default(), Of::Kernel);
        for page in 0..MOST_KNOWN as u64 + 10 {
            assert!(names.of(place(false, page << 12)).ends_with("xxx"));
        }
        assert_eq!((names.known.len(), &*names.of(place(false, 0x7fff_f123))), (MOST_KNOWN, "0x7ffffxxx"));
    }

    #[test]
    fn a_symbol_does_not_steer_the_terminal() {
        assert_eq!(escaped("a\x1b[31mb\r\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\u{d}\\u{202e}c\\u{9b}");
        assert_eq!(escaped("core::ptr<é>"), "core::ptr<é>");
        assert_eq!(escaped(&"x".repeat(500)).len(), LONGEST + 3);
    }
}
