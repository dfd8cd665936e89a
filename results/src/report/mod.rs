//! `vpmu report`: one self-contained HTML page of results.
//!
//! The answer comes first: each kind's arms against the floor with intervals. The page loads nothing: plots are SVG
//! within it, and its content security policy allows one script, ours, which shows values under the pointer; without it
//! nothing is missing. Everything in it that comes from a document is escaped, by the template engine or by the
//! plotting library. Data that do not fit are thinned or left out by the constants here, and the page says so.

mod by_parameter;
mod figure;
mod front;
mod group;
mod hosts;
mod latency;
pub mod published;
pub mod strategies;
mod sweep;

pub use figure::STYLE;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use figure::{Figure, Table, dash};
use group::{Group, groups};
use hosts::Host;
use latency::date;
use published::Published;
use strategies::Answer;

use crate::advice;
use crate::document::warnings::{LATE_PERIODS, LIVELOCK};
use crate::document::{Any, Arm, ArmKind, Record, Status, Tool, Warning};
use crate::error::Error;
use crate::metric;
use crate::paired::{self, Statistic};
use crate::plot::Inks;
use crate::published::Reproduction;
use crate::table::column::{self, Figures, Place};
use crate::table::fold;
use crate::table::layout::{level, plural, ratio, ratio_with, time};

/// Kinds of results with plots of their own, the newest; the overview has all.
const GROUPS: usize = 20;
/// Rows of the overview, and of the list of files.
const ROWS: usize = 1500;
/// Rows of the table of strategies.
const STRATEGIES: usize = 100;
/// Plots by a parameter, and of sweeps.
const BY_PARAMETER: usize = 24;
const SWEEPS: usize = 12;

/// Sources of a page.
#[derive(Debug)]
pub struct Sources {
    /// The results, in any order.
    pub records: Vec<Record>,
    /// Files of `vpmu sweep`.
    pub sweeps: Vec<PathBuf>,
    /// The published figures, simulated, and measured in those of [`published::documents`].
    pub published: Reproduction,
    /// Tool that makes the page.
    pub tool: Tool,
}

