//! The tables of docs/contributing.md: what each crate may depend on, and its places, compared with its folders, files and arrows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::text::split_code;
use crate::graph::Graph;
use crate::rust;

/// The document with the table.
const DOCUMENT: &str = "docs/contributing.md";
/// The head of the table of crates.
const CRATES: &str = "| crate | depends on |";
/// The head of the table of folders.
const HEAD: &str = "| crate | folders and files, from the top |";

/// A row: a crate and the levels of its places, from the top.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    levels: Vec<Vec<String>>,
}

/// Crates whose places are not listed: they serve tests alone.
const OF_TESTS: [&str; 2] = ["checks", "trials"];

/// A crate and those that it may depend on, tests aside.
pub type Allowed = (String, Vec<String>);

/// What the crates at `root` may depend on, from the top.
pub fn allowed(root: &Path) -> Result<Vec<Allowed>> {
    let allowed = crates(&read(root)?);
    ensure!(!allowed.is_empty(), "{DOCUMENT} has no table of crates");
    Ok(allowed)
}

fn read(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))
}

fn crates(text: &str) -> Vec<Allowed> {
    let names = |cell: &str| split_code(cell).0.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let row = |line: &str| {
        let (crates, below) = line.trim_matches('|').split_once('|')?;
        let below = names(below);
        // A tool's name is no crate's.
        let crates = names(crates.split(", the ").next().unwrap_or(crates));
        Some(crates.into_iter().map(|name| (name, below.clone())).collect::<Vec<_>>())
    };
    table(text, CRATES).filter_map(row).flatten().collect()
}

/// The rows of the table with this head.
fn table<'a>(text: &'a str, head: &str) -> impl Iterator<Item = &'a str> {
    text.lines().skip_while(move |line| *line != head).skip(2).take_while(|line| line.starts_with('|'))
}

/// What the table of folders says otherwise than the tree at `root`, whose crates have these names.
pub fn untrue(root: &Path, members: &[&str]) -> Result<Vec<String>> {
    let text = read(root)?;
    let rows = rows(&text);
    ensure!(!rows.is_empty(), "{DOCUMENT} has no table of folders");
    let mut findings = unlisted(&rows, members);
    for row in rows {
        let source = root.join(&row.name).join("src");
        findings.extend(differences(&row, &places(&source)?));
        findings.extend(upward(&row, &rust::arrows(&source.join("lib.rs"))?));
    }
    Ok(findings)
}

/// Crates without a row.
fn unlisted(rows: &[Row], members: &[&str]) -> Vec<String> {
    let listed = |name: &str| OF_TESTS.contains(&name) || rows.iter().any(|row| row.name == name);
    let without = members.iter().filter(|name| !listed(name));
    without.map(|name| format!("{DOCUMENT}: crate {name} is not in the table of folders")).collect()
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.trim_matches('`').to_owned();
        let levels = cells.next()?.split('→');
        let levels = levels.map(|level| split_code(level).0.into_iter().map(str::to_owned).collect()).collect();
        Some(Row { name, levels })
    };
    table(text, HEAD).filter_map(row).collect()
}

/// The places of a crate: its folders, with a slash, and its files without a folder.
fn places(source: &Path) -> Result<BTreeSet<String>> {
    let mut places = BTreeSet::new();
    for entry in std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            places.insert(format!("{name}/"));
        } else if let Some(stem) = name.strip_suffix(".rs")
            && !matches!(stem, "lib" | "main")
            && !source.join(stem).is_dir()
        {
            places.insert(stem.to_owned());
        }
    }
    Ok(places)
}

fn differences(row: &Row, places: &BTreeSet<String>) -> Vec<String> {
    let Row { name, levels } = row;
    let mut listed = BTreeSet::new();
    let mut findings = Vec::new();
    for place in levels.iter().flatten() {
        if !listed.insert(place.clone()) {
            findings.push(format!("{DOCUMENT}: {name}: {place} is listed twice"));
        } else if !places.contains(place) {
            findings.push(format!("{DOCUMENT}: {name}: there is no {place}"));
        }
    }
    findings.extend(places.difference(&listed).map(|place| format!("{DOCUMENT}: {name}: {place} is not in the table")));
    findings
}

/// Arrows from a lower level to a higher one.
fn upward(row: &Row, files: &Graph) -> Vec<String> {
    let mut level_of = BTreeMap::new();
    for (level, places) in row.levels.iter().enumerate() {
        level_of.extend(places.iter().map(|place| (place.trim_end_matches('/'), level)));
    }
    let place = |file: &str| level_of.get(file.split('/').next()?.trim_end_matches(".rs")).copied();
    let up =
        files.arrows().filter(|(from, to, _)| matches!((place(from), place(to)), (Some(from), Some(to)) if from > to));
    up.map(|(from, to, _)| format!("{DOCUMENT}: {}: an arrow leads up from {from} to {to}", row.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        rows(&format!("{HEAD}\n|---|---|\n| `a` | `top/` (the `x`) → `low`, `bottom` |\n\n| `b` | `c` |")).remove(0)
    }

    #[test]
    fn a_row_of_crates_is_each_with_those_below_it() {
        let text = format!("{CRATES}\n|---|---|\n| `a`, the `tool` | `b`, `c` |\n| `b`, `c` | none; of use |\n");
        let of = |name: &str, below: &[&str]| (name.to_owned(), below.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(crates(&text), [of("a", &["b", "c"]), of("b", &[]), of("c", &[])]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let found = unlisted(&[row()], &["a", "new", "checks"]);
        assert_eq!(found, ["docs/contributing.md: crate new is not in the table of folders"]);
    }

    #[test]
    fn a_row_is_a_crate_and_its_floors() {
        let levels = vec![vec!["top/".to_owned(), "x".to_owned()], vec!["low".to_owned(), "bottom".to_owned()]];
        assert_eq!(row(), Row { name: "a".to_owned(), levels });
    }

    #[test]
    fn a_room_that_is_missing_too_many_or_in_two_places_is_found() {
        let places = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        assert!(differences(&row(), &places(&["top/", "x", "low", "bottom"])).is_empty());
        let found = differences(&row(), &places(&["top/", "x", "low", "new"]));
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("no bottom") && found[1].contains("new is not"), "{found:?}");
        let twice = Row { levels: vec![vec!["x".to_owned(), "x".to_owned()]], ..row() };
        assert!(differences(&twice, &places(&["x"]))[0].contains("listed twice"));
    }

    #[test]
    fn an_arrow_to_a_higher_floor_is_found() {
        let graph = |from: &str, to: &str| {
            let mut graph = Graph::default();
            graph.add(from, to, "name");
            graph
        };
        assert!(upward(&row(), &graph("top/one.rs", "low.rs")).is_empty());
        assert!(upward(&row(), &graph("low.rs", "bottom.rs")).is_empty());
        assert!(upward(&row(), &graph("low.rs", "top/one.rs"))[0].contains("from low.rs"));
    }
}
