//! A drawing as SVG text, element by element, and the area between its axes. Texts are escaped.

use std::fmt::Write as _;

use minijinja::HtmlEscape;

use super::axis::Axis;
use crate::error::one_line;
use crate::shown;

/// Size of texts in user units, where no style sheet has another one.
const FONT: u32 = 25;
/// Width of a drawing in user units; plots scale by their view box.
pub(super) const WIDTH: f64 = 1000.0;
/// Room right of a plot's area, for half a tick's text.
pub(super) const RIGHT: f64 = 52.0;
/// Room above a plot's area.
pub(super) const TOP: f64 = 14.0;
/// Room for the ticks' texts and the label of the x axis.
pub(super) const BELOW: f64 = 100.0;
/// Half of a text's height above its base line.
pub(super) const HALF_LINE: f64 = 11.0;
/// Height of a line of text on a phone, where texts are largest.
pub(super) const LINE: f64 = 38.0;
/// Width of a character on a phone.
pub(super) const CHARACTER: f64 = 19.0;

/// Filters text of others, and escapes it as content or the value of an attribute.
fn escaped(text: &str) -> String {
    HtmlEscape(&shown::line(text)).to_string()
}

/// A drawing under way. Writing to a String cannot fail.
pub(super) struct Svg(String);

impl Svg {
    /// Creates an empty drawing. A screen reader says `label`.
    pub(super) fn new(label: &str, width: f64, height: f64) -> Self {
        let label = escaped(label);
        Self(format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\" font-size=\"{FONT}\">\n<title>{label}</title>\n"
        ))
    }

    /// Draws a line through points.
    pub(super) fn line(&mut self, class: &str, width: f64, points: &[(f64, f64)]) {
        let _ = write!(self.0, "<path class=\"{class}\" stroke-width=\"{width}\" d=\"");
        for (n, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.0, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
        }
        self.0.push_str("\"/>\n");
    }

    /// Draws a circle of this ink, filled, or hollow where a line would have a pattern.
    pub(super) fn circle(&mut self, ink: &str, (x, y): (f64, f64), radius: f64) {
        let fill = if ink.contains(' ') { 'o' } else { 'f' };
        let _ = writeln!(self.0, "<circle class=\"{fill} {ink}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
    }

    /// Draws a filled rectangle from its upper left corner.
    pub(super) fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Draws many small dots of one class as one path.
    pub(super) fn points(&mut self, class: &str, size: f64, points: impl IntoIterator<Item = (f64, f64)>) {
        let _ = write!(self.0, "<path class=\"{class}\" stroke-width=\"{size}\" d=\"");
        for (x, y) in points {
            let _ = write!(self.0, "M{x:.0} {y:.0}h0");
        }
        self.0.push_str("\"/>\n");
    }

    /// Opens a group of the elements of one series. `title` is its tooltip.
    pub(super) fn open(&mut self, series: &str, title: &str) {
        let (series, title) = (escaped(series), escaped(title));
        let _ = writeln!(self.0, "<g data-s=\"{series}\"><title>{title}</title>");
    }

    /// Closes the group.
    pub(super) fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// Writes a text on its base line, of a class if that is not empty; its `start`, `middle` or `end` lies at the place.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = escaped(text);
        let _ = writeln!(self.0, "<text{class} x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// Returns the whole text.
    pub(super) fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The area between the axes.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    /// Draws vertical grid lines with their texts, and the label below.
    pub(super) fn x_axis(self, svg: &mut Svg, axis: &Axis) {
        let mut ticks: Vec<(f64, String)> =
            axis.ticks().map(|(value, text)| (axis.place(value, self.left, self.right), text)).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = f64::NEG_INFINITY;
        for (x, text) in ticks {
            svg.line("grid", 2.0, &[(x, self.top), (x, self.bottom)]);
            let half = text.chars().count() as f64 * CHARACTER / 2.0;
            // A text that would touch its neighbour is left out.
            if x - half > free {
                svg.text("", (x, self.bottom + 36.0), "middle", &text);
                free = x + half + CHARACTER;
            }
        }
        svg.line("rule", 2.0, &[(self.left, self.bottom), (self.right, self.bottom)]);
        // A label that is longer than the axis is moved until the drawing has room for it.
        let half = axis.label.chars().count() as f64 * CHARACTER / 2.0;
        let middle = f64::midpoint(self.left, self.right).min(WIDTH - half).max(half);
        svg.text("", (middle, self.bottom + 82.0), "middle", &axis.label);
    }

    /// Draws horizontal grid lines with their texts, and the label above.
    pub(super) fn y_axis(self, svg: &mut Svg, axis: &Axis) {
        for (value, text) in axis.ticks() {
            let y = axis.place(value, self.bottom, self.top);
            svg.line("grid", 2.0, &[(self.left, y), (self.right, y)]);
            svg.text("", (self.left - 10.0, y + HALF_LINE), "end", &text);
        }
        svg.line("rule", 2.0, &[(self.left, self.top), (self.left, self.bottom)]);
        svg.text("", (4.0, self.top - 14.0), "start", &axis.label);
    }

    /// Returns the place of a point.
    pub(super) fn place(self, x: &Axis, y: &Axis, (a, b): (f64, f64)) -> (f64, f64) {
        (x.place(a, self.left, self.right), y.place(b, self.bottom, self.top))
    }
}

/// Shortens a name to so many characters; the table below the plot has the whole name.
pub(super) fn short(name: &str, most: usize) -> String {
    let name = one_line(name);
    if name.chars().count() <= most { name } else { name.chars().take(most - 1).chain(['…']).collect() }
}
