//! A comparison as a JUnit report: a regression is a failure, what stays open is skipped with its reason.

use super::judge::Comparison;
use super::row::{Row, Verdict};
use super::show;
use crate::junit::{Case, Outcome, Report, Suite};

/// The report as XML.
#[must_use]
pub fn junit(comparison: &Comparison) -> String {
    let mut report = Report { name: "vpmu compare", ..Report::default() };
    for group in &comparison.groups {
        let case = |row: &Row| {
            let change = row.change.map_or_else(String::new, show::percent);
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            let message = || format!("{} {change}{why}", show::word(row.verdict));
            let outcome = match row.verdict {
                Verdict::Regression => Outcome::Failed(message()),
                Verdict::Improvement | Verdict::NoChange => Outcome::Passed,
                _ => Outcome::Skipped(message()),
            };
            Case { name: format!("{} {}", row.arm, row.metric), class: format!("vpmu.{}", row.arm), outcome }
        };
        report.suites.push(Suite { name: group.label.clone(), cases: group.rows.iter().map(case).collect() });
    }
    // What is not a row and yet keeps the comparison from a verdict.
    if comparison.exit == 3 {
        report.open("comparison", &comparison.verdict);
    }
    report.to_string()
}
