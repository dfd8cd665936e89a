//! Plots of rows below each other, each with its name left of it: estimates with intervals, and the spread of rounds.

use super::axis::{Axis, Format};
use super::colour::ink;
use super::svg::{Area, BELOW, CHARACTER, HALF_LINE, LINE, RIGHT, Svg, TOP, WIDTH, short};
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

/// Draws a row for each figure of a column: with points, values of rounds, as dots, the first round uppermost, with quartiles and the
/// figure, else as a point with its interval. Of ratios to a `base` the lowest is first, and one line through all rows is the base.
/// Above is a `title` if that is not empty; `None` of no figure.
pub(crate) fn rows<'t>(
    (label, title): (&str, &str),
    (value, format): (&str, Format),
    table: &'t Table,
    column: usize,
    base: Option<&str>,
) -> Option<String> {
    let row = |row: &'t Vec<Cell>| Some((row[0].text(), &row[column], row[column].value?));
    let mut rows: Vec<Row<'_>> = table.rows().iter().filter_map(row).collect();
    if base.is_some() {
        rows.sort_by(|a, b| a.2.total_cmp(&b.2));
    }
    let ends = |row: &Row<'_>| row.1.interval.map_or([row.2; 2], |Interval { low, high }| [low, high]);
    let values = rows.iter().flat_map(|row| match &row.1.points[..] {
        [] => [ends(row).to_vec(), vec![row.2]].concat(),
        points => points.iter().map(|(_, value)| *value).collect(),
    });
    let x = Axis::log(value, values.chain(base.map(|_| 1.0)), format).of_cost();
    // The base's name stands above its line, and the title above that. Only texts of a page, which has no title in its plots, are
    // larger on a phone.
    let character = if title.is_empty() { CHARACTER } else { 14.0 };
    let width = |text: &str, most: usize| text.chars().count().min(most) as f64 * character + HALF_LINE;
    let left = rows.iter().map(|row| width(row.0, NAME)).reduce(f64::max)?;
    let right = WIDTH - rows.iter().map(|row| width(row.1.text(), TEXT)).fold(RIGHT, f64::max);
    let top = TOP + if base.is_some() { LINE } else { 0.0 } + if title.is_empty() { 0.0 } else { LINE + HALF_LINE };
    let area = Area { left, right, top, bottom: top + ROW * rows.len() as f64 };
    let mut svg = Svg::new(label, WIDTH, area.bottom + BELOW);
    area.x_axis(&mut svg, &x);
    if !title.is_empty() {
        svg.text("title", (4.0, LINE - 8.0), "start", &short(title, 60));
    }
    let place = |value| x.place(value, area.left, area.right);
    if let Some(base) = base {
        let (at, name) = (place(1.0), short(base, NAME));
        let room = name.chars().count() as f64 * CHARACTER / 2.0;
        svg.text("name c-floor", (at.max(room), area.top - 10.0), "middle", &name);
        svg.line("l c-floor whole", 3.0, &[(at, area.top), (at, area.bottom)]);
    }
    for (row @ (name, cell, figure), number) in rows.iter().zip(0..) {
        let (ink, middle) = (ink(name), area.top + ROW * (f64::from(number) + 0.5));
        let class = format!("l {ink} whole");
        svg.open(name, &short(&format!("{name}: {}", cell.text()), 200));
        svg.text("", (area.left - HALF_LINE, middle + HALF_LINE - 2.0), "end", &short(name, NAME));
        svg.text("", (WIDTH, middle + HALF_LINE - 2.0), "end", &short(cell.text(), TEXT));
        let bar = |at: f64| [(at, middle - 13.0), (at, middle + 13.0)];
        if cell.points.is_empty() {
            let [low, high] = ends(row).map(place);
            // An interval that is no wider than its ends is not seen.
            if high - low > 4.0 {
                for line in [[(low, middle), (high, middle)], bar(low), bar(high)] {
                    svg.line(&class, 4.0, &line);
                }
            }
            svg.circle(&ink, (place(*figure), middle), 8.0);
        } else {
            let mut sorted: Vec<f64> = cell.points.iter().map(|(_, value)| *value).collect();
            sorted.sort_by(f64::total_cmp);
            let [low, high] = [0.25, 0.75].map(|share| place(nearest_rank(&sorted, share).unwrap_or(*figure)));
            svg.rectangle("box", (low, middle - HALF_BAND), ((high - low).max(1.0), 2.0 * HALF_BAND));
            let points = || cell.points.iter().step_by(sorted.len().div_ceil(DOTS).max(1));
            let (from, step) = (middle - HALF_BAND + 4.0, (2.0 * HALF_BAND - 8.0) / points().count() as f64);
            let dots = points().zip(0..).map(|((_, value), n)| (place(*value), from + step * (f64::from(n) + 0.5)));
            svg.points(&format!("p {ink}"), 7.0, dots);
            svg.line(&class, 5.0, &[HALF_BAND, -HALF_BAND].map(|half| (place(*figure), middle + half * 7.0 / 6.0)));
        }
        svg.close();
    }
    Some(svg.end())
}
