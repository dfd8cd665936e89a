//! A plot with its key and its table, and the page that they are put into: its template escapes every text.

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use crate::error::Error;
use crate::plot::Ink;
use crate::template;

/// Cells as text; a row's first is its heading.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(into = "Laid")]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(caption: impl Into<String>, head: &[&str]) -> Self {
        Self { caption: caption.into(), head: head.iter().map(|&text| text.to_owned()).collect(), rows: Vec::new() }
    }
}

/// A table with its columns' classes: `n` numbers, `t` short texts, `w` texts that are wrapped.
#[derive(Serialize)]
struct Laid {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    classes: Vec<&'static str>,
}

/// Longer texts are wrapped.
const SHORT: usize = 24;

impl From<Table> for Laid {
    fn from(Table { caption, head, rows }: Table) -> Self {
        let is_number =
            |cell: &str| cell.is_empty() || cell == dash() || cell.starts_with(|c: char| "+-0123456789".contains(c));
        let class = |column: usize| {
            let cells = || rows.iter().filter_map(|row| row.get(column));
            if cells().any(|cell| cell.chars().count() > SHORT) {
                "w"
            } else if cells().all(|cell| is_number(cell)) {
                "n"
            } else {
                "t"
            }
        };
        Self { classes: (0..head.len()).map(class).collect(), caption, head, rows }
    }
}

/// A name in a plot's key.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    class: String,
    name: String,
}

impl Key {
    pub(super) fn dot(ink: Ink, name: impl Into<String>) -> Self {
        Self { class: ink.mark(), name: name.into() }
    }
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    /// Note on the subject, the source, and what was left out or thinned.
    pub(super) note: String,
    /// Its SVG.
    pub(super) plot: String,
    /// Names for which the plots have no room.
    pub(super) key: Vec<Key>,
    pub(super) table: Table,
}

/// Returns a dash for an unknown figure.
pub(super) fn dash() -> String {
    "–".to_owned()
}

/// The page's own script, the only one that its content security policy allows.
pub(super) const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of the script in base64: `openssl dgst -sha256 -binary page.js | base64`.
pub(super) const DIGEST: &str = "3Cs8rME1Q1ltQMxSOXmPejfgn44m3BPLK9jMrtiWhcc=";

/// The style sheet of every page.
pub const STYLE: &str = concat!(include_str!("../plot/plot.css"), include_str!("page.css"));

/// Renders the page as HTML.
pub(super) fn render(page: &impl serde::Serialize) -> Result<String, Error> {
    let values = context! { page => Value::from(Serde(page)), style => STYLE, script => SCRIPT, digest => DIGEST };
    template::page(include_str!("page.html"), values)
}
