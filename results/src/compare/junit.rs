//! A comparison as a JUnit report: a regression is a failure, what stays open is skipped with its reason.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::judge::Comparison;
use super::row::Verdict;
use super::show;

/// The report as XML.
///
/// # Errors
/// A sentence if it cannot be shown as XML.
pub fn junit(comparison: &Comparison) -> Result<String, String> {
    let mut report = Report::new("vpmu compare");
    for group in &comparison.groups {
        let mut suite = TestSuite::new(group.label.as_str());
        for row in &group.rows {
            let change = row.change.map_or_else(String::new, show::percent);
            let mut status = match row.verdict {
                Verdict::Regression => TestCaseStatus::non_success(NonSuccessKind::Failure),
                Verdict::Improvement | Verdict::NoChange => TestCaseStatus::success(),
                _ => TestCaseStatus::skipped(),
            };
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            if !matches!(row.verdict, Verdict::Improvement | Verdict::NoChange) {
                status.set_message(format!("{} {change}{why}", show::word(row.verdict)));
            }
            let mut case = TestCase::new(format!("{} {}", row.arm, row.metric), status);
            case.set_classname(format!("vpmu.{}", row.arm));
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    // What is not a row and yet keeps the comparison from a verdict.
    if comparison.exit == 3 {
        let mut suite = TestSuite::new("comparison");
        let mut status = TestCaseStatus::skipped();
        status.set_message(comparison.verdict.as_str());
        suite.add_test_case(TestCase::new("verdict", status));
        report.add_test_suite(suite);
    }
    report.to_string().map_err(|error| error.to_string())
}
