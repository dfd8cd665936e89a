//! Plots of rows below each other, each with its name left of it: estimates with intervals, and the spread of rounds.

use super::axis::Axis;
use super::colour::Ink;
use super::svg::{Anchor, Area, BELOW, CHARACTER, HALF_LINE, LINE, RIGHT, Svg, TOP, WIDTH, short};
use crate::stats::interval::Interval;

/// Height of a row: a line of text on a phone, with room to the next.
const ROW: f64 = 46.0;
/// Half of the height of what is drawn in a row.
const HALF_BAND: f64 = 18.0;
/// Most characters of a row's name, and of its text.
const NAME: usize = 16;
const TEXT: usize = 24;

/// A row with an estimate and its interval.
pub(crate) struct Estimate {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) value: f64,
    pub(crate) interval: Option<Interval>,
    /// The estimate, as text.
    pub(crate) text: String,
}

/// A row with a value for each round.
pub(crate) struct Strip {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    /// Values in order of time.
    pub(crate) values: Vec<f64>,
    /// Lower quartile, median, upper quartile.
    pub(crate) quartiles: [f64; 3],
    /// The median, as text.
    pub(crate) text: String,
}

/// Draws estimates with their intervals, the lowest first, below a `title` if that is not empty. `base` is a value with
/// its name: one line through all rows.
pub(crate) fn estimates(label: &str, title: &str, x: &Axis, mut rows: Vec<Estimate>, base: (f64, &str)) -> String {
    rows.sort_by(|a, b| a.value.total_cmp(&b.value));
    let texts: Vec<(&str, &str)> = rows.iter().map(|row| (row.name.as_str(), row.text.as_str())).collect();
    // The base's name stands above its line, and the title above that.
    // Only texts of a page, which has no title in its plots, are larger on a phone.
    let (above, character) = if title.is_empty() { (LINE, CHARACTER) } else { (2.0 * LINE + HALF_LINE, 14.0) };
    drawn(label, x, area(&texts, above, character), |svg, area, place| {
        if !title.is_empty() {
            svg.text("title", (4.0, LINE - 8.0), Anchor::Start, &short(title, 60));
        }
        let (at, name) = (place(base.0), short(base.1, NAME));
        let room = name.chars().count() as f64 * CHARACTER / 2.0;
        svg.text("name c-floor", (at.max(room), area.top - 10.0), Anchor::Middle, &name);
        svg.line("l c-floor whole", 3.0, &[(at, area.top), (at, area.bottom)]);
        for_rows(svg, area, &texts, |svg, row, middle| {
            let (row, class) = (&rows[row], rows[row].ink.class());
            let ends = row.interval.map(|Interval { low, high }| (place(low), place(high)));
            // An interval that is no wider than its ends is not seen.
            if let Some((low, high)) = ends.filter(|(low, high)| high - low > 4.0) {
                svg.line(&format!("l {class} whole"), 4.0, &[(low, middle), (high, middle)]);
                for end in [low, high] {
                    svg.line(&format!("l {class} whole"), 4.0, &[(end, middle - 13.0), (end, middle + 13.0)]);
                }
            }
            svg.circle(row.ink, (place(row.value), middle), 8.0);
        });
    })
}

/// Draws values of rounds as dots, the first round uppermost in its row, with quartiles and median.
pub(crate) fn strips(label: &str, x: &Axis, strips: &[Strip]) -> String {
    let texts: Vec<(&str, &str)> = strips.iter().map(|row| (row.name.as_str(), row.text.as_str())).collect();
    drawn(label, x, area(&texts, 0.0, CHARACTER), |svg, area, place| {
        for_rows(svg, area, &texts, |svg, row, middle| {
            let (row, class) = (&strips[row], strips[row].ink.class());
            let (from, to) = (middle - HALF_BAND, middle + HALF_BAND);
            let [low, centre, high] = row.quartiles.map(place);
            svg.rectangle("box", (low, from), ((high - low).max(1.0), to - from));
            let step = (to - from - 8.0) / row.values.len() as f64;
            let points = row.values.iter().enumerate();
            svg.points(
                &format!("p {class}"),
                7.0,
                points.map(|(n, &value)| (place(value), from + 4.0 + step * (n as f64 + 0.5))),
            );
            svg.line(&format!("l {class} whole"), 5.0, &[(centre, from - 3.0), (centre, to + 3.0)]);
        });
    })
}

/// Returns the room that rows with these names and texts, of this width, leave between them.
fn area(texts: &[(&str, &str)], above: f64, character: f64) -> Area {
    let longest = |length: &dyn Fn(&(&str, &str)) -> usize, most: usize| {
        texts.iter().map(length).max().unwrap_or(0).min(most) as f64 * character + HALF_LINE
    };
    let left = longest(&|(name, _)| name.chars().count(), NAME);
    let right = longest(&|(_, text)| text.chars().count(), TEXT).max(RIGHT);
    let top = TOP + above;
    Area { left, right: WIDTH - right, top, bottom: top + ROW * texts.len() as f64 }
}

/// Draws the axis, and `draw` what is above it.
fn drawn(label: &str, x: &Axis, area: Area, draw: impl Fn(&mut Svg, Area, &dyn Fn(f64) -> f64)) -> String {
    let mut svg = Svg::new(label, WIDTH, area.bottom + BELOW);
    area.x_axis(&mut svg, x);
    draw(&mut svg, area, &|value| x.place(value, area.left, area.right));
    svg.end()
}

/// Writes the name and the text of each row, and has `draw` fill it; it gets the row's number and middle.
fn for_rows(svg: &mut Svg, area: Area, texts: &[(&str, &str)], draw: impl Fn(&mut Svg, usize, f64)) {
    for (row, (name, text)) in texts.iter().enumerate() {
        let middle = area.top + ROW * (row as f64 + 0.5);
        svg.open(name, &short(&format!("{name}: {text}"), 200));
        svg.text("", (area.left - HALF_LINE, middle + HALF_LINE - 2.0), Anchor::End, &short(name, NAME));
        svg.text("", (WIDTH, middle + HALF_LINE - 2.0), Anchor::End, &short(text, TEXT));
        draw(svg, row, middle);
        svg.close();
    }
}