/// Results of one kind.
#[derive(Debug, Serialize)]
struct Section {
    id: String,
    title: String,
    host: String,
    badges: Vec<String>,
    about: Vec<(&'static str, String)>,
    caveats: Vec<String>,
    answer: Option<Answer>,
    table: Table,
    figures: Vec<Figure>,
}

/// The strategy to take, with its tables.
#[derive(Debug, Serialize)]
struct Choice {
    answer: Vec<String>,
    notes: Vec<String>,
    tables: Vec<fold::Table>,
}

/// Returns the strategy to take by these results, or what keeps them from telling.
fn choice(groups: &[Group<'_>]) -> Option<Choice> {
    let records: Vec<&Record> = groups.iter().take(GROUPS).map(Group::shown).collect();
    let older = groups.len().saturating_sub(GROUPS);
    let left_out = (older > 0).then(|| format!("the oldest results are left out: {} of {} kinds", older, groups.len()));
    let sentences = |all: &[String]| all.iter().map(|text| strategies::capital(text) + ".").collect();
    let found = match advice::advise(&records, left_out.into_iter().collect()) {
        Ok(found) => found,
        Err(why) if why.is_empty() => return None,
        Err(why) => return Some(Choice { answer: sentences(&why), notes: Vec::new(), tables: Vec::new() }),
    };
    let notes = vec![advice::LEGEND.to_owned()];
    let tables = vec![found.table().caption("Strategies over all results that have them, the least regret first")];
    let answer = sentences(&[found.left_out, found.answer].concat());
    Some(Choice { answer, notes, tables })
}

/// Everything the template shows.
#[derive(Debug, Serialize)]
struct Page {
    title: String,
    summary: String,
    tool: String,
    overview: Table,
    /// The section of each row of the overview; empty for those without one.
    links: Vec<String>,
    sections: Vec<Section>,
    /// The strategy to take, by the results shown.
    advice: Option<Choice>,
    /// The definitions of the strategies of the results shown.
    strategies: Table,
    by_parameter: Vec<Figure>,
    sweeps: Vec<Figure>,
    published: Published,
    hosts: Vec<Host>,
    files: Table,
    left_out: Vec<String>,
}

/// Renders the page.
///
/// # Errors
/// Exit 2 for a document or sweep that is damaged.
pub fn html(sources: &Sources, title: &str) -> Result<String, Error> {
    figure::render(&page(sources, title)?)
}

fn page(sources: &Sources, title: &str) -> Result<Page, Error> {
    let records = &sources.records;
    let groups = groups(records);
    let mut left_out = Vec::new();
    let mut note = |what: &str, shown: usize, all: usize| {
        if all > shown {
            left_out.push(format!("{what}: {shown} of {all} are shown"));
        }
    };
    note("Kinds of results with plots, the newest", GROUPS, groups.len());
    note("Rows of the overview", ROWS, groups.len());
    note("Rows of the list of files, the newest", ROWS, records.len());
    let mut points = Vec::new();
    for path in &sources.sweeps {
        points.extend(crate::sweep::read(path)?);
    }
    let arms = records.iter().flat_map(|record| &record.arms).map(|arm| arm.name.as_str());
    let inks = Inks::new(arms.chain(sweep::strategies(&points)));
    let sections = groups
        .iter()
        .take(GROUPS)
        .enumerate()
        .map(|(index, group)| section(index, group, &inks))
        .collect::<Result<Vec<_>, _>>()?;
    let (strategies, all_strategies) = definitions(groups.iter().map(Group::shown).collect());
    note("Strategies", strategies.rows.len(), all_strategies);
    let id = |row: usize| if row < GROUPS { format!("results-{}", row + 1) } else { String::new() };
    let (sweeps, all_sweeps) = sweep::figures(&points, &inks, SWEEPS);
    note("Plots of sweeps", SWEEPS, all_sweeps);
    let (hosts, more_hosts) = hosts::hosts(records);
    note("Hosts, the newest", hosts.len(), hosts.len() + more_hosts);
    let tool = &sources.tool;
    Ok(Page {
        title: title.to_owned(),
        summary: summary(records, points.len()),
        tool: format!("{} {} ({}, {})", tool.name, tool.version, tool.git_revision, tool.profile),
        overview: overview(&groups),
        links: (0..groups.len().min(ROWS)).map(id).collect(),
        sections,
        advice: choice(&groups),
        strategies,
        by_parameter: by_parameter::figures(records, &inks, BY_PARAMETER),
        sweeps,
        published: published::tables(&sources.published),
        hosts,
        files: files(records),
        left_out,
    })
}

fn summary(records: &[Record], points: usize) -> String {
    let times = || records.iter().map(|record| record.started_unix).filter(|&unix| unix > 0);
    let mut parts = Vec::new();
    if let (Some(first), Some(last)) = (times().min(), times().max()) {
        let [first, last] = [first, last].map(|unix| date(unix as f64));
        let when = if first == last { format!("of {first}") } else { format!("from {first} to {last}") };
        parts.push(format!("{} {when} UTC", plural(records.len(), "result")));
    } else if !records.is_empty() {
        parts.push(plural(records.len(), "simulated result"));
    }
    if points > 0 {
        parts.push(plural(points, "simulated point"));
    }
    parts.join(", and ") + "."
}

/// Returns the ratio of two arms as text, with its interval if asked for.
fn over(record: &Record, arm: &Arm<Any>, base: &Arm<Any>, key: &str, interval: bool) -> Option<String> {
    if interval {
        return paired::over_runs(record, arm, base, key, Statistic::P50).map(|found| ratio_with(&found));
    }
    let pairs = paired::pairs(arm, base, key, Statistic::P50);
    paired::centre(&pairs).map(|log| ratio(log.exp()))
}

/// Returns the arms of a result in short: p50 and the ratio to the floor; with its interval if the result has plots,
/// which have it too.
fn brief(record: &Record, plotted: bool) -> String {
    let metric = record.metric();
    let base = group::base(record);
    let arm = |arm: &Arm<Any>| {
        let Some((key, p50)) = metric.and_then(|key| Some((key, paired::p50(arm, key)?))) else {
            let why = if arm.not_available.is_some() { "not available" } else { "–" };
            return format!("{}: {}", arm.name, if livelock(record, arm).is_some() { "livelock" } else { why });
        };
        let over = base
            .filter(|base| base.name != arm.name)
            .and_then(|base| Some((base, over(record, arm, base, key, plotted)?)))
            .map(|(base, found)| format!(" ({found} × {})", base.name));
        format!("{} {}{}", arm.name, time(p50), over.unwrap_or_default())
    };
    tried(record).map(arm).collect::<Vec<_>>().join(", ")
}

/// Returns the arms but for KVM's own vPMU where there is none: every run tries it.
fn tried(record: &Record) -> impl Iterator<Item = &Arm<Any>> {
    record.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm || arm.not_available.is_none())
}

/// Returns the warning of an arm whose guest gets nothing done.
fn livelock<'a>(record: &'a Record, arm: &Arm<Any>) -> Option<&'a Warning> {
    record.warnings.iter().find(|warning| warning.code == LIVELOCK && warning.arm.as_ref() == Some(&arm.name))
}

