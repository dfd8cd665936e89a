//! `reproduce --run perf-stat-setup`: perf's series of 2019 on this host's CPUs.

use std::time::Duration;

use results::document::{Any, Arm, Record, Status};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::metric::{ELAPSED, TOTAL};
use results::paired::{Statistic, level, ratio};
use results::published::{Here, Measured, Number, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout;
use results::verdict::Judged;
use stat_setup::list::software_list;
use stat_setup::model::{CPUS, EVENTS, Shape, orders};
use stat_setup::monitor::Traffic;

use super::run::Simulated;
use crate::experiment::stat_setup::arms::SetUp;
use crate::experiment::stat_setup::peer;
use crate::experiment::stat_setup::spec::{Mode, Peer, StatSetupSpec};
use crate::terminal::progress::Progress;

/// The order of perf before the series, and since.
const ORDERS: [&str; 2] = ["event-major", "cpu-major"];
/// The published machine with the calls of this host.
const MODELLED: &str = "perf-stat-setup.94cpu.this-hosts-calls";

/// Lists software events, seven of ten in a weak group: the model's list. Clocks are left out: the time that a busy host takes from
/// a group's clock looks like a wrong count.
fn events() -> String {
    let all = software_list(2 * EVENTS as usize);
    let names: Vec<&str> = all.split(',').filter(|name| !name.contains("clock")).take(EVENTS as usize).collect();
    let ten = |ten: &[&str]| {
        let (alone, group) = ten.split_at(ten.len() - Shape::PUBLISHED.grouped as usize);
        format!("{},{{{}}}:W", alone.join(","), group.join(","))
    };
    names.chunks_exact(10).map(ten).collect::<Vec<_>>().join(",")
}

/// Predicts, measures and compares.
///
/// # Errors
/// Exit 4 if events cannot be set up here.
pub fn set_up(
    (rounds, duration, seed): (u64, Duration, u64),
    command_line: &[String],
    progress: &mut dyn Progress,
) -> Result<Reproduction, Error> {
    let against = peer::version().is_ok().then_some(Peer::Perf);
    let spec = StatSetupSpec {
        strategies: ORDERS.map(str::to_owned).to_vec(),
        against,
        events: events(),
        cpus: None,
        mode: Mode::Stat,
        count: Duration::ZERO,
        once: false,
        rounds,
        warmup: 0,
        duration: Some(duration),
        seed,
    };
    let (fs, set_up) = (HostFs::default(), SetUp::prepare(&spec)?);
    let host = (HostFacts::begin(&fs), &fs);
    let (experiment, mut arms) = set_up.experiment();
    let (document, error) =
        experiment.measure(&mut arms, host, command_line, progress, (&mut |_| false, &mut |_| Ok(())))?;
    error.map_or(Ok(()), Err)?;
    let cpus = document.size("cpus").unwrap_or_default() as usize;
    let mut found = Simulated::stored()?.beside(&[])?;
    found.seed = spec.seed;
    found.fitted.clear();
    found.rows = rows(found.rows, &document, &set_up, cpus);
    let mut notes = vec![
        format!(
            "{}; Linux {}; {} CPUs. Software events program no PMU; since Linux 5.5 opening a disabled event interrupts no CPU.",
            document.host.class,
            document.host.kernel.as_deref().unwrap_or("unknown"),
            cpus
        ),
        format!(
            "Predicted: the calls of {} as they were timed, and an interrupt and a move by its and {}'s read; {MODELLED}: the same on \
             {CPUS} CPUs.",
            ORDERS[1], ORDERS[0]
        ),
    ];
    let perf = document.arms.iter().filter(|arm| arm.name.starts_with("perf "));
    let perf =
        perf.filter_map(|arm| Some(format!("{} {}", arm.name, layout::time(arm.metrics.get(ELAPSED.key)?.median()))));
    let perf: Vec<String> = perf.collect();
    notes.push(match peer::version() {
        Ok(version) => format!("Stock {version}, whole processes: {}.", perf.join(", ")),
        Err(_) => "There is no perf in PATH to compare with.".to_owned(),
    });
    notes.extend(document.warnings.iter().map(|warning| warning.message.clone()));
    let whole = document.status == Status::Complete && set_up.agree;
    let of = |name: &str| found.rows.iter().find(|row| row.figure.ends_with(name) && row.number == Number::Ratio);
    let times = |value: Option<f64>| value.map_or_else(layout::dash, layout::ratio);
    let (here, there) = (of(".real"), of(MODELLED));
    let conclusion = format!(
        "Event by event takes {} times as long as CPU by CPU on {} CPUs, predicted {}; with these calls on {CPUS} CPUs the model has {} \
         (published: {}).{}",
        times(here.and_then(|row| row.measured.as_ref()).map(|one| one.value)),
        cpus,
        times(here.and_then(|row| row.predicted.first().copied())),
        times(there.and_then(|row| row.predicted.first().copied())),
        times(here.and_then(|row| row.published)),
        if whole { "" } else { " It was not measured whole." }
    );
    found.here = Some(Here { host: document.host, notes, whole, conclusion });
    Ok(found)
}

/// Predicts the times of both orders on `cpus` CPUs, ns, from calls that were timed in this run. What a call takes on its own CPU is
/// known from `cpu-major`; by how much more from another, and what a move takes, from the reads. `None` on one CPU.
fn predicted(document: &Record, here: usize, cpus: usize) -> Option<[f64; 2]> {
    let [event_major, cpu_major] = ORDERS.map(|name| document.arm(name));
    let (event_major, cpu_major) = (event_major?, cpu_major?);
    let (here, rounds) = (here as f64, cpu_major.rounds.len() as f64);
    if here < 2.0 || rounds < 1.0 {
        return None;
    }
    let of_calls = |arm: &Arm<Any>, phase: &str| {
        let calls = arm.metrics.get(&format!("phases/{phase}/call_ns"))?;
        Some((calls.count as f64 / rounds / here, calls.mean?))
    };
    let phases: Option<Vec<_>> =
        ["open", "enable", "read", "disable", "close"].iter().map(|phase| of_calls(cpu_major, phase)).collect();
    let local: f64 = phases?.into_iter().map(|(calls, ns)| calls * ns).sum();
    let (calls, own) = of_calls(cpu_major, "read")?;
    let interrupt = (of_calls(event_major, "read")?.1 - own) * here / (here - 1.0);
    let moved = cpu_major.metrics.get("phases/read/wall_ns")?.median() / here - calls * own;
    let [stay, moving] = orders(document.size("events")?, document.size("groups")?, cpus as u64);
    let local = cpus as f64 * local;
    Some([local + stay.function_calls as f64 * interrupt.max(0.0), local + moving.moves as f64 * moved.max(0.0)])
}

/// Returns the published real times with what was predicted and measured here, and those of the published machine with
/// this host's calls.
fn rows(published: Vec<Row>, document: &Record, set_up: &SetUp, cpus: usize) -> Vec<Row> {
    let [here, there] = [cpus, CPUS as usize].map(|all| predicted(document, cpus, all));
    let arms = ORDERS.map(|name| document.arm(name));
    let why = format!("{cpus} CPUs and software events");
    let mut rows = Vec::new();
    let published = published.into_iter().map(Row::published_alone);
    for row in published.filter(|row| row.figure == "perf-stat-setup.94cpu.real") {
        let of = |times: Option<[f64; 2]>| -> Vec<f64> {
            let number = |[before, after]: [f64; 2]| match row.number {
                Number::Before => before / 1e9,
                Number::After => after / 1e9,
                _ => before / after,
            };
            times.map(number).into_iter().collect()
        };
        let time = |at: usize| {
            let found = level(arms[at]?, TOTAL.key, Statistic::P50)?;
            let seconds = |ns: Interval| Interval { low: ns.low / 1e9, high: ns.high / 1e9 };
            Some((found.ns / 1e9, found.interval.map(seconds)))
        };
        let found = match row.number {
            Number::Before => time(0),
            Number::After => time(1),
            _ => arms[0].zip(arms[1]).and_then(|(before, after)| {
                ratio(before, after, TOTAL.key, Statistic::P50).map(|found| (found.ratio, found.interval))
            }),
        };
        let modelled = Row { figure: MODELLED.to_owned(), predicted: of(there), ..row.clone() };
        rows.push(Row {
            predicted: of(here),
            measured: found.map(|(value, interval)| Measured {
                value,
                interval,
                backend: "software events".to_owned(),
                stand_in: true,
                host: document.host.class.clone(),
            }),
            against_published: found.map(|_| Judged::not_comparable(&why)),
            against_predicted: found
                .filter(|_| here.is_some())
                .map(|(value, interval)| Judged::of(value, interval, &of(here))),
            ..row
        });
        rows.push(modelled);
    }
    rows.sort_by_key(|row| row.figure == MODELLED);
    rows.extend(counts(document, set_up, cpus));
    rows
}

/// Returns the system calls and the interrupts of both orders, by the model and as they were seen in a round. Interrupts of other
/// programs are among those seen.
fn counts(document: &Record, set_up: &SetUp, cpus: usize) -> Vec<Row> {
    let [events, groups] = ["events", "groups"].map(|name| document.size(name).unwrap_or_default());
    let modelled = orders(events, groups, cpus as u64);
    let mut rows = Vec::new();
    for (at, (number, modelled)) in [Number::Before, Number::After].into_iter().zip(modelled).enumerate() {
        let Some(strategy) = set_up.strategies.iter().find(|strategy| strategy.name == ORDERS[at]) else { continue };
        let phases = &strategy.phases;
        let calls = phases.iter().map(|(_, calls, _)| calls).sum();
        let traffic = phases.iter().map(|(.., traffic)| *traffic).reduce(Traffic::plus);
        let interrupts = traffic.and_then(Traffic::interrupts);
        for (unit, what, predicted, seen) in [
            ("calls", "system calls on events and about affinity, here", modelled.syscalls, Some(calls)),
            ("interrupts", "interrupts that CPUs received, here", modelled.interrupts(), interrupts),
        ] {
            rows.push(Row {
                figure: format!("perf-stat-setup.here.{unit}"),
                what: what.to_owned(),
                number,
                unit: unit.to_owned(),
                predicted: vec![predicted as f64],
                measured: seen.map(|count| Measured {
                    value: count as f64,
                    interval: None,
                    backend: "software events".to_owned(),
                    stand_in: true,
                    host: document.host.class.clone(),
                }),
                ..Row::default()
            });
        }
    }
    rows.sort_by(|a, b| a.figure.cmp(&b.figure));
    rows
}
