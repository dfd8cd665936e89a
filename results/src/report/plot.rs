//! Plots as SVG, by plotters. Colours are not in them but classes, so that the page's style sheet can have a light, a dark and
//! a printed set; every line has a dash pattern besides.

use minijinja::HtmlEscape;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use crate::error::{Error, Exit, one_line};

/// Size in user units; twice what it is shown at, since plotters draws at whole ones.
const WIDTH: u32 = 1200;
const HEIGHT: u32 = 700;
/// Room of a row of bars, its name above it included.
const ROW: u32 = 96;
const FONT: i32 = 33;
/// Lines of the style sheet's colours and dashes.
pub(super) const COLOURS: usize = 7;
pub(super) const DASHES: usize = 3;

/// A colour of the style sheet, 0 to `COLOURS` × `DASHES` − 1; [`FLOOR`] is the floor's.
pub(super) type Ink = usize;
/// What no strategy can beat.
pub(super) const FLOOR: Ink = COLOURS * DASHES;
/// What nothing beats in both of two ways.
pub(super) const FRONT: Ink = FLOOR + 1;

const PAPER: RGBColor = RGBColor(1, 1, 1);
const TEXT: RGBColor = RGBColor(1, 1, 2);
const RULE: RGBColor = RGBColor(1, 1, 3);
const GRID: RGBColor = RGBColor(1, 1, 4);

fn colour(ink: Ink) -> RGBColor {
    RGBColor(2, 2, ink.min(FRONT) as u8)
}

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
pub(super) struct Line {
    pub(super) ink: Ink,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether its points are marked.
    pub(super) marked: bool,
}

/// A row of stacked bars.
pub(super) struct Bar {
    pub(super) name: String,
    /// What it adds up to, as text.
    pub(super) total: String,
    pub(super) parts: Vec<(Ink, f64)>,
}

/// A row of a dot plot: a shape and its position.
pub(super) struct Dots {
    pub(super) name: String,
    pub(super) dots: Vec<(Ink, Shape, f64)>,
}

/// How a dot looks, since colour alone must not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Cross,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws with `with`, and turns sentinels of colours into classes. `label` is what a screen reader says.
fn svg(
    label: &str,
    height: u32,
    with: impl FnOnce(&Area<'_>) -> Result<(), DrawingAreaErrorKind<std::io::Error>>,
) -> Result<String, Error> {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        with(&area).and_then(|()| area.present())
    };
    drawn.map_err(|error| {
        Error::new(Exit::Inconclusive, "cannot draw a plot", error.to_string(), "please report this as a bug")
    })?;
    let hex = |RGBColor(r, g, b): RGBColor| format!("#{r:02X}{g:02X}{b:02X}");
    let label = label.to_owned();
    let head = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", HtmlEscape(&label));
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let mut text = head + body;
    for (sentinel, class) in [(PAPER, "paper"), (TEXT, "ink"), (RULE, "rule"), (GRID, "grid")] {
        for attribute in ["stroke", "fill"] {
            text = text.replace(&format!("{attribute}=\"{}\"", hex(sentinel)), &format!("class=\"{class}\""));
        }
    }
    for ink in 0..=FRONT {
        text = text.replace(&format!("stroke=\"{}\"", hex(colour(ink))), &format!("class=\"l {}\"", class(ink)));
        text = text.replace(&format!("fill=\"{}\"", hex(colour(ink))), &format!("class=\"f {}\"", class(ink)));
    }
    // What plotters says everywhere and the style sheet says once.
    for noise in [" opacity=\"1\"", " font-family=\"sans-serif\"", " stroke=\"none\"", " fill=\"none\""] {
        text = text.replace(noise, "");
    }
    Ok(text)
}

