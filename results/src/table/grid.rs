//! The tables of a document: an arm a row.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::layout;
use crate::document::Arm;

/// The arm's name, with a star where its figures are not whole.
pub(super) fn name(arm: &Arm) -> String {
    let star = if arm.incomplete.is_empty() { "" } else { "*" };
    format!("{}{star}", arm.name)
}

pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    // Nothing is wrapped: the tables fit their columns.
    table.load_style(layout::STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(cells(header.map(str::to_owned)));
    for column in table.column_iter_mut() {
        // A wide table stays within 60 columns.
        column.set_padding((0, u16::from(N < 7)));
    }
    table
}

pub(super) fn cells<const N: usize>(texts: [String; N]) -> impl Iterator<Item = Cell> {
    texts.into_iter().enumerate().map(|(i, text)| {
        let side = if i == 0 { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(side)
    })
}
