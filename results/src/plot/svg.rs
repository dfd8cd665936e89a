//! A plot as a value, which the template `plot.svg` draws: places are in units of its view box, and texts are escaped there.

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use super::axis::Axis;
use crate::error::{Error, one_line};
use crate::template;

/// Colours and lines of every plot, for light and dark screens and for paper.
pub const STYLE: &str = include_str!("plot.css");
/// Width of a drawing in user units; plots scale by their view box.
pub(super) const WIDTH: f64 = 1000.0;
/// Room right of a plot's area, for half a tick's text.
pub(super) const RIGHT: f64 = 52.0;
/// Room above a plot's area.
pub(super) const TOP: f64 = 14.0;
/// Half of a text's height above its base line.
pub(super) const HALF_LINE: f64 = 11.0;
/// Height of a line of text on a phone, where texts are largest.
pub(super) const LINE: f64 = 38.0;
/// Width of a character on a phone.
pub(super) const CHARACTER: f64 = 19.0;

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plot {
    /// A screen reader says this.
    pub(super) label: String,
    /// Title within the drawing; empty for none.
    pub(super) title: String,
    /// The area between the axes.
    pub(super) area: Area,
    pub(super) x: Scale,
    pub(super) y: Option<Scale>,
    /// Place and name of the base of ratios.
    pub(super) base: Option<(f64, Text)>,
    pub(super) series: Vec<Series>,
}

/// The area between the axes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// An axis in its place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Scale {
    label: String,
    /// Middle of the label.
    middle: f64,
    /// Places of the grid's lines with their texts.
    ticks: Vec<(f64, String)>,
}

/// A text: where its `start`, `middle` or `end` lies on its base line.
pub(super) type Text = (f64, f64, &'static str, String);

/// A group of elements of one name and colour.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    /// Its tooltip.
    pub(super) tip: String,
    /// Its classes in the style sheet.
    pub(super) ink: String,
    pub(super) path: String,
    pub(super) dots: Vec<(f64, f64)>,
    /// Path from a line's end to its name; empty where the name is no line's.
    pub(super) lead: String,
    pub(super) texts: Vec<Text>,
}

impl Scale {
    /// Places an axis from `from` to `to`.
    pub(super) fn new(axis: &Axis, from: f64, to: f64) -> Self {
        let half = |text: &str| text.chars().count() as f64 * CHARACTER / 2.0;
        let ticks = axis.ticks.iter().map(|(value, text)| (axis.place(*value, from, to), text.clone())).collect();
        // A label that is longer than the axis is moved until the drawing has room for it.
        let middle = f64::midpoint(from, to).min(WIDTH - half(&axis.label)).max(half(&axis.label));
        Self { label: axis.label.clone(), middle, ticks }
    }

    /// Leaves out each text that would touch its neighbour beside it.
    pub(super) fn across(mut self) -> Self {
        let mut free = f64::NEG_INFINITY;
        for (x, text) in &mut self.ticks {
            let half = text.chars().count() as f64 * CHARACTER / 2.0;
            if *x - half > free {
                free = *x + half + CHARACTER;
            } else {
                text.clear();
            }
        }
        self
    }
}

/// Draws a plot as a file of its own, with its style sheet.
///
/// # Errors
/// Exit 70: the template is wrong.
pub(crate) fn standalone(plot: &Plot) -> Result<String, Error> {
    let source = concat!(include_str!("plot.svg"), "{{ drawing(plot, style) }}");
    template::page(source, context! { plot => Value::from(Serde(plot)), style => STYLE })
}

/// Returns the path of lines through points.
pub(super) fn path(lines: &[&[(f64, f64)]]) -> String {
    let point = |(n, (x, y)): (usize, &(f64, f64))| format!("{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
    lines.iter().flat_map(|line| line.iter().enumerate().map(point)).collect()
}

/// Shortens a name to so many characters; the table below the plot has the whole name.
pub(super) fn short(name: &str, most: usize) -> String {
    let name = one_line(name);
    if name.chars().count() <= most { name } else { name.chars().take(most - 1).chain(['…']).collect() }
}
