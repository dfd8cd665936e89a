//! A page as a value: sections of pieces, of which the template makes HTML.

use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;

use super::figure::Figure;
use crate::document::Tool;
use crate::error::{Error, Exit, one_line};
use crate::table::{Part, Report, Table};
use crate::template;

/// The style sheet of every page.
const STYLE: &str = concat!(include_str!("../plot/plot.css"), include_str!("page.css"));

/// A part of a section.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Piece {
    Heading {
        text: String,
    },
    Text {
        class: &'static str,
        text: String,
    },
    List {
        class: &'static str,
        items: Vec<String>,
    },
    Facts {
        facts: Vec<(&'static str, String)>,
    },
    Table {
        table: Table,
    },
    /// Plots, and other pieces beside them.
    Figures {
        figures: Vec<Figure>,
        beside: Vec<Piece>,
    },
    Fold {
        summary: String,
        open: bool,
        pieces: Vec<Piece>,
    },
}

impl Piece {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { class: "", text: text.into() }
    }

    pub(super) const fn table(table: Table) -> Self {
        Self::Table { table }
    }

    pub(super) fn fold(summary: impl Into<String>, pieces: Vec<Self>) -> Option<Self> {
        (!pieces.is_empty()).then(|| Self::Fold { summary: summary.into(), open: false, pieces })
    }
}

/// A section of the page.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
    /// Its name among the links at the top; empty for none.
    pub(super) nav: &'static str,
    pub(super) host: String,
    pub(super) badges: Vec<String>,
    pub(super) pieces: Vec<Piece>,
}

impl Section {
    pub(super) fn new(id: &str, title: &str, pieces: Vec<Piece>) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), pieces, ..Self::default() }
    }
}

/// Returns the parts of a report; notes and lines that follow one another are a list.
pub(super) fn pieces(parts: &[Part]) -> Vec<Piece> {
    let mut found = Vec::new();
    for part in parts {
        match part {
            Part::Heading(text) => found.push(Piece::Heading { text: text.clone() }),
            Part::Table(table) => found.push(Piece::table(table.clone())),
            Part::Note(text) | Part::Line(text) => match found.last_mut() {
                Some(Piece::List { items, .. }) => items.push(one_line(text)),
                _ => found.push(Piece::List { class: "sentences", items: vec![one_line(text)] }),
            },
            Part::Sources(text) => found.push(Piece::text(text)),
            Part::Gap => {}
        }
    }
    found
}

/// Makes a page of a report, such as that of many hosts.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(report: &Report, title: &str, tool: &Tool) -> Result<String, Error> {
    let (exit, verdict) = report.verdict.clone().unwrap_or((Exit::Done, String::new()));
    let class = if exit == Exit::Regression { "note" } else { "" };
    let first = Piece::Text { class, text: verdict };
    let section = Section::new("report", &report.title, std::iter::once(first).chain(pieces(&report.parts)).collect());
    render(title, "", tool, &[section])
}

pub(super) fn render(title: &str, summary: &str, tool: &Tool, sections: &[Section]) -> Result<String, Error> {
    let tool = format!("{} {} ({}, {})", tool.name, tool.version, tool.git_revision, tool.profile);
    let sections = minijinja::Value::from(Serde(sections));
    let values = context! { title, summary, tool, sections, style => STYLE };
    template::page(include_str!("page.html"), values)
}