fn overview(groups: &[Group<'_>]) -> Table {
    let head = ["what", "host", "results", "newest (UTC)", "state", "p50s"];
    let mut table = Table::new("Kinds of results, the newest first", &head);
    for (row, group) in groups.iter().take(ROWS).enumerate() {
        let newest = group.latest();
        table.rows.push(vec![
            group::title(newest),
            newest.host.class.clone(),
            group.records.len().to_string(),
            date(newest.started_unix as f64),
            state(newest.status).to_owned(),
            // An interval for each of a thousand kinds would take seconds.
            brief(group.shown(), row < GROUPS),
        ]);
    }
    table
}

const fn state(status: Status) -> &'static str {
    match status {
        Status::Complete => "complete",
        Status::Running => "left by a killed run",
        Status::Incomplete => "incomplete",
        Status::Interrupted => "interrupted",
    }
}

fn section(index: usize, group: &Group<'_>, inks: &Inks) -> Result<Section, Error> {
    let shown = group.shown();
    let mut badges = Vec::new();
    if group::is_simulated(shown) {
        badges.push("simulated".to_owned());
    } else if shown.arms.iter().any(|arm| arm.stand_in) {
        badges.push("stand-in events: compare arms only".to_owned());
    }
    if shown.status != Status::Complete {
        badges.push(state(shown.status).to_owned());
    }
    if group.records.len() > 1 {
        let which = if std::ptr::eq(shown, group.latest()) { "the newest" } else { "one" };
        badges.push(format!("{which} of {}", plural(group.records.len(), "result")));
    }
    let mut figures = Vec::new();
    figures.extend(latency::rounds(shown, inks));
    figures.extend(latency::percentiles(shown, inks)?);
    figures.extend(latency::over_time(group, inks));
    figures.extend(front::of_result(shown, inks));
    // Settings of the host stand with the hosts.
    let caveats = shown.warnings.iter().filter(|one| one.remedy.is_none() && one.code != LATE_PERIODS);
    let caveat = |warning: &Warning| match &warning.arm {
        Some(arm) => format!("{arm}: {}", warning.message),
        None => warning.message.clone(),
    };
    Ok(Section {
        id: format!("results-{}", index + 1),
        title: group::title(shown),
        host: shown.host.class.clone(),
        badges,
        about: about(group),
        caveats: caveats.map(caveat).collect(),
        answer: strategies::answer(shown, inks),
        table: arms(shown),
        figures,
    })
}

