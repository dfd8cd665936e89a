//! `vpmu list`.

use std::fmt::Write as _;

use clap::Args;
use event_list::guest::{self, GuestEvent};
use event_list::tracepoints::{Tracepoints, fits};
use event_list::{
    Backend, Price, RecordingEvent, backend_names, backends, recording_events, recording_names, recording_tracepoint,
};
use results::error::{Error, Exit, one_line};
use results::table::fold::wrapped;
use results::table::layout::{columns, time};
use serde::Serialize;

use super::show;
use crate::setting::parse::{most_like, suggestion};
use crate::terminal::console::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  # everything, with what creating an event costs here
  vpmu list
  # by name, part of a name, or glob
  vpmu list cycles
  vpmu list 'kvm:kvm_*exit*'
  # one section
  vpmu list tracepoints
  # events that a recording can use on this host
  vpmu list recording --json |
    jq -r '.recording[] | select(.refused == null).name'

Exit codes: 0 done, 2 nothing has such a name,
70 a bug of vpmu.";

/// Options of `vpmu list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Names, parts of names or globs; or a section: backends, guest, recording, tracepoints
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,

    /// Print JSON in place of the list
    #[arg(long)]
    pub json: bool,
}

/// Most tracepoints of which the cost is tried: creating and closing one may take tens of milliseconds.
const MOST_PRICED: usize = 10;

/// Events to list; a section that was not asked for is left out.
#[derive(Debug, Default, Serialize)]
struct Listed {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backends: Vec<Backend>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<show::Item>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    guest: Vec<GuestEvent>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recording: Vec<RecordingEvent>,
    /// With their cost where there are few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tracepoints: Vec<RecordingEvent>,
    /// Why there are no tracepoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_tracepoints: Option<String>,
    /// Tracepoints that are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_tracepoints: Option<usize>,
    /// Tracepoints beyond those that are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    tracepoints_left_out: Option<usize>,
}

const SECTIONS: [&str; 4] = ["backends", "guest", "recording", "tracepoints"];

pub(super) fn run(args: &ListArgs) -> Result<Exit, Error> {
    let (sections, words): (Vec<&String>, Vec<&String>) =
        args.words.iter().partition(|word| SECTIONS.contains(&word.as_str()));
    let found = if has(&sections, "tracepoints") { Tracepoints::of_this_host() } else { Tracepoints::default() };
    check(&sections, &words, &found)?;
    let listed = listed(&sections, &words, found)?;
    if args.json {
        print_json(&listed)?;
    } else {
        print(&text(&listed, columns()))?;
    }
    Ok(Exit::Done)
}

fn has(sections: &[&String], section: &str) -> bool {
    sections.is_empty() || sections.iter().any(|name| *name == section)
}

/// Checks that each word is in a name of a section that was asked for. No event is opened for that.
fn check(sections: &[&String], words: &[&String], found: &Tracepoints) -> Result<(), Error> {
    let mut names: Vec<String> = found.names.clone();
    if has(sections, "backends") {
        names.extend(backend_names());
        names.extend(show::models()?.iter().map(|model| simulated(&model.name)));
    }
    if has(sections, "guest") {
        names.extend(guest::names().map(str::to_owned));
    }
    if has(sections, "recording") {
        names.extend(recording_names().map(str::to_owned));
    }
    match words.iter().find(|word| !names.iter().any(|name| fits(name, word))) {
        Some(word) => Err(unknown(word, found)),
        None => Ok(()),
    }
}

fn unknown(word: &str, found: &Tracepoints) -> Error {
    if let Some((group, name)) = word.split_once('/').filter(|(group, name)| !group.is_empty() && !name.is_empty()) {
        let what = format!("no event has '{word}' in its name");
        return Error::usage(
            what,
            "a tracepoint has a colon in place of the slash",
            format!("vpmu list {group}:{name}"),
        );
    }
    if let Some(like) = most_like(word, found.names.iter().map(String::as_str)).filter(|_| word.contains(':')) {
        let remedy = format!("did you mean {like}? `vpmu list tracepoints` has all");
        return Error::usage(format!("no event has '{word}' in its name"), "", remedy);
    }
    let why = found.missing.as_deref().filter(|_| word.contains(':')).unwrap_or_default();
    let names: Vec<_> = guest::names().chain(SECTIONS).collect();
    Error::usage(format!("no event has '{word}' in its name"), why, suggestion(word, &names, "; `vpmu list` has all"))
}