/// Lines over `x`, and `rules`, horizontal lines across all of it.
pub(super) fn lines(label: &str, x: &Axis, y: &Axis, lines: &[Line], rules: &[(Ink, f64)]) -> Result<String, Error> {
    svg(label, HEIGHT, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(56)
            .x_label_area_size(100)
            .y_label_area_size(170)
            .build_cartesian_2d(x.clone(), y.clone())?;
        let text = ("sans-serif", FONT).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(RULE.stroke_width(2))
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(x.label.as_str())
            .y_desc(y.label.as_str())
            .draw()?;
        for (ink, value) in rules {
            let ends = [(x.low(), *value), (x.high(), *value)];
            chart.draw_series(LineSeries::new(ends, colour(*ink).stroke_width(5)))?;
        }
        for line in lines {
            let style = colour(line.ink);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style.stroke_width(5)))?;
            if line.marked {
                chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 9, style.filled())))?;
            }
        }
        Ok(())
    })
}

/// Rows of stacked bars from 0, each below its name.
pub(super) fn bars(label: &str, x: &Axis, bars: &[Bar]) -> Result<String, Error> {
    rows(label, x, &bars.iter().map(|bar| (bar.name.as_str(), bar.total.as_str())).collect::<Vec<_>>(), |chart, row| {
        let mut from = 0.0;
        for (ink, value) in &bars[row].parts {
            let corners = [(from, row as f64 + 0.45), (from + value, row as f64 + 0.9)];
            chart.draw_series([Rectangle::new(corners, colour(*ink).filled())])?;
            from += value;
        }
        Ok(())
    })
}

/// Rows of dots, each below its name.
pub(super) fn dots(label: &str, x: &Axis, dots: &[Dots], rule: f64) -> Result<String, Error> {
    rows(label, x, &dots.iter().map(|row| (row.name.as_str(), "")).collect::<Vec<_>>(), |chart, row| {
        let middle = row as f64 + 0.67;
        chart.draw_series(LineSeries::new(
            [(rule, row as f64 + 0.42), (rule, row as f64 + 0.92)],
            RULE.stroke_width(3),
        ))?;
        for (ink, shape, value) in &dots[row].dots {
            match shape {
                Shape::Circle => chart.draw_series([Circle::new((*value, middle), 13, colour(*ink).filled())])?,
                Shape::Cross => chart.draw_series([Cross::new((*value, middle), 13, colour(*ink).stroke_width(6))])?,
            };
        }
        Ok(())
    })
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

fn rows(
    label: &str,
    x: &Axis,
    names: &[(&str, &str)],
    draw: impl Fn(&mut Chart<'_, '_>, usize) -> Result<(), DrawingAreaErrorKind<std::io::Error>>,
) -> Result<String, Error> {
    let height = 110 + ROW * names.len() as u32;
    svg(label, height, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(56)
            .margin_left(30)
            .x_label_area_size(100)
            .build_cartesian_2d(x.clone(), Axis::rows(names.len()))?;
        let text = ("sans-serif", FONT).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(RULE.stroke_width(2))
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .x_desc(x.label.as_str())
            .draw()?;
        for (row, (name, total)) in names.iter().enumerate() {
            let start = text.pos(Pos::new(HPos::Left, VPos::Top));
            chart.draw_series([Text::new(short(name), (x.low(), row as f64 + 0.08), start)])?;
            if !total.is_empty() {
                let end = text.pos(Pos::new(HPos::Right, VPos::Top));
                chart.draw_series([Text::new(short(total), (x.high(), row as f64 + 0.08), end)])?;
            }
            draw(&mut chart, row)?;
        }
        Ok(())
    })
}

/// A name that fits a row; the table below the plot has it whole.
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
        let line = Line { ink: 8, points: vec![(1.0, 10.0), (100.0, 900.0)], marked: true };
        let axis = |label: &str| Axis::log(label, values, |v| v.to_string());
        let text = lines("a <plot> & \"more\"", &axis("x"), &axis("y"), &[line], &[(FLOOR, 50.0)]).unwrap();
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
        let text = bars("bars", &Axis::linear("n", [3.0], |v| v.to_string()), &[bar]).unwrap();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
        let row = Dots { name: "x".repeat(5000), dots: vec![(0, Shape::Circle, 1.0), (1, Shape::Cross, 2.0)] };
        let text = dots("dots", &Axis::log("n", [1.0, 2.0], |v| v.to_string()), &[row], 1.0).unwrap();
        assert!(text.len() < 10_000);
    }
}
