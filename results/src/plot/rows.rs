//! Plots of rows below each other, each with its name left of it: ratios with intervals.

use super::axis::{Axis, ticks};
use super::colour::ink;
use super::svg::{Area, CHARACTER, HALF_LINE, LINE, Plot, RIGHT, Scale, Series, TOP, WIDTH, path, short};
use crate::table::{Cell, Table};

/// Height of a row: a line of text on a phone, with room to the next.
const ROW: f64 = 46.0;
/// Most characters of a row's name, and of its text.
const NAME: usize = 16;
const TEXT: usize = 24;

/// A row: its name, its cell and the figure in it.
type Row<'a> = (&'a str, &'a Cell, f64);

/// Draws a row for each ratio of a column as a point with its interval, the lowest first; one line through all rows is the base. Above is
/// a `title` if that is not empty; `None` of no figure. A screen reader says `label`.
pub(crate) fn rows<'t>(
    (label, title): (&str, &str),
    value: &str,
    table: &'t Table,
    column: usize,
    base: &str,
) -> Option<Plot> {
    let row = |row: &'t Vec<Cell>| Some((&*row[0].text, &row[column], row[column].value?));
    let mut rows: Vec<Row<'_>> = table.rows.iter().filter_map(row).collect();
    rows.sort_by(|a, b| a.2.total_cmp(&b.2));
    let ends = |row: &Row<'_>| row.1.interval.map_or([row.2; 2], Into::into);
    let x = Axis::log(value, rows.iter().flat_map(|row| ends(row).into_iter().chain([row.2, 1.0])), ticks(""));
    // The base's name stands above its line, and the title above that. Only texts of a page, which has no title in its plots, are
    // larger on a phone.
    let character = if title.is_empty() { CHARACTER } else { 14.0 };
    let width = |text: &str, most: usize| text.chars().count().min(most) as f64 * character + HALF_LINE;
    let left = rows.iter().map(|row| width(row.0, NAME)).reduce(f64::max)?;
    let right = WIDTH - rows.iter().map(|row| width(&row.1.text, TEXT)).fold(RIGHT, f64::max);
    let top = TOP + LINE + if title.is_empty() { 0.0 } else { LINE + HALF_LINE };
    let area = Area { left, right, top, bottom: top + ROW * rows.len() as f64 };
    let place = |value| x.place(value, left, right);
    let series = rows.iter().zip(0..).map(|(row @ (name, cell, figure), number)| {
        let middle = top + ROW * (f64::from(number) + 0.5);
        let bar = |at: f64| [(at, middle - 13.0), (at, middle + 13.0)];
        let [low, high] = ends(row).map(place);
        let lines = [[(low, middle), (high, middle)], bar(low), bar(high)];
        let text = |x, text, most| (x, middle + HALF_LINE - 2.0, "end", short(text, most));
        Series {
            name: (*name).to_owned(),
            tip: short(&format!("{name}: {}", &cell.text), 200),
            ink: ink(name),
            // An interval that is no wider than its ends is not seen.
            path: if high - low > 4.0 { path(&lines.each_ref().map(|line| &line[..])) } else { String::new() },
            dots: vec![(place(*figure), middle)],
            lead: String::new(),
            texts: vec![text(left - HALF_LINE, name, NAME), text(WIDTH, &cell.text, TEXT)],
        }
    });
    let (at, name) = (place(1.0), short(base, NAME));
    let room = name.chars().count() as f64 * CHARACTER / 2.0;
    Some(Plot {
        label: label.to_owned(),
        title: short(title, 60),
        series: series.collect(),
        x: Scale::new(&x, left, right).across(),
        y: None,
        base: Some((at, (at.max(room), top - 10.0, "middle", name))),
        area,
    })
}
