//! An analysis for people: one report for terminals, Markdown and JUnit, and a page with maps: no script, nothing loaded.

pub(super) mod tables;

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use crate::statistics::{Analysis, HeatRow, MIN_CLASS, are_changes_judged};
use results::error::{Error, Exit};
use results::junit::Case;
use results::stats::change_points::MIN_VALUES;
use results::table::layout::{change, plural};
use results::table::{Report, Table};
use results::verdict::Verdict;
use results::{plot, template};
use tables::{ElementEnd, ElementLine};

/// Returns the analysis as a report; elements that failed come first.
pub fn report(analysis: &Analysis, elements: &[ElementLine]) -> Report {
    let has = |end: ElementEnd| elements.iter().any(|element| element.end == end);
    let exit = match analysis.exit() {
        _ if has(ElementEnd::Failed) => Exit::Regression,
        Exit::Done if has(ElementEnd::Open) => Exit::Inconclusive,
        exit => exit,
    };
    let mut report = Report { verdict: Some((exit, analysis.verdict.clone())), ..Report::new("vpmu fleet") };
    for line in tables::summary(analysis) {
        report.line(line);
    }
    report.notes(tables::legend(analysis));
    report.gap();
    show(&mut report, tables::problems(elements), String::new());
    // Nothing found and nothing judged are two things.
    let is_large = analysis.classes.iter().any(|class| class.hosts >= MIN_CLASS);
    let hosts = plural(analysis.hosts, "host");
    let few_hosts = format!("odd hosts: not judged ({hosts}, it takes {MIN_CLASS} of a class)");
    show(&mut report, tables::odd(analysis), if is_large { "No odd host".to_owned() } else { few_hosts });
    let periods = plural(analysis.periods.len(), "period");
    let few_periods = format!("changes: not judged ({periods}, it takes {MIN_VALUES})");
    let are_judged = are_changes_judged(analysis.periods.len(), &analysis.changes);
    let none = if are_judged { "No change".to_owned() } else { few_periods };
    let lines = tables::change_lines(analysis);
    let none = if lines.is_empty() { none } else { String::new() };
    report.notes(lines.into_iter().map(|line| format!("change {line}")));
    show(&mut report, tables::changes(analysis), none);
    show(&mut report, tables::levels(analysis, false), String::new());
    show(&mut report, tables::variance(analysis, false), String::new());
    report.notes(tables::remarks(analysis));
    for (name, cases) in suites(analysis, elements) {
        report.suite(name, cases);
    }
    report
}

/// Adds a table; of one without rows the line `none`, if that is not empty.
fn show(report: &mut Report, table: Table, none: String) {
    match (table.is_empty(), none.is_empty()) {
        (false, _) => report.table(table),
        (true, false) => report.line(none),
        (true, true) => return,
    }
    report.gap();
}

/// Returns the cases of elements, hosts and changes: what failed or is slower, and elements without a conclusive outcome.
fn suites(analysis: &Analysis, elements: &[ElementLine]) -> Vec<(String, Vec<Case>)> {
    let mut suites = Vec::new();
    if !elements.is_empty() {
        let of = |element: &ElementLine| Case {
            name: format!("{} {}", element.name, element.host),
            class: "vpmu.fleet.element".to_owned(),
            verdict: match element.end {
                ElementEnd::Failed => Verdict::Slower,
                ElementEnd::Open => Verdict::Inconclusive,
                ElementEnd::Ok => Verdict::NoChange,
            },
            message: element.cells()[2..].join(" "),
        };
        suites.push(("elements".to_owned(), elements.iter().map(of).collect()));
    }
    let mut hosts = Vec::new();
    for class in &analysis.classes {
        let odd = analysis.odd.iter().filter(|host| host.class == class.name && host.slower).count();
        let why = (odd > 0).then(|| format!("{odd} of {} hosts are slow", class.hosts));
        hosts.push(case(class.name.clone(), "vpmu.fleet.class", why));
    }
    for host in &analysis.odd {
        let size = host.figures.first().map_or_else(String::new, |figure| change(figure.change, Some(figure.interval)));
        let why = host.slower.then(|| format!("{}: {size} over {} runs", host.verdict, host.runs));
        hosts.push(case(host.host.clone(), "vpmu.fleet.host", why));
    }
    suites.push(("hosts".to_owned(), hosts));
    let mut changes = Vec::new();
    for one in analysis.changes.iter().filter(|one| !one.rows.is_empty()) {
        let slower = one.rows.iter().find(|row| row.found && row.change >= analysis.spec.least_host);
        let why =
            slower.map(|row| format!("{}: {} on {} hosts", row.arm, change(row.change, Some(row.interval)), row.hosts));
        changes.push(case(format!("{} {}", tables::named(one), one.periods[0]), "vpmu.fleet.change", why));
    }
    suites.push(("changes".to_owned(), changes));
    suites
}

