//! `vpmu triage`: a workload with a known bottleneck, its variant without it, and threads that sleep take turns, with events that count
//! and without; then the workload is sampled by the event that rose.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::document::{Arm, Record, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::paired::{Ratio, level, ratio};
use results::stats::interval::Interval;
use results::table::layout::{self, dash, plural, ratio_with};
use results::table::{Report, Table, state};
use serde_json::json;
use triage::child::{Child, Done, Job, MOST_THREADS, this_program};
use triage::choice::{Rates, VOLUNTARY, choose, stand_in};
use triage::counting::{Counters, Event, Offer, offers};
use triage::sampling::{Sampler, chains};
use triage::stacks::fold;
use triage::symbols::Names;
use triage::workloads::{IDLE, WITH_BOTTLENECK, Workload};

use crate::engine::plain::{Experiment, Plain, Sample};
use crate::engine::{Arm as _, Rounds, Turn};
use crate::setting::options::SeedOption;
use crate::setting::parse::{number_in, one_of};
use crate::setting::pin::usable;
use crate::sys;

/// The experiment's name in documents.
pub const NAME: &str = "triage";
/// The metric of turns without events. Times of one are too short for whole ns.
pub const TIME: &str = "thousand_operations_ns";
/// The metric of samples.
pub const SAMPLES: &str = "samples";
/// The metric of those in spin locks of the kernel, unless it hides its functions.
pub const IN_SPIN_LOCKS: &str = "samples_in_spin_locks";

/// Length of a turn.
const TURN: Duration = Duration::from_millis(200);
/// The sampled run is so many turns long.
const SAMPLED_TURNS: u32 = 5;

/// A kind of turn, by what runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// Threads that sleep.
    Idle,
    /// The workload.
    Workload,
    /// The workload without its bottleneck.
    Apart,
}

/// Returns the threads that are asked for, or the workload's own number for so many CPUs.
///
/// # Errors
/// Exit 2 if it cannot have as many.
pub fn threads(asked: Option<u64>, workload: &Workload, cpus: usize) -> Result<usize, Error> {
    let threads = asked.map_or_else(|| workload.default_threads(cpus), |threads| threads as usize);
    let refuse = |why| Error::usage(format!("{} cannot have these --threads", workload.name), why, "");
    workload.check_threads(threads).map_err(refuse).map(|()| threads)
}

/// Options of `vpmu triage`, apart from where the result goes.
#[derive(Clone, Debug, Args)]
pub struct Spec {
    /// The workload; docs/triage.md says what its variant is
    #[arg(value_name = "WORKLOAD",
          value_parser = one_of(&WITH_BOTTLENECK, |workload| workload.name, |workload| workload.about))]
    pub workload: Workload,

    /// Threads [default: as many as CPUs, two or more]
    #[arg(short, long, value_name = "N", value_parser = number_in(1..=MOST_THREADS as u64))]
    pub threads: Option<u64>,

    /// Rounds, each of five turns: idle, and both variants with and without events that count
    ///
    /// With fewer than five there is no interval, and the end is inconclusive.
    #[arg(long, value_name = "N", default_value = "10", value_parser = number_in(1..=1000))]
    pub rounds: u64,

    /// Samples a second of all threads, about; fewer where each costs much, as in an emulated guest
    #[arg(short = 'F', long, value_name = "HZ", default_value = "1000", value_parser = number_in(1..=10_000))]
    pub frequency: u64,

    /// Seed of the order of turns.
    #[command(flatten)]
    pub seed: SeedOption,

    /// The event to sample by, in place of the one that the counts name
    #[arg(long = "sampled-by", hide = true, value_parser = |name: &str| Event::named(name).ok_or("no such event"))]
    pub event: Option<&'static Event>,

    /// The variants to sample
    #[arg(long, hide = true, value_enum, value_delimiter = ',', default_value = "workload")]
    pub sampled: Vec<Variant>,
}

/// A triage on this host.
#[derive(Debug)]
pub struct Triage {
    spec: Spec,
    threads: usize,
    program: PathBuf,
    cpus: Vec<u32>,
    offers: Vec<Offer>,
}

/// Returns the CPUs that this process may use.
pub fn cpus(host: &HostFacts) -> Vec<u32> {
    usable(host).or_else(|| host.online()).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0])
}

/// The metric of an event's rate.
fn rate_key(event: &str) -> String {
    format!("events/{event}/per_s")
}

