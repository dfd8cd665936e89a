//! Compares one kind of result on hosts with several kernels, to show the changes by a release of KVM or of perf.

use std::collections::BTreeMap;

use super::figure::{Figure, Table, dash};
use super::group::{self, key, newest, title};
use super::latency::{ARMS, date, too_many};
use super::strategies::capital;
use crate::document::{Record, Status};
use crate::metric;
use crate::paired::{self, Statistic};
use crate::plot::{self, Axis, Curve, Inks, duration};
use crate::table::layout::{level, ratio_with};

/// Kernels of a plot, the newest; the table has all.
const KERNELS: usize = 7;

/// Results of one kind by their hosts' kernel, in the order of releases.
type ByKernel<'a> = BTreeMap<(Vec<u64>, &'a str), Vec<&'a Record>>;

/// Draws a plot for each kind of result from hosts with several kernels; at most `most`.
pub(super) fn figures(records: &[Record], inks: &Inks, most: usize) -> Vec<Figure> {
    let mut families: BTreeMap<String, ByKernel<'_>> = BTreeMap::new();
    for record in records {
        if let (Some(kernel), Status::Complete) = (record.host.kernel.as_deref(), record.status) {
            // One processor: a kernel's effect is not to be a processor's.
            let kind = format!("{}\n{:?}", key(record, &[]), record.host.cpu_signature);
            families.entry(kind).or_default().entry((version(kernel), kernel)).or_default().push(record);
        }
    }
    let mut figures = Vec::new();
    for family in families.into_values().filter(|family| family.len() > 1).take(most) {
        let family: Vec<(&str, &Record)> = family
            .into_iter()
            .filter_map(|((_, kernel), mut records)| {
                records.sort_by_key(|record| record.started_unix);
                Some((kernel, newest(&records)?))
            })
            .collect();
        figures.extend(figure(&family, inks));
    }
    figures
}

/// Orders 6.1.0-9 before 6.1.0-10, and 6.9 before 6.12.
fn version(kernel: &str) -> Vec<u64> {
    kernel.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Shortens a kernel's release to fit below a tick: 6.1.0-50 of 6.1.0-50-cloud-amd64.
fn short(kernel: &str) -> String {
    let end = kernel.find(|c: char| !c.is_ascii_digit() && !".-".contains(c)).unwrap_or(kernel.len());
    let text = kernel[..end].trim_end_matches(['-', '.']);
    if text.is_empty() { kernel.chars().take(12).collect() } else { text.to_owned() }
}

fn figure(family: &[(&str, &Record)], inks: &Inks) -> Option<Figure> {
    let what = family.iter().find_map(|(_, record)| record.metric())?;
    let mut names: Vec<&str> = Vec::new();
    for arm in family.iter().flat_map(|(_, record)| &record.arms) {
        if !names.contains(&arm.name.as_str()) {
            names.push(&arm.name);
        }
    }
    let caption = format!("{} by the host's kernel", capital(&metric::name(what)));
    let mut table =
        Table::new(caption.clone(), &["arm", "kernel", "p50 [95 %]", "× floor", "lost", "values", "begun (UTC)"]);
    let drawn = &family[family.len().saturating_sub(KERNELS)..];
    let mut lines: Vec<Curve> = Vec::new();
    for name in names {
        let mut points = Vec::new();
        for (place, (kernel, record)) in family.iter().enumerate() {
            let Some(arm) = record.arm(name) else { continue };
            let Some((found, p50)) = arm.metrics.get(what).zip(paired::level(arm, what, Statistic::P50)) else {
                continue;
            };
            if let Some(place) = (place + drawn.len()).checked_sub(family.len()) {
                points.push((place as f64 + 1.0, p50.ns));
            }
            let floor = group::base(record).filter(|base| base.name != name);
            let ratio = floor.and_then(|base| paired::over_runs(record, arm, base, what, Statistic::P50));
            table.rows.push(vec![
                name.to_owned(),
                (*kernel).to_owned(),
                level(&p50),
                ratio.map_or_else(dash, |found| ratio_with(&found)),
                arm.own.lost.map_or_else(dash, |n| n.to_string()),
                found.count.to_string(),
                date(record.started_unix as f64),
            ]);
        }
        if !points.is_empty() {
            lines.push(Curve { name: name.to_owned(), ink: inks.of(name), points, marked: true });
        }
    }
    if lines.is_empty() {
        return None;
    }
    let arms = lines.len();
    lines.truncate(ARMS);
    let x = Axis::named("the host's kernel", drawn.iter().map(|(kernel, _)| short(kernel)).collect());
    let y = Axis::log("p50", lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y), duration).of_cost();
    let (_, newest) = family[family.len() - 1];
    let cut = if drawn.len() < family.len() {
        format!(" The newest {} of {} kernels are drawn.", drawn.len(), family.len())
    } else {
        String::new()
    };
    let note = format!(
        "{}; {}. Of each kernel the newest complete result that is not of few rounds beside others; hosts with one processor may differ in more than the kernel.{cut}{}",
        title(newest),
        newest.host.class,
        too_many(arms)
    );
    Some(Figure { note, plots: vec![plot::lines(&caption, &x, &y, &lines)], key: Vec::new(), title: caption, table })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn on(kernel: &str, started: u64) -> Record {
        let mut record = fixture::record(9, 5, |_, round| 1000 + round);
        record.host.kernel = Some(kernel.to_owned());
        record.started_unix = started;
        record
    }

    #[test]
    fn a_kind_on_several_kernels_makes_a_plot_in_the_order_of_releases() {
        let inks = Inks::new([]);
        assert!(figures(&[on("6.1.0-50-cloud-amd64", 1), on("6.1.0-50-cloud-amd64", 2)], &inks, 4).is_empty());
        let records = [on("6.12.1", 1), on("6.1.0-50-cloud-amd64", 2), on("5.10.0", 3), on("6.1.0-50-cloud-amd64", 4)];
        let found = figures(&records, &inks, 4);
        assert_eq!(found.len(), 1);
        let kernels: Vec<&str> = found[0].table.rows[..3].iter().map(|row| row[1].as_str()).collect();
        assert_eq!(kernels, ["5.10.0", "6.1.0-50-cloud-amd64", "6.12.1"]);
        assert_eq!(found[0].table.rows[1][6], date(4.0));
        let mut left = on("6.12.1", 1);
        left.status = Status::Interrupted;
        assert!(figures(&[on("5.10.0", 1), left], &inks, 4).is_empty());
    }
}
