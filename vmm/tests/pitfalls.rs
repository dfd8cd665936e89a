//! `docs/pitfalls.md` names a test for each of the 30 pitfalls, and those tests exist.

use std::fs;
use std::path::{Path, PathBuf};

const PITFALLS: usize = 30;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust sources of the workspace's crates, in one text.
fn sources() -> String {
    let mut text = String::new();
    let mut folders: Vec<_> = ["arch-pmu", "bench", "guest", "host-pmu", "results", "sim", "vmm"]
        .iter()
        .map(|krate| root().join(krate))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).expect("Rust is UTF-8"));
            }
        }
    }
    text
}

/// Number and names of each row.
fn rows() -> Vec<(usize, Vec<String>)> {
    let text = fs::read_to_string(root().join("docs/pitfalls.md")).expect("docs/pitfalls.md");
    text.lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let number = cells.get(1)?.parse().ok()?;
            let tests = cells.get(5)?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            Some((number, tests))
        })
        .collect()
}

#[test]
fn every_pitfall_names_tests_that_exist() {
    let (rows, sources) = (rows(), sources());
    let cases = fs::read_to_string(root().join("bench/vpmu/src/experiment/conformance/cases.txt")).expect("cases.txt");
    let numbers: Vec<_> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=PITFALLS).collect::<Vec<_>>());
    for (number, tests) in rows {
        assert!(!tests.is_empty(), "pitfall {number} names no test");
        for test in tests {
            let found = match test.strip_prefix("conformance: ") {
                // A case's key begins its line in the list of cases.
                Some(key) => cases.lines().any(|line| line.split(" | ").next() == Some(key)),
                None => {
                    // A property's test is a level deeper than others.
                    let attributed = ["", "    ", "        "].map(|indent| format!("#[test]\n{indent}fn {test}("));
                    // Tests that need KVM are listed by name in a binary of their own.
                    let listed = format!("\"{test}\"");
                    attributed.iter().chain([&listed]).any(|text| sources.contains(text))
                }
            };
            assert!(found, "pitfall {number}: there is no test '{test}'");
        }
    }
}