/// Returns the name of the arm that runs this, with events that count or without.
fn arm(workload: &str, variant: Variant, counted: bool) -> String {
    let name = match variant {
        Variant::Idle => IDLE.to_owned(),
        Variant::Workload => workload.to_owned(),
        Variant::Apart => format!("{workload} apart"),
    };
    if counted { format!("{name}, counted") } else { name }
}

/// Returns the arm of a document that counts under this.
fn counted(document: &Record, variant: Variant) -> Option<&Arm> {
    document.arm(&arm(&document.parameter("workload")?, variant, true))
}

/// Returns the rates of an event by round, idle and under the workload.
fn rates(document: &Record, event: &str) -> Rates {
    let key = rate_key(event);
    let column = |variant| counted(document, variant)?.rounds.metrics.get(&key);
    let of = |variant| column(variant).map_or_else(Vec::new, |column| column.medians().collect());
    let [idle, busy] = [Variant::Idle, Variant::Workload].map(of);
    Rates { event: event.to_owned(), idle, busy }
}

impl Triage {
    /// Looks for the events of this host.
    ///
    /// # Errors
    /// Exit 4: no event opens; exit 2 for threads that the workload cannot have.
    pub fn prepare(spec: Spec) -> Result<Self, Error> {
        let cpus = cpus(&HostFacts::read(&HostFs::default()));
        let threads = threads(spec.threads, &spec.workload, cpus.len())?;
        let program = this_program().map_err(|error| Error::host("cannot find this program", error.to_string(), ""))?;
        let offers = offers();
        if let Some(Err(why)) = offers.first().map(|first| &first.user_only)
            && offers.iter().all(|offer| offer.user_only.is_err())
        {
            return Err(Error::host("no event can be counted here", why, "see vpmu doctor"));
        }
        Ok(Self { spec, threads, program, cpus, offers })
    }

    /// Returns the experiment, and its arms.
    pub fn experiment(&self) -> (Experiment, Vec<Plain<'_>>) {
        let all = [
            (Variant::Workload, false),
            (Variant::Apart, false),
            (Variant::Idle, true),
            (Variant::Workload, true),
            (Variant::Apart, true),
        ];
        let plain = |(variant, counted)| {
            let backend = if counted { "perf_event_open" } else { "none" };
            Plain::new(arm(self.spec.workload.name, variant, counted), backend, move |_| self.take(variant, counted))
        };
        let mut arms: Vec<_> = all.into_iter().map(plain).collect();
        let (Spec { workload, rounds, seed, .. }, threads) = (&self.spec, self.threads);
        if threads > self.cpus.len() {
            let why = "a part of the switches is the scheduler's";
            arms[0].note(format!("{threads} threads share {} CPUs: {why}", self.cpus.len()));
        }
        let parameters = json!({
            "workload": workload.name,
            "about": workload.about,
            "apart": workload.apart,
            "operation": workload.operation,
            "threads": threads,
            "cpus": self.cpus,
            "rounds": rounds,
            "turn_ns": TURN.as_nanos() as u64,
        });
        (Experiment { name: NAME, parameters, rounds: Rounds::of(*rounds, seed.seed) }, arms)
    }

    /// Runs a workload; `attach` and `begin` are called before it has threads, and before these work.
    fn run<T>(
        &self,
        (variant, turns): (Variant, u32),
        attach: impl FnOnce(i32) -> io::Result<T>,
        begin: impl FnOnce(&T) -> io::Result<()>,
        mut meanwhile: impl FnMut(&mut T),
    ) -> io::Result<(Done, T)> {
        let workload = &self.spec.workload;
        let apart = variant == Variant::Apart;
        let job = Job { threads: self.threads, duration: TURN * turns, apart, program: self.program.clone() };
        let mut child = Child::start(if variant == Variant::Idle { IDLE } else { workload.name }, &job)?;
        let mut attached = attach(child.pid())?;
        child.prepare()?;
        begin(&attached)?;
        child.go()?;
        let done = child.finish(job.duration, || {
            meanwhile(&mut attached);
            !sys::stopped()
        })?;
        Ok((done, attached))
    }

