//! The command line accepts every command that a document shows.

use std::path::Path;

use checks::docs::{documents, shown};
use host_pmu::strategy::PRESETS;

/// Returns whether the error is about a file of the command's, which only a reader of the document has.
fn names_a_missing_file(words: &[String], error: &str) -> bool {
    let is_file = |part: &str| part.contains('/') || Path::new(part).extension().is_some();
    let mut parts = words.iter().skip(1).flat_map(|word| word.split([',', '=']));
    error.contains("No such file")
        && parts.any(|part| is_file(part) && error.contains(part) && !Path::new(part).exists())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace around this crate")
}

#[test]
fn every_command_in_the_documents_parses() {
    let (mut count, mut refused) = (0, Vec::new());
    for document in documents(root()).unwrap() {
        let text = std::fs::read_to_string(&document).unwrap();
        for (line, words) in shown(&text) {
            count += 1;
            if let Err(error) = vpmu::cli::app::parse(&words)
                && !names_a_missing_file(&words, &error.to_string())
            {
                refused.push(format!("{}:{line}: {}: {error}", document.display(), words.join(" ")));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count >= 40, "only {count} commands found");
}

#[test]
fn conformance_shows_the_plan_of_a_default_run() {
    let text = std::fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let plan = text.lines().skip_while(|line| *line != "TAP version 14").nth(1);
    // Every preset with both default versions.
    assert_eq!(plan, Some(format!("1..{}", PRESETS.len() * 2).as_str()));
}
