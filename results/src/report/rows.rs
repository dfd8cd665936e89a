//! Plots of rows below each other, each with its name above it: estimates with intervals, the spread of rounds, stacked bars.

use super::axis::Axis;
use super::plot::{Area, BELOW, CHARACTER, Ink, RIGHT, TOP, WIDTH, class, short};
use super::svg::{Anchor, Svg};
use crate::stats::interval::Interval;

/// Room of a row, its name above it included.
const ROW: f64 = 92.0;
/// Base line of a row's name.
const NAME: f64 = 34.0;
/// Beginning and end of the drawn part of a row.
const BAND: (f64, f64) = (46.0, 86.0);

/// A row with an estimate and its interval.
pub(super) struct Estimate {
    pub(super) name: String,
    pub(super) ink: Ink,
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
    /// The estimate, as text.
    pub(super) text: String,
}

/// A row with a value for each round.
pub(super) struct Strip {
    pub(super) name: String,
    pub(super) ink: Ink,
    /// Values in order of time.
    pub(super) values: Vec<f64>,
    /// Lower quartile, median, upper quartile.
    pub(super) quartiles: [f64; 3],
    /// The median, as text.
    pub(super) text: String,
}

/// A row of stacked bars.
pub(super) struct Bar {
    pub(super) name: String,
    /// The sum, as text.
    pub(super) total: String,
    /// Each with its name and its value as text.
    pub(super) parts: Vec<Part>,
}

/// A part of a bar.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) ink: Ink,
    pub(super) value: f64,
    pub(super) text: String,
}

/// Estimates with their intervals; `rule` is marked in each.
pub(super) fn estimates(label: &str, x: &Axis, estimates: &[Estimate], rule: f64) -> String {
    rows(label, x, estimates.iter().map(|row| (row.name.as_str(), row.text.as_str())), |svg, place, row, top| {
        let (row, middle) = (&estimates[row], top + f64::midpoint(BAND.0, BAND.1));
        svg.line("rule", 4.0, &[(place(rule), top + BAND.0), (place(rule), top + BAND.1)]);
        let class = class(row.ink);
        if let Some(Interval { low, high }) = row.interval {
            let (low, high) = (place(low), place(high));
            svg.line(&format!("l {class} whole"), 5.0, &[(low, middle), (high, middle)]);
            for end in [low, high] {
                svg.line(&format!("l {class} whole"), 5.0, &[(end, middle - 12.0), (end, middle + 12.0)]);
            }
        }
        svg.circle(&format!("f {class}"), (place(row.value), middle), 12.0);
    })
}

/// Draws values of rounds as dots, the first round uppermost in its row, with quartiles and median.
pub(super) fn strips(label: &str, x: &Axis, strips: &[Strip]) -> String {
    rows(label, x, strips.iter().map(|row| (row.name.as_str(), row.text.as_str())), |svg, place, row, top| {
        let row = &strips[row];
        let class = class(row.ink);
        let (from, to) = (top + BAND.0, top + BAND.1);
        let [low, middle, high] = row.quartiles.map(place);
        svg.rectangle("box", (low, from), ((high - low).max(1.0), to - from));
        let step = (to - from - 8.0) / row.values.len() as f64;
        let points = row.values.iter().enumerate();
        svg.points(
            &format!("p {class}"),
            8.0,
            points.map(|(n, &value)| (place(value), from + 4.0 + step * (n as f64 + 0.5))),
        );
        svg.line(&format!("l {class} whole"), 5.0, &[(middle, from - 4.0), (middle, to + 4.0)]);
    })
}

