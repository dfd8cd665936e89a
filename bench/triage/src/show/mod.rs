//! An account as text.

use std::fmt::Write as _;

use results::stats::interval::Interval;

use crate::account::{Account, EventRow, Published, Rate, Sampling, Status};
use crate::counting::Event;
use crate::figure::{figure, percent};

/// Stacks that are shown, and those of which each has at least this share of the samples.
const STACKS: (usize, f64) = (3, 0.05);

/// The text.
#[must_use]
pub fn text(account: &Account) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, account);
    let _ = events(&mut text, account);
    let _ = samples(&mut text, account);
    let _ = ratio(&mut text, account);
    text += "\nverdict\n";
    for sentence in &account.verdict {
        let _ = writeln!(text, "  {sentence}");
    }
    for note in &account.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for figure in &account.published {
        let _ = published(&mut text, figure);
    }
    text
}

fn head(text: &mut String, account: &Account) -> std::fmt::Result {
    let subject = &account.subject;
    writeln!(text, "triage of {}: {}", subject.workload, subject.about)?;
    let (threads, cpus, kernel) = (subject.threads, subject.cpus, &subject.kernel);
    let rounds = account.rounds;
    write!(text, "threads {threads}, CPUs {cpus}, Linux {kernel}, rounds {rounds}, turns of {} ms", subject.turn_ms)?;
    writeln!(text, "{}", if account.status == Status::Interrupted { ", interrupted" } else { "" })?;
    writeln!(text, "host: {}", account.host.class)
}

fn events(text: &mut String, account: &Account) -> std::fmt::Result {
    let subject = &account.subject;
    writeln!(text, "\n{:<30}{:>10}{:>26}{:>11}", "events per second", "idle", subject.workload, "apart")?;
    for row in account.events.iter().filter(|row| row.not_counted.is_none()) {
        let name = if row.user_mode_only { format!("{}:u", row.event) } else { row.event.clone() };
        let (idle, busy, apart) = (middle(row, row.idle), with_interval(row, row.workload), middle(row, row.apart));
        let mark = if row.rose { "  rose" } else { "" };
        writeln!(text, "  {name:<28}{idle:>10}{busy:>26}{apart:>11}{mark}")?;
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &account.events {
        let Some(why) = row.not_counted.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&row.event),
            None => reasons.push((why, vec![&row.event])),
        }
    }
    for (why, names) in reasons {
        writeln!(text, "not counted here: {}: {why}", names.join(", "))?;
    }
    if let Some(choice) = &account.choice {
        writeln!(text, "sample by {}: {}", choice.event, choice.why)?;
    }
    Ok(())
}

/// A clock's rate is CPUs in use, any other one's events per second.
fn value(row: &EventRow, per_second: f64) -> String {
    if Event::named(&row.event).is_some_and(Event::is_time) {
        format!("{:.2} CPUs", per_second / 1e9)
    } else {
        figure(per_second)
    }
}

fn middle(row: &EventRow, rate: Option<Rate>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| value(row, rate.per_second))
}

fn with_interval(row: &EventRow, rate: Option<Rate>) -> String {
    let bounds = rate.and_then(|rate| rate.interval).map(|Interval { low, high }| {
        let scale = if Event::named(&row.event).is_some_and(Event::is_time) { 1e9 } else { 1.0 };
        format!(" [{}, {}]", figure(low / scale), figure(high / scale))
    });
    middle(row, rate) + &bounds.unwrap_or_default()
}

fn samples(text: &mut String, account: &Account) -> std::fmt::Result {
    let Some(sampling) = &account.sampling else {
        return writeln!(text, "\nno samples: {}", account.no_samples.as_deref().unwrap_or("none were taken"));
    };
    let Sampling { event, period, samples, lost, .. } = sampling;
    write!(text, "\nsamples: {samples} by {event}, one in {period}, {lost} lost")?;
    if sampling.damaged > 0 {
        write!(text, ", {} not readable", sampling.damaged)?;
    }
    if sampling.throttled > 0 {
        write!(text, ", throttled {} times by the kernel", sampling.throttled)?;
    }
    writeln!(text, "; {} of the chains are complete", percent(sampling.complete, *samples))?;
    for broken in sampling.broken.iter().take(STACKS.0) {
        writeln!(text, "  {} chains broken at {}", broken.samples, broken.at)?;
    }
    let large = |count: usize| count as f64 >= STACKS.1 * *samples as f64;
    for (index, stack) in sampling.stacks.iter().take(STACKS.0).enumerate().filter(|(_, stack)| large(stack.samples)) {
        let which = if index == 0 { "heaviest stack" } else { "next stack" };
        writeln!(text, "{which}: {} samples ({})", stack.samples, percent(stack.samples, *samples))?;
        for frame in &stack.frames {
            writeln!(text, "  {} ({})", frame.symbol, frame.module)?;
        }
    }
    Ok(())
}

fn ratio(text: &mut String, account: &Account) -> std::fmt::Result {
    let Some(speedup) = &account.ratio else { return Ok(()) };
    let operation = &account.subject.operation;
    let rate = |rate: Rate| figure(rate.per_second);
    writeln!(text, "\napart: {}", account.subject.apart)?;
    write!(
        text,
        "{operation} per second, nothing counted: {} against {}, ",
        rate(speedup.apart),
        rate(speedup.workload)
    )?;
    write!(text, "ratio {}", figure(speedup.ratio))?;
    match speedup.interval {
        Some(Interval { low, high }) => write!(text, " [{}, {}]", figure(low), figure(high))?,
        None => write!(text, ", too few rounds for an interval")?,
    }
    writeln!(text, ", {} rounds", speedup.rounds)
}

fn published(text: &mut String, figure: &Published) -> std::fmt::Result {
    writeln!(
        text,
        "published, not measured here: {} [{}]: {}: {}",
        figure.id, figure.source, figure.what, figure.figures
    )
}

#[cfg(test)]
mod tests;
