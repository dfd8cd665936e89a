//! Tables of functions, printed while a guest is recorded: where the samples of each interval fell.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use host_pmu::sampler::SampledEvent;
use perf_data::symbols::{Symbols, demangled};
use results::error::Error;
use results::shown;
use vmm::sample::Sample;

use crate::machine;
use crate::sys;
use crate::terminal::console::offer;

/// Tables on their way. After an error, and without a reader, nothing more is printed.
#[derive(Debug)]
pub struct Tables {
    out: OwnedFd,
    interval: Duration,
    number: u64,
    /// The last table's time.
    at: Instant,
    samples: Tally,
    names: Names,
}

impl Tables {
    /// Takes stdout for tables: whatever the guest writes there goes to stderr from here on.
    ///
    /// # Errors
    /// The host gives no descriptor.
    pub fn begin(interval: Duration, events: &[SampledEvent], names: Names) -> Result<Self, Error> {
        let out = sys::take_stdout().map_err(|error| Error::host("cannot print tables", error.to_string(), ""))?;
        Ok(Self { out, interval, number: 0, at: Instant::now(), samples: Tally::new(events), names })
    }

    /// Counts a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.samples.add(sample);
    }

    /// Prints a table if the interval is over; `lost` as of [`Self::end`].
    ///
    /// # Errors
    /// Those of stdout; a broken pipe if nobody reads it.
    pub fn poll(&mut self, lost: [u64; 3]) -> io::Result<()> {
        if self.at.elapsed() < self.interval { Ok(()) } else { self.next(lost) }
    }

    fn next(&mut self, lost: [u64; 3]) -> io::Result<()> {
        let since = self.at.elapsed();
        self.at += since;
        self.number += 1;
        let table = self.samples.table(self.number, since, &self.names, lost);
        match offer(self.out.as_fd(), &table) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ErrorKind::BrokenPipe.into()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Prints the last table, whose names are those of the guest's list if it had none before. `lost`: samples that found no room in a
    /// queue of this program's, and in the kernel's ring; and the times that an event was throttled.
    ///
    /// # Errors
    /// Those of [`Self::poll`].
    pub fn end(mut self, lost: [u64; 3], late: &Path) -> io::Result<()> {
        if self.names.symbols.is_empty()
            && let Ok(text) = machine::read(late, "the guest's symbols")
        {
            self.names.symbols = Symbols::of_kallsyms(&String::from_utf8_lossy(&text));
        }
        self.next(lost)
    }
}

// Samples of functions since the last table.

/// Place of a vCPU: whether it is at privilege level 3, and the address.
type Place = (bool, u64);

/// The address of code that is not told apart any more.
const OTHERS: u64 = u64::MAX;
/// Most addresses that are told apart; those that come later are one. A guest can make any number.
const MOST_PLACES: usize = 1 << 17;
/// Functions of a table.
const ROWS: usize = 20;
/// Longest name that is shown, characters.
const LONGEST: usize = 160;

/// Samples: those of each event, and of the functions of the first.
#[derive(Debug, Default)]
struct Tally {
    /// Names of the events, with samples since the last table.
    events: Vec<(String, u64)>,
    /// Samples of each place since the last table.
    places: HashMap<Place, u64>,
    /// Samples and time over all.
    all: u64,
    time: Duration,
}

impl Tally {
    fn new(events: &[SampledEvent]) -> Self {
        Self { events: events.iter().map(|event| (event.to_string(), 0)).collect(), ..Self::default() }
    }

