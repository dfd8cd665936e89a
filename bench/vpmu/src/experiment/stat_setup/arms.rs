//! The arms: strategies, the bare calls, and the commands of stock perf. Strategies are checked and monitored before the rounds.

use std::time::Duration;

use host_pmu::stats::ns;
use results::error::{Error, Exit};
use results::metric::{TO_COUNTS, TOTAL};
use results::table::layout::time;
use serde_json::{Map, Value, json};
use stat_setup::bare;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{Class, EventList};
use stat_setup::method::{Descriptors, Job, Method, Order, Phase, Use};
use stat_setup::monitor::{COUNTS, Monitor, Traffic};
use stat_setup::run::{Finished, run};
use stat_setup::unit::Outcome;
use stat_setup::verify::{alike, check, differences, plant};

use super::events::{self, EventRequest};
use super::peer::Command;
use super::spec::{NAME, StatSetupSpec};
use crate::engine;
use crate::engine::plain::{Experiment, Plain, Sample};

/// Data pages of perf's default buffer: kernel.perf_event_mlock_kb without the user page.
const RING_PAGES: usize = 128;
/// Events without a count that are named, at most.
const NAMED: usize = 100;

/// What every arm sets up.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) list: EventList,
    pub(crate) cpus: Vec<u32>,
    pub(crate) purpose: Use,
    pub(crate) count: Duration,
    /// Strategies that fit under the limit of open files.
    pub(crate) strategies: Vec<String>,
    /// What is to be said of all this.
    pub(crate) notes: Vec<String>,
    request: EventRequest,
    all_online: bool,
    room: u64,
    look_ups: (u64, u64),
}

impl Setting {
    /// Looks the events up, and makes room for the descriptors of those strategies that fit.
    ///
    /// # Errors
    /// Exit 2 for bad input, exit 4 if the host cannot do it.
    pub(crate) fn of(spec: &StatSetupSpec, strategies: Vec<String>, sysfs: &mut Sysfs) -> Result<Self, Error> {
        let request = EventRequest::read(&spec.events)?;
        let list = request.list(sysfs)?;
        let (mut notes, look_ups) = (list.notes.clone(), sysfs.look_ups());
        let cpus = events::cpus(spec.cpus.as_ref(), sysfs, &mut notes)?;
        let limit = events::room(Descriptors::of(&list, &cpus).together, &mut notes)?;
        let strategies = events::affordable(strategies, &list, &cpus, &limit, &mut notes)?;
        let (all_online, purpose) = (cpus == sysfs.online(), spec.purpose());
        let (room, count) = (limit.room, spec.count);
        Ok(Self { list, cpus, purpose, count, strategies, notes, request, all_online, room, look_ups })
    }

    /// Returns the method of a strategy.
    pub(crate) fn method(&self, strategy: &str) -> Method {
        let one_table = Descriptors::of(&self.list, &self.cpus).fullest(Order::EventMajor) <= self.room;
        match strategy {
            "event-major" => Method::EVENT_MAJOR,
            "cpu-major" => Method::CPU_MAJOR,
            "threads" => Method::THREADS,
            "packed" => Method::packed(&self.list, self.purpose),
            _ => Method::auto(&self.list, self.cpus.len(), self.purpose, one_table),
        }
    }

    pub(crate) fn job(&self, method: Method) -> Job<'_> {
        let Self { list, cpus, purpose, room, .. } = self;
        Job { list, cpus, method, purpose: *purpose, ring_pages: RING_PAGES, room: *room }
    }

    /// Takes the turn of a strategy that opens so many descriptors.
    fn take(&self, name: &str, method: Method, opened: u64) -> Result<Sample, Error> {
        let finished = run(&self.job(method), &mut |phase, _| {
            if phase == Phase::Enable && !self.count.is_zero() {
                std::thread::sleep(self.count);
            }
        });
        if finished.opened as u64 != opened {
            let why = format!("{} of {opened} descriptors opened", finished.opened);
            return Err(Error::new(Exit::Inconclusive, format!("{name} lost events"), why, ""));
        }
        let upto =
            |last: Phase| ns(finished.phases.iter().filter(|cost| cost.phase <= last).map(|cost| cost.wall).sum());
        let mut sample = Sample::default().with(&TOTAL, [upto(Phase::LastClose)]);
        if self.purpose == Use::Stat {
            sample = sample.with(&TO_COUNTS, [upto(Phase::Read)]);
        }
        for cost in finished.phases.iter().filter(|cost| !cost.calls_ns.is_empty()) {
            sample.add(&format!("phases/{}/wall_ns", cost.phase.name()), [ns(cost.wall)]);
            sample.add(&format!("phases/{}/call_ns", cost.phase.name()), cost.calls_ns.iter().map(|&ns| ns.into()));
        }
        Ok(sample)
    }

    /// Measures the bare calls of `method`'s groups: their time with nothing around them. `None` where one fails, and of
    /// tracepoints: their closes, in which `auto` differs, take seconds.
    fn bare(&self, method: Method) -> Option<Duration> {
        let no_tracepoint = self.list.events.iter().all(|event| event.class() != Some(Class::Tracepoint));
        (self.purpose == Use::Stat && no_tracepoint).then(|| bare::run(&self.list, &self.cpus, method))?
    }
}

