//! `reproduce --run perf-stat-setup`: perf's series of 2019 on this host's CPUs.

use std::time::Duration;

use results::document::{Arm, Record, Status};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::metric::TOTAL;
use results::paired::{Statistic, level, ratio};
use results::published::{Here, Measured, Number, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout;
use results::verdict::Judged;
use stat_setup::list::software_list;
use stat_setup::model::{EVENTS, Shape, orders};

use super::run::Simulated;
use crate::experiment::stat_setup::arms::SetUp;
use crate::experiment::stat_setup::spec::StatSetupSpec;
use crate::setting::options::{DurationOption, SeedOption};
use crate::setting::parse::defaults;
use crate::terminal::progress::Progress;

/// The order of perf before the series, and since.
const ORDERS: [&str; 2] = ["event-major", "cpu-major"];

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
    let (duration, seed) = (DurationOption { duration: Some(duration) }, SeedOption { seed });
    let strategies = ORDERS.map(str::to_owned).to_vec();
    let spec = StatSetupSpec { strategies, events: events(), rounds, duration, seed, ..defaults() };
    let (fs, set_up) = (HostFs::default(), SetUp::prepare(&spec)?);
    let host = (HostFacts::begin(&fs), &fs);
    let (experiment, mut arms) = set_up.experiment();
    let (document, error) =
        experiment.measure(&mut arms, host, command_line, progress, (&mut |_| false, &mut |_| Ok(())))?;
    error.map_or(Ok(()), Err)?;
    let cpus = document.size("cpus").unwrap_or_default() as usize;
    let mut found = Simulated::stored()?.beside(&[])?;
    found.seed = spec.seed.seed;
    found.fitted.clear();
    found.rows = rows(found.rows, &document, cpus);
    let (class, kernel) = (&document.host.class, document.host.kernel.as_deref().unwrap_or("unknown"));
    let mut notes = vec![
        format!("{class}; Linux {kernel}; {cpus} CPUs. Software events program no PMU."),
        "Predicted: calls as they were timed, by both orders.".to_owned(),
    ];
    notes.extend(document.warnings.iter().map(|warning| warning.message.clone()));
    let whole = document.status == Status::Complete && set_up.whole;
    let row = found.rows.iter().find(|row| row.number == Number::Ratio);
    let times = |value: Option<f64>| value.map_or_else(layout::dash, layout::ratio);
    let conclusion = format!(
        "Event by event takes {} times as long as CPU by CPU on {cpus} CPUs, predicted {}.{}",
        times(row.and_then(|row| row.measured.as_ref()).map(|one| one.value)),
        times(row.and_then(|row| row.predicted.first().copied())),
        if whole { "" } else { " It was not measured whole." }
    );
    found.here = Some(Here { host: document.host, notes, whole, conclusion });
    Ok(found)
}

/// Predicts the times of both orders on these CPUs, ns, from calls that were timed in this run. What a call takes on its own CPU is
/// known from `cpu-major`; by how much more from another, and what a move takes, from the reads. `None` on one CPU.
fn predicted([event_major, cpu_major]: [&Arm; 2], document: &Record, cpus: usize) -> Option<[f64; 2]> {
    let (here, rounds) = (cpus as f64, cpu_major.rounds.len() as f64);
    if here < 2.0 || rounds < 1.0 {
        return None;
    }
    let of_calls = |arm: &Arm, phase: &str| {
        let calls = arm.metrics.get(&format!("phases/{phase}/call_ns"))?;
        Some((calls.count as f64 / rounds / here, calls.mean?))
    };
    let phases: Option<Vec<_>> =
        ["open", "enable", "read", "disable", "close"].iter().map(|phase| of_calls(cpu_major, phase)).collect();
    let local = here * phases?.into_iter().map(|(calls, ns)| calls * ns).sum::<f64>();
    let (calls, own) = of_calls(cpu_major, "read")?;
    let interrupt = (of_calls(event_major, "read")?.1 - own) * here / (here - 1.0);
    let of_move = cpu_major.metrics.get("phases/read/wall_ns")?.median() / here - calls * own;
    let [interrupts, moves] = orders(document.size("events")?, document.size("groups")?, cpus as u64);
    Some([local + interrupts as f64 * interrupt.max(0.0), local + moves as f64 * of_move.max(0.0)])
}

/// Returns the published real times with what was predicted and measured here.
fn rows(published: Vec<Row>, document: &Record, cpus: usize) -> Vec<Row> {
    let [Some(before), Some(after)] = ORDERS.map(|name| document.arm(name)) else { return Vec::new() };
    let here = predicted([before, after], document, cpus);
    let mut rows = Vec::new();
    for row in published.into_iter().filter(|row| row.figure == "perf-stat-setup.94cpu.real") {
        let row = row.published_alone();
        let number = |[before, after]: [f64; 2]| match row.number {
            Number::Before => before / 1e9,
            Number::After => after / 1e9,
            _ => before / after,
        };
        let predicted: Vec<f64> = here.map(number).into_iter().collect();
        let time = |arm: &Arm| {
            let found = level(arm, TOTAL.key, Statistic::P50)?;
            let seconds = |ns: Interval| Interval { low: ns.low / 1e9, high: ns.high / 1e9 };
            Some((found.ns / 1e9, found.interval.map(seconds)))
        };
        let found = match row.number {
            Number::Before => time(before),
            Number::After => time(after),
            _ => ratio(before, after, TOTAL.key, Statistic::P50).map(|found| (found.ratio, found.interval)),
        };
        let (backend, host) = ("software events".to_owned(), document.host.class.clone());
        rows.push(Row {
            measured: found.map(|(value, interval)| Measured { value, interval, backend, stand_in: true, host }),
            against_published: found.map(|_| Judged::not_comparable(&format!("{cpus} CPUs and software events"))),
            against_predicted: found
                .filter(|_| here.is_some())
                .map(|(value, interval)| Judged::of(value, interval, &predicted)),
            predicted,
            ..row
        });
    }
    rows
}
