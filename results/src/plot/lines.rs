//! Plots of lines and of points.

use super::axis::Axis;
use super::colour::Ink;
use super::svg::{Anchor, Area, BELOW, CHARACTER, HALF_LINE, LINE, RIGHT, Svg, TOP, WIDTH, short};

const HEIGHT: f64 = 600.0;
/// Room for the ticks' texts and the label of the y axis.
const LEFT: f64 = 180.0;
/// Most characters of a name beside its line.
const NAME: usize = 16;

/// A line of a plot, or its only point.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) points: Vec<(f64, f64)>,
    /// True if its points are marked.
    pub(crate) marked: bool,
}

/// Draws curves over `x`, each with its name at its right end. A screen reader says `label`.
pub(crate) fn lines(label: &str, x: &Axis, y: &Axis, curves: &[Curve]) -> String {
    let names: Vec<String> = curves.iter().map(|curve| short(&curve.name, NAME)).collect();
    // A name beside its line is bold, and wider than other texts.
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let mut svg = Svg::new(label, WIDTH, HEIGHT);
    let area = Area {
        left: LEFT,
        right: WIDTH - (longest * (CHARACTER + 2.0) + 16.0).max(RIGHT),
        top: TOP,
        bottom: HEIGHT - BELOW,
    };
    area.x_axis(&mut svg, x);
    area.y_axis(&mut svg, y);
    svg.axes(x, y, area);
    let place = |&point: &(f64, f64)| area.place(x, y, point);
    let placed: Vec<Vec<(f64, f64)>> = curves.iter().map(|curve| curve.points.iter().map(place).collect()).collect();
    let ends: Vec<(f64, f64)> =
        placed.iter().map(|points| points.last().copied().unwrap_or((area.right, area.bottom))).collect();
    let heights = apart(&ends.iter().map(|end| end.1).collect::<Vec<_>>(), area.top + HALF_LINE, area.bottom);
    for (index, curve) in curves.iter().enumerate() {
        let (class, points, end) = (curve.ink.class(), &placed[index], ends[index]);
        svg.open(&curve.name, &curve.name);
        if points.len() > 1 {
            svg.line(&format!("l {class}"), 4.0, points);
        }
        if curve.marked {
            for &at in points {
                svg.circle(curve.ink, at, 8.0);
            }
        }
        let name = (area.right + 12.0, heights[index]);
        svg.line(&format!("lead {class}"), 2.0, &[end, (name.0 - 4.0, name.1)]);
        svg.text(&format!("name {class}"), (name.0, name.1 + HALF_LINE), Anchor::Start, &names[index]);
        svg.close();
    }
    svg.end()
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

/// Draws points with their names beside them, a `front` through some of them, and `rule`, a horizontal line with its
/// name. Gives the plot and which names had no room.
pub(crate) fn scatter(
    label: &str,
    x: &Axis,
    y: &Axis,
    points: &[Curve],
    front: &[(f64, f64)],
    rule: Option<f64>,
) -> (String, Vec<usize>) {
    let mut svg = Svg::new(label, WIDTH, HEIGHT);
    let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BELOW };
    area.x_axis(&mut svg, x);
    area.y_axis(&mut svg, y);
    let place = |&point: &(f64, f64)| area.place(x, y, point);
    let mut taken: Vec<[f64; 4]> = Vec::new();
    if let Some(value) = rule {
        let y = y.place(value, area.bottom, area.top);
        svg.line(&format!("l {}", Ink::Floor.class()), 4.0, &[(area.left, y), (area.right, y)]);
        svg.text("name c-floor", (area.right, y - 10.0), Anchor::End, "floor");
        taken.push([area.right - 5.0 * CHARACTER, y - LINE, area.right, y]);
    }
    let front: Vec<(f64, f64)> = front.iter().map(place).collect();
    if front.len() > 1 {
        svg.line(&format!("l {}", Ink::Front.class()), 4.0, &front);
    }
    let placed: Vec<(f64, f64)> = points.iter().filter_map(|point| point.points.first()).map(place).collect();
    taken.extend(placed.iter().map(|(x, y)| [x - 12.0, y - 12.0, x + 12.0, y + 12.0]));
    let mut unnamed = Vec::new();
    for (index, (point, &(px, py))) in points.iter().zip(&placed).enumerate() {
        let class = point.ink.class();
        svg.open(&point.name, &point.name);
        svg.circle(point.ink, (px, py), 12.0);
        let name = short(&point.name, 2 * NAME);
        let width = name.chars().count() as f64 * CHARACTER;
        let half = width / 2.0;
        let offsets = [(18.0, 0.0), (-18.0 - width, 0.0), (-half, -LINE), (-half, LINE), (14.0, -26.0), (14.0, 26.0)];
        let free = offsets.into_iter().map(|(dx, dy)| {
            let (left, middle) = (px + dx, py + dy);
            [left, middle - LINE / 2.0, left + width, middle + LINE / 2.0]
        });
        let inside =
            |found: &[f64; 4]| found[0] >= area.left && found[2] <= WIDTH && found[1] >= 0.0 && found[3] <= area.bottom;
        let touches = |a: &[f64; 4], b: &[f64; 4]| a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
        let found = free.into_iter().find(|one| inside(one) && !taken.iter().any(|other| touches(one, other)));
        if let Some(found) = found {
            let at = (found[0], f64::midpoint(found[1], found[3]) + HALF_LINE);
            svg.text(&format!("name {class}"), at, Anchor::Start, &name);
            taken.push(found);
        } else {
            unnamed.push(index);
        }
        svg.close();
    }
    (svg.end(), unnamed)
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

    #[test]
    fn a_name_without_room_beside_its_point_is_given_back() {
        let point = |name: &str, at| Curve { name: name.to_owned(), ink: Ink::Floor, points: vec![at], marked: true };
        let axis = || Axis::linear("", [10.0], |v| v.to_string());
        let apart = [point("a", (1.0, 1.0)), point("b", (9.0, 9.0))];
        let (text, unnamed) = scatter("two", &axis(), &axis(), &apart, &[], Some(2.0));
        assert!(unnamed.is_empty() && text.contains(">a</text>") && text.contains(">floor</text>"), "{text}");
        let heap: Vec<Curve> = (0..20).map(|n| point(&format!("strategy-{n}"), (5.0, 5.0))).collect();
        let (_, unnamed) = scatter("heap", &axis(), &axis(), &heap, &[], None);
        assert!(unnamed.len() > 10 && unnamed[0] > 0, "{unnamed:?}");
    }
}
