//! `docs/pitfalls.md` names a test for each pitfall, and those tests exist.

use std::fs;
use std::path::Path;

/// Adds the Rust sources below a folder to `text`.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).expect("Rust is UTF-8"));
        }
    }
}

#[test]
fn every_pitfall_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for krate in ["arch-pmu", "bench", "guest", "host-pmu", "results", "sim", "vmm"] {
        sources(&root.join(krate), &mut text);
    }
    let cases = fs::read_to_string(root.join("bench/vpmu/src/experiment/conformance/cases.txt")).expect("cases.txt");
    let page = fs::read_to_string(root.join("docs/pitfalls.md")).expect("docs/pitfalls.md");
    let mut numbers = Vec::new();
    for cells in page.lines().map(|line| line.split('|').collect::<Vec<_>>()) {
        let Some(Ok(number)) = cells.get(1).map(|number| number.parse::<usize>()) else { continue };
        numbers.push(number);
        let tests: Vec<_> = cells[5].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "pitfall {number} names no test");
        for test in tests {
            let found = match test.strip_prefix("conformance: ") {
                // A case's key begins its line in the list of cases.
                Some(key) => cases.lines().any(|line| line.split(" | ").next() == Some(key)),
                // A property's test is a level deeper than others.
                None => {
                    ["", "    ", "        "].iter().any(|indent| text.contains(&format!("#[test]\n{indent}fn {test}(")))
                }
            };
            assert!(found, "pitfall {number}: there is no test '{test}'");
        }
    }
    assert_eq!(numbers, (1..=30).filter(|number| *number != 13).collect::<Vec<_>>());
}
