//! An analysis for people: one report for every form.

use std::collections::BTreeMap;

use results::junit::Case;
use results::stats::interval::Interval;
use results::table::layout::{change, dash, percent, plural};

use results::table::{Report, Table};
use results::verdict::Verdict;

use crate::campaign::standing::{Line, Standing, State};
use crate::hosts::{APART, Analysis, BY_CHANCE, HostRow, LevelRow};
use crate::series::Question;

/// Returns the first names of a list, and how many more there are.
pub fn shortened(names: &[String], most: usize) -> String {
    let first = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > most { format!("{first} and {} more", names.len() - most) } else { first }
}

/// Formats a level with half of its interval's width in per cent, which says as much as the ends.
fn level(row: &LevelRow) -> String {
    let value = row.question.value(row.level);
    let Some(Interval { low, high }) = row.interval else { return value };
    let half = ((high / low).sqrt() - 1.0) * 100.0;
    format!("{value} ± {half:.*} %", if half < 0.95 { 2 } else { 1 })
}

/// Says how a host stands to its class.
fn stands(host: &HostRow) -> &'static str {
    match host.verdict() {
        Verdict::Slower => "apart, slow",
        Verdict::Faster => "apart, fast",
        _ => "–",
    }
}

/// Puts rows of one name together, in their order.
pub fn groups<R, K: PartialEq>(rows: &[R], name: impl Fn(&R) -> K) -> Vec<(K, Vec<&R>)> {
    let mut groups: Vec<(K, Vec<&R>)> = Vec::new();
    for row in rows {
        let name = name(row);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

fn hosts((class, rows): (String, Vec<&HostRow>)) -> (String, Table) {
    let heading = format!("{class}: hosts against their median, all arms together; 95 % by t over runs");
    let mut table = Table::new(["host", "level", "z", "runs", "stands"]).cut().left(4);
    for host in rows {
        table.add_row([
            host.host.clone(),
            change(host.level, host.interval),
            host.z.map_or_else(dash, |z| format!("{z:+.1}")),
            host.runs.to_string(),
            stands(host).to_owned(),
        ]);
    }
    (heading, table)
}

fn levels((name, rows): (String, Vec<&LevelRow>)) -> (String, Table) {
    let heading = format!("{name}: each host one block; 95 % by t over hosts");
    let mut table = Table::new(["arm", "metric", "mean over hosts", "hosts", "runs"]).cut().keys(2);
    for row in rows {
        let Question { arm, metric, .. } = &row.question;
        table.add_row([arm.clone(), metric.clone(), level(row), row.hosts.to_string(), row.runs.to_string()]);
    }
    (heading, table)
}

/// Returns how far a campaign is: what its elements wait for, and those that need a look, failed ones first.
pub fn progress(standing: &Standing) -> Report {
    let mut report = Report::new("vpmu fleet");
    report.note(standing.summary());
    let mut waits: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in standing.elements.iter().filter(|line| line.state == State::Pending) {
        let reason = line.reason.as_deref().unwrap_or("no reason given");
        *waits.entry((reason, line.never.unwrap_or_default())).or_default() += 1;
    }
    report.notes(waits.into_iter().map(|((reason, never), count)| {
        let never = if never.is_empty() { String::new() } else { format!(", which never starts: {never}") };
        format!("pending: {count} for {reason}{never}")
    }));
    let mut table = Table::new(["element", "host", "state", "exit", "job", "reason"]).cut().keys(3).left(4).left(5);
    let is_shown = |line: &&Line| !matches!(line.state, State::Ok | State::Pending | State::Waiting);
    let (failed, others): (Vec<&Line>, Vec<&Line>) =
        standing.elements.iter().filter(is_shown).partition(|line| line.state == State::Failed);
    for line in failed.into_iter().chain(others) {
        let [host, job, reason] = [&line.host, &line.job, &line.reason].map(|text| text.clone().unwrap_or_default());
        table.add_row([line.name.clone(), host, line.state.word(), exit_of(line), job, reason]);
    }
    if !table.is_empty() {
        report.table(table);
    }
    report.suites.push(("elements".to_owned(), standing.elements.iter().map(element_case).collect()));
    report
}

/// Returns the exit code of an element, as text.
fn exit_of(element: &Line) -> String {
    element.exit.map_or_else(dash, |code| code.to_string())
}

fn element_case(line: &Line) -> Case {
    let [host, job, reason] = [&line.host, &line.job, &line.reason].map(|text| text.as_deref().unwrap_or_default());
    Case {
        name: format!("{} {host}", line.name),
        class: "vpmu.fleet.element".to_owned(),
        verdict: Some(match line.state {
            State::Failed => Verdict::Slower,
            State::Ok => Verdict::NoChange,
            _ => Verdict::Inconclusive,
        }),
        message: format!("{} {} {job} {reason}", line.state.word(), exit_of(line)),
    }
}

/// Returns the analysis as a report.
pub fn report(analysis: &Analysis) -> Report {
    let verdict = Some((analysis.exit(), analysis.verdict.clone()));
    let mut report = Report { verdict, ..Report::new("vpmu fleet") };
    let of_hosts = groups(&analysis.hosts, |host| host.class.clone()).into_iter().map(hosts);
    let name = |row: &LevelRow| format!("{}, {}", row.question.setting, row.question.class);
    for (heading, table) in of_hosts.chain(groups(&analysis.levels, name).into_iter().map(levels)) {
        report.heading(heading);
        report.table(table);
    }
    report.notes((!analysis.hosts.is_empty()).then(|| {
        format!(
            "z: by the median absolute deviation of the class and the host's own error; apart: p below {BY_CHANCE} (t, Benjamini-Hochberg \
             over hosts), and {} % or more",
            percent(APART)
        )
    }));
    let left_out =
        |(why, count): (&String, &usize)| format!("left out: {} as not whole: {why}", plural(*count, "figure"));
    report.notes(analysis.left_out.iter().map(left_out));
    report.notes(analysis.notes.iter().map(|note| format!("note: {note}")));
    let case = |host: &HostRow| Case {
        name: host.host.clone(),
        class: "vpmu.fleet.host".to_owned(),
        verdict: Some(host.verdict()),
        message: format!("{}: {} over {} runs", stands(host), change(host.level, host.interval), host.runs),
    };
    report.suites.push(("hosts".to_owned(), analysis.hosts.iter().map(case).collect()));
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::analyse;
    use crate::synthetic::{Fleet, name};

    #[test]
    fn every_form_has_failed_elements_and_then_the_slow_hosts() {
        let mut runs = Fleet { slow: 2, ..Fleet::default() }.runs();
        for run in &mut runs {
            run.setting = "<b>nmi|latency</b>".into();
        }
        let line = |state, exit| Line {
            name: "nmi-latency 3".to_owned(),
            state,
            host: Some("n<1>".to_owned()),
            exit,
            reason: Some("no KVM here".to_owned()),
            ..Line::default()
        };
        let elements = vec![line(State::Ok, Some(0)), line(State::Lost, None), line(State::Failed, Some(4))];
        let counts = [State::Ok, State::Failed, State::Lost].map(|state| (state, 1)).into();
        let standing = Standing { campaign: "x".to_owned(), counts, elements, ..Standing::default() };
        let (mut shown, hosts) = (progress(&standing), report(&analyse(&runs)));
        shown.verdict = hosts.verdict;
        shown.parts.extend(hosts.parts);
        shown.suites.extend(hosts.suites);
        let in_order = |text: &str, needles: &[&str]| {
            let places = needles.iter().map(|needle| text.find(needle).unwrap_or_else(|| panic!("{needle}: {text}")));
            assert!(places.collect::<Vec<_>>().is_sorted(), "{text}");
        };
        let (first, third) = (name(0), name(2));
        let order =
            ["x: 3 elements: 1 ok, 1 failed, 1 lost", "no KVM here", &first, "apart, slow", &third, "nmi_handler_ns"];
        let text = shown.text(80);
        in_order(&text, &order);
        assert!(text.find("failed").unwrap() < text.rfind("lost").unwrap(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        in_order(&shown.markdown(), &order);
        assert!(shown.markdown().starts_with("### ❌") && !shown.markdown().contains("<b>"));
        let tool = trials::fixture::document(1).tool;
        let html = results::report::page(&shown, "A <fleet>", &tool).unwrap();
        in_order(&html, &order);
        assert!(
            html.contains("<title>A &lt;fleet&gt;</title>") && html.contains("n&lt;1&gt;") && !html.contains("<b>nmi")
        );
        assert!(!html.contains("http://") && !html.contains("https://"));
        // The element and both hosts; an element without an outcome is skipped.
        let junit = shown.junit().unwrap();
        assert_eq!((junit.matches("<failure").count(), junit.matches("<skipped").count()), (3, 1));
    }
}
