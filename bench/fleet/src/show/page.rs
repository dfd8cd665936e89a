//! A fleet as one self-contained page: no script, nothing loaded.

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use super::elements::{ElementLine, HEAD};
use super::tables::{self, Cells};
use crate::statistics::{Analysis, HeatRow};
use results::error::Error;
use results::plot;
use results::template;

/// Most odd hosts with a row of the heat map and of the table.
const ODD: usize = 100;
/// Most hosts of the compact heat map, and most periods: the page stays below 5 MB.
const HOSTS: usize = 2000;
const CELLS: usize = 120_000;
/// Most rows of a table.
const ROWS: usize = 400;

/// A table with columns' classes, as the style sheet of reports has them.
#[derive(Serialize)]
struct Laid {
    caption: String,
    head: Vec<&'static str>,
    classes: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    more: usize,
}

fn laid(cells: Cells) -> Laid {
    let long =
        |column: usize| cells.rows.iter().filter_map(|row| row.get(column)).any(|text| text.chars().count() > 32);
    let class = |column: usize| match column {
        _ if long(column) => "w",
        _ if column < cells.keys || cells.left.contains(&column) => "t",
        _ => "n",
    };
    let classes = (0..cells.head.len()).map(class).collect();
    let more = cells.rows.len().saturating_sub(ROWS);
    Laid { caption: cells.caption, head: cells.head, classes, rows: cells.rows.into_iter().take(ROWS).collect(), more }
}

/// A class with its heat map.
#[derive(Serialize)]
struct ClassMap {
    name: String,
    hosts: usize,
    note: String,
    svg: String,
}

/// Everything the template shows.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    verdict: &'a str,
    exit: u8,
    summary: String,
    elements: Laid,
    odd: Laid,
    odd_map: Option<String>,
    class_map: String,
    classes: Vec<ClassMap>,
    key: Vec<String>,
    legend: Vec<String>,
    change_lines: Vec<String>,
    changes: Laid,
    levels: Laid,
    variance: Laid,
    remarks: Vec<String>,
}

fn classes(analysis: &Analysis) -> Vec<ClassMap> {
    let of =
        |class: &str| analysis.heat.hosts.iter().filter(|row| row.class == class).cloned().collect::<Vec<HeatRow>>();
    let most = HOSTS.min(CELLS / analysis.periods.len().max(1)) / analysis.classes.len().max(1);
    let mapped = |class: &crate::statistics::Class| {
        let mut rows = of(&class.name);
        let hosts = rows.len();
        rows.truncate(most);
        let note =
            if hosts > rows.len() { format!("The first {} of {hosts} are shown.", rows.len()) } else { String::new() };
        let svg = heat(analysis, &format!("Hosts of {} by time", class.name), &rows, rows.len() <= 60);
        ClassMap { name: class.name.clone(), hosts, note, svg }
    };
    analysis.classes.iter().map(mapped).collect()
}

/// Returns the date of a period, or all of its name.
fn date(period: &str) -> &str {
    period.split_once('(').map_or(period, |(_, date)| date.trim_end_matches(')'))
}

/// Draws rows of the heat map by the dates of periods.
fn heat(analysis: &Analysis, label: &str, rows: &[HeatRow], names: bool) -> String {
    let rows: Vec<(&str, &[Option<f64>])> = rows.iter().map(|row| (row.name.as_str(), &row.cells[..])).collect();
    plot::heat(label, &rows, &analysis.periods.iter().map(|period| date(period)).collect::<Vec<_>>(), names)
}

/// Returns the texts of the colours' key.
fn key() -> Vec<String> {
    let number = |end: f64| results::table::layout::signed(end, usize::from(end.fract() != 0.0));
    let mut key = vec![format!("below {} %", number(plot::HEAT[0]))];
    key.extend(plot::HEAT.windows(2).map(|two| format!("{} to {} %", number(two[0]), number(two[1]))));
    key.push(format!("above {} %", number(plot::HEAT[plot::HEAT.len() - 1])));
    key
}

/// The page. Elements that failed come first.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(analysis: &Analysis, elements: &[ElementLine], title: &str) -> Result<String, Error> {
    let bad = ElementLine::with_a_problem(elements);
    let caption = ElementLine::caption(elements);
    let rows = bad.iter().map(|element| element.cells().to_vec()).collect();
    let elements = laid(Cells { caption, head: HEAD.to_vec(), rows, keys: 3, left: vec![4, 5] });
    let odd: Vec<HeatRow> = analysis.heat.odd.iter().take(ODD).cloned().collect();
    let odd_map = (!odd.is_empty()).then(|| heat(analysis, "Odd hosts by time", &odd, true));
    let with_sign = |row: &HeatRow| {
        let name = [tables::class_of(analysis, &row.name), row.name.clone()].join(" ").trim().to_owned();
        HeatRow { name, ..row.clone() }
    };
    let by_class: Vec<HeatRow> = analysis.heat.classes.iter().map(with_sign).collect();
    let class_map = heat(analysis, "Host classes by time", &by_class, true);
    let page = Page {
        title,
        verdict: &analysis.verdict,
        exit: analysis.exit,
        summary: tables::summary(analysis).join(", "),
        elements,
        odd: laid(tables::odd(analysis)),
        odd_map,
        class_map,
        classes: classes(analysis),
        key: key(),
        legend: tables::legend(analysis),
        change_lines: tables::change_lines(analysis),
        changes: laid(tables::changes(analysis)),
        levels: laid(tables::levels(analysis, true)),
        variance: laid(tables::variance(analysis, true)),
        remarks: tables::remarks(analysis),
    };
    let values = context! {
        page => Value::from(Serde(&page)),
        style => results::report::STYLE,
        own_style => include_str!("page.css"),
    };
    template::page(include_str!("page.html"), values)
}
