//! Plots as SVG. Colours are classes, so that a style sheet can have a light, a dark and a printed set; every line has a dash
//! pattern besides.

use super::axis::Axis;
use super::svg::{Anchor, Svg};
use crate::error::one_line;

/// Width in user units; plots scale by their view box.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 700.0;
/// Room of a row, its name above it included.
const ROW: f64 = 96.0;
/// Room right of the plot's area, for half a tick's text.
const RIGHT: f64 = 68.0;
/// Room for the ticks' texts and the label of the x axis.
const BELOW: f64 = 112.0;
/// Room for the ticks' texts and the label of the y axis.
const LEFT: f64 = 182.0;
const TOP: f64 = 12.0;
/// Half of a text's height above its base line.
const HALF_LINE: f64 = 11.0;
/// Half of a digit's width, and a little room.
const HALF_DIGIT: f64 = 11.0;
/// Colours and dash patterns of the style sheet.
pub(super) const COLOURS: usize = 7;
pub(super) const DASHES: usize = 3;

/// A colour of the style sheet, 0 to `COLOURS` × `DASHES` − 1; [`FLOOR`] is the floor's.
pub(super) type Ink = usize;
/// The floor.
pub(super) const FLOOR: Ink = COLOURS * DASHES;
/// A Pareto front.
pub(super) const FRONT: Ink = FLOOR + 1;

/// The classes of an ink.
#[must_use]
pub(super) fn class(ink: Ink) -> String {
    match ink {
        FLOOR => "c-floor".to_owned(),
        ink if ink >= FRONT => "c-front".to_owned(),
        ink => format!("c{} d{}", ink % COLOURS, ink / COLOURS),
    }
}

/// A line of a plot.
pub(super) struct Curve {
    pub(super) ink: Ink,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether its points are marked.
    pub(super) marked: bool,
}

/// A row of stacked bars.
pub(super) struct Bar {
    pub(super) name: String,
    /// The sum, as text.
    pub(super) total: String,
    pub(super) parts: Vec<(Ink, f64)>,
}

/// A row of a dot plot: shapes and their positions.
pub(super) struct Dots {
    pub(super) name: String,
    pub(super) dots: Vec<(Ink, Shape, f64)>,
}

/// A row with an estimate and its interval.
pub(super) struct Estimate {
    pub(super) name: String,
    pub(super) ink: Ink,
    pub(super) low: f64,
    pub(super) value: f64,
    pub(super) high: f64,
    /// The estimate, as text.
    pub(super) text: String,
}

/// The shape of a dot; colour alone does not distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Cross,
}

/// The area between the axes.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    /// Vertical grid lines with their texts, and the label below.
    fn x_axis(self, svg: &mut Svg, axis: &Axis) {
        let mut ticks: Vec<(f64, String)> =
            axis.ticks().map(|(value, text)| (axis.place(value, self.left, self.right), text)).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = f64::NEG_INFINITY;
        for (x, text) in ticks {
            svg.line("grid", 2.0, &[(x, self.top), (x, self.bottom)]);
            let half = text.chars().count() as f64 * HALF_DIGIT;
            // A text that would touch its neighbour is left out.
            if x - half > free {
                svg.text(x, self.bottom + 38.0, Anchor::Middle, &text);
                free = x + half;
            }
        }
        svg.line("rule", 2.0, &[(self.left, self.bottom), (self.right, self.bottom)]);
        svg.text(f64::midpoint(self.left, self.right), self.bottom + 90.0, Anchor::Middle, &axis.label);
    }

    /// Horizontal grid lines with their texts, and the label at the side.
    fn y_axis(self, svg: &mut Svg, axis: &Axis) {
        for (value, text) in axis.ticks() {
            let y = axis.place(value, self.bottom, self.top);
            svg.line("grid", 2.0, &[(self.left, y), (self.right, y)]);
            svg.text(self.left - 12.0, y + HALF_LINE, Anchor::End, &text);
        }
        svg.line("rule", 2.0, &[(self.left, self.top), (self.left, self.bottom)]);
        svg.upright(34.0, f64::midpoint(self.top, self.bottom), &axis.label);
    }
}

/// Curves over `x`, and `rules`, horizontal lines across all of it. `label` is what a screen reader says.
pub(super) fn lines(label: &str, x: &Axis, y: &Axis, curves: &[Curve], rules: &[(Ink, f64)]) -> String {
    let mut svg = Svg::new(label, WIDTH, HEIGHT);
    let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BELOW };
    area.x_axis(&mut svg, x);
    area.y_axis(&mut svg, y);
    for (ink, value) in rules {
        let y = y.place(*value, area.bottom, area.top);
        svg.line(&format!("l {}", class(*ink)), 5.0, &[(area.left, y), (area.right, y)]);
    }
    for curve in curves {
        let place = |&(a, b): &(f64, f64)| (x.place(a, area.left, area.right), y.place(b, area.bottom, area.top));
        let points: Vec<(f64, f64)> = curve.points.iter().map(place).collect();
        if points.len() > 1 {
            svg.line(&format!("l {}", class(curve.ink)), 5.0, &points);
        }
        if curve.marked {
            for &at in &points {
                svg.circle(&format!("f {}", class(curve.ink)), at, 9.0);
            }
        }
    }
    svg.end()
}

