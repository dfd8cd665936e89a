//! An analysis as JUnit: each odd host and each change is a case, and so is each element.

use results::junit::{self, Case};
use results::table::layout::change;
use results::verdict::Verdict;

use super::elements::{ElementEnd, ElementLine};
use super::tables;
use crate::statistics::Analysis;

fn case(name: String, class: &str, failure: Option<String>) -> Case {
    let verdict = if failure.is_some() { Verdict::Slower } else { Verdict::NoChange };
    Case { name, class: class.to_owned(), verdict, message: failure.unwrap_or_default() }
}

/// The report as XML: slower hosts, slower changes and failed elements are failures, elements without a conclusive outcome are skipped.
#[must_use]
pub fn junit(analysis: &Analysis, elements: &[ElementLine]) -> String {
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
    if analysis.exit == 3 {
        suites.push(junit::open("verdict", &analysis.verdict));
    }
    junit::junit("vpmu fleet", &suites)
}
