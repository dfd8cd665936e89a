//! An analysis for people: one report for every form.

use results::error::Exit;
use results::junit::Case;
use results::stats::interval::Interval;
use results::table::layout::{change, dash, percent, plural, time};

use results::table::{Report, Table};
use results::verdict::Verdict;

use crate::campaign::standing::{Line, State};
use crate::hosts::{APART, Analysis, FAR, HostRow, LevelRow};
use crate::series::Kind;

/// Returns the first names of a list, and how many more there are.
pub fn shortened(names: &[String], most: usize) -> String {
    let first = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > most { format!("{first} and {} more", names.len() - most) } else { first }
}

/// Formats a level: a time, or a ratio.
pub(crate) fn value(kind: Kind, level: f64) -> String {
    if kind == Kind::Ratio { format!("× {level:.3}") } else { time(level) }
}

/// Formats a level with half of its interval's width in per cent, which says as much as the ends.
fn level(row: &LevelRow) -> String {
    let Some(Interval { low, high }) = row.interval else { return value(row.kind, row.level) };
    let half = ((high / low).sqrt() - 1.0) * 100.0;
    format!("{} ± {half:.*} %", value(row.kind, row.level), if half < 0.95 { 2 } else { 1 })
}

/// Names what tables have a sign for: classes by letters, settings by numbers; nothing where there is one.
fn sign<'a>(names: impl ExactSizeIterator<Item = &'a str>, name: &str, letters: bool) -> String {
    let several = names.len() > 1;
    match names.enumerate().find(|(_, own)| *own == name) {
        Some((place, _)) if several => match u8::try_from(place) {
            Ok(place) if letters && place < 26 => char::from(b'A' + place).to_string(),
            _ => (place + 1).to_string(),
        },
        _ => String::new(),
    }
}

fn class_of(analysis: &Analysis, name: &str) -> String {
    sign(analysis.classes.iter().map(|class| class.name.as_str()), name, true)
}

fn setting_of(analysis: &Analysis, label: &str) -> String {
    sign(analysis.settings.iter().map(|setting| setting.label.as_str()), label, false)
}

/// Returns the signs of a class and a setting, behind a name in a table.
fn signs(analysis: &Analysis, class: &str, setting: &str) -> String {
    let signs = [class_of(analysis, class), setting_of(analysis, setting)];
    let signs: Vec<String> = signs.into_iter().filter(|sign| !sign.is_empty()).collect();
    if signs.is_empty() { String::new() } else { format!(" ({})", signs.join(", ")) }
}

/// Classes and settings with the signs that tables have for them.
fn legend(analysis: &Analysis) -> Vec<String> {
    let signed = |sign: String, text: String| if sign.is_empty() { text } else { format!("{sign}: {text}") };
    let classes = analysis.classes.iter().map(|class| {
        let text = format!("{}: {}, {}", class.name, plural(class.hosts, "host"), plural(class.runs, "run"));
        signed(class_of(analysis, &class.name), text)
    });
    let settings = analysis.settings.iter().map(|setting| {
        let text = format!("{}: {}", setting.label, plural(setting.runs, "run"));
        signed(setting_of(analysis, &setting.label), text)
    });
    classes.chain(settings).collect()
}

/// Says how a host stands to its class.
fn stands(host: &HostRow) -> &'static str {
    match (host.apart, host.level > 0.0) {
        (true, true) => "apart, slow",
        (true, false) => "apart, fast",
        (false, _) => "–",
    }
}

fn hosts(analysis: &Analysis) -> Table {
    let caption = format!(
        "Hosts against the median of their class, all arms together; 95 % by t over runs. z: by the median absolute deviation of the \
         class and the host's own error. Apart: {FAR} or more, and {} % or more",
        percent(APART)
    );
    let mut table = Table::new(["host", "level", "z", "runs", "stands"]).caption(caption).cut().left(4);
    for host in &analysis.hosts {
        table.add_row([
            host.host.clone() + &signs(analysis, &host.class, ""),
            change(host.level, host.interval),
            host.z.map_or_else(dash, |z| format!("{z:+.1}")),
            host.runs.to_string(),
            stands(host).to_owned(),
        ]);
    }
    table
}

fn levels(analysis: &Analysis) -> Table {
    let mut table = Table::new(["arm", "metric", "mean over hosts", "hosts", "runs"])
        .caption("Figures over hosts, each host one block; 95 % by t over hosts")
        .cut()
        .keys(2);
    for row in &analysis.levels {
        table.add_row([
            row.arm.clone(),
            row.metric.clone() + &signs(analysis, &row.class, &row.setting),
            level(row),
            row.hosts.to_string(),
            row.runs.to_string(),
        ]);
    }
    table
}

/// Returns the exit code of an element, as text.
fn exit_of(element: &Line) -> String {
    element.exit.map_or_else(dash, |code| code.to_string())
}

