//! `stat-setup --in host`: N events on M CPUs, by strategy, beside stock perf.

pub mod document;
pub(crate) mod measure;
pub(crate) mod once;
pub(crate) mod peer;
pub(crate) mod prepare;
pub(crate) mod scaling;
#[cfg(test)]
mod schema;
pub(crate) mod show;

use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stat_setup::choose::{Choice, choose};
use stat_setup::costs::{Costs, calibrate};
use stat_setup::list::EventList;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::monitor::Monitor;
use stat_setup::outcome::Outcome;
use stat_setup::phase::Use;
use stat_setup::verify::differences;

use crate::cli::stat_setup::{Mode, Peer, StatSetupArgs};
use crate::error::{Error, Exit};
use crate::host::{HostFacts, HostFs};
use crate::progress::Progress;
use crate::result::warnings::{self, Warning};
use crate::result::{SCHEMA, Status};
use crate::rounds::schedule::Schedule;
use crate::{sys, tool};
use document::{Document, EventResult, LastClose, Parameters};
use measure::{Arm, Round, Setting, method, since};
use peer::Rivals;
use prepare::Request;

/// Repetitions of the calibration.
const REPETITIONS: u64 = 3;
/// Numbers of events growth is measured over, unless told otherwise.
const SIZES: [usize; 5] = [100, 200, 400, 800, 1600];

/// Measured costs, and what they mean for a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibrated {
    pub(crate) costs: Costs,
}

impl Calibrated {
    fn choice(&self, setting: &Setting<'_>) -> Choice {
        choose(setting.list, setting.cpus.len(), &self.costs)
    }
}

/// Steps of the experiment: shown, and ended by Ctrl-C between two of them.
pub(crate) struct Steps<'a> {
    progress: &'a mut dyn Progress,
}

impl Steps<'_> {
    fn step(&mut self, what: impl FnOnce() -> String) -> Result<(), Error> {
        if sys::interrupted().load(Ordering::Relaxed) {
            return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
        }
        self.progress.run(&what());
        self.progress.step();
        Ok(())
    }
}

/// What the rounds gave.
struct Rounds {
    arms: Vec<Arm>,
    rivals: Option<Rivals>,
    disagreements: Vec<String>,
}

/// Runs the experiment.
///
/// # Errors
/// Bad input, a host that cannot do it, a peer that is missing.
pub(crate) fn experiment(
    args: &StatSetupArgs,
    command_line: Vec<String>,
    progress: &mut dyn Progress,
) -> Result<Document, Error> {
    let began = Instant::now();
    let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let fs = HostFs::default();
    let mut host = HostFacts::read(&fs);
    let mut sysfs = Sysfs::host();
    let mut warnings = Vec::new();
    let request = Request::read(&args.events)?;
    let list = request.list(&mut sysfs)?;
    let look_ups = sysfs.look_ups();
    let cpus = prepare::cpus(args.host.cpus.as_ref(), &mut sysfs, &mut warnings)?;
    let all_online = cpus == sysfs.online();
    let sizes = sizes(args, &list);
    let largest = sizes.iter().copied().max().unwrap_or(0).max(list.events.len());
    let file_limit = prepare::room(largest, cpus.len(), &mut warnings)?;
    let purpose = if args.host.mode == Mode::Mmap { Use::Mmap } else { Use::Stat };
    let setting = Setting { list: &list, cpus: &cpus, purpose, count: args.host.count };
    let mut rivals = None;
    if args.host.against == Some(Peer::Perf) {
        let mmap = purpose == Use::Mmap;
        let same = peer::Same { request: &args.events, kind: &request, list: &list, cpus: &cpus, all_online, mmap };
        rivals = Some(Rivals::find(same)?);
    }
    let calibration = calibrate(&cpus, REPETITIONS);
    let calibrated = Calibrated { costs: calibration.costs };
    let choice = calibrated.choice(&setting);
    let strategies = strategies(args);
    let arms = strategies
        .iter()
        .map(|name| Arm::new(name, method(name, &list, cpus.len(), &calibration.costs, &choice)))
        .collect::<Vec<_>>();
    let each = strategies.len() as u64;
    let rival_runs = rivals.as_ref().map_or(0, |rivals| rivals.commands.len() as u64);
    let total =
        2 * each + args.rounds * (each + rival_runs) + scaling::steps(sizes.len(), cpus.len(), strategies.len());
    progress.begin(total);
    let mut steps = Steps { progress };
    let mut schedule = Schedule::new(args.seed);
    let mut rounds = Rounds { arms, rivals, disagreements: Vec::new() };
    let mut status = Status::Complete;
    let (mut scaling, mut growth, mut last_close) = (Vec::new(), Vec::new(), Vec::new());
    let done = (|| -> Result<(), Error> {
        warm_up(&setting, &mut rounds, &mut sysfs, &mut warnings, &mut steps)?;
        nothing_opens(&setting, &rounds)?;
        measure_rounds(&setting, &mut rounds, args.rounds, &mut schedule, &mut steps, began)?;
        if args.host.last_close {
            last_close = last_closes(&list)?;
        }
        if !sizes.is_empty() {
            let tools = (&mut schedule, &mut steps);
            (scaling, growth) =
                scaling::measure(&sizes, &request, setting, &strategies, &calibrated, &mut sysfs, tools)?;
        }
        Ok(())
    })();
    steps.progress.end();
    match done {
        Err(_) if sys::interrupted().load(Ordering::Relaxed) => status = Status::Interrupted,
        other => other?,
    }
    host.finish(&fs);
    let arm_results: Vec<_> = rounds.arms.iter().map(Arm::result).collect();
    let outcomes = rounds.arms.first().map(|arm| arm.outcomes.as_slice()).unwrap_or_default();
    let whole = outcomes.iter().filter(|outcome| outcome.is_whole()).count() as u64;
    let peer = rounds.rivals.as_ref().map(|rivals| rivals.result(whole, &arm_results));
    let mut document = Document {
        schema: SCHEMA.to_owned(),
        experiment: "stat-setup".to_owned(),
        place: "host".to_owned(),
        tool: tool::this(),
        command_line,
        started_unix,
        wall_ns: since(began),
        status,
        seed: args.seed,
        parameters: parameters(args, &setting, look_ups),
        host,
        file_limit,
        calibration,
        choice,
        arms: arm_results,
        agree: rounds.disagreements.is_empty() && rounds.arms.iter().all(|arm| arm.check.is_some()),
        disagreements: rounds.disagreements,
        events: event_results(&list, outcomes),
        scaling,
        growth,
        peer,
        last_close,
        warnings: Vec::new(),
    };
    warn(&mut document, warnings);
    Ok(document)
}

