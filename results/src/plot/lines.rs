//! Plots of lines.

use super::axis::{Axis, Format};
use super::colour::ink;
use super::svg::{Area, CHARACTER, HALF_LINE, LINE, Plot, RIGHT, Scale, Series, TOP, WIDTH, path, short};
use crate::table::Table;

/// Lower end of the area.
const BOTTOM: f64 = 500.0;
/// Room for the ticks' texts of the y axis.
const LEFT: f64 = 150.0;
/// Most characters of a name beside its line.
const NAME: usize = 16;
/// Most points of a line that are marked.
const MARKED: usize = 40;

/// A line of a plot, or its only point: its name and its points.
type Curve<'a> = (&'a str, Vec<(f64, f64)>);

/// Returns the curves of a table: a row with points is one, and rows with the same name are one of their values of `x` and `y`.
fn curves(table: &Table, x: usize, y: usize) -> Vec<Curve<'_>> {
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for row in &table.rows {
        let name = &*row[0].text;
        let place = curves.iter().position(|(own, _)| *own == name).unwrap_or(curves.len());
        if place == curves.len() {
            curves.push((name, Vec::new()));
        }
        curves[place].1.extend(row[x].value.zip(row[y].value));
        curves[place].1.extend(&row[y].points);
    }
    curves.retain(|(_, points)| !points.is_empty());
    curves
}

/// Draws the curves of a table, at most `most`, each with its name at its right end; `None` if there are none. `x` and `y` are the columns
/// of places and values, `axis` makes the axis of places of the largest one. A screen reader says `label`.
pub(crate) fn lines(
    label: &str,
    table: &Table,
    (x, axis): (usize, impl Fn(f64) -> Axis),
    (y, value, format): (usize, &str, Format),
    most: usize,
) -> Option<Plot> {
    let mut curves = curves(table, x, y);
    curves.truncate(most);
    let all = || curves.iter().flat_map(|(_, points)| points);
    let x = axis(all().map(|(x, _)| *x).reduce(f64::max)?);
    let y = Axis::log(value, all().map(|(_, y)| *y), format);
    let longest = curves.iter().map(|(name, _)| name.chars().count().min(NAME)).max()? as f64;
    // A name beside its line is bold, and wider than other texts.
    let right = WIDTH - (longest * (CHARACTER + 2.0) + 16.0).max(RIGHT);
    let area = Area { left: LEFT, right, top: TOP + LINE, bottom: BOTTOM };
    let place = |&(a, b): &(f64, f64)| (x.place(a, area.left, right), y.place(b, area.bottom, area.top));
    let placed: Vec<Vec<(f64, f64)>> = curves.iter().map(|(_, points)| points.iter().map(place).collect()).collect();
    let ends: Vec<(f64, f64)> = placed.iter().filter_map(|points| points.last().copied()).collect();
    let heights = apart(&ends.iter().map(|end| end.1).collect::<Vec<_>>(), area.top + HALF_LINE, area.bottom);
    let lines = curves.iter().zip(placed).zip(ends.iter().zip(heights));
    let series = lines.map(|(((name, _), points), (end, height))| Series {
        name: (*name).to_owned(),
        tip: (*name).to_owned(),
        ink: ink(name),
        path: path(&[&points]),
        dots: if points.len() <= MARKED { points } else { Vec::new() },
        lead: path(&[&[*end, (right + 8.0, height)]]),
        texts: vec![(right + 12.0, height + HALF_LINE, "start", short(name, NAME))],
    });
    Some(Plot {
        label: label.to_owned(),
        title: String::new(),
        series: series.collect(),
        x: Scale::new(&x, area.left, right).across(),
        y: Some(Scale::new(&y, area.bottom, area.top)),
        base: None,
        area,
    })
}

/// Returns heights at least a line apart, as near to `wanted` as the room from `top` to `bottom` has it.
fn apart(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut heights = wanted.to_vec();
    let mut free = top;
    for &index in &order {
        heights[index] = heights[index].max(free);
        free = heights[index] + LINE;
    }
    let mut free = bottom;
    for &index in order.iter().rev() {
        heights[index] = heights[index].min(free);
        free = heights[index] - LINE;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_lines_do_not_overlap() {
        let found = apart(&[100.0, 101.0, 480.0, 490.0], 20.0, 500.0);
        let mut sorted = found.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|two| two[1] - two[0] >= LINE - 1e-9), "{found:?}");
        assert!(sorted.iter().all(|y| (20.0..=500.0).contains(y)), "{found:?}");
        assert!(found[0] < found[1] && found[2] < found[3]);
    }
}
