//! `vpmu top`: a guest runs, and a thread prints which of its functions the samples fell into, table by table.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use perf_data::symbols::{Symbols, demangled};
use results::error::{Error, Exit};
use results::write::Target;
use vmm::sample::{Sample, Sampling};

use crate::inspect::run;
use crate::inspect::run::spec::RunSpec;
use crate::inspect::sampled::{self, GuestSpec, PayloadSpec, ReadyPayload, SamplingOptions, refuse_nested, take_turn};
use crate::machine;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::{job, symbols, userland};
use crate::setting::backend::{ThisHost, choose};
use crate::setting::parse::{duration_in, number_in};
use crate::sys;
use crate::terminal::console::{complain, internal, offer};

/// Options of `vpmu top`.
#[derive(Clone, Debug, Args)]
pub struct TopSpec {
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingOptions,

    /// Time between two tables
    #[arg(long, value_name = "TIME", default_value = "1s",
          value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(3600)))]
    pub interval: Duration,

    /// End the guest after so many tables
    #[arg(long, value_name = "N", value_parser = number_in(1..=1_000_000_000))]
    pub iterations: Option<u64>,

    /// Names of a Linux guest's kernel while it runs, as /proc/kallsyms lists them
    ///
    /// `vpmu record -- linux` leaves such a list of the same kernel: FILE.kallsyms. Without one, functions of a kernel without a
    /// symbol table are shown by page; at the end of --run they have names.
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,

    /// No report of the guest on stderr
    #[arg(short, long)]
    pub quiet: bool,

    /// The guest.
    #[command(subcommand)]
    pub guest: GuestSpec,
}

/// Runs the guest and shows it.
///
/// # Errors
/// Conditions that keep it from starting, and tables that could not be printed.
pub fn top(spec: &TopSpec) -> Result<Exit, Error> {
    spec.sampling.check()?;
    if spec.symbols.is_some() && !matches!(spec.guest, GuestSpec::Linux(_)) {
        let why = "the names of other guests are in their ELF files";
        return Err(Error::usage("--symbols is for Linux guests", why, "leave it out"));
    }
    match spec.guest.clone() {
        GuestSpec::Payload(payload) => of_payload(spec, &payload),
        GuestSpec::Run(image) => of_image(spec, *image),
        GuestSpec::Linux(linux) => of_linux(spec, *linux),
    }
}

fn of_payload(spec: &TopSpec, payload: &PayloadSpec) -> Result<Exit, Error> {
    let ready = ReadyPayload::new(payload)?;
    let names = Names { symbols: Symbols::of_elf(guest::PMU_PAYLOAD).unwrap_or_default(), all: true };
    let sampling = Arc::new(spec.sampling.sampling(false, ready.vcpus));
    let sampled = Arc::clone(&sampling);
    watched(spec, &sampling, names, None, || ready.run(Some(sampled), None, spec.quiet).map(|(exit, _)| exit))
}

fn of_image(spec: &TopSpec, mut image: RunSpec) -> Result<Exit, Error> {
    let backend = choose(&image.counters.backend, &ThisHost)?.backend;
    let bytes = machine::read(&image.image, "the image")?;
    let names = Names { symbols: Symbols::of_elf(&bytes).unwrap_or_default(), all: true };
    if names.symbols.is_empty() {
        complain("warning: the image has no symbols: its functions have no names");
    }
    image.quiet |= spec.quiet;
    let sampling = Arc::new(spec.sampling.sampling(false, image.vcpus));
    image.sampling = Some(Arc::clone(&sampling));
    watched(spec, &sampling, names, None, || run::run(&image, &backend))
}

fn of_linux(spec: &TopSpec, mut linux: LinuxSpec) -> Result<Exit, Error> {
    refuse_nested(&linux)?;
    if linux.run.is_none() && linux.initrd.is_none() {
        return Err(Error::usage("cannot show a guest with a shell", "tables fill its terminal", "give --run COMMAND"));
    }
    let backend = job::backend(&linux)?;
    let known = match &spec.symbols {
        Some(path) => listed(path, "the symbols")?,
        None => Symbols::of_elf(userland::kernel(&linux.kernel)?.image()).unwrap_or_default(),
    };
    let folder = tempfile::tempdir().map_err(|error| Error::host("cannot make a folder", error.to_string(), ""))?;
    let list = folder.path().join("kallsyms");
    if linux.run.is_some() {
        let target = |path: &Path| {
            let cannot = |error: io::Error| Error::host("cannot keep the guest's symbols", error.to_string(), "");
            Ok::<_, Error>(Target::of(path).map_err(cannot)?.private())
        };
        let modules = target(&folder.path().join("modules"))?;
        linux.symbols = Some(symbols::Symbols { kallsyms: target(&list)?, modules, reports: Arc::default() });
    }
    if known.is_empty() {
        complain(if linux.run.is_some() {
            "the kernel's functions have names at the end, when the guest's list of symbols is there; --symbols FILE gives them before"
        } else {
            "warning: without --run the guest's symbols are not fetched: functions of its kernel have no names; give --symbols"
        });
    }
    linux.quiet |= spec.quiet;
    let sampling = Arc::new(spec.sampling.sampling(false, linux.vcpus));
    linux.sampling = Some(Arc::clone(&sampling));
    let late = Some(list.as_path()).filter(|_| linux.run.is_some() && known.is_empty());
    watched(spec, &sampling, Names { symbols: known, all: false }, late, || job::run(&linux, &backend))
}