fn about(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let (shown, latest) = (group.shown(), group.latest());
    let mut about = vec![
        ("backend", group::backend(shown)),
        ("host", shown.host.class.clone()),
        ("results", group.records.len().to_string()),
        ("shown", named(shown)),
        ("revision", format!("{} ({})", shown.tool.git_revision, shown.tool.profile)),
        ("seed", shown.seed.to_string()),
    ];
    if !std::ptr::eq(shown, latest) {
        about.push(("newest", format!("{}: not complete, or of few rounds", named(latest))));
    }
    if !shown.command_line.is_empty() {
        about.push(("command", shown.command_line.join(" ")));
    }
    about
}

/// Names a result by its time and its file.
fn named(record: &Record) -> String {
    match record.started_unix {
        0 => record.path.display().to_string(),
        unix => format!("{} UTC, {}", date(unix as f64), record.path.display()),
    }
}

/// Returns every arm of a result by its one metric; arms without figures have the reason.
fn arms(record: &Record) -> Table {
    let key = record.metric();
    let base = group::base(record);
    let over = base.map_or_else(|| "× floor".to_owned(), |base| format!("× {}", base.name));
    let columns = column::columns(Place::Page);
    let mut head = vec!["arm", "p50 [95 %]", &over];
    let parts = parts(record);
    head.extend(columns.clone().map(|column| column.heading));
    head.extend(parts.iter().map(|(name, _)| name.as_str()).chain(["backend", "note"]));
    let what = key.map_or_else(String::new, metric::name);
    let caption = format!(
        "Every arm of the result shown: {what}. p50: median over rounds of each round's median; {over}: of paired rounds; \
         others: of all samples"
    );
    let mut table = Table::new(caption, &head);
    for arm in tried(record) {
        let found = key.and_then(|key| arm.metrics.get(key));
        let p50 = key.and_then(|key| paired::level(arm, key, Statistic::P50));
        let ratio = match (base, key) {
            (Some(base), Some(key)) if base.name != arm.name => {
                paired::over_runs(record, arm, base, key, Statistic::P50)
            }
            _ => None,
        };
        let one = base.filter(|base| base.name == arm.name).map_or_else(dash, |_| "1".to_owned());
        let note = match &arm.not_available {
            Some(why) => format!("not available: {why}"),
            None => match (livelock(record, arm), arm.incomplete.first()) {
                (Some(warning), _) => warning.message.clone(),
                (None, Some(why)) => format!("incomplete: {why}"),
                (None, None) => String::new(),
            },
        };
        let mut row = vec![
            arm.name.clone(),
            p50.map_or_else(dash, |found| level(&found)),
            ratio.map_or(one, |found| ratio_with(&found)),
        ];
        let figures = Figures::new(arm, found);
        row.extend(columns.clone().map(|column| column.text(&figures)));
        row.extend(parts.iter().map(|(_, of)| of(arm).unwrap_or_else(dash)));
        row.push(if arm.stand_in { format!("{} (stand-in)", arm.backend) } else { arm.backend.clone() });
        row.push(note);
        table.rows.push(row);
    }
    table
}

/// A figure of an arm that only some results have.
type OfArm<'a> = Box<dyn Fn(&Arm<Any>) -> Option<String> + 'a>;