fn case(name: String, class: &str, failure: Option<String>) -> Case {
    let verdict = if failure.is_some() { Verdict::Slower } else { Verdict::NoChange };
    Case { name, class: class.to_owned(), verdict, message: failure.unwrap_or_default() }
}

/// Most odd hosts with a row of the heat map and of the table.
const ODD: usize = 100;
/// Most hosts of the compact heat map, and most periods: the page stays below 5 MB.
const HOSTS: usize = 2000;
const CELLS: usize = 120_000;

/// A class with its heat map.
#[derive(Serialize)]
struct ClassMap {
    name: String,
    hosts: usize,
    note: String,
    svg: String,
}

/// Everything the template shows.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    verdict: &'a str,
    exit: u8,
    summary: String,
    elements: Table,
    odd: Table,
    odd_map: Option<String>,
    class_map: String,
    classes: Vec<ClassMap>,
    key: Vec<String>,
    legend: Vec<String>,
    change_lines: Vec<String>,
    changes: Table,
    levels: Table,
    variance: Table,
    remarks: Vec<String>,
}

fn classes(analysis: &Analysis) -> Vec<ClassMap> {
    let of =
        |class: &str| analysis.heat.hosts.iter().filter(|row| row.class == class).cloned().collect::<Vec<HeatRow>>();
    let most = HOSTS.min(CELLS / analysis.periods.len().max(1)) / analysis.classes.len().max(1);
    let mapped = |class: &crate::statistics::Class| {
        let mut rows = of(&class.name);
        let hosts = rows.len();
        rows.truncate(most);
        let note =
            if hosts > rows.len() { format!("The first {} of {hosts} are shown.", rows.len()) } else { String::new() };
        let svg = heat(analysis, &format!("Hosts of {} by time", class.name), &rows, rows.len() <= 60);
        ClassMap { name: class.name.clone(), hosts, note, svg }
    };
    analysis.classes.iter().map(mapped).collect()
}

/// Returns the date of a period, or all of its name.
fn date(period: &str) -> &str {
    period.split_once('(').map_or(period, |(_, date)| date.trim_end_matches(')'))
}

/// Draws rows of the heat map by the dates of periods.
fn heat(analysis: &Analysis, label: &str, rows: &[HeatRow], names: bool) -> String {
    let rows: Vec<(&str, &[Option<f64>])> = rows.iter().map(|row| (row.name.as_str(), &row.cells[..])).collect();
    plot::heat(label, &rows, &analysis.periods.iter().map(|period| date(period)).collect::<Vec<_>>(), names)
}

/// Returns the texts of the colours' key.
fn key() -> Vec<String> {
    let number = |end: f64| results::table::layout::signed(end, usize::from(end.fract() != 0.0));
    let mut key = vec![format!("below {} %", number(plot::HEAT[0]))];
    key.extend(plot::HEAT.windows(2).map(|two| format!("{} to {} %", number(two[0]), number(two[1]))));
    key.push(format!("above {} %", number(plot::HEAT[plot::HEAT.len() - 1])));
    key
}

