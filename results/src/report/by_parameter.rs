//! A kind of result by one parameter: by the number of vCPUs, events or CPUs, and by the kernel of hosts of one kind.

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

/// Parameters, and how a plot names them.
const PARAMETERS: [(&str, &str); 4] = [
    ("vcpus", "number of vCPUs"),
    ("events", "number of events"),
    ("cpus", "number of CPUs"),
    (KERNEL, "the host's kernel"),
];
const KERNEL: &str = "kernel";
/// Parameters of a set-up that follow from the number of events. Elsewhere other events are another workload.
const FOLLOWS: [&str; 4] = ["events", "events_requested", "groups", "workload"];
/// Values of a plot, the last; the table has all.
const VALUES: usize = 7;

/// Results of one kind by the value of a parameter, in the order of its numbers.
type ByValue<'a> = BTreeMap<(Vec<u64>, String), Vec<&'a Record>>;

/// Draws a plot for each kind of result that there is with several values of a parameter; at most `most`.
pub(super) fn figures(records: &[Record], inks: &Inks, most: usize) -> Vec<Figure> {
    let of = |(parameter, name): (&str, &'static str)| {
        let mut families: BTreeMap<String, ByValue<'_>> = BTreeMap::new();
        for record in records {
            let Some((kind, value)) = kind(record, parameter).zip(value(record, parameter)) else { continue };
            families.entry(kind).or_default().entry((numbers(&value), value)).or_default().push(record);
        }
        let several = families.into_values().filter(|family| family.len() > 1);
        several.filter_map(|family| figure(family, name, inks)).collect::<Vec<_>>()
    };
    PARAMETERS.into_iter().flat_map(of).take(most).collect()
}

fn value(record: &Record, parameter: &str) -> Option<String> {
    if parameter != KERNEL {
        return record.size(parameter).map(|size| size.to_string());
    }
    record.host.kernel.clone().filter(|_| record.status == Status::Complete)
}

/// Returns what results have in common that differ in this parameter alone.
fn kind(record: &Record, parameter: &str) -> Option<String> {
    match (parameter, record.experiment.as_str()) {
        // One processor: a kernel's effect is not to be a processor's.
        (KERNEL, _) => Some(format!("{}\n{:?}", key(record, &[]), record.host.cpu_signature)),
        ("events", "stat-setup") => Some(key(record, &FOLLOWS)),
        ("events", _) => None,
        _ => Some(key(record, &[parameter])),
    }
}

/// Orders 6.1.0-9 before 6.1.0-10, and 6.9 before 6.12.
fn numbers(value: &str) -> Vec<u64> {
    value.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Shortens a kernel's release to fit below a tick: 6.1.0-50 of 6.1.0-50-cloud-amd64.
fn short(value: &str) -> String {
    let end = value.find(|c: char| !c.is_ascii_digit() && !".-".contains(c)).unwrap_or(value.len());
    let text = value[..end].trim_end_matches(['-', '.']);
    if text.is_empty() { value.chars().take(12).collect() } else { text.to_owned() }
}

fn figure(family: ByValue<'_>, parameter: &str, inks: &Inks) -> Option<Figure> {
    let newest = |((_, value), mut records): ((Vec<u64>, String), Vec<&'_ Record>)| {
        records.sort_by_key(|record| record.started_unix);
        newest(&records).map(|record| (value, record.clone()))
    };
    let family: Vec<(String, Record)> = family.into_iter().filter_map(newest).collect();
    let what = family.iter().find_map(|(_, record)| record.metric())?;
    let mut names: Vec<&str> = Vec::new();
    for arm in family.iter().flat_map(|(_, record)| &record.arms) {
        if !names.contains(&arm.name.as_str()) {
            names.push(&arm.name);
        }
    }
    let caption = format!("{} by {parameter}", capital(&metric::name(what)));
    let head = ["arm", parameter, "p50 [95 %]", "× floor", "lost", "values", "begun (UTC)"];
    let mut table = Table::new(caption.clone(), &head);
    let left_out = family.len().saturating_sub(VALUES);
    let mut lines: Vec<Curve> = Vec::new();
    for name in names {
        let mut points = Vec::new();
        for (place, (value, record)) in family.iter().enumerate() {
            let Some(arm) = record.arm(name) else { continue };
            let Some((found, p50)) = arm.metrics.get(what).zip(paired::level(arm, what, Statistic::P50)) else {
                continue;
            };
            points.extend((place + 1).checked_sub(left_out).filter(|at| *at > 0).map(|at| (at as f64, p50.ns)));
            let floor = group::base(record).filter(|base| base.name != name);
            let ratio = floor.and_then(|base| paired::over_runs(record, arm, base, what, Statistic::P50));
            table.rows.push(vec![
                name.to_owned(),
                value.clone(),
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
    let x = Axis::named(parameter, family[left_out..].iter().map(|(value, _)| short(value)).collect());
    let y = Axis::log("p50", lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y), duration).of_cost();
    let (_, last) = &family[family.len() - 1];
    let cut =
        if left_out > 0 { format!(" The last {VALUES} of {} values are drawn.", family.len()) } else { String::new() };
    let note = format!(
        "{}; {}. Of each value the newest result that is not of few rounds beside others; hosts may differ in more than it.{cut}{}",
        title(last),
        last.host.class,
        too_many(arms)
    );
    Some(Figure { note, plot: plot::lines(&caption, &x, &y, &lines), key: Vec::new(), title: caption, table })
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
    fn a_kind_with_several_values_makes_a_plot_in_their_order() {
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
        let mut many = [on("6.1", 1), on("6.1", 2)];
        many[0].parameters.insert("vcpus".to_owned(), 8.into());
        assert_eq!(figures(&many, &inks, 4)[0].title, "Guest NMI handler latency by number of vCPUs");
    }
}
