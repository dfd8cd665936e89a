//! Shows how latency grows with the size of what is measured: vCPUs, events, CPUs.

use std::collections::{BTreeMap, BTreeSet};

use super::figure::{Figure, Table};
use super::group::{key, title};
use super::latency::{ARMS, too_many};
use super::strategies::capital;
use crate::document::Record;
use crate::plot::{self, Axis, Curve, Inks, duration};
use crate::table::layout::time;
use crate::{metric, paired};

/// Parameters that are a size, and the things that they count.
const SIZES: [(&str, &str); 3] = [("vcpus", "vCPUs"), ("events", "events"), ("cpus", "CPUs")];
/// Parameters of a set-up that follow from the number of events. Elsewhere other events are another workload.
const FOLLOWS: [&str; 4] = ["events", "events_requested", "groups", "workload"];

/// Draws a plot for each kind of result that there is in several sizes; at most `most`.
pub(super) fn figures(records: &[Record], inks: &Inks, most: usize) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (parameter, unit) in SIZES {
        let mut families: BTreeMap<String, Vec<(u64, &Record)>> = BTreeMap::new();
        for record in records {
            let without: &[&str] = match (parameter, record.experiment.as_str()) {
                ("events", "stat-setup") => &FOLLOWS,
                ("events", _) => continue,
                _ => &[parameter],
            };
            if let Some(size) = record.size(parameter) {
                families.entry(key(record, without)).or_default().push((size, record));
            }
        }
        for mut family in families.into_values() {
            // The newest result of each size represents it.
            family.sort_by_key(|(size, record)| (*size, std::cmp::Reverse(record.started_unix)));
            family.dedup_by_key(|(size, _)| *size);
            if family.len() > 1 && figures.len() < most {
                figures.extend(figure(&family, unit, inks));
            }
        }
    }
    figures
}

fn figure(family: &[(u64, &Record)], unit: &str, inks: &Inks) -> Option<Figure> {
    let names: BTreeSet<&str> =
        family.iter().flat_map(|(_, record)| &record.arms).map(|arm| arm.name.as_str()).collect();
    let mut table = Table::new(format!("Median by number of {unit}"), &["arm", unit, "p50", "values"]);
    let mut lines: Vec<Curve> = Vec::new();
    let what = family.iter().find_map(|(_, record)| record.metric())?;
    for name in names {
        let mut points = Vec::new();
        for (size, record) in family {
            let Some(arm) = record.arm(name) else { continue };
            if let Some((figures, p50)) = arm.metrics.get(what).zip(paired::p50(arm, what)) {
                points.push((*size as f64, p50));
                let row = [name.to_owned(), size.to_string(), time(p50), figures.count.to_string()];
                table.rows.push(row.to_vec());
            }
        }
        if !points.is_empty() {
            lines.push(Curve { name: (*name).to_owned(), ink: inks.of(name), points, marked: true });
        }
    }
    if lines.is_empty() {
        return None;
    }
    let arms = lines.len();
    lines.truncate(ARMS);
    let newest = family.iter().map(|(_, record)| record).max_by_key(|record| record.started_unix);
    let subject = newest.map_or_else(String::new, |record| format!("{}; {}", title(record), record.host.class));
    let note = format!("{subject}. The newest result of each size.{}", too_many(arms));
    let what = metric::name(what);
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::log(unit, all().map(|(x, _)| *x), |n| format!("{n:.0}")).whole();
    let y = Axis::log("p50", all().map(|(_, y)| *y), duration).of_cost();
    Some(Figure {
        title: format!("{} by number of {unit}", capital(&what)),
        note,
        plots: vec![plot::lines(&format!("{what} by number of {unit}"), &x, &y, &lines)],
        key: Vec::new(),
        table,
    })
}