/// The strategies asked for, each once.
fn strategies(args: &StatSetupArgs) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in &args.host.strategies {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

fn parameters(args: &StatSetupArgs, setting: &Setting<'_>, look_ups: (u64, u64)) -> Parameters {
    let mode = if setting.purpose == Use::Mmap { "mmap" } else { "stat" };
    Parameters {
        events_requested: args.events.chars().take(4096).collect(),
        events: setting.list.events.len() as u64,
        groups: setting.list.groups.len() as u64,
        cpus: setting.cpus.to_vec(),
        mode: format!("{mode}, {} events", prepare::kind(setting.list)),
        strategies: strategies(args),
        rounds: args.rounds,
        count_ns: measure::ns(setting.count),
        look_ups,
    }
}

/// The numbers of events growth is measured over.
fn sizes(args: &StatSetupArgs, list: &EventList) -> Vec<usize> {
    match &args.host.scale {
        Some(scale) => scale.0.clone(),
        // Seconds for each close of a list of tracepoints, times points, strategies and runs.
        None if list.main_class() == Some(stat_setup::list::Class::Tracepoint) => Vec::new(),
        None => SIZES.to_vec(),
    }
}

/// A round whose counts are checked, and one under the monitor's eyes; neither is timed.
fn warm_up(
    setting: &Setting<'_>,
    rounds: &mut Rounds,
    sysfs: &mut Sysfs,
    warnings: &mut Vec<Warning>,
    steps: &mut Steps<'_>,
) -> Result<(), Error> {
    for at in 0..rounds.arms.len() {
        let (first, rest) = rounds.arms.split_at_mut(at);
        let Some(arm) = rest.first_mut() else { break };
        steps.step(|| format!("{}: counts", arm.strategy))?;
        let (check, outcomes) = setting.checked(arm.method);
        let mut found: Vec<String> = check.problems.iter().map(|why| format!("{}: {why}", arm.strategy)).collect();
        if let Some(first) = first.first() {
            let other = differences(setting.list, &first.outcomes, &outcomes);
            found.extend(other.into_iter().map(|why| format!("{} and {}: {why}", first.strategy, arm.strategy)));
        }
        rounds.disagreements.extend(found);
        arm.check = Some(check);
        arm.outcomes = outcomes;
    }
    let monitor = Monitor::open(sysfs);
    if !monitor.missing.is_empty() {
        let message = format!("not counted here: {}", monitor.missing.join("; "));
        warnings.push(Warning::of_all("no-monitor", message));
    }
    for arm in &mut rounds.arms {
        steps.step(|| format!("{}: interrupts", arm.strategy))?;
        arm.traffic = setting.monitored(arm.method, &monitor);
    }
    Ok(())
}

/// There is nothing to time if nothing opens; the first reason serves for all.
fn nothing_opens(setting: &Setting<'_>, rounds: &Rounds) -> Result<(), Error> {
    let Some(arm) = rounds.arms.first() else { return Ok(()) };
    if arm.outcomes.iter().any(Outcome::is_whole) {
        return Ok(());
    }
    let why = setting.list.events.iter().zip(&arm.outcomes).find_map(|(event, outcome)| match outcome {
        Outcome::NotSupported { why } | Outcome::NotCounted { why } => Some(format!("{}: {why}", event.name)),
        _ => None,
    });
    let remedy = "choose other events with --events (perf list shows them), or run as root";
    Err(Error::host("none of the events can be counted here", why.unwrap_or_default(), remedy))
}

fn measure_rounds(
    setting: &Setting<'_>,
    rounds: &mut Rounds,
    count: u64,
    schedule: &mut Schedule,
    steps: &mut Steps<'_>,
    began: Instant,
) -> Result<(), Error> {
    for number in 0..count {
        let rivals = rounds.rivals.as_ref().map_or(0, |rivals| rivals.commands.len());
        let mut done = Vec::new();
        for (position, at) in (0..).zip(schedule.next_round(rounds.arms.len() + rivals)) {
            if let Some(arm) = rounds.arms.get(at) {
                steps.step(|| arm.strategy.clone())?;
                let started_ns = since(began);
                done.push((at, Round { number, position, started_ns, finished: setting.timed(arm.method) }));
            } else if let Some(rivals) = &mut rounds.rivals {
                let rival = &mut rivals.commands[at - rounds.arms.len()];
                steps.step(|| rival.name())?;
                rival.run()?;
            }
        }
        // Only whole rounds count.
        for (at, round) in done {
            rounds.arms[at].rounds.push(round);
        }
    }
    Ok(())
}

fn last_closes(list: &EventList) -> Result<Vec<LastClose>, Error> {
    let ways = stat_setup::last_close::measure(list)
        .map_err(|error| Error::host("cannot measure last closes", error.to_string(), "run as root"))?;
    if ways.is_empty() {
        return Err(Error::usage("--last-close needs tracepoints", "the list has none", "try --events tracepoints:90"));
    }
    let expedited = HostFs::default().number("sys/kernel/rcu_expedited");
    let suffix = expedited.map_or_else(String::new, |value| format!(" (rcu_expedited={value})"));
    let of = |way: stat_setup::last_close::Way| LastClose {
        way: format!("{}{suffix}", way.way),
        tracepoints: way.tracepoints as u64,
        wall_ns: measure::ns(way.wall),
    };
    Ok(ways.into_iter().map(of).collect())
}

fn event_results(list: &EventList, outcomes: &[Outcome]) -> Vec<EventResult> {
    let mut found: Vec<EventResult> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (event, outcome) in list.events.iter().zip(outcomes) {
        let key = (event.name.as_str(), std::mem::discriminant(outcome));
        let at = *known.entry(key).or_insert(found.len());
        match found.get_mut(at) {
            Some(same) => same.copies += 1,
            None => found.push(EventResult {
                name: event.name.clone(),
                copies: 1,
                class: event.class(),
                outcome: outcome.clone(),
            }),
        }
    }
    found
}

/// Warnings about the whole experiment.
fn warn(document: &mut Document, mut warnings: Vec<Warning>) {
    warnings.extend(warnings::of_run(&document.tool, &document.host));
    let lost: u64 = document.events.iter().filter(|event| !event.outcome.is_whole()).map(|event| event.copies).sum();
    if lost > 0 {
        let all = document.parameters.events;
        warnings.push(Warning::of_all("not-whole", format!("{lost} of {all} events have no whole count")));
    }
    if !document.agree && document.status == Status::Complete {
        warnings.push(Warning::of_all("disagreement", "the strategies' counts do not agree"));
    }
    warnings.extend(warnings::of_settings(&document.host, &[]));
    document.warnings = warnings;
}
