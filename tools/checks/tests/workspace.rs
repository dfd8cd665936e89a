//! This workspace keeps its own rules.

use std::path::Path;

use checks::structure::check;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace around this crate")
}

#[test]
fn arrows_lead_down() {
    let findings = check(root()).unwrap();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn links_anchors_and_paths_in_documents_lead_somewhere() {
    let dead = checks::docs::dead(root()).unwrap();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}