/// Symbols as `/proc/kallsyms` lists them.
fn listed(path: &Path, what: &str) -> Result<Symbols, Error> {
    let text = machine::read(path, what)?;
    let symbols = Symbols::of_kallsyms(&String::from_utf8_lossy(&text));
    if symbols.is_empty() {
        let what = format!("{} lists no symbols", path.display());
        return Err(Error::usage(
            what,
            "",
            "a list is what /proc/kallsyms says to root, or FILE.kallsyms of vpmu record",
        ));
    }
    Ok(symbols)
}

/// Prints tables while `guest` runs, and then a summary, whose names are those of `late` if it is there.
fn watched(
    spec: &TopSpec,
    sampling: &Sampling,
    mut names: Names,
    late: Option<&Path>,
    guest: impl FnOnce() -> Result<Exit, Error>,
) -> Result<Exit, Error> {
    // Before anything begins: an event that this host does not have.
    sampled::described(sampling, false)?;
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    // Whatever the guest writes to stdout goes to stderr from here on.
    let out = sys::take_stdout().map_err(|error| Error::host("cannot print tables", error.to_string(), ""))?;
    let watch = Watch { out, tables: 0, at: Instant::now(), samples: Tally::new(spec), failed: None, ended: false };
    let done = AtomicBool::new(false);
    let (ended, watch) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch.run(spec, sampling, &names, &done));
        let ended = {
            let _ends = Ends(&done);
            guest()
        };
        (ended, watching.join())
    });
    let watch = watch.map_err(|_| internal("the thread that prints tables panicked", "see above"))?;
    let exit = ended?;
    if let Some(found) = late.and_then(|list| listed(list, "the guest's symbols").ok()) {
        names.symbols = found;
    }
    offer(watch.out.as_fd(), &watch.samples.summary(&names, &lost(sampling)))?;
    match watch.failed {
        Some(error) => Err(error),
        // The end of the tables is not the guest's failure.
        None if watch.ended && exit == Exit::Inconclusive => Ok(Exit::Done),
        None => Ok(exit),
    }
}

/// The guest's end, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the samples that were lost: in a queue of this program's, in the kernel's ring; and the times that an event was throttled.
fn lost(sampling: &Sampling) -> [u64; 3] {
    sampling
        .channels
        .iter()
        .map(|channel| channel.queue.lost())
        .fold([0; 3], |[a, b, c], (queue, kernel, throttled)| [a + queue, b + kernel, c + throttled])
}

/// Interval at which queues are emptied.
const POLL: Duration = Duration::from_millis(10);

/// The thread that takes samples out of the vCPUs' queues and prints tables. No vCPU waits for it.
struct Watch {
    out: OwnedFd,
    tables: u64,
    /// The last table's time.
    at: Instant,
    samples: Tally,
    failed: Option<Error>,
    /// As many tables as were asked for have ended the guest.
    ended: bool,
}

impl Watch {
    fn run(mut self, spec: &TopSpec, sampling: &Sampling, names: &Names, done: &AtomicBool) -> Self {
        let (mut has_reader, interrupt) = (true, || sys::interrupted().store(true, Ordering::Relaxed));
        loop {
            // Looked at before the queues: what is in them at the end is taken out.
            let last = done.load(Ordering::Relaxed);
            let mut more = true;
            while more {
                more = false;
                for channel in &sampling.channels {
                    more |= take_turn(|| channel.queue.pop(), |sample| self.samples.add(&sample));
                }
                more &= last;
            }
            let since = self.at.elapsed();
            if since >= spec.interval || last {
                self.at += since;
                // A guest that did not begin has nothing to show.
                if has_reader && !self.ended && (!last || self.samples.new > 0) {
                    self.tables += 1;
                    let sent = offer(self.out.as_fd(), &self.samples.table(self.tables, since, names, &lost(sampling)));
                    has_reader = matches!(sent, Ok(true));
                    self.failed = sent.err();
                    if !has_reader {
                        interrupt();
                    }
                }
                self.samples.turn(since);
                if !last && has_reader && spec.iterations.is_some_and(|most| self.tables >= most) {
                    self.ended = true;
                    interrupt();
                }
            }
            if last {
                return self;
            }
            std::thread::sleep(POLL);
        }
    }
}