/// A phase as it was monitored: calls on events and about affinity, and all that came of them.
pub(crate) type Monitored = (Phase, u64, Traffic);

/// A strategy that was checked.
#[derive(Debug)]
pub(crate) struct Strategy {
    pub(crate) name: String,
    method: Method,
    opened: u64,
    pub(crate) phases: Vec<Monitored>,
    notes: Vec<String>,
}

/// A set-up that is ready for its rounds.
#[derive(Debug)]
pub(crate) struct SetUp {
    setting: Setting,
    pub(crate) strategies: Vec<Strategy>,
    bare: Option<Method>,
    commands: Vec<Command>,
    rounds: engine::Rounds,
    parameters: Map<String, Value>,
    /// All strategies opened and counted the same, and each counted right.
    pub(crate) agree: bool,
    /// Every event that the host knows of was counted.
    pub(crate) whole: bool,
}

impl SetUp {
    /// Sets up once by each strategy around a known amount of work, and once under the monitor.
    ///
    /// # Errors
    /// Exit 2 for bad input; exit 4 if the host cannot do it or the peer is missing.
    pub(crate) fn prepare(spec: &StatSetupSpec) -> Result<Self, Error> {
        let mut sysfs = Sysfs::host();
        let setting = Setting::of(spec, spec.strategies()?, &mut sysfs)?;
        let commands = match spec.against {
            Some(_) => Command::all(
                &spec.events,
                &setting.request,
                &setting.list,
                &setting.cpus,
                setting.all_online,
                setting.purpose,
            )?,
            None => Vec::new(),
        };
        let mut strategies = Vec::new();
        let (mut agree, mut first) = (true, None);
        for name in &setting.strategies {
            let (strategy, outcomes, right) = checked(&setting, name, first.as_ref())?;
            agree &= right;
            first.get_or_insert((name.clone(), outcomes));
            strategies.push(strategy);
        }
        let outcomes = first.map(|(_, outcomes)| outcomes).unwrap_or_default();
        monitored(&setting, &mut strategies, &mut sysfs)?;
        let auto = setting.method("auto");
        let bare = setting.bare(auto).map(|_| auto);
        if let Some(first) = strategies.first_mut() {
            first.notes.extend(setting.notes.iter().cloned());
            first.notes.extend(not_counted(&setting.list, &outcomes));
        }
        let whole = !outcomes.iter().any(|outcome| matches!(outcome, Outcome::NotSupported { .. }));
        let StatSetupSpec { rounds, warmup, duration, seed, .. } = *spec;
        let rounds = engine::Rounds { rounds, warmup, session: None, duration, seed, simulated: false };
        let parameters = parameters(spec, &setting);
        Ok(Self { setting, strategies, bare, commands, rounds, parameters, agree, whole })
    }

    /// Returns the experiment, and its arms.
    pub(crate) fn experiment(&self) -> (Experiment, Vec<Plain<'_>>) {
        let mut arms = Vec::new();
        for Strategy { name, method, opened, notes, .. } in &self.strategies {
            let mut arm = Plain::new(name, "perf_event_open", |_| self.setting.take(name, *method, *opened).map(Some));
            for note in notes {
                arm.note(note);
            }
            arms.push(arm);
        }
        if let Some(method) = self.bare {
            let failed = || Error::new(Exit::Inconclusive, "a bare call failed", "", "leave the host alone meanwhile");
            let take = move |_| {
                let wall = self.setting.bare(method).ok_or_else(failed)?;
                Ok(Some(Sample::default().with(&TOTAL, [ns(wall)])))
            };
            let mut arm = Plain::new("bare calls", "perf_event_open", take);
            arm.note(format!("the limit: open, enable, read, close with nothing around them; {method}"));
            arms.push(arm);
        }
        for command in &self.commands {
            let mut arm = Plain::new(&command.name, "process", |_| command.take());
            for note in &command.notes {
                arm.note(note);
            }
            arms.push(arm);
        }
        (Experiment { name: NAME, parameters: self.parameters.clone(), rounds: self.rounds, expected: None }, arms)
    }
}

