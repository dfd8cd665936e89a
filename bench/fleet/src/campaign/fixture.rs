//! Campaigns for tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot make its campaign has failed")]

use std::path::Path;

use results::document::Tool;

use super::element::elements;
use super::folder::{Attempt, Campaign, Done, Folder, SCHEMA};
use super::plan::Plan;
use super::submission::submit;

/// Parses the plan of a text.
///
/// # Panics
/// If it is refused.
pub fn plan(text: &str) -> Plan {
    Plan::parse(text, "/".into()).unwrap()
}

/// Returns the tool that submits.
pub fn tool() -> Tool {
    trials::fixture::document(1).tool
}

/// Submits the campaign of a plan to `dir`.
///
/// # Panics
/// If it is refused.
pub fn submitted(dir: &Path, text: &str) -> (Folder, Campaign) {
    let plan = plan(text);
    let elements = elements(&plan, &|_| None);
    submit(dir, &plan, elements, (tool(), Path::new("/bin/true")), 7).unwrap()
}

/// Builds an outcome.
pub fn done(number: u64, attempt: u32, exit: u8) -> Done {
    Done {
        attempt: Attempt {
            schema: SCHEMA.to_owned(),
            element: number,
            attempt,
            host: Some("n1".to_owned()),
            boot: None,
            job: None,
            began_unix: 5,
            findings: Vec::new(),
        },
        name: "x".to_owned(),
        ended_unix: 6,
        exit: Some(exit),
        signal: None,
        documents: Vec::new(),
        error: None,
    }
}