// Samples of functions, since the last table and over all.

/// Place of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// It is at privilege level 3.
    user: bool,
    address: u64,
}

/// The address of code that is not told apart any more.
const OTHERS: u64 = u64::MAX;
/// Most addresses that are told apart; those that come later are one. A guest can make any number.
const MOST_PLACES: usize = 1 << 17;
/// Functions of a table, and of the summary.
const ROWS: [usize; 2] = [20, 10];
/// Longest name that is shown, characters.
const LONGEST: usize = 160;

/// Samples and counts: those of an event, and of the functions of the first event.
#[derive(Debug, Default)]
struct Tally {
    /// Names of the events, with samples and counts since the last table.
    events: Vec<(String, u64, u64)>,
    /// Samples of each place since the last table, and over all.
    places: HashMap<Place, [u64; 2]>,
    /// Samples of all events since the last table, and over all.
    new: u64,
    every: u64,
    time: Duration,
}

impl Tally {
    fn new(spec: &TopSpec) -> Self {
        let events = spec.sampling.event.iter().map(|event| (event.to_string(), 0, 0)).collect();
        Self { events, ..Self::default() }
    }

    fn add(&mut self, sample: &Sample) {
        self.new += 1;
        self.every += 1;
        if let Some((_, samples, counts)) = self.events.get_mut(sample.event) {
            *samples += 1;
            *counts = counts.saturating_add(sample.period);
        }
        if sample.event != 0 {
            return;
        }
        let mut place = Place { user: sample.user, address: sample.rip };
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            place.address = OTHERS;
        }
        let [now, all] = self.places.entry(place).or_default();
        (*now, *all) = (*now + 1, *all + 1);
    }

    /// Begins the next table.
    fn turn(&mut self, length: Duration) {
        self.time += length;
        self.new = 0;
        self.events.iter_mut().for_each(|(_, samples, counts)| (*samples, *counts) = (0, 0));
        self.places.values_mut().for_each(|samples| samples[0] = 0);
    }

    /// Lists the functions, those with most samples first: since the last table (`by` 0), or over all (1).
    fn functions(&self, names: &Names, by: usize) -> Vec<((bool, String), [u64; 2])> {
        let mut found: HashMap<(bool, String), [u64; 2]> = HashMap::new();
        for (&place, samples) in &self.places {
            let sums = found.entry((place.user, names.of(place))).or_default();
            sums.iter_mut().zip(samples).for_each(|(sum, samples)| *sum += samples);
        }
        let mut lines: Vec<_> = found.into_iter().collect();
        let key = |samples: &[u64; 2]| std::cmp::Reverse((samples[by], samples[1]));
        lines.sort_by(|(a, of_a), (b, of_b)| (key(of_a), a).cmp(&(key(of_b), b)));
        lines
    }

    /// Formats the table of the time since the last one.
    fn table(&self, number: u64, length: Duration, names: &Names, lost: &[u64; 3]) -> String {
        let (seconds, at) = (length.as_secs_f64(), (self.time + length).as_secs_f64());
        let functions = self.functions(names, 0);
        let [new, all] = sums(&functions);
        let lost = lost[0] + lost[1];
        let mut text = format!("table {number}  at {at:.3} s  samples {new}  over all {all}  lost {lost}\n");
        for (name, samples, counts) in &self.events {
            let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
            let [samples, counts] = [*samples, *counts].map(per_second);
            let _ = writeln!(text, "event    {name}  samples/s {samples:.1}  counts/s {counts:.1}");
        }
        let _ = writeln!(text, "{:>8}{:>8}  ring  function", "now", "all");
        for ((user, name), samples) in functions.iter().take(ROWS[0]) {
            let [now, over_all] = [percent(samples[0], new), percent(samples[1], all)];
            let _ = writeln!(text, "{now:>6.2} %{over_all:>6.2} %{:>6}  {name}", ring(*user));
        }
        text + "\n"
    }

    /// Formats the summary.
    fn summary(&self, names: &Names, [queue, kernel, throttled]: &[u64; 3]) -> String {
        let mut text =
            format!("summary  {} samples in {:.3} s, {} lost", self.every, self.time.as_secs_f64(), queue + kernel);
        if queue + kernel > 0 {
            let _ = write!(text, " ({queue} since the reader was late, {kernel} since the kernel's ring was full)");
        }
        text.push('\n');
        if *throttled > 0 {
            let _ = writeln!(text, "the kernel throttled an event {throttled} times: sample less often");
        }
        let functions = self.functions(names, 1);
        if functions.is_empty() {
            return text
                + "no sample was taken: the guest ran for less than a period, slept, or the event does not happen\n";
        }
        let [_, all] = sums(&functions);
        let _ = writeln!(text, "{:>8}  ring  function", "all");
        for ((user, name), samples) in functions.iter().take(ROWS[1]) {
            let _ = writeln!(text, "{:>6.2} %{:>6}  {name}", percent(samples[1], all), ring(*user));
        }
        text
    }
}