/// Returns the elements that failed, then those without a conclusive outcome.
fn problems(elements: &[Line]) -> Table {
    let failed = || elements.iter().filter(|element| element.state == State::Failed);
    let open = || elements.iter().filter(|element| !matches!(element.state, State::Failed | State::Ok));
    let all = plural(elements.len(), "element");
    let (failures, others) = (failed().count(), open().count());
    let mut table = Table::new(["element", "host", "state", "exit", "job", "reason"])
        .caption(format!("Of {all}: {failures} failed, {others} without a conclusive outcome"))
        .cut()
        .keys(3)
        .left(4)
        .left(5);
    for element in failed().chain(open()) {
        let given = |text: &Option<String>| text.clone().unwrap_or_default();
        table.add_row([
            element.name.clone(),
            given(&element.host),
            element.state.word().to_owned(),
            exit_of(element),
            given(&element.job),
            given(&element.reason),
        ]);
    }
    table
}

/// Returns the analysis as a report; elements that failed come first.
pub fn report(analysis: &Analysis, elements: &[Line]) -> Report {
    let exit = if elements.iter().any(|element| element.state == State::Failed) {
        Exit::Regression
    } else if analysis.exit() == Exit::Done && elements.iter().any(|element| element.state != State::Ok) {
        Exit::Inconclusive
    } else {
        analysis.exit()
    };
    let mut report = Report { verdict: Some((exit, analysis.verdict.clone())), ..Report::new("vpmu fleet") };
    report.notes(legend(analysis));
    for table in [problems(elements), hosts(analysis), levels(analysis)] {
        if !table.is_empty() {
            report.gap();
            report.table(table);
        }
    }
    let left_out =
        |(why, count): (&String, &usize)| format!("left out: {} as not whole: {why}", plural(*count, "figure"));
    report.notes(analysis.left_out.iter().map(left_out));
    report.notes(analysis.notes.iter().map(|note| format!("note: {note}")));
    if !elements.is_empty() {
        report.suite("elements", elements.iter().map(element_case).collect());
    }
    let case = |host: &HostRow| Case {
        name: host.host.clone(),
        class: "vpmu.fleet.host".to_owned(),
        verdict: if host.apart && host.level > 0.0 { Verdict::Slower } else { Verdict::NoChange },
        message: format!("{}: {} over {} runs", stands(host), change(host.level, host.interval), host.runs),
    };
    report.suite("hosts", analysis.hosts.iter().map(case).collect());
    report
}

fn element_case(element: &Line) -> Case {
    let host = element.host.as_deref().unwrap_or_default();
    let (job, reason) = (element.job.as_deref().unwrap_or_default(), element.reason.as_deref().unwrap_or_default());
    Case {
        name: format!("{} {host}", element.name),
        class: "vpmu.fleet.element".to_owned(),
        verdict: match element.state {
            State::Failed => Verdict::Slower,
            State::Ok => Verdict::NoChange,
            _ => Verdict::Inconclusive,
        },
        message: format!("{} {} {job} {reason}", element.state.word(), exit_of(element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::analyse;
    use crate::synthetic::{Fleet, name};

    fn analysis() -> Analysis {
        let mut runs = Fleet { slow: 2, ..Fleet::default() }.runs();
        for run in &mut runs {
            run.setting = "<b>nmi|latency</b>".into();
        }
        analyse(&runs)
    }

    fn failed() -> Line {
        Line {
            number: 3,
            name: "nmi-latency 3".to_owned(),
            state: State::Failed,
            host: Some("n<1>".to_owned()),
            job: Some("17_3".to_owned()),
            exit: Some(4),
            attempts: 1,
            reason: Some("no KVM here".to_owned()),
            missing: Vec::new(),
            done: None,
        }
    }

    #[test]
    fn every_form_has_failed_elements_and_then_the_slow_hosts() {
        let analysis = analysis();
        let shown = report(&analysis, &[Line { state: State::Ok, exit: Some(0), ..failed() }, failed()]);
        let in_order = |text: &str, needles: &[&str]| {
            let places = needles.iter().map(|needle| text.find(needle).unwrap_or_else(|| panic!("{needle}: {text}")));
            assert!(places.collect::<Vec<_>>().is_sorted(), "{text}");
        };
        let (first, third) = (name(0), name(2));
        let order =
            ["Of 2 elements: 1 failed, 0 without", "no KVM here", &first, "apart, slow", &third, "nmi_handler_ns"];
        let text = shown.text(80);
        in_order(&text, &order);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        in_order(&shown.markdown(), &order);
        assert!(shown.markdown().starts_with("### ❌") && !shown.markdown().contains("<b>"));
        let tool = trials::fixture::tool();
        let html = results::report::page(&shown, "A <fleet>", &tool).unwrap();
        in_order(&html, &order);
        assert!(
            html.contains("<title>A &lt;fleet&gt;</title>") && html.contains("n&lt;1&gt;") && !html.contains("<b>nmi")
        );
        assert!(!html.contains("http://") && !html.contains("https://"));
        // The element and both hosts; an element without an outcome is skipped.
        assert_eq!(shown.junit().matches("<failure").count(), 3);
        let open = report(&analysis, &[Line { state: State::Lost, exit: None, ..failed() }]).junit();
        assert_eq!((open.matches("<skipped").count(), open.matches("<failure").count()), (1, 2));
    }
}