fn parameters(spec: &StatSetupSpec, setting: &Setting) -> Map<String, Value> {
    let mode = if setting.purpose == Use::Mmap { "mmap" } else { "stat" };
    let parameters = json!({
        "events_requested": spec.events.chars().take(4096).collect::<String>(),
        "events": setting.list.events.len(),
        "groups": setting.list.groups.len(),
        "cpus": setting.cpus,
        "mode": format!("{mode}, {} events", events::kind(&setting.list)),
        "strategies": setting.strategies,
        "rounds": spec.rounds,
        "warmup_rounds": spec.warmup,
        "duration_ns": spec.duration.map(ns),
        "count_ns": ns(setting.count),
        "look_ups": setting.look_ups,
    });
    if let Value::Object(parameters) = parameters { parameters } else { Map::new() }
}

/// Sets up once around a known amount of work; also returns the events' outcomes, and whether its counts are right and those of `first`.
fn checked(
    setting: &Setting,
    name: &str,
    first: Option<&(String, Vec<Outcome>)>,
) -> Result<(Strategy, Vec<Outcome>, bool), Error> {
    let (method, mut planted) = (setting.method(name), Ok(()));
    let finished = run(&setting.job(method), &mut |phase, _| {
        if phase == Phase::Enable {
            planted = plant(&setting.cpus);
        }
    });
    let Finished { phases, outcomes, opened, broken, threadless, short } = finished;
    if let Some(why) = short {
        return Err(events::short(why));
    }
    if !outcomes.iter().any(Outcome::is_whole) {
        let why = not_counted(&setting.list, &outcomes).into_iter().next().unwrap_or_default();
        let remedy = "choose other events with --events (perf list shows them), or run as root";
        return Err(Error::host("none of the events can be counted here", why, remedy));
    }
    let calls = phases.iter().filter(|cost| matches!(cost.phase, Phase::Enable | Phase::Read));
    let longest = calls.flat_map(|cost| &cost.calls_ns).max().copied().unwrap_or(0).into();
    let check = check(&setting.list, &outcomes, setting.cpus.len(), longest);
    let mut wrong = check.problems;
    wrong.extend(planted.err().map(|error| format!("the known work failed: {error}")));
    if let Some((other, theirs)) = first {
        wrong.extend(
            differences(&setting.list, theirs, &outcomes).into_iter().map(|why| format!("not as {other}: {why}")),
        );
    }
    let mut notes = vec![
        method.to_string(),
        format!(
            "{} events counted on {opened} descriptors, {} of them checked against planted work",
            check.whole, check.checked
        ),
    ];
    let right = wrong.is_empty();
    notes.extend(wrong.into_iter().map(|why| format!("counts are WRONG: {why}")));
    notes.extend((broken > 0).then(|| format!("weak groups broken up: {broken}")));
    notes.extend((threadless > 0).then(|| events::threadless(threadless)));
    let strategy = Strategy { name: name.to_owned(), method, opened: opened as u64, phases: Vec::new(), notes };
    Ok((strategy, outcomes, right))
}

/// Sets up once by each strategy under the monitor. Counting costs time: none of it is in a timed round.
fn monitored(setting: &Setting, strategies: &mut [Strategy], sysfs: &mut Sysfs) -> Result<(), Error> {
    let monitor = Monitor::open(sysfs);
    // Its own descriptors take room, too.
    events::room(Descriptors::of(&setting.list, &setting.cpus).together, &mut Vec::new())?;
    for strategy in strategies {
        let mut traffic = Vec::new();
        let mut began = monitor.begin();
        let finished = run(&setting.job(strategy.method), &mut |_, _| {
            traffic.push(monitor.end(began));
            began = monitor.begin();
        });
        if finished.opened as u64 != strategy.opened {
            let (opened, all) = (finished.opened, strategy.opened);
            strategy.notes.push(format!("the monitored round opened {opened} of {all} descriptors: not shown"));
            continue;
        }
        let phases = finished.phases.iter().zip(traffic);
        strategy.phases = phases.clone().map(|(cost, traffic)| (cost.phase, cost.syscalls, traffic)).collect();
        let shown = phases.map(|(cost, Traffic(counts))| {
            let counts = counts.map(|count| count.map_or_else(|| "?".to_owned(), |count| count.to_string()));
            let [user, sys] = [cost.user, cost.sys].map(|cpu| time(cpu.as_nanos() as f64));
            format!("{} {}/{}, {user} + {sys}", cost.phase.name(), cost.syscalls, counts.join("/"))
        });
        let shown: Vec<String> = shown.collect();
        strategy.notes.push(format!("monitored, calls/{}, user + sys: {}", COUNTS.join("/"), shown.join("; ")));
        strategy.notes.extend(monitor.missing.iter().map(|why| format!("not counted: {why}")));
    }
    Ok(())
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
