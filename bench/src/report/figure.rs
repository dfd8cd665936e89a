//! A plot with its key and its table.

use serde::Serialize;

use super::plot::{Ink, Shape, class};

/// Cells as text; a row's first is its heading.
#[derive(Clone, Debug, Default, Serialize)]
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

/// A name in a plot's key.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    class: String,
    /// How it is drawn: line, bar, circle, cross.
    mark: &'static str,
    name: String,
}

impl Key {
    pub(super) fn line(ink: Ink, name: impl Into<String>) -> Self {
        Self { class: class(ink), mark: "line", name: name.into() }
    }

    pub(super) fn bar(ink: Ink, name: impl Into<String>) -> Self {
        Self { class: class(ink), mark: "bar", name: name.into() }
    }

    pub(super) fn dot(ink: Ink, shape: Shape, name: impl Into<String>) -> Self {
        let mark = match shape {
            Shape::Circle => "circle",
            Shape::Cross => "cross",
        };
        Self { class: class(ink), mark, name: name.into() }
    }
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    /// What it shows, where it comes from, and what was left out or thinned.
    pub(super) note: String,
    pub(super) svg: String,
    pub(super) key: Vec<Key>,
    pub(super) table: Table,
}

/// A dash for what is not known.
pub(super) fn dash() -> String {
    "–".to_owned()
}
