//! An analysis as JUnit: each odd host and each change is a case, and so is each element.

use super::elements::{ElementEnd, ElementLine};
use super::tables;
use super::words::change;
use crate::fleet::statistics::Analysis;
use crate::junit::{Case, Outcome, Report, Suite};

fn case(name: String, class: &str, failure: Option<String>) -> Case {
    Case { name, class: class.to_owned(), outcome: failure.map_or(Outcome::Passed, Outcome::Failed) }
}

/// The report as XML: slower hosts, slower changes and failed elements are failures, elements without a conclusive outcome are skipped.
#[must_use]
pub fn junit(analysis: &Analysis, elements: &[ElementLine]) -> String {
    let mut report = Report { name: "vpmu fleet", ..Report::default() };
    let mut suite = |name: &str, cases| report.suites.push(Suite { name: name.to_owned(), cases });
    if !elements.is_empty() {
        let of_element = |element: &ElementLine| {
            let why = element.cells()[2..].join(" ");
            let outcome = match element.end {
                ElementEnd::Failed => Outcome::Failed(why),
                ElementEnd::Open => Outcome::Skipped(why),
                ElementEnd::Ok => Outcome::Passed,
            };
            Case { outcome, ..case(format!("{} {}", element.name, element.host), "vpmu.fleet.element", None) }
        };
        suite("elements", elements.iter().map(of_element).collect());
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
    suite("hosts", hosts);
    let mut changes = Vec::new();
    for one in analysis.changes.iter().filter(|one| !one.rows.is_empty()) {
        let slower = one.rows.iter().find(|row| row.found && row.change >= analysis.spec.least_host);
        let why =
            slower.map(|row| format!("{}: {} on {} hosts", row.arm, change(row.change, Some(row.interval)), row.hosts));
        changes.push(case(format!("{} {}", tables::named(one), one.periods[0]), "vpmu.fleet.change", why));
    }
    suite("changes", changes);
    if analysis.exit == 3 {
        report.open("verdict", &analysis.verdict);
    }
    report.to_string()
}
