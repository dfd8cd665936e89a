//! A page as a value: sections of figures and of the parts of reports, of which the template makes HTML.

use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;

use super::figure::Figure;
use crate::document::Tool;
use crate::error::Error;
use crate::table::{Part, Report};
use crate::template;

/// The style sheet of every page.
const STYLE: &str = concat!(include_str!("../plot/plot.css"), include_str!("page.css"));

/// A section of the page: what it says first, and what is folded, each fold a section of its own.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    /// It is empty in a fold.
    pub(super) id: String,
    pub(super) title: String,
    /// Its name among the links at the top; empty for none.
    pub(super) nav: &'static str,
    pub(super) host: String,
    pub(super) badges: Vec<String>,
    pub(super) caveats: Vec<String>,
    pub(super) figures: Vec<Figure>,
    /// Beside the figures.
    pub(super) parts: Vec<Part>,
    pub(super) folds: Vec<Section>,
    /// A fold is open at first.
    pub(super) open: bool,
}

impl Section {
    pub(super) fn new(id: &str, title: &str, nav: &'static str) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), nav, ..Self::default() }
    }
}

/// Makes a page of a report, such as that of many hosts.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(report: &Report, title: &str, tool: &Tool) -> Result<String, Error> {
    let verdict = report.verdict.iter().map(|(_, verdict)| Part::Note(verdict.clone()));
    let parts = verdict.chain(report.parts.iter().cloned()).collect();
    render(title, "", tool, &[Section { parts, ..Section::new("report", &report.title, "") }])
}

pub(super) fn render(title: &str, summary: &str, tool: &Tool, sections: &[Section]) -> Result<String, Error> {
    let tool = format!("{} {} ({}, {})", tool.name, tool.version, tool.git_revision, tool.profile);
    let sections = minijinja::Value::from(Serde(sections));
    let values = context! { title, summary, tool, sections, style => STYLE };
    template::page(concat!(include_str!("../plot/plot.svg"), include_str!("page.html")), values)
}
