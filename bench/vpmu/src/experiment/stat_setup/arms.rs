//! The arms: strategies, the bare calls, and the commands of stock perf. Strategies are checked before the rounds.

use std::collections::BTreeSet;
use std::rc::Rc;

use host_pmu::stats::ns;
use results::error::{Error, Exit};
use results::metric::{TO_COUNTS, TOTAL};
use serde_json::json;
use stat_setup::bare;
use stat_setup::list::parse::parse;
use stat_setup::list::resolve::{UNKNOWN, resolve};
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{Class, Event, EventList};
use stat_setup::method::{Job, Method, Phase};
use stat_setup::run::{Finished, run};
use stat_setup::unit::Outcome;
use stat_setup::verify::{alike, check, differences, plant};

use super::events;
use super::peer::Command;
use super::{NAME, StatSetupSpec};
use crate::engine;
use crate::engine::plain::{Experiment, Plain, Sample};

/// Lines of events without a count, at most.
const NAMED: usize = 100;

/// What every arm sets up.
#[derive(Debug)]
struct Setting {
    list: EventList,
    cpus: Vec<u32>,
    /// One table of descriptors holds all.
    one_table: bool,
}

impl Setting {
    fn method(&self, strategy: &str) -> Method {
        match strategy {
            "event-major" => Method::EVENT_MAJOR,
            "cpu-major" => Method::CPU_MAJOR,
            "threads" => Method::THREADS,
            "packed" => Method::packed(&self.list),
            _ => Method::auto(&self.list, self.cpus.len(), self.one_table),
        }
    }

    /// Sets up; `each` is called after each phase, with the outcomes after the read.
    fn run(&self, method: Method, each: &mut dyn FnMut(Phase, Option<&[Outcome]>)) -> Result<Finished, Error> {
        run(&Job { list: &self.list, cpus: &self.cpus, method }, each).map_err(|why| {
            Error::host("cannot set up by threads", why, "raise pids.max or ulimit -u; or take fewer events or CPUs")
        })
    }

    /// Takes the turn of a strategy that opens so many descriptors.
    fn take(&self, name: &str, method: Method, opened: usize) -> Result<Sample, Error> {
        let finished = self.run(method, &mut |_, _| {})?;
        if finished.opened != opened {
            let why = format!("{} of {opened} descriptors opened", finished.opened);
            return Err(Error::new(Exit::Inconclusive, format!("{name} lost events"), why, ""));
        }
        let upto =
            |last: Phase| ns(finished.phases.iter().filter(|cost| cost.phase <= last).map(|cost| cost.wall).sum());
        let mut sample = Sample::default().with(&TOTAL, [upto(Phase::Close)]).with(&TO_COUNTS, [upto(Phase::Read)]);
        for cost in finished.phases.iter().filter(|cost| !cost.calls_ns.is_empty()) {
            sample.add(&format!("phases/{}/wall_ns", cost.phase.name()), [ns(cost.wall)]);
            sample.add(&format!("phases/{}/call_ns", cost.phase.name()), cost.calls_ns.iter().map(|&ns| ns.into()));
        }
        Ok(sample)
    }

    /// Sets up once around a known amount of work. Returns the arm, the events' outcomes, and whether its counts are right and those of
    /// `first`.
    fn checked(
        self: &Rc<Self>,
        name: &str,
        first: Option<&(String, Vec<Outcome>)>,
    ) -> Result<(Plain<'static>, Vec<Outcome>, bool), Error> {
        let (method, mut planted) = (self.method(name), Ok(()));
        let Finished { phases, outcomes, opened, broken } = self.run(method, &mut |phase, _| {
            if phase == Phase::Enable {
                planted = plant(&self.cpus);
            }
        })?;
        if !outcomes.iter().any(Outcome::is_whole) {
            let why = not_counted(&self.list, &outcomes).into_iter().next().unwrap_or_default();
            let remedy = "choose other events with --events (perf list shows them), or run as root";
            return Err(Error::host("none of the events can be counted here", why, remedy));
        }
        let calls = phases.iter().filter(|cost| matches!(cost.phase, Phase::Enable | Phase::Read));
        let longest = calls.flat_map(|cost| &cost.calls_ns).max().copied().unwrap_or(0).into();
        let check = check(&self.list, &outcomes, self.cpus.len(), longest);
        let planted = planted.err().map(|error| format!("the known work failed: {error}"));
        let problems = check.problems.into_iter().chain(planted);
        let mut wrong: Vec<String> = problems.map(|why| format!("counts are WRONG: {why}")).collect();
        if let Some((other, theirs)) = first {
            let unlike = differences(&self.list, theirs, &outcomes).into_iter();
            wrong.extend(unlike.map(|why| format!("counts differ from {other}'s: {why}")));
        }
        let (setting, owned) = (Rc::clone(self), name.to_owned());
        let take = move |_| setting.take(&owned, method, opened).map(Some);
        let mut arm = Plain::new(name, "perf_event_open", take);
        arm.note(method.to_string());
        let (whole, checked) = (check.whole, check.checked);
        arm.note(format!("{whole} events counted on {opened} descriptors, {checked} checked against planted work"));
        for why in &wrong {
            arm.note(why.clone());
        }
        if broken > 0 {
            arm.note(format!("weak groups broken up: {broken}"));
        }
        Ok((arm, outcomes, wrong.is_empty()))
    }
}

