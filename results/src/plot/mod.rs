//! Plots as SVG: the one kit of every page and picture.
//!
//! Colours are classes of [`STYLE`], so that a page has a light, a dark and a printed set. A strategy has one colour wherever it
//! is drawn (`colour`). Texts are escaped, and a name stands beside every line, point and row.

mod axis;
mod colour;
mod lines;
mod rows;
mod svg;

pub(crate) use axis::{Axis, ticks};
pub use colour::PRESETS;
pub(crate) use lines::lines;
pub(crate) use rows::{DOTS, rows};

/// Colours and lines of every plot, for light and dark screens and for paper.
pub const STYLE: &str = include_str!("plot.css");

/// Returns a plot as a file of its own, with its style sheet.
pub(crate) fn standalone(plot: &str) -> String {
    let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\"";
    plot.replacen("<svg", open, 1).replacen('>', &format!(">\n<style>\n{STYLE}</style>\n"), 1)
}
