//! This workspace keeps its own rules, and a planted one breaks each of them.

use std::fs;
use std::path::Path;

use checks::docs::{dead, shown};
use checks::structure::{check, sources};

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
    let dead = dead(root()).unwrap();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn what_is_planted_is_found_and_no_more() {
    let (files, expected) = include_str!("planted.txt").split_once("== found\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files.split("== ").skip(1).filter_map(|file| file.split_once('\n')) {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let readme = fs::read_to_string(dir.path().join("README.md")).unwrap();
    let commands = shown(&readme).into_iter().map(|(line, words)| format!("{line}: {}", words.join("␣")));
    let found = [check(dir.path()).unwrap(), dead(dir.path()).unwrap(), commands.collect()].concat();
    // The planted workspace has none of the files that may open others.
    let found: Vec<String> = found.into_iter().filter(|line| !line.ends_with("take it off the list")).collect();
    assert_eq!(found.join("\n"), expected.trim_end());
}

#[test]
fn every_pitfall_names_tests_that_exist() {
    let mut text = String::new();
    for krate in ["arch-pmu", "bench", "guest", "host-pmu", "results", "sim", "vmm"] {
        for path in sources(&root().join(krate), "rs").unwrap() {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let cases = fs::read_to_string(root().join("guest/payload/cases.txt")).unwrap();
    let sequences = fs::read_to_string(root().join("host-pmu/src/bank/sequences.txt")).unwrap();
    text.extend(sequences.lines().filter_map(|line| Some(format!("#[test]\nfn {}(", line.strip_prefix("# ")?))));
    let page = fs::read_to_string(root().join("docs/pitfalls.md")).unwrap();
    let mut numbers = Vec::new();
    for cells in page.lines().map(|line| line.split('|').collect::<Vec<_>>()) {
        let Some(Ok(number)) = cells.get(1).map(|number| number.parse::<usize>()) else { continue };
        numbers.push(number);
        let mut tests = cells[5].split('`').skip(1).step_by(2).peekable();
        assert!(tests.peek().is_some(), "pitfall {number} names no test");
        for test in tests {
            let found = match test.strip_prefix("conformance: ") {
                // A case's key begins its line in the list of cases.
                Some(key) => cases.lines().any(|line| line.split(" | ").next() == Some(key)),
                // A property's test is a level deeper than others.
                None => ["", "    ", "        "].iter().any(|by| text.contains(&format!("#[test]\n{by}fn {test}("))),
            };
            assert!(found, "pitfall {number}: there is no test '{test}'");
        }
    }
    assert_eq!(numbers, (1..=30).filter(|number| *number != 13).collect::<Vec<_>>());
}