/// An experiment that is ready for its rounds: itself, its arms, and whether all strategies opened and counted the same, each counted
/// right, and every event that the host knows of was counted.
pub(crate) type SetUp = (Experiment, Vec<Plain<'static>>, bool);

/// Sets up once by each strategy around a known amount of work.
///
/// # Errors
/// Exit 2 for bad input; exit 4 if the host cannot do it or the peer is missing.
pub(crate) fn prepare(spec: &StatSetupSpec) -> Result<SetUp, Error> {
    let mut sysfs = Sysfs::host();
    let text = events::text(&spec.events, &sysfs)?;
    let list = resolve(&parse(&text).unwrap_or_default(), &mut sysfs);
    let unknown = |event: &Event| event.open.as_ref().err().filter(|why| why.starts_with(UNKNOWN)).cloned();
    let all: Option<Vec<String>> = list.events.iter().map(unknown).collect();
    if let Some(why) = all.and_then(|all| all.into_iter().next()) {
        return Err(Error::usage("no event of --events is known", why, "`perf list` shows events"));
    }
    let (mut notes, cpus) = (list.notes.clone(), events::cpus(spec.cpus.as_ref(), &mut sysfs)?);
    let (mut names, one_table) = events::affordable(&spec.strategies, &list, &cpus, &mut notes)?;
    let setting = Rc::new(Setting { list, cpus, one_table });
    let all_online = setting.cpus == sysfs.online();
    let commands =
        spec.against.as_ref().map(|_| Command::all(&text, &setting.list, &setting.cpus, all_online)).transpose()?;
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let (mut arms, mut agree, mut first) = (Vec::new(), true, None);
    for name in &names {
        let (arm, outcomes, right) = setting.checked(name, first.as_ref())?;
        agree &= right;
        first.get_or_insert((name.clone(), outcomes));
        arms.push(arm);
    }
    let outcomes = first.map(|(_, outcomes)| outcomes).unwrap_or_default();
    if let Some(first) = arms.first_mut() {
        notes.into_iter().chain(not_counted(&setting.list, &outcomes)).for_each(|note| first.note(note));
    }
    // The closes of tracepoints, in which no method differs, take seconds.
    let auto = setting.method("auto");
    let no_tracepoint = setting.list.events.iter().all(|event| event.class() != Some(Class::Tracepoint));
    if no_tracepoint && bare::run(&setting.list, &setting.cpus, auto).is_some() {
        let setting = Rc::clone(&setting);
        let failed = || Error::new(Exit::Inconclusive, "a bare call failed", "", "leave the host alone meanwhile");
        let take = move |_| {
            let wall = bare::run(&setting.list, &setting.cpus, auto).ok_or_else(failed)?;
            Ok(Some(Sample::default().with(&TOTAL, [ns(wall)])))
        };
        let mut arm = Plain::new("bare calls", "perf_event_open", take);
        arm.note(format!("the limit: open, enable, read, close with nothing around them; {auto}"));
        arms.push(arm);
    }
    arms.extend(commands.into_iter().flatten().map(Command::arm));
    let kind = setting.list.main_class().map_or("unsupported", Class::name);
    let parameters = json!({
        "events_requested": spec.events.chars().take(4096).collect::<String>(),
        "events": setting.list.events.len(),
        "groups": setting.list.groups.len(),
        "cpus": setting.cpus,
        "mode": format!("{kind} events"),
        "strategies": names,
        "rounds": spec.rounds,
        "duration_ns": spec.duration.duration.map(ns),
    });
    let rounds = engine::Rounds { duration: spec.duration.duration, ..engine::Rounds::of(spec.rounds, spec.seed.seed) };
    let whole = agree && !outcomes.iter().any(|outcome| matches!(outcome, Outcome::NotSupported { .. }));
    Ok((Experiment { name: NAME, parameters, rounds }, arms, whole))
}

/// Names events without a count, in perf's terms.
fn not_counted(list: &EventList, outcomes: &[Outcome]) -> Vec<String> {
    let without = list.events.iter().zip(outcomes).filter(|(_, outcome)| !outcome.is_whole());
    let mut lines = alike(without.map(|(event, outcome)| (event.name.as_str(), outcome.to_string())));
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    lines.extend((more > 0).then(|| format!("and {more} more without a count")));
    lines
}
