//! A drawing as SVG text, element by element. Texts are escaped.

use std::fmt::Write as _;

use minijinja::HtmlEscape;

use super::axis::Axis;

/// Size of texts in user units, where no style sheet has another one.
const FONT: u32 = 26;

/// End of a text that lies at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under way. Writing to a String cannot fail.
pub(super) struct Svg(String);

impl Svg {
    /// Creates an empty drawing. A screen reader says `label`.
    pub(super) fn new(label: &str, width: f64, height: f64) -> Self {
        let label = HtmlEscape(label);
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

    /// Draws a filled circle.
    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let _ = writeln!(self.0, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
    }

    /// Draws a filled rectangle from its upper left corner.
    pub(super) fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Draws many small dots of one class, as one path.
    pub(super) fn points(&mut self, class: &str, size: f64, points: impl IntoIterator<Item = (f64, f64)>) {
        let _ = write!(self.0, "<path class=\"{class}\" stroke-width=\"{size}\" d=\"");
        for (x, y) in points {
            let _ = write!(self.0, "M{x:.0} {y:.0}h0");
        }
        self.0.push_str("\"/>\n");
    }

    /// Encodes for a script how to find the values of places: the axes, and left, right, top and bottom of the area between them.
    pub(super) fn axes(&mut self, x: &Axis, y: &Axis, area: [f64; 4]) {
        let area = area.map(|edge| format!("{edge:.0}")).join(" ");
        let _ = writeln!(
            self.0,
            "<g class=\"axes\" data-x=\"{}\" data-y=\"{}\" data-area=\"{area}\" data-kind=\"{}\"/>",
            x.scale(),
            y.scale(),
            HtmlEscape(&x.label)
        );
    }

    /// Opens a group of the elements of one series. `title` is its tooltip.
    pub(super) fn open(&mut self, series: &str, title: &str) {
        let (series, title) = (HtmlEscape(series), HtmlEscape(title));
        let _ = writeln!(self.0, "<g data-s=\"{series}\"><title>{title}</title>");
    }

    /// Closes the group.
    pub(super) fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// Writes a text on its base line.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.classed("", (x, y), anchor, text);
    }

    /// Writes a text of a class.
    pub(super) fn classed(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = HtmlEscape(text);
        let _ = writeln!(self.0, "<text{class} x=\"{x:.0}\" y=\"{y:.0}\"{anchor}>{text}</text>");
    }

    /// Writes a text that runs upwards, with its middle at the place.
    pub(super) fn upright(&mut self, x: f64, y: f64, text: &str) {
        let text = HtmlEscape(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{text}</text>"
        );
    }

    /// Returns the whole text as a file of its own, with a style sheet and the size of a page.
    pub(super) fn standalone(text: &str, style: &str) -> String {
        let head = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\"";
        let body = text.strip_prefix("<svg").unwrap_or(text);
        let (open, rest) = body.split_once('>').unwrap_or((body, ""));
        format!("{head}{open}>\n<style>\n{style}</style>\n{rest}")
    }

    /// Returns the whole text.
    pub(super) fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
