//! This workspace keeps its own rules.

use std::path::Path;

use checks::structure::check;
use checks::workspace::Workspace;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace around this crate")
}

#[test]
fn floors_sizes_and_unsafe_code() {
    let findings = check(root()).unwrap().findings;
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn dependencies_have_a_licence_that_is_allowed() {
    let refused = Workspace::read(root()).unwrap().licences();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn dependencies_build_with_the_compiler_that_cargo_toml_names() {
    let newer = Workspace::read(root()).unwrap().too_new();
    assert!(newer.is_empty(), "{}", newer.join("\n"));
}

#[test]
fn the_floor_plan_is_the_trees() {
    let members = Workspace::read(root()).unwrap().members();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let untrue = checks::docs::crate_tables::untrue(root(), &names).unwrap();
    assert!(untrue.is_empty(), "{}", untrue.join("\n"));
}

#[test]
fn links_anchors_and_paths_in_documents_lead_somewhere() {
    let dead = checks::docs::links::dead(root()).unwrap();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn tables_and_paragraphs_of_documents_are_laid_out_as_meant() {
    let wrong = checks::docs::layout::wrong(root()).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn examples_have_the_fields_and_items_of_the_tree() {
    let members = Workspace::read(root()).unwrap().members();
    let folders: Vec<&Path> = members.iter().map(|member| member.folder.as_path()).collect();
    let untrue = checks::docs::examples::untrue(root(), &folders).unwrap();
    assert!(untrue.is_empty(), "{}", untrue.join("\n"));
}