fn sums(functions: &[((bool, String), [u64; 2])]) -> [u64; 2] {
    [0, 1].map(|by| functions.iter().map(|(_, samples)| samples[by]).sum())
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Names the ring that a function ran in.
const fn ring(user: bool) -> &'static str {
    if user { "3" } else { "0" }
}

/// Names of a guest's addresses, fit for a terminal: a guest chooses its symbols.
struct Names {
    symbols: Symbols,
    /// They are of all code of the guest, not of its kernel alone.
    all: bool,
}

impl Names {
    /// Finds the function, or the page of code that has no name.
    fn of(&self, Place { user, address }: Place) -> String {
        if address == OTHERS {
            return "[others]".to_owned();
        }
        let symbol = if self.all || !user { self.symbols.find(address) } else { None };
        symbol.map_or_else(|| format!("{:#x}xxx", address >> 12), |symbol| escaped(&demangled(symbol)))
    }
}

/// Filters text of a guest's as printable characters, cut.
fn escaped(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { symbols: Symbols::of_kallsyms("1000 T one\n2000 T two\n3000 T _RNvCs4_1a1b\n"), all: true }
    }

    fn tally(events: &[&str]) -> Tally {
        Tally { events: events.iter().map(|name| ((*name).to_owned(), 0, 0)).collect(), ..Tally::default() }
    }

    fn add(tally: &mut Tally, event: usize, user: bool, rip: u64, times: usize) {
        (0..times).for_each(|_| tally.add(&Sample { event, user, rip, period: 10, ..Sample::default() }));
    }

    #[test]
    fn a_table_has_its_interval_and_the_whole_and_a_summary_the_whole() {
        let mut samples = tally(&["cpu-clock", "kvm:kvm_exit"]);
        add(&mut samples, 0, false, 0x1001, 3);
        add(&mut samples, 0, true, 0x2001, 5);
        samples.turn(Duration::from_secs(1));
        add(&mut samples, 0, false, 0x1002, 9);
        add(&mut samples, 0, false, 0x3000, 3);
        add(&mut samples, 1, false, 0x2000, 4);
        assert_eq!(
            samples.table(2, Duration::from_secs(2), &names(), &[2, 1, 0]),
            "\
table 2  at 3.000 s  samples 12  over all 20  lost 3
event    cpu-clock  samples/s 6.0  counts/s 60.0
event    kvm:kvm_exit  samples/s 2.0  counts/s 20.0
     now     all  ring  function
 75.00 % 60.00 %     0  one
 25.00 % 15.00 %     0  a::b
  0.00 % 25.00 %     3  two

"
        );
        samples.turn(Duration::from_secs(2));
        assert_eq!(
            samples.summary(&names(), &[2, 1, 5]),
            "\
summary  24 samples in 3.000 s, 3 lost (2 since the reader was late, 1 since the kernel's ring was full)
the kernel throttled an event 5 times: sample less often
     all  ring  function
 60.00 %     0  one
 25.00 %     3  two
 15.00 %     0  a::b
"
        );
        assert!(tally(&[]).summary(&names(), &[0; 3]).contains("no sample was taken"));
    }

    #[test]
    fn a_guest_that_jumps_anywhere_does_not_grow_the_tally() {
        let mut samples = tally(&["cpu-clock"]);
        for n in 0..MOST_PLACES as u64 + 1000 {
            add(&mut samples, 0, false, 0x10_0000 + n, 1);
        }
        assert_eq!(samples.places.len(), MOST_PLACES + 1);
        assert_eq!(samples.places[&Place { user: false, address: OTHERS }], [1000; 2]);
        assert_eq!(names().of(Place { user: true, address: OTHERS }), "[others]");
    }

    #[test]
    fn what_has_no_name_is_its_page_and_no_symbol_steers_the_terminal() {
        let place = |user, address| Place { user, address };
        assert_eq!(names().of(place(false, 0x1234_5678)), "0x12345xxx");
        let kernel = Names { all: false, ..names() };
        assert_eq!((kernel.of(place(false, 0x1010)), kernel.of(place(true, 0x1010))), ("one".into(), "0x1xxx".into()));
        assert_eq!(escaped("a\x1b[31mb\r\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\u{d}\\u{202e}c\\u{9b}");
        assert_eq!((escaped("core::ptr<é>").as_str(), escaped(&"x".repeat(500)).len()), ("core::ptr<é>", LONGEST + 3));
    }
}
