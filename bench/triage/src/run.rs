//! The whole way: rounds of turns, the choice, the samples, the account.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use results::error::{Error, Exit};
use results::host::HostFacts;
use results::paired::{Pair, median_interval, of_turns};
use results::stats::median;

use crate::account::{Account, Choice, EventRow, Rate, SCHEMA, Sampling, Speedup, Status, Subject, figures};
use crate::child::{Child, Done, Job};
use crate::choice::{VOLUNTARY, choose, rose};
use crate::counting::{Class, Counters, Event, Offer, offers};
use crate::sampling::{Sampler, chains};
use crate::stacks::fold;
use crate::symbols::Names;
use crate::verdict::{notes, sentences};
use crate::workloads::{IDLE, Workload};

/// Samples a second of all threads, about, unless others are asked for.
pub const SAMPLES_PER_SECOND: u32 = 1000;
/// Shortest period of a clock, ns: a tenth of the kernel's own rate limit.
const SHORTEST_CLOCK: u64 = 100_000;
/// The sampled run is so many turns long.
const SAMPLED_TURNS: u32 = 5;

/// Request to a triage.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The workload.
    pub workload: &'static Workload,
    /// Its threads.
    pub threads: usize,
    /// Rounds.
    pub rounds: usize,
    /// Length of a turn.
    pub turn: Duration,
    /// The event to sample by, in place of the one that the counts name.
    pub event: Option<&'static Event>,
    /// Samples a second of all threads, about.
    pub frequency: u32,
    /// Sample the variant without the bottleneck in place of the workload.
    pub sample_apart: bool,
}

/// Place at which it runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// This tool, which has the workloads.
    pub program: PathBuf,
    /// Its version.
    pub tool: String,
    /// CPUs that a child may use.
    pub cpus: Vec<u32>,
    /// The host.
    pub facts: HostFacts,
}

/// A turn of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The baseline, counted.
    Idle,
    /// The workload, counted.
    Counted,
    /// The variant without the bottleneck, counted.
    CountedApart,
    /// The workload, with no event that costs it time.
    Plain,
    /// The variant, the same.
    PlainApart,
}

/// The turns of each round.
const TURNS: [Turn; 5] = [Turn::Idle, Turn::Counted, Turn::CountedApart, Turn::Plain, Turn::PlainApart];

/// Rates of the rounds so far.
#[derive(Debug, Default)]
struct Rates {
    /// Counts of the baseline, the workload and the variant: by round, then by event.
    counted: [Vec<Vec<Option<f64>>>; 3],
    /// Operations of the workload and of the variant, by round.
    plain: [Vec<f64>; 2],
}

/// Runs everything. `step` is called before each turn.
///
/// # Errors
/// Exit 4: no event opens, or the workload cannot run.
pub fn run(spec: &Spec, place: &Place, interrupted: &AtomicBool, step: &mut dyn FnMut(&str)) -> Result<Account, Error> {
    let offers = offers();
    check(&offers, spec.event)?;
    let mut rates = Rates::default();
    let mut rounds = 0;
    for round in 0..spec.rounds {
        match one_round(spec, place, &offers, round, interrupted, step) {
            Ok(found) => rates.add(found),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
            Err(error) => return Err(failed(spec, &error)),
        }
        rounds += 1;
    }
    let events = rates.rows(&offers);
    let choice = spec.event.map_or_else(
        || choose(&events),
        |event| Some(Choice { event: event.name.to_owned(), why: "it was asked for".to_owned() }),
    );
    let (mut sampling, mut no_samples) = (None, None);
    match &choice {
        _ if interrupted.load(Ordering::Relaxed) => no_samples = Some("it was interrupted".to_owned()),
        None => no_samples = Some("no event can be counted".to_owned()),
        Some(choice) => match sample(spec, place, &offers, &events, choice, interrupted, step) {
            Ok(found) => sampling = Some(found),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                no_samples = Some("it was interrupted".to_owned());
            }
            Err(error) => no_samples = Some(format!("{} does not sample here: {error}", choice.event)),
        },
    }
    let status = if interrupted.load(Ordering::Relaxed) { Status::Interrupted } else { Status::Complete };
    let notes = notes(&place.facts, place.cpus.len(), spec.threads, &events);
    let mut account = Account {
        schema: SCHEMA,
        tool: place.tool.clone(),
        status,
        subject: subject(spec, place),
        host: place.facts.clone(),
        rounds,
        events,
        choice,
        sampling,
        no_samples,
        ratio: rates.speedup(),
        verdict: Vec::new(),
        notes,
        published: figures(spec.workload.figures),
    };
    account.verdict = sentences(&account);
    Ok(account)
}

