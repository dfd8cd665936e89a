//! Plots of rows below each other, each with its name left of it: estimates with intervals, and the spread of rounds.

use super::axis::{Axis, Format, plain};
use super::colour::ink;
use super::svg::{Anchor, Area, BELOW, CHARACTER, HALF_LINE, LINE, RIGHT, Svg, TOP, WIDTH, short};
use crate::stats::interval::Interval;
use crate::stats::nearest_rank;
use crate::table::{Cell, Table};

/// Height of a row: a line of text on a phone, with room to the next.
const ROW: f64 = 46.0;
/// Half of the height of what is drawn in a row.
const HALF_BAND: f64 = 18.0;
/// Most characters of a row's name, and of its text.
const NAME: usize = 16;
const TEXT: usize = 24;
/// Most rounds of a row that are drawn.
pub(crate) const DOTS: usize = 400;

/// A row: its name, its cell and the figure in it.
type Row<'a> = (&'a str, &'a Cell, f64);

fn rows<'a>(table: &'a Table, column: usize) -> Vec<Row<'a>> {
    let row = |row: &'a Vec<Cell>| Some((row[0].text(), &row[column], row[column].value?));
    table.rows().iter().filter_map(row).collect()
}

/// Draws the ratios of a column to `base` with their intervals, the lowest first, below a `title` if that is not empty; `None` of no
/// ratio. One line through all rows is the base.
pub(crate) fn estimates(label: &str, title: &str, table: &Table, column: usize, base: &str) -> Option<String> {
    let mut rows = rows(table, column);
    rows.sort_by(|a, b| a.2.total_cmp(&b.2));
    let ends = |row: &Row<'_>| row.1.interval.map_or([row.2; 2], |Interval { low, high }| [low, high]);
    let values = rows.iter().flat_map(|row| ends(row).into_iter().chain([row.2]));
    let x = Axis::log(&format!("× {base}, 95 % interval"), values.chain([1.0]), plain).of_cost();
    // The base's name stands above its line, and the title above that.
    // Only texts of a page, which has no title in its plots, are larger on a phone.
    let (above, character) = if title.is_empty() { (LINE, CHARACTER) } else { (2.0 * LINE + HALF_LINE, 14.0) };
    let area = area(&rows, above, character)?;
    let mut svg = Svg::new(label, WIDTH, area.bottom + BELOW);
    area.x_axis(&mut svg, &x);
    if !title.is_empty() {
        svg.text("title", (4.0, LINE - 8.0), Anchor::Start, &short(title, 60));
    }
    let place = |value| x.place(value, area.left, area.right);
    let (at, name) = (place(1.0), short(base, NAME));
    let room = name.chars().count() as f64 * CHARACTER / 2.0;
    svg.text("name c-floor", (at.max(room), area.top - 10.0), Anchor::Middle, &name);
    svg.line("l c-floor whole", 3.0, &[(at, area.top), (at, area.bottom)]);
    for_rows(&mut svg, area, &rows, |svg, row, middle| {
        let (ink, [low, high]) = (ink(row.0), ends(row).map(place));
        let class = format!("l {ink} whole");
        // An interval that is no wider than its ends is not seen.
        if high - low > 4.0 {
            svg.line(&class, 4.0, &[(low, middle), (high, middle)]);
            for end in [low, high] {
                svg.line(&class, 4.0, &[(end, middle - 13.0), (end, middle + 13.0)]);
            }
        }
        svg.circle(&ink, (place(row.2), middle), 8.0);
    });
    Some(svg.end())
}

/// Draws the points of a column, values of rounds, as dots, the first round uppermost in its row, with quartiles and median; `None` of no
/// values.
pub(crate) fn strips(label: &str, x: (&str, Format), table: &Table, column: usize) -> Option<String> {
    let rows = rows(table, column);
    let values = rows.iter().flat_map(|row| row.1.points.iter().map(|(_, value)| *value));
    let x = Axis::log(x.0, values, x.1).of_cost();
    let area = area(&rows, 0.0, CHARACTER)?;
    let mut svg = Svg::new(label, WIDTH, area.bottom + BELOW);
    area.x_axis(&mut svg, &x);
    let place = |value| x.place(value, area.left, area.right);
    for_rows(&mut svg, area, &rows, |svg, (name, cell, median), middle| {
        let ink = ink(name);
        let (from, to) = (middle - HALF_BAND, middle + HALF_BAND);
        let mut sorted: Vec<f64> = cell.points.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let [low, high] = [0.25, 0.75].map(|share| place(nearest_rank(&sorted, share).unwrap_or(*median)));
        svg.rectangle("box", (low, from), ((high - low).max(1.0), to - from));
        let points = || cell.points.iter().step_by(sorted.len().div_ceil(DOTS).max(1));
        let step = (to - from - 8.0) / points().count() as f64;
        let dots = points().enumerate().map(|(n, (_, value))| (place(*value), from + 4.0 + step * (n as f64 + 0.5)));
        svg.points(&format!("p {ink}"), 7.0, dots);
        let centre = place(*median);
        svg.line(&format!("l {ink} whole"), 5.0, &[(centre, from - 3.0), (centre, to + 3.0)]);
    });
    Some(svg.end())
}

/// Returns the room that rows, with texts of this width, leave between their names and texts; `None` of no row.
fn area(rows: &[Row<'_>], above: f64, character: f64) -> Option<Area> {
    let width = |text: &str, most: usize| text.chars().count().min(most) as f64 * character + HALF_LINE;
    let left = rows.iter().map(|row| width(row.0, NAME)).reduce(f64::max)?;
    let right = rows.iter().map(|row| width(row.1.text(), TEXT)).fold(RIGHT, f64::max);
    let top = TOP + above;
    Some(Area { left, right: WIDTH - right, top, bottom: top + ROW * rows.len() as f64 })
}

/// Writes the name and the text of each row, and has `draw` fill it; it gets the row and its middle.
fn for_rows(svg: &mut Svg, area: Area, rows: &[Row<'_>], draw: impl Fn(&mut Svg, &Row<'_>, f64)) {
    for (number, row) in rows.iter().enumerate() {
        let (name, text, middle) = (row.0, row.1.text(), area.top + ROW * (number as f64 + 0.5));
        svg.open(name, &short(&format!("{name}: {text}"), 200));
        svg.text("", (area.left - HALF_LINE, middle + HALF_LINE - 2.0), Anchor::End, &short(name, NAME));
        svg.text("", (WIDTH, middle + HALF_LINE - 2.0), Anchor::End, &short(text, TEXT));
        draw(svg, row, middle);
        svg.close();
    }
}
