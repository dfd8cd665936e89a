//! The run: preparation, rounds, document.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use host_pmu::stats::ns;
use results::document::{SCHEMA, Status, Warning, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::write::now_unix;
use stat_setup::list::EventList;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::method::Use;
use stat_setup::unit::Outcome;

use super::document::{self, BareCalls, Comparison, Document, EventResult, HostSetUpExtra, Parameters};
use super::measure::{SetUpArm, Setting, Steps, since};
use super::peer::{self, Rivals};
use super::prepare::{self, EventRequest};
use super::ratios;
use super::rounds::{self, Bare, Rounds};
use super::spec::{NAME, Peer, StatSetupSpec};
use crate::engine::Schedule;
use crate::setting::process;
use crate::sys;
use crate::terminal::progress::Progress;

/// Runs the experiment.
///
/// # Errors
/// Exit 2 for bad input; exit 4 if the host cannot do it or the peer is missing.
pub fn run(spec: &StatSetupSpec, command_line: Vec<String>, progress: &mut dyn Progress) -> Result<Document, Error> {
    let began = Instant::now();
    let started_unix = now_unix();
    let fs = HostFs::default();
    let mut host = HostFacts::read(&fs);
    let mut sysfs = Sysfs::host();
    let mut warnings = Vec::new();
    let strategies = spec.strategies()?;
    let request = EventRequest::read(&spec.events)?;
    let list = request.list(&mut sysfs)?;
    warnings.extend(list.notes.iter().map(|note| Warning::of_all("event-list", note.clone())));
    let look_ups = sysfs.look_ups();
    let cpus = prepare::cpus(spec.cpus.as_ref(), &mut sysfs, &mut warnings)?;
    let all_online = cpus == sysfs.online();
    let file_limit = prepare::room((list.events.len() * cpus.len()) as u64, &mut warnings)?;
    let strategies = prepare::affordable(strategies, &list, &cpus, &file_limit, &mut warnings)?;
    let room = file_limit.room;
    let setting = Setting { list: &list, cpus: &cpus, purpose: spec.purpose(), count: spec.count, room };
    let rivals = match spec.against {
        Some(Peer::Perf) => Some(find_perf(spec, &request, &setting, all_online)?),
        None => None,
    };
    let arms: Vec<_> = strategies.iter().map(|name| SetUpArm::new(name, setting.method(name))).collect();
    let (each, rival_runs) = (arms.len() as u64, rivals.as_ref().map_or(0, |rivals| rivals.commands.len() as u64));
    let auto = setting.method("auto");
    let bare = setting.bare(auto).map(|_| Bare { method: auto, walls: Vec::new() });
    progress.begin((2 + spec.warmup) * each + spec.rounds * (each + rival_runs + u64::from(bare.is_some())));
    let mut steps = Steps { progress };
    let mut schedule = Schedule::new(spec.seed);
    let mut rounds = Rounds { arms, rivals, bare, disagreements: Vec::new() };
    let mut status = Status::Complete;
    let done = (|| -> Result<(), Error> {
        rounds::warm_up(&setting, &mut rounds, &mut sysfs, &mut warnings, &mut steps)?;
        rounds::nothing_opens(&setting, &rounds)?;
        rounds::discarded(&setting, &rounds, spec.warmup, &mut steps)?;
        rounds::measure(&setting, &mut rounds, spec, &mut schedule, &mut steps, began)
    })();
    steps.progress.end();
    match done {
        Err(_) if sys::interrupted().load(Ordering::Relaxed) => status = Status::Interrupted,
        other => other?,
    }
    host.finish(&fs);
    let arm_results: Vec<_> = rounds.arms.iter().map(SetUpArm::result).collect();
    let outcomes = rounds.arms.first().map(|arm| arm.outcomes.as_slice()).unwrap_or_default();
    let (bare, peer, ratios) = compared(&rounds);
    let mut document = Document {
        path: PathBuf::new(),
        schema: SCHEMA.to_owned(),
        experiment: NAME.to_owned(),
        place: Some("host".to_owned()),
        tool: process::tool(),
        command_line,
        started_unix,
        wall_ns: since(began),
        status,
        seed: spec.seed,
        parameters: parameters(spec, &strategies, &setting, look_ups),
        host,
        arms: arm_results,
        extra: HostSetUpExtra {
            file_limit,
            agree: rounds.disagreements.is_empty() && rounds.arms.iter().all(|arm| arm.check.is_some()),
            disagreements: rounds.disagreements,
            events: event_results(&list, outcomes),
            bare,
            peer,
            ratios,
        },
        warnings: Vec::new(),
    };
    warn(&mut document, warnings);
    Ok(document)
}

/// Finds perf, to measure the same events in the same rounds.
fn find_perf(
    spec: &StatSetupSpec,
    kind: &EventRequest,
    setting: &Setting<'_>,
    all_online: bool,
) -> Result<Rivals, Error> {
    let (list, cpus, mmap) = (setting.list, setting.cpus, setting.purpose == Use::Mmap);
    Rivals::find(peer::Same { request: &spec.events, kind, list, cpus, all_online, mmap })
}

/// Summarizes the bare calls and perf, and compares all that ran in the rounds.
fn compared(rounds: &Rounds) -> (Option<BareCalls>, Option<document::Peer>, Vec<Comparison>) {
    let outcomes = rounds.arms.first().map(|arm| arm.outcomes.as_slice()).unwrap_or_default();
    let whole = outcomes.iter().filter(|outcome| outcome.is_whole()).count() as u64;
    let walls = rounds.bare.as_ref().map_or(&[][..], |bare| bare.walls.as_slice());
    let mut ratios = rounds.rivals.as_ref().map_or_else(Vec::new, |rivals| rivals.ratios(&rounds.arms, walls));
    ratios.extend(ratios::of_arms(&rounds.arms, walls));
    let peer = rounds.rivals.as_ref().map(|rivals| rivals.result(whole));
    (rounds.bare.as_ref().and_then(Bare::result), peer, ratios::answer_first(ratios))
}

fn parameters(spec: &StatSetupSpec, strategies: &[String], setting: &Setting<'_>, look_ups: (u64, u64)) -> Parameters {
    let mode = if setting.purpose == Use::Mmap { "mmap" } else { "stat" };
    Parameters {
        events_requested: spec.events.chars().take(4096).collect(),
        events: setting.list.events.len() as u64,
        groups: setting.list.groups.len() as u64,
        cpus: setting.cpus.to_vec(),
        mode: format!("{mode}, {} events", prepare::kind(setting.list)),
        strategies: strategies.to_vec(),
        rounds: spec.rounds,
        warmup_rounds: Some(spec.warmup),
        duration_ns: spec.duration.map(ns),
        count_ns: ns(setting.count),
        look_ups,
    }
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
    let lost: u64 =
        document.extra.events.iter().filter(|event| !event.outcome.is_whole()).map(|event| event.copies).sum();
    if lost > 0 {
        let all = document.parameters.events;
        warnings.push(Warning::of_all("not-whole", format!("{lost} of {all} events have no whole count")));
    }
    if !document.extra.agree && document.status == Status::Complete {
        warnings.push(Warning::of_all("disagreement", "the strategies' counts do not agree"));
    }
    warnings.extend(warnings::of_settings(&document.host, &[]));
    document.warnings = warnings;
}
