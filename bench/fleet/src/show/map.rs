//! The heat map as SVG: one path for each colour, so that thousands of cells stay small.

use std::fmt::Write as _;

use minijinja::HtmlEscape;

use crate::statistics::HeatRow;

/// Upper ends of the colours, in per cent; beyond the last is one more.
pub(super) const ENDS: [f64; 8] = [-6.0, -4.0, -2.5, -1.0, 1.0, 2.5, 4.0, 6.0];
/// User units of a column, of a row with a name, of the names, and of the dates above.
const NAMES: f64 = 190.0;
const WIDTH: f64 = 1000.0;
const TOP: f64 = 26.0;

/// The colour of a difference.
fn colour(log: f64) -> usize {
    let percent = log.exp_m1() * 100.0;
    ENDS.iter().take_while(|end| percent > **end).count()
}

/// Rows by periods. Without `names`, rows are `height` units high and have none.
pub(super) fn svg(label: &str, rows: &[HeatRow], periods: &[String], names: bool, height: f64) -> String {
    let left = if names { NAMES } else { 0.0 };
    let step = (WIDTH - left) / periods.len().max(1) as f64;
    let all = TOP + rows.len() as f64 * height;
    let label = HtmlEscape(label);
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {all:.0}\" role=\"img\" aria-label=\"{label}\">\n<title>{label}</title>\n");
    let mut paths: [String; ENDS.len() + 1] = std::array::from_fn(|_| String::new());
    // Writing to a String cannot fail, here and below.
    for (y, row) in rows.iter().enumerate() {
        let y = TOP + y as f64 * height;
        for (x, cell) in row.cells.iter().enumerate() {
            let Some(log) = cell else { continue };
            let (x, next) = (left + x as f64 * step, left + (x + 1) as f64 * step);
            let gap: f64 = if height > 4.0 { 1.0 } else { 0.0 };
            let (w, h) = (next - x - gap.min(step / 4.0), height - gap);
            let _ = write!(paths[colour(*log)], "M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z");
        }
        if names {
            let name: String = row.name.chars().take(26).collect();
            let _ = writeln!(
                out,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + height - 4.0,
                HtmlEscape(&name)
            );
        }
    }
    for (colour, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = writeln!(out, "<path class=\"k{colour}\" d=\"{path}\"/>");
    }
    // A name for a few columns.
    // A date takes 110 units.
    let every = (periods.len() * 110).div_ceil(if names { 810 } else { 1000 }).max(1);
    for (place, period) in periods.iter().enumerate().step_by(every) {
        let text = short(period);
        let _ = writeln!(out, "<text x=\"{:.0}\" y=\"16\">{}</text>", left + place as f64 * step, HtmlEscape(text));
    }
    out + "</svg>\n"
}

/// The date of a period, or all of its name.
fn short(period: &str) -> &str {
    period.split_once('(').map_or(period, |(_, date)| date.trim_end_matches(')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_colour_of_their_difference_and_texts_are_escaped() {
        assert_eq!([-0.5, -0.03, 0.0, 0.015, 0.5].map(colour), [0, 2, 4, 5, 8]);
        let row = HeatRow { name: "a<b".to_owned(), class: String::new(), cells: vec![Some(0.0), None, Some(0.5)] };
        let svg =
            svg("map", &[row], &["repetition 1 (2026-11-01)".to_owned(), "b".to_owned(), "c".to_owned()], true, 16.0);
        assert!(svg.contains("a&lt;b") && svg.contains(">2026-11-01<"), "{svg}");
        assert_eq!((svg.matches("<path").count(), svg.matches('M').count()), (2, 2), "{svg}");
    }
}
