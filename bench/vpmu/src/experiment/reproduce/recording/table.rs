//! The table of recordings: ratios within a round, beside what was published.

use results::document::{Arm, Record};
use results::metric::{ELAPSED, PROCESSOR};
use results::paired::{Statistic, ratio};
use results::table::layout::{dash, plural, ratio_with};
use results::table::{Report, Table};

use super::{COMPRESSED, LEVELS, NAME, TRANSFERRED};
use crate::experiment::reproduce::recipe::{find, float};

/// Returns the published time over that at level 0, and the bytes for each compressed one.
fn published(level: u32, aio: bool) -> Option<[f64; 2]> {
    if level == 0 {
        return Some([1.0; 2]);
    }
    let is = |row: &&toml::Value| row.get(0).and_then(toml::Value::as_integer) == Some(level.into());
    let row = find(NAME)?.get("rows")?.as_array()?.iter().find(is)?;
    let at = if aio { 3 } else { 1 };
    Some([float(row.get(at)?)?, float(row.get(at + 1)?)?])
}

/// Returns the document as it is shown.
pub fn report(document: &Record) -> Report {
    let mut report = Report::new("vpmu reproduce");
    let find = |by: &str, level: u32, writes: &str| {
        let end = format!(", level {level}, {writes}");
        document.arms.iter().find(|arm| arm.name.starts_with(by) && arm.name.ends_with(&end))
    };
    let own = |by: &'static str| [by, "cpu", "ratio", "MiB"];
    let header = ["level", "writes", "published", "ratio"].into_iter().chain(own("vpmu")).chain(own("perf"));
    let mut table = Table::new(header).keys(2);
    for level in LEVELS {
        for (aio, writes) in [(false, "serial"), (true, "aio")] {
            let Some([time, bytes]) = published(level, aio) else { continue };
            let mut row = vec![level.to_string(), writes.to_owned(), format!("{time:.2}"), format!("{bytes:.3}")];
            for by in ["vpmu", "perf"] {
                let found = find(by, level, writes).map(|arm| cells(arm, find(by, 0, writes)));
                row.extend(found.unwrap_or_else(|| vec![dash(); 4]));
            }
            table.add_row(row);
        }
    }
    report.table(table);
    report.gap();
    report.note(
        "Columns published, vpmu and perf: time with compression over time at level 0 of the same round and mode, with its 95 % interval \
         where there are five rounds and more; cpu: the same of processor time; ratio: bytes of records over bytes of compressed ones; MiB \
         of records, of all rounds.",
    );
    report.note(
        "Published for perf record on a matrix product, results/published.toml record-compression: another program, host and trace.",
    );
    let rounds = plural(document.arms.first().map_or(0, |arm| arm.rounds.len()), "round");
    let parameter = |name| document.parameter(name).unwrap_or_default();
    report.note(format!("{}; {rounds} in random order, seed {}.", parameter("guest"), document.seed));
    report.note(format!("Stock perf record of the VMM with the same guest: {}.", parameter("perf")));
    report
}

/// Returns the sum of a metric over all rounds.
fn sum(arm: &Arm, key: &str) -> f64 {
    arm.rounds.metrics.get(key).map_or(0.0, |column| column.medians().sum())
}

/// Returns the bytes of records for each compressed byte; 1 without compression.
fn compressed(arm: &Arm) -> f64 {
    let (transferred, compressed) = (sum(arm, TRANSFERRED), sum(arm, COMPRESSED));
    if compressed > 0.0 { transferred / compressed } else { 1.0 }
}

fn cells(arm: &Arm, zero: Option<&Arm>) -> Vec<String> {
    let over =
        |metric| zero.and_then(|zero| ratio(arm, zero, metric, Statistic::P50)).map_or_else(dash, |it| ratio_with(&it));
    let [time, busy] = [ELAPSED.key, PROCESSOR.key].map(over);
    let mib = sum(arm, TRANSFERRED) / f64::from(1 << 20);
    vec![time, busy, format!("{:.3}", compressed(arm)), format!("{mib:.2}")]
}

#[cfg(test)]
mod tests {
    use super::super::{NAME, SAMPLES, Way};
    use super::*;
    use crate::engine::Rounds;
    use crate::engine::plain::{Experiment, Plain, Sample};
    use crate::terminal::progress::Silent;
    use results::host::{HostFacts, HostFs};

    #[test]
    fn overheads_are_ratios_within_a_round() {
        // A round takes 1, 2 … s without compression, half as long again with vpmu's, a fourth more with perf's.
        let take = |way: Way, round: u64| {
            let slower = if way.level == 0 { 0 } else { 1 + u64::from(way.by == "vpmu") };
            let ns = 1_000_000_000 * (1 + round) * (4 + slower) / 4;
            let mut sample = Sample::default().with(&ELAPSED, [ns]).with(&PROCESSOR, [2 * ns]);
            sample.add(SAMPLES, [10]);
            sample.add(TRANSFERRED, [1 << 20]);
            sample.add(COMPRESSED, [if way.level == 0 { 0 } else { 1 << 17 }]);
            Ok(Some(sample))
        };
        let mut arms: Vec<_> = Way::all(&["vpmu", "perf"])
            .into_iter()
            .map(|way| Plain::new(way.name(), "cpu-clock", move |turn| take(way, turn.index)))
            .collect();
        let rounds = Rounds::of(6, 1);
        let experiment = Experiment { name: NAME, parameters: serde_json::Map::new(), rounds, expected: None };
        let fs = HostFs::at("/nonexistent");
        let facts = (HostFacts::default(), &fs);
        let (document, _) =
            experiment.measure(&mut arms, facts, &[], &mut Silent, (&mut |_| false, &mut |_| Ok(()))).unwrap();
        let text = report(&document).text(200);
        let row = text.lines().find(|line| line.starts_with('1') && line.contains("serial")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().filter(|cell| !cell.contains(['[', ']'])).collect();
        assert_eq!(cells[..2], ["1", "serial"], "{row}");
        for figure in ["1.500", "1.250", "8.000", "6.00"] {
            assert!(cells.contains(&figure), "{figure} in {row}");
        }
        assert_eq!(published(0, true), Some([1.0; 2]));
    }
}
