//! The findings as a report.

use results::table::layout::{dash, plural};
use results::table::{Report, Table};

use super::document::{Compression, Found, Mode, Quotient, Row};

const COLUMNS: [&str; 12] =
    ["level", "writes", "published", "ratio", "vpmu", "cpu", "ratio", "MiB", "perf", "cpu", "ratio", "MiB"];

/// Formats it as `1.04 [1.01, 1.08]`.
fn quotient(found: &Quotient) -> String {
    let interval = found.interval.map_or(String::new(), |[low, high]| format!(" [{low:.3}, {high:.3}]"));
    format!("{:.3}{interval}", found.ratio)
}

fn cells(row: &Row) -> Vec<String> {
    let writes = if row.mode == Mode::Serial { "serial" } else { "aio" };
    let mib = |found: &Found| format!("{:.2}", found.transferred as f64 / f64::from(1 << 20));
    let cpu = |found: &Found| quotient(&found.processor_overhead);
    let ratio = |found: &Found| format!("{:.3}", found.ratio);
    let mut cells = vec![
        row.level.to_string(),
        writes.to_owned(),
        format!("{:.2}", row.published.overhead),
        format!("{:.3}", row.published.ratio),
        quotient(&row.vpmu.overhead),
        cpu(&row.vpmu),
        ratio(&row.vpmu),
        mib(&row.vpmu),
    ];
    match &row.perf {
        Some(perf) => cells.extend([quotient(&perf.overhead), cpu(perf), ratio(perf), mib(perf)]),
        None => cells.extend([dash(), dash(), dash(), dash()]),
    }
    cells
}

fn lines(found: &Compression) -> Vec<String> {
    let mut lines = vec![
        "Columns published, vpmu and perf: time with compression over time at level 0 of the same round and mode, with its 95 % interval where there are five rounds and more; cpu: the same of processor \
         time; ratio: bytes of records over bytes of compressed ones; MiB of records, of all rounds."
            .to_owned(),
        format!(
            "vpmu record -F {}{} of {}; {} in random order, seed {}.",
            found.hertz,
            if found.chains { " -g" } else { "" },
            found.guest,
            plural(found.rounds as usize, "round"),
            found.seed
        ),
        format!("Stock perf record of the VMM with the same guest: {}.", found.perf),
        format!(
            "Published for perf record on a matrix product, results/published.toml {}: another program, host and trace.",
            found.figure
        ),
    ];
    for row in found.rows.iter().filter(|row| row.level == 1) {
        let (Some(perf), Some([time, busy])) = (&row.perf, &row.against_perf) else { continue };
        lines.push(format!(
            "Level 1, {}, against perf in the same round: overhead {} ×, of processor time {} ×; compression {:.3} × perf's.",
            if row.mode == Mode::Serial { "serial" } else { "aio" },
            quotient(time),
            quotient(busy),
            row.vpmu.ratio / perf.ratio
        ));
    }
    lines
}

/// Returns the findings as they are shown.
#[must_use]
pub fn report(found: &Compression) -> Report {
    let mut table = Table::new(COLUMNS).keys(2);
    found.rows.iter().for_each(|row| table.add_row(cells(row)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(lines(found));
    report
}

#[cfg(test)]
mod tests {
    use super::super::document::{Published, Recorded};
    use super::*;

    #[test]
    fn a_table_has_published_figures_and_says_that_perf_is_missing() {
        let recorded = Recorded { elapsed: 2.0, busy: 3.0, samples: 5, transferred: 3 << 20, compressed: 1 << 19 };
        let without = Recorded { elapsed: 1.6, busy: 2.0, ..recorded };
        let row = |perf: Option<Found>| Row {
            level: 1,
            mode: Mode::Serial,
            published: Published { overhead: 1.04, ratio: 8.427 },
            vpmu: Found::of(&[recorded], &[without]).unwrap(),
            against_perf: perf.as_ref().map(|_| [Quotient { ratio: 1.5, interval: Some([1.25, 1.75]) }; 2]),
            perf,
        };
        let document = |perf: Option<Found>, says: &str| Compression {
            figure: super::super::document::FIGURE,
            guest: "a guest".to_owned(),
            perf: says.to_owned(),
            hertz: 3989,
            chains: true,
            rounds: 1,
            seed: 1,
            rows: vec![row(perf)],
        };
        let alone = report(&document(None, "not measured: perf does not start")).markdown();
        assert!(
            alone.contains("| 1 | serial | 1.04 | 8.427 | 1.250 | 1.500 | 6.000 | 3.00 | – | – | – | – |"),
            "{alone}"
        );
        assert!(alone.contains("same guest: not measured: perf does not start.") && !alone.contains("× perf's"));
        let both = report(&document(Found::of(&[without], &[recorded]), "perf version 6.1")).text(80);
        assert!(both.contains("overhead 1.500 [1.250, 1.750]"), "{both}");
    }
}
