//! A result as it is shown: tables and notes with the verdict on them, in one value with a renderer for each form.
//! Pages take the tables one by one, since a [`Table`] serializes to what their templates show.

use serde::Serialize;

use super::fold::{Table, wrapped};
use crate::error::{Error, Exit, one_line};
use crate::junit::{self, Case};
use crate::shown;
use crate::verdict::Verdict;

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "it", rename_all = "lowercase")]
pub enum Part {
    /// A title over what follows.
    Heading(String),
    /// A table.
    Table(Table),
    /// A sentence: wrapped in a terminal, an item of a list elsewhere.
    Note(String),
}

/// A result as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Command and subject, for the heading of the verdict.
    pub title: String,
    /// The exit code and the verdict in a sentence, of a result that judges.
    pub verdict: Option<(Exit, String)>,
    /// Tables and notes, in order.
    pub parts: Vec<Part>,
    /// Cases for CI systems.
    pub suites: Vec<(String, Vec<Case>)>,
}

impl Report {
    /// Creates an empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Heading(text.into()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }

    /// Adds a note.
    pub fn note(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Note(text.into()));
    }

    /// Adds notes.
    pub fn notes<T: Into<String>>(&mut self, texts: impl IntoIterator<Item = T>) {
        self.parts.extend(texts.into_iter().map(|text| Part::Note(text.into())));
    }

    /// Formats the report for a terminal of so many columns; the verdict comes last.
    pub fn text(&self, width: usize) -> String {
        let mut out = String::new();
        let mut line = |text: &str| {
            out.push_str(text);
            out.push('\n');
        };
        let mut is_titled = true;
        for part in &self.parts {
            // A table, or the heading over it, stands apart from what is above.
            if !is_titled && !matches!(part, Part::Note(_)) {
                line("");
            }
            line(&match part {
                Part::Table(table) => table.text(width),
                Part::Heading(text) | Part::Note(text) => wrapped(text, width, "  "),
            });
            is_titled = matches!(part, Part::Heading(_));
        }
        if let Some((_, verdict)) = &self.verdict {
            line(&wrapped(verdict, width, "  "));
        }
        out
    }

    /// Formats the report as Markdown; the verdict comes first.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        if let Some((exit, verdict)) = &self.verdict {
            let mark = match exit {
                Exit::Done => "✅",
                Exit::Regression => "❌",
                _ => "⚠️",
            };
            out = format!("### {mark} {}: {}\n", shown::markdown(&self.title), shown::markdown(verdict));
        }
        let mut in_list = false;
        for part in &self.parts {
            let is_item = matches!(part, Part::Note(_));
            let text = match part {
                Part::Heading(text) => format!("### {}\n", shown::markdown(text)),
                Part::Table(table) => table.markdown(),
                Part::Note(text) => format!("- {}\n", shown::markdown(&one_line(text))),
            };
            let is_apart = !(out.is_empty() || is_item && in_list);
            out += if is_apart { "\n" } else { "" };
            out += &text;
            in_list = is_item;
        }
        out
    }

    /// Formats the cases as a JUnit report. A suite of its own has what keeps the whole from a verdict, or is an error.
    ///
    /// # Errors
    /// Exit 70: the template is wrong.
    pub fn junit(&self) -> Result<String, Error> {
        let mut suites = self.suites.clone();
        match &self.verdict {
            Some((Exit::Inconclusive, why)) => suites.push(junit::open("verdict", Some(Verdict::Inconclusive), why)),
            Some((Exit::Done | Exit::Regression, _)) | None => {}
            Some((_, why)) => suites.push(junit::open("verdict", None, why)),
        }
        junit::junit(&self.title, &suites)
    }
}