    #[expect(clippy::cast_sign_loss, reason = "rates and times")]
    fn take(&self, variant: Variant, counted: bool) -> Result<Option<Sample>, Error> {
        let attach = |pid| if counted { Counters::attach(pid, &self.offers).map(Some) } else { Ok(None) };
        let begin = |counters: &Option<Counters>| counters.as_ref().map_or(Ok(()), Counters::enable);
        let ran = self.run((variant, 1), attach, begin, |_| ());
        let read = ran.and_then(|(done, counters)| Ok((done, counters.map(Counters::read).transpose()?)));
        let (done, counts) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
            Err(error) => {
                let exit = if error.kind() == ErrorKind::TimedOut { Exit::Inconclusive } else { Exit::Host };
                let what = format!("cannot run the workload {}", self.spec.workload.name);
                return Err(Error::new(exit, what, error.to_string(), "try fewer --threads"));
            }
        };
        let (mut sample, rounded) = (Sample::default(), |value: f64| value.round() as u64);
        let Some(counts) = counts else {
            sample.add(TIME, [rounded(done.seconds * 1e12 / done.operations.max(1) as f64)]);
            return Ok(Some(sample));
        };
        let counts = self.offers.iter().map(|offer| offer.event.name).zip(counts);
        for (event, count) in counts.chain([(VOLUNTARY, Some(done.voluntary_switches as f64))]) {
            sample.add(&rate_key(event), count.map(|count| rounded(count / done.seconds)));
        }
        Ok(Some(sample))
    }

    /// Samples by the event that the counts of the document name, and adds to it what that found.
    pub fn sample(&self, document: &mut Record) {
        let names = self.offers.iter().map(|offer| offer.event.name).chain([VOLUNTARY]);
        let rates: Vec<Rates> = names.map(|name| rates(document, name)).collect();
        let mut notes = self.not_counted(&rates);
        notes.extend(stand_in(&rates).map(|missed| {
            let missed = format!("{} %", layout::percent(missed));
            format!("branch-misses are {missed} of branches, as of no program: a clock counts in the place of hardware events")
        }));
        let asked = self.spec.event.map(|event| (event, "it was asked for".to_owned()));
        if let Some((event, why)) = asked.or_else(|| choose(&rates)) {
            document.parameters.insert("sampled_by".to_owned(), event.name.into());
            notes.push(format!("sampled by {}: {why}", event.name));
            for &variant in &self.spec.sampled {
                match self.sampled(variant, event, &rates) {
                    Ok(arm) => document.arms.push(arm),
                    Err(error) => notes.push(format!("there is no sample: {error}")),
                }
            }
        } else {
            notes.push("there is no sample: no event can be counted".to_owned());
        }
        if let Some(arm) = document.arms.first_mut() {
            arm.notes.extend(notes);
        }
    }

    /// Says which events are not counted here, and why, or in user mode alone.
    fn not_counted(&self, rates: &[Rates]) -> Vec<String> {
        let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (offer, rates) in self.offers.iter().zip(rates) {
            let why = match &offer.user_only {
                Err(why) => format!("not counted here: {why}"),
                Ok(_) if rates.busy.is_empty() => "not counted here: it never had a counter".to_owned(),
                Ok(true) => "counted in user mode only".to_owned(),
                Ok(false) => continue,
            };
            reasons.entry(why).or_default().push(offer.event.name);
        }
        reasons.into_iter().map(|(why, names)| format!("{why}: {}", names.join(", "))).collect()
    }

    /// Samples a run, and returns it as an arm.
    fn sampled(&self, variant: Variant, event: &'static Event, rates: &[Rates]) -> io::Result<Arm> {
        let of_event = self.offers.iter().zip(rates).find(|(offer, _)| offer.event == *event);
        let (offer, rates) = of_event.ok_or_else(|| io::Error::other(format!("{}: unknown", event.name)))?;
        let refused = |why: &String| io::Error::other(format!("{}: {why}", event.name));
        let user_only = *offer.user_only.as_ref().map_err(refused)?;
        let rate = results::stats::median(&rates.busy).unwrap_or(0.0);
        let period = event.period(rate, self.spec.frequency).ok_or_else(|| {
            io::Error::other("it did not happen while it was counted: no period follows from its rate")
        })?;
        let attach = |pid| Sampler::attach(pid, event, user_only, period, &self.cpus);
        let (_, sampler) = self.run((variant, SAMPLED_TURNS), attach, Sampler::enable, Sampler::drain)?;
        let taken = sampler.finish();
        let chains = chains(&taken, &mut Names::of_this_host());
        let program = self.program.canonicalize().unwrap_or_else(|_| self.program.clone());
        let program = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let folded = fold(&chains, &program);
        let mut plain =
            Plain::new(format!("{}, sampled", arm(self.spec.workload.name, variant, false)), event.name, |_| Ok(None));
        let mut sample = Sample::default();
        sample.add(SAMPLES, [chains.len() as u64]);
        sample.add(IN_SPIN_LOCKS, folded.in_spin_locks());
        plain.keep(Turn::default(), sample);
        let rate = format!("{} samples by {}, one in {period}", chains.len(), event.name);
        for note in folded.said(chains.len(), &rate, taken.records.losses) {
            plain.note(note);
        }
        Ok(plain.result())
    }
}

