//! An account as text.

use std::fmt::Write as _;

use results::stats::interval::Interval;

use crate::account::{Account, EventRow, Published, Rate, Sampling, Status, figure, percent};
use crate::counting::Event;

/// Stacks that are shown, and those of which each has at least this share of the samples.
const STACKS: (usize, f64) = (3, 0.05);

/// Formats the account.
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
    writeln!(text, "\n{:<30}{:>10}{:>23}{:>11}", "events per second", "idle", subject.workload, "apart")?;
    for row in account.events.iter().filter(|row| row.not_counted.is_none()) {
        let name = if row.user_mode_only { format!("{}:u", row.event) } else { row.event.clone() };
        let (idle, busy, apart) = (middle(row, row.idle), with_interval(row, row.workload), middle(row, row.apart));
        let mark = if row.rose { "  rose" } else { "" };
        writeln!(text, "  {name:<28}{idle:>10}{busy:>23}{apart:>11}{mark}")?;
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

/// Formats a rate: a clock's is CPUs in use, any other one's events per second.
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
pub(crate) mod tests {
    use results::error::Exit;
    use results::host::HostFacts;

    use super::*;
    use crate::account::{Account, SCHEMA, Speedup, Subject};
    use crate::choice::choose;
    use crate::counting::{ALL, Class};
    use crate::sampling::{Chain, Ended, Losses};
    use crate::stacks::fold;
    use crate::symbols::{Frame, KERNEL};
    use crate::verdict::sentences;

    fn rate(per_second: f64) -> Rate {
        Rate { per_second, interval: None }
    }

    /// Two threads, a host without PMU and tracefs, and chains as rand's.
    pub(crate) fn planted() -> Account {
        let row = |event: &Event| {
            let known = |idle, busy, apart| (Some(rate(idle)), Some(rate(busy)), Some(rate(apart)), None);
            let (idle, workload, apart, not_counted) = match (event.name, event.class) {
                ("context-switches", _) => known(10.0, 240_000.0, 12.0),
                ("task-clock" | "cpu-clock", _) => known(1e6, 1.8e9, 2e9),
                (_, Class::Hardware) => (None, None, None, Some("this host has no PMU".to_owned())),
                (name, _) if name.contains(':') => (None, None, None, Some("no tracefs".to_owned())),
                _ => known(0.0, 0.0, 0.0),
            };
            let rose = workload.is_some_and(|rate| rate.per_second > 10.0);
            EventRow {
                event: event.name.into(),
                class: event.class,
                not_counted,
                user_mode_only: false,
                idle,
                workload,
                apart,
                rose,
            }
        };
        let frame = |symbol: &str, module: &str| Frame { symbol: symbol.into(), module: module.into() };
        let waits = vec![
            frame("schedule", KERNEL),
            frame("futex_wait", KERNEL),
            frame("rand", "libc.so.6"),
            frame("draw_shared", "vpmu"),
        ];
        let mut chains = vec![Chain { frames: waits, ended: Ended::Bottom }; 9];
        chains.push(Chain { frames: vec![frame("f", "x.so")], ended: Ended::Broken(frame("f", "x.so")) });
        let events: Vec<EventRow> = ALL.iter().map(row).collect();
        let subject = Subject {
            workload: "rand".into(),
            about: "threads draw".into(),
            apart: "one generator per thread".into(),
            operation: "draws".into(),
            threads: 2,
            cpus: 2,
            kernel: "6.1.0".into(),
            turn_ms: 200,
        };
        let speedup = Speedup {
            workload: Rate { per_second: 3e6, interval: None },
            apart: Rate { per_second: 24e6, interval: None },
            ratio: 8.0,
            interval: Some(Interval { low: 7.5, high: 8.5 }),
            rounds: 10,
        };
        let published =
            Published { id: "a".into(), source: "b".into(), what: "c".into(), figures: "ratio 9 (s)".into() };
        let mut account = Account {
            schema: SCHEMA,
            tool: "0".into(),
            status: Status::Complete,
            subject,
            host: HostFacts { class: "planted".into(), ..HostFacts::default() },
            rounds: 10,
            choice: choose(&events),
            events,
            sampling: Some(fold("context-switches", 120, &chains, Losses::default(), "vpmu")),
            no_samples: None,
            ratio: Some(speedup),
            verdict: Vec::new(),
            notes: vec!["planted".into()],
            published: vec![published],
        };
        account.verdict = sentences(&account);
        account
    }

    type Change = fn(&mut Account);

    #[test]
    fn accounts_read_as_they_should_and_what_is_missing_is_inconclusive() {
        let changes: [(&str, Change); 8] = [
            ("no ring", |account| (account.sampling, account.no_samples) = (None, Some("no ring".into()))),
            ("no sample", |account| {
                account.sampling = Some(fold("cpu-clock", 1, &[], Losses::default(), "vpmu"));
            }),
            ("no whole round", |account| account.ratio = None),
            ("few rounds", |account| account.ratio.as_mut().unwrap().interval = None),
            ("no clear difference", |account| {
                account.ratio.as_mut().unwrap().interval = Some(Interval { low: 0.9, high: 1.2 });
            }),
            ("interrupted", |account| account.status = Status::Interrupted),
            ("no event", |account| (account.choice, account.sampling) = (None, None)),
            ("broken chains", |account| account.sampling.as_mut().unwrap().complete = 3),
        ];
        let mut shown = text(&planted());
        assert_eq!(planted().exit(), Exit::Done);
        for (what, change) in changes {
            let mut account = planted();
            change(&mut account);
            account.verdict = sentences(&account);
            assert!(account.exit() == Exit::Inconclusive || what == "broken chains", "{what}");
            shown.extend(["\n# ", what, "\n", &account.verdict.join("\n"), "\n"]);
        }
        trials::golden(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/account.txt")), &shown);
    }
}