/// Draws stacked bars from 0, with the names of the parts in them where there is room. Gives the plot and the parts without a name in any
/// row.
pub(super) fn bars(label: &str, x: &Axis, bars: &[Bar]) -> (String, Vec<(String, Ink)>) {
    let place = |value: f64| x.place(value, LEFT, WIDTH - RIGHT);
    let fits = |part: &Part| place(part.value) - place(0.0) >= (part.name.chars().count() as f64 + 0.6) * CHARACTER;
    let all = || bars.iter().flat_map(|bar| &bar.parts);
    let mut unnamed: Vec<(String, Ink)> = Vec::new();
    for part in all() {
        let named = all().any(|other| other.name == part.name && fits(other));
        if !named && !unnamed.iter().any(|(name, _)| *name == part.name) {
            unnamed.push((part.name.clone(), part.ink));
        }
    }
    let text =
        rows(label, x, bars.iter().map(|bar| (bar.name.as_str(), bar.total.as_str())), |svg, place, row, top| {
            let mut from = 0.0;
            for part in &bars[row].parts {
                let (left, right) = (place(from), place(from + part.value));
                let class = class(part.ink);
                svg.open(&part.name, &format!("{}: {} {}", bars[row].name, part.name, part.text));
                svg.rectangle(&format!("f {class}"), (left, top + BAND.0), (right - left, BAND.1 - BAND.0));
                if fits(part) {
                    let at = (f64::midpoint(left, right), top + f64::midpoint(BAND.0, BAND.1) + 11.0);
                    svg.classed(&format!("on {class}"), at, Anchor::Middle, &part.name);
                }
                svg.close();
                from += part.value;
            }
        });
    (text, unnamed)
}

/// Left edge of the rows.
const LEFT: f64 = 32.0;

/// Draws rows, each with a name at its left and a text at its right; `draw` gets the place of a value, the row and its top.
fn rows<'a>(
    label: &str,
    x: &Axis,
    names: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    draw: impl Fn(&mut Svg, &dyn Fn(f64) -> f64, usize, f64),
) -> String {
    let height = TOP + ROW * names.len() as f64 + BELOW;
    let mut svg = Svg::new(label, WIDTH, height);
    let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: height - BELOW };
    area.x_axis(&mut svg, x);
    let place = |value: f64| x.place(value, area.left, area.right);
    for (row, (name, text)) in names.enumerate() {
        let top = area.top + ROW * row as f64;
        svg.open(name, &short(&format!("{name}: {text}"), 200));
        svg.text(area.left, top + NAME, Anchor::Start, &short(name, 24));
        if !text.is_empty() {
            svg.text(area.right, top + NAME, Anchor::End, &short(text, 30));
        }
        draw(&mut svg, &place, row, top);
        svg.close();
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(high: f64) -> Axis {
        Axis::linear("n", [high], |v| v.to_string())
    }

    fn part(name: &str, ink: Ink, value: f64) -> Part {
        Part { name: name.to_owned(), ink, value, text: value.to_string() }
    }

    #[test]
    fn names_from_documents_cannot_become_markup() {
        let evil = "</text><script>alert(1)</script>";
        let bar = Bar { name: evil.to_owned(), total: "3".to_owned(), parts: vec![part(evil, 0, 3.0)] };
        let (text, _) = bars("bars", &axis(3.0), &[bar]);
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
        let row = Estimate { name: "x".repeat(5000), ink: 0, value: 1.0, interval: None, text: String::new() };
        let text = estimates("dots", &axis(2.0), &[row], 1.0);
        assert!(text.len() < 10_000, "{}", text.len());
    }

    #[test]
    fn parts_are_named_within_or_given_back() {
        let bar = Bar {
            name: "reuse".to_owned(),
            total: "10".to_owned(),
            parts: vec![part("open", 0, 9.9), part("map", 1, 0.1)],
        };
        let (text, unnamed) = bars("bars", &axis(10.0), &[bar]);
        assert!(text.contains(">open</text>") && !text.contains(">map</text>"), "{text}");
        assert!(text.contains("<title>reuse: map 0.1</title>"), "{text}");
        assert_eq!(unnamed, [("map".to_owned(), 1)]);
    }

    #[test]
    fn every_round_is_a_dot_in_order_of_time() {
        let row = Strip {
            name: "reuse".to_owned(),
            ink: 0,
            values: vec![3.0, 1.0, 2.0],
            quartiles: [1.5, 2.0, 2.5],
            text: "2".to_owned(),
        };
        let text = strips("rounds", &axis(4.0), &[row]);
        let path = text.lines().find(|line| line.contains("class=\"p c0 d0\"")).unwrap();
        assert_eq!(path.matches("h0").count(), 3);
        let heights: Vec<f64> =
            path.split('M').skip(1).map(|at| at.split([' ', 'h']).nth(1).unwrap().parse().unwrap()).collect();
        assert!(heights.windows(2).all(|two| two[0] < two[1]), "{heights:?}");
    }
}