/// Returns how many times the operations of the workload its variant does.
pub fn speedup(document: &Record) -> Option<Ratio> {
    let [workload, apart, ..] = &document.arms[..] else { return None };
    ratio(workload, apart, TIME)
}

/// Returns the exit code: inconclusive without samples or without a difference that is sure.
pub fn exit(document: &Record) -> Exit {
    let sampled = document.arms.iter().filter_map(|arm| arm.metrics.get(SAMPLES)).any(|found| found.max > Some(0));
    let sure = speedup(document).is_some_and(|found| found.is_distinguishable());
    let whole = document.status == Status::Complete;
    if whole && sampled && sure { Exit::Done } else { Exit::Inconclusive }
}

/// Returns the rates of all events: at rest, under the workload, and under its variant.
fn events(document: &Record, workload: &str) -> Table {
    let arms = [Variant::Idle, Variant::Workload, Variant::Apart].map(|variant| counted(document, variant));
    let mut table = Table::new(["events per second", "idle", workload, "apart", ""]);
    let keys = arms[1].into_iter().flat_map(|arm| arm.metrics.keys());
    let names = keys.filter_map(|key| Some((key, key.strip_prefix("events/")?.strip_suffix("/per_s")?)));
    for (key, name) in names {
        if arms.iter().flatten().all(|arm| arm.metrics.get(key).is_none_or(|found| found.count == 0)) {
            continue;
        }
        let is_time = Event::named(name).is_some_and(Event::is_time);
        // A clock's rate is the CPUs in use.
        let value = |rate: f64| if is_time { format!("{:.2}", rate / 1e9) } else { layout::ratio(rate) };
        let rate = |arm: Option<&Arm>, with_interval: bool| {
            let Some(found) = arm.and_then(|arm| level(arm, key)) else { return dash() };
            let interval = found.interval.filter(|_| with_interval);
            let interval = interval
                .map_or_else(String::new, |Interval { low, high }| format!(" [{}, {}]", value(low), value(high)));
            value(found.ns) + &interval + if is_time { " CPUs" } else { "" }
        };
        let rose = rates(document, name).rose();
        let row = [
            rate(arms[0], false),
            rate(arms[1], true),
            rate(arms[2], false),
            if rose { "rose" } else { "" }.to_owned(),
        ];
        table.add_row(std::iter::once(name.to_owned()).chain(row));
    }
    table
}

/// Says how much the variant brings.
fn difference(document: &Record) -> String {
    let apart = document.parameter("apart").unwrap_or_default();
    let Some(found) = speedup(document) else {
        return format!("Without a whole round there is no figure for: {apart}.");
    };
    let (times, of) = (ratio_with(&found), plural(found.rounds, "round"));
    match found.interval {
        None => format!("The variant ({apart}) does {times} times the operations; {of} are too few for an interval."),
        Some(_) if found.is_distinguishable() => {
            format!("The variant ({apart}) does {times} times the operations, in {of} without events.")
        }
        Some(_) => format!("Whether the variant ({apart}) does more is open: {times} times the operations, in {of}."),
    }
}

/// Returns the whole result as it is shown.
pub fn report(document: &Record) -> Report {
    let mut report = Report::new("vpmu triage");
    let parameter = |name: &str| document.parameter(name).unwrap_or_default();
    let workload = parameter("workload");
    report.heading(format!("{workload}: {}", parameter("about")));
    let threads = plural(document.size("threads").unwrap_or_default() as usize, "thread");
    let cpus = plural(document.size("cpus").unwrap_or_default() as usize, "CPU");
    let kernel = document.host.kernel.as_deref().unwrap_or("of unknown release");
    report.note(format!("{threads} on {cpus}, Linux {kernel}"));
    report.table(events(document, &workload));
    let second = |arm: &Arm| Some(layout::ratio(1e12 / level(arm, TIME)?.ns));
    let rates: Vec<String> = document.arms.iter().take(2).filter_map(second).collect();
    if let [of, apart] = &rates[..] {
        report.note(format!("{} per second, nothing counted: {of}, apart {apart}", parameter("operation")));
    }
    report.note(difference(document));
    state(document, &mut report);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_workloads_own_number_unless_asked_for() {
        let pairs = Workload::named("context-switch").unwrap();
        let of = |asked| threads(asked, pairs, 3);
        assert_eq!((of(None), of(Some(6))), (Ok(4), Ok(6)));
        assert!(of(Some(3)).unwrap_err().to_string().contains("even"));
    }
}
