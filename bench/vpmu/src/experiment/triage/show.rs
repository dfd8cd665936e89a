//! A triage as it is shown: the rates of events, the answer, and what is to be said of both.

use results::document::{Arm, Record};
use results::error::Exit;
use results::paired::{Ratio, Statistic, level, ratio};
use results::stats::interval::Interval;
use results::table::layout::{self, dash, plural, ratio_with};
use results::table::{Report, Table, state};
use triage::choice::Rates;
use triage::counting::Event;

use super::{SAMPLES, TIME};

/// Returns how many times the operations of the workload its variant does.
pub fn speedup(document: &Record) -> Option<Ratio> {
    let [workload, apart, ..] = &document.arms[..] else { return None };
    ratio(workload, apart, TIME, Statistic::P50)
}

/// Returns the exit code: inconclusive without samples or without a difference that is sure.
pub fn exit(document: &Record) -> Exit {
    let sampled = document.arms.iter().filter_map(|arm| arm.metrics.get(SAMPLES)).any(|found| found.max > Some(0));
    let sure = speedup(document).is_some_and(|found| found.is_distinguishable());
    let whole = document.status == results::document::Status::Complete;
    if whole && sampled && sure { Exit::Done } else { Exit::Inconclusive }
}

fn counted<'a>(document: &'a Record, name: &str) -> Option<&'a Arm> {
    document.arm(&format!("{name}, counted"))
}

/// Returns the rates of all events: at rest, under the workload, and under its variant.
fn events(document: &Record, workload: &str) -> Table {
    let arms = ["idle".to_owned(), workload.to_owned(), format!("{workload} apart")];
    let arms = arms.map(|name| counted(document, &name));
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
            let Some(found) = arm.and_then(|arm| level(arm, key, Statistic::P50)) else { return dash() };
            let interval = found.interval.filter(|_| with_interval);
            let interval = interval
                .map_or_else(String::new, |Interval { low, high }| format!(" [{}, {}]", value(low), value(high)));
            value(found.ns) + &interval + if is_time { " CPUs" } else { "" }
        };
        let of = |arm: Option<&Arm>| {
            arm.and_then(|arm| arm.rounds.metrics.get(key)).map_or_else(Vec::new, |column| column.medians().collect())
        };
        let rose = Rates { event: String::new(), idle: of(arms[0]), busy: of(arms[1]) }.rose();
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
    report.gap();
    let second = |arm: &Arm| Some(layout::ratio(1e12 / level(arm, TIME, Statistic::P50)?.ns));
    let rates: Vec<String> = document.arms.iter().take(2).filter_map(second).collect();
    if let [of, apart] = &rates[..] {
        report.note(format!("{} per second, nothing counted: {of}, apart {apart}", parameter("operation")));
    }
    report.note(difference(document));
    state(document, &mut report);
    report
}
