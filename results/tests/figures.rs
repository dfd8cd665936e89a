//! Figures of the book: each stands in the pages as the tool prints it for a document in `results/baselines`.
//!
//! A page has them between two comments, `figure:` with the place and `end`. Places are `BASELINE/ARM/COLUMN` (a cell
//! of the tables), `BASELINE/ARM/ARM` (the ratio of two arms), `BASELINE/run` (rounds, day, load), and
//! `BASELINE/table` (the tables as Markdown). `VPMU_WRITE_FIGURES=1 cargo test -p results --test
//! figures` fills them in, and draws README's picture.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use results::document::Document;
use results::paired;
use results::table::layout;
use results::{answers, export, read, table, write};

const BEGIN: &str = "<!--figure:";
const END: &str = "<!--end-->";
/// Title of the table of the host's work.
const WORK: &str = "\nHost work per";
/// Columns of the tables that a page shows as one.
const COLUMNS: [&str; 6] = ["arm", "p50", "×", "opens", "ops", "held"];
/// Picture of the published workload, and its baseline.
const PICTURE: (&str, &str) = ("docs/img/strategies.svg", "development-host-sampling10");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn file(baseline: &str) -> PathBuf {
    root().join("results/baselines").join(baseline).join("nmi-latency.json")
}

/// Returns the cells of the first table in a text, headings first.
fn cells(text: &str) -> Vec<Vec<&str>> {
    let mut rules = 0;
    let lines = text.lines().skip_while(|line| !line.starts_with("arm ")).take_while(|line| {
        rules += usize::from(line.starts_with('─'));
        rules < 2
    });
    let rows = lines.filter(|line| !line.starts_with('─'));
    rows.map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

/// Documents that were read, each with its tables in one piece.
type Known = BTreeMap<String, (Document, String)>;

/// Returns the figure at a place.
fn figure(known: &mut Known, place: &str) -> Result<String, String> {
    let unknown = || format!("there is no figure {place}");
    let (baseline, wanted) = place.split_once('/').ok_or_else(unknown)?;
    if !known.contains_key(baseline) {
        let document: Document = read::document(&file(baseline)).map_err(|error| error.to_string())?;
        let text = table::report(std::slice::from_ref(&document), true).text(120);
        known.insert(baseline.to_owned(), (document, text));
    }
    let (document, text) = &known[baseline];
    let first = text.split("\nAll samples").next().unwrap_or_default();
    let work = &text[text.find(WORK).ok_or_else(unknown)?..];
    if wanted == "run" {
        let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
        let busy = document.warnings.iter().any(|warning| warning.code == "load");
        let host = if busy { "busy" } else { "otherwise idle" };
        return Ok(format!("{rounds} rounds, {}, {host}", &write::utc(document.started_unix)[..10]));
    }
    let mut rows = cells(first);
    for (row, more) in rows.iter_mut().zip(cells(work)) {
        row.extend(&more[1..]);
    }
    let at = |column| rows[0].iter().position(|heading| heading.split(' ').next() == Some(column));
    if wanted == "table" {
        let columns: Vec<usize> = COLUMNS.iter().filter_map(|column| at(column)).collect();
        let line = |row: &Vec<&str>| {
            let cells: Vec<&str> = columns.iter().map(|at| row[*at]).collect();
            format!("|{}|\n", cells.join("|"))
        };
        let rule = format!("|{}\n", "---|".repeat(columns.len()));
        return Ok(format!("\n\n{}{rule}{}\n", line(&rows[0]), rows[1..].iter().map(line).collect::<String>()));
    }
    let (arm, column) = wanted.split_once('/').ok_or_else(unknown)?;
    if let (Some(arm), Some(base)) = (document.arm(arm), document.arm(column)) {
        let metric = answers::metric(&document.parameters).key;
        let ratio = paired::over_runs(document, arm, base, metric).ok_or_else(unknown)?;
        return Ok(layout::ratio_with(&ratio));
    }
    let row = rows.iter().find(|row| row[0] == arm);
    at(column).zip(row).and_then(|(at, row)| row.get(at)).map(|cell| (*cell).to_owned()).ok_or_else(unknown)
}

/// Returns a page with every figure that it marks filled in.
fn filled(known: &mut Known, page: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, marked)) = rest.split_once(BEGIN) {
        let (place, old) = marked.split_once("-->").ok_or("a comment has no end")?;
        let (_, behind) = old.split_once(END).ok_or_else(|| format!("figure {place} has no end"))?;
        out.extend([before, BEGIN, place, "-->", &figure(known, place)?, END]);
        rest = behind;
    }
    Ok(out + rest)
}

#[test]
fn pages_and_picture_are_those_of_the_documents() {
    let mut known = Known::new();
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.chain([root().join("README.md")]).map(|path| {
        let old = fs::read_to_string(&path).unwrap();
        let new = filled(&mut known, &old).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        (path, old, new)
    });
    let record = read::document(&file(PICTURE.1)).unwrap();
    let svg = export::ALL.into_iter().find(|format| format.name == "svg").unwrap();
    let drawn = export::export(svg, &[record]).unwrap();
    let path = root().join(PICTURE.0);
    let old = fs::read_to_string(&path).unwrap();
    let mut differ = Vec::new();
    for (path, _, new) in pages.chain([(path, old, drawn)]).filter(|(_, old, new)| old != new) {
        if std::env::var_os("VPMU_WRITE_FIGURES").is_some() {
            fs::write(&path, new).unwrap();
        } else {
            differ.push(path);
        }
    }
    assert!(differ.is_empty(), "set VPMU_WRITE_FIGURES=1 to fill in the figures of {differ:?}");
}

#[test]
fn every_baseline_loads() {
    let folders = fs::read_dir(root().join("results/baselines")).unwrap();
    for folder in folders {
        assert!(!read::folder(&folder.unwrap().path()).unwrap().records.is_empty());
    }
}
