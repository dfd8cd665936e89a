//! A comparison as a JUnit report: a regression is a failure, what stays open is skipped with its reason.

use super::judge::Comparison;
use crate::junit::{self, Case};

/// The report as XML.
#[must_use]
pub fn junit(comparison: &Comparison) -> String {
    let mut suites = Vec::new();
    for group in &comparison.groups {
        let case = |row: &super::Row| {
            let change = row.change.map_or_else(String::new, super::row::percent);
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            Case {
                name: format!("{} {}", row.arm, row.metric),
                class: format!("vpmu.{}", row.arm),
                verdict: row.verdict,
                message: format!("{} {change}{why}", row.verdict.word()),
            }
        };
        suites.push((group.label.clone(), group.rows.iter().map(case).collect()));
    }
    // Findings that are no row and yet keep the comparison from a verdict.
    if comparison.exit == 3 {
        suites.push(junit::open("comparison", &comparison.verdict));
    }
    junit::junit("vpmu compare", &suites)
}
