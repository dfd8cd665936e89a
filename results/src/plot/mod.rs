//! Plots as SVG: the one kit of every page and picture.
//!
//! Colours are classes of [`STYLE`], so that a page has a light, a dark and a printed set. A strategy has one colour wherever it
//! is drawn (`colour`), and a name stands beside every line, point and row. A plot is a value that a template draws.

mod axis;
mod colour;
mod lines;
mod rows;
mod svg;

pub(crate) use axis::{Axis, ticks};
pub use colour::PRESETS;
pub(crate) use lines::lines;
pub(crate) use rows::rows;
pub use svg::STYLE;
pub(crate) use svg::{Plot, standalone};