    fn add(&mut self, sample: &Sample) {
        if let Some((_, samples)) = self.events.get_mut(sample.event) {
            *samples += 1;
        }
        if sample.event != 0 {
            return;
        }
        let mut place = (sample.user, sample.rip);
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            place.1 = OTHERS;
        }
        *self.places.entry(place).or_default() += 1;
        self.all += 1;
    }

    /// Takes the functions with their rings, those with most samples since the last table first.
    fn functions(&mut self, names: &Names) -> Vec<((bool, String), u64)> {
        let mut found: HashMap<(bool, String), u64> = HashMap::new();
        for (place, samples) in self.places.drain() {
            *found.entry((place.0, names.of(place))).or_default() += samples;
        }
        let mut lines: Vec<_> = found.into_iter().collect();
        lines.sort_by(|(a, of_a), (b, of_b)| (of_b, a).cmp(&(of_a, b)));
        lines
    }

    /// Formats the table of the time since the last one, and begins the next.
    fn table(&mut self, number: u64, length: Duration, names: &Names, [ours, kernels, throttled]: [u64; 3]) -> String {
        self.time += length;
        let (seconds, at) = (length.as_secs_f64().max(f64::MIN_POSITIVE), self.time.as_secs_f64());
        let functions = self.functions(names);
        let (new, all, lost) = (functions.iter().map(|(_, samples)| samples).sum::<u64>(), self.all, ours + kernels);
        let throttled = if throttled > 0 { format!("  throttled {throttled}") } else { String::new() };
        let mut text = format!("table {number}  at {at:.3} s  samples {new}  over all {all}  lost {lost}{throttled}\n");
        for (name, samples) in &mut self.events {
            let _ = writeln!(text, "event    {name}  samples/s {:.1}", std::mem::take(samples) as f64 / seconds);
        }
        text += "   share  ring  function\n";
        for ((user, name), samples) in functions.iter().take(ROWS) {
            let (share, ring) = (100.0 * *samples as f64 / new as f64, if *user { 3 } else { 0 });
            let _ = writeln!(text, "{share:>6.2} %{ring:>6}  {name}");
        }
        text + "\n"
    }
}

/// Names of a guest's addresses, fit for a terminal: a guest chooses its symbols.
#[derive(Debug, Default)]
pub struct Names {
    /// Functions by their addresses.
    pub symbols: Symbols,
    /// They are of all code of the guest, not of its kernel alone.
    pub all: bool,
}

impl Names {
    /// Finds the function, or the page of code that has no name.
    fn of(&self, (user, address): Place) -> String {
        if address == OTHERS {
            return "[others]".to_owned();
        }
        let symbol = if self.all || !user { self.symbols.find(address) } else { None };
        symbol.map_or_else(|| format!("{:#x}xxx", address >> 12), |symbol| escaped(&demangled(symbol)))
    }
}

/// Filters text of a guest's, cut.
fn escaped(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    shown::line(&cut) + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { symbols: Symbols::of_kallsyms("1000 T one\n2000 T two\n3000 T _RNvCs4_1a1b\n"), all: true }
    }

    fn tally(events: &[&str]) -> Tally {
        Tally { events: events.iter().map(|name| ((*name).to_owned(), 0)).collect(), ..Tally::default() }
    }

    fn add(tally: &mut Tally, event: usize, user: bool, rip: u64, times: usize) {
        (0..times).for_each(|_| tally.add(&Sample { event, user, rip, ..Sample::default() }));
    }

    #[test]
    fn a_table_has_its_interval_and_the_whole() {
        let mut samples = tally(&["cpu-clock", "kvm:kvm_exit"]);
        add(&mut samples, 0, false, 0x1001, 3);
        add(&mut samples, 0, true, 0x2001, 5);
        samples.table(1, Duration::from_secs(1), &names(), [0; 3]);
        add(&mut samples, 0, false, 0x1002, 9);
        add(&mut samples, 0, false, 0x3000, 3);
        add(&mut samples, 1, false, 0x2000, 4);
        assert_eq!(
            samples.table(2, Duration::from_secs(2), &names(), [2, 1, 5]),
            "\
table 2  at 3.000 s  samples 12  over all 20  lost 3  throttled 5
event    cpu-clock  samples/s 6.0
event    kvm:kvm_exit  samples/s 2.0
   share  ring  function
 75.00 %     0  one
 25.00 %     0  a::b

"
        );
    }

    #[test]
    fn a_guest_that_jumps_anywhere_does_not_grow_the_tally() {
        let mut samples = tally(&["cpu-clock"]);
        for n in 0..MOST_PLACES as u64 + 1000 {
            add(&mut samples, 0, false, 0x10_0000 + n, 1);
        }
        assert_eq!(samples.places.len(), MOST_PLACES + 1);
        assert_eq!(samples.places[&(false, OTHERS)], 1000);
        assert_eq!(names().of((true, OTHERS)), "[others]");
    }

    #[test]
    fn what_has_no_name_is_its_page_and_no_symbol_steers_the_terminal() {
        assert_eq!(names().of((false, 0x1234_5678)), "0x12345xxx");
        let kernel = Names { all: false, ..names() };
        assert_eq!((kernel.of((false, 0x1010)), kernel.of((true, 0x1010))), ("one".into(), "0x1xxx".into()));
        assert_eq!(escaped("a\x1b[31mb\r\u{202e}c"), "a\\u001b[31mb \\u202ec");
        assert_eq!((escaped("core::ptr<é>").as_str(), escaped(&"x".repeat(500)).len()), ("core::ptr<é>", LONGEST + 3));
    }
}
