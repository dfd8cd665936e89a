//! Conclusion in three sentences: the event, the function, the difference without it.

use std::fmt::Write as _;

use results::host::HostFacts;
use results::stats::interval::Interval;

use crate::account::{Account, EventRow, Found, Sampling, Speedup, Subject, figure, percent};
use crate::choice::stand_in;
use crate::counting::Event;
use crate::symbols::Frame;

/// Chains of which fewer reach the beginning of their thread are no basis for a verdict without this being said.
const MOSTLY: f64 = 0.9;

/// Formats the three sentences.
pub fn sentences(account: &Account) -> Vec<String> {
    vec![event(account), function(account), difference(account)]
}

fn threads(subject: &Subject) -> String {
    let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    format!("{} on {}", plural(subject.threads, "thread"), plural(subject.cpus, "CPU"))
}

fn event(account: &Account) -> String {
    let subject = &account.subject;
    let with = format!("{} with {}", subject.workload, threads(subject));
    let Some(choice) = &account.choice else { return format!("No event can be counted here under {with}.") };
    let row = account.events.iter().find(|row| row.event == choice.event);
    let rates = |row: &EventRow| row.idle.zip(row.workload).map(|(idle, busy)| (idle.per_second, busy.per_second));
    let is_time = Event::named(&choice.event).is_some_and(Event::is_time);
    let value = |rate: f64| if is_time { format!("{:.2} CPUs", rate / 1e9) } else { figure(rate) + "/s" };
    match row.and_then(rates) {
        Some((idle, busy)) if row.is_some_and(|row| row.rose) => format!(
            "Under {with} {} rose from {} to {}, and is the event to sample by.",
            choice.event,
            value(idle),
            value(busy)
        ),
        _ => format!("Under {with} the event to sample by is {}.", choice.event),
    }
}

fn function(account: &Account) -> String {
    let kernel = &account.subject.kernel;
    let Some(sampling) = account.sampling.as_ref().filter(|sampling| sampling.samples > 0) else {
        let why = account.no_samples.as_deref().unwrap_or("the event did not happen while it sampled");
        return format!("There is no sample on Linux {kernel}: {why}.");
    };
    let Some(found) = &sampling.found else { return format!("No sample on Linux {kernel} has a name.") };
    let share = percent(found.samples, sampling.samples);
    let mut sentence = format!("On Linux {kernel} {share} of {} samples are {}", sampling.samples, place(found));
    if let Some(below) = &found.kernel {
        let part = percent(found.kernel_samples, found.samples);
        // Writing to a String cannot fail.
        let _ = write!(sentence, "; in the kernel they are most often in {} ({part} of these)", below.symbol);
    }
    let complete = sampling.complete as f64 / sampling.samples as f64;
    if complete < MOSTLY {
        let whole = percent(sampling.complete, sampling.samples);
        let _ = write!(sentence, ", although only {whole} of the chains are complete{}", first_break(sampling));
    }
    sentence + "."
}

fn first_break(sampling: &Sampling) -> String {
    sampling.broken.first().map_or_else(String::new, |broken| format!(" (most others end at {})", broken.at))
}

fn place(found: &Found) -> String {
    let name = |frame: &Frame| format!("{} ({})", frame.symbol, frame.module);
    match (&found.called, &found.program) {
        (Some(called), Some(program)) => format!("in {}, called by {}", name(called), name(program)),
        (None, Some(program)) => format!("in {}", name(program)),
        (_, None) => "outside of the program".to_owned(),
    }
}

fn difference(account: &Account) -> String {
    let apart = &account.subject.apart;
    let Some(speedup) = &account.ratio else {
        return format!("Without a whole round there is no figure for: {apart}.");
    };
    let Speedup { ratio, interval, rounds, .. } = speedup;
    let factor = figure(*ratio);
    let Some(Interval { low, high }) = interval else {
        return format!(
            "The variant ({apart}) does {factor} times the operations; {rounds} rounds are too few for an interval."
        );
    };
    let sure =
        format!("95 % interval {} to {}, {rounds} rounds, {}", figure(*low), figure(*high), threads(&account.subject));
    if speedup.is_distinguishable() {
        format!("The variant ({apart}) does {factor} times the operations ({sure}).")
    } else {
        format!("Whether the variant ({apart}) does more is open: {factor} times the operations ({sure}).")
    }
}

// Remarks about the host that its figures need.

/// A load average of this share of the CPUs is somebody else's.
const BUSY: f64 = 0.5;

/// Returns remarks on a run on so many CPUs. The load is that from before the run.
pub fn notes(host: &HostFacts, cpus: usize, threads: usize, events: &[EventRow]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(load) = host.loadavg_1m.filter(|load| *load >= BUSY * cpus as f64) {
        let clock = events.iter().find(|row| row.event == "task-clock");
        let used = |rate: Option<crate::account::Rate>| rate.map_or(0.0, |rate| rate.per_second / 1e9);
        let (own, apart) = clock.map_or((0.0, 0.0), |row| (used(row.workload), used(row.apart)));
        notes.push(format!(
            "the load was {load:.2} on {cpus} CPUs before it began: the threads had {own:.2} CPUs, the variant's {apart:.2}; threads that \
             do not run at the same time contend less, and the ratio may be lower than on an idle host"
        ));
    }
    if let Some(missed) = stand_in(events) {
        notes.push(format!(
            "branch-misses are {:.0} % of branches, as of no program: something else is counted in the place of hardware events (behind a guest of \
             vpmu a clock), and they say no more than time does",
            100.0 * missed
        ));
    }
    if threads > cpus {
        notes.push(format!("{threads} threads share {cpus} CPUs: a part of the switches is the scheduler's"));
    }
    notes
}
