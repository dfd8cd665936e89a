//! How latency grows with the size of what is measured: vCPUs, events, CPUs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::axis::Axis;
use super::figure::{Figure, Key, Table};
use super::group::{Inks, key, title};
use super::latency::{ARMS, metric_name, too_many};
use super::plot::{self, Line};
use crate::error::Error;
use crate::export::primary;
use crate::load::Record;
use crate::table::layout::time;

/// Parameters that are a size, and what they count.
const SIZES: [(&str, &str); 4] =
    [("vcpus", "vCPUs"), ("events", "events"), ("cpus", "CPUs"), ("event_count", "events")];

/// A plot for each kind of result that there is in several sizes; at most `most`.
pub(super) fn figures(records: &[Record], inks: &Inks, most: usize) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    for (parameter, unit) in SIZES {
        let mut families: BTreeMap<String, Vec<(u64, &Record)>> = BTreeMap::new();
        for record in records {
            if let Some(size) = record.parameters.get(parameter).and_then(Value::as_u64) {
                families.entry(key(record, &[parameter])).or_default().push((size, record));
            }
        }
        for mut family in families.into_values() {
            // The newest of each size stands for it.
            family.sort_by_key(|(size, record)| (*size, std::cmp::Reverse(record.started_unix)));
            family.dedup_by_key(|(size, _)| *size);
            if family.len() > 1 && figures.len() < most {
                figures.extend(figure(&family, unit, inks)?);
            }
        }
    }
    Ok(figures)
}

fn figure(family: &[(u64, &Record)], unit: &str, inks: &Inks) -> Result<Option<Figure>, Error> {
    let names: BTreeSet<&str> =
        family.iter().flat_map(|(_, record)| &record.arms).map(|arm| arm.name.as_str()).collect();
    let mut table = Table::new(format!("Median by number of {unit}"), &["arm", unit, "median", "values"]);
    let mut lines: Vec<(&str, Line)> = Vec::new();
    let mut what = "latency".to_owned();
    for name in names {
        let mut points = Vec::new();
        for (size, record) in family {
            if let Some((metric, figures)) = record.arm(name).and_then(primary) {
                what = metric_name(metric);
                points.push((*size as f64, figures.p50));
                let row = [name.to_owned(), size.to_string(), time(figures.p50), figures.count.to_string()];
                table.rows.push(row.to_vec());
            }
        }
        if !points.is_empty() {
            lines.push((name, Line { ink: inks.named(name), points, marked: true }));
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let arms = lines.len();
    lines.truncate(ARMS);
    let key = lines.iter().map(|(name, line)| Key::line(line.ink, *name)).collect();
    let lines: Vec<Line> = lines.into_iter().map(|(_, line)| line).collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::log(unit, all().map(|(x, _)| *x), |n| format!("{n:.0}"));
    let y = Axis::log("median", all().map(|(_, y)| *y), time);
    let newest = family.iter().map(|(_, record)| record).max_by_key(|record| record.started_unix);
    let of = newest.map_or_else(String::new, |record| format!("{}; {}", title(record), record.host.class));
    Ok(Some(Figure {
        title: format!("{} by number of {unit}", capital(&what)),
        note: format!("{of}. The newest result of each size.{}", too_many(arms)),
        svg: plot::lines(&format!("{what} by number of {unit}"), &x, &y, &lines, &[])?,
        key,
        table,
    }))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture;

    #[test]
    fn results_of_several_sizes_make_a_plot_and_of_one_none() {
        let (_a, one) = fixture::record(&[]);
        let (_b, mut two) = fixture::record(&[]);
        let inks = Inks::new(std::slice::from_ref(&one));
        assert!(figures(&[one.clone(), two.clone()], &inks, 4).unwrap().is_empty());
        two.parameters.insert("vcpus".to_owned(), 2.into());
        let figures = figures(&[one, two], &inks, 4).unwrap();
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].title, "Guest NMI handler latency by number of vCPUs");
        assert!(figures[0].note.contains("cpu-clock (stand-in)") && figures[0].note.contains("development host"));
        assert_eq!(figures[0].table.rows.len(), 8);
    }
}