fn simulated(model: &str) -> String {
    format!("sim:{model}")
}

fn listed(sections: &[&String], words: &[&String], found: Tracepoints) -> Result<Listed, Error> {
    let has = |section: &str| has(sections, section);
    let named = |name: &str| words.is_empty() || words.iter().any(|word| fits(name, word));
    let mut all = Listed::default();
    if has("backends") {
        all.backends = backends(named);
        all.models = show::models()?.into_iter().filter(|model| named(&simulated(&model.name))).collect();
    }
    if has("guest") {
        all.guest = guest::events(named);
    }
    if has("recording") {
        all.recording = recording_events(named);
    }
    if has("tracepoints") {
        all.no_tracepoints = found.missing;
        all.tracepoints_left_out = Some(found.left_out).filter(|&count| count > 0);
        // There are thousands: all of them where they are asked for.
        if sections.is_empty() && words.is_empty() {
            all.more_tracepoints = Some(found.names.len()).filter(|&count| count > 0);
        } else {
            let fit: Vec<_> = found.names.into_iter().filter(|name| named(name)).collect();
            let priced = fit.len() <= MOST_PRICED;
            all.tracepoints = fit.into_iter().map(|name| tracepoint(name, priced)).collect();
        }
    }
    Ok(all)
}

fn tracepoint(name: String, priced: bool) -> RecordingEvent {
    if priced {
        return recording_tracepoint(&name);
    }
    RecordingEvent { name, about: String::new(), refused: None, price: None }
}

/// Columns of names.
const NAME: usize = 18;

fn entry(out: &mut String, name: &str, about: &str, more: Option<String>, width: usize) {
    let indent = " ".repeat(NAME + 4);
    let head = format!("  {name:<NAME$}  ");
    // A name that is too long has a line of its own.
    let first = if name.len() > NAME { format!("  {name}\n{indent}{about}") } else { format!("{head}{about}") };
    for line in first.trim_end().lines() {
        let _ = writeln!(out, "{}", wrapped(line, width, &indent));
    }
    if let Some(more) = more {
        let _ = writeln!(out, "{}", wrapped(&format!("{indent}{}", one_line(&more)), width, &indent));
    }
}

fn here(refused: Option<&String>, price: Option<&Price>) -> Option<String> {
    if let Some(why) = refused {
        return Some(format!("not here: {why}"));
    }
    let price = price?;
    let of = |ns: u64| time(ns as f64);
    let first = if price.first_create_ns > 3 * price.create_ns {
        format!(", the first {}", of(price.first_create_ns))
    } else {
        String::new()
    };
    Some(format!("create {}{first}; close {}", of(price.create_ns), of(price.close_ns)))
}