/// Returns what a result's work consists of, by name: host operations of each kind, and phases of a set-up.
fn parts(record: &Record) -> Vec<(String, OfArm<'_>)> {
    let kinds: BTreeSet<&String> = record.arms.iter().flat_map(|arm| arm.own.host_ops.keys()).collect();
    let of_kind = |kind: &String| -> (String, OfArm<'_>) {
        let key = kind.clone();
        let main = record.metric();
        let of = move |arm: &Arm<Any>| {
            let samples = main.and_then(|main| arm.metrics.get(main)).map_or(0, |metric| metric.count);
            let op = arm.own.host_ops.get(&key)?;
            let samples = arm.own.counts.nmis.max(samples).max(1) as f64;
            Some(format!("{}, {}", ratio(op.count as f64 / samples), time(op.total_ns as f64 / samples)))
        };
        (format!("{kind} of a sample"), Box::new(of))
    };
    let phases = record.arms.iter().flat_map(|arm| arm.metrics.keys());
    // Rotations come later than the set-up of a guest.
    let is_part = |key: &&String| {
        let part = key.strip_prefix("phases/").and_then(|key| key.split_once('/'));
        part.is_some_and(|(name, time)| matches!(time, "wall_ns" | "total_ns") && name != "rotate")
    };
    let phases: BTreeSet<&String> = phases.filter(is_part).collect();
    let of_phase = |key: &String| -> (String, OfArm<'_>) {
        let name = key.split('/').nth(1).unwrap_or_default().to_owned();
        let key = key.clone();
        (name, Box::new(move |arm: &Arm<Any>| Some(time(arm.metrics.get(&key)?.median()))))
    };
    kinds.into_iter().map(of_kind).chain(phases.into_iter().map(of_phase)).collect()
}

/// Returns what each strategy of these results is, a row for each definition, and how many there are.
fn definitions(records: Vec<&Record>) -> (Table, usize) {
    let mut table = Table::new("Strategies of the results shown, as they ran", &["strategy", "definition", "results"]);
    let mut found: Vec<(&str, Vec<String>, usize)> = Vec::new();
    for record in records {
        for (name, choices) in record.arms.iter().filter_map(|arm| Some((&*arm.name, record.definition(&arm.name)?))) {
            match found.iter_mut().find(|(known, other, _)| *known == name && *other == choices) {
                Some((.., results)) => *results += 1,
                None => found.push((name, choices, 1)),
            }
        }
    }
    for (name, choices, results) in found.iter().take(STRATEGIES) {
        let others = found.iter().filter(|(other, ..)| other == name).count();
        let also = if others > 1 { format!(" (one of {others} definitions of this name)") } else { String::new() };
        table.rows.push(vec![(*name).to_owned(), choices.join(", ") + &also, results.to_string()]);
    }
    (table, found.len())
}