/// Makes the page. Elements that failed come first.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(analysis: &Analysis, elements: &[ElementLine], title: &str) -> Result<String, Error> {
    let odd: Vec<HeatRow> = analysis.heat.odd.iter().take(ODD).cloned().collect();
    let odd_map = (!odd.is_empty()).then(|| heat(analysis, "Odd hosts by time", &odd, true));
    let with_sign = |row: &HeatRow| {
        let name = [tables::class_of(analysis, &row.name), row.name.clone()].join(" ").trim().to_owned();
        HeatRow { name, ..row.clone() }
    };
    let by_class: Vec<HeatRow> = analysis.heat.classes.iter().map(with_sign).collect();
    let class_map = heat(analysis, "Host classes by time", &by_class, true);
    let page = Page {
        title,
        verdict: &analysis.verdict,
        exit: analysis.exit,
        summary: tables::summary(analysis).join(", "),
        elements: tables::problems(elements),
        odd: tables::odd(analysis),
        odd_map,
        class_map,
        classes: classes(analysis),
        key: key(),
        legend: tables::legend(analysis),
        change_lines: tables::change_lines(analysis),
        changes: tables::changes(analysis),
        levels: tables::levels(analysis, true),
        variance: tables::variance(analysis, true),
        remarks: tables::remarks(analysis),
    };
    let values = context! {
        page => Value::from(Serde(&page)),
        style => results::report::STYLE,
        own_style => include_str!("page.css"),
    };
    template::page(include_str!("page.html"), values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{FleetSpec, analyse};
    use crate::synthetic::{Change, Fleet, runs};

    fn analysis() -> Analysis {
        let change = Some(Change { day: 7, by: 0.03, roll_out: 1, kernel: true });
        let fleet = Fleet { hosts: 40, days: 14, slow_share: 0.05, change, clocks_off: 1, ..Fleet::default() };
        let mut all = runs(&fleet);
        for run in &mut all {
            run.setting = "<b>nmi|latency</b>".into();
        }
        analyse(&all, &FleetSpec::default())
    }

    fn failed() -> ElementLine {
        ElementLine {
            name: "nmi-latency 3".to_owned(),
            host: "n<1>".to_owned(),
            end: ElementEnd::Failed,
            state: "failed".to_owned(),
            exit_code: Some(4),
            job: "17_3".to_owned(),
            reason: "no /dev/kvm".to_owned(),
        }
    }

    #[test]
    fn a_terminal_has_all_in_its_width() {
        let analysis = analysis();
        let text = report(&analysis, &[]).text(80);
        for needle in [
            "slow host: all arms alike",
            "kernel 6.1.0-31-amd64",
            "SLOWER",
            "clock of node0000",
            "40 hosts",
            " slower, ",
        ] {
            assert!(text.contains(needle), "{needle} is not in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn markdown_has_failed_elements_first_and_escapes() {
        let analysis = analysis();
        let text = report(&analysis, &[ElementLine::default(), failed()]).markdown();
        let place = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} is not in {text}"));
        assert!(
            place("Of 2 elements: 1 failed, 0 without") < place("Odd hosts") && place("Odd hosts") < place("Changes")
        );
        assert!(text.contains("n&lt;1&gt;") && !text.contains("<b>"), "{text}");
        assert!(text.starts_with("### ❌"));
    }

    #[test]
    fn junit_fails_slow_hosts_slow_changes_and_elements() {
        let analysis = analysis();
        let xml = report(&analysis, &[failed()]).junit();
        let open = report(&analysis, &[ElementLine { end: ElementEnd::Open, exit_code: None, ..failed() }]).junit();
        assert_eq!(open.matches("<skipped").count(), 1 + xml.matches("<skipped").count());
        assert_eq!(open.matches("<failure").count() + 1, xml.matches("<failure").count());
        let slow = analysis.odd.iter().filter(|host| host.slower).count();
        // An element, a host each, its class, and the change.
        assert!(slow == 2 && xml.matches("<failure").count() > slow + 2, "{xml}");
    }

    #[test]
    fn the_page_is_whole_without_a_script_or_the_network() {
        let analysis = analysis();
        let html = page(&analysis, &[failed()], "A <fleet>").unwrap();
        assert!(html.contains("<title>A &lt;fleet&gt;</title>") && !html.contains("<b>nmi"));
        assert!(!html.contains("<script") && !html.contains("http://") && !html.contains("https://"));
        let place = |needle: &str| html.find(needle).unwrap_or_else(|| panic!("{needle} is not in the page"));
        assert!(place("id=\"elements\"") < place("id=\"odd\"") && place("id=\"odd\"") < place("id=\"map\""));
        assert_eq!(html.matches("role=\"img\"").count(), 2 + analysis.classes.len());
        let none = page(&analysis, &[], "A").unwrap();
        assert!(!none.contains("id=\"elements\""));
    }
}