fn text(listed: &Listed, width: usize) -> String {
    let mut out = String::new();
    if !listed.backends.is_empty() || !listed.models.is_empty() {
        out += "Backends: what may stand behind a guest's counters (--backend)\n";
        for backend in &listed.backends {
            let stand_in = if backend.stand_in { "stand-in: " } else { "" };
            let about = format!("{stand_in}{}", backend.counts);
            entry(&mut out, &backend.key, &about, here(backend.refused.as_ref(), backend.price.as_ref()), width);
        }
        for model in &listed.models {
            entry(&mut out, &simulated(&model.name), &format!("simulated: {}", model.about), None, width);
        }
        out.push('\n');
    }
    if !listed.guest.is_empty() {
        out += &guest_events(&listed.guest, width);
    }
    if !listed.recording.is_empty() {
        out += "Events to record a guest by (vpmu record -e)\n";
        let mut before = None;
        for event in &listed.recording {
            // A host without a PMU has one reason for many.
            let reason = event.refused.as_ref().map(|why| why.replace(&format!("event {}: ", event.name), ""));
            let said = match &reason {
                Some(_) if reason == before => Some("not here either".to_owned()),
                _ => here(reason.as_ref(), event.price.as_ref()),
            };
            entry(&mut out, &event.name, &event.about, said, width);
            before = reason;
        }
        out.push('\n');
    }
    if !listed.tracepoints.is_empty() {
        out += "Tracepoints of this host (vpmu record -e GROUP:NAME, --backend tracepoint:GROUP/NAME)\n";
        for event in &listed.tracepoints {
            entry(&mut out, &event.name, &event.about, here(event.refused.as_ref(), event.price.as_ref()), width);
        }
        out.push('\n');
    }
    if let Some(count) = listed.more_tracepoints {
        let _ = writeln!(out, "{count} tracepoints: vpmu list tracepoints, or vpmu list 'kvm:*'\n");
    }
    if let Some(count) = listed.tracepoints_left_out {
        let _ = writeln!(out, "{count} more tracepoints of this host are left out\n");
    }
    if let Some(why) = &listed.no_tracepoints {
        let _ = writeln!(out, "{}\n", wrapped(&format!("No tracepoints: {why}"), width, "  "));
    }
    let prices = "Costs are medians of events created and closed one after the other on this thread just now; a machine with other work \
                  shows more.";
    if listed.backends.iter().any(|backend| backend.price.is_some())
        || listed.recording.iter().chain(&listed.tracepoints).any(|event| event.price.is_some())
    {
        let _ = writeln!(out, "{}", wrapped(prices, width, ""));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn guest_events(events: &[GuestEvent], width: usize) -> String {
    let mut out = "Events that a guest may select: encodings, and what counts them exactly\n".to_owned();
    let _ = writeln!(out, "  {:<NAME$}{:<8}{:<8}{:<7}{:<10}step", "", "Intel", "AMD", "fixed", "hardware");
    let mut whys: Vec<(&str, &str)> = Vec::new();
    for event in events {
        let code = |code: &Option<String>| code.clone().unwrap_or_else(|| "–".to_owned());
        let fixed = event.fixed_counter.map_or("–".to_owned(), |index| index.to_string());
        let by = |backend: &str| match event.behind.get(backend).map(String::as_str) {
            Some("itself") => "yes",
            _ => "no",
        };
        let _ = writeln!(
            out,
            "  {:<NAME$}{:<8}{:<8}{fixed:<7}{:<10}{}",
            event.name,
            code(&event.intel),
            code(&event.amd),
            by("hardware"),
            by("step")
        );
        if let Some(why) = event.behind.get("hardware").filter(|why| *why != "itself") {
            whys.push((event.name, why));
        }
    }
    let mut note = |line: &str| {
        let _ = writeln!(out, "{}", wrapped(&format!("  {line}"), width, "  "));
    };
    note(
        "hardware: on a host whose PMU opens events at all (backends). Clocks, tracepoints and none stand in for any event.",
    );
    for (name, why) in whys {
        note(&format!("{name}: {why}"));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Listed {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (sections, words): (Vec<&String>, Vec<&String>) =
            words.iter().partition(|word| SECTIONS.contains(&word.as_str()));
        listed(&sections, &words, Tracepoints::of_this_host()).unwrap()
    }

    #[test]
    fn tracepoints_that_are_left_out_are_said() {
        let (section, found) = ("tracepoints".to_owned(), Tracepoints { left_out: 7, ..Tracepoints::default() });
        let listed = listed(&[&section], &[], found).unwrap();
        assert!(text(&listed, 80).contains("7 more tracepoints"), "{listed:?}");
    }

    #[test]
    fn everything_fits_the_terminal_and_names_come_first() {
        let listed = of(&[]);
        for width in [60, 80, 120] {
            let text = text(&listed, width);
            for needle in ["cpu-clock", "sim:development-host", "branch-misses", "rHEX"] {
                assert!(text.contains(&format!("\n  {needle}")), "{text} lacks {needle}");
            }
            let long = text.lines().filter(|line| line.chars().count() > width.max(72));
            assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }

    #[test]
    fn a_word_is_a_section_or_part_of_a_name() {
        let raw = of(&["rHEX"]);
        assert_eq!(raw.recording.len(), 1);
        assert!(raw.backends.is_empty() && raw.guest.is_empty() && !text(&raw, 80).contains("Backends"));
        let guest = of(&["guest"]);
        assert!(guest.recording.is_empty() && guest.guest.len() > 5 && guest.more_tracepoints.is_none());
        let nothing = of(&["no-such-event-anywhere"]);
        assert!(nothing.backends.is_empty() && nothing.recording.is_empty() && nothing.tracepoints.is_empty());
    }

    #[test]
    fn a_name_of_nothing_is_refused_with_what_resembles_it() {
        for words in [&["cyclse"][..], &["cycles", "cyclse"]] {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            let error = run(&ListArgs { words, json: true }).unwrap_err();
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.to_string().contains("cyclse") && error.to_string().contains("cycles"), "{error}");
        }
    }
}