/// Returns the number of steps of a run.
pub fn steps(spec: &Spec) -> u64 {
    (spec.rounds * TURNS.len() + 1) as u64
}

fn check(offers: &[Offer], wanted: Option<&'static Event>) -> Result<(), Error> {
    let reason = |event: &Event| {
        let offer = offers.iter().find(|offer| offer.event == *event);
        offer.and_then(|offer| offer.user_only.as_ref().err())
    };
    if let Some(event) = wanted
        && let Some(why) = reason(event)
    {
        return Err(Error::host(format!("cannot sample by {}", event.name), why, "leave out --event"));
    }
    if offers.iter().all(|offer| offer.user_only.is_err()) {
        let why = offers.first().and_then(|offer| offer.user_only.clone().err()).unwrap_or_default();
        return Err(Error::host("no event can be counted here", why, "see vpmu doctor"));
    }
    Ok(())
}

fn failed(spec: &Spec, error: &io::Error) -> Error {
    let what = format!("cannot run the workload {}", spec.workload.name);
    let exit = if error.kind() == io::ErrorKind::TimedOut { Exit::Inconclusive } else { Exit::Host };
    Error::new(exit, what, error.to_string(), "try fewer --threads")
}

fn subject(spec: &Spec, place: &Place) -> Subject {
    Subject {
        workload: spec.workload.name.to_owned(),
        about: spec.workload.about.to_owned(),
        apart: spec.workload.apart.to_owned(),
        operation: spec.workload.operation.to_owned(),
        threads: spec.threads,
        cpus: place.cpus.len(),
        kernel: place.facts.kernel.clone().unwrap_or_else(|| "of unknown release".to_owned()),
        turn_ms: u64::try_from(spec.turn.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Results of one round, in the order of [`TURNS`].
type Round = Vec<(Turn, Done, Vec<Option<f64>>)>;

fn one_round(
    spec: &Spec,
    place: &Place,
    offers: &[Offer],
    round: usize,
    interrupted: &AtomicBool,
    step: &mut dyn FnMut(&str),
) -> io::Result<Round> {
    let mut found = Vec::new();
    for turn in order(round) {
        let apart = matches!(turn, Turn::CountedApart | Turn::PlainApart);
        let name = if turn == Turn::Idle { IDLE } else { spec.workload.name };
        step(name);
        let job = Job { threads: spec.threads, duration: spec.turn, apart, program: place.program.clone() };
        let mut child = Child::start(name, &job)?;
        let plain = matches!(turn, Turn::Plain | Turn::PlainApart);
        let counters = if plain { None } else { Some(Counters::attach(child.pid(), offers)?) };
        child.prepare()?;
        counters.as_ref().map_or(Ok(()), Counters::enable)?;
        child.go()?;
        let done = child.finish(job.duration, || !interrupted.load(Ordering::Relaxed))?;
        let counts = counters.map_or(Ok(Vec::new()), Counters::read)?;
        found.push((turn, done, counts));
    }
    Ok(found)
}

/// Orders the turns: each round begins with another, and every second one goes the other way round, so that no turn
/// always follows the same one.
fn order(round: usize) -> Vec<Turn> {
    let mut turns = TURNS.to_vec();
    turns.rotate_left(round % TURNS.len());
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

impl Rates {
    fn add(&mut self, round: Round) {
        for (turn, done, counts) in round {
            let sleeps = Some(done.voluntary_switches as f64);
            let per_second =
                counts.iter().chain([&sleeps]).map(|count| count.map(|count| count / done.seconds)).collect();
            match turn {
                Turn::Idle => self.counted[0].push(per_second),
                Turn::Counted => self.counted[1].push(per_second),
                Turn::CountedApart => self.counted[2].push(per_second),
                Turn::Plain => self.plain[0].push(done.rate()),
                Turn::PlainApart => self.plain[1].push(done.rate()),
            }
        }
    }

    fn rows(&self, offers: &[Offer]) -> Vec<EventRow> {
        let of = |at: usize| {
            [0, 1, 2].map(|which| {
                self.counted[which].iter().filter_map(|round| round.get(at).copied().flatten()).collect::<Vec<f64>>()
            })
        };
        let row = |(at, offer): (usize, &Offer)| {
            let [idle, busy, apart] = of(at);
            let never = (offer.user_only.is_ok() && busy.is_empty()).then(|| "it never had a counter".to_owned());
            EventRow {
                event: offer.event.name.to_owned(),
                class: offer.event.class,
                not_counted: offer.user_only.clone().err().or(never),
                user_mode_only: offer.user_only == Ok(true),
                rose: rose(&idle, &busy),
                idle: rate(&idle),
                workload: rate(&busy),
                apart: rate(&apart),
            }
        };
        let [idle, busy, apart] = of(offers.len());
        let sleeps = EventRow {
            event: VOLUNTARY.to_owned(),
            class: Class::Detail,
            not_counted: busy.is_empty().then(|| "no round is whole".to_owned()),
            user_mode_only: false,
            rose: rose(&idle, &busy),
            idle: rate(&idle),
            workload: rate(&busy),
            apart: rate(&apart),
        };
        offers.iter().enumerate().map(row).chain([sleeps]).collect()
    }

    fn speedup(&self) -> Option<Speedup> {
        let [workload, apart] = &self.plain;
        let pairs = (0..).zip(workload.iter().zip(apart)).filter(|(_, (a, b))| **a > 0.0 && **b > 0.0);
        let pairs: Vec<Pair> = pairs.map(|(round, (a, b))| Pair { round, guest: round, log: (b / a).ln() }).collect();
        let found = of_turns(&pairs)?;
        Some(Speedup {
            workload: rate(workload)?,
            apart: rate(apart)?,
            ratio: found.ratio,
            interval: found.interval,
            rounds: found.rounds,
        })
    }
}

fn rate(values: &[f64]) -> Option<Rate> {
    let turns: Vec<u64> = (0..values.len() as u64).collect();
    Some(Rate { per_second: median(values)?, interval: median_interval(values, &turns) })
}

fn sample(
    spec: &Spec,
    place: &Place,
    offers: &[Offer],
    events: &[EventRow],
    choice: &Choice,
    interrupted: &AtomicBool,
    step: &mut dyn FnMut(&str),
) -> io::Result<Sampling> {
    step("samples");
    let offer = offers.iter().find(|offer| offer.event.name == choice.event);
    let Some(Offer { event, user_only: Ok(user_only) }) = offer else { return Err(io::ErrorKind::NotFound.into()) };
    let busy = events.iter().find(|row| row.event == choice.event).and_then(|row| row.workload);
    let Some(period) = period(event, busy.map_or(0.0, |rate| rate.per_second), spec.frequency) else {
        return Err(io::Error::other("it was not counted, or did not happen: no period follows from its rate"));
    };
    let duration = spec.turn * SAMPLED_TURNS;
    let job = Job { threads: spec.threads, duration, apart: spec.sample_apart, program: place.program.clone() };
    let mut child = Child::start(spec.workload.name, &job)?;
    let mut sampler = Sampler::attach(child.pid(), event, *user_only, period, &place.cpus)?;
    child.prepare()?;
    sampler.enable()?;
    child.go()?;
    child.finish(duration, || {
        sampler.drain();
        !interrupted.load(Ordering::Relaxed)
    })?;
    let taken = sampler.finish();
    let chains = chains(&taken, &mut Names::of_this_host());
    let program = place.program.canonicalize().unwrap_or_else(|_| place.program.clone());
    let program = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(fold(event.name, period, &chains, taken.records.losses, &program))
}

/// Counts of a sample, by what all threads count in a second; a clock counts the more, the more CPUs are in use. `None`
/// without a rate.
#[expect(clippy::cast_sign_loss, reason = "a rate")]
fn period(event: &Event, per_second: f64, frequency: u32) -> Option<u64> {
    let least = if event.class == Class::Clock { SHORTEST_CLOCK } else { 1 };
    (per_second > 0.0).then(|| ((per_second / f64::from(frequency)) as u64).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_comes_once_a_round_in_every_place() {
        for place in 0..TURNS.len() {
            let there: Vec<Turn> = (0..10).map(|round| order(round)[place]).collect();
            assert!(TURNS.iter().all(|turn| there.contains(turn)), "{place}: {there:?}");
        }
        assert!((0..10).all(|round| TURNS.iter().all(|turn| order(round).contains(turn))));
    }

    #[test]
    fn periods_give_about_a_thousand_samples_a_second() {
        let switches = Event::named("context-switches").unwrap();
        assert_eq!([240_000.0, 30.0, 0.0].map(|rate| period(switches, rate, 1000)), [Some(240), Some(1), None]);
        let clock = Event::named("cpu-clock").unwrap();
        let periods = [2e9, 1e6, 0.0].map(|rate| period(clock, rate, 1000));
        assert_eq!(periods, [Some(2_000_000), Some(SHORTEST_CLOCK), None]);
    }
}