/// Rows of stacked bars from 0, each below its name.
pub(super) fn bars(label: &str, x: &Axis, bars: &[Bar]) -> String {
    let names = bars.iter().map(|bar| (bar.name.as_str(), bar.total.as_str()));
    rows(label, x, names, |svg, place, row, top| {
        let mut from = 0.0;
        for (ink, value) in &bars[row].parts {
            let (left, right) = (place(from), place(from + value));
            svg.rectangle(&format!("f {}", class(*ink)), (left, top + 0.45 * ROW), (right - left, 0.45 * ROW));
            from += value;
        }
    })
}

/// Rows of dots, each below its name; `rule` is marked in each.
pub(super) fn dots(label: &str, x: &Axis, dots: &[Dots], rule: f64) -> String {
    rows(label, x, dots.iter().map(|row| (row.name.as_str(), "")), |svg, place, row, top| {
        let middle = top + 0.67 * ROW;
        svg.line("rule", 3.0, &[(place(rule), top + 0.42 * ROW), (place(rule), top + 0.92 * ROW)]);
        for (ink, shape, value) in &dots[row].dots {
            match shape {
                Shape::Circle => svg.circle(&format!("f {}", class(*ink)), (place(*value), middle), 13.0),
                Shape::Cross => svg.cross(&format!("l {}", class(*ink)), (place(*value), middle), 13.0),
            }
        }
    })
}

/// Rows of estimates with their intervals, each below its name; `rule` is marked in each.
pub(super) fn estimates(label: &str, x: &Axis, estimates: &[Estimate], rule: f64) -> String {
    let names = estimates.iter().map(|row| (row.name.as_str(), row.text.as_str()));
    rows(label, x, names, |svg, place, row, top| {
        let (row, middle) = (&estimates[row], top + 0.67 * ROW);
        svg.line("rule", 3.0, &[(place(rule), top + 0.42 * ROW), (place(rule), top + 0.92 * ROW)]);
        let class = class(row.ink);
        let (low, high) = (place(row.low), place(row.high));
        svg.line(&format!("l {class} whole"), 5.0, &[(low, middle), (high, middle)]);
        for end in [low, high] {
            svg.line(&format!("l {class} whole"), 5.0, &[(end, middle - 12.0), (end, middle + 12.0)]);
        }
        svg.circle(&format!("f {class}"), (place(row.value), middle), 13.0);
    })
}

/// Rows below each other, each with a name at its left and a text at its right; `draw` gets the place of a value, the row and its top.
fn rows<'a>(
    label: &str,
    x: &Axis,
    names: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    draw: impl Fn(&mut Svg, &dyn Fn(f64) -> f64, usize, f64),
) -> String {
    let height = TOP + ROW * names.len() as f64 + BELOW;
    let mut svg = Svg::new(label, WIDTH, height);
    let area = Area { left: 42.0, right: WIDTH - RIGHT, top: TOP, bottom: height - BELOW };
    area.x_axis(&mut svg, x);
    let place = |value: f64| x.place(value, area.left, area.right);
    for (row, (name, text)) in names.enumerate() {
        let top = area.top + ROW * row as f64;
        svg.text(area.left, top + 0.36 * ROW, Anchor::Start, &short(name));
        if !text.is_empty() {
            svg.text(area.right, top + 0.36 * ROW, Anchor::End, &short(text));
        }
        draw(&mut svg, &place, row, top);
    }
    svg.end()
}

/// A name that fits a row; the table below the plot has the whole name.
fn short(name: &str) -> String {
    let name = one_line(name);
    if name.chars().count() <= 56 { name } else { name.chars().take(55).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_classes_instead_of_colours_and_a_label() {
        let values = [1.0, 1000.0];
        let line = Curve { ink: 8, points: vec![(1.0, 10.0), (100.0, 900.0)], marked: true };
        let axis = |label: &str| Axis::log(label, values, |v| v.to_string());
        let text = lines("a <plot> & \"more\"", &axis("x"), &axis("y"), &[line], &[(FLOOR, 50.0)]);
        assert!(
            text.starts_with("<svg viewBox=\"0 0 1200 700\" role=\"img\" aria-label=\"a &lt;plot&gt; &amp; &quot;more")
        );
        assert!(text.contains("class=\"l c1 d1\"") && text.contains("class=\"f c1 d1\"") && text.contains("c-floor"));
        assert!(!text.contains('#'), "a colour is left: {text}");
        assert!(text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn names_from_documents_cannot_become_markup() {
        let bar =
            Bar { name: "</text><script>alert(1)</script>".to_owned(), total: "3".to_owned(), parts: vec![(0, 3.0)] };
        let text = bars("bars", &Axis::linear("n", [3.0], |v| v.to_string()), &[bar]);
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
        let row = Dots { name: "x".repeat(5000), dots: vec![(0, Shape::Circle, 1.0), (1, Shape::Cross, 2.0)] };
        let text = dots("dots", &Axis::log("n", [1.0, 2.0], |v| v.to_string()), &[row], 1.0);
        assert!(text.len() < 10_000);
    }
}