fn files(records: &[Record]) -> Table {
    let head = ["file", "begun (UTC)", "what", "host", "revision", "state"];
    let mut table = Table::new("Results on this page, the newest first", &head);
    let mut newest: Vec<&Record> = records.iter().collect();
    newest.sort_by_key(|record| std::cmp::Reverse(record.started_unix));
    for record in newest.into_iter().take(ROWS) {
        table.rows.push(vec![
            record.path.display().to_string(),
            date(record.started_unix as f64),
            group::title(record),
            record.host.class.clone(),
            record.tool.git_revision.chars().take(12).collect(),
            state(record.status).to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::fixture;

    fn sources(records: Vec<Record>) -> Sources {
        let (published, tool) = (fixture::reproduction(), fixture::tool());
        Sources { records, sweeps: Vec::new(), published, tool }
    }

    fn shown(records: Vec<Record>, title: &str) -> String {
        html(&sources(records), title).unwrap()
    }

    #[test]
    fn what_a_document_says_is_text_wherever_it_stands() {
        let (_dir, mut record) = fixture::written(&fixture::document(2));
        let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{1b}[2J\u{202e}";
        record.host.class = evil.to_owned();
        record.host.cpu_model = Some(evil.to_owned());
        record.experiment = evil.to_owned();
        record.tool.git_revision = evil.to_owned();
        record.command_line = vec![evil.to_owned()];
        record.parameters.insert("workload".to_owned(), evil.into());
        record.parameters.insert("backend".to_owned(), evil.into());
        for arm in &mut record.arms {
            arm.name = format!("{}{evil}", arm.name);
            arm.backend = evil.to_owned();
            arm.not_available = arm.not_available.as_ref().map(|_| evil.to_owned());
            arm.incomplete = vec![evil.to_owned()];
        }
        for warning in &mut record.warnings {
            warning.message = evil.to_owned();
            warning.remedy = Some(evil.to_owned());
        }
        let mut other = record.clone();
        other.parameters.insert("vcpus".to_owned(), 2.into());
        let text = shown(vec![record, other], evil);
        for markup in ["<script>alert", "<img", "\"'>"] {
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(!text.chars().any(|c| crate::shown::steers(c) && c != '\n'));
        assert_eq!(text.matches("<script").count(), 1);
        assert!(text.contains("&lt;script&gt;"));
    }

    #[test]
    fn a_thousand_results_make_a_page_below_1_5_mb_that_says_what_was_thinned() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let records = |kinds: u64| -> Vec<Record> {
            (0..1000)
                .map(|n| {
                    let mut record = Record { started_unix: record.started_unix + n * 600, ..record.clone() };
                    record.parameters.insert("period".to_owned(), (n % kinds).into());
                    record
                })
                .collect()
        };
        let series = shown(records(1), "a series");
        assert!(series.len() < 1_500_000 && series.contains("each point is the median of 7 neighbours"));
        assert!(series.contains("<strong class=\"badge\">the newest of 1000 results</strong>"));
        let kinds = shown(records(1000), "kinds");
        assert!(kinds.len() < 1_500_000, "{}", kinds.len());
        assert!(kinds.contains("Kinds of results with plots, the newest: 20 of 1000 are shown"));
        assert_eq!(kinds.matches("<section id=\"results-").count(), GROUPS);
        // All of them are in the overview, each with its figures.
        assert_eq!(kinds.matches("recreate 2.00 µs (2.00 × floor)").count(), 1000);
    }

    #[test]
    fn the_security_policy_names_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.js");
        std::fs::write(&path, figure::SCRIPT).unwrap();
        let output = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
        let hex = String::from_utf8(output.stdout).unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..64).step_by(2).map(byte).collect();
        let digest = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        assert_eq!(figure::DIGEST, digest);
        let text = shown(Vec::new(), "empty");
        assert!(
            text.contains(&format!("script-src &#x27;sha256-{digest}"))
                || text.contains(&format!("script-src 'sha256-{digest}'")),
            "{digest}"
        );
    }

    /// Returns the classes of the colours that each name has in the plots of a page.
    fn colours(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for group in page.split("<g data-s=\"").skip(1) {
            let (name, rest) = group.split("</g>").next().unwrap().split_once('"').unwrap();
            let classes = rest
                .split("class=\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .flat_map(str::split_whitespace);
            let is_colour = |class: &&str| class.strip_prefix('c').is_some_and(|rest| rest.parse::<u8>().is_ok());
            found.entry(name).or_default().extend(classes.filter(is_colour));
        }
        found
    }

    #[test]
    fn a_strategy_has_one_colour_in_all_plots_and_shares_it_with_none() {
        let names =
            ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual", "mine", "their"];
        let (_dir, mut all) = fixture::written(&fixture::of_strategies(10, &names));
        for arm in &mut all.arms {
            arm.own.events_held.time_mean = Some(1.0);
        }
        // Another order of the arms, another size, and a page of some of them alone.
        let mut turned = all.clone();
        turned.arms.reverse();
        turned.parameters.insert("vcpus".to_owned(), 2.into());
        let page = shown(vec![all.clone(), turned], "all");
        let found = colours(&page);
        for name in names {
            assert_eq!(found[name].len(), 1, "{name}: {:?}", found[name]);
        }
        let different: BTreeSet<&str> = names.iter().flat_map(|name| found[name].iter().copied()).collect();
        assert_eq!(different.len(), names.len(), "{found:?}");
        all.arms.retain(|arm| ["virtual", "floor", "mine"].contains(&arm.name.as_str()));
        let page = shown(vec![all], "some");
        let some = colours(&page);
        assert_eq!((&some["virtual"], &some["mine"]), (&found["virtual"], &found["mine"]));
    }
}
