//! An analysis as JUnit: each odd host and each change is a case, and so is each element.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::elements::{ElementEnd, ElementLine};
use super::tables;
use super::words::change;
use crate::statistics::Analysis;

fn case(name: String, class: &str, failure: Option<String>) -> TestCase {
    let status = failure.map_or_else(TestCaseStatus::success, |message| {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(message);
        status
    });
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}

/// The report as XML: slower hosts, slower changes and failed elements are failures, elements without a conclusive outcome are skipped.
///
/// # Errors
/// A sentence if it cannot be shown as XML.
pub fn junit(analysis: &Analysis, elements: &[ElementLine]) -> Result<String, String> {
    let mut report = Report::new("vpmu fleet");
    if !elements.is_empty() {
        let mut suite = TestSuite::new("elements");
        for element in elements {
            let why = element.cells()[2..].join(" ");
            let failure = (element.end == ElementEnd::Failed).then(|| why.clone());
            let mut case = case(format!("{} {}", element.name, element.host), "vpmu.fleet.element", failure);
            if element.end == ElementEnd::Open {
                case.status = TestCaseStatus::skipped();
                case.status.set_message(why);
            }
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    let mut hosts = TestSuite::new("hosts");
    for class in &analysis.classes {
        let odd = analysis.odd.iter().filter(|host| host.class == class.name && host.slower).count();
        let why = (odd > 0).then(|| format!("{odd} of {} hosts are slow", class.hosts));
        hosts.add_test_case(case(class.name.clone(), "vpmu.fleet.class", why));
    }
    for host in &analysis.odd {
        let size = host.figures.first().map_or_else(String::new, |figure| change(figure.change, Some(figure.interval)));
        let why = host.slower.then(|| format!("{}: {size} over {} runs", host.verdict, host.runs));
        hosts.add_test_case(case(host.host.clone(), "vpmu.fleet.host", why));
    }
    report.add_test_suite(hosts);
    let mut changes = TestSuite::new("changes");
    for one in analysis.changes.iter().filter(|one| !one.rows.is_empty()) {
        let slower = one.rows.iter().find(|row| row.found && row.change >= analysis.spec.least_host);
        let why =
            slower.map(|row| format!("{}: {} on {} hosts", row.arm, change(row.change, Some(row.interval)), row.hosts));
        changes.add_test_case(case(format!("{} {}", tables::named(one), one.periods[0]), "vpmu.fleet.change", why));
    }
    report.add_test_suite(changes);
    if analysis.exit == 3 {
        let mut suite = TestSuite::new("verdict");
        let mut status = TestCaseStatus::skipped();
        status.set_message(analysis.verdict.as_str());
        suite.add_test_case(TestCase::new("verdict", status));
        report.add_test_suite(suite);
    }
    report.to_string().map_err(|error| error.to_string())
}
