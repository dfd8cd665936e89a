//! The rounds: checked, monitored, timed.

use std::time::Instant;

use stat_setup::list::sysfs::Sysfs;
use stat_setup::method::{Descriptors, Method};
use stat_setup::monitor::Monitor;
use stat_setup::unit::Outcome;
use stat_setup::verify::differences;

use super::document::BareCalls;
use super::measure::Steps;
use host_pmu::stats::ns;

use super::measure::{SetUpArm, Setting, TimedRound, since};
use super::peer::Rivals;
use super::prepare;
use super::spec::StatSetupSpec;
use crate::engine::Schedule;
use results::document::{Summary, Warning};
use results::error::Error;

/// Results of the rounds.
pub(super) struct Rounds {
    pub(super) arms: Vec<SetUpArm>,
    pub(super) rivals: Option<Rivals>,
    pub(super) bare: Option<Bare>,
    pub(super) disagreements: Vec<String>,
}

/// The bare calls of a method's groups.
pub(super) struct Bare {
    pub(super) method: Method,
    pub(super) walls: Vec<u64>,
}

impl Bare {
    pub(super) fn result(&self) -> Option<BareCalls> {
        (!self.walls.is_empty()).then(|| BareCalls {
            what: format!("open, enable, read, close: {}", self.method),
            wall_ns: Summary::of_values(&self.walls),
            rounds_ns: self.walls.clone(),
        })
    }
}

/// Makes two untimed runs of each arm: one to check its counts, one under the monitor.
pub(super) fn warm_up(
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
        let (check, finished) = setting.checked(arm.method);
        if let Some(why) = finished.short {
            return Err(prepare::short(why));
        }
        let outcomes = finished.outcomes;
        if finished.threadless > 0 {
            let message = format!("{}: {}", arm.strategy, prepare::threadless(finished.threadless));
            warnings.push(Warning::of_all("threads-missing", message));
        }
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
    // Its own descriptors take room, too.
    prepare::room(Descriptors::of(setting.list, setting.cpus).together, warnings)?;
    if !monitor.missing.is_empty() {
        let message = format!("not counted here: {}", monitor.missing.join("; "));
        warnings.push(Warning::of_all("no-monitor", message));
    }
    for arm in &mut rounds.arms {
        steps.step(|| format!("{}: interrupts", arm.strategy))?;
        let (traffic, opened) = setting.monitored(arm.method, &monitor);
        match arm.check.as_ref().map_or(opened, |check| check.opened) {
            whole if whole == opened => arm.traffic = traffic,
            whole => {
                let message = format!(
                    "{}: the round that counts calls and interrupts opened {opened} of {whole} descriptors: not shown",
                    arm.strategy
                );
                warnings.push(Warning::of_all("no-monitor", message));
            }
        }
    }
    Ok(())
}

/// Runs rounds of every arm without figures.
pub(super) fn discarded(
    setting: &Setting<'_>,
    rounds: &Rounds,
    count: u64,
    steps: &mut Steps<'_>,
) -> Result<(), Error> {
    for _ in 0..count {
        for arm in &rounds.arms {
            steps.step(|| format!("{}: warm-up", arm.strategy))?;
            setting.timed(arm.method);
        }
    }
    Ok(())
}

/// Refuses a list of which no event opens, with the reason of the first.
pub(super) fn nothing_opens(setting: &Setting<'_>, rounds: &Rounds) -> Result<(), Error> {
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

pub(super) fn measure(
    setting: &Setting<'_>,
    rounds: &mut Rounds,
    spec: &StatSetupSpec,
    schedule: &mut Schedule,
    steps: &mut Steps<'_>,
    began: Instant,
) -> Result<(), Error> {
    let measuring = Instant::now();
    for number in 0..spec.rounds {
        let rivals = rounds.rivals.as_ref().map_or(0, |rivals| rivals.commands.len());
        let others = rounds.arms.len() + rivals;
        let (mut done, mut bare) = (Vec::new(), None);
        for (position, at) in (0..).zip(schedule.next_round(others + usize::from(rounds.bare.is_some()))) {
            if let Some(arm) = rounds.arms.get(at) {
                steps.step(|| arm.strategy.clone())?;
                let started_ns = since(began);
                done.push((at, TimedRound { number, position, started_ns, finished: setting.timed(arm.method) }));
            } else if let (Some(of), true) = (&rounds.bare, at == others) {
                steps.step(|| "bare calls".to_owned())?;
                bare = setting.bare(of.method);
            } else if let Some(rivals) = &mut rounds.rivals {
                let rival = &mut rivals.commands[at - rounds.arms.len()];
                steps.step(|| rival.name())?;
                rival.run()?;
            }
        }
        // Only complete rounds count.
        for (at, round) in done {
            let (arm, opened) = (&rounds.arms[at], round.finished.opened as u64);
            if let Some(check) = arm.check.as_ref().filter(|check| check.opened != opened) {
                let what = format!("{} of {} descriptors opened in round {number}", opened, check.opened);
                rounds.disagreements.push(format!("{}: {what}", arm.strategy));
            }
            rounds.arms[at].rounds.push(round);
        }
        if let Some(of) = &mut rounds.bare {
            of.walls.extend(bare.map(ns));
        }
        if spec.duration.is_some_and(|bound| measuring.elapsed() >= bound) {
            break;
        }
    }
    Ok(())
}
